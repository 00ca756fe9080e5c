//! Which server is called, and with which token, for each combination of sources.

use super::*;
use crate::config::{Announced, Overrides, Secrets};

fn server_args(server: Option<&str>) -> ServerArgs {
    ServerArgs { server: server.map(str::to_owned), ..ServerArgs::default() }
}

fn connected(server_args: &ServerArgs, vars: &[(&str, &str)]) -> Result<(String, String), String> {
    let chosen = choose(server_args, &EnvVars::from_pairs(vars)).map_err(|e| e.to_string())?;
    let server = chosen.server().to_string();
    Ok((server, chosen.into_token().0.expose().to_owned()))
}

fn is(server: &str, token: &str) -> Result<(String, String), String> {
    Ok((server.to_owned(), token.to_owned()))
}

/// A data directory with a token, and a server that listens.
struct Listening {
    dir: tempfile::TempDir,
    announced: Announced,
}

impl Listening {
    fn at(listen: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(Secrets::ADMIN_TOKEN_FILE), "kept\n").expect("written");
        let overrides = Overrides { listen: None, data: Some(dir.path().to_owned()) };
        let config = crate::app::providers::load_config(None, std::iter::empty(), overrides);
        let server = config.expect("it is right").config.server;
        let announced = server.announce(listen.parse().expect("an address")).expect("written");
        Self { dir, announced }
    }

    fn data(&self) -> &str {
        self.dir.path().to_str().expect("UTF-8")
    }
}

#[test]
fn the_command_line_wins_over_the_environment() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, "from-file\n").expect("written");
    let vars = [("ISSUEBOX_SERVER", "https://env.example.org"), ("ISSUEBOX_TOKEN", "from-env")];
    assert_eq!(connected(&server_args(None), &vars), is("https://env.example.org/", "from-env"));
    let server_args =
        ServerArgs { token_file: Some(file), ..server_args(Some("https://flag.example.org:1/")) };
    assert_eq!(connected(&server_args, &vars), is("https://flag.example.org:1/", "from-file"));
}

#[test]
fn the_token_of_one_server_does_not_go_to_another() {
    let both = [("ISSUEBOX_SERVER", "https://env.example.org"), ("ISSUEBOX_TOKEN", "t")];
    let other = connected(&server_args(Some("https://other.example.org")), &both);
    assert!(other.is_err_and(|text| text.contains("ISSUEBOX_TOKEN belongs to ISSUEBOX_SERVER")));
    let same = connected(&server_args(Some("https://env.example.org/")), &both);
    assert_eq!(same, is("https://env.example.org/", "t"));
    let alone = connected(&server_args(Some("https://other.example.org")), &both[1..]);
    assert_eq!(alone, is("https://other.example.org/", "t"));
    // What the caller gave for a named server does not go to one that a file names.
    let running = Listening::at("127.0.0.1:9000");
    let vars = [("ISSUEBOX_DATA", running.data()), ("ISSUEBOX_TOKEN", "t")];
    assert_eq!(connected(&server_args(None), &vars), is("http://127.0.0.1:9000/", "kept"));
}

#[test]
fn on_the_servers_machine_address_and_token_are_in_its_data_directory() {
    let Listening { dir, announced } = Listening::at("0.0.0.0:9000");
    let by_variable = [("ISSUEBOX_DATA", dir.path().to_str().expect("UTF-8"))];
    let found = is("http://127.0.0.1:9000/", "kept");
    assert_eq!(connected(&server_args(None), &by_variable), found);
    let by_flag = ServerArgs { data: Some(dir.path().to_owned()), ..server_args(None) };
    assert_eq!(connected(&by_flag, &[]), found);
    let named = connected(&server_args(Some("localhost:9000")), &by_variable);
    assert_eq!(named, is("http://localhost:9000/", "kept"));
    let configured = ("ISSUEBOX_ADMIN_TOKEN", "configured");
    assert_eq!(
        connected(&server_args(None), &[by_variable[0], configured]),
        is("http://127.0.0.1:9000/", "configured")
    );
    // A directory that is named for this call does not get the environment's token.
    assert_eq!(connected(&by_flag, &[configured]), found);
    drop(announced);
    let ended = connected(&by_flag, &[]).expect_err("it ended");
    assert!(ended.ends_with("is not running; it last listened on 0.0.0.0:9000"), "{ended}");
}

