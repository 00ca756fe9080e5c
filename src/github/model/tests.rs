//! Tests of the in-memory GitHub itself: a plain HTTP client plays the server, and each call is held to
//! GitHub's description.

mod faults;
mod git;
mod graphql;
mod hooks;
mod limits;
mod operations;
mod pages;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use reqwest::{Method, StatusCode};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

use super::{APP_KEY, APP_KEY_PKCS8, GithubModel, OTHER_KEY};

const ORCHARD: &str = "pear-garden/orchard";

/// What came back.
struct Got {
    status: StatusCode,
    headers: reqwest::header::HeaderMap,
    body: Value,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// The body of an answer with this status.
    fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }
}

/// A model with a repository in which the App is installed, and a client of it.
struct Garden {
    github: GithubModel,
    client: reqwest::Client,
    repository: u64,
    installation: u64,
    token: String,
}

impl Garden {
    async fn new() -> Self {
        let github = GithubModel::start().expect("a free port");
        let repository = github.repository(ORCHARD);
        github.set_role(ORCHARD, "mira-holt", "write");
        let installation = github.install("pear-garden");
        let redirects = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().no_proxy().redirect(redirects).build();
        let client = client.expect("a client");
        let mut garden = Self { github, client, repository, installation, token: String::new() };
        garden.token = garden.mint(json!({})).await;
        garden
    }

    fn jwt(&self) -> String {
        let now = self.github.now().as_second();
        jwt(APP_KEY, self.github.app().0, now - 60, now + 540)
    }

    async fn mint(&self, narrowed: Value) -> String {
        let path = format!("/app/installations/{}/access_tokens", self.installation);
        let answer = self.call_as(&self.jwt(), Method::POST, &path, narrowed).await;
        answer.expect(201)["token"].as_str().expect("a token").to_owned()
    }

    fn request(&self, token: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
        let url = format!("{}{path}", self.github.api_url());
        let request = self.client.request(method, url);
        if token.is_empty() { request } else { request.bearer_auth(token) }
    }

    async fn call_as(&self, token: &str, method: Method, path: &str, body: Value) -> Got {
        let request = self.request(token, method, path);
        let request = if body.is_null() { request } else { request.json(&body) };
        receive(request).await.expect("an answer")
    }

