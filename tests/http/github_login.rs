//! Logging in with GitHub, against the in-memory GitHub: who gets in and as what, and what can go wrong on
//! the way.

use std::sync::Arc;
use std::time::Duration;

use issuebox::access::Access;
use issuebox::clock::{Clock, SystemClock};
use issuebox::github::client::{AppClient, AppSignIn};
use issuebox::github::model::{FaultKind, GithubModel, ModelFault};
use issuebox::http::PeopleSetup;
use issuebox::store::session::SessionStore;
use issuebox::types::{
    AccountName, GrantSubject, LoginGrant, LoginGrants, PermissionLevel, Repository, Role, Secret,
};
use serde_json::json;

use crate::common::server::{Answer, TestServer, send};
use crate::pages::Person;
use crate::permission::{REPOSITORY, client};

const SESSION: Duration = Duration::from_secs(3_600);
const MEMBERS: &str = "orgs/*/members/*";

/// A GitHub, and a server at which people log in with it.
struct LoginWorld {
    github: Arc<GithubModel>,
    server: TestServer,
    access: Arc<Access>,
    sessions: Arc<dyn SessionStore>,
}

fn grant(to: GrantSubject, role: Role, account: &str) -> LoginGrant {
    LoginGrant { to, role, account: AccountName::trusted(account) }
}

fn organization() -> GrantSubject {
    GrantSubject::Organization("octo".to_owned())
}

fn repository(permission: PermissionLevel) -> GrantSubject {
    GrantSubject::Repository { name: Repository::trusted(REPOSITORY), permission }
}

/// Every kind of rule, in this order.
fn grants(github: &GithubModel) -> Vec<LoginGrant> {
    vec![
        grant(GrantSubject::UserId(github.user("wren")), Role::Operator, "acme"),
        grant(GrantSubject::User("Mona".to_owned()), Role::Admin, "default"),
        grant(organization(), Role::Viewer, "acme"),
        grant(repository(PermissionLevel::Triage), Role::Operator, "default"),
    ]
}

impl LoginWorld {
    async fn new() -> Self {
        Self::with(None, |_| {}).await
    }

    /// With this public address, and a client that a test changes.
    async fn with(public_url: Option<&str>, change: fn(&mut AppClient)) -> Self {
        let github = Arc::new(GithubModel::start().expect("it starts"));
        github.repository(REPOSITORY);
        let permissions = [("metadata", "read"), ("issues", "read"), ("members", "read")];
        github.install_with("octo", None, Some(&permissions));
        for login in ["wren", "mona", "remy"] {
            github.set_member("octo", login, true);
        }
        github.set_role(REPOSITORY, "tess", "triage");
        let (sent, received) = std::sync::mpsc::channel();
        let (of_edge, public_url) = (Arc::clone(&github), public_url.map(str::to_owned));
        let server = TestServer::with(move |edge| {
            let github = of_edge;
            let (id, secret) = github.client();
            let mut app = AppClient { id, secret: Secret::new(secret) };
            change(&mut app);
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let sign_in = AppSignIn::new(&github.web_url(), &github.api_url(), app, &clock);
            let sign_in = Arc::new(sign_in.expect("addresses"));
            edge.github = Some(client(&github));
            edge.people = Some(PeopleSetup { sign_in, session: SESSION });
            edge.public_url = public_url;
            edge.limits.session_lag_max = Duration::from_millis(50);
            edge.access.set_grants(LoginGrants::new(grants(&github)));
            let stores = (Arc::clone(&edge.access), Arc::clone(&edge.sessions));
            sent.send(stores).expect("the test waits");
        });
        let server = server.await;
        server.account("acme", json!({})).await;
        let (access, sessions) = received.recv().expect("they were sent");
        Self { github, server, access, sessions }
    }

    /// Has these rules in force, as the server does when its configuration is read again.
    async fn set_grants(&self, grants: Vec<LoginGrant>) {
        self.access.set_grants(LoginGrants::new(grants));
        let keys = self.access.grants().iter().map(|(key, _)| key.to_owned()).collect();
        self.sessions.keep_sessions_of(keys).await.expect("stored");
    }

    /// Presses the link on the page.
    async fn begin(&self, next: &str, cookie: &str) -> Answer {
        let path = format!("/login/github?next={}", encoded(next));
        send(self.server.client.get(self.server.url(&path)).header("cookie", cookie)).await
    }

    /// Presses the link; the cookie of the log-in, and the path to which GitHub leads this person back.
    async fn at_github(&self, login: Option<&str>, next: &str) -> (String, String) {
        self.github.set_browsing(login);
        let begun = self.begin(next, "").await;
        assert_eq!(begun.status, 303, "{begun:?}");
        let cookie = begun.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
        let there = begun.header("location");
        assert!(there.starts_with(&self.github.web_url()), "{there}");
        let led = send(self.server.client.get(there)).await;
        assert_eq!(led.status, 302, "{led:?}");
        let back = led.header("location");
        let path = back.split_once("/login/").map(|(_, path)| format!("/login/{path}"));
        (cookie, path.unwrap_or_else(|| panic!("it leads to {back}")))
    }

