//! Sandboxes that together are allowed more disk than the host has: one fills it, and nobody else is
//! harmed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::process::{Place, Server, until};

/// What must be free for a sandbox to be made, in MiB. What writes is ended below half of it.
const RESERVE_MB: u64 = 600;
/// What the test itself takes of the disk, and gives back, in MiB.
const BALLAST_MB: u64 = 500;

/// A small file system in a file, mounted at a place; unmounted with this.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(image: &Path, at: PathBuf) -> Self {
        let file = std::fs::File::create(image).expect("a file");
        file.set_len(2 << 30).expect("sparse");
        let [image, shown] = [image, &at].map(|path| path.to_str().expect("text"));
        run("mkfs.ext4", &["-q", "-F", "-m", "0", image]);
        std::fs::create_dir_all(&at).expect("a place");
        // As on a disk, what is written to it is in memory once.
        let device = run("losetup", &["--direct-io=on", "--find", "--show", image]);
        run("mount", &[device.trim(), shown]);
        // Once it is unmounted.
        run("losetup", &["--detach", device.trim()]);
        Self(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Also where a server that a failed test leaves behind still has it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn run(program: &str, args: &[&str]) -> String {
    let path = "/usr/sbin:/sbin:/usr/bin:/bin";
    let ended = Command::new(program).args(args).env("PATH", path).output().expect("starts");
    assert!(ended.status.success(), "{program} {args:?}: {ended:?}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

async fn system(server: &Server) -> Value {
    server.get("/v1/system").await.json()["data"].clone()
}

async fn reasons(server: &Server, issue: &str) -> Vec<String> {
    let events = server.get(&format!("/v1/issues/{issue}/events")).await.json();
    let reason = |event: &Value| event["reason"].as_str().expect("a reason").to_owned();
    events["data"].as_array().expect("a timeline").iter().map(reason).collect()
}

async fn is_in(server: &Server, issue: &str, phase: &str) {
    until(phase, || async { server.sandbox(issue).await["phase"] == phase }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, mkfs and loop devices, and writes a gigabyte; run by .ci/run"]
async fn whoever_fills_the_hosts_disk_is_stopped_and_nobody_else_is_harmed() {
    assert!(geteuid().is_root(), "only root can mount");
    let Some(place) = Place::local(None).await else { return };
    std::fs::remove_dir_all(place.data()).expect("there is nothing in it yet");
    let image = place.config().with_file_name("small.ext4");
    let disk = SmallDisk::mount(&image, place.data());
    let ballast = disk.0.join("ballast");
    let file = std::fs::File::create(&ballast).expect("a file");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, BALLAST_MB << 20)
        .expect("there is room");
    drop(file);
    let mut command = place.serve_command("127.0.0.1:0");
    command.env("ISSUEBOX__PROVIDERS__LOCAL__DISK_RESERVE", format!("{RESERVE_MB} MB"));
    // What each can write before any of it must be on the disk.
    command.env("ISSUEBOX__TEMPLATES__DEFAULT__MEMORY_MB", "96");
    command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let server = Server::start(command.stdout(Stdio::null())).await;
    let [greedy, other, greedy_too] = ["test-1", "test-2", "test-4"];
    let id = |sandbox: Value| sandbox["id"].as_str().expect("an id").to_owned();
    let greedy_id = id(server.running(greedy).await);
    let other_id = id(server.running(other).await);
    let greedy_too_id = id(server.running(greedy_too).await);
    let provider = &system(&server).await["providers"][0];
    assert_eq!(provider["isolation"]["limits"]["disk"], "enforced", "{provider}");
    assert_eq!(provider["capacity"]["diskNeededMb"], RESERVE_MB, "{provider}");
    assert_eq!(provider["capacity"]["shortage"], Value::Null, "{provider}");
    server.sh(&other_id, "echo precious > kept && sync kept").await;

    let fill =
        json!({"command": ["sh", "-c", "echo mine > small; sync small; cat /dev/zero > big"]});
    let exec = [&greedy_id, &greedy_too_id].map(|id| format!("/v1/sandboxes/{id}/exec"));
    let [ended, ended_too] = exec.each_ref().map(|path| server.post(path, &fill));
    let (ended, ended_too) = tokio::join!(ended, ended_too);
    assert!(ended.json()["data"]["exitCode"] != 0, "{ended:?}");
    assert!(ended_too.json()["data"]["exitCode"] != 0, "{ended_too:?}");
    is_in(&server, greedy, "stopped").await;
    is_in(&server, greedy_too, "stopped").await;
    let told = reasons(&server, greedy).await;
    let left = told.iter().find_map(|reason| {
        let (_, left) = reason.split_once("the host's disk is nearly full: ")?;
        left.strip_suffix(" MB left")?.parse::<u64>().ok()
    });
    let left = left.unwrap_or_else(|| panic!("it is told: {told:?}"));
    assert!((RESERVE_MB / 8..RESERVE_MB).contains(&left), "it was in time: {left} MB");
    assert!(told.iter().any(|r| r.contains("its provider had ended it")), "{told:?}");

    // Whoever wrote little goes on, with all that it had.
    let look =
        "echo more >> kept && sync kept && cat kept && grep ' /workspace ' /proc/self/mounts";
    let seen = server.sh(&other_id, look).await;
    let seen = seen["stdout"].as_str().expect("text");
    assert!(seen.starts_with("precious\nmore\n") && seen.contains(" rw,"), "{seen}");
    assert_eq!(server.sandbox(other).await["phase"], "running");

    // Nothing begins, and everybody says why; what is there is found.
    for issue in [greedy, "test-3"] {
        let refused = server.ensure(issue).await;
        assert_eq!(refused.refusal(), (507, "no_room".to_owned()), "{refused:?}");
        assert!(refused.text.contains("600 MB are needed"), "{}", refused.text);
    }
    assert_eq!(server.ensure(other).await.status, 200);
    let now = system(&server).await;
    let shortage = now["providers"][0]["capacity"]["shortage"].as_str().expect("a shortage");
    assert!(shortage.contains("nearly full"), "{now}");
    assert!(now["degraded"].to_string().contains("nearly full"), "{now}");
    assert_eq!(server.get("/readyz").await.json()["data"]["status"], "degraded");
    assert!(server.log().contains("no sandbox is made or started"), "{}", server.log());

    // It is over by itself.
    std::fs::remove_file(&ballast).expect("removed");
    until("there is room", || async {
        system(&server).await["providers"][0]["capacity"]["shortage"].is_null()
    })
    .await;
    server.running("test-3").await;
    let id = server.running(greedy).await["id"].as_str().expect("an id").to_owned();
    let seen = server.sh(&id, "cat small && rm big && sync . && echo writable").await;
    assert_eq!(seen["stdout"], "mine\nwritable\n", "{seen}");
    server.stop().await;
}
