//! Deliveries that did not arrive, seen with the whole program: whatever happened to them, and to the
//! server, each is applied once.

use issuebox::github::model::{GithubModel, HookDoor};
use serde_json::Value;

use crate::connected::connected_command;
use crate::process::{Place, Server, until};

const REPOSITORY: &str = "octo/hello";
const MAINTAINER: &str = "mona";

/// A GitHub with one issue, and the place of a server with credentials for it.
struct MissedWorld {
    github: GithubModel,
    place: Place,
    number: u64,
}

impl MissedWorld {
    fn new() -> Self {
        let github = GithubModel::start().expect("it starts");
        github.set_door(HookDoor::Closed);
        github.repository(REPOSITORY);
        github.set_role(REPOSITORY, MAINTAINER, "admin");
        github.install("octo");
        let number = github.open_issue(REPOSITORY, MAINTAINER, "A title", "A body");
        let place = Place::simulated("");
        Self { github, place, number }
    }

    async fn serve(&self, intake: &str) -> Server {
        let more = [("ISSUEBOX__GITHUB__INTAKE", intake), ("ISSUEBOX__TRIGGERS__OPENED", "false")];
        Server::start(&mut connected_command(&self.place, &self.github, &more)).await
    }

    /// Waits until every GUID that GitHub sent is listed, each once.
    async fn until_complete(&self, server: &Server) {
        until("every delivery", || async {
            let listed = listed(server).await;
            self.github.delivered_guids().iter().all(|guid| {
                let same = listed.iter().filter(|one| one["delivery"] == **guid).count();
                assert!(same <= 1, "{guid} is listed {same} times");
                same == 1
            })
        })
        .await;
    }
}

async fn listed(server: &Server) -> Vec<Value> {
    let answer = server.get("/v1/deliveries?limit=200").await.json();
    answer["data"].as_array().expect("a list").clone()
}

async fn until_phase(server: &Server, phase: &str) {
    until(phase, || async {
        let path = format!("/v1/sandboxes?repository={REPOSITORY}");
        server.get(&path).await.json()["data"][0]["phase"] == phase
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for whole comparisons with GitHub's log"]
async fn what_did_not_arrive_is_applied_after_the_next_start_and_once() {
    let world = MissedWorld::new();
    let at = (REPOSITORY, world.number);
    world.github.set_door(HookDoor::Swallows(200));
    world.github.label(at, MAINTAINER, "agent");
    let server = world.serve("webhook").await;
    world.until_complete(&server).await;
    until_phase(&server, "running").await;
    assert!(listed(&server).await.iter().all(|one| one["recovered"] == true));
    server.kill().await;

    world.github.set_door(HookDoor::Closed);
    world.github.close(at, MAINTAINER);
    // Within one second, being closed would win.
    world.github.move_clock(jiff::SignedDuration::from_secs(2));
    world.github.reopen(at, MAINTAINER);
    world.github.comment(at, MAINTAINER, "Go on");
    let server = world.serve("webhook").await;
    // It is killed while it recovers, or just behind.
    server.kill().await;
    let server = world.serve("webhook").await;
    world.until_complete(&server).await;
    until_phase(&server, "running").await;

    // What arrives is not marked.
    world.github.set_door(HookDoor::Open(format!("{}/webhooks/github", server.url)));
    world.github.comment(at, MAINTAINER, "Thanks");
    world.until_complete(&server).await;
    assert_eq!(listed(&server).await[0]["recovered"], false);
    assert_eq!(world.place.calls("create").len(), 1);
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for whole comparisons with GitHub's log"]
async fn without_a_way_in_deliveries_are_read_from_the_log() {
    let world = MissedWorld::new();
    let server = world.serve("deliveries").await;
    world.until_complete(&server).await;
    world.github.label((REPOSITORY, world.number), MAINTAINER, "agent");
    world.until_complete(&server).await;
    until_phase(&server, "running").await;
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for a label check"]
async fn an_issue_labelled_before_the_log_began_is_found_at_the_start() {
    let world = MissedWorld::new();
    world.github.label((REPOSITORY, world.number), MAINTAINER, "agent");
    world.github.forget_deliveries();
    let server = world.serve("webhook").await;
    until_phase(&server, "running").await;
    let all = listed(&server).await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0]["recovered"], true);
    server.stop().await;
}
