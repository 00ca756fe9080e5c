//! `issuebox cp` and the verbs of files that look at what is there, with real files.

use std::fs;
use std::path::Path;

use crate::process::{Place, Server, TOKEN};

/// A verb's exit code, and its two outputs.
async fn run(place: &Place, server: &Server, args: &[&str]) -> (i32, String, String) {
    let mut command = place.command(args);
    command.env("ISSUEBOX_SERVER", &server.url).env("ISSUEBOX_TOKEN", TOKEN);
    let ended = command.output().await.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (ended.status.code().expect("not killed"), text(ended.stdout), text(ended.stderr))
}

/// A verb that succeeds; its standard output.
async fn done(place: &Place, server: &Server, args: &[&str]) -> String {
    let (code, out, err) = run(place, server, args).await;
    assert_eq!((code, err.as_str()), (0, ""), "{args:?}: {out}");
    out
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[tokio::test]
async fn files_and_directories_are_copied_both_ways() {
    let place = Place::simulated("");
    let server = place.serve().await;
    server.running("1").await;
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("site/pages")).expect("made");
    fs::write(at("site/pages/a"), "a").expect("written");
    fs::write(at("notes"), "notes").expect("written");

    let copy = async |from: &str, to: &str| done(&place, &server, &["cp", from, to]).await;
    assert_eq!(copy(text(&at("notes")), "1:new").await, "new created\n");
    assert_eq!(copy(text(&at("site")), "1:www").await, "www filled\n");
    assert_eq!(copy(text(&at("notes")), "1:www").await, "www/notes created\n", "into it");
    assert_eq!(copy(text(&at("notes")), "1:").await, "notes created\n");
    assert_eq!(copy(text(&at("site")), "1:www").await, "www/site filled\n");
    assert_eq!(copy(&format!("{}/.", text(&at("site"))), "1:www").await, "www filled\n");
    let listed = done(&place, &server, &["files", "ls", "1", "--depth", "9", "-q"]).await;
    for name in ["new", "www/notes", "www/pages/a", "www/site/pages/a"] {
        assert!(listed.lines().any(|line| line == name), "{name} is missing in {listed}");
    }

    copy("claude-issue-1:www/notes", text(&at("back"))).await;
    assert_eq!(fs::read(at("back")).expect("there"), b"notes");
    copy("1:www/notes", text(&at("site"))).await;
    assert_eq!(fs::read(at("site/notes")).expect("there"), b"notes");
    copy("1:www", text(&at("site"))).await;
    assert_eq!(fs::read(at("site/www/site/pages/a")).expect("there"), b"a");
    copy("1:www/.", text(&at("fresh"))).await;
    assert_eq!(fs::read(at("fresh/pages/a")).expect("there"), b"a");

    let nothing = run(&place, &server, &["cp", "1:none", text(&at("none"))]).await;
    assert!(nothing.0 == 3 && !at("none").exists(), "{nothing:?}");
    for wrong in [["cp", "a", "b"], ["cp", "1:a", "1:b"]] {
        let refused = run(&place, &server, &wrong).await;
        assert!(refused.0 == 2 && refused.2.contains("ISSUE:PATH"), "{refused:?}");
    }
}

#[tokio::test]
async fn a_file_is_got_moved_into_a_directory_and_deleted() {
    let place = Place::simulated("");
    let server = place.serve().await;
    server.running("1").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    fs::write(&file, "text").expect("written");
    let of = async |verb: &str| {
        let args: Vec<&str> = verb.split(' ').collect();
        done(&place, &server, &args).await
    };
    of(&format!("files put 1 f {}", text(&file))).await;
    assert_eq!(of("files get 1 f").await, "text");
    let saved = dir.path().join("saved");
    of(&format!("files get 1 f --to {}", text(&saved))).await;
    assert_eq!(fs::read(&saved).expect("there"), b"text");

    of("files mkdir 1 d").await;
    assert_eq!(of("files mv 1 f d").await, "f moved to d/f\n");
    assert_eq!(of("files mv 1 d/f ./").await, "d/f moved to ./f\n");
    assert_eq!(of("files mv 1 f d/g").await, "f moved to d/g\n");

    let refused = run(&place, &server, &["files", "rm", "1", "d"]).await;
    assert!(refused.0 == 2 && refused.2.contains("add -r"), "{refused:?}");
    assert_eq!(of("files rm 1 d/g").await, "d/g deleted\n");
    assert_eq!(of("files rm -r 1 d").await, "d deleted\n");
    assert_eq!(run(&place, &server, &["files", "rm", "1", "d"]).await.0, 3);
}

#[tokio::test]
async fn an_unknown_template_and_a_command_that_is_not_there_say_what_there_is() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let unknown = run(&place, &server, &["ensure", "1", "--template", "nope"]).await;
    let expected = "error: there is no template nope; the configuration has claude-code, codex, command, \
                    default\n  hint: run issuebox templates to see what each of them is\n";
    assert_eq!((unknown.0, unknown.2.as_str()), (1, expected));
}
