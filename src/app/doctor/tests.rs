//! What the doctor finds for each thing that is missing or wrong.

use std::fs;

use super::*;
use crate::config::Overrides;

fn config(data: &Path, more: &[(&str, &str)]) -> Config {
    let vars = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let overrides =
        Overrides { listen: Some("127.0.0.1:0".to_owned()), data: Some(data.to_owned()) };
    providers::load_config(None, vars, overrides).expect("is right").config
}

/// Asserts a check's state and parts of its texts.
fn is(check: &Check, state: CheckState, found: &str, remedy: &str) {
    let text = check.remedy.as_deref().unwrap_or_default();
    assert_eq!(check.state, state, "{check:?}");
    assert!(check.found.contains(found) && text.contains(remedy), "{check:?}");
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("is ours");
}

#[test]
fn a_data_directory_is_there_writable_and_private() {
    let dir = tempfile::tempdir().expect("a directory");
    chmod(dir.path(), 0o700);
    is(&data_directory(dir.path()), CheckState::Right, "writable", "");
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0, "nothing is left");
    let none = dir.path().join("a/b");
    is(&data_directory(&none), CheckState::Broken, "does not exist", "the first `issuebox serve`");
    is(&data_directory(Path::new("/proc")), CheckState::Broken, "cannot write", "--data");
    is(&data_directory(Path::new("/dev/null")), CheckState::Broken, "is not a directory", "--data");
    chmod(dir.path(), 0o755);
    is(&data_directory(dir.path()), CheckState::Noted, "mode 0755", "chmod 0700");
}

#[test]
fn a_port_is_free_or_the_remedy_names_its_owner() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(dir.path(), &[]);
    is(&port(&config, false), CheckState::Right, "is free", "");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    config.server.listen = taken.local_addr().expect("bound");
    let number = config.server.listen.port().to_string();
    is(&port(&config, false), CheckState::Broken, "cannot listen", &format!("sport = :{number}"));
    config.server.listen = "192.0.2.1:80".parse().expect("an address");
    is(&port(&config, false), CheckState::Broken, "192.0.2.1", "not an address of this machine");
    is(&port(&config, true), CheckState::Noted, "does not listen", "its log");
    fs::write(dir.path().join("address"), "127.0.0.1:1\n").expect("written");
    is(&port(&config, true), CheckState::Right, "127.0.0.1:1", "");
}

#[test]
fn a_store_is_whole_and_of_a_known_layout() {
    let dir = tempfile::tempdir().expect("a directory");
    is(&store(dir.path()).0, CheckState::Broken, "no database", "issuebox restore");
    let open = SqliteStore::open(dir.path()).expect("opens");
    is(&store(dir.path()).0, CheckState::Right, "intact", "");
    assert!(SqliteStore::is_in_use(dir.path()).expect("readable"));
    drop(open);
    assert!(!SqliteStore::is_in_use(dir.path()).expect("readable"));
    let database = dir.path().join("issuebox.db");
    let conn = rusqlite::Connection::open(&database).expect("opens");
    conn.pragma_update(None, "user_version", 1).expect("written");
    is(&store(dir.path()).0, CheckState::Noted, "layout 1", "keeps a copy");
    conn.pragma_update(None, "user_version", 99).expect("written");
    is(&store(dir.path()).0, CheckState::Broken, "layout 99", "run the newer version");
    drop(conn);
    fs::write(&database, "this is no database at all, however long").expect("written");
    is(&store(dir.path()).0, CheckState::Broken, "no database", "restore it from a backup");
}

#[test]
fn secrets_are_configured_or_kept_for_their_owner() {
    let dir = tempfile::tempdir().expect("a directory");
    let kept = dir.path().join("admin-token");
    let token = || secret("admin token", false, &kept);
    is(&token(), CheckState::Broken, "does not exist", "generates one");
    fs::write(&kept, "\n").expect("written");
    is(&token(), CheckState::Broken, "is empty", "write a secret");
    fs::write(&kept, "a-token\n").expect("written");
    chmod(&kept, 0o644);
    is(&token(), CheckState::Noted, "mode 0644", "chmod 0600");
    chmod(&kept, 0o600);
    is(&token(), CheckState::Right, "kept in", "");
    is(&secret("admin token", true, &dir.path().join("none")), CheckState::Right, "configured", "");
    let short = config(dir.path(), &[("ISSUEBOX_WEBHOOK_SECRET", "short")]);
    is(&webhook_secret(&short), CheckState::Noted, "shorter than 32", "openssl rand");
    is(&webhook_secret(&config(dir.path(), &[])), CheckState::Broken, "not configured", "serve");
}

#[test]
fn a_clock_that_is_behind_the_records_is_wrong() {
    let now = Timestamp::parse("2026-03-02T09:00:00Z").expect("a time");
    let minutes = |minutes: u64| Some(now.after(Duration::from_secs(minutes * 60)));
    is(&clock(now, None), CheckState::Right, "2026-03-02", "");
    is(&clock(now, minutes(1)), CheckState::Right, "", "");
    is(&clock(now, minutes(2)), CheckState::Broken, "written at 2026-03-02T09:02", "timedatectl");
    is(&clock(Timestamp::from_unix_ms(0), None), CheckState::Broken, "1970", "timedatectl");
}

#[test]
fn templates_with_the_host_network_are_noted() {
    let dir = tempfile::tempdir().expect("a directory");
    let with = |word| config(dir.path(), &[("ISSUEBOX__TEMPLATES__DEFAULT__NETWORK", word)]);
    assert_eq!(host_networks(&with("full")), None);
    let check = host_networks(&with("host")).expect("a check");
    is(&check, CheckState::Noted, "for default", "network = \"allow\"");
}

#[test]
fn every_provider_that_a_template_names_is_tried() {
    let dir = tempfile::tempdir().expect("a directory");
    let simulated = dir.path().join("simulated");
    let vars = [
        ("ISSUEBOX__TEMPLATES__DEFAULT__PROVIDER", "simulated"),
        ("ISSUEBOX__PROVIDERS__SIMULATED__DIR", simulated.to_str().expect("UTF-8")),
    ];
    let checks = providers::check(&config(dir.path(), &vars));
    assert_eq!(checks.len(), 1);
    assert_eq!(checks[0].what, "provider simulated");
    is(&checks[0], CheckState::Noted, "nothing runs", "another provider");
}
