//! The dashboard in a real browser: live, by mouse and by keyboard, in the face of hostile text and of
//! a server that goes away.
//!
//! Ignored here; `.ci/run` installs Chromium and runs them. Pictures of every page are kept in the
//! directory that `ISSUEBOX_SCREENSHOTS` names.

pub mod driver;

use std::path::PathBuf;

use crate::process::{Place, SECRET, Server, TOKEN, issue_event, send, until};
use driver::Browser;
use serde_json::{Value, json};

/// A server with simulated sandboxes, and a browser whose person is logged in.
async fn open(place: &Place) -> (Server, Browser) {
    let server = place.serve().await;
    let browser = Browser::start().await;
    browser.log_in(&server.url, TOKEN).await;
    (server, browser)
}

async fn ensure(server: &Server, issue: &str, title: &str) -> String {
    let body = json!({"issueId": issue, "issueTitle": title});
    let answer = server.post("/v1/sandboxes?wait=30", &body).await;
    answer.sandbox_id()
}

#[tokio::test]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn a_sandbox_appears_and_changes_without_loading_the_page_again() {
    let place = Place::simulated("create_delay_ms = 300");
    let (server, browser) = open(&place).await;
    browser.without_polls().await;
    browser.go(&server.url).await;
    browser.until("document.getElementById('status').dataset.state === 'on'").await;
    browser.js("window.same = true").await;
    ensure(&server, "live-1", "Appears by itself").await;
    browser.until_text("Appears by itself").await;
    browser.until("document.querySelector('li.row.running')").await;
    browser.until("document.querySelector('#nav .badge').textContent === '1'").await;
    // The focus does not move while rows come and go.
    browser.js("document.querySelector('[data-row]').focus()").await;
    ensure(&server, "live-2", "Appears above it").await;
    browser.until("document.querySelectorAll('li.row').length === 2").await;
    let focused = browser.js("return document.activeElement.textContent").await;
    assert_eq!(focused, "Appears by itself");
    assert_eq!(browser.js("return window.same").await, true, "the page is the same one");
    // What a person opened stays open.
    browser.go(&format!("{}/sandboxes/claude-issue-live-1", server.url)).await;
    browser.until("document.getElementById('status').dataset.state === 'on'").await;
    browser.click("[data-key='do-delete'] summary").await;
    let hold = server.request(reqwest::Method::PUT, "/v1/holds/server");
    assert_eq!(send(hold.json(&json!({}))).await.status, 200);
    server.post("/v1/sandboxes/claude-issue-live-1/stop?wait=30", &json!({})).await;
    browser.until("document.querySelector('.one.stopped')").await;
    browser.until_text("the server is held by admin").await;
    browser.until("document.querySelector(\"[data-key='do-delete']\").open").await;
    browser.nothing_happened().await;
}

#[tokio::test]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn a_person_stops_starts_and_deletes_a_sandbox() {
    let place = Place::simulated("");
    let (server, browser) = open(&place).await;
    let id = ensure(&server, "by-hand", "By hand").await;
    browser.go(&format!("{}/sandboxes/{id}", server.url)).await;
    for (action, phase) in [("stop", "stopped"), ("start", "running"), ("delete", "deleted")] {
        browser.click(&format!("[data-key='do-{action}'] summary")).await;
        browser.until_text("claude-issue-by-hand?").await;
        browser.click(&format!("[data-key='do-{action}'] button")).await;
        browser.until(&format!("document.querySelector('.one.{phase}')")).await;
        browser.nothing_happened().await;
    }
    until("it is gone", || async { place.objects().is_empty() }).await;
}

#[tokio::test]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn a_page_says_when_it_is_not_live_and_is_again_after_a_restart() {
    let place = Place::simulated("");
    let (server, browser) = open(&place).await;
    let address = server.url.trim_start_matches("http://").to_owned();
    browser.js("window.same = true").await;
    server.kill().await;
    browser.until("document.getElementById('status').dataset.state === 'off'").await;
    let server = serve_again(&place, &address).await;
    ensure(&server, "after", "Made after the restart").await;
    browser.until_text("Made after the restart").await;
    browser.until("document.getElementById('status').dataset.state === 'on'").await;
    assert_eq!(browser.js("return window.same").await, true, "the session outlives a restart");
}

