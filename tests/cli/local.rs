//! What the command line does without any server, and how it finds one.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

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
        // It depends on the user and the machine.
        let (uids, rest) = ended.out.lines().partition(|line| line.starts_with("  local      "));
        let (uids, rest): (Vec<_>, Vec<_>) = (uids, rest);
        assert!(uids.iter().all(|line| line.contains("host uid")), "{uids:?}");
        assert_eq!(uids.is_empty(), ended.code != 0);
        ended.out = rest.iter().map(|line| format!("{line}\n")).collect();
        ended.err = ended.err.replace(&format!("{}/", dir.path().display()), "");
        ended
    };
    let right = "the configuration is valid\n  file       issuebox.toml\n  listen     127.0.0.1:8787\n  data       \
        /somewhere\n  template   default on local\n";
    assert_eq!(check("[triggers]\nopened = true\n"), ran(0, right, ""));
    let warning = "warning: issuebox.toml:2: templates.default.git.workflows has no effect without \
         credentials in [github]: nothing is checked out\n";
    assert_eq!(check("[templates.default.git]\nworkflows = true\n"), ran(0, right, warning));
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

/// A data directory whose server listens at an address, for as long as the file is held.
fn running_at(dir: &Path, url: &str) -> File {
    std::fs::write(dir.join("admin-token"), "kept-token\n").expect("written");
    let mut address = File::create(dir.join("address")).expect("made");
    address.lock().expect("locked");
    writeln!(address, "{}", url.trim_start_matches("http://")).expect("written");
    address
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn on_the_servers_machine_neither_address_nor_token_is_needed() {
    let stub = Stub::start(|_| json_reply(200, &json!({"success": true, "data": []})));
    let dir = tempfile::tempdir().expect("a directory");
    let ls = || Ran::of(&mut program(&["ls", "-q", "--data", text(dir.path())]));
    let address = running_at(dir.path(), &stub.url);
    assert_eq!(ls(), ran(0, "", ""));
    assert_eq!(stub.asked()[0].authorization, "Bearer kept-token");
    // Since it ended any program may listen there.
    drop(address);
    let listened = stub.url.trim_start_matches("http://");
    let ended = ls();
    assert_eq!(ended.code, 1);
    let expected = format!("is not running; it last listened on {listened}\n  hint: start it with");
    assert!(ended.err.contains(&expected), "{}", ended.err);
    assert_eq!(stub.asked().len(), 1);
}

/// A person's home in which a server runs, a directory that a stranger wrote, and the stranger's
/// listener.
struct Stranger {
    dir: tempfile::TempDir,
    listener: Stub,
    _running: File,
}

impl Stranger {
    fn with(file: &str) -> Self {
        let listener = Stub::start(|_| json_reply(200, &json!({"success": true, "data": []})));
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("home/.local/state/issuebox");
        std::fs::create_dir_all(&state).expect("made");
        let own = Stub::start(|_| json_reply(200, &json!({"success": true, "data": []})));
        let running = running_at(&state, &own.url);
        let clone = dir.path().join("clone/theirs");
        std::fs::create_dir_all(&clone).expect("made");
        let listen = listener.url.trim_start_matches("http://");
        let file = file.replace("LISTENER", listen);
        std::fs::write(dir.path().join("clone/issuebox.toml"), file).expect("written");
        Self { dir, listener, _running: running }
    }

    /// Runs a verb in the stranger's directory.
    fn run(&self, args: &[&str], vars: &[(&str, &str)]) -> Ran {
        let mut command = program(args);
        command.current_dir(self.dir.path().join("clone"));
        command.env("HOME", self.dir.path().join("home")).envs(vars.iter().copied());
        Ran::of(&mut command)
    }
}

#[test]
fn a_file_of_the_working_directory_does_not_decide_who_gets_the_token() {
    let stranger = Stranger::with(
        "listen = \"LISTENER\"\ndata = \"./none\"\n[auth]\n\
         admin_token_file = \"../home/.local/state/issuebox/admin-token\"\n",
    );
    for verb in [
        &["ls", "-q"][..],
        &["get", "a"],
        &["ensure", "a"],
        &["exec", "a", "--", "true"],
        &["events"],
        &["deliveries"],
        &["login"],
        &["hold", "--all"],
        &["files", "ls", "a"],
        &["doctor"],
    ] {
        for vars in [&[][..], &[("ISSUEBOX_TOKEN", "of-another-server")]] {
            stranger.run(verb, vars);
            assert_eq!(stranger.listener.asked(), [], "{verb:?} {vars:?}");
        }
    }
    // The server at home is the one that was meant.
    assert_eq!(stranger.run(&["ls", "-q"], &[]), ran(0, "", ""));
    // A file that is named is meant; it is read, and its directory has no server.
    let named = stranger.run(&["ls", "-q", "--config", "issuebox.toml"], &[]);
    assert!(named.err.starts_with("error: no server has run on ./none yet"), "{named:?}");
    assert_eq!(stranger.listener.asked(), []);
}

#[test]
fn doctor_sends_no_token_where_a_file_that_was_not_named_leads() {
    let stranger = Stranger::with(
        "data = \"./theirs\"\n[auth]\n\
         admin_token_file = \"../home/.local/state/issuebox/admin-token\"\n",
    );
    let theirs = stranger.dir.path().join("clone/theirs");
    let _address = running_at(&theirs, &stranger.listener.url);
    let lock = File::create(theirs.join("lock")).expect("made");
    lock.lock().expect("locked");
    let looked = stranger.run(&["doctor"], &[]);
    assert!(looked.out.contains("it was not asked"), "{}", looked.out);
    assert!(looked.out.contains("issuebox doctor --config issuebox.toml"), "{}", looked.out);
    assert_eq!(stranger.listener.asked(), []);
}

#[test]
fn no_proxy_reads_the_token() {
    // Not the stub, which answers no CONNECT.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let proxy = format!("http://{}", listener.local_addr().expect("bound"));
    let (sender, heads) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut head = [0; 4096];
            // One head fits one read; hanging up is answer enough.
            let len = stream.expect("connected").read(&mut head).expect("a request");
            sender
                .send(String::from_utf8_lossy(&head[..len]).into_owned())
                .expect("the test reads");
        }
    });
    let vars = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let ls = |server: &str| {
        let mut command = program(&["ls", "-q", "--insecure-http", "--server", server]);
        command.env("ISSUEBOX_TOKEN", "the-token").envs(vars.map(|name| (name, &proxy)));
        Ran::of(&mut command).code
    };
    assert_eq!(ls("http://box.invalid"), 1);
    assert!(heads.try_recv().is_err(), "over http it would read it");
    assert_eq!(ls("https://box.invalid"), 1);
    let head =
        heads.recv_timeout(Duration::from_secs(10)).expect("over https a proxy only carries");
    assert!(head.starts_with("CONNECT box.invalid:443 ") && !head.contains("token"), "{head}");
}

