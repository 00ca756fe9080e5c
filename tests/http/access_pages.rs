//! The account of a page session, and the pages of tokens, accounts and new sandboxes.

use std::time::Duration;

use crate::common::document::operations;
use crate::common::server::{Answer, TOKEN, TestServer, opened, send};
use crate::pages::{Person, pages};
use futures_util::StreamExt;
use issuebox::store::sqlite::SqliteStore;
use issuebox::types::{AccountName, AccountRules, RepositoryPattern};
use reqwest::Method;
use serde_json::json;

/// Long enough for anything here; what takes longer does not end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The title of the issue that others must not see.
const TITLE: &str = "a title of one account alone";

/// The pages about one sandbox.
const ROUTES: [&str; 6] = [
    "/sandboxes/ID",
    "/sandboxes/ID/files",
    "/sandboxes/ID/files/picture?path=a.png",
    "/sandboxes/ID/logs",
    "/sandboxes/ID/logs/output",
    "/sandboxes/ID/conversation",
];

/// A server on which the account `acme` has a running sandbox; its id.
async fn with_sandbox_of_acme() -> (TestServer, String) {
    let server = TestServer::with(|edge| edge.limits.session_lag_max = Duration::from_millis(50));
    let server = server.await;
    server.account("acme", json!({})).await;
    server.account("other", json!({})).await;
    let ensure = server.request(Method::PUT, "/v1/issues/7001/sandbox?wait=10");
    let ensure = ensure.header("x-issuebox-account", "acme").json(&json!({"issueTitle": TITLE}));
    let made = send(ensure).await;
    let id = made.json()["sandboxId"].as_str().expect("an id").to_owned();
    (server, id)
}

async fn choose(person: &mut Person<'_>, account: &str) -> Answer {
    let answer = person.submit("/account", &[("account", account), ("next", "/holds")]).await;
    person.renew().await;
    answer
}

#[tokio::test]
async fn an_admin_chooses_the_account_that_every_page_shows() {
    let (server, id) = with_sandbox_of_acme().await;
    server.running("8").await;
    let mut person = Person::at(&server).await;
    assert!(!person.see("/").await.text.contains(TITLE));
    assert_eq!(person.see(&format!("/sandboxes/{id}")).await.status, 404);
    let old_token = person.token.clone();
    let events = server.client.get(server.url("/v1/events")).header("cookie", &person.cookie);
    let events = events.timeout(PATIENCE * 2).send().await.expect("it begins");
    let chosen = choose(&mut person, "acme").await;
    assert_eq!((chosen.status, chosen.header("location")), (303, "/holds"), "{chosen:?}");
    let list = person.see("/").await.text;
    assert!(list.contains(TITLE) && !list.contains("claude-issue-8"), "{list}");
    assert!(list.contains("<option value=\"acme\" selected>"), "{list}");
    assert!(person.see("/?q=claude-issue-8").await.text.contains("No sandbox matches"));
    for page in pages(&id) {
        assert_eq!(person.see(&page).await.status, 200, "{page}");
    }
    // What began in the account before ends, and its pages change nothing in this one.
    let ended = tokio::time::timeout(PATIENCE, events.text()).await.expect("it ends");
    assert!(!ended.expect("it is read").contains(TITLE));
    let hold = [("kind", "issue"), ("name", "7001"), ("reason", "")];
    let stale = person.submit_from(&server.url(""), &old_token, "/holds", &hold).await;
    assert_eq!(stale.status, 403, "{stale:?}");
    assert_eq!(person.submit("/holds", &hold).await.status, 303);
    let held = server.request(Method::GET, "/v1/holds").header("x-issuebox-account", "acme");
    assert_eq!(send(held).await.json()["data"][0]["id"], "issues/7001");
    assert_eq!(server.get("/v1/holds").await.json()["total"], 0, "not in the one before");
    let nowhere = person.submit("/account", &[("account", "nowhere")]).await;
    assert_eq!(nowhere.status, 404, "{nowhere:?}");
    assert_eq!(person.submit("/account", &[("account", "a b")]).await.status, 400);
}

