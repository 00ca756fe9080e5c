//! The button *Create GitHub App*, with the whole program: the App is stored, the server restarts by
//! itself on the same address, and works with the App, also after it was killed.

use std::process::Stdio;
use std::time::Duration;

use issuebox::github::model::{GithubModel, HookDoor};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use serde_json::json;
use tokio::process::Command;

use crate::browser::driver::Browser;
use crate::process::{Answer, Place, Server, TOKEN, WAIT, send, try_send, until};

const REPOSITORY: &str = "octo/hello";
/// The server's address for people and for GitHub. What goes there is sent to the server itself.
const PUBLIC: &str = "http://box.example.org";

/// A GitHub, and the place of a server without credentials for it.
struct ButtonWorld {
    github: GithubModel,
    place: Place,
}

/// A person with a browser, who is logged in.
pub struct Visitor<'a> {
    server: &'a Server,
    client: reqwest::Client,
    /// The address that the browser believes to be at.
    origin: String,
}

impl ButtonWorld {
    fn new(place: Place) -> Self {
        let github = GithubModel::start().expect("it starts");
        github.repository(REPOSITORY);
        github.set_role(REPOSITORY, "mona", "admin");
        Self { github, place }
    }

    fn command(&self) -> Command {
        let mut command = self.place.serve_command("127.0.0.1:0");
        command
            .env("ISSUEBOX__GITHUB__API_URL", self.github.api_url())
            .env("ISSUEBOX__GITHUB__WEB_URL", self.github.web_url())
            .env("ISSUEBOX__TRIGGERS__OPENED", "false")
            .env("ISSUEBOX__PUBLIC_URL", PUBLIC)
            .stdout(Stdio::null());
        command
    }

    async fn serve(&self) -> Server {
        let server = Server::start(&mut self.command()).await;
        self.github.set_door(HookDoor::Open(format!("{}/webhooks/github", server.url)));
        server
    }

    /// An issue gets the label, a sandbox, and a status comment.
    async fn label_an_issue(&self) {
        let number = self.github.open_issue(REPOSITORY, "mona", "A title", "A body");
        self.github.label((REPOSITORY, number), "mona", "agent");
        let is_said = |github: &GithubModel| {
            let comments = github.comments((REPOSITORY, number));
            comments
                .iter()
                .any(|one| one["body"].as_str().is_some_and(|b| b.contains("**Running**")))
        };
        let waited = tokio::time::timeout(WAIT, self.github.until(is_said)).await;
        assert!(
            waited.is_ok(),
            "no status comment: {:?}",
            self.github.comments((REPOSITORY, number))
        );
    }
}

impl<'a> Visitor<'a> {
    pub async fn log_in(server: &'a Server, origin: &str) -> Self {
        let client =
            || reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(WAIT);
        let login = client().build().expect("a client").post(format!("{}/login", server.url));
        let answer = send(login.header("origin", origin).body(format!("token={TOKEN}"))).await;
        let cookie = answer.headers["set-cookie"].to_str().expect("text");
        let cookie = cookie.split(';').next().expect("a cookie");
        let cookie = HeaderValue::from_str(cookie).expect("a header");
        let headers = HeaderMap::from_iter([(reqwest::header::COOKIE, cookie)]);
        let client = client().default_headers(headers).build().expect("a client");
        Self { server, client, origin: origin.to_owned() }
    }

    pub async fn see(&self, path: &str) -> Answer {
        send(self.client.get(format!("{}{path}", self.server.url))).await
    }

    pub async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
            .collect();
        let request = self.client.post(format!("{}{path}", self.server.url));
        send(request.header("origin", &self.origin).body(fields.join("&"))).await
    }

    /// Presses the button here, the one at GitHub, and *Continue*.
    async fn create_app(&self, name: &str) {
        let page = self.see("/connect").await.text;
        let token = between(&page, "name=\"formToken\" value=\"");
        let page = self.submit("/connect/github", &[("name", name), ("formToken", &token)]).await;
        let (target, manifest) =
            (between(&page.text, "action=\""), between(&page.text, "name=\"manifest\" value=\""));
        let form = format!("manifest={}", utf8_percent_encode(&manifest, NON_ALPHANUMERIC));
        // The browser has no cookie for GitHub that matters here.
        let page = send(self.client.post(target).body(form)).await;
        let led = send(self.client.post(between(&page.text, "action=\""))).await;
        let back = led.headers["location"].to_str().expect("an address");
        let page = self.see(back.strip_prefix(PUBLIC).expect("led back here")).await;
        let (code, state) = (
            between(&page.text, "name=\"code\" value=\""),
            between(&page.text, "name=\"state\" value=\""),
        );
        let fields = [("code", code.as_str()), ("state", &state)];
        let done = self.submit("/connect/github/created", &fields).await;
        assert_eq!(done.status, 303, "{done:?}");
    }

    /// Waits until the page says this. A server that restarts closes the connections that it keeps, also the
    /// one on which a request is just sent (RFC 9112, 9.3.1): as a browser does, it is sent again.
    async fn until_shown(&self, words: &str) {
        let page = || self.client.get(format!("{}/connect", self.server.url));
        let is_shown =
            async || try_send(page()).await.is_some_and(|page| page.text.contains(words));
        until(words, is_shown).await;
    }
}

