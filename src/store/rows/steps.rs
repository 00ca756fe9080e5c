//! The parts of bodies that say where a sandbox goes: goals, who stopped it, and provider steps.
//! As in `parts`, the names are what is stored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::issue::state::Goal;
use crate::issue::{Step, StoppedBy, Verb};
use crate::types::{ExternalId, SandboxId, Timestamp};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GoalPart {
    Running,
    Stopped(By),
}

impl From<Goal> for GoalPart {
    fn from(goal: Goal) -> Self {
        match goal {
            Goal::Running => Self::Running,
            Goal::Stopped(by) => Self::Stopped(by.into()),
        }
    }
}

impl From<GoalPart> for Goal {
    fn from(part: GoalPart) -> Self {
        match part {
            GoalPart::Running => Self::Running,
            GoalPart::Stopped(by) => Self::Stopped(by.into()),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum By {
    Person,
    Issue,
    Restart,
    Provider,
    Idle,
    Limit,
    Host,
}

impl From<StoppedBy> for By {
    fn from(by: StoppedBy) -> Self {
        match by {
            StoppedBy::Person => Self::Person,
            StoppedBy::Issue => Self::Issue,
            StoppedBy::Restart => Self::Restart,
            StoppedBy::Provider => Self::Provider,
            StoppedBy::Idle => Self::Idle,
            StoppedBy::Limit => Self::Limit,
            StoppedBy::Host => Self::Host,
        }
    }
}

impl From<By> for StoppedBy {
    fn from(by: By) -> Self {
        match by {
            By::Person => Self::Person,
            By::Issue => Self::Issue,
            By::Restart => Self::Restart,
            By::Provider => Self::Provider,
            By::Idle => Self::Idle,
            By::Limit => Self::Limit,
            By::Host => Self::Host,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum VerbPart<'a> {
    Look,
    Create,
    Start,
    ColdStart {
        #[serde(borrow)]
        external_id: Cow<'a, str>,
    },
    Stop,
    Delete {
        #[serde(borrow)]
        external_id: Cow<'a, str>,
        #[serde(borrow)]
        expected: Cow<'a, str>,
    },
}

impl<'a> From<&'a Verb> for VerbPart<'a> {
    fn from(verb: &'a Verb) -> Self {
        match verb {
            Verb::Look => Self::Look,
            Verb::Create => Self::Create,
            Verb::Start => Self::Start,
            Verb::ColdStart { external_id } => {
                Self::ColdStart { external_id: Cow::Borrowed(external_id.as_str()) }
            }
            Verb::Stop => Self::Stop,
            Verb::Delete { external_id, expected } => Self::Delete {
                external_id: Cow::Borrowed(external_id.as_str()),
                expected: Cow::Borrowed(expected.as_str()),
            },
        }
    }
}

impl From<VerbPart<'_>> for Verb {
    fn from(part: VerbPart<'_>) -> Self {
        match part {
            VerbPart::Look => Self::Look,
            VerbPart::Create => Self::Create,
            VerbPart::Start => Self::Start,
            VerbPart::ColdStart { external_id } => {
                Self::ColdStart { external_id: ExternalId::trusted(&*external_id) }
            }
            VerbPart::Stop => Self::Stop,
            VerbPart::Delete { external_id, expected } => Self::Delete {
                external_id: ExternalId::trusted(&*external_id),
                expected: SandboxId::trusted(&*expected),
            },
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepPart<'a> {
    Asked {
        #[serde(borrow)]
        verb: VerbPart<'a>,
        until: i64,
        tries_left: u32,
    },
    Waiting {
        #[serde(borrow)]
        verb: VerbPart<'a>,
        due: i64,
        tries_left: u32,
    },
}

impl<'a> From<&'a Step> for StepPart<'a> {
    fn from(step: &'a Step) -> Self {
        match step {
            Step::Asked { verb, until, tries_left } => {
                Self::Asked { verb: verb.into(), until: until.unix_ms(), tries_left: *tries_left }
            }
            Step::Waiting { verb, due, tries_left } => {
                Self::Waiting { verb: verb.into(), due: due.unix_ms(), tries_left: *tries_left }
            }
        }
    }
}

impl From<StepPart<'_>> for Step {
    fn from(part: StepPart<'_>) -> Self {
        match part {
            StepPart::Asked { verb, until, tries_left } => {
                Self::Asked { verb: verb.into(), until: Timestamp::from_unix_ms(until), tries_left }
            }
            StepPart::Waiting { verb, due, tries_left } => {
                Self::Waiting { verb: verb.into(), due: Timestamp::from_unix_ms(due), tries_left }
            }
        }
    }
}