#[tokio::test]
async fn a_session_of_one_account_sees_nothing_of_another_by_any_route() {
    let (server, id) = with_sandbox_of_acme().await;
    let operator = server.token("other", "operator").await;
    let mut admin = Person::at(&server).await;
    choose(&mut admin, "other").await;
    for (own, person) in [("1", Person::with(&server, &operator).await), ("2", admin)] {
        let here = |path: String| person.see_owned(path);
        for route in ROUTES {
            let (foreign, unknown) =
                (here(route.replace("ID", &id)).await, here(route.replace("ID", "sb-x")).await);
            assert_eq!(foreign.status, 404, "{route}: {foreign:?}");
            let same = unknown.text.replace("sb-x", &id);
            assert_eq!(foreign.text.len(), same.len(), "{route}");
        }
        for page in ["/", "/?deleted=true", "/?q=title", "/deliveries", "/holds", "/overview"] {
            let shown = person.see(page).await;
            assert!(shown.status == 200 && !shown.text.contains(TITLE), "{page}: {shown:?}");
        }
        for action in ["stop", "delete", "exec", "conversation/say", "hold"] {
            let fields = [("text", "hello"), ("line", "true")];
            let fields = match action {
                "exec" => &fields[1..],
                "conversation/say" => &fields[..1],
                _ => &fields[..0],
            };
            let answer = person.submit(&format!("/sandboxes/{id}/{action}"), fields).await;
            // The output of a command stands in a frame that takes no other status.
            let is_refused = answer.status == 404 || answer.text.contains("class=\"bad\"");
            assert!(is_refused && !answer.text.contains(TITLE), "{action}: {answer:?}");
        }
        let mut asked = 0;
        for operation in operations(&server).await {
            let is_about_one = operation.path.contains("/v1/sandboxes/{");
            if !is_about_one {
                continue;
            }
            asked += 1;
            let ask = async |sandbox: &str| {
                let request = operation.bare(&server, sandbox, "7001");
                let request = request.header("cookie", &person.cookie);
                let request = request.header("x-form-token", &person.token);
                let answer = send(request.header("origin", server.url(""))).await;
                assert!(!answer.text.contains(TITLE), "{}: {answer:?}", operation.name());
                (answer.status, answer.text.replace(sandbox, "ID"))
            };
            assert_eq!(ask(&id).await, ask("sb-unknown").await, "{}", operation.name());
        }
        assert!(asked > 20, "{asked}");
        // Its stream of events has only its own.
        let events = server.client.get(server.url("/v1/events")).header("cookie", &person.cookie);
        let events = events.timeout(PATIENCE * 2).send().await.expect("it begins");
        let mut events = events.bytes_stream();
        let stop = server.request(Method::POST, &format!("/v1/sandboxes/{id}/stop?wait=10"));
        send(stop.header("x-issuebox-account", "acme")).await;
        let ensure = server.client.put(server.url(&format!("/v1/issues/{own}/sandbox")));
        send(ensure.bearer_auth(&operator).json(&json!({"issueTitle": "its own"}))).await;
        let mut text = String::new();
        while !text.contains("its own") {
            let piece = tokio::time::timeout(PATIENCE, events.next()).await.expect("it comes");
            let piece = piece.expect("it goes on").expect("it is read");
            text.push_str(&String::from_utf8_lossy(&piece));
        }
        assert!(!text.contains(TITLE) && !text.contains(&id), "{text}");
        let start = server.request(Method::POST, &format!("/v1/sandboxes/{id}/start?wait=10"));
        send(start.header("x-issuebox-account", "acme")).await;
    }
}

#[tokio::test]
async fn only_admins_have_the_pages_of_the_server_and_its_accounts() {
    let (server, _) = with_sandbox_of_acme().await;
    let operator = server.token("acme", "operator").await;
    let person = Person::with(&server, &operator).await;
    let list = person.see("/").await.text;
    assert!(list.contains("title=\"The account whose sandboxes you see\">acme<"), "{list}");
    assert!(!list.contains("href=\"/tokens\"") && !list.contains("action=\"/account\""), "{list}");
    for path in ["/tokens", "/accounts", "/drift", "/github", "/connect"] {
        assert_eq!(person.see(path).await.status, 403, "{path}");
    }
    for path in ["/tokens", "/tokens/x/delete", "/accounts", "/account"] {
        let answer = person.submit(path, &[("name", "x"), ("role", "admin")]).await;
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
    }
    assert_eq!(server.get("/v1/tokens").await.json()["total"], 1);
    let holds = person.see("/holds").await.text;
    assert!(holds.contains("of all accounts") && holds.contains("Only admins see"), "{holds}");
    let holds = Person::at(&server).await.see("/holds").await.text;
    assert!(!holds.contains("Only admins see"), "{holds}");
}

