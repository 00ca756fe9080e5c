//! The button *Create GitHub App*, against the in-memory GitHub: the three steps, who may take them, and
//! what can go wrong in each.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use issuebox::clock::SystemClock;
use issuebox::config::StoredApp;
use issuebox::github::client::AppRegistrar;
use issuebox::github::model::{APP_KEY, FaultKind, GithubModel, ModelFault, OTHER_KEY};
use issuebox::http::AppSetup;
use reqwest::Url;
use serde_json::Value;
use tokio::sync::Notify;

use crate::common::server::{Answer, TestServer, send};
use crate::pages::Person;
use crate::permission::client;

const CONVERSION: &str = "app-manifests/*/conversions";

/// A GitHub, and a server without credentials that can register itself there.
struct SetupWorld {
    github: Arc<GithubModel>,
    server: TestServer,
    restart: Arc<Notify>,
}

impl SetupWorld {
    async fn new() -> Self {
        Self::with(None, false).await
    }

    /// With this public address; or as the server is after its App was stored.
    async fn with(public_url: Option<&str>, is_in_use: bool) -> Self {
        let github = Arc::new(GithubModel::start().expect("it starts"));
        let (restart, public_url) = (Arc::new(Notify::new()), public_url.map(str::to_owned));
        let data = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        let (path, of_edge) = (data.path().to_owned(), (Arc::clone(&github), Arc::clone(&restart)));
        let server = TestServer::over(data, "memory", move |edge| {
            let (github, restart) = of_edge;
            let registrar = AppRegistrar::new(&github.api_url(), Arc::new(SystemClock));
            edge.public_url = public_url;
            edge.github = is_in_use.then(|| client(&github));
            edge.app_setup = Some(AppSetup {
                registration: Arc::new(registrar.expect("an address")),
                data: path,
                web_url: github.web_url(),
                api_url: github.api_url(),
                in_use: is_in_use.then(|| stored_app(&github)),
                suggested_name: "issuebox-abc123".to_owned(),
                restart,
            });
        });
        Self { server: server.await, github, restart }
    }

    fn stored(&self) -> Option<StoredApp> {
        StoredApp::read(self.data()).expect("whole or absent")
    }

    fn data(&self) -> &Path {
        self.server.data.path()
    }

    /// Whether the server is to restart.
    async fn is_restarted(&self) -> bool {
        tokio::time::timeout(Duration::from_millis(1), self.restart.notified()).await.is_ok()
    }

    /// Presses the button here; GitHub's address, and the manifest that is posted there.
    async fn press(&self, person: &Person<'_>, fields: &[(&str, &str)]) -> (Answer, String, Value) {
        let page = person.submit("/connect/github", fields).await;
        assert_eq!(page.status, 200, "{page:?}");
        assert_eq!(page.text.matches("<form").count(), 1, "{page:?}");
        let target = unescaped(between(&page.text, "action=\"", "\""));
        let manifest = unescaped(between(&page.text, "name=\"manifest\" value=\"", "\""));
        let manifest = serde_json::from_str(&manifest).expect("JSON");
        (page, target, manifest)
    }

    /// Presses the buttons here and there; the path that GitHub leads the browser back to.
    async fn create(&self, person: &Person<'_>, name: &str) -> String {
        let (_, target, manifest) = self.press(person, &[("name", name)]).await;
        self.approve(&target, &manifest).await
    }

    /// What a person does at GitHub.
    async fn approve(&self, target: &str, manifest: &Value) -> String {
        let form = format!("manifest={}", encoded(&manifest.to_string()));
        let page = send(self.server.client.post(target).body(form)).await;
        assert_eq!(page.status, 200, "{page:?}");
        let button = between(&page.text, "action=\"", "\"").to_owned();
        let led = send(self.server.client.post(button)).await;
        assert_eq!(led.status, 302, "{led:?}");
        let back = Url::parse(led.header("location")).expect("an address");
        assert_eq!(format!("{}", back.origin().ascii_serialization()), self.server.url(""));
        format!("{}?{}", back.path(), back.query().unwrap_or_default())
    }

