//! Registers the server as a GitHub App: what is asked before there are credentials.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hyper::Method;
use serde::Deserialize;

use crate::clock::Clock;
use crate::types::Secret;

use super::super::api::GitHubError;
use super::super::registration::{AppRegistration, NewApp, ProvenApp};
use super::ClientError;
use super::answers::{AnswerVerdict, judge};
use super::jwt::AppKey;
use super::reads::segment;
use super::transport::{HttpAnswer, HttpCall, Transport};
use super::wire::read;

/// The pause after a limit of which GitHub does not say when it ends.
const LIMIT_PAUSE: Duration = Duration::from_secs(60);

/// GitHub for a server without credentials.
pub struct AppRegistrar {
    transport: Transport,
}

#[derive(Deserialize)]
struct WireNamedApp {
    id: u64,
    slug: String,
    html_url: String,
}

/// Of the credentials only those that are needed: the client's secret is not even read.
#[derive(Deserialize)]
struct WireNewApp {
    #[serde(flatten)]
    app: WireNamedApp,
    pem: String,
    webhook_secret: Option<String>,
}

impl From<WireNamedApp> for ProvenApp {
    fn from(WireNamedApp { id, slug, html_url }: WireNamedApp) -> Self {
        Self { id, slug, html_url }
    }
}

/// Makes a call that is repeated never and follows no redirect.
pub(super) async fn ask_once(
    transport: &Transport,
    call: HttpCall<'_>,
) -> Result<HttpAnswer, GitHubError> {
    let (answer, clock) = (transport.send(call).await?, &transport.clock);
    match judge(&answer, clock) {
        AnswerVerdict::Fine => Ok(answer),
        AnswerVerdict::Unchanged | AnswerVerdict::Redirect(_) => {
            let words = "GitHub redirects to another address".to_owned();
            Err(GitHubError::Refused { status: answer.status, words })
        }
        AnswerVerdict::Unauthorized(words) => Err(GitHubError::Unauthorized(words)),
        AnswerVerdict::Limit(until) => {
            let until = until.unwrap_or_else(|| clock.ours().after(LIMIT_PAUSE));
            Err(GitHubError::Limited { until })
        }
        AnswerVerdict::Error(error) => Err(error),
    }
}

impl AppRegistrar {
    /// At the GitHub with this REST base. Needs a runtime, which then serves it.
    ///
    /// # Errors
    /// [`ClientError::Address`] if the address cannot be used.
    pub fn new(api_url: &str, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        Ok(Self { transport: Transport::new(api_url, clock)? })
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        token: Option<&Secret>,
    ) -> Result<HttpAnswer, GitHubError> {
        let path = self.transport.path(path);
        let call = HttpCall { method, path: &path, body: None, etag: None, token };
        ask_once(&self.transport, call).await
    }

    async fn own_app(&self, id: u64, key: &AppKey) -> Result<HttpAnswer, GitHubError> {
        let now = self.transport.clock.now();
        let token = key.sign(id, now).map_err(GitHubError::Unauthorized)?;
        self.call(Method::GET, "/app", Some(&token)).await
    }
}

#[async_trait]
impl AppRegistration for AppRegistrar {
    async fn convert(&self, code: &str) -> Result<NewApp, GitHubError> {
        let path = format!("/app-manifests/{}/conversions", segment(code));
        let answer = self.call(Method::POST, &path, None).await?;
        let WireNewApp { app, pem, webhook_secret } = read(&answer.body)?;
        let webhook_secret = webhook_secret.filter(|secret| !secret.is_empty()).map(Secret::new);
        Ok(NewApp { app: app.into(), key: Secret::new(pem), webhook_secret })
    }

    async fn prove(&self, id: u64, key: &Secret) -> Result<ProvenApp, GitHubError> {
        let key = AppKey::from_pem(key)
            .map_err(|why| GitHubError::Unauthorized(format!("the key {why}")))?;
        let answer = match self.own_app(id, &key).await {
            // The first answer has GitHub's clock, by which the second token is made.
            Err(GitHubError::Unauthorized(_)) => self.own_app(id, &key).await?,
            answer => answer?,
        };
        Ok(read::<WireNamedApp>(&answer.body)?.into())
    }
}
