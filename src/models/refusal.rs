//! How the gateway refuses: in the form of each API in which its agents end at once and show our words.
//!
//! The forms were measured with the agents. claude ends after one request at 402, 403 and whatever
//! has `x-should-retry: false`; it repeats 401 for minutes and 400 six times. codex ends after one
//! request at 400 and repeats every other status, or waits as long as `retry-after` says.

use serde_json::json;

use super::ModelApi;
use super::budget::BudgetUsedUp;
use crate::types::Timestamp;

/// Longest body of a request, in bytes, as the makers of the models have it.
pub const BODY_LEN_MAX: usize = 32 * 1024 * 1024;

/// Why the gateway answers a request itself. Prints as a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelRefusal {
    /// A budget is spent.
    #[error("{0}")]
    Budget(BudgetUsedUp),
    /// The sandbox has no run in progress.
    #[error("No run is in progress in this sandbox; the model is asked for a run alone")]
    NoRun,
    /// The model is not allowed.
    #[error("The model {0} is not allowed here; an operator can add it to `models.{1}.models`")]
    Model(String, String),
    /// What the request has fetched is not allowed. The text names it.
    #[error("This sandbox's network does not allow what the model's maker would fetch: {0}")]
    Fetch(String),
    /// Nothing is configured under this name.
    #[error("No key for {0} is set here; an operator sets `models.{0}.key_file`")]
    NotConfigured(String),
    /// The maker of the model refuses our key. The name is that of its section.
    #[error(
        "The model's maker refuses the key of `models.{0}.key_file`; an operator must replace it"
    )]
    Key(String),
    /// The account of our key cannot pay. The name is that of the key's section.
    #[error(
        "The model's maker asks for payment: the account of the key of `models.{0}.key_file` has no \
         credit; an operator must add some"
    )]
    NoCredit(String),
    /// The model asks to wait longer than a process should.
    #[error("The model asks to wait until {}", hour(*.0))]
    Wait(Timestamp),
    /// The model cannot be reached, or does not answer in time. The text says what was seen.
    #[error("The model does not answer: {0}")]
    Away(String),
    /// The gateway cannot count now what the request would cost.
    #[error("What models cost cannot be recorded now; try again in a moment")]
    NotRecorded,
    /// Other requests in flight may use up the budget.
    #[error("Other requests are using what is left of the budget; try again in a moment")]
    Busy,
    /// The sandbox has too many requests in flight.
    #[error("This sandbox has too many requests to models in flight; try again in a moment")]
    TooMany,
    /// The body is too long.
    #[error("The request is larger than 32 MiB")]
    TooLarge,
    /// The body is not what the API takes.
    #[error("The request cannot be read: {0}")]
    Malformed(String),
    /// There is no such route.
    #[error("The gateway has no such route")]
    NoRoute,
    /// The route takes another method.
    #[error("The gateway's routes take POST")]
    Method,
}

/// An answer of the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalAnswer {
    /// The status.
    pub status: u16,
    /// Headers beside the content's type.
    pub headers: &'static [(&'static str, &'static str)],
    /// The body, as JSON.
    pub body: String,
}

const ENDS: &[(&str, &str)] = &[("x-should-retry", "false")];
const REPEATS: &[(&str, &str)] = &[("retry-after", "2")];

impl ModelRefusal {
    /// The answer that has the agent show why, and end at once where repeating is of no use.
    pub fn answer(&self, api: ModelApi) -> RefusalAnswer {
        let (status, kind, headers) = match api {
            ModelApi::Messages => self.for_messages(),
            ModelApi::Responses => self.for_responses(),
        };
        let message = self.to_string();
        let body = match api {
            ModelApi::Messages => json!({
                "type": "error",
                "error": {"type": kind, "message": message},
            }),
            ModelApi::Responses => json!({
                "error": {"type": kind, "message": message, "param": null, "code": null},
            }),
        };
        RefusalAnswer { status, headers, body: body.to_string() }
    }

