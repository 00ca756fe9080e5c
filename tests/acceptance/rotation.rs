//! A webhook secret that is rotated while deliveries come: by SIGHUP, without a restart.

use std::sync::atomic::{AtomicBool, Ordering};

use issuebox::github::webhook::sign;
use issuebox::types::Secret;
use serde_json::json;

use crate::process::{Place, SECRET, Server, issue_event, send};

const NEW: &str = "the-secret-that-replaces-it";

/// Configures these secrets, the first of which GitHub is to sign with.
fn configure(place: &Place, secrets: &[&str], more: &str) {
    place.configure(more);
    let text = std::fs::read_to_string(place.config()).expect("written");
    let old = format!("webhook_secrets = [{SECRET:?}]");
    assert!(text.contains(&old));
    let text = text.replace(&old, &format!("webhook_secrets = {secrets:?}"));
    std::fs::write(place.config(), text).expect("written");
}

/// The status of a delivery that is signed with this.
async fn delivered(server: &Server, guid: &str, secret: &str) -> u16 {
    let body = issue_event("opened", 1).to_string();
    let signature = sign(&Secret::new(secret), body.as_bytes());
    let request = server.client.post(format!("{}/webhooks/github", server.url)).body(body);
    let request = request
        .header("content-type", "application/json")
        .header("x-github-event", "issues")
        .header("x-github-delivery", guid)
        .header("x-hub-signature-256", signature);
    send(request).await.status
}

#[tokio::test]
async fn a_secret_is_rotated_by_a_reload_and_no_delivery_is_refused_meanwhile() {
    let place = Place::simulated("");
    let server = place.serve().await;
    assert_eq!(delivered(&server, "n-0", NEW).await, 401);
    // As docs/github.md has it: both, then GitHub signs with the new one, then it alone.
    let is_over = AtomicBool::new(false);
    let deliveries = async {
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            assert!([200, 202].contains(&delivered(&server, &format!("o-{count}"), SECRET).await));
            count += 1;
        }
        count
    };
    let rotated = async {
        configure(&place, &[NEW, SECRET], "");
        server.reload().await;
        assert_eq!(delivered(&server, "n-1", NEW).await, 202);
        is_over.store(true, Ordering::Relaxed);
    };
    let (count, ()) = tokio::join!(deliveries, rotated);
    assert!(count > 0);
    configure(&place, &[NEW], "[retention]\ndeliveries_days = 3");
    server.reload().await;
    assert_eq!(delivered(&server, "n-2", NEW).await, 202);
    assert_eq!(delivered(&server, "o-last", SECRET).await, 401);

    let log = server.log();
    assert!(log.contains("github.webhook_secrets") && log.contains("[retention]"), "{log}");
    std::fs::write(place.config(), "[github\n").expect("written");
    let refused = || server.log().contains("cannot reload the configuration");
    server.signal(rustix::process::Signal::HUP);
    crate::process::until("it is refused", || async { refused() }).await;
    assert_eq!(delivered(&server, "n-3", NEW).await, 202, "what was in force stays in force");
}

#[tokio::test]
async fn templates_are_read_again_and_a_sandbox_keeps_what_it_was_made_from() {
    let place = Place::simulated("[templates.big]\nprovider = \"simulated\"\nmemory_mb = 1024");
    let server = place.serve().await;
    let made = async |issue: &str, template: &str| {
        let body = json!({"issueId": issue, "template": template});
        server.post("/v1/sandboxes?wait=10", &body).await
    };
    assert_eq!(made("1", "big").await.status, 201);
    let words = "[templates.big]\nprovider = \"simulated\"\nmemory_mb = 2048\n\
                 [templates.new]\nprovider = \"simulated\"\n[templates.other]\n";
    place.configure(&format!("{words}provider = \"docker\""));
    server.reload().await;
    assert_eq!(made("2", "new").await.status, 422, "docker is opened at the next start");
    assert!(server.log().contains("templates.other needs the provider docker"), "{}", server.log());
    place.configure(&format!("{words}provider = \"simulated\""));
    server.reload().await;
    assert_eq!(made("2", "new").await.status, 201);
    let of = async |issue: &str| {
        let path = format!("/v1/sandboxes/claude-issue-{issue}/configuration");
        let found = server.get(&path).await.json();
        let data = &found["data"];
        (data["resources"]["memoryMb"].clone(), data["templateToday"].clone())
    };
    assert_eq!(of("1").await, (json!(1024), json!("changed")));
    assert_eq!(made("3", "big").await.status, 201);
    assert_eq!(of("3").await, (json!(2048), json!("same")));
}
