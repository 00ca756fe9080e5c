//! `issuebox files` against a server whose provider keeps files in memory.

mod common;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

use common::server::{TOKEN, TestServer};
use serde_json::Value;

/// The program, set to speak to this server, beside the test's own runtime.
async fn run(server: &TestServer, args: &[&OsStr], stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_issuebox"));
    command.args(args).env_clear();
    command.env("ISSUEBOX_SERVER", server.url("")).env("ISSUEBOX_TOKEN", TOKEN);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let stdin = stdin.to_owned();
    let ended = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("it starts");
        let mut pipe = child.stdin.take().expect("piped");
        // What it does not want to read, it need not.
        drop(pipe.write_all(&stdin));
        drop(pipe);
        child.wait_with_output().expect("it ends")
    });
    ended.await.expect("not cancelled")
}

fn words(text: &str) -> Vec<&OsStr> {
    text.split(' ').map(OsStr::new).collect()
}

fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("not killed"), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn files_go_in_and_out_byte_for_byte() {
    let server = TestServer::start().await;
    server.running("1").await;
    let bytes: Vec<u8> = (0..300_000_u64).map(|n| (n * n % 251) as u8).collect();
    let put = run(&server, &words("files put 1 src/a.bin"), &bytes).await;
    assert_eq!(told(&put), (0, "src/a.bin made\n".to_owned(), String::new()));
    let cat = run(&server, &words("files cat claude-issue-1 src/a.bin"), b"").await;
    assert!(cat.stdout == bytes, "{} bytes came back", cat.stdout.len());

    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("new");
    std::fs::write(&file, "smaller").expect("written");
    let put = [words("files put 1 src/a.bin"), vec![file.as_os_str()]].concat();
    assert_eq!(told(&run(&server, &put, b"").await).1, "src/a.bin replaced\n");
    let cat = run(&server, &words("files cat 1 /workspace/src/a.bin"), b"").await;
    assert_eq!(cat.stdout, b"smaller");

    // A name is bytes, also where they are no text.
    let name = OsStr::from_bytes(b"caf\xe9 &?");
    let put = [words("files put 1"), vec![name]].concat();
    assert_eq!(told(&run(&server, &put, b"x").await).0, 0);
    let cat = [words("files cat 1"), vec![name]].concat();
    assert_eq!(run(&server, &cat, b"").await.stdout, b"x");
    let (code, listed, _) = told(&run(&server, &words("files ls 1 --depth 3 -q"), b"").await);
    assert_eq!(code, 0);
    let names: Vec<&str> = listed.lines().collect();
    assert!(names.contains(&"src/a.bin") && names.contains(&"caf\u{fffd} &?"), "{listed}");
    let (_, table, _) = told(&run(&server, &words("files ls 1 src"), b"").await);
    assert!(table.starts_with("KIND  MODE  SIZE  AGE"), "{table}");
    assert!(table.contains("\nfile  0644  7 ") && table.contains(" src/a.bin\n"), "{table}");
    let (_, json, _) = told(&run(&server, &words("files ls 1 src -o json"), b"").await);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let entries = json.as_array().expect("a list");
    assert!(entries.iter().any(|entry| entry["path"] == "src/a.bin" && entry["size"] == 7));
}

#[tokio::test]
async fn what_is_not_there_and_what_cannot_be_read_is_said() {
    let server = TestServer::start().await;
    server.running("1").await;
    let (code, out, err) = told(&run(&server, &words("files cat 1 none"), b"").await);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.starts_with("error: "), "{err}");
    assert_eq!(told(&run(&server, &words("files ls 2"), b"").await).0, 3);
    assert_eq!(told(&run(&server, &words("files cat 1 ../etc/passwd"), b"").await).0, 2);
    let (code, _, err) = told(&run(&server, &words("files put 1 x /nowhere"), b"").await);
    assert!(code == 1 && err.starts_with("error: /nowhere cannot be read: "), "{err}");
    let (code, _, err) = told(&run(&server, &words("files put 1 x /tmp"), b"").await);
    assert!(code == 1 && err.starts_with("error: /tmp is a directory"), "{err}");
}
