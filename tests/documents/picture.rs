//! Takes the picture of the page in README.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::{built, chromium};

/// How long something may take to be seen. Only what is broken takes this long.
const WAIT: Duration = Duration::from_secs(60);

/// What is on the picture: issues of two repositories. The first one fails.
const ISSUES: [(&str, u64, &str); 6] = [
    ("pear-garden/press", 4, "Monthly reports lose their last page"),
    ("pear-garden/orchard", 12, "Sign-in loops after a password reset"),
    ("pear-garden/orchard", 15, "The map forgets its zoom"),
    ("pear-garden/orchard", 19, "Search finds nothing with umlauts"),
    ("pear-garden/press", 8, "Move the old migrations away"),
    ("pear-garden/orchard", 21, "Dates are a day off west of Greenwich"),
];

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port()
}

fn start(program: &mut Command) -> Child {
    let quiet = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.kill_on_drop(true).spawn().expect("it starts")
}

/// Asks until the answer is right.
async fn until(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !ask().await {
        assert!(begin.elapsed() < WAIT, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Sends JSON; the answer's.
async fn post(client: &reqwest::Client, url: &str, body: &Value) -> Value {
    let request = client.post(url).bearer_auth("the-admin-token").json(body);
    request.send().await.expect("an answer").json().await.expect("JSON")
}

#[tokio::test]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn the_picture_of_the_page_can_be_made() {
    let home = tempfile::tempdir().expect("a directory");
    let client = reqwest::Client::builder().no_proxy().timeout(WAIT).build().expect("a client");
    let server = format!("http://127.0.0.1:{}", free_port());
    let config = "[auth]\nadmin_token = \"the-admin-token\"\n[lifecycle]\ncreate_attempts = 1\n\
        [templates.default]\nprovider = \"simulated\"\n[providers.simulated]\nfail_first_n = 1\n";
    std::fs::write(home.path().join("issuebox.toml"), config).expect("written");
    let mut serve = Command::new(built());
    serve.args(["serve", "--data", "data", "--listen", &server["http://".len()..]]);
    let _server = start(serve.env_clear().current_dir(home.path()));
    let get = async |path: &str| {
        let answer = client.get(path).send().await.ok()?;
        answer.status().is_success().then_some(answer)
    };
    until("the server answers", async || get(&format!("{server}/readyz")).await.is_some()).await;
    for (repository, number, title) in ISSUES {
        let issue = json!({"issueId": format!("28741000{number}"), "repository": repository,
            "issueNumber": number, "issueTitle": title});
        let ensured = post(&client, &format!("{server}/v1/sandboxes?wait=30"), &issue).await;
        assert_eq!(ensured["success"], true, "{ensured}");
        if number == 8 {
            let id = ensured["sandboxId"].as_str().expect("an id");
            post(&client, &format!("{server}/v1/sandboxes/{id}/stop?wait=30"), &json!({})).await;
        }
    }
    let driver = format!("http://127.0.0.1:{}", free_port());
    let port = driver.rsplit(':').next().expect("a port");
    let _driver = start(Command::new("chromedriver").arg(format!("--port={port}")));
    until("the driver answers", async || get(&format!("{driver}/status")).await.is_some()).await;
    let profile = format!("--user-data-dir={}", home.path().join("browser").display());
    let looks = ["--window-size=1180,970", "--hide-scrollbars", &profile];
    let arguments = [&chromium::ARGUMENTS[..], &looks].concat();
    let asked =
        json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}});
    let made = post(&client, &format!("{driver}/session"), &asked).await;
    let id = made["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{made}"));
    let session = format!("{driver}/session/{id}");
    let js = async |script: &str| {
        let body = json!({"script": script, "args": []});
        post(&client, &format!("{session}/execute/sync"), &body).await["value"].clone()
    };
    post(&client, &format!("{session}/url"), &json!({"url": format!("{server}/")})).await;
    js("document.getElementById('token').value = 'the-admin-token';
        document.querySelector('form.login button').click()")
    .await;
    let is_live = "return document.getElementById('status')?.dataset.state === 'on'
        && document.body.innerText.includes('The map forgets its zoom')";
    until("the page is live", async || js(is_live).await == true).await;
    let picture = client.get(format!("{session}/screenshot")).send().await.expect("an answer");
    let picture: Value = picture.json().await.expect("JSON");
    let picture = BASE64.decode(picture["value"].as_str().expect("a picture")).expect("base64");
    client.delete(&session).send().await.expect("the browser ends");
    assert!((20_000..200_000).contains(&picture.len()), "{} bytes", picture.len());
    if let Some(path) = std::env::var_os("ISSUEBOX_PICTURE").map(PathBuf::from) {
        std::fs::write(path, picture).expect("written");
    }
}