/// The text up to the next quote, without entities.
pub fn between(text: &str, before: &str) -> String {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no {before} in {text}")).1;
    let value = rest.split_once('"').expect("a quote").0;
    value.replace("&quot;", "\"").replace("&amp;", "&")
}

#[tokio::test(flavor = "multi_thread")]
async fn pressing_the_button_connects_github_without_a_restart_by_hand() {
    let world = ButtonWorld::new(Place::simulated(""));
    let server = world.serve().await;
    let visitor = Visitor::log_in(&server, PUBLIC).await;
    // Programs ask all the time. None is refused while one server follows the other.
    let (url, client) = (format!("{}/healthz", server.url), server.client.clone());
    let asking = tokio::spawn(async move {
        let mut asked = 0;
        loop {
            let answer = client.get(&url).header("connection", "close").send().await;
            assert!(answer.is_ok(), "after {asked}: {answer:?}");
            asked += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    visitor.create_app("Pear Box").await;
    visitor.until_shown("Install the App pear-box").await;
    asking.abort();
    let ended = asking.await.expect_err("it was ended");
    assert!(ended.is_cancelled(), "a connection was refused: {ended}");
    assert_eq!(server.log().matches("ready on ").count(), 2, "{}", server.log());

    world.github.install("octo");
    visitor.until_shown("The App pear-box is installed").await;
    world.label_an_issue().await;
    assert_eq!(world.place.calls("create").len(), 1);

    server.kill().await;
    let server = world.serve().await;
    let system = server.get("/v1/github").await.json();
    assert_eq!(system["data"]["connected"], true, "{system}");
    world.label_an_issue().await;
    let (status, _, log) = server.stop().await;
    assert!(status.success(), "{log}");
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_goes_on_if_its_configuration_cannot_be_loaded_again() {
    let world = ButtonWorld::new(Place::simulated(""));
    let server = world.serve().await;
    let visitor = Visitor::log_in(&server, PUBLIC).await;
    let config = std::fs::read_to_string(world.place.config()).expect("written");
    std::fs::write(world.place.config(), "[nonsense").expect("written");
    visitor.create_app("Pear Box").await;
    until("the error", || async { server.log().contains("from the next start on") }).await;
    assert_eq!(server.get("/healthz").await.status, 200);
    std::fs::write(world.place.config(), config).expect("written");
    let (status, _, _) = server.stop().await;
    assert!(status.success());
    let server = world.serve().await;
    assert_eq!(server.get("/v1/github").await.json()["data"]["connected"], true);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn local_sandboxes_come_back_stopped_with_their_files() {
    let Some(place) = Place::local(None).await else { return };
    let world = ButtonWorld::new(place);
    let server = world.serve().await;
    let id = server.running("test-1").await["id"].as_str().expect("an id").to_owned();
    server.sh(&id, "echo kept > note").await;
    let visitor = Visitor::log_in(&server, PUBLIC).await;
    visitor.create_app("Pear Box").await;
    visitor.until_shown("Install the App pear-box").await;
    let sandbox = server.sandbox("test-1").await;
    assert_eq!((&sandbox["id"], &sandbox["phase"]), (&json!(id), &json!("stopped")), "{sandbox}");
    let started =
        server.post(&format!("/v1/sandboxes/{id}/start?wait=60"), &json!({})).await.json();
    assert_eq!(started["data"]["phase"], "running", "{started}");
    assert_eq!(server.sh(&id, "cat note").await["stdout"], "kept\n");
    let (status, _, log) = server.stop().await;
    assert!(status.success(), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn a_browser_is_led_to_github_and_back_by_three_buttons() {
    let world = ButtonWorld::new(Place::simulated(""));
    // `localhost` is another site than 127.0.0.1, so the browser keeps our cookie back as it does when
    // GitHub leads it here.
    let there = world.github.web_url().replace("127.0.0.1", "localhost");
    let mut command = world.command();
    command.env_remove("ISSUEBOX__PUBLIC_URL").env("ISSUEBOX__GITHUB__WEB_URL", there);
    let server = Server::start(&mut command).await;
    let browser = Browser::start().await;
    browser.log_in(&server.url, TOKEN).await;
    browser.click("form[action='/connect/github'] button").await;
    browser.until_text("Continue to GitHub").await;
    browser.click("form.login button").await;
    browser.until("document.title === 'GitHub'").await;
    browser.click("button").await;
    browser.until_text("You come from GitHub").await;
    let address = browser.js("return location.pathname").await;
    assert_eq!(address, "/connect/github/created");
    browser.click("form.login button").await;
    browser.until_text("Install the App issuebox-").await;
    world.github.install("octo");
    browser.until_text("is installed").await;
    browser.nothing_happened().await;
    server.stop().await;
}
