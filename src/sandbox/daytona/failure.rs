//! Why a call of Daytona's API failed, and what that means for the port.

use std::time::Duration;

use serde_json::Value;

use crate::sandbox::ProviderError;
use crate::types::{Secret, beginning, inert};

/// Longest text of Daytona's in a message of ours, in characters.
const MESSAGE_LEN_MAX: usize = 300;

/// Why there is no answer of the usual kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallFailure {
    /// Daytona said no.
    Status {
        status: u16,
        /// What it says, for people; without the key.
        message: String,
        retry_after: Option<Duration>,
    },
    /// There was no answer, or none that can be understood. What was asked may have happened.
    NoAnswer(String),
}

impl CallFailure {
    /// Reads an answer that is no success.
    pub fn read(status: u16, retry_after: Option<&str>, body: &[u8], key: &Secret) -> Self {
        // A date is as good as nothing said: nothing waits for long anyway.
        let retry_after = retry_after.and_then(|text| text.trim().parse().ok());
        Self::Status {
            status,
            message: message_of(body, key),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    /// Whether there is no such thing.
    pub const fn is_absence(&self) -> bool {
        matches!(self, Self::Status { status: 404, .. })
    }

    /// Whether it is not allowed.
    pub const fn is_forbidden(&self) -> bool {
        matches!(self, Self::Status { status: 403, .. })
    }

    /// Whether it may be that a change is under way, so that asking again later helps.
    pub const fn may_be_conflict(&self) -> bool {
        matches!(self, Self::Status { status: 400 | 409 | 423, .. })
    }

    /// For a look: what cannot be seen is unavailable, whatever the reason.
    pub fn of_look(self) -> ProviderError {
        match self.of_change() {
            ProviderError::Refused(message) => ProviderError::unavailable(message),
            other => other,
        }
    }

    /// For a change.
    pub fn of_change(self) -> ProviderError {
        let (status, message, retry_after) = match self {
            Self::NoAnswer(message) => return ProviderError::unavailable(message),
            Self::Status { status, message, retry_after } => (status, message, retry_after),
        };
        let message = format!("Daytona answered {status}: {message}");
        match status {
            429 => ProviderError::Exhausted {
                what: "Daytona's limit on requests is reached; it goes on by itself".into(),
                retry_after,
            },
            401 => ProviderError::unavailable(
                "Daytona does not accept the API key; write a valid one into \
                 providers.daytona.key_file and restart the server",
            ),
            404 => ProviderError::Absent,
            400..=403 | 409 if is_quota(status, &message) => {
                ProviderError::Exhausted { what: message, retry_after }
            }
            400 | 402 | 403 | 409 | 413 | 422 => ProviderError::Refused(message),
            _ => ProviderError::Unavailable { message, retry_after },
        }
    }

    /// In words, for people.
    pub fn words(&self) -> String {
        match self {
            Self::NoAnswer(message) => message.clone(),
            Self::Status { status, message, .. } => format!("Daytona answered {status}: {message}"),
        }
    }
}

/// Whether a refusal is about how much the organization may use.
fn is_quota(status: u16, message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    status == 402
        || ["quota", "limit exceeded", "limit reached", "no available runners"]
            .iter()
            .any(|words| message.contains(words))
}

/// The `message` of an error, which is a text or a list of texts; or the beginning of the body.
fn message_of(body: &[u8], key: &Secret) -> String {
    let text = match serde_json::from_slice(body) {
        Ok(Value::Object(error)) => match error.get("message").or(error.get("error")) {
            Some(Value::String(message)) => message.clone(),
            Some(Value::Array(messages)) => {
                messages.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ")
            }
            Some(_) | None => String::new(),
        },
        Ok(_) | Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let text = text.replace(key.expose(), "***");
    let text = beginning(inert(text.trim()).as_ref(), MESSAGE_LEN_MAX);
    if text.is_empty() { "it gives no reason".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, body: &str) -> CallFailure {
        CallFailure::read(status, Some("7"), body.as_bytes(), &Secret::new("dtn_key"))
    }

    #[test]
    fn each_status_has_its_meaning() {
        let retry_after = Some(Duration::from_secs(7));
        let body = r#"{"message": "so it is", "statusCode": 1}"#;
        let words = |status: u16| format!("Daytona answered {status}: so it is");
        for status in [400, 403, 409, 422] {
            let refused = ProviderError::Refused(words(status));
            assert_eq!(failure(status, body).of_change(), refused);
            let look = failure(status, body).of_look();
            assert_eq!(look, ProviderError::unavailable(words(status)));
        }
        for status in [302, 408, 500, 502, 503] {
            let message = words(status);
            let unavailable = ProviderError::Unavailable { message, retry_after };
            assert_eq!(failure(status, body).of_change(), unavailable);
        }
        assert_eq!(failure(404, body).of_change(), ProviderError::Absent);
        let limited = failure(429, body).of_look();
        assert!(matches!(limited, ProviderError::Exhausted { retry_after: Some(_), .. }));
        let quota = r#"{"message": ["Total CPU quota exceeded", "Maximum allowed: 10"]}"#;
        let what = "Daytona answered 403: Total CPU quota exceeded; Maximum allowed: 10".into();
        let exhausted = ProviderError::Exhausted { what, retry_after };
        assert_eq!(failure(403, quota).of_change(), exhausted);
        let key = failure(401, body).of_change();
        assert!(matches!(key, ProviderError::Unavailable { .. }), "{key:?}");
    }

    #[test]
    fn a_message_holds_no_key_and_no_control_characters() {
        let words = failure(400, "{\"message\": \"dtn_key is \\u001b[31mwrong\"}").words();
        assert_eq!(words, "Daytona answered 400: *** is \\u{1b}[31mwrong");
        assert_eq!(failure(500, "").words(), "Daytona answered 500: it gives no reason");
        assert!(failure(500, &"x".repeat(9_000)).words().len() < 400);
    }
}
