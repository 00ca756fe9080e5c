//! Mistakes at the start of a server: each error says what to do, and a
//! server that already runs does not notice.

use std::os::unix::fs::{PermissionsExt, chown};

use rustix::process::geteuid;
use tokio::process::Command;

use crate::process::{Place, WAIT};

/// Runs a command that must refuse, and returns what it says.
async fn refused(command: &mut Command) -> String {
    let ended = tokio::time::timeout(WAIT, command.output()).await;
    let ended = ended.expect("it ends by itself").expect("it starts");
    let err = String::from_utf8(ended.stderr).expect("UTF-8");
    assert_eq!(ended.status.code(), Some(1), "{err}");
    assert!(err.contains("error: "), "{err}");
    assert!(!err.contains("ready on") && !err.contains("panicked"), "{err}");
    err
}

#[tokio::test]
async fn wrong_keys_and_empty_secrets_are_named_with_their_place() {
    let place = Place::simulated("");
    let serve = || place.serve_command("127.0.0.1:0");
    for (name, value, expected) in [
        ("ISSUEBOX__LIFECYCLE__CREATE_ATEMPTS", "3", "lifecycle.create_attempts"),
        ("ISSUEBOX__LIFECYCLE__CREATE_ATTEMPTS", "many", "lifecycle.create_attempts"),
        ("ISSUEBOX_WEBHOOK_SECRET", "", "anybody could sign with it"),
        ("ISSUEBOX_WEBHOOK_SECRET", "new,", "anybody could sign with it"),
        ("ISSUEBOX_ADMIN_TOKEN", " ", "anybody could call the API"),
        ("ISSUEBOX__TEMPLATES__DEFAULT__PROVIDER", "dokcer", "templates.default.provider"),
    ] {
        let error = refused(serve().env(name, value)).await;
        assert!(error.contains(expected) && error.contains(name), "{name}={value}: {error}");
    }
    place.configure("[trigers]\nopened = true");
    let error = refused(&mut serve()).await;
    let file = place.config().display().to_string();
    assert!(error.contains("trigers.opened") && error.contains(&file), "{error}");
    place.configure("dir = ");
    let error = refused(&mut serve()).await;
    assert!(error.contains(&file), "{error}");
    let nowhere = place.data().join("nowhere.toml");
    let mut command = place.command(&["serve", "--config"]);
    let error = refused(command.arg(&nowhere)).await;
    assert!(error.contains("cannot read") && error.contains("nowhere.toml"), "{error}");
}

#[tokio::test]
async fn an_emptied_secret_file_refuses_to_start() {
    let place = Place::simulated("");
    let unset = std::fs::read_to_string(place.config()).expect("readable");
    let unset = unset.replace("webhook_secrets", "#").replace("admin_token", "#");
    std::fs::write(place.config(), unset).expect("written");
    place.serve().await.stop().await;
    for name in ["admin-token", "webhook-secret"] {
        let kept = place.data().join(name);
        let mode = std::fs::metadata(&kept).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let secret = std::fs::read(&kept).expect("readable");
        std::fs::write(&kept, "\n").expect("written");
        let error = refused(&mut place.serve_command("127.0.0.1:0")).await;
        assert!(error.contains(&format!("{name} is empty")), "{error}");
        std::fs::write(&kept, secret).expect("written");
    }
    place.serve().await.stop().await;
}

#[tokio::test]
async fn a_data_directory_that_cannot_be_written_is_named() {
    let place = Place::simulated("");
    std::fs::write(place.data(), "a file").expect("written");
    let data = place.data().display().to_string();
    let error = refused(&mut place.serve_command("127.0.0.1:0")).await;
    assert!(error.contains(&data), "{error}");

    std::fs::remove_file(place.data()).expect("removed");
    std::fs::create_dir(place.data()).expect("made");
    std::fs::set_permissions(place.data(), PermissionsExt::from_mode(0o555)).expect("set");
    let mut command = place.serve_command("127.0.0.1:0");
    if geteuid().is_root() {
        // Permissions mean nothing to root.
        let dir = place.data().parent().expect("a parent").to_owned();
        chown(&dir, Some(65_534), Some(65_534)).expect("given away");
        command.uid(65_534).gid(65_534);
    }
    let error = refused(&mut command).await;
    assert!(error.contains(&data) && error.contains("make it writable"), "{error}");
}

#[tokio::test]
async fn a_taken_port_and_a_second_server_are_refused_and_the_first_lives() {
    let (place, other) = (Place::simulated(""), Place::simulated(""));
    let server = place.serve().await;
    let address = server.url.trim_start_matches("http://");
    let error = refused(&mut other.serve_command(address)).await;
    assert!(error.contains(&format!("cannot listen on {address}")), "{error}");
    assert!(!other.data().exists(), "nothing is touched before the port is had");
    let error = refused(&mut place.serve_command("127.0.0.1:0")).await;
    assert!(error.contains("another server runs on the data directory"), "{error}");
    let error = refused(&mut place.serve_command("300.0.0.1:0")).await;
    assert!(error.contains("listen must be an address and port"), "{error}");
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(server.running("test-1").await["generation"], 1);
}