    /// Presses *Continue*, as a browser does from a page that sends no referrer.
    async fn go_on(&self, cookie: &str, path: &str) -> Answer {
        let page = send(self.server.client.get(self.server.url(path))).await;
        assert_eq!(page.status, 200, "without a cookie: {page:?}");
        let hidden = |name: &str| {
            let value = between(&page.text, &format!("name=\"{name}\" value=\""), "\"");
            format!("{name}={}", encoded(&unescaped(value)))
        };
        let form = format!("{}&{}", hidden("code"), hidden("state"));
        self.post_back(cookie, "null", form).await
    }

    async fn post_back(&self, cookie: &str, origin: &str, form: String) -> Answer {
        let request = self.server.client.post(self.server.url("/connect/github/created"));
        send(request.header("cookie", cookie).header("origin", origin).body(form)).await
    }

    fn conversions(&self) -> usize {
        self.github.calls_to("POST", "/app-manifests/", "/conversions").len()
    }

    fn nothing_wrong(&self) {
        assert_eq!(self.github.violations(), Vec::<String>::new());
    }
}

/// The App of this GitHub, as it is stored.
fn stored_app(github: &GithubModel) -> StoredApp {
    let (id, slug, secret) = github.app();
    let (web_url, api_url) = (github.web_url(), github.api_url());
    let html_url = format!("{web_url}/apps/{slug}");
    let about = issuebox::config::AppFacts { id, slug, html_url, web_url, api_url };
    let secret = issuebox::types::Secret::new(secret);
    let key = issuebox::types::Secret::new(APP_KEY.trim());
    StoredApp { about, key, webhook_secret: Some(secret) }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no {before} in {text}")).1;
    rest.split_once(after).unwrap_or_else(|| panic!("no {after} in {rest}")).0
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[tokio::test]
async fn an_app_is_created_stored_and_waits_for_its_installation() {
    let world = SetupWorld::new().await;
    let person = Person::at(&world.server).await;
    let first_run = person.see("/").await.text;
    assert!(first_run.contains("Create a GitHub App") && first_run.contains("issuebox-abc123"));

    let (page, target, manifest) = world.press(&person, &[("name", "Pear Box")]).await;
    let policy = page.header("content-security-policy");
    assert!(policy.contains(&format!("form-action {};", world.github.web_url())), "{policy}");
    let new = format!("{}/settings/apps/new?state=", world.github.web_url());
    assert_eq!(target.strip_prefix(&new).map(str::len), Some(64), "{target}");
    assert_eq!(manifest["url"], world.server.url(""));
    assert_eq!(manifest["redirect_url"], world.server.url("/connect/github/created"));
    assert!(manifest.get("hook_attributes").is_none(), "GitHub cannot reach this server");
    assert!(page.text.contains("gets no webhook"), "{page:?}");

    let back = world.approve(&target, &manifest).await;
    let led = send(world.server.client.get(world.server.url(&back))).await;
    let headers = [led.header("cache-control"), led.header("referrer-policy")];
    assert_eq!(headers, ["no-store", "no-referrer"]);
    assert!(led.header("content-security-policy").contains("form-action 'self'"));
    assert_eq!((world.conversions(), world.stored()), (0, None), "the address alone does nothing");

    let done = world.go_on(&person.cookie, &back).await;
    assert_eq!((done.status, done.header("location")), (303, "/connect"), "{done:?}");
    let stored = world.stored().expect("stored");
    let (id, slug, _) = world.github.app();
    assert_eq!((stored.about.id, stored.about.slug.as_str()), (id, "pear-box"));
    assert_eq!((stored.about.slug, stored.webhook_secret), (slug, None));
    assert_eq!(stored.key.expose(), APP_KEY.trim());
    assert_eq!(world.github.calls_to("GET", "/app", "").len(), 1, "the key is proved");
    assert!(world.is_restarted().await);
    assert!(person.see("/connect").await.text.contains("The server restarts with it"));
    let files = std::fs::read_dir(world.data().join(StoredApp::DIR)).expect("a directory");
    for file in files {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("text");
        assert!(!text.contains("client-secret"), "it is thrown away: {text}");
    }
    world.nothing_wrong();
}

#[tokio::test]
async fn a_forged_callback_is_refused() {
    let world = SetupWorld::new().await;
    let person = Person::at(&world.server).await;
    let evil = world.github.approve_manifest(serde_json::json!({"name": "Evil App"}));
    let back = world.create(&person, "Pear Box").await;
    let state = between(&format!("{back}&"), "state=", "&").to_owned();
    let with = |state: &str| format!("code={evil}&state={state}");

    // Without a state, with another one, without a log-in, with another log-in, from another page.
    let other = world.server.log_in().await;
    for (cookie, origin, form, status) in [
        (person.cookie.as_str(), "null", format!("code={evil}"), 400),
        (&person.cookie, "null", with(&"0".repeat(64)), 403),
        ("", "null", with(&state), 401),
        (&other, "null", with(&state), 403),
        (&person.cookie, "https://elsewhere.example", with(&state), 403),
    ] {
        let refused = world.post_back(cookie, origin, form.clone()).await;
        assert_eq!(refused.status, status, "{form}: {refused:?}");
    }
    let request = world.server.client.post(world.server.url("/connect/github/created"));
    let request = request.header("cookie", &person.cookie).header("origin", "null");
    let framed = send(request.header("sec-fetch-site", "cross-site").body(with(&state))).await;
    assert_eq!(framed.status, 403, "{framed:?}");
    assert_eq!((world.conversions(), world.stored()), (0, None));

    // The person's own is good, once.
    assert_eq!(world.go_on(&person.cookie, &back).await.status, 303);
    assert_eq!(world.go_on(&person.cookie, &back).await.status, 403);
    assert_eq!(world.conversions(), 1);
}

#[tokio::test]
async fn addresses_come_from_the_configuration_and_never_from_the_request() {
    let world = SetupWorld::new().await;
    let person = Person::at(&world.server).await;
    let port = world.server.address.port();
    let submit = |host: String| {
        let form = format!("name=Box&formToken={}", person.token);
        let request = world.server.client.post(world.server.url("/connect/github")).body(form);
        let request = request.header("cookie", &person.cookie).header("host", &host);
        send(request.header("origin", format!("http://{host}")))
    };
    for host in [format!("localhost:{port}"), format!("evil.example:{port}")] {
        let refused = submit(host.clone()).await;
        assert_eq!(refused.status, 409, "{refused:?}");
        assert!(!refused.text.contains(&host), "{refused:?}");
        let own = format!("href=\"{}\"", world.server.url("/connect"));
        assert!(refused.text.contains(&own), "{refused:?}");
    }

    let public = "https://box.example.org/";
    let world = SetupWorld::with(Some(public), false).await;
    let login = world.server.client.post(world.server.url("/login"));
    let login = login.header("origin", "https://box.example.org");
    let login = send(login.body(format!("token={}", crate::common::server::TOKEN))).await;
    let cookie = login.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    let page = world.server.client.get(world.server.url("/connect")).header("cookie", &cookie);
    let token = between(&send(page).await.text, "name=\"formToken\" value=\"", "\"").to_owned();
    let form = format!("name=Box&organisation=octo-org&statuses=true&formToken={token}");
    let request = world.server.client.post(world.server.url("/connect/github")).body(form);
    let request = request.header("cookie", &cookie).header("origin", "https://box.example.org");
    let page = send(request).await;
    assert_eq!(page.status, 200, "{page:?}");
    let text = unescaped(&page.text);
    let target = format!("{}/organizations/octo-org/settings/apps/new?", world.github.web_url());
    assert!(text.contains(&target), "{text}");
    assert!(text.contains("\"url\":\"https://box.example.org/webhooks/github\""), "{text}");
    let back = "\"redirect_url\":\"https://box.example.org/connect/github/created\"";
    assert!(text.contains(back) && text.contains("\"statuses\":\"write\""), "{text}");
    assert!(!text.contains("\"workflows\""), "{text}");
}

#[tokio::test]
async fn after_a_lost_answer_the_key_is_made_again_and_uploaded() {
    let world = SetupWorld::new().await;
    let person = Person::at(&world.server).await;
    world.github.order(ModelFault::on("POST", CONVERSION, FaultKind::LostAfter));
    let back = world.create(&person, "Pear Box").await;
    let lost = world.go_on(&person.cookie, &back).await;
    assert_eq!(lost.status, 502, "{lost:?}");
    let settings = format!("{}/settings/apps/pear-box", world.github.web_url());
    assert!(lost.text.contains(&settings) && lost.text.contains("name=\"key\""), "{lost:?}");
    assert_eq!((world.conversions(), world.stored()), (1, None), "a code is asked for once");
    assert!(!world.is_restarted().await);

    let id = world.github.app().0.to_string();
    let with_key = |key: &str| {
        let fields = [("app_id", id.clone()), ("key", key.replace('\n', "\r\n"))];
        let secret = ("secret", "of-the-hook".to_owned());
        fields.into_iter().chain([secret]).collect::<Vec<_>>()
    };
    for key in [OTHER_KEY, "no key"] {
        let fields = with_key(key);
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let refused = person.submit("/connect/github/key", &fields).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.text.contains("GitHub does not accept the credentials"), "{refused:?}");
        assert_eq!(world.stored(), None);
    }
    let fields = with_key(APP_KEY);
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let taken = person.submit("/connect/github/key", &fields).await;
    assert_eq!((taken.status, taken.header("location")), (303, "/connect"), "{taken:?}");
    let stored = world.stored().expect("stored");
    assert_eq!(stored.about.slug, "pear-box");
    assert_eq!(
        stored.webhook_secret.map(|secret| secret.expose().to_owned()),
        Some("of-the-hook".into())
    );
    assert!(world.is_restarted().await);
}

