//! What the command line does without any server, and how it finds one.

use crate::stub::{Ran, Stub, json_reply, program};
use serde_json::json;

fn ran(code: i32, out: &str, err: &str) -> Ran {
    Ran { code, out: out.to_owned(), err: err.to_owned() }
}

#[test]
fn the_version_is_printed_in_every_format() {
    let version = env!("CARGO_PKG_VERSION");
    let run = |args: &[&str]| Ran::of(&mut program(args));
    assert_eq!(run(&["version"]), ran(0, &format!("issuebox {version}\n"), ""));
    assert_eq!(run(&["--version"]), ran(0, &format!("issuebox {version}\n"), ""));
    assert_eq!(run(&["version", "-q"]), ran(0, &format!("{version}\n"), ""));
    let json = format!("{{\"version\":\"{version}\"}}\n");
    assert_eq!(run(&["version", "-o", "json"]), ran(0, &json, ""));
    assert_eq!(run(&["version", "-o", "yaml"]).out, format!("---\nversion: \"{version}\"\n"));
}

#[test]
fn wrong_usage_ends_with_two_and_help_with_zero() {
    assert_eq!(Ran::of(&mut program(&["unheard"])).code, 2);
    assert_eq!(Ran::of(&mut program(&["get"])).code, 2);
    let help = Ran::of(&mut program(&["--help"]));
    assert_eq!((help.code, help.err.as_str()), (0, ""));
    let none = Ran::of(&mut program(&[]));
    assert_eq!(none.code, 2);
    assert!(none.err.contains("Usage: issuebox"), "{}", none.err);
}

#[test]
fn config_check_lists_errors_and_keys_without_an_effect() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("issuebox.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).expect("written");
        let mut command = program(&["config", "check", "--data", "/somewhere"]);
        let mut ended = Ran::of(command.current_dir(dir.path()));
        ended.err = ended.err.replace(&format!("{}/", dir.path().display()), "");
        ended
    };
    let right = "the configuration is valid\n  listen     127.0.0.1:8787\n  data       \
        /somewhere\n  template   default on local\n";
    assert_eq!(check("[triggers]\nopened = true\n"), ran(0, right, ""));
    let warning = "warning: issuebox.toml:2: github.api_url is accepted but has no effect yet\n";
    assert_eq!(check("[github]\napi_url = \"https://git.example.org\"\n"), ran(0, right, warning));
    assert_eq!(
        check("lisen = 1\n[triggers]\nopened = 2\n"),
        ran(
            1,
            "",
            "error: issuebox.toml:3: triggers.opened must be true or false, not 2\n       \
             issuebox.toml:1: unknown key lisen; did you mean listen?\n"
        )
    );
    let named = Ran::of(&mut program(&["config", "check", "--config", "/nowhere.toml"]));
    assert_eq!(named.code, 1);
    assert!(named.err.starts_with("error: cannot read /nowhere.toml: "), "{}", named.err);
}

#[test]
fn on_the_servers_machine_neither_address_nor_token_is_needed() {
    let stub = Stub::start(|_| json_reply(200, &json!({"success": true, "data": []})));
    let address = stub.url.trim_start_matches("http://");
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("admin-token"), "kept-token\n").expect("written");
    let data = dir.path().to_str().expect("UTF-8");
    let mut command = program(&["ls", "-q", "--data", data]);
    assert_eq!(Ran::of(command.env("ISSUEBOX_LISTEN", address)), ran(0, "", ""));
    assert_eq!(stub.asked()[0].authorization, "Bearer kept-token");
}

#[test]
fn without_a_token_the_error_says_how_to_pass_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("UTF-8");
    let ended = Ran::of(&mut program(&["ls", "--data", data]));
    assert_eq!(ended.code, 2);
    let expected = format!("error: there is no token: {data}/admin-token cannot be read: ");
    assert!(ended.err.starts_with(&expected), "{}", ended.err);
    let ended = Ran::of(&mut program(&["ls", "--server", "https://box.example.org"]));
    assert_eq!(
        ended,
        ran(
            2,
            "",
            "error: there is no token for https://box.example.org/\n  \
             hint: set ISSUEBOX_TOKEN, or name a file with --token-file\n"
        )
    );
}
