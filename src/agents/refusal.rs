//! How the gateway refuses a request to a model: in the form in which each agent ends at once and shows
//! the gateway's words.
//!
//! Measured with claude 2.1.332 and 2.1.197 and codex 0.171.0: claude ends after one request at 402,
//! 403 and whatever has `x-should-retry: false`; it repeats 401 for three minutes and 400 six times.
//! codex ends after one request at 400, and repeats all other statuses.

use serde_json::{Value, json};

use crate::types::Money;

/// The form of a model's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiForm {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Responses API.
    Responses,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// A budget is used up.
    Budget {
        /// Whose it is, such as `this issue`.
        of: String,
        /// What was spent of it.
        spent: Money,
        /// The budget.
        limit: Money,
    },
    /// The model is not allowed here.
    Model(String),
    /// A tool that the model's provider runs is not allowed here.
    ServerTool(String),
    /// There is no run in progress in the sandbox.
    NoRun,
    /// The model asks to wait longer than a process should.
    Wait {
        /// Until when, for people, such as `14:05 UTC`.
        until: String,
    },
    /// The model does not answer, or not in time.
    Away {
        /// What was seen, for people.
        words: String,
    },
    /// The body is larger than this many bytes.
    TooLarge {
        /// The limit, in bytes.
        max: u64,
    },
    /// The body is not what the API takes.
    Malformed {
        /// What is wrong with it.
        words: String,
    },
    /// The gateway has no such route.
    NoRoute,
    /// The route takes another method.
    Method,
}

/// An answer of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRefusal {
    /// The HTTP status.
    pub status: u16,
    /// Headers besides `content-type: application/json`.
    pub headers: &'static [(&'static str, &'static str)],
    /// The body.
    pub body: Value,
}

impl RefusalCause {
    /// The cause in a sentence, for people. It reaches them by way of the agent.
    pub fn words(&self) -> String {
        match self {
            Self::Budget { of, spent, limit } => {
                format!("Budget of {of} is used up: {spent} of {limit}; an operator can raise it")
            }
            Self::Model(model) => format!("The model {model} is not allowed here"),
            Self::ServerTool(tool) => format!("The tool {tool} is not allowed here"),
            Self::NoRun => "No run is in progress in this sandbox".to_owned(),
            Self::Wait { until } => format!("The model asks to wait until {until}"),
            Self::Away { words } => format!("The model does not answer: {words}"),
            Self::TooLarge { max } => {
                format!("The request is larger than {} MiB", max / (1024 * 1024))
            }
            Self::Malformed { words } => format!("The request cannot be read: {words}"),
            Self::NoRoute => "The gateway has no such route".to_owned(),
            Self::Method => "The gateway's routes take POST".to_owned(),
        }
    }
}

/// Whether an agent's last words are those of a refusal for a budget. For agents that show no status.
pub fn is_about_budget(words: &str) -> bool {
    words.split_once("Budget of ").is_some_and(|(_, rest)| rest.contains(" is used up: "))
}

/// Whether an agent's last words are those of a refusal that ends by itself: the model was away or asked
/// to wait. For agents that must be refused with a status that says otherwise.
pub fn is_about_waiting(words: &str) -> bool {
    words.contains("The model asks to wait until ") || words.contains("The model does not answer: ")
}

/// The answer that makes an agent end at once and show why.
pub fn refusal(form: ApiForm, cause: &RefusalCause) -> ApiRefusal {
    match form {
        ApiForm::Messages => messages_refusal(cause),
        ApiForm::Responses => responses_refusal(cause),
    }
}

fn messages_refusal(cause: &RefusalCause) -> ApiRefusal {
    let (status, kind) = match cause {
        RefusalCause::Budget { .. } => (402, "billing_error"),
        RefusalCause::Model(_) | RefusalCause::ServerTool(_) | RefusalCause::NoRun => {
            (403, "permission_error")
        }
        RefusalCause::Wait { .. } => (429, "rate_limit_error"),
        RefusalCause::Away { .. } => (529, "overloaded_error"),
        RefusalCause::TooLarge { .. } => (413, "request_too_large"),
        RefusalCause::Malformed { .. } => (400, "invalid_request_error"),
        RefusalCause::NoRoute => (404, "not_found_error"),
        RefusalCause::Method => (405, "invalid_request_error"),
    };
    let error = json!({ "type": kind, "message": cause.words() });
    ApiRefusal {
        status,
        headers: &[("x-should-retry", "false")],
        body: json!({ "type": "error", "error": error }),
    }
}

fn responses_refusal(cause: &RefusalCause) -> ApiRefusal {
    let (status, code) = match cause {
        RefusalCause::Budget { .. } => (400, "budget_used_up"),
        RefusalCause::Model(_) => (400, "model_not_allowed"),
        RefusalCause::ServerTool(_) => (400, "tool_not_allowed"),
        RefusalCause::NoRun => (400, "no_run"),
        RefusalCause::Wait { .. } => (400, "model_asks_to_wait"),
        RefusalCause::Away { .. } => (400, "model_away"),
        RefusalCause::TooLarge { .. } => (413, "request_too_large"),
        RefusalCause::Malformed { .. } => (400, "malformed"),
        RefusalCause::NoRoute => (404, "not_found"),
        RefusalCause::Method => (405, "method_not_allowed"),
    };
    let error = json!({ "type": "invalid_request_error", "code": code, "message": cause.words() });
    ApiRefusal { status, headers: &[], body: json!({ "error": error }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> RefusalCause {
        let money = |dollars| Money::from_dollars(dollars).expect("an amount");
        RefusalCause::Budget { of: "this issue".into(), spent: money(0.15), limit: money(0.2) }
    }

    #[test]
    fn a_budget_is_refused_in_each_form_that_ends_at_once() {
        let words = "Budget of this issue is used up: $0.15 of $0.20; an operator can raise it";
        assert_eq!(
            refusal(ApiForm::Messages, &budget()),
            ApiRefusal {
                status: 402,
                headers: &[("x-should-retry", "false")],
                body: json!({ "type": "error",
                    "error": { "type": "billing_error", "message": words } }),
            }
        );
        let responses = refusal(ApiForm::Responses, &budget());
        assert_eq!((responses.status, responses.headers.len()), (400, 0));
        assert_eq!(responses.body["error"]["message"], words);
        assert_eq!(responses.body["error"]["type"], "invalid_request_error");
        assert!(is_about_budget(words) && !is_about_budget("a budget is used up"));
    }

    #[test]
    fn a_model_that_is_not_allowed_is_403_with_its_name() {
        let refused = refusal(ApiForm::Messages, &RefusalCause::Model("claude-x".into()));
        assert_eq!(refused.status, 403);
        assert_eq!(refused.body["error"]["message"], "The model claude-x is not allowed here");
    }

    #[test]
    fn what_passes_by_itself_is_known_by_its_words() {
        let wait = RefusalCause::Wait { until: "14:05 UTC".into() };
        let away = RefusalCause::Away { words: "timed out".into() };
        assert!([&wait, &away].iter().all(|cause| is_about_waiting(&cause.words())));
        assert!(!is_about_waiting(&budget().words()));
    }
}
