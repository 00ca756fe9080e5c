//! `issuebox doctor` with the whole program: a finding for each missing thing.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::process::{self, Place, until};
use serde_json::Value;

/// A web server that only sends its time.
fn clock(date: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("connected");
            // One request fits one read; what it asks for does not matter.
            let _len = stream.read(&mut [0; 4096]).expect("a request");
            let answer = format!("HTTP/1.1 200 OK\r\ndate: {date}\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).expect("written");
        }
    });
    url
}

/// The exit code and the findings.
struct Findings(i32, Vec<Value>);

impl Findings {
    async fn by(place: &Place, listen: &str, github: &str) -> Self {
        Self::with(place, listen, github, &[]).await
    }

    /// The same with more variables.
    async fn with(place: &Place, listen: &str, github: &str, vars: &[(&str, &str)]) -> Self {
        let mut command = place.command(&["doctor", "-o", "json"]);
        command.arg("--config").arg(place.config()).arg("--data").arg(place.data());
        command.env("ISSUEBOX_LISTEN", listen).env("ISSUEBOX__GITHUB__API_URL", github);
        command.envs(vars.iter().copied());
        let ended = command.output().await.expect("it runs");
        let findings =
            serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
        Self(ended.status.code().expect("not killed"), findings)
    }

    fn of(&self, what: &str) -> (&str, String) {
        let all = &self.1;
        let one = all.iter().find(|one| one["check"] == what);
        let one = one.unwrap_or_else(|| panic!("{what} is missing in {all:#?}"));
        let text = format!("{} {}", one["found"], one["remedy"]);
        (one["state"].as_str().expect("a word"), text)
    }

    fn is(&self, what: &str, state: &str, words: &str) {
        let (is, text) = self.of(what);
        assert!(is == state && text.contains(words), "{what}: {is}: {text}");
    }
}

/// A time that no clock here shows.
const LONG_AGO: &str = "Wed, 21 Oct 2015 07:28:00 GMT";

#[tokio::test]
async fn before_the_first_start_it_lists_what_is_missing() {
    let place = Place::simulated("");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let findings = Findings::by(&place, &address, &clock(LONG_AGO)).await;
    assert_eq!(findings.0, 1);
    findings.is("data directory", "right", "created by the first `issuebox serve`");
    findings.is("store", "right", "created by the first `issuebox serve`");
    findings.is("open files", findings.of("open files").0, "local sandboxes at a time");
    findings.is("port", "broken", "another program uses it");
    findings.is("clock", "right", "");
    findings.is("clock of GitHub", "broken", "timedatectl");
    findings.is("provider simulated", "noted", "nothing runs in its sandboxes");
    assert!(!place.data().exists(), "looking makes nothing");
    // What a first start makes is not missing.
    let findings = Findings::by(&place, "127.0.0.1:0", "http://127.0.0.1:1").await;
    assert_eq!(findings.0, 0, "{:#?}", findings.1);

    std::fs::write(place.config(), "lisen = 1\n").expect("written");
    let findings = Findings::by(&place, &address, "http://127.0.0.1:1").await;
    assert_eq!(findings.0, 1);
    findings.is("configuration", "broken", "unknown key lisen");
}

