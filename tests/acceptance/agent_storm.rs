//! Many agents at once, and conversations that go on while the server is killed again and again: each
//! message is taken by one run, each session is whole, and what was used is counted.

use std::collections::BTreeSet;

use issuebox::models::double::{DoubleScript, DoubleTurn};
use serde_json::Value;
use tempfile::TempDir;

use crate::agent_place::{Talk, conversation, run_in, runs, say, stand_in, succeeded};
use crate::process::{Server, WAIT};

/// What is in flight when a server is killed counts as spent at its worst case, for an hour.
const WITHOUT_BUDGETS: &str = "[budgets]\nrun = 0\nissue = 0\naccount_per_day = 0\n";
/// How often the server is killed after each round of messages.
const KILLS: usize = 3;
/// How many more requests the model has got when it is.
const REQUESTS_BETWEEN: usize = 6;

/// Answers each message with a command that leaves a line, two more commands, and then with words: four
/// requests, so that the model is still being asked when the server has been killed for the last time.
fn script(messages: usize) -> DoubleScript {
    let answers = (0..messages).flat_map(|n| {
        let words =
            DoubleTurn::says(&format!("Answer {n}, which takes a while to be said in full."));
        let words = DoubleTurn { pause: std::time::Duration::from_millis(20), ..words };
        [runs(&format!("echo line {n} >> work")), runs("sleep 0.2"), runs("sleep 0.2"), words]
    });
    DoubleScript { turns: answers.collect(), side: None }
}

async fn talk(messages: usize, home: &TempDir) -> Option<Talk> {
    Talk::new("claude-code", &stand_in(home.path()), script(messages), WITHOUT_BUDGETS).await
}

/// Kills a server over this place some times while agents work, and gives the last one.
async fn storm(talk: &Talk, mut server: Server) -> Server {
    for _ in 0..KILLS {
        let before = talk.double.counts().requests;
        let asked = talk.double.wait_for(|counts| counts.requests >= before + REQUESTS_BETWEEN);
        tokio::time::timeout(WAIT, asked).await.expect("agents ask the model again");
        server.kill().await;
        server = talk.serve().await;
    }
    server
}

/// Every message is taken by one run that ended well, in their order; the runs.
async fn answered(server: &Server, issue: &str, messages: usize) -> Vec<Value> {
    let conversation = conversation(server, issue).await;
    let list = |name: &str| conversation[name].as_array().cloned().unwrap_or_default();
    let taken: Vec<_> = list("messages").iter().map(|message| message["run"].clone()).collect();
    assert_eq!(taken.len(), messages, "{conversation}");
    let distinct: BTreeSet<_> = taken.iter().map(Value::to_string).collect();
    assert_eq!(
        distinct.len(),
        messages,
        "one run for each, since each was said when all was quiet"
    );
    let all = list("runs");
    assert_eq!(all.len(), messages, "{conversation}");
    assert!(all.iter().all(|run| run["state"] == "succeeded"), "{conversation}");
    all
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs isolated sandboxes, and takes a minute; run by .ci/run"]
async fn conversations_go_on_while_the_server_is_killed() {
    let home = tempfile::tempdir().expect("a directory");
    let Some(talk) = talk(2, &home).await else { return };
    let mut server = talk.serve().await;
    let issues: Vec<String> = (0..10).map(|n| format!("storm-{n}")).collect();
    for round in 0..2 {
        let mut begun = Vec::new();
        for issue in &issues {
            begun.push((issue, say(&server, issue, &format!("Message {round}")).await));
        }
        server = storm(&talk, server).await;
        for (issue, run) in begun {
            run_in(&server, issue, &run, &["succeeded"]).await;
        }
    }
    let mut counted = [0, 0];
    for issue in &issues {
        for run in answered(&server, issue, 2).await {
            let usage = |name: &str| run["usage"][name].as_u64().expect("a number");
            counted[0] += usage("inputTokens");
            counted[1] += usage("outputTokens");
        }
        let id = server.sandbox(issue).await["id"].as_str().expect("an id").to_owned();
        let script =
            "sort -u work; find .issuebox -name stand-in-overlaps | grep . && exit 9; exit 0";
        let ended = server.sh(&id, script).await;
        assert_eq!((&ended["stdout"], &ended["exitCode"]), (&"line 0\nline 1\n".into(), &0.into()));
    }
    // A request that is in flight at a kill is settled by time, at its worst case; all others are exact.
    let used = talk.double.counts().used;
    let in_flight_max = u64::try_from(2 * KILLS * issues.len()).expect("a few");
    let missing = used.input.checked_sub(counted[0]).expect("nothing is counted twice");
    assert!(missing <= 100 * in_flight_max, "{counted:?} of {used:?}");
    assert_eq!(counted[0], 5 * counted[1], "each answer used 100 tokens of input and 20 of output");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs isolated sandboxes; run by .ci/run"]
async fn twenty_agents_work_at_once_in_little_memory() {
    let home = tempfile::tempdir().expect("a directory");
    let Some(talk) = talk(1, &home).await else { return };
    let server = talk.serve().await;
    let issues: Vec<String> = (0..20).map(|n| format!("many-{n}")).collect();
    let said = issues.iter().map(|issue| say(&server, issue, "Message 0"));
    let begun = futures_util::future::join_all(said).await;
    for (issue, run) in issues.iter().zip(&begun) {
        let run = succeeded(&server, issue, run).await;
        assert_eq!(run["usage"]["requests"], 4, "{run}");
        answered(&server, issue, 1).await;
    }
    let used = talk.double.counts().used;
    assert_eq!((used.input, used.output), (80 * 100, 80 * 20), "each request was made once");
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid)).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kib < 150 * 1024, "{kib} KiB are resident");
    server.stop().await;
}
