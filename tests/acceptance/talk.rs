//! The page of a conversation in a real browser, with an agent at work in a real sandbox.
//!
//! Ignored here; `.ci/run` installs Chromium and runs it. Pictures are kept in the directory that
//! `ISSUEBOX_SCREENSHOTS` names.

use std::path::PathBuf;

use serde_json::json;

use crate::agent;
use crate::browser::driver::Browser;
use crate::process::{Place, TOKEN, send};

/// What a tool of the agent answers: a diff, in the colours of a terminal, and what must do nothing.
const OUTPUT: &str = "\u{1b}[31mred\u{1b}[0m <img src=x onerror=alert(1)> \u{202e}\u{1b}]52;c;eA==\u{7}\n\
    @@ -1,2 +1,2 @@\n-let limit = 10;\n+let limit = 100;\n same\n";

async fn pictures(browser: &Browser, name: &str) {
    let Some(dir) = std::env::var_os("ISSUEBOX_SCREENSHOTS").map(PathBuf::from) else { return };
    std::fs::create_dir_all(&dir).expect("made");
    for (width, is_dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
        browser.show_as(width, is_dark).await;
        let scheme = if is_dark { "dark" } else { "light" };
        browser.picture(&dir.join(format!("{name}-{width}-{scheme}.png"))).await;
    }
    browser.show_as(1280, false).await;
}

#[tokio::test]
#[ignore = "needs Chromium, chromedriver and real sandboxes; .ci/run installs them"]
async fn a_message_is_answered_while_one_looks_and_stop_ends_the_run() {
    let Some(place) = Place::local(None).await else { return };
    let server = agent::serve(&place).await;
    let id = server.running("1").await["id"].as_str().expect("an id").to_owned();
    agent::teach(&server, &id, OUTPUT).await;
    let browser = Browser::start().await;
    browser.log_in(&server.url, TOKEN).await;
    browser.without_polls().await;
    browser.go(&format!("{}/sandboxes/{id}/conversation", server.url)).await;
    browser.until_text("Nothing was said yet.").await;
    let type_in = async |text: &str| {
        let fill = format!("document.querySelector('[name=text]').value = {}", json!(text));
        browser.js(&fill).await;
        browser.click("form.say button").await;
        browser.until("location.search === '?done=say'").await;
    };
    type_in("Raise the limit.\nsay The limit is 100 now.").await;
    browser.until_text("The limit is 100 now.").await;
    browser.until("document.querySelector('.talk .run.succeeded')").await;
    let tool = "document.querySelector('.talk details.tool')";
    assert_eq!(browser.js(&format!("return {tool}.open")).await, false, "tools are folded");
    browser.click(".talk details.tool summary").await;
    let text = |of: &str| format!("return {tool}.querySelector('{of}').textContent");
    assert_eq!(browser.js(&text(".went")).await, "-let limit = 10;\n");
    assert_eq!(browser.js(&text(".came")).await, "+let limit = 100;\n");
    assert_eq!(browser.js(&text(".f1")).await, "red");
    let shown = browser.js(&text(".out:last-of-type")).await;
    let shown = shown.as_str().expect("a text");
    assert!(shown.contains("<img src=x") && shown.contains("\\u{202e}"), "{shown}");
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");

    // What comes while the page is open is shown without loading it again, and what was opened stays open.
    browser.js("window.same = true").await;
    let typed = "document.querySelector('[name=text]').value = 'half'";
    browser.js(typed).await;
    let api = server.request(reqwest::Method::PUT, "/v1/issues/1/messages");
    let body = json!({"text": format!("say by the API\n{}", "<b>x</b> ".repeat(120_000))});
    assert_eq!(send(api.json(&body)).await.status, 202);
    browser.until_text("more bytes are not shown").await;
    browser.until("document.querySelectorAll('.talk .run.succeeded').length === 2").await;
    let last = "[...document.querySelectorAll('.talk .agents')].at(-1).textContent";
    browser.until(&format!("{last}.includes('by the API')")).await;
    let kept = "return [window.same, document.querySelector('[name=text]').value,
        document.querySelectorAll('main img, main b').length]";
    assert_eq!(browser.js(kept).await, json!([true, "half", 0]));
    assert_eq!(browser.js(&format!("return {tool}.open")).await, true);
    pictures(&browser, "conversation").await;

    type_in("linger").await;
    browser.until_text("It goes on.").await;
    browser.until("document.querySelector('.agent.running')").await;
    pictures(&browser, "conversation-running").await;
    let fits =
        "return document.documentElement.scrollWidth <= document.documentElement.clientWidth";
    for width in [320, 390, 1280] {
        browser.show_as(width, false).await;
        assert_eq!(browser.js(fits).await, true, "it is wider than {width} px");
    }
    browser.click("form[action$='/stop'] button").await;
    browser.until("document.querySelector('.talk .run.cancelled')").await;
    browser.until("document.querySelector(\"form[action$='/retry'] button\")").await;
    browser.nothing_happened().await;
    server.stop().await;
}
