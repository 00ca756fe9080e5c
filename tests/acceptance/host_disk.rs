//! Sandboxes that together are allowed more disk than the host has: one fills it, or several do, or
//! uploads do, and no other sandbox is harmed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use reqwest::Method;
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::process::{Answer, Place, Server, WAIT, try_send, until};

/// What must be free for a sandbox to be made, in MiB. What writes is ended below half of it.
const RESERVE_MB: u64 = 600;
/// What the test itself takes of the disk, and gives back, in MiB.
const BALLAST_MB: u64 = 500;

/// A small file system in a file, mounted at a place; unmounted with this.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    pub fn mount(gb: u64, image: &Path, at: PathBuf) -> Self {
        let file = std::fs::File::create(image).expect("a file");
        file.set_len(gb << 30).expect("sparse");
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

    /// A file that takes up so much of it.
    fn ballast(&self, mb: u64) -> PathBuf {
        let ballast = self.0.join("ballast");
        let file = std::fs::File::create(&ballast).expect("a file");
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, mb << 20)
            .expect("there is room");
        ballast
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

/// What a reason says was left of the host's disk, in MiB.
fn left_mb(reason: &str) -> Option<u64> {
    let (_, left) = reason.split_once("the host's disk is nearly full: ")?;
    left.strip_suffix(" MB left")?.parse().ok()
}

/// What a sandbox had before, for [`goes_on`].
const KEEP: &str = "echo precious > kept && sync kept";

/// Sees that a sandbox runs as before, with all that it had.
async fn goes_on(server: &Server, issue: &str, id: &str) {
    let look =
        "echo more >> kept && sync kept && cat kept && grep ' /workspace ' /proc/self/mounts";
    let seen = server.sh(id, look).await;
    let seen = seen["stdout"].as_str().expect("text");
    assert!(seen.starts_with("precious\nmore\n") && seen.contains(" rw,"), "{seen}");
    assert_eq!(server.sandbox(issue).await["phase"], "running");
}

/// Puts the data of a place on a disk of so many GiB.
fn small_data(place: &Place, gb: u64) -> SmallDisk {
    std::fs::remove_dir_all(place.data()).expect("there is nothing in it yet");
    SmallDisk::mount(gb, &place.config().with_file_name("small.ext4"), place.data())
}

async fn serve(place: &Place, reserve: &str) -> Server {
    let mut command = place.serve_command("127.0.0.1:0");
    command.env("ISSUEBOX__PROVIDERS__LOCAL__DISK_RESERVE", reserve);
    // What each can write before any of it must be on the disk: beside other tests a look can be late.
    command.env("ISSUEBOX__TEMPLATES__DEFAULT__MEMORY_MB", "96");
    command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    Server::start(command.stdout(Stdio::null())).await
}

async fn running_id(server: &Server, issue: &str) -> String {
    server.running(issue).await["id"].as_str().expect("an id").to_owned()
}

