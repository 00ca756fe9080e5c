//! GitHub's web application flow: people log in with the App.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use crate::clock::Clock;
use crate::issue::instruction::GithubUser;
use crate::types::Secret;

use super::super::api::GitHubError;
use super::super::sign_in::{GithubSignIn, SignInError, SignInProof, SignInRequest};
use super::ClientError;
use super::answers::shortened;
use super::reads::query_value;
use super::registration::ask_once;
use super::transport::{HttpCall, Transport};
use super::wire::{WireUser, read};

/// The client of an App, with which people log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppClient {
    /// Its client id.
    pub id: String,
    /// Its client secret.
    pub secret: Secret,
}

/// GitHub, as people log in with an App.
pub struct AppSignIn {
    web_url: String,
    /// The pages, which exchange codes.
    web: Transport,
    api: Transport,
    client: RwLock<Arc<AppClient>>,
}

/// Errors come with status 200, too.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WireExchange {
    access_token: String,
    error: String,
    error_description: String,
}

impl AppSignIn {
    /// At the GitHub with these pages and this REST base. Needs a runtime, which then serves it.
    ///
    /// # Errors
    /// [`ClientError::Address`] if an address cannot be used.
    pub fn new(
        web_url: &str,
        api_url: &str,
        client: AppClient,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            web_url: web_url.to_owned(),
            web: Transport::new(web_url, Arc::clone(clock))?.accepting("application/json"),
            api: Transport::new(api_url, Arc::clone(clock))?,
            client: RwLock::new(Arc::new(client)),
        })
    }

    /// Uses another client from now on.
    pub fn replace_client(&self, client: AppClient) {
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(client);
    }

    fn client(&self) -> Arc<AppClient> {
        Arc::clone(&self.client.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Exchanges a code for a token of the person's.
    async fn exchange(&self, code: &str, proof: &SignInProof) -> Result<Secret, SignInError> {
        let client = self.client();
        let body = json!({
            "client_id": client.id, "client_secret": client.secret.expose(), "code": code,
            "redirect_uri": proof.redirect_uri, "code_verifier": proof.verifier,
        });
        let path = self.web.path("/login/oauth/access_token");
        let call = HttpCall {
            method: Method::POST,
            path: &path,
            body: Some(&body),
            etag: None,
            token: None,
        };
        let answer = match ask_once(&self.web, call).await {
            Err(GitHubError::NotFound(_)) => {
                return Err(SignInError::Misconfigured(
                    "that there is no such client_id".to_owned(),
                ));
            }
            answer => answer?,
        };
        let WireExchange { access_token, error, error_description } = read(&answer.body)?;
        let words = || shortened(&format!("{error}: {error_description}"));
        match error.as_str() {
            "" if access_token.is_empty() => {
                Err(GitHubError::Unknown("GitHub's answer has no token".to_owned()).into())
            }
            "" => Ok(Secret::new(access_token)),
            "bad_verification_code" => Err(SignInError::Code),
            "incorrect_client_credentials" | "redirect_uri_mismatch" => {
                Err(SignInError::Misconfigured(words()))
            }
            _ => Err(SignInError::Refused(words())),
        }
    }
}

#[async_trait]
impl GithubSignIn for AppSignIn {
    fn authorize_url(&self, ask: &SignInRequest) -> String {
        let SignInRequest { state, challenge, redirect_uri } = ask;
        format!(
            "{}/login/oauth/authorize?client_id={}&redirect_uri={}&state={}&code_challenge={}\
             &code_challenge_method=S256",
            self.web_url,
            query_value(&self.client().id),
            query_value(redirect_uri),
            query_value(state),
            query_value(challenge),
        )
    }

    async fn person(&self, code: &str, proof: &SignInProof) -> Result<GithubUser, SignInError> {
        let token = self.exchange(code, proof).await?;
        let path = self.api.path("/user");
        let token = Some(&token);
        let call = HttpCall { method: Method::GET, path: &path, body: None, etag: None, token };
        let user: WireUser = read(&ask_once(&self.api, call).await?.body)?;
        Ok(GithubUser { id: user.id, login: user.login })
    }
}
