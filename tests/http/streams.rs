//! Every answer that goes on ends with the session that asked for it, and with the server; what runs in
//! a sandbox for it ends too.

use std::time::Duration;

use crate::common::server::{TestServer, send};
use reqwest::{RequestBuilder, Response};
use serde_json::json;
use tokio::time::{Instant, timeout};

/// Long enough for anything here; what takes longer does not end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A person who is logged in.
struct Person {
    cookie: String,
    token: String,
}

/// An answer that goes on.
struct Stream {
    name: &'static str,
    request: RequestBuilder,
    /// How it says that the session has ended.
    ending: &'static str,
    /// Whether a command runs for it.
    runs: bool,
    /// Whether its head comes before its end.
    answers_early: bool,
}

impl Person {
    async fn at(server: &TestServer) -> Self {
        let cookie = server.log_in().await;
        let page = send(server.client.get(server.url("/holds")).header("cookie", &cookie)).await;
        let token = page.text.split("name=\"formToken\" value=\"").nth(1).expect("a form token");
        Self { token: token.split('"').next().expect("its value").to_owned(), cookie }
    }

    async fn log_out(&self, server: &TestServer) {
        let request = self.change(server, "/logout").body(format!("formToken={}", self.token));
        assert_eq!(send(request).await.status, 303);
    }

    fn see(&self, server: &TestServer, path: &str) -> RequestBuilder {
        server.client.get(server.url(path)).header("cookie", &self.cookie)
    }

    fn change(&self, server: &TestServer, path: &str) -> RequestBuilder {
        let request = server.client.post(server.url(path)).header("cookie", &self.cookie);
        request.header("origin", server.url("")).header("x-form-token", &self.token)
    }

    /// Everything that goes on.
    fn streams(&self, server: &TestServer, id: &str) -> Vec<Stream> {
        let looks = |name, path: &str, ending| {
            let request = self.see(server, path);
            Stream { name, request, ending, runs: false, answers_early: true }
        };
        let call = json!({"command": ["forever"]});
        let exec = self.change(server, &format!("/v1/sandboxes/{id}/exec")).json(&call);
        let as_events = self.change(server, &format!("/v1/sandboxes/{id}/exec")).json(&call);
        let form = format!("formToken={}&line=forever", self.token);
        let on_page = self.change(server, &format!("/sandboxes/{id}/exec")).body(form);
        let runs = |name, request, ending, answers_early| Stream {
            name,
            request,
            ending,
            runs: true,
            answers_early,
        };
        vec![
            looks("events", "/v1/events", ""),
            looks("a log", &format!("/v1/sandboxes/{id}/logs?follow=true"), ""),
            looks(
                "a log on the page",
                &format!("/sandboxes/{id}/logs/output"),
                "The session has ended; log in again.",
            ),
            runs(
                "a command as events",
                as_events.header("accept", "text/event-stream"),
                "\"code\":\"unauthorized\"",
                true,
            ),
            runs("a command", exec, "the session has ended", false),
            runs("a command on the page", on_page, "The session has ended; log in again.", true),
        ]
    }
}

/// An answer that has begun.
enum Begun {
    Head(Response),
    Command(tokio::task::JoinHandle<reqwest::Result<Response>>),
}

impl Begun {
    /// What it said until its end.
    async fn whole(self, name: &str) -> String {
        let read = async {
            let answer = match self {
                Self::Head(answer) => answer,
                Self::Command(answer) => answer.await.expect("no panic").expect("an answer"),
            };
            answer.text().await.expect("it is whole")
        };
        timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("{name} goes on"))
    }
}

/// Asks, and waits until the answer goes on; so many commands have begun then.
async fn begin(server: &TestServer, id: &str, stream: Stream, commands: usize) -> Begun {
    let begun = if stream.answers_early {
        let answer = timeout(PATIENCE, stream.request.send()).await;
        let answer = answer.unwrap_or_else(|_| panic!("{}: no head", stream.name));
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), 200, "{}", stream.name);
        Begun::Head(answer)
    } else {
        Begun::Command(tokio::spawn(stream.request.send()))
    };
    let give_up = Instant::now() + PATIENCE;
    loop {
        let log = server.get(&format!("/v1/sandboxes/{id}/logs")).await.text;
        if log.matches("\"stream\":\"command\"").count() >= commands {
            return begun;
        }
        assert!(Instant::now() < give_up, "{}: nothing runs: {log}", stream.name);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn every_stream_ends_soon_after_its_session() {
    let lag_max = Duration::from_millis(50);
    let server = TestServer::with(move |edge| edge.limits.session_lag_max = lag_max).await;
    let id = server.running("1").await;
    let mut commands = 0;
    for nth in 0.. {
        let person = Person::at(&server).await;
        let Some(stream) = person.streams(&server, &id).into_iter().nth(nth) else { break };
        let (name, ending, runs) = (stream.name, stream.ending, stream.runs);
        commands += usize::from(runs);
        let begun = begin(&server, &id, stream, commands).await;
        person.log_out(&server).await;
        let whole = begun.whole(name).await;
        assert!(whole.contains(ending), "{name}: {whole}");
        if runs {
            let ended = timeout(PATIENCE, server.provider.dropped.notified()).await;
            assert!(ended.is_ok(), "{name}: the command goes on");
        }
    }
    assert_eq!(commands, 3);
}

#[tokio::test]
async fn every_stream_ends_with_the_server() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let person = Person::at(&server).await;
    let (mut commands, mut all) = (0, Vec::new());
    for stream in person.streams(&server, &id) {
        let name = stream.name;
        commands += usize::from(stream.runs);
        all.push((name, begin(&server, &id, stream, commands).await));
    }
    server.closing.send_replace(true);
    for (name, begun) in all {
        let whole = begun.whole(name).await;
        assert!(!whole.contains("session"), "{name}: {whole}");
    }
}
