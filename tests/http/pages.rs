//! The pages of the dashboard: who sees them, what they show, and what their forms do.

use std::sync::Arc;

use crate::common::server::{Answer, SECRET, TOKEN, TestServer, opened, send};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::json;

/// A person who is logged in.
pub struct Person<'a> {
    server: &'a TestServer,
    pub cookie: String,
    pub token: String,
}

impl<'a> Person<'a> {
    pub async fn at(server: &'a TestServer) -> Self {
        Self::with(server, TOKEN).await
    }

    /// One who logged in with this token.
    pub async fn with(server: &'a TestServer, token: &str) -> Self {
        let log_in = server.client.post(server.url("/login")).header("origin", server.url(""));
        let answer = send(log_in.body(format!("token={token}"))).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = answer.header("set-cookie").split(';').next().expect("a cookie").to_owned();
        Self::by_cookie(server, cookie).await
    }

    /// One who has this session.
    pub async fn by_cookie(server: &'a TestServer, cookie: String) -> Self {
        let mut person = Self { server, cookie, token: String::new() };
        person.renew().await;
        person
    }

    /// Loads a page again, for the form token in force.
    pub async fn renew(&mut self) {
        let page = self.see("/holds").await.text;
        let at = page.split("name=\"formToken\" value=\"").nth(1).expect("a form token");
        self.token = at.split('"').next().expect("its value").to_owned();
    }

    pub async fn see_owned(&self, path: String) -> Answer {
        self.see(&path).await
    }

    pub async fn see(&self, path: &str) -> Answer {
        send(self.server.client.get(self.server.url(path)).header("cookie", &self.cookie)).await
    }

    /// Sends a form as our own page would.
    pub async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.submit_from(&self.server.url(""), &self.token, path, fields).await
    }

    pub async fn submit_from(
        &self,
        origin: &str,
        token: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> Answer {
        let form_token = [("formToken", token)];
        let fields = fields.iter().chain(&form_token);
        let fields: Vec<String> = fields
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
            .collect();
        let request = self.server.client.post(self.server.url(path));
        send(request.header("cookie", &self.cookie).header("origin", origin).body(fields.join("&")))
            .await
    }
}

/// Every page, for a sandbox.
pub fn pages(id: &str) -> Vec<String> {
    let pages = [
        "/",
        "/?phase=failed",
        "/?deleted=true",
        "/sandboxes/ID",
        "/sandboxes/ID?done=stop",
        "/sandboxes/ID/files",
        "/sandboxes/ID/logs",
        "/sandboxes/ID/versions",
        "/sandboxes/ID/conversation",
        "/sandboxes/ID/conversation?done=say",
        "/deliveries",
        "/deliveries?status=badly_signed",
        "/providers",
        "/templates",
        "/drift",
        "/holds",
        "/tokens",
        "/tokens?all=true&done=delete",
        "/accounts",
        "/create",
        "/overview",
        "/overview?back=week",
        "/connect",
    ];
    pages.iter().map(|page| page.replace("ID", id)).collect()
}

/// Every form that changes something, for a sandbox.
fn changes(id: &str) -> Vec<String> {
    let changes = [
        "/sandboxes/ID/stop",
        "/sandboxes/ID/start",
        "/sandboxes/ID/retry",
        "/sandboxes/ID/delete",
        "/sandboxes/ID/force-delete",
        "/sandboxes/ID/ensure",
        "/sandboxes/ID/hold",
        "/sandboxes/ID/release",
        "/sandboxes/ID/exec",
        "/sandboxes/ID/sync",
        "/sandboxes/ID/conversation/say",
        "/sandboxes/ID/conversation/stop",
        "/sandboxes/ID/conversation/retry",
        "/drift/x/adopt",
        "/drift/x/remove",
        "/holds",
        "/holds/release",
        "/tokens",
        "/tokens/x/delete",
        "/accounts",
        "/account",
        "/create",
        "/connect/secret",
        "/connect/sample",
        "/connect/github",
        "/connect/github/key",
        "/connect/github/prove",
        "/logout",
    ];
    changes.iter().map(|change| change.replace("ID", id)).collect()
}

