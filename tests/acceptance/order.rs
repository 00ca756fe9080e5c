//! Deliveries twice, late, out of order, and all at once: one sandbox, in the state that GitHub's
//! truth asks for.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::process::{Answer, Place, Server, send};
use crate::story::{Story, StoryDelivery, TRIGGER};
use crate::watch::Watch;

/// Slow enough that what comes meanwhile meets a sandbox that is being made or stopped.
const SLOW: &str = "create_delay_ms = 300\nstop_delay_ms = 300";

/// Sends these at once; the answers in the same order.
async fn at_once(server: &Server, sent: &[(String, StoryDelivery)]) -> Vec<Answer> {
    let sent =
        sent.iter().map(|(guid, sent)| send(server.delivery(sent.event, guid, sent.body.clone())));
    join_all(sent).await
}

/// Sends one, and returns its status and what it came to.
async fn deliver(server: &Server, guid: &str, sent: &StoryDelivery) -> (u16, String) {
    let answer = send(server.delivery(sent.event, guid, sent.body.clone())).await;
    let status = answer.json()["status"].as_str().expect("a status").to_owned();
    (answer.status, status)
}

/// The sandbox once it is in this phase and nothing is under way; it must be its first,
/// and have the provider's only object, which was asked for once.
async fn only_one(place: &Place, server: &Server, story: &Story, phase: &str) -> Value {
    let name = format!("claude-issue-{}", story.id);
    let path = format!("/v1/sandboxes/{name}?wait=60&until={phase}");
    let sandbox = server.get(&path).await.json()["data"].clone();
    assert_eq!((&sandbox["phase"], &sandbox["wanted"]), (&json!(phase), &json!(phase)));
    assert_eq!(sandbox["generation"], 1);
    let objects = place.objects();
    assert_eq!(objects.len(), 1, "{objects:?}");
    assert_eq!((objects[0].sandbox.as_str(), objects[0].state.as_str()), (id(&sandbox), phase));
    assert_eq!(place.calls("create").len(), 1);
    let all = server.get("/v1/sandboxes?deleted=true").await.json();
    assert_eq!(all["total"], 1, "{all}");
    sandbox
}

