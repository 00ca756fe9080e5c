//! The page for people, and what its session may do.

use crate::common::server::{Answer, TOKEN, TestServer, opened, send};
use reqwest::Method;
use serde_json::json;

async fn home(server: &TestServer, cookie: &str) -> Answer {
    send(server.client.get(server.url("/")).header("cookie", cookie)).await
}

fn form_token(page: &Answer) -> String {
    let at = page.text.split("name=\"formToken\" value=\"").nth(1).expect("a form token");
    at.split('"').next().expect("its value").to_owned()
}

#[tokio::test]
async fn a_person_logs_in_with_the_token_and_sees_the_list() {
    let server = TestServer::start().await;
    let before = home(&server, "").await;
    assert_eq!(before.status, 200);
    assert!(before.text.contains("action=\"/login\"") && !before.text.contains("id=\"live\""));
    let request = server.client.post(server.url("/login")).header("origin", server.url(""));
    let answer = send(request.body(format!("token={TOKEN}"))).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/"));
    let cookie = answer.header("set-cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(cookie.contains(part), "{part} is missing in {cookie}");
    }
    assert!(!cookie.contains("Secure"), "this server is reached by http");
    let cookie = cookie.split(';').next().unwrap_or_default();
    let empty = home(&server, cookie).await;
    assert!(empty.text.contains("No sandboxes yet") && empty.text.contains("/webhooks/github"));
    server.deliver("issues", "d-1", &opened(5, "<b>A title</b>")).await;
    let list = home(&server, cookie).await;
    assert!(!list.text.contains("Not live"), "nothing is known before the script has looked");
    assert!(list.text.contains("&lt;b&gt;A title&lt;/b&gt;") && list.text.contains("octo/hello#1"));
    let found = send(server.client.get(server.url("/?q=title")).header("cookie", cookie)).await;
    assert!(found.text.contains("octo/hello#1"));
    let none = send(server.client.get(server.url("/?q=nothing")).header("cookie", cookie)).await;
    assert!(none.text.contains("No sandbox matches.") && !none.text.contains("octo/hello#1"));
}

#[tokio::test]
async fn the_page_allows_nothing_but_its_own_files() {
    let server = TestServer::start().await;
    let cookie = server.log_in().await;
    let page = home(&server, &cookie).await;
    let policy = page.header("content-security-policy");
    for part in
        ["default-src 'none'", "script-src 'nonce-", "frame-ancestors 'none'", "base-uri 'none'"]
    {
        assert!(policy.contains(part), "{part} is missing in {policy}");
    }
    let nonce = |page: &Answer| {
        let policy = page.header("content-security-policy").to_owned();
        let nonce =
            policy.split("script-src 'nonce-").nth(1).and_then(|rest| rest.split('\'').next());
        nonce.expect("a nonce").to_owned()
    };
    let script = format!("nonce=\"{}\"", nonce(&page));
    assert_eq!((page.text.matches("<script").count(), page.text.matches(&script).count()), (1, 1));
    assert_ne!(nonce(&page), nonce(&home(&server, &cookie).await), "each answer has its own");
    assert!(!policy.contains("unsafe"));
    assert_eq!(page.header("x-frame-options"), "DENY");
    assert!(
        !page.text.contains("style=")
            && !page.text.contains("<style")
            && !page.text.contains("onclick")
    );
    let files: Vec<_> = page.text.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert!(files.len() >= 3);
    for file in files {
        let asset = send(server.client.get(server.url(file))).await;
        assert_eq!(asset.status, 200, "{file}");
        assert!(asset.header("cache-control").contains("immutable"));
    }
    assert_eq!(send(server.client.get(server.url("/assets/nope.js"))).await.status, 404);
}

#[tokio::test]
async fn a_log_in_from_elsewhere_or_with_a_wrong_token_is_refused() {
    let server = TestServer::start().await;
    let log_in = |origin: Option<String>, token: &str| {
        let mut request = server.client.post(server.url("/login")).body(format!("token={token}"));
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        send(request)
    };
    let own = Some(server.url(""));
    for origin in [None, Some("https://elsewhere.example".into()), Some("null".into())] {
        let answer = log_in(origin.clone(), TOKEN).await;
        assert_eq!((answer.status, answer.header("set-cookie")), (403, ""), "{origin:?}");
    }
    let wrong = log_in(own.clone(), "wrong").await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, ""));
    assert!(wrong.text.contains("This is no token of this server."));
    for _ in 0..30 {
        log_in(own.clone(), "guess").await;
    }
    let refused = log_in(own, TOKEN).await;
    assert_eq!((refused.status, refused.header("set-cookie")), (429, ""));
    assert!(!refused.header("retry-after").is_empty());
}

