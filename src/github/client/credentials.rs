//! Our credentials, and the token that a call gets.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::Method;
use serde_json::json;

use crate::types::{Secret, Timestamp};

use super::super::api::{GitHubError, HeldReason, RepositoryTarget, WriterId};
use super::answers::{AnswerVerdict, judge};
use super::ask::{Ask, CallClass};
use super::jwt::AppKey;
use super::limits::LimitKey;
use super::tokens::{Minted, TokenKey, TokenPurpose};
use super::wire::{WireToken, read};
use super::{ClientError, GitHubClient, INSTALLATIONS_MAX};

/// How long a JSON web token is used. It is valid for 9 minutes.
const JWT_KEPT: Duration = Duration::from_secs(8 * 60);

/// How we authenticate.
#[derive(Debug)]
pub enum GitHubCredentials {
    /// As a GitHub App.
    App(Box<AppCredentials>),
    /// As the user of a token.
    Token(Secret),
}

/// An App's id and key.
#[derive(Debug)]
pub struct AppCredentials {
    id: u64,
    key: AppKey,
    /// The last JSON web token, when it was signed by GitHub's clock, and how far that was ahead.
    jwt: Mutex<Option<(Secret, Timestamp, i64)>>,
}

impl GitHubCredentials {
    /// Those of an App: its id and private key in PEM.
    ///
    /// # Errors
    /// [`ClientError::Key`] if the key cannot be read.
    pub fn app(id: u64, pem: &Secret) -> Result<Self, ClientError> {
        let key = AppKey::from_pem(pem).map_err(ClientError::Key)?;
        Ok(Self::App(Box::new(AppCredentials { id, key, jwt: Mutex::default() })))
    }
}

/// What a call is authenticated by.
#[derive(Clone, Debug)]
pub(super) enum CallAuth {
    Anonymous,
    /// The App itself.
    Jwt,
    /// A token of an installation.
    Installation(TokenKey),
    /// The configured token.
    Token,
}

impl CallAuth {
    /// Whom GitHub counts the call for.
    pub const fn limit_key(&self) -> LimitKey {
        match self {
            Self::Anonymous => LimitKey::Anonymous,
            Self::Jwt => LimitKey::App,
            Self::Installation(key) => LimitKey::Writer(WriterId::Installation(key.installation)),
            Self::Token => LimitKey::Writer(WriterId::TokenUser),
        }
    }
}

impl GitHubClient {
    /// The App itself, or the token's user.
    pub(super) fn own_auth(&self) -> CallAuth {
        match *self.credentials() {
            GitHubCredentials::App(_) => CallAuth::Jwt,
            GitHubCredentials::Token(_) => CallAuth::Token,
        }
    }

    /// How calls about a repository are authenticated.
    pub(super) async fn auth(
        &self,
        target: &RepositoryTarget,
        purpose: TokenPurpose,
    ) -> Result<CallAuth, GitHubError> {
        Ok(match self.writer(target).await? {
            WriterId::TokenUser => CallAuth::Token,
            WriterId::Installation(installation) => {
                CallAuth::Installation(TokenKey { installation, purpose, repositories: Vec::new() })
            }
        })
    }

    /// The identity that acts in a repository.
    pub(super) async fn writer(&self, target: &RepositoryTarget) -> Result<WriterId, GitHubError> {
        if let GitHubCredentials::Token(_) = *self.credentials() {
            return Ok(WriterId::TokenUser);
        }
        if let Some(id) = target.installation {
            return Ok(WriterId::Installation(id));
        }
        let folded = target.name.folded();
        let known = self.installations().get(&folded).copied();
        if let Some(id) = known {
            return Ok(WriterId::Installation(id));
        }
        let found = self.look_up_installation(target).await.map_err(|error| match error {
            GitHubError::NotFound(_) => uninstalled(format!("the App is not on {}", target.name)),
            other => other,
        })?;
        let mut installations = self.installations();
        if installations.len() >= INSTALLATIONS_MAX {
            installations.clear();
        }
        installations.insert(folded, found.id);
        Ok(WriterId::Installation(found.id))
    }

