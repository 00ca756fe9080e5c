//! The served description, read back: which route answers what.

use std::collections::BTreeSet;
use std::sync::Arc;

use issuebox::types::Timestamp;
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
    /// The operation as it is described, and the whole document.
    described: (Value, Arc<Value>),
}

/// Reads the description that a server serves.
pub async fn operations(server: &TestServer) -> Vec<Operation> {
    let document = Arc::new(send(server.client.get(server.url("/openapi.json"))).await.json());
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
                described: (operation.clone(), Arc::clone(&document)),
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
        if let Some(codes) = answer["x-codes"].as_array() {
            let codes = codes.iter().filter_map(Value::as_str);
            all.extend(codes.map(|code| (status, code.to_owned())));
        } else {
            all.insert((status, String::new()));
        }
    }
    all
}

/// The id of a run that there never is.
const NO_RUN: &str = "019392f0-5b7e-7a3c-8c55-3c1a0b6a1f2e";

/// The codes that a delete has only from the push before it.
const CODES_OF_A_PUSH: [&str; 7] = [
    "held",
    "no_room",
    "not_running",
    "not_supported",
    "provider_failed",
    "provider_unknown",
    "refused_inside",
];

impl Operation {
    /// A name for messages.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Whether the description lists this answer.
    pub fn lists(&self, code: &str) -> bool {
        self.answers.iter().any(|(_, listed)| listed == code)
    }

    /// Whether it pushes the workspace first, if it is asked to.
    pub fn may_push_first(&self) -> bool {
        self.method == Method::DELETE && self.path == "/v1/sandboxes/{id}"
    }

    /// A request as [`Operation::bare`] that can have this code as its answer.
    pub fn provoking(
        &self,
        code: &str,
        server: &TestServer,
        sandbox: &str,
        issue: &str,
    ) -> RequestBuilder {
        let request = self.bare(server, sandbox, issue);
        match self.may_push_first() && CODES_OF_A_PUSH.contains(&code) {
            true => request.query(&[("sync", "true")]),
            false => request,
        }
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

    /// Whether what it does needs credentials for GitHub, which the server of these tests lacks.
    pub fn needs_credentials(&self) -> bool {
        self.path.starts_with("/v1/github")
    }

    /// Whether it first looks for a run.
    pub fn is_of_run(&self) -> bool {
        self.path.contains("/{run}")
    }

    /// Whether it reads what was said or printed, which the tests' store in trouble does not keep.
    pub fn reads_conversations(&self) -> bool {
        matches!(self.path.as_str(), "/v1/runs" | "/v1/usage")
            || self.path.contains("/conversation")
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
            .replace("{driftId}", "nope")
            .replace("{effect}", "1")
            .replace("{token}", "nope")
            .replace("{run}", NO_RUN);
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
            "/v1/sandboxes/{id}/ports/{port}/{tail}" | "/v1/sandboxes/{id}/ports/{port}" => {
                opening(request)
            }
            "/v1/tokens" if self.takes_body => request.body(r#"{"name":"t","role":"viewer"}"#),
            "/v1/sandboxes/{id}/exec" => request.body(r#"{"command":["echo"]}"#),
            path if path.ends_with("/messages") => {
                request.body(r#"{"text":"hello","agentId":"cat"}"#)
            }
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

/// Checks that an answer is one that the description lists, in the form that it describes, and says
/// which.
pub fn listed(operation: &Operation, answer: &Answer) -> (u16, String) {
    let is_json = answer.header("content-type") == "application/json";
    let code = if answer.status >= 400 && is_json { answer.code() } else { String::new() };
    let seen = (answer.status, code);
    let kind = answer.header("content-type").split(';').next().unwrap_or_default().to_owned();
    let is_described = kind.is_empty() || operation.types.contains(&(answer.status, kind));
    assert!(is_described, "{} does not describe the type of {answer:?}", operation.name());
    assert!(operation.answers.contains(&seen), "{} does not list {answer:?}", operation.name());
    if is_json {
        let (described, document) = &operation.described;
        let status = answer.status.to_string();
        let schema = &described["responses"][status]["content"]["application/json"]["schema"];
        let wrong = mismatch(document, schema, &answer.json(), "answer");
        assert_eq!(wrong, None, "{}: {answer:?}", operation.name());
    }
    seen
}

/// The fields of several objects as those of one.
fn merged(document: &Value, parts: &[Value]) -> Value {
    let mut whole = serde_json::json!({"type": "object", "properties": {}, "required": []});
    for part in parts {
        let name = part["$ref"].as_str().and_then(|name| name.rsplit('/').next());
        let part = name.map_or(part, |name| &document["components"]["schemas"][name]);
        for (field, of) in part["properties"].as_object().into_iter().flatten() {
            whole["properties"][field] = of.clone();
        }
        let required = part["required"].as_array().cloned().unwrap_or_default();
        whole["required"].as_array_mut().expect("a list").extend(required);
    }
    whole
}

/// What of a JSON value is not as a schema of the document says; `at` is where it is.
pub fn mismatch(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    // `/openapi.json` itself is any object.
    if schema == &serde_json::json!({"type": "object"}) {
        return (!value.is_object()).then(|| format!("{at}: {value} is no object"));
    }
    let check = |schema: &Value, value: &Value, at: &str| mismatch(document, schema, value, at);
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().expect("a name");
        return check(&document["components"]["schemas"][name], value, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = choices.iter().filter(|one| check(one, value, at).is_none()).count();
        return (fits != 1).then(|| format!("{at}: {value} fits {fits} of {schema}"));
    }
    if let Some(parts) = schema["allOf"].as_array() {
        return check(&merged(document, parts), value, at);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
    let is_of = |one: &Value| one == kind || (one == "number" && kind == "integer");
    if !types.iter().any(is_of) {
        return Some(format!("{at}: {value} is not of {schema}"));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Some(format!("{at}: {value} is none of {words:?}"));
    }
    if schema["format"] == "date-time"
        && value.as_str().is_some_and(|text| Timestamp::parse(text).is_none())
    {
        return Some(format!("{at}: {value} is no time"));
    }
    if let Some(items) = value.as_array() {
        return items.iter().find_map(|item| check(&schema["items"], item, at));
    }
    let fields = value.as_object()?;
    let is_missing = |field: &&Value| !fields.contains_key(field.as_str().expect("a name"));
    if let Some(field) = schema["required"].as_array().into_iter().flatten().find(is_missing) {
        return Some(format!("{at} has no {field}"));
    }
    let more = &schema["additionalProperties"];
    fields.iter().find_map(|(name, value)| {
        let of = schema["properties"].get(name).unwrap_or(more);
        let at = format!("{at}.{name}");
        if of.is_null() { Some(format!("{at} is not described")) } else { check(of, value, &at) }
    })
}
