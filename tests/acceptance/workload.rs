//! A template's command, environment and secrets, seen through the API, the log and the files.

use serde_json::{Value, json};

use crate::process::{Place, Server, until};

const SECRET: &str = "hush-2718281828";

/// The template `app` of a provider.
fn app(provider: &str, command: &str) -> String {
    format!(
        "[templates.app]\nprovider = {provider:?}\nworking_dir = \"app\"\ncommand = {command}\n\
         [templates.app.env]\nGREETING = \"hello\"\n[templates.app.secrets]\nTOKEN = \"npm\"\n\
         [secrets.npm]\nvalue = {SECRET:?}"
    )
}

async fn ensure_app(server: &Server) -> String {
    let call = json!({"issueId": "test-1", "template": "app"});
    let answer = server.post("/v1/sandboxes?wait=60", &call).await;
    assert!(answer.is_success(), "{}", answer.text);
    answer.sandbox_id()
}

/// The lines of the entry command in the sandbox's log, as stream and text.
async fn entry_lines(server: &Server, id: &str) -> Vec<(String, String)> {
    let log = server.get(&format!("/v1/sandboxes/{id}/logs?tail=100")).await.json();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let lines = log["data"].as_array().cloned().unwrap_or_default();
    let lines = lines.iter().filter(|line| line["exec"] == "entry");
    lines.map(|line| (text(line, "stream"), text(line, "text"))).collect()
}

/// No answer, no log and no file that the server writes has the secret.
async fn shows_no_secret(place: &Place, server: &Server, id: &str) {
    for path in [
        format!("/v1/sandboxes/{id}"),
        format!("/v1/sandboxes/{id}/logs?tail=100"),
        "/v1/issues/test-1/events".to_owned(),
        "/v1/system".to_owned(),
        format!("/sandboxes/{id}"),
    ] {
        let answer = server.get(&path).await;
        assert!(!answer.text.contains(SECRET), "{path}: {}", answer.text);
    }
    assert!(!server.log().contains(SECRET), "{}", server.log());
    for dir in [place.data(), place.simulated_dir()] {
        let found = std::process::Command::new("grep").args(["-raF", SECRET]).arg(dir).output();
        assert!(found.as_ref().is_ok_and(|found| found.stdout.is_empty()), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_s_command_is_started_once_and_its_output_is_in_the_log() {
    let place = Place::simulated("");
    place.configure(&app("simulated", r#"["echo", "up", "again"]"#));
    let server = place.serve().await;
    let id = ensure_app(&server).await;
    let expected = [("command", "echo up again"), ("stdout", "up again"), ("exit", "0")];
    let expected = expected.map(|(stream, text)| (stream.to_owned(), text.to_owned()));
    until("its output", async || entry_lines(&server, &id).await == expected).await;
    shows_no_secret(&place, &server, &id).await;
    let object = std::fs::read_dir(place.simulated_dir()).expect("a directory");
    let files = object.map(|entry| entry.expect("readable").path());
    let file = files.into_iter().find(|path| path.to_string_lossy().contains("sim-"));
    let file = std::fs::read(file.expect("an object")).expect("readable");
    let file: Value = serde_json::from_slice(&file).expect("JSON");
    assert_eq!(file["workload"]["env"], json!({"GREETING": "hello"}));
    assert_eq!(file["workload"]["secrets"], json!({"TOKEN": "npm"}), "the name only");

    // Again each time it comes up, and not because the server came up.
    server.kill().await;
    let server = place.serve().await;
    assert_eq!(entry_lines(&server, &id).await, expected);
    for verb in ["stop", "start"] {
        let path = format!("/v1/sandboxes/{id}/{verb}?wait=60");
        assert!(server.post(&path, &json!({})).await.is_success(), "{verb}");
    }
    until("its output again", async || entry_lines(&server, &id).await.len() == 6).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn a_real_command_has_the_environment_and_does_not_hold_the_sandbox() {
    let Some(place) = Place::local(None).await else { return };
    let script =
        r#"["sh", "-c", "echo $GREETING ${TOKEN:+with a token} in $PWD; exec sleep 1000"]"#;
    place.configure(&app("local", script));
    let server = place.serve().await;
    let id = ensure_app(&server).await;
    let line = ("stdout".to_owned(), "hello with a token in /workspace/app".to_owned());
    until("its output", async || entry_lines(&server, &id).await.contains(&line)).await;
    shows_no_secret(&place, &server, &id).await;
    let path = format!("/v1/sandboxes/{id}/exec");
    let exec = json!({"command": ["sh", "-c", "test \"$TOKEN\" = \"$1\"; echo $?", "sh", SECRET]});
    assert_eq!(server.post(&path, &exec).await.json()["data"]["stdout"], "0\n");
    // It ends with the sandbox, which nothing keeps from stopping.
    let stopped = server.post(&format!("/v1/sandboxes/{id}/stop?wait=60"), &json!({})).await;
    assert_eq!(stopped.json()["data"]["phase"], "stopped", "{}", stopped.text);
    until("its end", async || entry_lines(&server, &id).await.len() == 3).await;
}