#[tokio::test]
async fn every_page_is_for_people_with_a_session_and_lets_nothing_run() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    server.deliver("issues", "d-1", &opened(5, "<script>alert(1)</script>")).await;
    let person = Person::at(&server).await;
    for page in pages(&id) {
        let without = send(server.client.get(server.url(&page))).await;
        let is_log_in = without.text.contains("action=\"/login\"");
        assert!(is_log_in && !without.text.contains("id=\"live\""), "{page}: {without:?}");
        assert_eq!(without.status, if page == "/" { 200 } else { 401 }, "{page}");
        let shown = person.see(&page).await;
        assert_eq!(shown.status, 200, "{page}: {shown:?}");
        let policy = shown.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{page}");
        assert!(!shown.text.contains("<script>") && !shown.text.contains(" style="), "{page}");
        assert!(!shown.text.contains(SECRET) && !shown.text.contains(TOKEN), "{page}");
        assert_eq!(shown.header("cache-control"), "no-store", "{page}");
    }
}

#[tokio::test]
async fn no_form_changes_anything_from_elsewhere_or_without_its_token() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let person = Person::at(&server).await;
    let own = server.url("");
    for path in changes(&id) {
        for (origin, token) in
            [("https://elsewhere.example", person.token.as_str()), (&own, "wrong"), (&own, "")]
        {
            let answer = person.submit_from(origin, token, &path, &[("line", "x")]).await;
            // The output of a command stands in a frame that takes no other status.
            let refused = answer.status == 403
                || path.ends_with("/exec") && answer.text.contains("class=\"bad\"");
            assert!(refused, "{path} from {origin} with {token:?}: {answer:?}");
        }
        let bare = send(server.client.post(server.url(&path)).header("origin", &own)).await;
        assert!(bare.status == 401 || path == "/logout", "the log-in: {path}: {bare:?}");
    }
    assert_eq!(server.get(&format!("/v1/sandboxes/{id}")).await.json()["data"]["phase"], "running");
    assert_eq!(server.get("/v1/holds").await.json()["total"], 0);
}

#[tokio::test]
async fn what_can_be_done_about_a_sandbox_is_done_and_says_what_happens_next() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let person = Person::at(&server).await;
    let act = async |action: &str| {
        let answer = person.submit(&format!("/sandboxes/{id}/{action}"), &[]).await;
        assert_eq!(answer.status, 303, "{action}: {answer:?}");
        answer.header("location").to_owned()
    };
    let until = async |until: &str| {
        let address = format!("/v1/sandboxes/{id}?until={until}&wait=10");
        server.get(&address).await.json()["data"]["phase"].clone()
    };
    let page = person.see(&format!("/sandboxes/{id}")).await.text;
    assert!(page.contains("Stop claude-issue-1") && page.contains("Delete claude-issue-1"));
    assert!(!page.contains("Start claude-issue-1"), "it runs");
    let place = act("stop").await;
    assert_eq!(until("stopped").await, "stopped");
    assert!(person.see(&place).await.text.contains("It is stopped."));
    act("hold").await;
    let held = person.see(&format!("/sandboxes/{id}")).await.text;
    assert!(held.contains("Release claude-issue-1") && !held.contains("Hold claude-issue-1"));
    let refused = person.submit(&format!("/sandboxes/{id}/start"), &[]).await;
    assert!(refused.status == 423 && refused.text.contains("Release the hold"), "{refused:?}");
    act("release").await;
    act("start").await;
    assert_eq!(until("running").await, "running");
    act("delete").await;
    assert_eq!(until("deleted").await, json!(null));
    let gone = person.see(&format!("/sandboxes/{id}")).await.text;
    assert!(
        gone.contains("Its workspace is deleted") && gone.contains("Create the next one"),
        "{gone}"
    );
    let next = act("ensure").await;
    assert!(!next.contains(&id) && person.see(&next).await.text.contains("generation 2"), "{next}");
    let unknown = person.submit(&format!("/sandboxes/{id}/explode"), &[]).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn output_is_shown_in_its_colours_and_does_nothing_else() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let person = Person::at(&server).await;
    let line = "\u{1b}[31mred\u{1b}[0m<img src=x onerror=alert(1)>\u{1b}]52;c;cm0=\u{7}\u{1b}]8;;https://x\u{7}l\u{1b}]8;;\u{7}\u{202e}";
    let path = format!("/sandboxes/{id}/exec");
    let output = person.submit(&path, &[("line", line)]).await;
    assert_eq!(output.status, 200);
    let policy = output.header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'self'"));
    assert!(output.text.contains("<span class=\"bo\">$ "), "the command: {}", output.text);
    let shown = "<span class=\"f1\">red</span>&lt;img src=x onerror=alert(1)&gt;l\\u{202e}";
    assert!(output.text.contains(shown), "{}", output.text);
    assert!(output.text.contains("Exit code 0") && output.text.ends_with("</html>"));
    let long = person.submit(&path, &[("line", &"x".repeat(1_000))]).await;
    assert!(long.text.contains(&"x".repeat(1_000)));
    for bad in ["", "  ", "a\0b"] {
        let refused = person.submit(&path, &[("line", bad)]).await;
        assert!(refused.text.contains("enter a command"), "{bad:?}");
    }
}