#[tokio::test]
async fn a_token_is_shown_once_on_its_page_and_ends_there() {
    let (server, _) = with_sandbox_of_acme().await;
    let mut person = Person::at(&server).await;
    choose(&mut person, "acme").await;
    let fields = [("name", "<b>bot"), ("role", "viewer"), ("expiresInSeconds", "604800")];
    let created = person.submit("/tokens", &fields).await;
    assert_eq!((created.status, created.header("cache-control")), (200, "no-store"));
    let token = created.text.split("id=\"new-token\">").nth(1).expect("the token");
    let token = token.split('<').next().expect("its end").to_owned();
    let system = server.client.get(server.url("/v1/sandboxes")).bearer_auth(&token);
    assert_eq!(send(system).await.json()["total"], 1, "it is of the chosen account");
    let list = person.see("/tokens").await.text;
    assert!(!list.contains(&token) && list.contains("&lt;b&gt;bot"), "{list}");
    assert!(list.contains("viewer of acme, expires in 6 d"), "{list}");
    choose(&mut person, "other").await;
    assert!(person.see("/tokens").await.text.contains("No tokens"));
    let all = person.see("/tokens?all=true").await.text;
    let id = all.split("action=\"/tokens/").nth(1).and_then(|rest| rest.split('/').next());
    let path = format!("/tokens/{}/delete", id.expect("an id"));
    let deleted = person.submit(&path, &[("all", "true")]).await;
    assert_eq!(deleted.header("location"), "/tokens?all=true&done=delete", "{deleted:?}");
    let system = server.client.get(server.url("/v1/sandboxes")).bearer_auth(&token);
    assert_eq!(send(system).await.status, 401);
    assert_eq!(person.submit(&path, &[]).await.status, 404);
    assert_eq!(person.submit("/tokens", &[("name", "a"), ("role", "root")]).await.status, 400);
    assert_eq!(person.submit("/tokens", &[("name", ""), ("role", "viewer")]).await.status, 400);
}

#[tokio::test]
async fn accounts_are_created_and_changed_on_their_page() {
    let server = TestServer::with(|edge| {
        let configured = (AccountName::trusted("fixed"), AccountRules::default());
        edge.access.configure([configured].into());
    });
    let server = server.await;
    let person = Person::at(&server).await;
    let rules = [
        ("name", "acme"),
        ("owners", "acme, acme-labs"),
        ("repositories", "octo/a-*"),
        ("installations", "7 8"),
    ];
    let set = person.submit("/accounts", &rules).await;
    assert_eq!((set.status, set.header("location")), (303, "/accounts?done=set"), "{set:?}");
    let account = server.get("/v1/accounts").await.json()["data"][0].clone();
    let expected = json!({
        "name": "acme", "owners": ["acme", "acme-labs"], "repositories": ["octo/a-*"],
        "installations": [7, 8], "disabled": false, "configured": false,
    });
    assert_eq!(account, expected);
    let page = person.see("/accounts").await.text;
    assert!(
        page.contains("installations 7, 8; owners acme, acme-labs; repositories octo/a-*"),
        "{page}"
    );
    assert!(page.contains("in the configuration, which alone changes it"), "{page}");
    let disabled = person.submit("/accounts", &[("name", "acme"), ("disabled", "true")]).await;
    assert_eq!(disabled.status, 303, "{disabled:?}");
    assert!(person.see("/accounts").await.text.contains("disabled</span>"));
    assert_eq!(person.submit("/accounts", &[("name", "fixed")]).await.status, 409);
    assert_eq!(person.submit("/accounts", &[("name", "a b")]).await.status, 400);
    assert_eq!(
        person.submit("/accounts", &[("name", "a"), ("installations", "x")]).await.status,
        400
    );
}

