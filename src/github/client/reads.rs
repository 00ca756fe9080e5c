//! How the calls are put together: paths, pages, conditional answers, and who we are.

use hyper::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

use crate::types::Timestamp;

use super::super::api::{
    Conditional, GitHubError, GitHubIdentity, IdentityKind, Installation, PageCursor,
    RepositoryTarget,
};
use super::GitHubClient;
use super::ask::{Ask, CallClass};
use super::credentials::{CallAuth, GitHubCredentials};
use super::pages;
use super::tokens::TokenPurpose;
use super::transport::HttpAnswer;
use super::wire::{WireApp, WireInstallation, WireUser, read};

/// What stands in a path as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The same, and the slashes of branches.
const BRANCH: &AsciiSet = &SEGMENT.remove(b'/');

/// Text as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// A branch in a path: its slashes stay.
pub(super) fn branch_path(branch: &str) -> String {
    utf8_percent_encode(branch, BRANCH).to_string()
}

/// Text as a value of a query.
pub(super) fn query_value(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The path of something in a repository.
pub(super) fn in_repository(target: &RepositoryTarget, below: &str) -> String {
    format!("/repos/{}{below}", target.name)
}

impl GitHubClient {
    /// Reads something of a repository.
    pub(super) async fn read_of(
        &self,
        kind: &'static str,
        target: &RepositoryTarget,
        purpose: TokenPurpose,
        below: &str,
        etag: Option<&str>,
    ) -> Result<HttpAnswer, GitHubError> {
        let auth = self.auth(target, purpose).await?;
        let path = in_repository(target, below);
        let ask = Ask { etag, target: Some(target), ..Ask::new(kind, Method::GET, path, auth) };
        self.ask(ask).await
    }

    /// One page of a list: `first` is the path of the first.
    pub(super) async fn page(
        &self,
        mut ask: Ask<'_>,
        page: &PageCursor,
    ) -> Result<(HttpAnswer, Option<PageCursor>), GitHubError> {
        let answer = match &page.0 {
            None => self.ask(ask).await?,
            // A cursor may come back from a store: it leads nowhere but to this GitHub.
            Some(path) => match self.transport.path_of(path) {
                Some(path) if path.starts_with('/') => {
                    path.clone_into(&mut ask.path);
                    self.ask_path(ask).await?
                }
                _ => {
                    let words = "the page is not one of this GitHub".to_owned();
                    return Err(GitHubError::Refused { status: 0, words });
                }
            },
        };
        let next = pages::next(&self.transport, &answer);
        Ok((answer, next))
    }

    /// Who we are, from GitHub.
    pub(super) async fn ask_identity(&self) -> Result<GitHubIdentity, GitHubError> {
        match *self.credentials() {
            GitHubCredentials::App(_) => {
                let path = "/app".to_owned();
                let answer = self.ask(Ask::new("app", Method::GET, path, CallAuth::Jwt)).await?;
                let app: WireApp = read(&answer.body)?;
                let path = format!("/users/{}%5Bbot%5D", segment(&app.slug));
                let answer =
                    self.ask(Ask::new("user", Method::GET, path, CallAuth::Anonymous)).await?;
                let user: WireUser = read(&answer.body)?;
                Ok(GitHubIdentity {
                    kind: IdentityKind::App(app.id),
                    user_id: user.id,
                    login: user.login,
                    slug: app.slug,
                    token_expires_at: None,
                })
            }
            GitHubCredentials::Token(_) => {
                let path = "/user".to_owned();
                let answer = self.ask(Ask::new("user", Method::GET, path, CallAuth::Token)).await?;
                let user: WireUser = read(&answer.body)?;
                let expires = answer.header("github-authentication-token-expiration");
                Ok(GitHubIdentity {
                    kind: IdentityKind::Token,
                    user_id: user.id,
                    slug: user.login.clone(),
                    login: user.login,
                    token_expires_at: expires.and_then(expiration),
                })
            }
        }
    }

    /// The App's installation on a repository, from GitHub.
    pub(super) async fn look_up_installation(
        &self,
        target: &RepositoryTarget,
    ) -> Result<Installation, GitHubError> {
        let path = in_repository(target, "/installation");
        let ask = Ask {
            target: Some(target),
            class: CallClass::Inner,
            ..Ask::new("installation", Method::GET, path, CallAuth::Jwt)
        };
        Ok(read::<WireInstallation>(&self.ask(ask).await?.body)?.into())
    }

    /// An installation by its id.
    pub(super) async fn installation(&self, id: u64) -> Result<Installation, GitHubError> {
        let path = format!("/app/installations/{id}");
        let ask = Ask {
            class: CallClass::Inner,
            ..Ask::new("installation", Method::GET, path, CallAuth::Jwt)
        };
        Ok(read::<WireInstallation>(&self.ask(ask).await?.body)?.into())
    }
}

/// An answer to a question with an ETag.
pub(super) fn conditional<W: DeserializeOwned, T>(
    answer: &HttpAnswer,
    convert: impl FnOnce(W) -> T,
) -> Result<Conditional<T>, GitHubError> {
    if answer.status == 304 {
        return Ok(Conditional::Unchanged);
    }
    let value = convert(read(&answer.body)?);
    Ok(Conditional::Changed { value, etag: answer.header("etag").map(str::to_owned) })
}

/// A list of an answer.
pub(super) fn list<W: DeserializeOwned, T: From<W>>(body: &[u8]) -> Result<Vec<T>, GitHubError> {
    Ok(read::<Vec<W>>(body)?.into_iter().map(T::from).collect())
}

/// Reads `2026-12-31 10:00:00 UTC` and `2026-12-31 10:00:00 +0000`.
fn expiration(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.trim().split_once(' ')?;
    let (time, zone) = rest.split_once(' ').unwrap_or((rest, "UTC"));
    let zone = if zone == "UTC" { "+00:00" } else { zone };
    Timestamp::parse(&format!("{date}T{time}{zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_token_is_read_in_both_forms() {
        let at = Timestamp::parse("2026-12-31T10:00:00Z");
        assert_eq!(expiration("2026-12-31 10:00:00 UTC"), at);
        assert_eq!(expiration("2026-12-31 12:00:00 +0200"), at);
        assert_eq!(expiration("never"), None);
    }
}
