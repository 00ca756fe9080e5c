//! An engine that one test alone uses, so that it may end it.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::engine;
use crate::process::until;

/// A running dockerd. Dropping it removes its containers and ends it.
pub struct OwnEngine {
    dir: TempDir,
    arguments: Vec<String>,
    process: Child,
}

impl OwnEngine {
    /// Starts one that makes neither a network nor a rule of the firewall.
    pub async fn start() -> Self {
        Self::start_with(Vec::new()).await
    }

    /// Starts one with these arguments, too.
    pub async fn start_with(arguments: Vec<String>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let process = launch(&dir, &arguments);
        let engine = Self { dir, arguments, process };
        engine.answers().await;
        engine
    }

    /// Its address.
    pub fn host(&self) -> String {
        format!("unix://{}/docker.sock", self.dir.path().display())
    }

    /// Ends it by this signal and starts it again; returns once it answers.
    pub async fn restart(&mut self, signal: Signal) {
        self.end(signal);
        self.process = launch(&self.dir, &self.arguments);
        self.answers().await;
    }

    async fn answers(&self) {
        let host = self.host();
        until("the engine answers", || async {
            engine::docker_at(&host, &["version"]).status.success()
        })
        .await;
    }

    fn end(&mut self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).expect("a pid");
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
        self.process.wait().expect("waited");
        // Its containerd ends with it, but may stay a zombie for want of a parent that waits, which the next
        // dockerd would take for a running one.
        let _ = std::fs::remove_file(self.dir.path().join("run/containerd/containerd.pid"));
    }
}

fn launch(dir: &TempDir, arguments: &[String]) -> Child {
    let path = |name: &str| dir.path().join(name);
    let log = File::options().create(true).append(true).open(path("log")).expect("a log");
    Command::new("dockerd")
        .arg("--host")
        .arg(format!("unix://{}", path("docker.sock").display()))
        .arg("--pidfile")
        .arg(path("docker.pid"))
        .arg("--exec-root")
        .arg(path("run"))
        .arg("--data-root")
        .arg(path("data"))
        .args(["--bridge=none", "--iptables=false"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a copy"))
        .stderr(log)
        .spawn()
        .expect("dockerd is there")
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        let host = self.host();
        let listed = engine::docker_at(&host, &["ps", "--all", "--quiet"]).stdout;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let remove = ["rm", "--force", "--volumes"].into_iter().chain(listed.lines());
        engine::docker_at(&host, &remove.collect::<Vec<_>>());
        self.end(Signal::TERM);
        // One that was killed has left mounts, which keep the directory.
        let data = self.dir.path().join("data");
        let unmounted = Command::new("umount").args(["--lazy", "--recursive"]).arg(data).output();
        drop(unmounted);
    }
}
