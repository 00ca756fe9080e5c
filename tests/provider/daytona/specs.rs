//! Each request to the model and each answer of it, held to Daytona's own OpenAPI documents.

use std::path::PathBuf;

use issuebox::sandbox::{ExecRequest, TargetCall, TerminalControl, TerminalSize};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::model::Exchange;
use super::server::pairs;
use super::subject;
use crate::subject::{WAIT, at_terminal, call, ended, path, request, target};

/// The documents: that of the API, that of the toolbox.
struct Documents([Value; 2]);

impl Documents {
    fn read() -> Self {
        let dir = std::env::var_os("ISSUEBOX_DAYTONA_SPECS").map(PathBuf::from).expect(
            "ISSUEBOX_DAYTONA_SPECS must name the folder with daytona-api.yaml and \
             daytona-toolbox.yaml",
        );
        Self(["daytona-api.yaml", "daytona-toolbox.yaml"].map(|name| {
            let file = dir.join(name);
            let text = std::fs::read_to_string(&file);
            let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let options = serde_saphyr::options! { budget: None };
            let read = serde_saphyr::from_str_with_options(&text, options);
            let mut document: Value =
                read.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            allow_null(&mut document);
            document
        }))
    }

    /// What of an exchange its document does not allow.
    fn check(&self, exchange: &Exchange) -> Vec<String> {
        let document = &self.0[usize::from(exchange.is_toolbox)];
        let line = format!("{} {}", exchange.method, exchange.path);
        let paths = document["paths"].as_object().expect("paths");
        let found = paths.iter().find(|(template, _)| matches(template, &exchange.path));
        let method = exchange.method.to_lowercase();
        let Some(operation) = found.and_then(|(_, path)| path.get(&method)) else {
            return vec![format!("{line} is not in the document")];
        };
        let mut wrong = Vec::new();
        check_query(operation, &exchange.query, &mut wrong);
        let schema = schema_of(&operation["requestBody"]["content"]);
        match (schema, serde_json::from_slice::<Value>(&exchange.request)) {
            (Some(schema), Ok(body)) => {
                wrong.extend(mismatches(document, schema, &body));
                wrong.extend(unknown_keys(document, schema, &body));
            }
            (Some(_), Err(_)) if operation["requestBody"]["required"] == true => {
                wrong.push("it needs a body".into());
            }
            (Some(_) | None, _) => {}
        }
        let answer = &operation["responses"][exchange.status.to_string()];
        if answer.is_null() {
            wrong.push(format!("the status {} is not in the document", exchange.status));
        }
        if let Some(schema) = schema_of(&answer["content"])
            && exchange.answer_type == "application/json"
            && !exchange.answer.is_empty()
        {
            let body = serde_json::from_slice(&exchange.answer).expect("JSON");
            wrong.extend(mismatches(document, schema, &body));
        }
        wrong.into_iter().map(|wrong| format!("{line}: {wrong}")).collect()
    }
}

