//! The pages by which people log in with the App: the one that asks the person leads back with a code, the
//! other exchanges the code for a token of the person's.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::pages::field;
use super::server::{ModelBody, plain, whole};
use super::state::ModelState;
use super::{GithubModel, ModelShared};

/// Largest body, in bytes.
const BODY_MAX: usize = 64 << 10;

/// A page of the log-in.
pub(super) enum OauthPage {
    Authorize,
    Exchange,
}

/// A code that was given out.
#[derive(Clone, Debug)]
pub(super) struct OauthCode {
    user: u64,
    redirect_uri: String,
    /// The base64url of the verifier's SHA-256.
    challenge: String,
}

/// The page at a path.
pub(super) fn page(path: &str) -> Option<OauthPage> {
    match path {
        "/login/oauth/authorize" => Some(OauthPage::Authorize),
        "/login/oauth/access_token" => Some(OauthPage::Exchange),
        _ => None,
    }
}

/// Answers a browser, or the App's server.
pub(super) async fn serve(
    shared: &ModelShared,
    page: OauthPage,
    request: Request<Incoming>,
) -> Result<Response<ModelBody>, io::Error> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_MAX).collect().await else {
        return Ok(plain(413, "too large"));
    };
    let query = head.uri.query().unwrap_or_default();
    let mut state = shared.state();
    Ok(match page {
        OauthPage::Authorize => state.authorize(query),
        OauthPage::Exchange => {
            let accepts = head.headers.get("accept").and_then(|value| value.to_str().ok());
            if accepts != Some("application/json") {
                return Ok(plain(200, "error=this+model+answers+in+JSON"));
            }
            let asked = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
            let (status, answer) = state.exchange(&asked);
            let page =
                Response::builder().status(status).header("content-type", "application/json");
            page.body(whole(answer.to_string())).expect("a valid answer")
        }
    })
}

impl ModelState {
    /// The page that asks the person: who is logged in here presses the button at once.
    fn authorize(&mut self, query: &str) -> Response<ModelBody> {
        let given = |name| field(query, name).unwrap_or_default();
        if given("client_id") != self.client.0 {
            return plain(404, "Not Found");
        }
        let (redirect_uri, state) = (given("redirect_uri"), given("state"));
        if given("code_challenge_method") != "S256" || given("code_challenge").len() != 43 {
            self.violations.push("a log-in without a challenge of SHA-256".to_owned());
        }
        let answer = if !redirect_uri.starts_with(&self.callback) {
            "error=redirect_uri_mismatch".to_owned()
        } else if let Some(user) = self.browsing {
            let code = format!("login-{}", self.next_id());
            let (redirect_uri, challenge) = (redirect_uri.clone(), given("code_challenge"));
            self.login_codes.insert(code.clone(), OauthCode { user, redirect_uri, challenge });
            format!("code={code}")
        } else {
            "error=access_denied&error_description=The+user+has+denied+your+application+access."
                .to_owned()
        };
        let location = format!("{redirect_uri}?{answer}&state={state}");
        let answer = Response::builder().status(302).header("location", location);
        answer.body(whole("")).expect("a valid answer")
    }

    /// Exchanges a code, once. Errors have the status 200, as at GitHub.
    fn exchange(&mut self, asked: &Value) -> (u16, Value) {
        let text = |name: &str| asked[name].as_str().unwrap_or_default();
        let refused = |error: &str, words: &str| {
            (200, json!({"error": error, "error_description": words, "error_uri": "/apps/"}))
        };
        if text("client_id") != self.client.0 {
            return (404, json!({"error": "Not Found"}));
        }
        if text("client_secret") != self.client.1 {
            let words = "The client_id and/or client_secret passed are incorrect.";
            return refused("incorrect_client_credentials", words);
        }
        let verified = URL_SAFE_NO_PAD.encode(Sha256::digest(text("code_verifier")));
        let code = self.login_codes.remove(text("code"));
        let code = code.filter(|code| code.challenge == verified);
        let Some(code) = code.filter(|code| code.redirect_uri == text("redirect_uri")) else {
            return refused("bad_verification_code", "The code passed is incorrect or expired.");
        };
        let token = self.new_user_token(code.user, None);
        (200, json!({"access_token": token, "scope": "", "token_type": "bearer"}))
    }
}

/// People log in.
impl GithubModel {
    /// The App's client id and client secret.
    #[must_use]
    pub fn client(&self) -> (String, String) {
        self.state().client.clone()
    }

    /// Codes are given to this address and what is below it alone.
    pub fn set_callback(&self, url: &str) {
        url.clone_into(&mut self.state().callback);
    }

    /// Who is at the browser, and confirms each log-in; `None` cancels it.
    pub fn set_browsing(&self, login: Option<&str>) {
        let user = login.map(|login| self.user(login));
        self.state().browsing = user;
    }
}
