//! What runs of agents wait for, and what stays of them: a budget that is used up, an issue that is deleted.

use issuebox::models::double::{DoubleScript, DoubleTurn};
use issuebox::types::Tokens;
use rustix::process::Signal;

use crate::agent_place::{Talk, run_when, say, stand_in, succeeded};
use crate::process::{Place, issue_event, send, until};

async fn talk(turn: DoubleTurn, more: &str) -> Option<Talk> {
    let home = tempfile::tempdir().expect("a directory").keep();
    let script = DoubleScript { turns: vec![turn], side: None };
    Talk::new("claude-code", &stand_in(&home), script, more).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs isolated sandboxes; run by .ci/run"]
async fn a_run_waits_for_a_budget_that_is_used_up_and_begins_once_it_is_raised() {
    let usage = Tokens { input: 10, output: 31_000, ..Tokens::default() };
    let dear = DoubleTurn { usage, ..DoubleTurn::says("Done.") };
    let Some(talk) = talk(dear, "[budgets]\nissue = 0.2\n").await else { return };
    let server = talk.serve().await;
    let first = say(&server, "dear", "Do it.").await;
    succeeded(&server, "dear", &first).await;
    let second = say(&server, "dear", "And again.").await;
    let waits = |run: &serde_json::Value| run["waits"] == "budget" && run["state"] == "queued";
    let run = run_when(&server, "dear", &second, "a run that waits for its budget", waits).await;
    let reason = run["reason"].as_str().expect("a text");
    assert!(reason.starts_with("Budget of this issue is used up: $"), "{reason}");
    assert!(reason.contains(" of $0.20; "), "{reason}");
    assert_eq!(talk.double.counts().requests, 1);
    let config = std::fs::read_to_string(talk.place.config()).expect("written");
    std::fs::write(talk.place.config(), config.replace("issue = 0.2", "issue = 20"))
        .expect("written");
    server.reload().await;
    succeeded(&server, "dear", &second).await;
    server.stop().await;
}

/// How many journals and session copies are on disk.
fn left(place: &Place) -> usize {
    let entries = |dir| std::fs::read_dir(place.data().join(dir)).map_or(0, Iterator::count);
    entries("conversations") + entries("sessions")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs isolated sandboxes; run by .ci/run"]
async fn nothing_that_was_said_stays_on_disk_of_an_issue_that_is_deleted() {
    let Some(talk) = talk(DoubleTurn::says("Done."), "").await else { return };
    let server = talk.serve().await;
    let deleted = |issue: u64| {
        let body = issue_event("deleted", issue).to_string();
        server.delivery("issues", &format!("deleted-{issue}"), body)
    };
    for issue in ["5", "6"] {
        let run = say(&server, issue, "Do it.").await;
        succeeded(&server, issue, &run).await;
    }
    until("two journals and the copies of two sessions", || async { left(&talk.place) == 4 }).await;
    assert!(send(deleted(5)).await.is_success());
    until("those of one issue", || async { left(&talk.place) == 2 }).await;

    // What a killed server did not get to is removed by the next one.
    let kept = talk.place.data().with_file_name("kept");
    let copied = |from: &std::path::Path, to: &std::path::Path| {
        let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status();
        assert!(copied.expect("cp is there").success());
    };
    copied(&talk.place.data().join("conversations"), &kept);
    assert!(send(deleted(6)).await.is_success());
    until("nothing", || async { left(&talk.place) == 0 }).await;
    server.signal(Signal::KILL);
    server.kill().await;
    std::fs::remove_dir(talk.place.data().join("conversations")).expect("empty");
    copied(&kept, &talk.place.data().join("conversations"));
    assert_eq!(left(&talk.place), 1);
    let server = talk.serve().await;
    until("nothing again", || async { left(&talk.place) == 0 }).await;
    server.stop().await;
}