#[test]
fn a_configuration_that_is_named_has_address_and_token() {
    let running = Listening::at("127.0.0.1:9000");
    let file = running.dir.path().join("named.toml");
    let text = format!("data = {:?}\n[auth]\nadmin_token = \"of-file\"\n", running.data());
    std::fs::write(&file, text).expect("written");
    let named = ServerArgs { config: Some(file), ..server_args(None) };
    let vars = [("ISSUEBOX_TOKEN", "t")];
    assert_eq!(connected(&named, &vars), is("http://127.0.0.1:9000/", "of-file"));
}

#[test]
fn the_local_token_goes_to_the_local_server_only() {
    let Listening { dir, announced } = Listening::at("127.0.0.1:8787");
    let vars = [("ISSUEBOX_DATA", dir.path().to_str().expect("UTF-8"))];
    for server in ["https://box.example.org", "http://127.0.0.1:9999", "http://10.0.0.1:8787"] {
        let refused = connected(&server_args(Some(server)), &vars);
        assert!(refused.is_err_and(|text| text.starts_with("there is no token")), "{server}");
    }
    drop(announced);
    // Any program may listen there since it ended.
    let refused = connected(&server_args(Some("http://127.0.0.1:8787")), &vars);
    assert!(refused.is_err_and(|text| text.starts_with("there is no token")));
}

#[test]
fn a_token_leaves_this_machine_over_https_only() {
    let token = ("ISSUEBOX_TOKEN", "t");
    for server in ["http://10.0.0.1", "http://box.example.org:8787", "http://localhost.example.org"]
    {
        let refused = connected(&server_args(Some(server)), &[token]).expect_err(server);
        assert!(refused.starts_with("the token was not sent to http://"), "{refused}");
        let flag = ServerArgs { insecure_http: true, ..server_args(Some(server)) };
        assert!(connected(&flag, &[token]).is_ok(), "{server}");
        let accepted = [token, ("ISSUEBOX_INSECURE_HTTP", "1")];
        assert!(connected(&server_args(Some(server)), &accepted).is_ok(), "{server}");
        let denied = [token, ("ISSUEBOX_INSECURE_HTTP", "0")];
        assert!(connected(&server_args(Some(server)), &denied).is_err(), "{server}");
    }
    for server in ["http://127.0.0.1", "http://[::1]:1", "http://localhost", "https://10.0.0.1"] {
        assert!(connected(&server_args(Some(server)), &[token]).is_ok(), "{server}");
    }
    // A data directory names another machine only if it is not ours.
    let elsewhere = Listening::at("203.0.113.9:80");
    let refused = connected(&server_args(None), &[("ISSUEBOX_DATA", elsewhere.data())]);
    assert!(refused.is_err_and(|text| text.starts_with("the token was not sent to http://203.")));
}

#[test]
fn a_server_is_a_plain_web_address() {
    for bad in ["", "ftp://x", "http://", "http://u:p@x", "https://x/?q", "a b", "/x"] {
        let refused = connected(&server_args(Some(bad)), &[("ISSUEBOX_TOKEN", "t")]);
        assert!(refused.is_err_and(|text| text.ends_with("address")), "{bad}");
    }
    for (short, whole) in [
        ("localhost:21000", "http://localhost:21000/"),
        ("127.0.0.1", "http://127.0.0.1/"),
        ("[::1]:80", "http://[::1]/"),
        ("box.example.org", "https://box.example.org/"),
        ("box:8443", "https://box:8443/"),
    ] {
        let chosen = connected(&server_args(Some(short)), &[("ISSUEBOX_TOKEN", "t")]);
        assert_eq!(chosen, is(whole, "t"), "{short}");
    }
}

#[test]
fn a_token_is_one_word() {
    for bad in [" ", "a b", "ä"] {
        let refused = connected(&server_args(Some("https://x")), &[("ISSUEBOX_TOKEN", bad)]);
        assert!(refused.is_err(), "{bad:?}");
    }
}
