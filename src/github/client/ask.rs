//! One call with all that belongs to it: its token, its limits, redirects, and what the answer means.

use hyper::Method;
use serde_json::Value;

use crate::types::{IssueNumber, Timestamp};

use super::super::api::{GitHubError, RepositoryTarget};
use super::GitHubClient;
use super::answers::{AnswerVerdict, judge};
use super::credentials::CallAuth;
use super::limits::LimitKey;
use super::transport::{HttpAnswer, HttpCall};

/// The pause of an identity whose credentials are not accepted.
const UNAUTHORIZED_PAUSE: std::time::Duration = std::time::Duration::from_secs(60);

/// What limits a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallClass {
    /// It has a turn of the write queue.
    Write,
    /// A person or an effect waits for what it reads.
    Read,
    /// Another call waits for it, maybe in the last place for reading.
    Inner,
    /// It stands back where little of the hourly limit is left.
    Background,
}

/// A call.
pub(super) struct Ask<'a> {
    /// The word for metrics.
    pub kind: &'static str,
    pub method: Method,
    /// Path and query, with the REST base's path.
    pub path: String,
    pub body: Option<Value>,
    pub etag: Option<&'a str>,
    pub auth: CallAuth,
    /// The repository in the path.
    pub target: Option<&'a RepositoryTarget>,
    pub class: CallClass,
}

impl Ask<'_> {
    /// A call that reads, about no repository.
    pub const fn new(kind: &'static str, method: Method, path: String, auth: CallAuth) -> Self {
        let class = CallClass::Read;
        Self { kind, method, path, body: None, etag: None, auth, target: None, class }
    }
}

impl GitHubClient {
    /// Makes a call whose path is below the REST base. An answer is 2xx or 304.
    pub(super) async fn ask(&self, mut ask: Ask<'_>) -> Result<HttpAnswer, GitHubError> {
        ask.path = self.transport.path(&ask.path);
        self.ask_path(ask).await
    }

    /// Makes a call whose path is whole: a page that an answer named, or GraphQL.
    pub(super) async fn ask_path(&self, ask: Ask<'_>) -> Result<HttpAnswer, GitHubError> {
        let kind = ask.kind;
        let asked = self.ask_uncounted(ask).await;
        let result = match &asked {
            Ok(answer) if answer.status == 304 => "unchanged",
            Ok(_) => "done",
            Err(error) => error.as_str(),
        };
        self.counts.add(kind, result);
        asked
    }

    async fn ask_uncounted(&self, ask: Ask<'_>) -> Result<HttpAnswer, GitHubError> {
        let key = ask.auth.limit_key();
        let clock = &self.transport.clock;
        let is_background = ask.class == CallClass::Background;
        // Also with a turn: the rest may have begun since it was given out.
        self.reads.check(key, is_background, clock.ours())?;
        let mut secret = self.secret(&ask.auth).await?;
        let _place = match ask.class {
            CallClass::Write | CallClass::Inner => None,
            CallClass::Read | CallClass::Background => {
                Some(self.reads.enter(key, is_background, clock).await?)
            }
        };
        let mut path = ask.path.clone();
        let (mut is_redirected, mut is_renewed) = (false, false);
        loop {
            let call = HttpCall {
                method: ask.method.clone(),
                path: &path,
                body: ask.body.as_ref(),
                etag: ask.etag,
                token: secret.as_ref(),
            };
            let answer = self.transport.send(call).await?;
            if let Some(until) = self.reads.note(key, &answer, clock) {
                self.rest(key, Some(until)).await;
            }
            match judge(&answer, clock) {
                AnswerVerdict::Fine | AnswerVerdict::Unchanged => {
                    if let (CallClass::Write, LimitKey::Writer(writer)) = (ask.class, key) {
                        self.queues.went_well(writer);
                    }
                    return Ok(answer);
                }
                AnswerVerdict::Redirect(location) if !is_redirected => {
                    is_redirected = true;
                    path = self.elsewhere(&ask, &location, answer.status)?;
                }
                AnswerVerdict::Redirect(_) => {
                    let words = "GitHub redirects in a circle".to_owned();
                    return Err(GitHubError::Refused { status: answer.status, words });
                }
                AnswerVerdict::Unauthorized(words) => {
                    if is_renewed || !self.forget_secret(&ask.auth, secret.as_ref()).await {
                        if ask.class == CallClass::Write {
                            self.rest(key, Some(clock.ours().after(UNAUTHORIZED_PAUSE))).await;
                        }
                        return Err(GitHubError::Unauthorized(words));
                    }
                    is_renewed = true;
                    secret = self.secret(&ask.auth).await?;
                }
                AnswerVerdict::Limit(until) => {
                    return Err(GitHubError::Limited { until: self.rest(key, until).await });
                }
                AnswerVerdict::Error(error) => return Err(error),
            }
        }
    }

    /// All calls of an identity rest. Returns until when, by our clock.
    async fn rest(&self, key: LimitKey, until: Option<Timestamp>) -> Timestamp {
        let until = match key {
            LimitKey::Writer(writer) => Some(self.queues.rest(writer, until).await),
            LimitKey::App | LimitKey::Anonymous => until,
        };
        self.reads.rest(key, until, self.transport.clock.ours())
    }

    /// Where a redirect leads: to the same of the same repository, by its id. Anything else is for
    /// the caller to decide.
    fn elsewhere(&self, ask: &Ask<'_>, location: &str, status: u16) -> Result<String, GitHubError> {
        let refused = || GitHubError::Refused {
            status,
            words: "GitHub redirects to an address that is not its API's".to_owned(),
        };
        let path = self.transport.path_of(location).ok_or_else(refused)?;
        let by_id =
            self.transport.below(path).strip_prefix("/repositories/").ok_or_else(refused)?;
        let (id, rest) = by_id.split_once(['/', '?']).unwrap_or((by_id, ""));
        let repository_id: u64 = id.parse().map_err(|_| refused())?;
        let asked = self.transport.below(&ask.path);
        let asked_rest = asked.splitn(5, '/').nth(4).unwrap_or_default();
        let without_query = |text: &str| text.split('?').next().unwrap_or_default().to_owned();
        let is_the_same = without_query(rest) == without_query(asked_rest);
        let known_id = ask.target.and_then(|target| target.id);
        if !is_the_same || known_id.is_some_and(|known| known != repository_id) {
            let mut parts = rest.split(['/', '?']);
            let number = match parts.next() {
                Some("issues") => parts.next().and_then(|number| number.parse().ok()),
                Some(_) | None => None,
            };
            return Err(GitHubError::Moved { repository_id, number: number.map(IssueNumber) });
        }
        // GitHub leaves the query out of some redirects.
        Ok(match (path.contains('?'), ask.path.split_once('?')) {
            (false, Some((_, query))) => format!("{path}?{query}"),
            _ => path.to_owned(),
        })
    }
}