    async fn get(&self, path: &str) -> Got {
        self.call_as(&self.token, Method::GET, path, Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> Got {
        self.call_as(&self.token, Method::POST, path, body).await
    }

    /// Nothing was done that a client must not do, and all fits GitHub's description.
    fn assert_clean(&self) {
        assert_eq!(self.github.violations(), Vec::<String>::new());
    }
}

async fn receive(request: reqwest::RequestBuilder) -> reqwest::Result<Got> {
    let answer = request.send().await?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let text = answer.text().await?;
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(Got { status, headers, body })
}

/// A JSON web token of the App.
fn jwt(pem: &str, app: u64, issued: i64, expires: i64) -> String {
    let lines = pem.lines().filter(|line| !line.starts_with("-----"));
    let der = STANDARD.decode(lines.collect::<String>()).expect("base64");
    let key = RsaKeyPair::from_der(&der).or_else(|_| RsaKeyPair::from_pkcs8(&der)).expect("a key");
    let encode = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let claims = json!({"iss": app.to_string(), "iat": issued, "exp": expires});
    let signed = format!("{}.{}", encode(json!({"alg": "RS256", "typ": "JWT"})), encode(claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .expect("a signature");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test]
async fn the_app_proves_itself_by_its_key_and_githubs_clock() {
    let garden = Garden::new().await;
    let app = garden.github.app().0;
    let now = garden.github.now().as_second();
    let status = async |token: String| {
        garden.call_as(&token, Method::GET, "/app", Value::Null).await.status.as_u16()
    };
    assert_eq!(status(jwt(APP_KEY, app, now - 60, now + 540)).await, 200);
    assert_eq!(status(jwt(APP_KEY_PKCS8, app, now - 60, now + 540)).await, 200);
    assert_eq!(status(jwt(OTHER_KEY, app, now - 60, now + 540)).await, 401, "another key");
    assert_eq!(status(jwt(APP_KEY, app + 1, now - 60, now + 540)).await, 401, "another App");
    assert_eq!(status(jwt(APP_KEY, app, now + 90, now + 540)).await, 401, "issued later");
    assert_eq!(status(jwt(APP_KEY, app, now - 60, now + 900)).await, 401, "for too long");
    assert_eq!(status(jwt(APP_KEY, app, now - 60, now - 1)).await, 401, "it is over");
    assert_eq!(status(String::new()).await, 401, "no token");
    garden.github.move_clock(jiff::SignedDuration::from_hours(1));
    let early = jwt(APP_KEY, app, now - 60, now + 540);
    let answer = garden.call_as(&early, Method::GET, "/app", Value::Null).await;
    assert_eq!(answer.status, 401, "GitHub's clock counts");
    let date = jiff::fmt::rfc2822::parse(answer.header("date")).expect("a date").timestamp();
    assert!(date.as_second() >= now + 3600, "and is shown");
    garden.github.replace_key(OTHER_KEY);
    let now = garden.github.now().as_second();
    assert_eq!(status(jwt(OTHER_KEY, app, now - 60, now + 540)).await, 200, "a replaced key");
    garden.assert_clean();
}

#[tokio::test]
async fn tokens_are_narrowed_expire_and_end() {
    let garden = Garden::new().await;
    let other = garden.github.repository("pear-garden/press");
    garden.github.set_private("pear-garden/press", true);
    garden.github.set_private(ORCHARD, true);
    garden.github.open_issue(ORCHARD, "mira-holt", "Leaves fall", "Early.");
    assert!((500..540).contains(&garden.token.len()), "{}", garden.token.len());
    let narrowed = garden
        .mint(json!({"repository_ids": [garden.repository], "permissions": {"issues": "read"}}))
        .await;
    let comments = format!("/repos/{ORCHARD}/issues/1/comments");
    let as_narrowed = async |method, path: &str, body| {
        garden.call_as(&narrowed, method, path, body).await.status.as_u16()
    };
    assert_eq!(as_narrowed(Method::GET, &comments, Value::Null).await, 200);
    assert_eq!(as_narrowed(Method::POST, &comments, json!({"body": "Hello"})).await, 403);
    assert_eq!(as_narrowed(Method::GET, "/repos/pear-garden/press", Value::Null).await, 404);
    assert_eq!(garden.get("/repos/pear-garden/press").await.expect(200)["id"], other);
    let path = format!("/app/installations/{}/access_tokens", garden.installation);
    let mint = async |body| garden.call_as(&garden.jwt(), Method::POST, &path, body).await;
    mint(json!({"permissions": {"administration": "write"}})).await.expect(422);
    mint(json!({"repository_ids": [1]})).await.expect(422);
    assert_eq!(as_narrowed(Method::DELETE, "/installation/token", Value::Null).await, 204);
    assert_eq!(as_narrowed(Method::GET, &comments, Value::Null).await, 401, "revoked");
    garden.github.set_suspended(garden.installation, true);
    garden.get(&comments).await.expect(403);
    mint(json!({})).await.expect(403);
    garden.github.set_suspended(garden.installation, false);
    garden.get(&comments).await.expect(200);
    garden.github.move_clock(jiff::SignedDuration::from_mins(61));
    garden.get(&comments).await.expect(401);
    garden.github.uninstall(garden.installation);
    mint(json!({})).await.expect(404);
    assert_eq!(garden.github.tokens().len(), 2, "all are known to search for");
    garden.assert_clean();
}

#[tokio::test]
async fn a_users_token_acts_as_the_user() {
    let garden = Garden::new().await;
    garden.github.open_issue(ORCHARD, "mira-holt", "Leaves fall", "Early.");
    let classic = garden.github.user_token("mira-holt", None);
    let answer = garden.call_as(&classic, Method::GET, "/user", Value::Null).await.expect(200);
    assert_eq!(answer["login"], "mira-holt");
    garden.github.set_locked((ORCHARD, 1), "mira-holt", true);
    let comments = format!("/repos/{ORCHARD}/issues/1/comments");
    let body = json!({"body": "Hello"});
    garden.call_as(&classic, Method::POST, &comments, body.clone()).await.expect(201);
    let stranger = garden.github.user_token("stranger", None);
    let refused = garden.call_as(&stranger, Method::POST, &comments, body.clone()).await;
    assert_eq!(refused.expect(403)["message"], "Unable to create comment because issue is locked.");
    let fine = garden.github.user_token("mira-holt", Some(&[("issues", "read")]));
    let refused = garden.call_as(&fine, Method::POST, &comments, body).await.expect(403);
    assert_eq!(refused["message"], "Resource not accessible by personal access token");
    garden.github.expire_token(&fine, Timestamp::from_second(1_900_000_000).expect("a time"));
    let answer = garden.call_as(&fine, Method::GET, &comments, Value::Null).await;
    assert_eq!(answer.header("github-authentication-token-expiration"), "2030-03-17 17:46:40 UTC");
    garden.assert_clean();
}