#[test]
fn a_token_is_not_sent_in_clear_text_to_another_machine() {
    let mut command = program(&["ls", "--server", "http://192.0.2.1:8787"]);
    let refused = Ran::of(command.env("ISSUEBOX_TOKEN", "the-token"));
    assert_eq!(refused.code, 2);
    let expected = "error: the token was not sent to http://192.0.2.1:8787/: over http everybody on \
                    the way could read it\n  hint: use its https address";
    assert!(refused.err.starts_with(expected), "{}", refused.err);
}

#[test]
fn serve_does_not_follow_a_configuration_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        // Only root gives files away; the rule has a test of its own.
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("issuebox.toml");
    std::fs::write(&file, "listen = \"127.0.0.1:0\"\n").expect("written");
    std::os::unix::fs::chown(&file, Some(12_345), None).expect("root may");
    let serve = |args: &[&str]| {
        let data = dir.path().join("data");
        let mut command = program(&[&["serve", "--data", text(&data)], args].concat());
        Ran::of(command.current_dir(dir.path()))
    };
    for args in [&[][..], &["--config", text(&file)]] {
        let refused = serve(args);
        assert_eq!(refused.code, 1);
        assert!(refused.err.contains("issuebox.toml belongs to user 12345"), "{}", refused.err);
        assert!(
            refused.err.contains("hint: if you trust what it says: chown 0 "),
            "{}",
            refused.err
        );
    }
    assert!(!dir.path().join("data").exists(), "it did not start");
}

#[test]
fn without_a_token_the_error_says_how_to_pass_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = text(dir.path());
    let ls = || Ran::of(&mut program(&["ls", "--data", data]));
    let none = format!(
        "error: no server has run on {data} yet\n  hint: start one with issuebox serve, or name one \
         with --server or ISSUEBOX_SERVER\n"
    );
    assert_eq!(ls(), ran(1, "", &none));
    let _running = running_at(dir.path(), "http://127.0.0.1:1");
    std::fs::remove_file(dir.path().join("admin-token")).expect("it is there");
    let ended = ls();
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
             hint: name a file with --token-file, or set ISSUEBOX_SERVER and ISSUEBOX_TOKEN for it\n"
        )
    );
}