fn id(sandbox: &Value) -> &str {
    sandbox["id"].as_str().expect("an id")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_delivery_five_times_at_once_counts_once() {
    let place = Place::simulated(SLOW);
    let server = place.serve().await;
    let mut story = Story::of(9_100_000_001);
    let sent = story.labeled(TRIGGER);
    let five = vec![("the-one".to_owned(), sent); 5];
    for answer in at_once(&server, &five).await {
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
    }
    let sandbox = only_one(&place, &server, &story, "running").await;
    let events = server.get(&format!("/v1/issues/{}/events", story.id)).await.json();
    let begun = events["data"].as_array().expect("a list").iter().filter(|e| e["from"].is_null());
    assert_eq!(begun.count(), 1, "{events}");
    assert_eq!(deliver(&server, "the-one", &five[0].1).await, (200, "duplicate".to_owned()));
    assert_eq!(id(&server.sandbox(&story.id.to_string()).await), id(&sandbox));
}

#[tokio::test(flavor = "multi_thread")]
async fn opened_with_six_labels_is_one_sandbox_in_every_order() {
    for turn in 0..7 {
        let place = Arc::new(Place::simulated(SLOW));
        let server = place.serve().await;
        let watch = Watch::over(&place);
        let mut story = Story::of(9_100_000_010 + turn as u64);
        let sent = story.opened_with(&["bug", TRIGGER, "ui", "p1", "slow", "later"]);
        let guid = |(n, sent)| (format!("label-{n}"), sent);
        let mut all: Vec<_> = sent.into_iter().enumerate().map(guid).collect();
        all.rotate_left(turn);
        for answer in at_once(&server, &all).await {
            assert!(answer.is_success(), "{answer:?}");
        }
        only_one(&place, &server, &story, "running").await;
        watch.end();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_trigger_comments_in_a_second_while_it_is_created_are_one_sandbox() {
    let place = Place::simulated(SLOW);
    let server = place.serve().await;
    let story = Story::of(9_100_000_002);
    let comment = |n: u64| {
        let text = format!("/issuebox and now this, for the {n}th time");
        (format!("comment-{n}"), story.commented(800 + n, &text))
    };
    let all: Vec<_> = (0..10).map(comment).collect();
    for answer in at_once(&server, &all).await {
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    only_one(&place, &server, &story, "running").await;
    // The same comment by another webhook: its command was carried out.
    let again = deliver(&server, "comment-by-another-hook", &all[0].1).await;
    assert_eq!(again, (200, "ignored".to_owned()));
    only_one(&place, &server, &story, "running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_before_opened_makes_nothing() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let mut story = Story::of(9_100_000_003);
    let opened = story.opened_with(&[TRIGGER]);
    let closed = story.closed();
    assert_eq!(deliver(&server, "closed", &closed).await.0, 202);
    for (n, sent) in opened.iter().enumerate() {
        assert!(deliver(&server, &format!("late-{n}"), sent).await.0 <= 202);
    }
    assert_eq!(server.sandbox(&story.id.to_string()).await, Value::Null);
    assert_eq!((place.objects().len(), place.calls("create").len()), (0, 0));
    // It is reopened: now it has one.
    assert_eq!(deliver(&server, "reopened", &story.reopened()).await.0, 202);
    only_one(&place, &server, &story, "running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_event_that_comes_late_changes_nothing() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let mut story = Story::of(9_100_000_004);
    let labeled = story.labeled(TRIGGER);
    let first_title = story.edited("The first better title");
    let closed = story.closed();
    let reopened = story.reopened();
    let last_title = story.edited("The last title");
    for (guid, sent) in [("labeled", &labeled), ("reopened", &reopened), ("last", &last_title)] {
        assert_eq!(deliver(&server, guid, sent).await.0, 202);
    }
    let sandbox = only_one(&place, &server, &story, "running").await;
    for (guid, sent) in [("late-close", &closed), ("late-title", &first_title)] {
        assert!(deliver(&server, guid, sent).await.0 <= 202);
    }
    let after = only_one(&place, &server, &story, "running").await;
    assert_eq!(id(&after), id(&sandbox));
    assert_eq!(after["issueTitle"], "The last title");
    assert_eq!(place.calls("stop").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_taken_off_and_put_on_again_ends_running_in_every_order() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (turn, order) in orders.into_iter().enumerate() {
        let place = Place::simulated(SLOW);
        let server = place.serve().await;
        let mut story = Story::of(9_100_000_020 + turn as u64);
        let sent = [story.labeled(TRIGGER), story.unlabeled(TRIGGER), story.labeled(TRIGGER)];
        for at in order {
            assert!(deliver(&server, &format!("act-{at}"), &sent[at]).await.0 <= 202);
        }
        only_one(&place, &server, &story, "running").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_taken_off_ends_stopped_or_never_begun() {
    let place = Place::simulated(SLOW);
    let server = place.serve().await;
    let mut story = Story::of(9_100_000_005);
    let (labeled, unlabeled) = (story.labeled(TRIGGER), story.unlabeled(TRIGGER));
    assert_eq!(deliver(&server, "labeled", &labeled).await.0, 202);
    assert_eq!(deliver(&server, "unlabeled", &unlabeled).await.0, 202);
    only_one(&place, &server, &story, "stopped").await;

    let mut other = Story::of(9_100_000_006);
    let (labeled, unlabeled) = (other.labeled(TRIGGER), other.unlabeled(TRIGGER));
    assert!(deliver(&server, "other-unlabeled", &unlabeled).await.0 <= 202);
    assert!(deliver(&server, "other-labeled", &labeled).await.0 <= 202);
    assert_eq!(server.sandbox(&other.id.to_string()).await, Value::Null);
    assert_eq!(place.objects().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_overtakes_its_trigger_is_remembered_across_a_restart() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let mut story = Story::of(9_100_000_007);
    let labeled = story.labeled(TRIGGER);
    story.pass();
    let stop = story.commented(900, "/issuebox stop");
    let edited = story.edited("Another title");
    assert_eq!(deliver(&server, "stop", &stop).await, (202, "accepted".to_owned()));
    server.kill().await;
    let server = place.serve().await;
    assert_eq!(deliver(&server, "labeled", &labeled).await, (200, "ignored".to_owned()));
    assert_eq!(deliver(&server, "edited", &edited).await.0, 202);
    assert_eq!(server.sandbox(&story.id.to_string()).await, Value::Null);
    // What was asked for after the stop counts, in whatever order it comes.
    let start = story.commented(901, "/issuebox go on");
    assert_eq!(deliver(&server, "start", &start).await, (202, "accepted".to_owned()));
    only_one(&place, &server, &story, "running").await;
}
