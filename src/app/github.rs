//! GitHub's client, built from the configuration.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use crate::clock::Clock;
use crate::config::{Config, GitHub, GitHubLogin, PeopleLogin};
use crate::github::api::{GitHubWriter, WritePace};
use crate::github::client::{AppClient, AppSignIn, ClientError, GitHubClient, GitHubCredentials};
use crate::github::policy::OwnAccount;

/// The pause after GitHub did not say who we are.
const IDENTITY_PAUSE: Duration = Duration::from_secs(60);

/// The client, if there are credentials. Needs a runtime, which then serves it.
pub(super) fn open(
    config: &GitHub,
    clock: &Arc<dyn Clock>,
    pace: Arc<dyn WritePace>,
) -> Result<Option<Arc<GitHubClient>>, ClientError> {
    let Some(login) = &config.login else { return Ok(None) };
    let credentials = credentials(login)?;
    let client = GitHubClient::new(&config.api_url, credentials, Arc::clone(clock), pace)?;
    Ok(Some(Arc::new(client)))
}

fn credentials(login: &GitHubLogin) -> Result<GitHubCredentials, ClientError> {
    match login {
        GitHubLogin::App { id, key } => GitHubCredentials::app(*id, key),
        GitHubLogin::Token(token) => Ok(GitHubCredentials::Token(token.clone())),
    }
}

/// Where people log in with GitHub. Needs a runtime, which then serves it.
pub(super) fn open_sign_in(
    config: &Config,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Arc<AppSignIn>>, ClientError> {
    let Some(people) = &config.auth.github else { return Ok(None) };
    let GitHub { web_url, api_url, .. } = &config.github;
    Ok(Some(Arc::new(AppSignIn::new(web_url, api_url, client_of(people), clock)?)))
}

/// The client of the App with which people log in.
pub(super) fn client_of(people: &PeopleLogin) -> AppClient {
    AppClient { id: people.client_id.clone(), secret: people.client_secret.clone() }
}

/// Replaces the credentials of a running client.
#[derive(Default)]
pub(super) struct ReloadGitHub {
    /// The client, and the runtime that serves it.
    client: Option<(Arc<GitHubClient>, tokio::runtime::Handle)>,
}

impl ReloadGitHub {
    /// Of this client, if there is one.
    pub fn of(client: Option<&Arc<GitHubClient>>, io: &tokio::runtime::Handle) -> Self {
        Self { client: client.map(|client| (Arc::clone(client), io.clone())) }
    }

    /// Takes other credentials over; `false` if that needs a new start, because there were none or
    /// are none any more.
    ///
    /// # Errors
    /// If the App's key cannot be used.
    pub fn take_over(&self, config: &GitHub) -> anyhow::Result<bool> {
        let (Some((client, io)), Some(login)) = (&self.client, &config.login) else {
            return Ok(false);
        };
        let credentials = credentials(login).context("cannot use the new ones")?;
        io.block_on(client.replace_credentials(credentials));
        Ok(true)
    }
}

/// Asks GitHub who we are until it says so. What our own account does never triggers.
pub(super) async fn learn_own_account(client: Arc<GitHubClient>, own: OwnAccount) {
    loop {
        match client.identity().await {
            Ok(identity) => {
                tracing::info!(
                    login = identity.login,
                    user = identity.user_id,
                    "our GitHub account"
                );
                return own.set(identity.user_id);
            }
            Err(error) => tracing::error!(%error, "cannot ask GitHub who we are; asking again"),
        }
        tokio::time::sleep(IDENTITY_PAUSE).await;
    }
}
