//! The port by which GitHub says who a person is, and the rule that lets the person in.
//!
//! GitHub's web application flow, as "Generating a user access token for a GitHub App" in GitHub's
//! documentation has it: the browser is led to GitHub, which asks the person and leads it back with a
//! code. The server exchanges the code for a token of the person's, and asks with it who the person is.
//! What the person may do is asked with the server's own credentials.

use async_trait::async_trait;

use super::api::{GitHubApi, GitHubError, RepositoryTarget};
use crate::issue::instruction::GithubUser;
use crate::types::{GrantSubject, LoginGrant, LoginGrants};

/// GitHub, as people log in with it.
#[async_trait]
pub trait GithubSignIn: Send + Sync + 'static {
    /// The address where GitHub asks the person.
    fn authorize_url(&self, ask: &SignInRequest) -> String;

    /// Who the person is with whose code GitHub led the browser back. The code is spent then. The person's
    /// token does not outlive the call.
    ///
    /// # Errors
    /// [`SignInError`].
    async fn person(&self, code: &str, proof: &SignInProof) -> Result<GithubUser, SignInError>;
}

/// What GitHub is asked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInRequest {
    /// Comes back with the code.
    pub state: String,
    /// The base64url of the verifier's SHA-256 (RFC 7636).
    pub challenge: String,
    /// Where GitHub leads the browser back to.
    pub redirect_uri: String,
}

/// What proves that the code is exchanged by who asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInProof {
    /// The verifier of the challenge.
    pub verifier: String,
    /// As in the request.
    pub redirect_uri: String,
}

/// Why it is not known who the person is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// The code was used, has expired, or was never given out.
    #[error("GitHub does not accept the code")]
    Code,
    /// The client id, its secret or the callback URL are not those of the App.
    #[error("GitHub says {0}")]
    Misconfigured(String),
    /// GitHub gave another reason.
    #[error("GitHub says {0}")]
    Refused(String),
    /// GitHub did not answer, or not in its form.
    #[error(transparent)]
    Asked(#[from] GitHubError),
}

/// GitHub did not say whether a rule is about a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error} (asked because of the rule {rule})")]
pub struct GrantDoubt {
    /// The rule.
    pub rule: String,
    /// Why not.
    pub error: GitHubError,
}

/// The first rule that is about this person, with its key; `None` if none is.
///
/// # Errors
/// [`GrantDoubt`]. Later rules do not count then: they may give more than the one in doubt.
pub async fn grant_of(
    grants: &LoginGrants,
    person: &GithubUser,
    api: Option<&dyn GitHubApi>,
) -> Result<Option<(String, LoginGrant)>, GrantDoubt> {
    for (key, grant) in grants.iter() {
        let is_about = is_about(&grant.to, person, api).await;
        if is_about.map_err(|error| GrantDoubt { rule: grant.to_string(), error })? {
            return Ok(Some((key.to_owned(), grant.clone())));
        }
    }
    Ok(None)
}

async fn is_about(
    to: &GrantSubject,
    person: &GithubUser,
    api: Option<&dyn GitHubApi>,
) -> Result<bool, GitHubError> {
    match (to, api) {
        (GrantSubject::UserId(id), _) => Ok(*id == person.id),
        (GrantSubject::User(login), _) => Ok(login.eq_ignore_ascii_case(&person.login)),
        (GrantSubject::Organization(organization), Some(api)) => {
            api.is_member(organization, &person.login).await
        }
        (GrantSubject::Repository { name, permission }, Some(api)) => {
            let target = RepositoryTarget::named(name.clone());
            match api.permission(&target, &person.login).await {
                Ok(held) => Ok(held.user_id == person.id
                    && permission.is_reached_by(&held.permission, &held.role)),
                Err(GitHubError::NotFound(_)) => Ok(false),
                Err(error) => Err(error),
            }
        }
        (GrantSubject::Organization(_) | GrantSubject::Repository { .. }, None) => {
            let words = "the server has no credentials for GitHub".to_owned();
            Err(GitHubError::Unauthorized(words))
        }
    }
}