/// A server over a place on an address that its predecessor had.
async fn serve_again(place: &Place, address: &str) -> Server {
    let mut command = place.serve_command(address);
    Server::start(command.stdout(std::process::Stdio::null())).await
}

#[tokio::test]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn the_first_run_ticks_itself_off() {
    let place = Place::simulated("");
    let (server, browser) = open(&place).await;
    let done =
        |count: usize| format!("document.querySelectorAll('.steps .done').length === {count}");
    browser.until(&done(1)).await;
    let ping = server.delivery("ping", "d-1", "{\"zen\":\"z\"}");
    assert_eq!(send(ping).await.status, 200);
    browser.until(&done(2)).await;
    browser.click("form[action='/connect/sample'] button").await;
    browser.until(&done(4)).await;
    browser.nothing_happened().await;
    browser.click("form[action='/connect/secret'] button").await;
    browser.until_text(SECRET).await;
}

#[tokio::test]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn everything_is_reached_by_keys_alone() {
    let place = Place::simulated("");
    let (server, browser) = open(&place).await;
    ensure(&server, "one", "The first").await;
    let id = ensure(&server, "two", "The second").await;
    browser.until("document.querySelectorAll('li.row').length === 2").await;
    browser.press(&["?"]).await;
    browser.until("document.getElementById('help').open").await;
    browser.press(&["Escape"]).await;
    browser.until("!document.getElementById('help').open").await;
    browser.press(&["j", "j"]).await;
    assert_eq!(browser.js("return document.activeElement.textContent").await, "The first");
    browser.press(&["/"]).await;
    browser.press(&["s", "e", "c", "o", "n", "d", "Enter"]).await;
    browser.until("location.search === '?q=second'").await;
    browser.until("document.querySelectorAll('li.row').length === 1").await;
    browser.press(&["j", "Enter"]).await;
    browser.until(&format!("location.pathname === '/sandboxes/{id}'")).await;
    browser.js("document.querySelector(\"[data-key='do-stop'] summary\").focus()").await;
    browser.press(&["Enter"]).await;
    browser.until("document.querySelector(\"[data-key='do-stop']\").open").await;
    browser.press(&["Tab", "Enter"]).await;
    browser.until("document.querySelector('.one.stopped')").await;
    browser.press(&["g", "h"]).await;
    browser.until("location.pathname === '/holds'").await;
    browser.nothing_happened().await;
}

#[tokio::test]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn hostile_text_does_nothing() {
    let place = Place::simulated("");
    let (server, browser) = open(&place).await;
    let img = "<img src=x onerror=alert(1)>";
    let nasty = format!("{img}\u{1b}[2J\u{1b}]8;;https://elsewhere.example\u{7}link\u{202e}\"'");
    let id = ensure(&server, "hostile", &nasty).await;
    let mut event = issue_event("opened", 900);
    event["issue"]["title"] = Value::String(format!("{img}{}", "x".repeat(1_000_000)));
    event["issue"]["html_url"] = Value::String("javascript:alert(1)".into());
    event["issue"]["user"]["login"] = Value::String(img.into());
    event["sender"]["login"] = Value::String(img.into());
    event["issue"]["labels"] = json!([{"id": 1, "name": img}]);
    let answer = send(server.delivery("issues", "d-hostile", event.to_string())).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let forged = server.client.post(format!("{}/webhooks/github", server.url));
    let forged = forged
        .header("x-github-event", img)
        .header("x-github-delivery", "\"><script>alert(1)</script>");
    assert_eq!(
        send(forged.header("content-type", "application/json").body("{}")).await.status,
        401
    );
    for path in [
        "/",
        &format!("/sandboxes/{id}"),
        "/sandboxes/claude-issue-900",
        "/deliveries",
        "/overview",
    ] {
        browser.go(&format!("{}{path}", server.url)).await;
        browser.until("document.getElementById('live')").await;
        let alive =
            browser.js("return document.querySelectorAll('main img, main script').length").await;
        assert_eq!(alive, 0, "{path}");
        let size = browser.js("return document.documentElement.outerHTML.length").await;
        assert!(size.as_u64().is_some_and(|size| size < 200_000), "{path} has {size} characters");
        browser.nothing_happened().await;
    }
    browser.go(&format!("{}/sandboxes/{id}", server.url)).await;
    let line = format!("\u{1b}[31mred\u{1b}[0m {nasty} \u{1b}]52;c;cm0=\u{7}end");
    browser.js(&format!("document.querySelector('[name=line]').value = {}", json!(line))).await;
    browser.click("form.command button").await;
    let output = "frames.output.document";
    browser.until(&format!("{output}.body.innerText.includes('Exit code 0')")).await;
    assert_eq!(
        browser.js(&format!("return {output}.querySelectorAll('img, script, a').length")).await,
        0
    );
    let red = browser.js(&format!("return {output}.querySelector('.f1').textContent")).await;
    assert_eq!(red, "red");
    let text = browser.js(&format!("return {output}.body.innerText")).await;
    let text = text.as_str().expect("a text");
    assert!(
        text.contains(img)
            && text.contains("end")
            && !text.contains('\u{1b}')
            && !text.contains('\u{202e}'),
        "{text:?}"
    );
    browser.nothing_happened().await;
}

