//! What an answer of GitHub means: the table at [`GitHubError`], as a pure function.

use std::time::Duration;

use serde::Deserialize;

use crate::types::{Timestamp, inert};

use super::super::api::{GitHubError, HeldReason};
use super::github_clock::{GitHubClock, http_date};
use super::transport::HttpAnswer;

/// Longest text of GitHub's that is kept, in characters.
const WORDS_MAX: usize = 300;

/// What an answer means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerVerdict {
    /// It was done.
    Fine,
    /// 304: as the ETag says.
    Unchanged,
    /// It is elsewhere: the `Location`.
    Redirect(String),
    /// The credentials are not accepted.
    Unauthorized(String),
    /// A limit, until this time by our clock; `None` if GitHub named none.
    Limit(Option<Timestamp>),
    /// Anything else.
    Error(GitHubError),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireRefusal {
    message: String,
    errors: Vec<serde_json::Value>,
}

/// Reads an answer.
pub(super) fn judge(answer: &HttpAnswer, clock: &GitHubClock) -> AnswerVerdict {
    let words = words_of(answer);
    match answer.status {
        200..=299 => AnswerVerdict::Fine,
        304 => AnswerVerdict::Unchanged,
        301 | 302 | 307 | 308 => {
            AnswerVerdict::Redirect(answer.header("location").unwrap_or_default().to_owned())
        }
        401 => AnswerVerdict::Unauthorized(words),
        403 | 429 => forbidden(answer, words, clock),
        404 => AnswerVerdict::Error(GitHubError::NotFound(words)),
        410 => AnswerVerdict::Error(GitHubError::Gone(words)),
        422 if words.to_lowercase().contains("already exists") => {
            AnswerVerdict::Error(GitHubError::AlreadyExists(words))
        }
        status @ 400..=499 => AnswerVerdict::Error(GitHubError::Refused { status, words }),
        status => {
            AnswerVerdict::Error(GitHubError::Unknown(format!("GitHub answered {status}: {words}")))
        }
    }
}

/// 403 and 429: a limit, or one of several reasons. The texts are matched loosely; one that is not
/// known is held, and never repeated.
fn forbidden(answer: &HttpAnswer, words: String, clock: &GitHubClock) -> AnswerVerdict {
    if let Some(until) = retry_after(answer, clock) {
        return AnswerVerdict::Limit(Some(until));
    }
    if remaining(answer) == Some(0) {
        return AnswerVerdict::Limit(reset_at(answer, clock));
    }
    let lower = words.to_lowercase();
    let says = |part: &str| lower.contains(part);
    if answer.status == 429 || says("rate limit") || says("abuse") {
        return AnswerVerdict::Limit(None);
    }
    let reason = if says("suspended") {
        HeldReason::Suspended
    } else if says("archived") {
        HeldReason::Archived
    } else if says("locked") {
        HeldReason::Locked
    } else if says("not accessible by") || says("must have") || says("permission") {
        let needed = answer.header("x-accepted-github-permissions");
        HeldReason::Permission(needed.map(shortened))
    } else {
        HeldReason::Other
    };
    AnswerVerdict::Error(GitHubError::Held { reason, words })
}

/// `Retry-After`, in seconds or as a date.
fn retry_after(answer: &HttpAnswer, clock: &GitHubClock) -> Option<Timestamp> {
    let value = answer.header("retry-after")?.trim();
    match value.parse() {
        Ok(seconds) => Some(answer.received_at.after(Duration::from_secs(seconds))),
        Err(_) => http_date(value).map(|date| clock.by_ours(date)),
    }
}

/// How many calls are left in this hour.
pub(super) fn remaining(answer: &HttpAnswer) -> Option<u64> {
    answer.header("x-ratelimit-remaining")?.trim().parse().ok()
}

/// When the hour of the limit ends, by our clock.
pub(super) fn reset_at(answer: &HttpAnswer, clock: &GitHubClock) -> Option<Timestamp> {
    let seconds: i64 = answer.header("x-ratelimit-reset")?.trim().parse().ok()?;
    Some(clock.by_ours(Timestamp::from_unix_ms(seconds.saturating_mul(1_000))))
}

/// GitHub's words of a refusal.
fn words_of(answer: &HttpAnswer) -> String {
    let Ok(refusal) = serde_json::from_slice::<WireRefusal>(&answer.body) else {
        return "no reason was given".to_owned();
    };
    let mut words = refusal.message;
    for error in &refusal.errors {
        let text = error.as_str().or_else(|| error.get("message").and_then(|text| text.as_str()));
        if let Some(text) = text {
            words.push_str(if words.is_empty() { "" } else { ": " });
            words.push_str(text);
        }
    }
    shortened(&words)
}

/// Text from GitHub, safe to print and bounded.
pub(super) fn shortened(text: &str) -> String {
    let text: String = text.chars().take(WORDS_MAX).collect();
    inert(&text).into_owned()
}