#[tokio::test]
async fn files_are_shown_as_what_they_are() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let person = Person::at(&server).await;
    let put = async |path: &str, content: &[u8]| {
        let address = format!("/v1/sandboxes/{id}/files/content?path={path}");
        let request = server.request(Method::PUT, &address).body(content.to_vec());
        assert!(send(request).await.status < 300);
    };
    put("a.html", b"<script>alert(1)</script>\x1b[2J").await;
    let list = person.see(&format!("/sandboxes/{id}/files")).await.text;
    assert!(list.contains("files?path=a%2Ehtml\""), "{list}");
    let file = person.see(&format!("/sandboxes/{id}/files?path=a.html")).await.text;
    assert!(file.contains("&lt;script&gt;alert(1)&lt;/script&gt;</pre>"), "{file}");
    let picture = format!("/sandboxes/{id}/picture?path=a.html");
    assert_eq!(person.see(&picture).await.status, 422, "it is no picture");
    send(server.request(Method::DELETE, &format!("/v1/sandboxes/{id}/files/content?path=a.html")))
        .await;
    put("p", b"\x89PNG\r\n\x1a\n<script>").await;
    let answer = person.see(&format!("/sandboxes/{id}/picture?path=p")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "image/png"));
    assert!(answer.header("content-security-policy").starts_with("sandbox"));
    server.post(&format!("/v1/sandboxes/{id}/stop?wait=10"), json!(null)).await;
    let stopped = person.see(&format!("/sandboxes/{id}/files")).await;
    assert!(
        stopped.status == 409 && stopped.text.contains("the sandbox is stopped"),
        "{stopped:?}"
    );
    assert!(stopped.text.contains(&format!("action=\"/sandboxes/{id}/start\"")), "{stopped:?}");
}

#[tokio::test]
async fn an_address_without_a_page_is_shown_as_one_in_a_browser_alone() {
    let server = TestServer::start().await;
    let types = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for (path, status) in
        [("/nowhere", 404), ("/logout", 405), ("/assets/none", 404), ("/v1/none", 401)]
    {
        let ask = |accept: &str| server.client.get(server.url(path)).header("accept", accept);
        let page = send(ask(types)).await;
        assert_eq!(page.status, status, "{path}");
        assert!(page.header("content-type").starts_with("text/html"), "{path}: {page:?}");
        assert!(page.text.contains("All sandboxes") && !page.text.contains("{\"success"), "{path}");
        assert!(page.header("content-security-policy").contains("default-src 'none'"), "{path}");
        let json = send(ask("*/*")).await;
        assert_eq!((json.status, json.json()["success"].clone()), (status, json!(false)), "{path}");
        assert_eq!(page.header("allow"), json.header("allow"), "{path}");
    }
}

#[tokio::test]
async fn the_counts_follow_the_filters() {
    let server = TestServer::start().await;
    server.running("1").await;
    server.deliver("issues", "d-1", &opened(5, "A title")).await;
    let person = Person::at(&server).await;
    let all = async |path: &str| {
        let page = person.see(path).await.text;
        let tab = page.split("data-key=\"tab-all\">").nth(1).expect("a tab").to_owned();
        tab.split("<span class=\"count\">")
            .nth(1)
            .expect("a count")
            .split('<')
            .next()
            .map(str::to_owned)
    };
    for (path, count) in [
        ("/", "2"),
        ("/?deleted=true", "2"),
        ("/?q=TITLE", "1"),
        ("/?repository=Octo/Hello", "1"),
        ("/?q=nothing", "0"),
        ("/?q=title&phase=deleted", "1"),
    ] {
        assert_eq!(all(path).await.as_deref(), Some(count), "{path}");
    }
    let listed = server.get("/v1/sandboxes?phase=deleted").await.json();
    assert_eq!(listed["total"], 0);
    let id = server.get("/v1/sandboxes/claude-issue-5").await.json()["sandboxId"].clone();
    let path = format!("/v1/sandboxes/{}?wait=10", id.as_str().expect("an id"));
    send(server.request(Method::DELETE, &path)).await;
    let listed = server.get("/v1/sandboxes?phase=deleted").await.json();
    assert_eq!((&listed["total"], &listed["data"][0]["id"]), (&json!(1), &id));
    assert!(person.see("/?phase=deleted").await.text.contains("A title"));
}