/// How much space was left, in MB, when sandboxes of these issues were stopped; waits for the first.
async fn reported(server: &Server, issues: &[&str]) -> Vec<u64> {
    let begin = Instant::now();
    loop {
        let mut reported = Vec::new();
        for issue in issues {
            reported
                .extend(reasons(server, issue).await.iter().filter_map(|reason| left_mb(reason)));
        }
        if !reported.is_empty() {
            return reported;
        }
        assert!(begin.elapsed() < WAIT, "it must be reported");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn is_in(server: &Server, issue: &str, phase: &str) {
    until(phase, || async { server.sandbox(issue).await["phase"] == phase }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, mkfs and loop devices, and writes a gigabyte; run by .ci/run"]
async fn a_sandbox_that_fills_the_hosts_disk_is_stopped_and_no_other_is_harmed() {
    assert!(geteuid().is_root(), "only root can mount");
    let Some(place) = Place::local(None).await else { return };
    let disk = small_data(&place, 2);
    let ballast = disk.ballast(BALLAST_MB);
    let server = serve(&place, &format!("{RESERVE_MB} MB")).await;
    let [greedy, other] = ["test-1", "test-2"];
    let [greedy_id, other_id] =
        [running_id(&server, greedy).await, running_id(&server, other).await];
    let provider = &system(&server).await["providers"][0];
    assert_eq!(provider["isolation"]["limits"]["disk"], "enforced", "{provider}");
    assert_eq!(provider["capacity"]["diskNeededMb"], RESERVE_MB, "{provider}");
    assert_eq!(provider["capacity"]["shortage"], Value::Null, "{provider}");
    server.sh(&other_id, KEEP).await;

    let fill =
        json!({"command": ["sh", "-c", "echo mine > small; sync small; cat /dev/zero > big"]});
    let ended = server.post(&format!("/v1/sandboxes/{greedy_id}/exec"), &fill).await;
    assert!(ended.json()["data"]["exitCode"] != 0, "{ended:?}");
    is_in(&server, greedy, "stopped").await;
    let reported = reasons(&server, greedy).await;
    let left = reported.iter().find_map(|reason| left_mb(reason));
    let left = left.unwrap_or_else(|| panic!("it is reported: {reported:?}"));
    assert!((RESERVE_MB / 8..RESERVE_MB).contains(&left), "it was in time: {left} MB");
    assert!(reported.iter().any(|r| r.contains("its provider ended it")), "{reported:?}");

    // A sandbox that wrote little goes on, with all its data.
    goes_on(&server, other, &other_id).await;

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
    assert!(server.log().contains("not making or starting sandboxes"), "{}", server.log());

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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, mkfs and loop devices, and writes gigabytes; run by .ci/run"]
async fn five_that_fill_a_small_hosts_disk_at_once_are_stopped_in_time() {
    assert!(geteuid().is_root(), "only root can mount");
    let Some(place) = Place::local(None).await else { return };
    let disk = small_data(&place, 5);
    disk.ballast(2_000);
    let server = serve(&place, "auto").await;
    let other_id = running_id(&server, "test-6").await;
    let mut greedy = Vec::new();
    for number in 1..=5 {
        let issue = format!("test-{number}");
        greedy.push((running_id(&server, &issue).await, issue));
    }
    let needed = system(&server).await["providers"][0]["capacity"]["diskNeededMb"].clone();
    assert_eq!(needed, 1024, "what is kept free of a small disk");
    server.sh(&other_id, KEEP).await;

    let fill = json!({"command": ["sh", "-c", "cat /dev/zero > big"]});
    let paths = greedy.iter().map(|(id, _)| format!("/v1/sandboxes/{id}/exec")).collect::<Vec<_>>();
    let ended = join_all(paths.iter().map(|path| server.post(path, &fill))).await;
    for ended in ended {
        assert!(ended.json()["data"]["exitCode"] != 0, "{ended:?}");
    }
    let greedy: Vec<&str> = greedy.iter().map(|(_, issue)| &**issue).collect();
    let reported = reported(&server, &greedy).await;
    assert!(
        !reported.is_empty() && reported.iter().all(|left| (128..1024).contains(left)),
        "{reported:?}"
    );
    goes_on(&server, "test-6", &other_id).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, mkfs and loop devices, and writes gigabytes; run by .ci/run"]
async fn uploads_that_fill_the_hosts_disk_stop_their_sandboxes() {
    const UPLOAD_LEN: usize = 900 << 20;
    assert!(geteuid().is_root(), "only root can mount");
    let Some(place) = Place::local(None).await else { return };
    let disk = small_data(&place, 2);
    disk.ballast(BALLAST_MB);
    let server = serve(&place, &format!("{RESERVE_MB} MB")).await;
    let other_id = running_id(&server, "test-3").await;
    let into = ["test-1", "test-2"];
    let [first, second] = [running_id(&server, into[0]).await, running_id(&server, into[1]).await];
    server.sh(&other_id, KEEP).await;

    let zeros = Bytes::from(vec![0; UPLOAD_LEN]);
    let uploads = [first, second].map(|id| {
        let path = format!("/v1/sandboxes/{id}/files/content?path=big");
        try_send(server.request(Method::PUT, &path).body(zeros.clone()))
    });
    let answers = join_all(uploads).await;
    let are_whole = answers.iter().filter(|a| a.as_ref().is_some_and(Answer::is_success)).count();
    assert!(are_whole < 2, "both do not fit: {answers:?}");
    let reported = reported(&server, &into).await;
    let is_in_time = |left: &u64| (RESERVE_MB / 8..RESERVE_MB).contains(left);
    assert!(!reported.is_empty() && reported.iter().all(is_in_time), "{reported:?} {answers:?}");
    goes_on(&server, "test-3", &other_id).await;
    server.stop().await;
}