/// Writes `nullable`, which is OpenAPI's own word, as a schema has it.
fn allow_null(value: &mut Value) {
    if value.get("nullable") == Some(&Value::Bool(true))
        && let Some(kind) = value["type"].as_str().map(str::to_owned)
    {
        value["type"] = json!([kind, "null"]);
    }
    match value {
        Value::Object(map) => map.values_mut().for_each(allow_null),
        Value::Array(items) => items.iter_mut().for_each(allow_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a path is one of a template, such as `/sandbox/{sandboxIdOrName}`.
fn matches(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    let fits = |(part, own): (&&str, &&str)| part == own || part.starts_with('{');
    // A fixed word wins over a parameter; our paths meet no such pair.
    template.len() == path.len() && template.iter().zip(&path).all(fits)
}

fn schema_of(content: &Value) -> Option<&Value> {
    let kinds = ["application/json", "*/*"];
    kinds.iter().map(|kind| &content[*kind]["schema"]).find(|schema| !schema.is_null())
}

fn check_query(operation: &Value, query: &str, wrong: &mut Vec<String>) {
    let given = pairs(query);
    let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
    let of_query = || parameters.iter().filter(|parameter| parameter["in"] == "query");
    for (name, value) in &given {
        let Some(parameter) = of_query().find(|parameter| parameter["name"] == **name) else {
            wrong.push(format!("it has no parameter {name}"));
            continue;
        };
        let schema = &parameter["schema"];
        let number: Option<f64> = value.parse().ok();
        let fits = match schema["type"].as_str() {
            Some("number" | "integer") => number.is_some_and(|number| {
                let bound = |key: &str, default| schema[key].as_f64().unwrap_or(default);
                (bound("minimum", f64::MIN)..=bound("maximum", f64::MAX)).contains(&number)
            }),
            Some("boolean") => ["true", "false"].contains(&value.as_str()),
            _ => true,
        };
        if !fits {
            wrong.push(format!("{name}={value} is not of {schema}"));
        }
    }
    for needed in of_query().filter(|parameter| parameter["required"] == true) {
        if !given.iter().any(|(name, _)| needed["name"] == **name) {
            wrong.push(format!("it needs the parameter {}", needed["name"]));
        }
    }
}

/// Where a value differs from a schema.
fn mismatches(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let whole = json!({"components": document["components"], "allOf": [schema]});
    let validator = jsonschema::validator_for(&whole).expect("a schema");
    let errors = validator.iter_errors(value);
    errors.map(|error| format!("{error} at {}", error.instance_path())).collect()
}

/// The keys of a request that the document does not know.
fn unknown_keys(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let name = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()).unwrap_or("");
    let none = Map::new();
    let known = &document["components"]["schemas"][name]["properties"];
    let known = known.as_object().unwrap_or(&none);
    let keys = value.as_object().into_iter().flat_map(Map::keys);
    keys.filter(|key| !known.contains_key(*key)).map(|key| format!("{name} has no {key}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Daytona's OpenAPI documents, in the folder that ISSUEBOX_DAYTONA_SPECS names"]
async fn every_request_and_answer_is_as_daytona_documents_it() {
    let documents = Documents::read();
    let (subject, model) = subject().await;
    assert_eq!(subject.provider.lifecycle.health().await.trouble, None);
    for n in 0..7 {
        subject.make(&format!("page-{n}"), &format!("p{n}")).await;
    }
    let object = subject.make("work", "s1").await;
    let target = target(&object);
    let instance = subject.spec("work", "s1").labels.instance;
    subject.provider.lifecycle.list(instance).await.expect("listed");
    subject.write(&target, b"dir/file \xff", "text".into()).await.expect("written");
    subject.read(&target, b"dir/file \xff").await.expect("read");
    subject.list(&target, b"").await;
    subject.provider.workspace.delete_file(target.clone(), path(b"dir")).await.expect("deleted");
    let call_with = ExecRequest { stdin: bytes::Bytes::from("input").into(), ..request(&["cat"]) };
    let ran = subject.provider.processes.exec(target.clone(), call_with).await.expect("started");
    assert_eq!(ended(ran).await.stdout, b"input");
    // Longer than the model lets a script wait.
    assert_eq!(subject.run(&target, &["sleep", "2"]).await.exit, Some((0, false)));
    let terminal = subject.provider.processes.terminal(target.clone(), at_terminal(&["cat"])).await;
    let terminal = terminal.expect("opened");
    let size = TerminalSize { columns: 100, rows: 30 };
    terminal.control.send(TerminalControl::Resize(size)).await.expect("taken");
    let is_resized = || model.count("POST /process/pty/") > 0;
    timeout(WAIT, async {
        while !is_resized() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("resized");
    drop(terminal);
    subject.provider.processes.port(target.clone(), 3000).await.expect("an address");
    subject.stop(&target).await;
    subject.start(&target).await;
    let id = object.external_id.as_str();
    model.with(id, |sandbox| (sandbox.state, sandbox.is_recoverable) = ("error", true));
    subject.start(&target).await;
    let forced = TargetCall { force: true, ..call(&target) };
    subject.provider.lifecycle.stop(forced).await.expect("stopped");
    subject.remove(&object, true).await;
    let exchanges = model.exchanges.lock().expect("not poisoned").clone();
    let is_documented = |one: &&Exchange| one.is_toolbox || one.status < 400;
    let mut wrong: Vec<String> =
        exchanges.iter().filter(is_documented).flat_map(|one| documents.check(one)).collect();
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let toolbox = exchanges.iter().filter(|one| one.is_toolbox).count();
    assert!(exchanges.len() > 50 && toolbox > 25, "{toolbox} of {}", exchanges.len());
    assert!(exchanges.iter().any(|one| one.status == 408), "a wait in vain is one of them");
}