#[tokio::test]
async fn a_running_server_is_checked_through_its_api() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let address = server.url.trim_start_matches("http://").to_owned();
    // This address does not answer; a clock that could not be compared is not a fault.
    let nowhere = "http://127.0.0.1:1";
    let findings = Findings::by(&place, &address, nowhere).await;
    assert_eq!(findings.0, 0, "{:#?}", findings.1);
    findings.is("port", "right", &address);
    findings.is("store", "right", "intact");
    findings.is("clock of GitHub", "noted", "were not compared");
    findings.is("intake", "right", "");
    findings.is("provider simulated", "right", "works");
    findings.is("deliveries", "noted", "no delivery has arrived yet");

    let wrong = server.client.post(format!("{}/webhooks/github", server.url)).body("{}");
    let wrong = wrong.header("x-github-event", "ping").header("x-github-delivery", "g-2");
    let wrong = wrong.header("content-type", "application/json");
    let wrong = wrong.header("x-hub-signature-256", format!("sha256={}", "0".repeat(64)));
    assert_eq!(process::send(wrong).await.status, 401);
    place.configure("unavailable = true");
    server.reload().await;
    until("the provider is in trouble", || async {
        !server.get("/v1/system").await.json()["data"]["providers"][0]["healthy"]
            .as_bool()
            .expect("a report")
    })
    .await;
    let hold = server.request(reqwest::Method::PUT, "/v1/holds/server");
    assert!(process::send(hold).await.is_success());
    let findings = Findings::by(&place, &address, nowhere).await;
    assert_eq!(findings.0, 1);
    findings.is("provider simulated", "broken", "");
    findings.is("deliveries", "broken", "set this server's secret at GitHub");
    findings.is("holds", "noted", "the widest on server");
    server.kill().await;

    // A killed server leaves its address file behind.
    let findings = Findings::by(&place, "127.0.0.1:0", nowhere).await;
    findings.is("port", "right", "no server runs here");
    for (file, text) in [("issuebox.db", "not a database"), ("issuebox.db-wal", "")] {
        std::fs::write(place.data().join(file), text).expect("written");
    }
    let findings = Findings::by(&place, "127.0.0.1:0", nowhere).await;
    findings.is("store", "broken", "restore it from a backup");
}

#[tokio::test]
async fn agents_models_and_budgets_are_looked_at_where_a_template_has_an_agent() {
    let place = Place::simulated("");
    let of = async |vars: &[(&str, &str)]| {
        Findings::with(&place, "127.0.0.1:0", "http://127.0.0.1:1", vars).await
    };
    let none = of(&[]).await;
    assert!(none.1.iter().all(|one| one["check"] != "models"), "{:#?}", none.1);
    let agent = ("ISSUEBOX__TEMPLATES__DEFAULT__AGENT", "claude-code");
    let missing = of(&[agent]).await;
    assert_eq!(missing.0, 1);
    missing.is("agent claude-code", "broken", "npm install -g @anthropic-ai/claude-code");
    missing.is("models", "broken", "[models.anthropic]");
    missing.is("budgets", "right", "run $5.00, issue $10.00, account per day $50.00");

    let bin = place.data().with_file_name("bin");
    std::fs::create_dir(&bin).expect("made");
    let write = r#"printf '#!/bin/sh\necho "%s (Claude Code)"\n' "$1" > "$2" && chmod 755 "$2""#;
    for (version, state) in [("2.1.197", "right"), ("3.0.0", "noted")] {
        let mut writing = tokio::process::Command::new("/bin/sh");
        let writing = writing.args(["-c", write, "sh", version]).arg(bin.join("claude"));
        assert!(writing.status().await.expect("it runs").success());
        let key = bin.join("key");
        std::fs::write(&key, "sk-secret-of-ours\n").expect("written");
        let vars = [
            agent,
            ("PATH", bin.to_str().expect("UTF-8")),
            ("ISSUEBOX__MODELS__ANTHROPIC__KEY_FILE", key.to_str().expect("UTF-8")),
            ("ISSUEBOX__BUDGETS__ISSUE", "0"),
        ];
        let found = of(&vars).await;
        assert_eq!(found.0, 0, "{:#?}", found.1);
        found.is("agent claude-code", state, &format!("version {version} (Claude Code)"));
        found.is("models", "right", "anthropic (*)");
        found.is("budgets", "noted", "no limit for issue");
        assert!(!format!("{:?}", found.1).contains("sk-secret"), "a key is not shown");
    }
    let unreadable = of(&[agent, ("ISSUEBOX__MODELS__ANTHROPIC__KEY_FILE", "/nowhere/key")]).await;
    assert_eq!(unreadable.0, 1);
    unreadable.is("configuration", "broken", "/nowhere/key");
}

#[tokio::test]
async fn a_server_on_another_machine_is_checked_without_local_checks() {
    let place = Place::simulated("");
    let server = place.serve().await;
    for (token, code, words) in [
        (process::TOKEN, 0, "right   server               answers, version "),
        ("wrong", 1, "broken  server  "),
    ] {
        let mut command = place.command(&["doctor", "--server", &server.url]);
        let ended = command.env("ISSUEBOX_TOKEN", token).output().await.expect("it runs");
        let findings = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!(ended.status.code(), Some(code), "{findings}");
        assert!(findings.contains(words), "{findings}");
        assert!(!findings.contains("data directory"), "{findings}");
    }
}