#[tokio::test]
async fn an_app_whose_key_is_not_confirmed_is_kept_and_tried_again() {
    let world = SetupWorld::new().await;
    let person = Person::at(&world.server).await;
    world.github.order(ModelFault::on("GET", "app", FaultKind::Status(502)));
    let back = world.create(&person, "Pear Box").await;
    assert_eq!(world.go_on(&person.cookie, &back).await.status, 303);
    assert!(world.stored().is_some(), "stored before anything else");
    assert!(!world.is_restarted().await);
    let page = person.see("/connect").await.text;
    assert!(page.contains("GitHub did not confirm its key"), "{page}");
    assert_eq!(person.submit("/connect/github/prove", &[]).await.status, 303);
    assert!(world.is_restarted().await);
}

#[tokio::test]
async fn credentials_that_cannot_be_stored_are_said_to_be_lost() {
    let world = SetupWorld::new().await;
    let person = Person::at(&world.server).await;
    std::fs::write(world.data().join("github-app"), "in the way").expect("written");
    let back = world.create(&person, "Pear Box").await;
    let lost = world.go_on(&person.cookie, &back).await;
    assert_eq!(lost.status, 502, "{lost:?}");
    assert!(lost.text.contains("cannot store the App") && lost.text.contains("name=\"key\""));
    assert!(!world.is_restarted().await);
}

