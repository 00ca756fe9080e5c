//! A limit that a real sandbox hits is recorded on its issue's timeline, and does what its template
//! says.

use std::process::Stdio;

use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::process::{Place, Server, until};

async fn reasons(server: &Server) -> Vec<String> {
    let events = server.get("/v1/issues/test-1/events").await.json();
    let reason = |event: &Value| event["reason"].as_str().expect("a reason").to_owned();
    events["data"].as_array().expect("a timeline").iter().map(reason).collect()
}

async fn stops_or_goes_on_at_its_limit(on_limit: &str) -> Option<()> {
    let place = Place::local(None).await?;
    let mut command = place.serve_command("127.0.0.1:0");
    command.env("ISSUEBOX__TEMPLATES__DEFAULT__MEMORY_MB", "64");
    command.env("ISSUEBOX__TEMPLATES__DEFAULT__ON_LIMIT", on_limit);
    let server = Server::start(command.stdout(Stdio::null())).await;
    let system = server.get("/v1/system").await.json();
    let isolation = &system["data"]["providers"][0]["isolation"];
    assert_eq!(isolation["seccomp"], "enforced", "{system}");
    if isolation["limits"]["memory"] != "enforced" {
        assert!(!geteuid().is_root() || std::env::var_os("ISSUEBOX_REQUIRE_LOCAL").is_none());
        return None;
    }
    let id = server.running("test-1").await["id"].as_str().expect("an id").to_owned();
    let limits = server.get(&format!("/v1/sandboxes/{id}/limits")).await.json();
    let memory = limits["data"].as_array().expect("a list").iter().find(|l| l["name"] == "memory");
    let expected = json!({"name": "memory", "allowed": 64.0, "unit": "MiB", "holds": "enforced"});
    assert_eq!(memory, Some(&expected), "{limits}");
    let hog = "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c";
    server.sh(&id, hog).await;
    until("it is reported", || async {
        reasons(&server).await.iter().any(|reason| reason.contains("memory limit 64 MB reached"))
    })
    .await;
    if on_limit == "stop" {
        until("it is stopped", || async { server.sandbox("test-1").await["phase"] == "stopped" })
            .await;
        let reported = reasons(&server).await;
        assert!(
            reported.iter().any(|r| r.contains("it reached a limit of its template")),
            "{reported:?}"
        );
    }
    // It goes on, or work in it starts it again.
    let ended = server.sh(&id, "echo alive").await;
    assert_eq!(ended["stdout"], "alive\n", "{ended}");
    Some(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and needs control groups; run by .ci/run"]
async fn a_command_is_killed_at_its_limit_and_the_sandbox_goes_on() {
    stops_or_goes_on_at_its_limit("kill").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and needs control groups; run by .ci/run"]
async fn a_sandbox_is_stopped_at_its_limit_where_its_template_says_so() {
    stops_or_goes_on_at_its_limit("stop").await;
}
