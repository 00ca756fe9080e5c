//! The served description, read back: which route answers what.

use std::collections::BTreeSet;

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::server::{Answer, TestServer, opening, send};

/// One operation of the description.
#[derive(Clone, Debug)]
pub struct Operation {
    pub method: Method,
    pub path: String,
    pub takes_body: bool,
    /// Every answer: its status, and the code of a JSON error.
    pub answers: BTreeSet<(u16, String)>,
    /// The content types of each status.
    pub types: BTreeSet<(u16, String)>,
}

/// Reads the description that a server serves.
pub async fn operations(server: &TestServer) -> Vec<Operation> {
    let document = send(server.client.get(server.url("/openapi.json"))).await.json();
    let paths = document["paths"].as_object().expect("paths");
    let mut all = Vec::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("operations") {
            all.push(Operation {
                method: method.to_uppercase().parse().expect("a method"),
                path: path.clone(),
                takes_body: operation["requestBody"].is_object(),
                answers: answers(operation),
                types: types(operation),
            });
        }
    }
    all
}

fn types(operation: &Value) -> BTreeSet<(u16, String)> {
    let mut all = BTreeSet::new();
    for (status, answer) in operation["responses"].as_object().expect("answers") {
        let status: u16 = status.parse().expect("a status");
        let types = answer["content"].as_object().map(|content| content.keys());
        all.extend(types.into_iter().flatten().map(|kind| (status, kind.clone())));
    }
    all
}

fn answers(operation: &Value) -> BTreeSet<(u16, String)> {
    let mut all = BTreeSet::new();
    for (status, answer) in operation["responses"].as_object().expect("answers") {
        let status: u16 = status.parse().expect("a status");
        if status >= 400 && answer["content"]["application/json"].is_object() {
            let codes = answer["description"].as_str().expect("codes").split(", ");
            all.extend(codes.map(|code| (status, code.to_owned())));
        } else {
            all.insert((status, String::new()));
        }
    }
    all
}

impl Operation {
    /// A name for messages.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Whether the description lists this answer.
    pub fn lists(&self, code: &str) -> bool {
        self.answers.iter().any(|(_, listed)| listed == code)
    }

    /// Whether it needs the token.
    pub fn is_v1(&self) -> bool {
        self.path.starts_with("/v1/")
    }

    /// Whether it works in a sandbox.
    pub fn is_work(&self) -> bool {
        self.path.contains("/files") || self.path.ends_with("/exec") || self.path.contains("{port}")
    }

    /// Whether it goes on as a WebSocket, on which it says what went wrong.
    pub fn is_socket(&self) -> bool {
        self.answers.contains(&(101, String::new()))
    }

    /// Whether it decides about drift, whose answers `http_drift` provokes.
    pub fn is_remedy(&self) -> bool {
        self.path.starts_with("/v1/system/drift/")
    }

    /// Its address for a sandbox and an issue, with a query that is right for it.
    pub fn address(&self, sandbox: &str, issue: &str) -> String {
        let path = self
            .path
            .replace("{id}", sandbox)
            .replace("{issueId}", issue)
            .replace("{account}", "default")
            .replace("{owner}", "octo")
            .replace("{repo}", "hello")
            .replace("{number}", "7")
            .replace("{name}", "nope")
            .replace("{port}", "3000")
            .replace("{tail}", "a/b")
            .replace("{driftId}", "nope");
        let query = match self.path.rsplit('/').next() {
            Some("content" | "directory") => "?path=f",
            Some("move") => "?from=f&to=g",
            Some("mode") => "?path=f&mode=0644",
            _ => "",
        };
        path + query
    }

    /// A request without any credential, with a body that is right for it.
    pub fn bare(&self, server: &TestServer, sandbox: &str, issue: &str) -> RequestBuilder {
        let address = server.url(&self.address(sandbox, issue));
        let request = server.client.request(self.method.clone(), address);
        match self.path.as_str() {
            "/v1/sandboxes" if self.takes_body => {
                request.body(format!("{{\"issueId\":\"{issue}\"}}"))
            }
            // Only what opens a socket there is asked where from.
            "/v1/sandboxes/{id}/ports/{port}/{tail}" => opening(request),
            "/v1/sandboxes/{id}/exec" => request.body(r#"{"command":["echo"]}"#),
            "/v1/sandboxes/{id}/files/content" | "/v1/sandboxes/{id}/files/archive"
                if self.takes_body =>
            {
                request.body("content")
            }
            _ if self.takes_body => request.body(""),
            _ => request,
        }
    }
}

/// Checks that an answer is one that the description lists, and says which.
pub fn listed(operation: &Operation, answer: &Answer) -> (u16, String) {
    let is_json = answer.header("content-type") == "application/json";
    let code = if answer.status >= 400 && is_json { answer.code() } else { String::new() };
    let seen = (answer.status, code);
    let kind = answer.header("content-type").split(';').next().unwrap_or_default().to_owned();
    let is_described = kind.is_empty() || operation.types.contains(&(answer.status, kind));
    assert!(is_described, "{} does not describe the type of {answer:?}", operation.name());
    assert!(operation.answers.contains(&seen), "{} does not list {answer:?}", operation.name());
    seen
}