#[tokio::test]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn the_list_and_its_counts_follow_what_is_typed() {
    let place = Place::simulated("");
    let (server, browser) = open(&place).await;
    ensure(&server, "one", "The first").await;
    ensure(&server, "two", "The second").await;
    browser.go(&server.url).await;
    browser.until("document.querySelectorAll('li.row').length === 2").await;
    browser.js("window.same = true").await;
    browser.press(&["/"]).await;
    browser.press(&["s", "e", "c"]).await;
    browser.until("document.querySelectorAll('li.row').length === 1").await;
    let count = |count: &str| {
        format!("document.querySelector(\"[data-key='tab-all'] .count\").textContent === '{count}'")
    };
    browser.until(&count("1")).await;
    browser.until("location.search === '?q=sec'").await;
    let typed = browser.js("return [window.same, document.activeElement.id]").await;
    assert_eq!(typed, json!([true, "search"]), "the page is the same one");
    browser.press(&["x"]).await;
    browser.until_text("No sandbox matches.").await;
    browser.until(&count("0")).await;
    browser.nothing_happened().await;
}

#[tokio::test]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn a_command_is_shown_to_run_can_be_ended_and_is_kept_for_the_next_time() {
    let Some(place) = Place::local(None).await else { return };
    let (server, browser) = open(&place).await;
    let id = ensure(&server, "work", "Work").await;
    browser.go(&format!("{}/sandboxes/{id}", server.url)).await;
    let run = async |line: &str| {
        browser.js(&format!("document.querySelector('[name=line]').value = {}", json!(line))).await;
        browser.click("form.command button").await;
    };
    let state = |begin: &str| {
        format!("document.getElementById('run-state').textContent.startsWith('{begin}')")
    };
    let sleeps = async || {
        let names = server.sh("claude-issue-work", "cat /proc/[0-9]*/comm").await;
        names["stdout"].as_str().is_some_and(|names| names.lines().any(|name| name == "sleep"))
    };
    run("sleep 1000").await;
    browser.until(&state("Running for")).await;
    until("it sleeps", sleeps).await;
    browser.click("#stop").await;
    browser.until(&state("Stopped")).await;
    until("it is ended", || async { !sleeps().await }).await;
    run("echo said").await;
    browser.until(&state("Ended")).await;
    browser.until("document.getElementById('stop').hidden").await;
    let recent = "return [...document.querySelectorAll('#recent button')].map(b => b.textContent)";
    assert_eq!(browser.js(recent).await, json!(["echo said", "sleep 1000"]));
    browser.click("#recent button").await;
    let line = browser.js("return document.querySelector('[name=line]').value").await;
    assert_eq!(line, "echo said");
    // The log is followed in a frame that never ends, and the page is loaded all the same.
    browser.go(&format!("{}/sandboxes/{id}/logs", server.url)).await;
    browser.until("document.readyState === 'complete'").await;
    browser.until("frames[0].document.body?.innerText.includes('echo said')").await;
    browser.nothing_happened().await;
}

