//! A browser that a test drives: Chromium under chromedriver, spoken to in the WebDriver protocol.
//!
//! Everything that a page complains about is kept: scripts that fail, what its policy refused, and
//! dialogs that hostile text managed to open.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::chromium;

/// How long something may take to be seen. Only what is broken takes this long.
const WAIT: Duration = Duration::from_secs(30);

/// Remembers in each page what its policy refuses and what opens a dialog.
const WITNESS: &str = "
    window.witnessed = [];
    addEventListener('securitypolicyviolation', (e) =>
        witnessed.push('policy: ' + e.violatedDirective + ' ' + e.blockedURI));
    for (const name of ['alert', 'confirm', 'prompt'])
        window[name] = () => { witnessed.push('dialog: ' + name); };";

/// A browser with one tab. Dropping it ends it.
pub struct Browser {
    client: reqwest::Client,
    session: String,
    _driver: Child,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser.
    pub async fn start() -> Self {
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver is installed: apt-get install chromium-driver");
        let profile = tempfile::tempdir().expect("a directory");
        let client =
            reqwest::Client::builder().no_proxy().timeout(WAIT * 2).build().expect("a client");
        let base = format!("http://127.0.0.1:{port}");
        let mut browser =
            Self { client, session: base.clone(), _driver: driver, _profile: profile };
        let begin = Instant::now();
        while browser.client.get(format!("{base}/status")).send().await.is_err() {
            assert!(begin.elapsed() < WAIT, "chromedriver must answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let profile = format!("--user-data-dir={}", browser._profile.path().display());
        let arguments = [&chromium::ARGUMENTS[..], &[&profile]].concat();
        let asked = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments},
        }}});
        let made = browser.ask("", &asked).await;
        browser.session =
            format!("{base}/session/{}", made["sessionId"].as_str().expect("a session"));
        browser.cdp("Page.addScriptToEvaluateOnNewDocument", json!({"source": WITNESS})).await;
        browser
    }

    /// From now on pages do not look by themselves now and then: what they learn comes as an event.
    pub async fn without_polls(&self) {
        let source = "const every = setInterval;
            window.setInterval = (what, ms) => ms >= 2000 ? 0 : every(what, ms);";
        self.cdp("Page.addScriptToEvaluateOnNewDocument", json!({"source": source})).await;
    }

    async fn ask(&self, path: &str, body: &Value) -> Value {
        let url = if path.is_empty() {
            format!("{}/session", self.session)
        } else {
            format!("{}{path}", self.session)
        };
        let answer = self.client.post(url).json(body).send().await.expect("chromedriver answers");
        let answer: Value = answer.json().await.expect("JSON");
        let value = answer["value"].clone();
        assert!(value["error"].is_null(), "{path} {body}: {value}");
        value
    }

    /// Asks the browser itself.
    pub async fn cdp(&self, command: &str, parameters: Value) -> Value {
        self.ask("/goog/cdp/execute", &json!({"cmd": command, "params": parameters})).await
    }

    /// Goes to a place.
    pub async fn go(&self, url: &str) {
        self.ask("/url", &json!({"url": url})).await;
    }

    /// Runs a function's body in the page; what it returns.
    pub async fn js(&self, body: &str) -> Value {
        self.ask("/execute/sync", &json!({"script": body, "args": []})).await
    }

    /// Runs a function's body that calls its last argument when it is done.
    pub async fn js_async(&self, body: &str) -> Value {
        self.ask("/execute/async", &json!({"script": body, "args": []})).await
    }

    /// Waits until an expression is true in the page.
    pub async fn until(&self, expression: &str) {
        let begin = Instant::now();
        // A page that is being left has no answer.
        let body = format!("try {{ return Boolean({expression}); }} catch {{ return false; }}");
        while self.js(&body).await != json!(true) {
            let page = self.js("return document.body?.innerText").await;
            assert!(begin.elapsed() < WAIT, "{expression} must come true in {page}");
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Waits until a text is on the page.
    pub async fn until_text(&self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text))).await;
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub async fn press(&self, keys: &[&str]) {
        let strokes: Vec<Value> = keys
            .iter()
            .flat_map(|key| {
                let code = match *key {
                    "Enter" => "\u{e007}",
                    "Escape" => "\u{e00c}",
                    "Tab" => "\u{e004}",
                    other => other,
                };
                ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": code}))
            })
            .collect();
        self.ask(
            "/actions",
            &json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]}),
        )
        .await;
    }

    /// Clicks what a selector finds, as the mouse would.
    pub async fn click(&self, selector: &str) {
        self.until(&format!("document.querySelector({})", json!(selector))).await;
        let found =
            self.ask("/element", &json!({"using": "css selector", "value": selector})).await;
        let id = found.as_object().and_then(|ids| ids.values().next()).and_then(Value::as_str);
        self.ask(&format!("/element/{}/click", id.expect("an element")), &json!({})).await;
    }

    /// Shows pages as on a screen of this width, in light or dark.
    pub async fn show_as(&self, width: u32, is_dark: bool) {
        let size =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500});
        self.cdp("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.cdp("Emulation.setEmulatedMedia", media).await;
    }

    /// Keeps a picture of the whole page.
    pub async fn picture(&self, path: &Path) {
        let picture =
            self.cdp("Page.captureScreenshot", json!({"captureBeyondViewport": true})).await;
        let bytes = BASE64.decode(picture["data"].as_str().expect("a picture")).expect("base64");
        std::fs::write(path, bytes).expect("written");
    }

    /// Logs in with the token.
    pub async fn log_in(&self, base: &str, token: &str) {
        self.go(&format!("{base}/")).await;
        let fill = format!("document.getElementById('token').value = {}", json!(token));
        self.js(&fill).await;
        self.click("form.login button").await;
        self.until("document.getElementById('live')").await;
        self.until("document.getElementById('status').dataset.state === 'on'").await;
    }

    /// Checks that nothing on this page was refused by the policy or opened a dialog, and that no
    /// script has failed on any page since the last look.
    pub async fn nothing_happened(&self) {
        assert_eq!(self.js("return window.witnessed").await, json!([]));
        let log = self.ask("/se/log", &json!({"type": "browser"})).await;
        let bad: Vec<&Value> = log
            .as_array()
            .into_iter()
            .flatten()
            .filter(|entry| {
                let message = entry["message"].as_str().unwrap_or_default();
                message.contains("Content Security Policy")
                    || entry["source"] == "javascript"
                    || message.contains("Uncaught")
            })
            .collect();
        assert!(bad.is_empty(), "{bad:?}");
    }
}
