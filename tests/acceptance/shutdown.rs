//! SIGTERM: the end comes in bounded time whatever is open, and the next start takes it up.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::json;

use crate::process::{Place, Server, issue_event, send, try_send, until};
use crate::processes::{self, local_objects, marker};

/// Longest end of a server: five seconds for requests in flight, as many for provider calls in
/// flight, and what a busy machine adds.
const END_WITHIN: Duration = Duration::from_secs(14);
/// The end of one in which nothing is in flight that could not end at once.
const QUICK_END_WITHIN: Duration = Duration::from_secs(4);

/// Opens the stream of changes and reads it to its end; whether that was a whole one.
async fn follow(server: &Server) -> tokio::task::JoinHandle<bool> {
    let answer = server.request(Method::GET, "/v1/events").send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    tokio::spawn(async move {
        let mut pieces = answer.bytes_stream();
        while let Some(piece) = pieces.next().await {
            if piece.is_err() {
                return false;
            }
        }
        true
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_ends_at_once_under_open_streams_waits_and_idle_connections() {
    // Nothing is in flight at the provider: the next attempt is waited for.
    let place = Place::simulated("fail_create = 1.0\n[lifecycle]\ncreate_attempts = 20");
    let server = place.serve().await;
    let events = follow(&server).await;
    let ensure = server.request(Method::PUT, "/v1/issues/test-1/sandbox?wait=60");
    let ensure = tokio::spawn(send(ensure));
    until("it is waited for", || async {
        server.get("/v1/sandboxes?phase=creating").await.json()["total"] == 1
    })
    .await;
    let (status, took, log) = server.stop().await;
    assert!(status.success(), "{status} {log}");
    assert!(took < QUICK_END_WITHIN, "{took:?} {log}");
    assert!(events.await.expect("it was read"), "the stream ends whole");
    let ensured = ensure.await.expect("it was answered");
    assert_eq!((ensured.status, &ensured.json()["settled"]), (201, &json!(false)), "{ensured:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long; run by .ci/run"]
async fn provider_calls_in_flight_are_given_their_time_and_then_left_to_the_next_start() {
    let place = Place::simulated("create_delay_ms = 60000");
    let server = place.serve().await;
    server.ensure("test-1").await;
    let ensure = server.request(Method::PUT, "/v1/issues/test-2/sandbox?wait=60");
    let ensure = tokio::spawn(send(ensure));
    until("both are being created", || async {
        server.get("/v1/sandboxes?phase=creating").await.json()["total"] == 2
    })
    .await;
    let (status, took, log) = server.stop().await;
    assert!(status.success() && took < END_WITHIN, "{status} {took:?} {log}");
    assert!(log.contains("provider calls are still in flight"), "{log}");
    let ensured = ensure.await.expect("it was answered");
    assert_eq!((ensured.status, &ensured.json()["settled"]), (201, &json!(false)));
    assert_eq!(place.objects().len(), 0);

    place.configure("");
    let server = place.serve().await;
    for issue in ["test-1", "test-2"] {
        assert_eq!(server.running(issue).await["generation"], 1);
    }
    assert_eq!(place.objects().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_answered_2xx_during_a_shutdown_are_durable() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let deliveries = (0..200_u64).map(|n| {
        let body = issue_event("labeled", 8_000_000_000 + n).to_string();
        let request = server.delivery("issues", &format!("end-{n}"), body);
        async move { (n, try_send(request).await.map(|answer| answer.status)) }
    });
    let deliveries: Vec<_> = deliveries.collect();
    let sent = tokio::spawn(futures_util::future::join_all(deliveries));
    until("some are taken in", || async { !place.objects().is_empty() }).await;
    let (status, _, log) = server.stop().await;
    assert!(status.success(), "{log}");
    let sent = sent.await.expect("sent");
    let server = place.serve().await;
    for (n, status) in sent {
        match status {
            Some(202) => {
                let issue = (8_000_000_000 + n).to_string();
                assert_eq!(server.running(&issue).await["generation"], 1);
            }
            // Refused while it ended, or not heard any more: nothing was promised.
            Some(503) | None => {}
            Some(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and takes long; run by .ci/run"]
async fn local_sandboxes_end_with_the_server_and_come_back_stopped() {
    let Some(place) = Place::local(None).await else { return };
    let server = place.serve().await;
    let id = server.running("test-1").await["id"].as_str().expect("an id").to_owned();
    let mark = marker();
    server.sh(&id, &format!("echo kept > kept; setsid sleep {mark} >/dev/null 2>&1 &")).await;
    let events = follow(&server).await;
    let path = format!("/v1/sandboxes/{id}/exec");
    let exec = |accept: &'static str| {
        let script = format!("trap '' TERM; echo begun; sleep {mark}; sleep {mark}");
        let request = server.request(Method::POST, &path).header("accept", accept);
        let request = request.json(&json!({"command": ["sh", "-c", script]}));
        tokio::spawn(try_send(request))
    };
    let commands = [exec("application/json"), exec("text/event-stream")];
    let all = || async { processes::with(&mark, &processes::of(&place, &mark)) == 5 };
    until("everything runs", all).await;
    let (status, took, log) = server.stop().await;
    println!("ended after {took:?}");
    assert!(status.success(), "{status} {log}");
    assert!(took < END_WITHIN, "{took:?} {log}");
    let left = || async { processes::of(&place, &mark).is_empty() };
    until("nothing is left", left).await;
    assert!(local_objects(&place).iter().all(|(_, held)| !held));
    assert!(events.await.expect("it was read"), "the stream ends whole");
    for command in commands {
        // A command that was interrupted must not be reported as successful.
        let result = command.await.expect("it was asked").map(|answer| answer.text);
        assert!(!result.is_some_and(|text| text.contains("\"exitCode\":0")));
    }

    let server = place.serve().await;
    let sandbox = server.sandbox("test-1").await;
    assert_eq!((&sandbox["id"], &sandbox["phase"]), (&json!(id), &json!("stopped")));
    assert_eq!(sandbox["wanted"], "stopped");
    assert!(sandbox["reason"].to_string().contains("server_restarted"), "{sandbox}");
    assert_eq!(server.sh(&id, "cat kept").await["stdout"], "kept\n", "an exec starts it again");
    assert_eq!(server.sandbox("test-1").await["phase"], "running");
    let (status, took, log) = server.stop().await;
    assert!(status.success() && took < QUICK_END_WITHIN, "{took:?} {log}");
}