    fn for_messages(&self) -> (u16, &'static str, &'static [(&'static str, &'static str)]) {
        match self {
            Self::Budget(_) => (402, "billing_error", ENDS),
            Self::NoRun
            | Self::Model(..)
            | Self::Fetch(_)
            | Self::NotConfigured(_)
            | Self::Key(_)
            | Self::NoCredit(_) => (403, "permission_error", ENDS),
            Self::Wait(_) => (429, "rate_limit_error", ENDS),
            Self::Away(_) => (529, "overloaded_error", ENDS),
            Self::NotRecorded | Self::Busy | Self::TooMany => (529, "overloaded_error", REPEATS),
            Self::TooLarge => (413, "request_too_large", ENDS),
            Self::Malformed(_) => (400, "invalid_request_error", ENDS),
            Self::NoRoute => (404, "not_found_error", ENDS),
            Self::Method => (405, "invalid_request_error", &[("allow", "POST")]),
        }
    }

    fn for_responses(&self) -> (u16, &'static str, &'static [(&'static str, &'static str)]) {
        let status = match self {
            Self::NotRecorded | Self::Busy | Self::TooMany => {
                return (503, "server_error", REPEATS);
            }
            Self::Method => return (405, "invalid_request_error", &[("allow", "POST")]),
            Self::NoRoute => 404,
            Self::TooLarge => 413,
            Self::Budget(_)
            | Self::NoRun
            | Self::Model(..)
            | Self::Fetch(_)
            | Self::NotConfigured(_)
            | Self::Key(_)
            | Self::NoCredit(_)
            | Self::Wait(_)
            | Self::Away(_)
            | Self::Malformed(_) => 400,
        };
        (status, "invalid_request_error", ENDS)
    }

    /// The same as the last event of a stream that has begun.
    pub fn event(&self, api: ModelApi) -> String {
        let message = self.to_string();
        let data = match api {
            ModelApi::Messages => json!({
                "type": "error",
                "error": {"type": "overloaded_error", "message": message},
            }),
            ModelApi::Responses => json!({
                "type": "error", "code": "server_error", "message": message, "param": null,
            }),
        };
        format!("event: error\ndata: {data}\n\n")
    }
}

/// The time of day, for people.
fn hour(at: Timestamp) -> String {
    let minutes = at.unix_ms().div_euclid(60_000);
    format!("{:02}:{:02} UTC", minutes.div_euclid(60).rem_euclid(24), minutes.rem_euclid(60))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::budget::BudgetScope;
    use super::*;
    use crate::types::Money;

    fn budget() -> ModelRefusal {
        let limit = Money::from_dollars(5.0).expect("an amount");
        ModelRefusal::Budget(BudgetUsedUp { scope: BudgetScope::Issue, spent: limit, limit })
    }

    #[test]
    fn a_refusal_has_the_form_at_which_each_agent_ends() {
        let answer = budget().answer(ModelApi::Messages);
        assert_eq!((answer.status, answer.headers), (402, ENDS));
        let expected = json!({"type": "error", "error": {"type": "billing_error", "message":
            "Budget of this issue is used up: $5.00 of $5.00; an operator can raise it"}});
        assert_eq!(serde_json::from_str::<Value>(&answer.body).expect("JSON"), expected);
        let answer = budget().answer(ModelApi::Responses);
        assert_eq!(answer.status, 400);
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["message"], expected["error"]["message"]);
    }

    #[test]
    fn no_refusal_has_a_status_that_an_agent_repeats_for_minutes() {
        let at = Timestamp::from_unix_ms((14 * 60 + 5) * 60_000);
        assert_eq!(ModelRefusal::Wait(at).to_string(), "The model asks to wait until 14:05 UTC");
        for refusal in [
            budget(),
            ModelRefusal::NoRun,
            ModelRefusal::Model("gpt-1".into(), "openai".into()),
            ModelRefusal::Key("openai".into()),
            ModelRefusal::NoCredit("openai".into()),
            ModelRefusal::Wait(at),
            ModelRefusal::Away("no answer within 120 s".into()),
        ] {
            let ends = |api| refusal.answer(api).headers == ENDS;
            assert!(ends(ModelApi::Messages) && ends(ModelApi::Responses), "{refusal}");
            assert_ne!(refusal.answer(ModelApi::Messages).status, 401);
            assert_eq!(refusal.answer(ModelApi::Responses).status, 400, "{refusal}");
            let event = refusal.event(ModelApi::Messages);
            assert!(event.starts_with("event: error\ndata: {") && event.ends_with("}\n\n"));
        }
    }
}
