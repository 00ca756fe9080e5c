//! `issuebox files` against a server whose provider keeps files in memory.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

use crate::common::server::{TOKEN, TestServer};
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

fn parts_of(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("not killed"), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn files_go_in_and_out_byte_for_byte() {
    let server = TestServer::start().await;
    server.running("1").await;
    let bytes: Vec<u8> = (0..300_000_u64).map(|n| (n * n % 251) as u8).collect();
    let put = run(&server, &words("files put 1 src/a.bin"), &bytes).await;
    let note = "note: reading the content from standard input; name a FILE to upload it\n";
    assert_eq!(parts_of(&put), (0, "src/a.bin created\n".to_owned(), note.to_owned()));
    let put = run(&server, &words("files put 1 typed -"), b"x").await;
    assert_eq!(parts_of(&put), (0, "typed created\n".to_owned(), String::new()));
    let cat = run(&server, &words("files cat claude-issue-1 src/a.bin"), b"").await;
    assert!(cat.stdout == bytes, "{} bytes came back", cat.stdout.len());

    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("new");
    std::fs::write(&file, "smaller").expect("written");
    let put = [words("files put 1 src/a.bin"), vec![file.as_os_str()]].concat();
    assert_eq!(parts_of(&run(&server, &put, b"").await).1, "src/a.bin replaced\n");
    let cat = run(&server, &words("files cat 1 /workspace/src/a.bin"), b"").await;
    assert_eq!(cat.stdout, b"smaller");

    // A name is bytes, also where they are no text.
    let name = OsStr::from_bytes(b"caf\xe9 &?");
    let put = [words("files put 1"), vec![name]].concat();
    assert_eq!(parts_of(&run(&server, &put, b"x").await).0, 0);
    let cat = [words("files cat 1"), vec![name]].concat();
    assert_eq!(run(&server, &cat, b"").await.stdout, b"x");
    let (code, listed, _) = parts_of(&run(&server, &words("files ls 1 --depth 3 -q"), b"").await);
    assert_eq!(code, 0);
    let names: Vec<&str> = listed.lines().collect();
    assert!(names.contains(&"src/a.bin") && names.contains(&"caf\u{fffd} &?"), "{listed}");
    let (_, table, _) = parts_of(&run(&server, &words("files ls 1 src"), b"").await);
    assert!(table.starts_with("KIND  MODE  SIZE  AGE"), "{table}");
    assert!(table.contains("\nfile  0644  7 ") && table.contains(" src/a.bin\n"), "{table}");
    let (_, json, _) = parts_of(&run(&server, &words("files ls 1 src -o json"), b"").await);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let entries = json.as_array().expect("a list");
    assert!(entries.iter().any(|entry| entry["path"] == "src/a.bin" && entry["size"] == 7));
}

#[tokio::test]
async fn missing_and_unreadable_files_are_reported() {
    let server = TestServer::start().await;
    server.running("1").await;
    let (code, out, err) = parts_of(&run(&server, &words("files cat 1 none"), b"").await);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.starts_with("error: "), "{err}");
    assert_eq!(parts_of(&run(&server, &words("files ls 2"), b"").await).0, 3);
    assert_eq!(parts_of(&run(&server, &words("files cat 1 ../etc/passwd"), b"").await).0, 2);
    let (code, _, err) = parts_of(&run(&server, &words("files put 1 x /nowhere"), b"").await);
    assert!(code == 1 && err.starts_with("error: cannot read /nowhere: "), "{err}");
    let (code, _, err) = parts_of(&run(&server, &words("files put --tar 1 x /tmp"), b"").await);
    assert!(code == 1 && err.starts_with("error: /tmp is a directory, not an archive"), "{err}");
}