#[tokio::test]
async fn holds_are_put_on_and_released_by_forms() {
    let server = TestServer::start().await;
    let person = Person::at(&server).await;
    let hold = [("kind", "repository"), ("name", "octo/hello"), ("reason", "<b>repairs</b>")];
    assert_eq!(person.submit("/holds", &hold).await.status, 303);
    let page = person.see("/holds").await.text;
    assert!(page.contains("the repository octo/hello") && page.contains("&lt;b&gt;repairs"));
    server.deliver("issues", "d-1", &opened(5, "A title that waits")).await;
    let page = person.see("/holds").await.text;
    assert!(page.contains("1 pending start") && page.contains("A title that waits"), "{page}");
    assert!(person.see("/").await.text.contains("The repository octo/hello</bdi> is held"));
    assert_eq!(person.submit("/holds", &[("kind", "issue"), ("name", "5")]).await.status, 303);
    for page in ["/", "/holds"] {
        let shown = person.see(page).await.text.to_lowercase();
        assert!(shown.contains("the issue octo/hello#1"), "{page}: {shown}");
    }
    let release = [("kind", "issue"), ("name", "5")];
    assert_eq!(person.submit("/holds/release", &release).await.status, 303);
    let release = [("kind", "repository"), ("name", "octo/hello")];
    assert_eq!(person.submit("/holds/release", &release).await.status, 303);
    assert!(person.see("/holds").await.text.contains("No holds"));
    let wrong = person.submit("/holds", &[("kind", "planet"), ("name", "x")]).await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn the_first_run_ticks_itself_off() {
    let server = TestServer::start().await;
    let person = Person::at(&server).await;
    let done = async || person.see("/connect").await.text.matches("<li class=\"done\"").count();
    assert_eq!(done().await, 1, "there is a secret");
    let bad = server.client.post(server.url("/webhooks/github")).header("x-github-event", "ping");
    let bad = bad.header("content-type", "application/json").header("x-github-delivery", "d-0");
    assert_eq!(send(bad.body("{}")).await.status, 401);
    assert!(person.see("/").await.text.contains("A delivery was refused"));
    server.deliver("ping", "d-1", "{\"zen\":\"z\"}").await;
    assert_eq!(done().await, 2);
    let secret = person.submit("/connect/secret", &[]).await.text;
    assert!(secret.contains(SECRET) && !secret.contains("<script"), "shown, and left alone");
    let sample = person.submit("/connect/sample", &[]).await;
    assert_eq!((sample.status, sample.header("location")), (303, "/connect"));
    assert_eq!(done().await, 4);
    let list = person.see("/").await.text;
    assert!(list.contains("A sample issue") && list.contains("issuebox/sample#1"), "{list}");
    person.submit("/connect/sample", &[]).await;
    assert_eq!(server.get("/v1/sandboxes?deleted=true").await.json()["total"], 1);
}

#[tokio::test]
async fn our_own_sample_does_not_show_that_github_reaches_the_server() {
    let server = TestServer::start().await;
    let person = Person::at(&server).await;
    assert_eq!(person.submit("/connect/sample", &[]).await.status, 303);
    server.get("/v1/sandboxes/claude-issue-9000000000000001?until=running&wait=10").await;
    let page = person.see("/connect").await.text;
    let step = |title: &str| {
        let before = page.split_once(title).unwrap_or_else(|| panic!("no {title}: {page}")).0;
        before.rsplit_once("<li class=\"").expect("a step").1.split('"').next() == Some("done")
    };
    assert!(!step("GitHub reaches the server") && !step("An issue triggers"), "{page}");
    assert!(step("The first sandbox") && step("Without GitHub"), "{page}");
    server.deliver("ping", "d-1", "{\"zen\":\"z\"}").await;
    let page = person.see("/connect").await.text;
    assert_eq!(page.matches("<li class=\"done\"").count(), 4, "{page}");
}

#[tokio::test]
async fn any_delivery_shows_that_github_reaches_the_server() {
    let server = TestServer::start().await;
    let person = Person::at(&server).await;
    server.deliver("issues", "d-1", &opened(5, "A title")).await;
    let page = person.see("/connect").await.text;
    assert_eq!(page.matches("<li class=\"done\"").count(), 4, "{page}");
}

#[tokio::test]
async fn a_link_logs_in_once_and_looking_at_it_does_not_use_it_up() {
    let server = TestServer::start().await;
    let made = server.post("/v1/login-links", json!(null)).await;
    assert_eq!(made.status, 201);
    let url = made.json()["data"]["url"].as_str().expect("a link").to_owned();
    for _ in 0..3 {
        let page = send(server.client.get(&url)).await;
        assert!(page.status == 200 && page.text.contains("This link logs you in once."));
        assert!(page.header("set-cookie").is_empty());
        // The page must not pass on the key in its URL with the files it loads.
        assert_eq!(page.header("referrer-policy"), "strict-origin");
    }
    let elsewhere = send(server.client.get(format!("{url}&next=//elsewhere.example"))).await;
    assert!(elsewhere.text.contains("name=\"next\" value=\"/\""), "{elsewhere:?}");
    let onward = send(server.client.get(format!("{url}&next=%2Fsandboxes%2Fx"))).await;
    assert!(onward.text.contains("name=\"next\" value=\"/sandboxes/x\""), "{onward:?}");
    let key = url.rsplit("key=").next().expect("a key");
    let use_it = |origin: String| {
        let request = server.client.post(server.url("/login")).header("origin", origin);
        send(request.body(format!("key={key}")))
    };
    assert_eq!(use_it("https://elsewhere.example".into()).await.status, 403);
    let used = use_it(server.url("")).await;
    assert_eq!((used.status, used.header("location")), (303, "/"));
    let cookie = used.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    let page = send(server.client.get(server.url("/")).header("cookie", &cookie)).await;
    assert!(page.text.contains("id=\"live\""));
    // Or who is logged in would stay so for ever.
    let form_token = page.text.split_once("name=\"formToken\" value=\"").expect("a form").1;
    let form_token = form_token.split('"').next().unwrap_or_default();
    let another = server.client.post(server.url("/v1/login-links")).header("cookie", cookie);
    let another = another.header("origin", server.url("")).header("x-form-token", form_token);
    let another = send(another).await;
    assert!(another.status == 403 && another.text.contains("cannot create a log-in link"));
    let again = use_it(server.url("")).await;
    assert!(again.status == 401 && again.text.contains("already used"), "{again:?}");
}

#[tokio::test]
async fn a_log_in_leads_to_the_page_that_was_asked_for_and_nowhere_else() {
    let server = TestServer::start().await;
    let asked = send(server.client.get(server.url("/deliveries?status=ignored"))).await;
    assert!(asked.status == 401 && asked.text.contains("value=\"/deliveries?status=ignored\""));
    let log_in = |next: &str| {
        let request = server.client.post(server.url("/login")).header("origin", server.url(""));
        let next = utf8_percent_encode(next, NON_ALPHANUMERIC);
        send(request.body(format!("token={TOKEN}&next={next}")))
    };
    assert_eq!(
        log_in("/deliveries?status=ignored").await.header("location"),
        "/deliveries?status=ignored"
    );
    for elsewhere in ["https://elsewhere.example", "//elsewhere.example", "/\\elsewhere.example"] {
        assert_eq!(log_in(elsewhere).await.header("location"), "/", "{elsewhere}");
    }
}

#[tokio::test]
async fn a_session_outlives_a_restart_and_ends_by_logging_out() {
    let before = TestServer::start().await;
    let data = Arc::clone(&before.data);
    let cookie = before.log_in().await;
    drop(before);
    let server = TestServer::over(data, "memory", |_| {}).await;
    let page =
        async || send(server.client.get(server.url("/")).header("cookie", &cookie)).await.text;
    let shown = page().await;
    assert!(shown.contains("id=\"live\""), "{shown}");
    let token = shown.split("name=\"formToken\" value=\"").nth(1).expect("a form token");
    let token = token.split('"').next().expect("its value");
    let out = server.client.post(server.url("/logout")).header("origin", server.url(""));
    let out = out.header("cookie", &cookie).body(format!("formToken={token}"));
    assert_eq!(send(out).await.status, 303);
    assert!(page().await.contains("action=\"/login\""));
}

#[tokio::test]
async fn the_overview_counts_from_the_store() {
    let server = TestServer::start().await;
    server.running("1").await;
    server.running("2").await;
    server.deliver("issues", "d-1", &opened(5, "A title")).await;
    server.deliver("ping", "d-2", "{\"zen\":\"z\"}").await;
    server.get("/v1/sandboxes/claude-issue-5?until=running&wait=10").await;
    let person = Person::at(&server).await;
    let page = person.see("/overview?back=hour").await.text;
    for part in [
        "3 live sandboxes now, at most 3 since 1 h ago.",
        "3 creates since 1 h ago: half within",
        "1 accepted, 1 ignored, 0 pending",
    ] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
}