    fn installations(&self) -> std::sync::MutexGuard<'_, std::collections::HashMap<String, u64>> {
        self.installations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The secret of a call. Boxed: minting one is a call itself.
    pub(super) fn secret<'a>(
        &'a self,
        auth: &'a CallAuth,
    ) -> BoxFuture<'a, Result<Option<Secret>, GitHubError>> {
        Box::pin(async move {
            let credentials = self.credentials();
            match (auth, credentials.as_ref()) {
                (CallAuth::Anonymous, _) => Ok(None),
                (CallAuth::Token, GitHubCredentials::Token(token)) => Ok(Some(token.clone())),
                (CallAuth::Jwt, GitHubCredentials::App(app)) => self.jwt(app).map(Some),
                (CallAuth::Installation(key), GitHubCredentials::App(_)) => {
                    let now = self.transport.clock.now();
                    self.tokens.get(key, now, self.mint(key)).await.map(Some)
                }
                // The credentials were replaced in between.
                (CallAuth::Token | CallAuth::Jwt | CallAuth::Installation(_), _) => {
                    Err(GitHubError::Unreachable("the credentials are being replaced".to_owned()))
                }
            }
        })
    }

    /// Drops the secret that GitHub did not accept. Returns whether there can be another.
    pub(super) async fn forget_secret(&self, auth: &CallAuth, secret: Option<&Secret>) -> bool {
        match (auth, self.credentials().as_ref(), secret) {
            (CallAuth::Jwt, GitHubCredentials::App(app), _) => {
                *app.jwt.lock().unwrap_or_else(PoisonError::into_inner) = None;
                true
            }
            (CallAuth::Installation(key), _, Some(secret)) => {
                self.tokens.forget(key, secret).await;
                true
            }
            _ => false,
        }
    }

    fn jwt(&self, app: &AppCredentials) -> Result<Secret, GitHubError> {
        let (now, ahead) = (self.transport.clock.now(), self.transport.clock.ahead_ms());
        let mut kept = app.jwt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((jwt, signed_at, then_ahead)) = kept.as_ref() {
            // GitHub's clock may have turned out to be another since.
            let is_fresh = now >= *signed_at && now.since(*signed_at) < JWT_KEPT;
            if is_fresh && (ahead - then_ahead).abs() < 30_000 {
                return Ok(jwt.clone());
            }
        }
        let jwt = app.key.sign(app.id, now).map_err(GitHubError::Unauthorized)?;
        *kept = Some((jwt.clone(), now, ahead));
        Ok(jwt)
    }

    /// Has GitHub make a token with the permissions of its purpose, and no more.
    async fn mint(&self, key: &TokenKey) -> Result<Minted, GitHubError> {
        let permissions: serde_json::Map<_, _> = key
            .purpose
            .permissions()
            .iter()
            .map(|(name, level)| ((*name).to_owned(), json!(level)))
            .collect();
        let mut body = json!({"permissions": permissions});
        if !key.repositories.is_empty() {
            body["repository_ids"] = json!(key.repositories);
        }
        let path = format!("/app/installations/{}/access_tokens", key.installation);
        let ask = Ask {
            body: Some(body),
            class: CallClass::Inner,
            ..Ask::new("mint", Method::POST, path, CallAuth::Jwt)
        };
        match self.ask(ask).await {
            Ok(answer) => {
                let wire: WireToken = read(&answer.body)?;
                let expires_at = Timestamp::parse(&wire.expires_at)
                    .ok_or_else(|| GitHubError::Unknown("a token without an end".to_owned()))?;
                Ok(Minted { token: Secret::new(wire.token), expires_at })
            }
            Err(GitHubError::NotFound(words)) => {
                self.installations().retain(|_, id| *id != key.installation);
                match self.installation(key.installation).await {
                    Err(GitHubError::NotFound(_)) => Err(uninstalled(words)),
                    Err(error) => Err(error),
                    Ok(_) => Err(GitHubError::NotFound(words)),
                }
            }
            Err(GitHubError::Refused { status: 422, words })
                if words.contains("not accessible") =>
            {
                Err(GitHubError::NotFound(words))
            }
            // GitHub does not narrow a token to what the installation does not have.
            Err(GitHubError::Refused { status: 422, words }) => {
                Err(GitHubError::Held { reason: HeldReason::Permission(None), words })
            }
            Err(error) => Err(error),
        }
    }

    /// Revokes a token. The outcome is counted, and nothing else.
    pub(super) async fn revoke_token(&self, token: &Secret) {
        let path = self.transport.path("/installation/token");
        let call = super::transport::HttpCall {
            method: Method::DELETE,
            path: &path,
            body: None,
            etag: None,
            token: Some(token),
        };
        let result = match self.transport.send(call).await {
            Ok(answer) => match judge(&answer, &self.transport.clock) {
                AnswerVerdict::Fine => "done",
                _ => "refused",
            },
            Err(error) => error.as_str(),
        };
        self.counts.add("revoke", result);
    }
}

fn uninstalled(words: String) -> GitHubError {
    GitHubError::Held { reason: HeldReason::Uninstalled, words }
}