#[tokio::test]
async fn directories_go_in_and_out_and_things_are_moved() {
    let server = TestServer::start().await;
    server.running("1").await;
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("sub")).expect("made");
    std::fs::write(dir.path().join("sub/-rf"), "x").expect("written");
    std::fs::write(dir.path().join(OsStr::from_bytes(b"\xff\n")), "y").expect("written");
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).expect("made");
    let put = [words("files put 1 d"), vec![dir.path().as_os_str()]].concat();
    assert_eq!(parts_of(&run(&server, &put, b"").await), (0, "d filled\n".into(), String::new()));
    let got = run(&server, &words("files get 1 d"), b"").await;
    assert!(got.status.success());
    let mut names = Vec::new();
    for entry in tar::Archive::new(&got.stdout[..]).entries().expect("an archive") {
        let entry = entry.expect("an entry");
        names.push((entry.path_bytes().into_owned(), entry.header().entry_type()));
    }
    assert!(names.contains(&(b"sub/-rf".to_vec(), tar::EntryType::Regular)), "{names:?}");
    assert!(names.contains(&(b"\xff\n".to_vec(), tar::EntryType::Regular)), "{names:?}");
    assert!(names.contains(&(b"link".to_vec(), tar::EntryType::Symlink)), "{names:?}");
    let put = run(&server, &words("files put --tar 1 again"), &got.stdout).await;
    assert_eq!(parts_of(&put).1, "again filled\n");
    let file = dir.path().join("again.tar");
    let get = [words("files get 1 again --to"), vec![file.as_os_str()]].concat();
    assert_eq!(parts_of(&run(&server, &get, b"").await), (0, String::new(), String::new()));
    assert!(std::fs::read(&file).expect("written") == got.stdout);

    // A link is not written through, wherever it leads.
    let (link, outside) = (dir.path().join("out.tar"), dir.path().join("outside"));
    std::os::unix::fs::symlink(&outside, &link).expect("made");
    let get = [words("files get 1 again --to"), vec![link.as_os_str()]].concat();
    for there in [false, true] {
        let (code, _, err) = parts_of(&run(&server, &get, b"").await);
        assert!(code == 2 && err.contains("out.tar: it is a symbolic link"), "{err}");
        assert_eq!(std::fs::read(&outside).ok(), there.then(|| b"own".to_vec()));
        std::fs::write(&outside, "own").expect("written");
    }
    let names = || std::fs::read_dir(dir.path()).expect("readable").count();
    let before = names();
    let device = [words("files get 1 again --to"), vec![OsStr::new("/dev/null")]].concat();
    assert_eq!(parts_of(&run(&server, &device, b"").await).0, 0);
    let directory = [words("files get 1 again --to"), vec![dir.path().as_os_str()]].concat();
    let (code, _, err) = parts_of(&run(&server, &directory, b"").await);
    assert!(code == 1 && err.contains("cannot write "), "{err}");
    assert_eq!(names(), before, "nothing is left beside");

    assert_eq!(parts_of(&run(&server, &words("files mkdir 1 -- -x"), b"").await).1, "-x created\n");
    let odd = OsStr::from_bytes(b"\xfe");
    let put = [words("files put 1"), vec![odd]].concat();
    assert_eq!(parts_of(&run(&server, &put, b"z").await).0, 0);
    let mv = [words("files mv 1"), vec![odd, OsStr::new("z")]].concat();
    assert_eq!(parts_of(&run(&server, &mv, b"").await).1, "\u{fffd} moved to z\n");
    assert_eq!(parts_of(&run(&server, &words("files chmod 1 0600 z"), b"").await).1, "z is 0600\n");
    assert_eq!(parts_of(&run(&server, &words("files chmod 1 u+x z"), b"").await).0, 2);
    assert_eq!(parts_of(&run(&server, &words("files put 1 y"), b"y").await).0, 0);
    let (code, _, err) = parts_of(&run(&server, &words("files mv 1 y z"), b"").await);
    assert!(code == 1 && err.contains("the new place is taken"), "{code} {err}");
    assert_eq!(parts_of(&run(&server, &words("files mv --overwrite 1 y z"), b"").await).0, 0);
    assert_eq!(parts_of(&run(&server, &words("files get 1 none"), b"").await).0, 3);
}

#[tokio::test]
async fn what_a_directory_or_an_archive_lacks_is_named_and_the_rest_goes_on() {
    let server = TestServer::start().await;
    server.running("1").await;
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("a"), "text").expect("written");
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let put = [words("files put 1 d"), vec![dir.path().as_os_str()]].concat();
    let (code, out, err) = parts_of(&run(&server, &put, b"").await);
    assert_eq!((code, out.as_str()), (1, "d filled\n"));
    let named = format!("{}: not a file, directory or link", socket.display());
    assert!(err.contains("everything else was:") && err.contains(&named), "{err}");
    let got = run(&server, &words("files get 1 d"), b"").await;
    assert!(got.status.success());
    let mut archive = tar::Archive::new(&got.stdout[..]);
    assert_eq!(archive.entries().expect("an archive").count(), 1, "all but the socket");

    let mut archive = tar::Builder::new(Vec::new());
    let reasons = "head\n\"secret\": permission denied\n";
    for (name, content) in [("a", "b"), ("issuebox-left-out.txt", reasons)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content.as_bytes()).expect("written");
    }
    let archive = archive.into_inner().expect("whole");
    assert_eq!(parts_of(&run(&server, &words("files put --tar 1 e"), &archive).await).0, 0);
    let file = dir.path().join("e.tar");
    let to_file = [words("files get 1 e --to"), vec![file.as_os_str()]].concat();
    let got = run(&server, &words("files get 1 e"), b"").await;
    assert!(got.stdout == archive, "all that there is");
    for got in [got, run(&server, &to_file, b"").await] {
        let (code, _, err) = parts_of(&got);
        assert_eq!(code, 1, "{err}");
        assert!(err.starts_with("error: the archive is not complete"), "{err}");
        assert!(err.contains("\"secret\": permission denied"), "{err}");
    }
    assert!(std::fs::read(&file).expect("it is kept") == archive);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_server_that_cannot_be_reached() {
    let server = TestServer::start().await;
    server.running("1").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.tar");
    let mut command = Command::new(env!("CARGO_BIN_EXE_issuebox"));
    command.args(["files", "get", "1", "forever", "--to"]).arg(&file).env_clear();
    command.env("ISSUEBOX_SERVER", server.url("")).env("ISSUEBOX_TOKEN", TOKEN);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let part = dir.path().join(format!("a.tar.part-{}", child.id()));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while std::fs::read(&part).ok().as_deref() != Some(b"begun") {
        assert!(std::time::Instant::now() < end, "it begins");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    server.closing.send_replace(true);
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
    let (code, _, err) = parts_of(&ended.await.expect("not cancelled").expect("it ends"));
    assert_eq!(code, 1);
    let broke_off = format!("error: the answer of {} broke off", server.url(""));
    assert!(err.starts_with(&broke_off), "{err}");
    assert!(err.contains("hint: the server's log has the reason"), "{err}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0, "no part of it is left");
}
