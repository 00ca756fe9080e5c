//! The model's toolboxes: commands, sessions and files, each in the directory of its sandbox.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::process::Command;

use super::model::{MARK, Model};
use super::pty;
use super::server::ModelAnswer;

/// The longest time of a command, so that tests meet the end of one that waits in vain.
const EXECUTE_WAIT_MAX: Duration = Duration::from_millis(1_500);

pub fn error(status: u16, message: &str) -> ModelAnswer {
    let body = json!({
        "message": message, "path": "/", "statusCode": status,
        "timestamp": "2026-01-01T00:00:00Z", "source": "DAYTONA_DAEMON",
    });
    (status, body).into()
}

/// Answers a request to a sandbox's toolbox.
pub async fn answer(
    model: &Model,
    id: &str,
    method: &str,
    path: &str,
    query: &str,
    body: Bytes,
) -> ModelAnswer {
    let home = model.dir.join(id).join("home");
    let env = {
        let sandboxes = model.sandboxes();
        let Some(sandbox) = sandboxes.iter().find(|sandbox| sandbox.id == id) else {
            return error(404, "no such sandbox");
        };
        if sandbox.state != "started" {
            return error(400, "the sandbox is not started");
        }
        sandbox.asked["env"].clone()
    };
    let at = ToolboxPlace { id, home: &home, env };
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let json = || serde_json::from_slice::<Value>(&body).expect("JSON");
    match (method, parts.as_slice()) {
        ("POST", ["process", "execute"]) => execute(&at, &json()).await,
        (_, ["process", "session", rest @ ..]) => of_sessions(model, &at, (method, rest), &body),
        (_, ["process", "pty", rest @ ..]) => {
            pty::answer(model, id, (method, rest), &body, || at.login_shell())
        }
        ("GET", ["files", "download"]) => match fs::read(at.path_of(query)) {
            Ok(content) => ModelAnswer {
                status: 200,
                content_type: "application/octet-stream",
                body: content.into(),
            },
            Err(_) => error(404, "no such file"),
        },
        ("POST", ["files", "upload-v2"]) => {
            let path = at.path_of(query);
            fs::create_dir_all(path.parent().expect("it is below a directory")).expect("made");
            fs::write(&path, &body).expect("written");
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let shown = path.display().to_string();
            (200, json!({"name": name, "path": shown, "type": "file"})).into()
        }
        _ => error(404, "no such call"),
    }
}

/// Answers a request that concerns sessions.
fn of_sessions(
    model: &Model,
    at: &ToolboxPlace<'_>,
    call: (&str, &[&str]),
    body: &Bytes,
) -> ModelAnswer {
    let json = || serde_json::from_slice::<Value>(body).expect("JSON");
    match call {
        ("POST", []) => {
            let session = json()["sessionId"].as_str().expect("a session").to_owned();
            let mut is_new = false;
            model.with(at.id, |sandbox| {
                is_new = sandbox.sessions.insert(session, 0).is_none();
            });
            if is_new { (201, Value::Null).into() } else { error(409, "there is such a session") }
        }
        ("POST", [session, "exec"]) => {
            let mut number = None;
            model.with(at.id, |sandbox| {
                number = sandbox.sessions.get_mut(*session).map(|commands| {
                    *commands += 1;
                    *commands
                });
            });
            let Some(number) = number else { return error(404, "no such session") };
            start(at, &json());
            (202, json!({"cmdId": format!("command-{number}")})).into()
        }
        ("DELETE", [session]) => {
            let mut was_there = false;
            model.with(at.id, |sandbox| was_there = sandbox.sessions.remove(*session).is_some());
            if was_there { (204, Value::Null).into() } else { error(404, "no such session") }
        }
        _ => error(404, "no such call"),
    }
}

/// Where a toolbox works.
struct ToolboxPlace<'a> {
    id: &'a str,
    home: &'a Path,
    env: Value,
}

impl ToolboxPlace<'_> {
    /// The path that a query names, whatever bytes are in it.
    fn path_of(&self, query: &str) -> PathBuf {
        let path = query.split('&').find_map(|pair| pair.strip_prefix("path=")).unwrap_or_default();
        let path: Vec<u8> = percent_encoding::percent_decode(path.as_bytes()).collect();
        self.home.join(OsStr::from_bytes(&path))
    }

    fn shell(&self, body: &Value) -> Command {
        let mut command = self.program("/bin/sh");
        command.arg("-c").arg(body["command"].as_str().expect("a command"));
        command.process_group(0);
        command.into()
    }

    /// An interactive login shell, in a session of its own.
    fn login_shell(&self) -> std::process::Command {
        let mut command = self.program("setsid");
        let shells = ["/bin/bash", "/bin/sh"].into_iter();
        let shell = shells.filter(|shell| Path::new(shell).exists()).take(1);
        command.arg("--ctty").args(shell).args(["-i", "-l"]);
        command
    }

    fn program(&self, program: &str) -> std::process::Command {
        let mut command = std::process::Command::new(program);
        command.current_dir(self.home).env_clear().stdin(Stdio::null());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.home);
        command.env(MARK, self.id);
        for (name, value) in self.env.as_object().into_iter().flatten() {
            command.env(name, value.as_str().expect("a text"));
        }
        command
    }
}

/// Kills a process group when it is dropped.
struct GroupGuard(Option<rustix::process::Pid>);

impl Drop for GroupGuard {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

async fn execute(at: &ToolboxPlace<'_>, body: &Value) -> ModelAnswer {
    let mut command = at.shell(body);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(child) = child else { return error(500, "it cannot be started") };
    let pid = child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
    let mut guard = GroupGuard(pid);
    let wait = Duration::from_secs(body["timeout"].as_u64().unwrap_or(10)).min(EXECUTE_WAIT_MAX);
    match tokio::time::timeout(wait, child.wait_with_output()).await {
        Ok(Ok(ended)) => {
            guard.0 = None;
            let mut result = String::from_utf8_lossy(&ended.stdout).into_owned();
            result.push_str(&String::from_utf8_lossy(&ended.stderr));
            (200, json!({"exitCode": ended.status.code().unwrap_or(-1), "result": result})).into()
        }
        Ok(Err(_)) => error(500, "it cannot be read"),
        Err(_) => error(408, "command execution timeout"),
    }
}

/// Starts a command that outlives its request.
fn start(at: &ToolboxPlace<'_>, body: &Value) {
    assert_eq!(body["runAsync"], true);
    let mut command = at.shell(body);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("a shell can be started");
    tokio::spawn(async move { drop(child.wait().await) });
}