#[tokio::test]
async fn the_form_token_and_the_origin_let_a_session_change_something() {
    let server = TestServer::start().await;
    let cookie = server.log_in().await;
    let token = form_token(&home(&server, &cookie).await);
    let get = server.client.get(server.url("/v1/sandboxes")).header("cookie", &cookie);
    assert_eq!(send(get).await.status, 200, "a session reads under /v1");
    let ensure = |origin: &str, token: &str| {
        let request = server.client.request(Method::PUT, server.url("/v1/issues/1/sandbox"));
        let request = request.header("cookie", &cookie).header("x-form-token", token);
        send(request.header("origin", origin).json(&json!({})))
    };
    let own = server.url("");
    assert_eq!(ensure(&own, "wrong").await.code(), "forbidden");
    assert_eq!(ensure("https://elsewhere.example", &token).await.code(), "forbidden");
    assert_eq!(ensure(&own, &token).await.status, 201);
    let bare = server.client.put(server.url("/v1/issues/2/sandbox")).header("cookie", &cookie);
    assert_eq!(send(bare.header("sec-fetch-site", "cross-site")).await.status, 403);
}

#[tokio::test]
async fn a_session_ends_by_logging_out() {
    let server = TestServer::start().await;
    let cookie = server.log_in().await;
    let token = form_token(&home(&server, &cookie).await);
    let log_out = |token: &str| {
        let request = server.client.post(server.url("/logout")).header("cookie", &cookie);
        send(request.header("origin", server.url("")).body(format!("formToken={token}")))
    };
    assert_eq!(log_out("wrong").await.status, 403);
    assert_eq!(log_out(&token).await.status, 303);
    let page = server.client.get(server.url("/sandboxes/x")).header("cookie", &cookie);
    assert_eq!(send(page).await.status, 401);
    let api = send(server.client.get(server.url("/v1/sandboxes")).header("cookie", &cookie)).await;
    assert_eq!(api.status, 401);
}

#[tokio::test]
async fn behind_https_cookies_are_secure_and_the_public_origin_is_ours() {
    let server = TestServer::with(|edge| {
        edge.public_url = Some("https://box.example/".into());
    })
    .await;
    let request = server.client.post(server.url("/login")).header("origin", "https://box.example");
    let answer = send(request.body(format!("token={TOKEN}"))).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    assert!(answer.header("set-cookie").contains("Secure"));
    let cookie = answer.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    assert!(home(&server, &cookie).await.text.contains("https://box.example/webhooks/github"));
}

#[tokio::test]
async fn guesses_through_an_unconfigured_proxy_do_not_lock_the_machine_out() {
    let server = TestServer::start().await;
    let through = |token: &str| {
        let request = server.client.get(server.url("/v1/system")).bearer_auth(token);
        send(request.header("x-forwarded-for", "203.0.113.9"))
    };
    for _ in 0..31 {
        through("guess").await;
    }
    assert_eq!(through(TOKEN).await.status, 429);
    assert_eq!(server.get("/v1/system").await.status, 200, "who asks without the proxy");
}

#[tokio::test]
async fn guesses_through_a_trusted_proxy_are_counted_by_client() {
    let server = TestServer::with(|edge| {
        edge.trusted_proxies = vec!["127.0.0.1".parse().expect("an address")];
    })
    .await;
    let ask = |client: &str, token: &str| {
        let request = server.client.get(server.url("/v1/system")).bearer_auth(token);
        // What a client says of itself comes first, what the proxy saw comes last.
        send(request.header("x-forwarded-for", format!("198.51.100.1, {client}")))
    };
    for _ in 0..31 {
        ask("203.0.113.9", "guess").await;
    }
    assert_eq!(ask("203.0.113.9", TOKEN).await.status, 429);
    assert_eq!(ask("203.0.113.10", TOKEN).await.status, 200);
}

#[tokio::test]
async fn a_client_does_not_choose_its_address_where_a_proxy_writes_it_in_another_form() {
    for hop in ["9.9.9.9:4711", "[2001:db8::5]", "[2001:db8::5]:4711", "unknown"] {
        let server = TestServer::with(|edge| {
            edge.trusted_proxies = vec!["127.0.0.1".parse().expect("an address")];
        })
        .await;
        let mut last = 0;
        for n in 0..31 {
            let request = server.client.get(server.url("/v1/system")).bearer_auth("guess");
            let hops = format!("198.51.100.{n}, {hop}");
            last = send(request.header("x-forwarded-for", hops)).await.status;
        }
        assert_eq!(last, 429, "{hop}");
    }
}

#[tokio::test]
async fn a_session_over_https_has_a_cookie_of_this_very_host() {
    let server =
        TestServer::with(|edge| edge.public_url = Some("https://box.example".into())).await;
    let log_in = server.client.post(server.url("/login")).header("origin", "https://box.example");
    let answer = send(log_in.body(format!("token={TOKEN}"))).await;
    let cookie = answer.header("set-cookie").to_owned();
    assert!(cookie.starts_with("__Host-issuebox_session="), "{cookie}");
    assert!(cookie.contains("Secure") && cookie.contains("Path=/") && !cookie.contains("Domain"));
    let cookie = cookie.split(';').next().unwrap_or_default();
    assert!(home(&server, cookie).await.text.contains("No sandboxes yet"));
}

#[tokio::test]
async fn another_cookie_of_the_same_name_does_not_end_a_session() {
    let server = TestServer::start().await;
    let cookie = server.log_in().await;
    let both = format!("issuebox_session={}; {cookie}", "0".repeat(64));
    assert!(home(&server, &both).await.text.contains("No sandboxes yet"));
}
