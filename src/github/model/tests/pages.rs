//! The page that makes an App of a manifest: what it accepts, and where it leads back.

use reqwest::redirect::Policy;
use serde_json::{Value, json};

use crate::github::model::GithubModel;

async fn post(url: &str, form: String) -> (u16, String, String) {
    let client = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build();
    let answer = client.expect("a client").post(url).body(form).send().await.expect("an answer");
    let location = answer.headers().get("location").and_then(|value| value.to_str().ok());
    let location = location.unwrap_or_default().to_owned();
    (answer.status().as_u16(), location, answer.text().await.expect("text"))
}

fn manifest(change: impl FnOnce(&mut Value)) -> String {
    let mut manifest = json!({
        "name": "My Box", "url": "https://box.example", "redirect_url": "https://box.example/back",
        "hook_attributes": {"url": "https://box.example/hook"},
    });
    change(&mut manifest);
    let text = manifest.to_string();
    let set = percent_encoding::NON_ALPHANUMERIC;
    format!("manifest={}", percent_encoding::utf8_percent_encode(&text, set))
}

#[tokio::test]
async fn the_button_leads_back_with_a_code_and_the_state() {
    let github = GithubModel::start().expect("it starts");
    let new = format!("{}/organizations/octo/settings/apps/new?state=abc", github.web_url());
    let (status, _, page) = post(&new, manifest(|_| {})).await;
    assert_eq!(status, 200, "{page}");
    let action = page.split("action=\"").nth(1).and_then(|rest| rest.split('"').next());
    let action = action.expect("a button");
    let (status, location, _) = post(action, String::new()).await;
    let query = location.strip_prefix("https://box.example/back?code=").expect("led back");
    assert!(status == 302 && query.ends_with("&state=abc"), "{location}");
    assert_eq!(post(action, String::new()).await.0, 404, "it was pressed");
}

#[tokio::test]
async fn a_wrong_manifest_gets_no_button() {
    let github = GithubModel::start().expect("it starts");
    let new = format!("{}/settings/apps/new", github.web_url());
    let wrong: [fn(&mut Value); 6] = [
        |manifest| manifest["nme"] = json!("x"),
        |manifest| manifest["name"] = json!("issuebox model"),
        |manifest| manifest["name"] = json!("x".repeat(35)),
        |manifest| manifest["redirect_url"] = Value::Null,
        |manifest| manifest["hook_attributes"] = json!({"active": false}),
        |manifest| manifest["hook_attributes"]["url"] = json!("http://localhost:8787/hook"),
    ];
    for change in wrong {
        let (status, _, page) = post(&new, manifest(change)).await;
        assert!(status == 422 && !page.contains("<form"), "{page}");
    }
}