/// Every page, by a name for its picture.
const PAGES: [(&str, &str); 17] = [
    ("sandboxes", "/"),
    ("failed", "/?phase=failed"),
    ("sandbox", "/sandboxes/claude-issue-one"),
    ("conversation-empty", "/sandboxes/claude-issue-one/conversation"),
    ("failed-sandbox", "/sandboxes/claude-issue-broken"),
    ("deliveries", "/deliveries"),
    ("providers", "/providers"),
    ("drift", "/drift"),
    ("holds", "/holds"),
    ("overview", "/overview?back=hour"),
    ("connect", "/connect"),
    ("create", "/create"),
    ("templates", "/templates"),
    ("tokens", "/tokens"),
    ("accounts", "/accounts"),
    ("docs", "/docs"),
    ("nothing", "/sandboxes/nope"),
];

#[tokio::test]
#[ignore = "needs Chromium and chromedriver; .ci/run installs them"]
async fn every_page_is_accessible_and_fits_its_screen() {
    let place = Place::simulated("");
    let (server, browser) = open(&place).await;
    ensure(&server, "one", "Sign-in loops after a password reset").await;
    // The names of repositories can be long, and more than one is a choice.
    for (issue, name) in [("long", "x".repeat(100)), ("short", "hello".to_owned())] {
        let repository = format!("{}/{name}", "an-owner-with-a-long-name");
        let body = json!({"issueId": issue, "repository": repository, "issueNumber": 1});
        server.post("/v1/sandboxes?wait=30", &body).await;
    }
    place.configure("fail_create = 1.0");
    server.reload().await;
    ensure(&server, "broken", "The map forgets its zoom").await;
    let hold = server.request(reqwest::Method::PUT, "/v1/holds/repositories/octo/hello");
    assert_eq!(send(hold.json(&json!({"reason": "repairs"}))).await.status, 200);
    let delivery = server.delivery("issues", "d-1", issue_event("opened", 901).to_string());
    assert!(send(delivery).await.is_success());
    let pictures = std::env::var_os("ISSUEBOX_SCREENSHOTS").map(PathBuf::from);
    if let Some(pictures) = &pictures {
        std::fs::create_dir_all(pictures).expect("made");
    }
    // Axe is not ours, so it is not in the repository; `.ci/run` gets it.
    let axe = std::env::var("ISSUEBOX_AXE").expect("ISSUEBOX_AXE names axe.min.js");
    let axe = std::fs::read_to_string(axe).expect("it is there");
    for (width, is_dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
        browser.show_as(width, is_dark).await;
        for (name, path) in PAGES {
            browser.go(&format!("{}{path}", server.url)).await;
            browser.until("document.querySelector('main h1')").await;
            let fits = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth";
            assert_eq!(
                browser.js(fits).await,
                true,
                "{name} at {width} px is wider than its screen"
            );
            let cut = "return [...document.querySelectorAll('#quotas .scroll, #live .scroll')]
                .filter((one) => one.scrollWidth > one.clientWidth).length";
            assert_eq!(browser.js(cut).await, 0, "{name} at {width} px has a table that is cut");
            if let Some(pictures) = &pictures {
                let scheme = if is_dark { "dark" } else { "light" };
                browser.picture(&pictures.join(format!("{name}-{width}-{scheme}.png"))).await;
            }
            browser.js(&axe).await;
            let run = "const done = arguments[arguments.length - 1];
                    axe.run(document, { iframes: false }).then((result) => done(result.violations
                        .filter((one) => ['serious', 'critical'].includes(one.impact))
                        .map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 200))])));";
            let found = browser.js_async(run).await;
            assert_eq!(found, json!([]), "{name} at {width} px, dark: {is_dark}");
        }
    }
}