    /// The browser is back from GitHub.
    async fn come_back(&self, cookie: &str, path: &str) -> Answer {
        send(self.server.client.get(self.server.url(path)).header("cookie", cookie)).await
    }

    /// All of it, as this person.
    async fn log_in(&self, login: &str, next: &str) -> Answer {
        let (cookie, path) = self.at_github(Some(login), next).await;
        self.come_back(&cookie, &path).await
    }

    /// The session of this person, who is let in.
    async fn session(&self, login: &str) -> String {
        let done = self.log_in(login, "/").await;
        assert_eq!(done.status, 200, "{done:?}");
        let cookie = done.header("set-cookie").split(';').next().unwrap_or_default();
        assert!(cookie.contains("issuebox_session="), "{done:?}");
        cookie.to_owned()
    }

    async fn read(&self, session: &str, path: &str) -> Answer {
        send(self.server.client.get(self.server.url(path)).header("cookie", session)).await
    }

    /// The role of a session, as a refusal names it.
    async fn role(&self, session: &str) -> String {
        let tokens = self.read(session, "/v1/tokens").await;
        match tokens.status {
            200 => "admin".to_owned(),
            _ => tokens.text.split("role is ").nth(1).unwrap_or_default()[..6].to_owned(),
        }
    }

    fn asked_who(&self) -> usize {
        self.github.calls_to("GET", "/user", "/user").len()
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// A refusal: its status and words, the form to try again, and no session.
fn assert_refused(answer: &Answer, status: u16, words: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert!(answer.text.contains(words), "{words}: {answer:?}");
    assert!(answer.text.contains("Log in with GitHub"), "{answer:?}");
    assert_eq!(answer.header("set-cookie"), "", "{answer:?}");
    assert_eq!(answer.header("refresh"), "", "{answer:?}");
    assert_eq!(answer.header("referrer-policy"), "strict-origin");
    assert_eq!(answer.header("cache-control"), "no-store");
}

#[tokio::test]
async fn the_first_rule_about_a_person_says_role_and_account() {
    let world = LoginWorld::new().await;
    let server = &world.server;
    server.running("11").await;
    let ensure = server.request(reqwest::Method::PUT, "/v1/issues/22/sandbox?wait=10");
    send(ensure.header("x-issuebox-account", "acme")).await;
    for (login, role, sees) in [
        ("wren", "operat", "22"),
        ("mona", "admin", "11"),
        ("remy", "viewer", "22"),
        ("tess", "operat", "11"),
    ] {
        let session = world.session(login).await;
        assert_eq!(world.role(&session).await, role, "{login}");
        let list = world.read(&session, "/v1/sandboxes").await.json();
        assert_eq!((&list["total"], &list["data"][0]["issueId"]), (&json!(1), &json!(sees)));
    }
    // Who may read a public repository is not in it.
    let refused = world.log_in("stranger", "/").await;
    assert_refused(&refused, 403, "GitHub says that you are stranger (id ");
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn what_a_person_does_is_recorded_by_login_and_bounded_by_role_and_account() {
    let world = LoginWorld::new().await;
    let id = world.server.running("11").await;
    let tess = world.session("tess").await;
    let tess = Person::by_cookie(&world.server, tess).await;
    assert_eq!(tess.submit(&format!("/sandboxes/{id}/stop"), &[]).await.status, 303);
    let events = world.server.get("/v1/issues/11/events").await.text;
    assert!(events.contains("github:tess"), "{events}");

    // Of the other account, and with another role.
    let remy = world.session("remy").await;
    let remy = Person::by_cookie(&world.server, remy).await;
    assert_eq!(remy.see(&format!("/sandboxes/{id}")).await.status, 404);
    let viewer = grant(organization(), Role::Viewer, "default");
    world.access.set_grants(LoginGrants::new(vec![viewer]));
    assert_eq!(remy.see("/holds").await.status, 401, "the rule is another one");
    let remy = Person::by_cookie(&world.server, world.session("remy").await).await;
    assert_eq!(remy.see(&format!("/sandboxes/{id}")).await.status, 200);
    let refused = remy.submit(&format!("/sandboxes/{id}/start"), &[]).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    // A person's page works below /v1 as any other.
    assert_eq!(world.read(&remy.cookie, "/v1/sandboxes").await.status, 200);
    assert_eq!(remy.submit("/logout", &[]).await.status, 303);
    assert_eq!(remy.see("/holds").await.status, 401);
}

#[tokio::test]
async fn a_session_ends_with_its_rule_and_with_its_account() {
    let world = LoginWorld::new().await;
    let (remy, mona) = (world.session("remy").await, world.session("mona").await);
    let events = world.server.client.get(world.server.url("/v1/events")).header("cookie", &remy);
    let events = events.timeout(Duration::from_secs(20)).send().await.expect("it begins");
    world.server.account("acme", json!({"disabled": true})).await;
    events.text().await.expect("the stream ends");
    assert_eq!(world.read(&remy, "/v1/sandboxes").await.status, 401);
    assert_refused(&world.log_in("remy", "/").await, 403, "The account acme is disabled");
    world.server.account("acme", json!({})).await;
    assert_eq!(world.read(&remy, "/v1/sandboxes").await.status, 200, "as with a token");
    assert_eq!(world.read(&mona, "/v1/sandboxes").await.status, 200);

    let without_mona = grants(&world.github).into_iter().filter(|rule| rule.role != Role::Admin);
    world.set_grants(without_mona.collect()).await;
    assert_eq!(world.read(&mona, "/v1/sandboxes").await.status, 401);
    assert_eq!(world.read(&remy, "/v1/sandboxes").await.status, 401, "a rule before it is gone");
    let remy = world.session("remy").await;
    world.set_grants(grants(&world.github)).await;
    assert_eq!(world.read(&mona, "/v1/sandboxes").await.status, 401, "it ended for good");
    assert_eq!(world.read(&remy, "/v1/sandboxes").await.status, 401, "another rule is before it");
    let remy = world.session("remy").await;
    let mut with_a_last_one = grants(&world.github);
    with_a_last_one.push(grant(GrantSubject::User("last".to_owned()), Role::Viewer, "acme"));
    world.set_grants(with_a_last_one).await;
    assert_eq!(world.read(&remy, "/v1/sandboxes").await.status, 200);
    world.github.set_member("octo", "remy", false);
    assert_eq!(world.read(&remy, "/v1/sandboxes").await.status, 200, "until the session ends");
    assert_refused(&world.log_in("remy", "/").await, 403, "whom no rule of this server lets in");
}

#[tokio::test]
async fn a_callback_is_taken_once_and_in_the_browser_that_began_it() {
    let world = LoginWorld::new().await;
    let (cookie, path) = world.at_github(Some("mona"), "/holds").await;
    let (other, _) = world.at_github(Some("mona"), "/").await;
    let (code, state) = path
        .split_once("code=")
        .and_then(|(_, rest)| rest.split_once("&state="))
        .expect("both are there");
    let callback = |query: String| format!("/login/github/callback?{query}");
    for (cookie, path) in [
        ("", path.clone()),
        (other.as_str(), path.clone()),
        (&cookie, callback(format!("code={code}"))),
        (&cookie, callback(format!("code={code}&state="))),
        (&cookie, callback(format!("code={code}&state={}", "0".repeat(64)))),
        (&cookie, callback(format!("error=access_denied&state={}", "0".repeat(64)))),
    ] {
        let refused = world.come_back(cookie, &path).await;
        assert_refused(&refused, 403, "This log-in was not begun in this browser");
    }
    assert_eq!(world.asked_who(), 0, "GitHub was not asked");
    // None of that spent it.
    let done = world.come_back(&cookie, &path).await;
    assert_eq!((done.status, done.header("refresh")), (200, "0; url=/holds"), "{done:?}");
    let again = world.come_back(&cookie, &path).await;
    assert_refused(&again, 403, "it was used already");

    // A code is good once, too, and with the verifier of its own log-in.
    let (cookie, fresh) = world.at_github(Some("mona"), "/").await;
    let (_, state_of_fresh) = fresh.split_once("&state=").expect("a state");
    let replayed = callback(format!("code={code}&state={state_of_fresh}"));
    let refused = world.come_back(&cookie, &replayed).await;
    assert_refused(&refused, 403, "GitHub does not accept this log-in any more");
    assert!(!state.is_empty() && world.asked_who() == 1);
}

#[tokio::test]
async fn wrong_codes_of_an_address_are_counted() {
    let world = LoginWorld::new().await;
    for tried in 0..=30 {
        let (cookie, path) = world.at_github(Some("mona"), "/").await;
        let (_, state) = path.split_once("&state=").expect("a state");
        let guess = format!("/login/github/callback?code=guess&state={state}");
        let refused = world.come_back(&cookie, &guess).await;
        assert_eq!(refused.status, if tried < 30 { 403 } else { 429 }, "{tried}: {refused:?}");
    }
}

#[tokio::test]
async fn each_failure_has_a_page_that_says_what_to_do() {
    let world = LoginWorld::new().await;
    let (cookie, path) = world.at_github(None, "/").await;
    assert!(path.contains("error=access_denied"), "{path}");
    assert_refused(&world.come_back(&cookie, &path).await, 403, "You cancelled the log-in");

    world.github.set_callback("https://elsewhere.example/");
    let (cookie, path) = world.at_github(Some("mona"), "/").await;
    let refused = world.come_back(&cookie, &path).await;
    assert_refused(&refused, 502, "check the callback URL of the GitHub App");
    world.github.set_callback("http://127.0.0.1");

    world.github.order(ModelFault::on("GET", "user", FaultKind::Status(502)));
    let down = world.log_in("mona", "/").await;
    assert_refused(&down, 503, "GitHub cannot be asked who you are");

    // It is not known whether an earlier rule is about tess: the later one does not count.
    world.github.order(ModelFault::on("GET", MEMBERS, FaultKind::Status(502)));
    let unsure = world.log_in("tess", "/").await;
    assert_refused(&unsure, 503, "GitHub did not say what tess (id ");
    assert_eq!(world.log_in("tess", "/").await.status, 200);

    let wrong = |app: &mut AppClient| app.secret = Secret::new("not-the-secret");
    let world = LoginWorld::with(None, wrong).await;
    let refused = world.log_in("mona", "/").await;
    assert_refused(&refused, 502, "The log-in with GitHub is configured wrongly");
    assert!(!refused.text.contains("not-the-secret"), "{refused:?}");
}

#[tokio::test]
async fn while_github_is_away_the_page_says_so() {
    let mut world = LoginWorld::new().await;
    let (cookie, path) = world.at_github(Some("mona"), "/").await;
    let gone =
        std::mem::replace(&mut world.github, Arc::new(GithubModel::start().expect("another one")));
    drop(gone);
    let down = world.come_back(&cookie, &path).await;
    assert_refused(&down, 503, "GitHub cannot be asked who you are");
}

#[tokio::test]
async fn the_log_in_leads_to_a_page_of_this_server_and_nowhere_else() {
    let world = LoginWorld::new().await;
    for (next, shown) in [
        ("/sandboxes/1?x=a%20b;c", "/sandboxes/1?x=a%20b;c"),
        ("https://elsewhere.example/", "/"),
        ("//elsewhere.example/", "/"),
        ("/\\elsewhere.example/", "/"),
        ("/a\r\nset-cookie: x=y", "/"),
        ("javascript:alert(1)", "/"),
    ] {
        let done = world.log_in("mona", next).await;
        assert_eq!(done.header("refresh"), format!("0; url={shown}"), "{next}: {done:?}");
        assert!(done.text.contains(&format!("href=\"{shown}\"")), "{done:?}");
        assert!(!done.text.contains("elsewhere"), "{done:?}");
    }
}

#[tokio::test]
async fn the_link_and_the_cookies_are_those_of_the_public_address() {
    let public = "https://box.example.org";
    let world = LoginWorld::with(Some(public), |_| {}).await;
    world.github.set_callback(public);
    let link = "href=\"https://box.example.org/login/github?next=%2Fholds\"";
    let page = world.read("", "/holds").await;
    assert!(page.status == 401 && page.text.contains(link), "{page:?}");
    let begun = world.begin("/holds", "").await;
    let cookie = begun.header("set-cookie").to_owned();
    for part in ["__Host-issuebox_login=", "; HttpOnly", "; SameSite=Lax", "; Secure", "; Path=/"] {
        assert!(cookie.contains(part), "{part}: {cookie}");
    }
    let back = encoded("https://box.example.org/login/github/callback");
    assert!(begun.header("location").contains(&back), "{begun:?}");
    // A second tab keeps the first one's cookie.
    let kept = cookie.split(';').next().unwrap_or_default();
    assert!(world.begin("/", kept).await.header("set-cookie").starts_with(kept));

    let (cookie, path) = world.at_github(Some("mona"), "/").await;
    let done = world.come_back(&cookie, &path).await;
    let cookie = done.header("set-cookie");
    let parts = [
        "__Host-issuebox_session=",
        "; HttpOnly",
        "; SameSite=Strict",
        "; Secure",
        "; Path=/",
        "; Max-Age=3600",
    ];
    for part in parts {
        assert!(cookie.contains(part), "{part}: {cookie}");
    }
    assert!(done.header("content-security-policy").contains("form-action 'self'"));
}

#[tokio::test]
async fn without_configuration_there_is_no_such_route_and_no_link() {
    let server = TestServer::start().await;
    for path in ["/login/github", "/login/github?next=/", "/login/github/callback?code=a&state=b"] {
        let (here, unknown) = (server.url(path), server.url("/login/gitlab"));
        let here = send(server.client.get(here)).await;
        let unknown = send(server.client.get(unknown)).await;
        assert_eq!((here.status, here.code()), (404, unknown.code()), "{here:?}");
    }
    assert!(!send(server.client.get(server.url("/"))).await.text.contains("with GitHub"));
}