#[tokio::test]
async fn a_sandbox_is_created_on_a_page() {
    let server = TestServer::start().await;
    let person = Person::at(&server).await;
    assert!(person.see("/").await.text.contains("href=\"/create\""));
    let none = "<option value=\"\">that of the repository, or the default one</option>";
    assert!(person.see("/create").await.text.contains(none));
    let fields = [("issue", "test-5"), ("template", ""), ("agentId", "ada")];
    let created = person.submit("/create", &fields).await;
    assert_eq!(created.status, 303, "{created:?}");
    let place = created.header("location").to_owned();
    assert!(place.ends_with("outcome=created"), "{place}");
    let shown = person.see(&place).await.text;
    assert!(
        shown.contains("This is the issue&#39;s new sandbox")
            || shown.contains("This is the issue's new sandbox"),
        "{shown}"
    );
    let again = person.submit("/create", &fields).await;
    let path = |place: &str| place.split('?').next().map(str::to_owned);
    assert_eq!(path(again.header("location")), path(&place), "an issue has one sandbox");
    assert!(again.header("location").contains("outcome=existing"), "{again:?}");
    let sandbox = server.get("/v1/sandboxes/claude-issue-test-5").await.json();
    assert_eq!(sandbox["data"]["agentId"], "ada", "{sandbox}");
    for (issue, status) in [("", 400), ("octo/hello", 400), ("octo/hello#x", 400), ("a b", 400)] {
        let refused = person.submit("/create", &[("issue", issue)]).await;
        assert_eq!(refused.status, status, "{issue}: {refused:?}");
        assert!(
            refused.text.contains("role=\"alert\"") && refused.text.contains("action=\"/create\"")
        );
    }
    let unknown = person.submit("/create", &[("issue", "6"), ("template", "none")]).await;
    assert_eq!(unknown.status, 422, "{unknown:?}");
    send(server.request(Method::PUT, "/v1/holds/issues/6").body("")).await;
    let held = person.submit("/create", &[("issue", "6")]).await;
    assert!(held.status == 423 && held.text.contains("value=\"6\""), "{held:?}");
    let viewer = Person::with(&server, &server.token("default", "viewer").await).await;
    assert!(!viewer.see("/").await.text.contains("href=\"/create\""));
    assert_eq!(viewer.see("/create").await.status, 403);
    assert_eq!(viewer.submit("/create", &[("issue", "9")]).await.status, 403);
}

#[tokio::test]
async fn accounts_have_series_in_the_metrics_if_they_are_asked_for() {
    let server = TestServer::with(|edge| {
        edge.limits.accounts_in_metrics_max = 2;
        let rules = || AccountRules::default();
        let names = ["acme", "zeta"].map(|name| (AccountName::trusted(name), rules()));
        edge.access.configure(names.into());
    });
    let server = server.await;
    server.running("1").await;
    let metrics = server.get("/metrics").await.text;
    for line in [r#"{account="acme"} 0"#, r#"{account="default"} 1"#, r#"{account="(other)"} 0"#] {
        let line = format!("issuebox_account_sandboxes_live{line}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    assert!(!metrics.contains("zeta"), "{metrics}");
    let off = TestServer::start().await;
    assert!(!off.get("/metrics").await.text.contains("account=\""));
}

#[tokio::test]
async fn issues_that_the_rules_would_place_elsewhere_are_found_while_the_server_runs() {
    let server = TestServer::start().await;
    for id in 1..=3 {
        let delivery = format!("d-{id}");
        let body = opened(id, TITLE).replace("\"number\":1", &format!("\"number\":{id}"));
        assert_eq!(server.deliver("issues", &delivery, &body).await.status, 202);
    }
    server.running("of-a-program").await;
    let acme = AccountName::trusted("acme");
    let rules = |pattern: &str| {
        let repositories = vec![RepositoryPattern::parse(pattern).expect("a pattern")];
        [(acme.clone(), AccountRules { repositories, ..AccountRules::default() })].into()
    };
    let dir = server.data.path().to_owned();
    let look = |pattern: &str| {
        let found = SqliteStore::misplaced(&dir, &rules(pattern), 2).expect("it is read");
        found.expect("there is a database")
    };
    let found = look("octo/*");
    let key = (AccountName::default_account(), acme.clone());
    assert_eq!(found.counts, [(key, 3)].into(), "what a program created is of its account");
    assert_eq!(found.first.len(), 2, "{found:?}");
    assert_eq!(
        (&found.first[0].account, &found.first[0].by_rules),
        (&AccountName::default_account(), &acme)
    );
    assert!(found.first[0].place.starts_with("octo/hello#"), "{found:?}");
    assert!(look("elsewhere/*").counts.is_empty());
    let none = SqliteStore::misplaced(&dir.join("none"), &rules("octo/*"), 2);
    assert_eq!(none.expect("no harm"), None);
}

#[tokio::test]
async fn a_form_of_a_page_with_a_token_is_no_place_for_the_admin_token() {
    let (server, _) = with_sandbox_of_acme().await;
    let person = Person::at(&server).await;
    for path in ["/tokens", "/tokens?all=true", "/accounts", "/create"] {
        assert!(!person.see(path).await.text.contains(TOKEN), "{path}");
    }
}