#[tokio::test]
async fn what_is_wrong_with_the_form_is_said_before_github_is_asked() {
    let world = SetupWorld::new().await;
    let person = Person::at(&world.server).await;
    for (name, organisation) in [("", ""), ("a/b", ""), ("Box", "octo/..")] {
        let fields = [("name", name), ("organisation", organisation)];
        let refused = person.submit("/connect/github", &fields).await;
        assert_eq!(refused.status, 400, "{name:?} {organisation:?}: {refused:?}");
    }
    // A taken name is refused by GitHub's page, and the form here stays.
    let (_, target, manifest) = world.press(&person, &[("name", "issuebox-model")]).await;
    let form = format!("manifest={}", encoded(&manifest.to_string()));
    let taken = send(world.server.client.post(target).body(form)).await;
    assert!(taken.status == 422 && taken.text.contains("already taken"), "{taken:?}");
    assert!(person.see("/connect").await.text.contains("Use an App that exists"));
}

#[tokio::test]
async fn only_github_says_where_the_app_is_installed() {
    let world = SetupWorld::with(None, true).await;
    let person = Person::at(&world.server).await;
    let claimed = person.see("/connect?installation_id=99&setup_action=install").await;
    assert_eq!(claimed.status, 200, "{claimed:?}");
    let choose = format!("{}/apps/issuebox-model/installations/new", world.github.web_url());
    assert!(
        claimed.text.contains("This page waits") && claimed.text.contains(&choose),
        "{claimed:?}"
    );

    let world = SetupWorld::with(None, true).await;
    let person = Person::at(&world.server).await;
    world.github.install("octo");
    let installed = person.see("/connect").await.text;
    assert!(installed.contains("is installed") && installed.contains("octo"), "{installed}");
}

#[tokio::test]
async fn a_server_whose_credentials_are_configured_takes_no_app() {
    let server = TestServer::start().await;
    let person = Person::at(&server).await;
    assert!(!person.see("/connect").await.text.contains("Create a GitHub App"));
    let refused = person.submit("/connect/github", &[("name", "Box")]).await;
    assert_eq!(refused.status, 404, "{refused:?}");
}
