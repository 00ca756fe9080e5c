//! The vocabulary of conversations: ids of messages, runs and sessions, and what a model's work costs.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use uuid::Uuid;

use super::{AgentQuestion, Timestamp};

/// Declares a newtype around a UUID that prints as itself.
macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Reads an id in its usual form: 36 characters, lower case. `None` for any other text.
            pub fn parse(text: &str) -> Option<Self> {
                let id = Self(Uuid::try_parse(text).ok()?);
                (id.to_string() == text).then_some(id)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_id! {
    /// One thing that was said to the agent.
    MessageId
}
uuid_id! {
    /// One execution of the agent for one or more messages.
    RunId
}
uuid_id! {
    /// An agent's session, which its next run resumes.
    SessionId
}

/// What a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// It waits, with the reason.
    Queued,
    /// Its process was started, or is about to be.
    Running,
    /// Its process goes on and waits until a person answers a question.
    WaitingForPerson,
    /// The agent was asked to end.
    Cancelling,
    /// The sandbox or the server ended under it; it goes on by itself.
    Interrupted,
    /// It ended well.
    Succeeded,
    /// It failed for good; a person can retry it.
    Failed,
    /// A budget is used up; a person can retry it after a raise.
    OverBudget,
    /// It was cancelled, for the reason given.
    Cancelled,
}

impl RunState {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Running,
        Self::WaitingForPerson,
        Self::Cancelling,
        Self::Interrupted,
        Self::Succeeded,
        Self::Failed,
        Self::OverBudget,
        Self::Cancelled,
    ];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::WaitingForPerson => "waiting_for_person",
            Self::Cancelling => "cancelling",
            Self::Interrupted => "interrupted",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::OverBudget => "over_budget",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether the run is not over.
    pub const fn is_in_progress(self) -> bool {
        match self {
            Self::Queued
            | Self::Running
            | Self::WaitingForPerson
            | Self::Cancelling
            | Self::Interrupted => true,
            Self::Succeeded | Self::Failed | Self::OverBudget | Self::Cancelled => false,
        }
    }

    /// Whether the run is over and did not do what it was asked: a person can retry it.
    pub const fn can_be_retried(self) -> bool {
        matches!(self, Self::Failed | Self::OverBudget | Self::Cancelled)
    }

    /// What the agent does whose latest run this is, in a word: `idle`, `queued`, `running`,
    /// `waiting_for_person` or `cancelling`.
    pub const fn of_agent(self) -> &'static str {
        match self {
            Self::Queued | Self::Interrupted => "queued",
            Self::Running => "running",
            Self::WaitingForPerson => "waiting_for_person",
            Self::Cancelling => "cancelling",
            Self::Succeeded | Self::Failed | Self::OverBudget | Self::Cancelled => "idle",
        }
    }

    /// Whether there may be a process of it.
    pub const fn has_process(self) -> bool {
        matches!(self, Self::Running | Self::WaitingForPerson | Self::Cancelling)
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the agent of a live sandbox does: the run in progress, or the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentStanding {
    /// The run.
    pub run: RunId,
    /// What it is.
    pub state: RunState,
    /// Why, for people; may be empty.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// What it asks a person, while it waits for the answer.
    pub question: Option<AgentQuestion>,
}

/// How many tokens a model read and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Input that was in no cache.
    pub input: u64,
    /// Output.
    pub output: u64,
    /// Input that was read from the model's cache.
    pub cache_read: u64,
    /// Input that was written to the model's cache.
    pub cache_write: u64,
}

impl Tokens {
    /// All input, cached or not.
    pub const fn all_input(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        let Self { input, output, cache_read, cache_write } = other;
        self.input = self.input.saturating_add(input);
        self.output = self.output.saturating_add(output);
        self.cache_read = self.cache_read.saturating_add(cache_read);
        self.cache_write = self.cache_write.saturating_add(cache_write);
    }
}

/// An amount of money in billionths of a US dollar, so that a price of a tenth of a cent for a
/// million tokens is a whole number for each. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Money {
    nano_dollars: u64,
}

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self { nano_dollars: 0 };

    /// From billionths of a dollar.
    pub const fn from_nano_dollars(nano_dollars: u64) -> Self {
        Self { nano_dollars }
    }

    /// Billionths of a dollar.
    pub const fn nano_dollars(self) -> u64 {
        self.nano_dollars
    }

    /// From dollars, rounded to a billionth. `None` for what is negative, not a number or more than
    /// a billion dollars.
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let is_amount = (0.0..=1e9).contains(&dollars);
        // The bounds were checked, so the conversion is exact to a billionth.
        is_amount.then(|| Self { nano_dollars: (dollars * 1e9).round() as u64 })
    }

    /// In dollars, for programs that read JSON.
    pub fn dollars(self) -> f64 {
        self.nano_dollars as f64 / 1e9
    }

    /// This for each of `count` things.
    pub const fn times(self, count: u64) -> Self {
        Self { nano_dollars: self.nano_dollars.saturating_mul(count) }
    }

    /// What is left of this after `spent`; nothing if more was spent.
    pub const fn minus(self, spent: Self) -> Self {
        Self { nano_dollars: self.nano_dollars.saturating_sub(spent.nano_dollars) }
    }
}

impl Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { nano_dollars: self.nano_dollars.saturating_add(other.nano_dollars) }
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Money {
    /// Dollars and cents, such as `$0.15`; halves of a cent are rounded up.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = self.nano_dollars.saturating_add(5_000_000) / 10_000_000;
        write!(f, "${}.{:02}", cents / 100, cents % 100)
    }
}

/// An amount of US dollars in dollars and cents, for people; less than half a cent is said to be that.
pub fn dollars(amount: f64) -> String {
    match amount {
        0.0 => "$0.00".to_owned(),
        amount if amount < 0.005 => "<$0.01".to_owned(),
        amount => format!("${amount:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_form() {
        let text = "019392f0-5b7e-7a3c-8c55-3c1a0b6a1f2e";
        assert_eq!(RunId::parse(text).map(|id| id.to_string()).as_deref(), Some(text));
        for other in ["", "1", &text.to_uppercase(), &text.replace('-', "")] {
            assert_eq!(RunId::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn states_are_read_back() {
        for state in RunState::ALL {
            assert_eq!(RunState::parse(state.as_str()), Some(state));
        }
        assert_eq!(RunState::parse("overbudget"), None);
    }

    #[test]
    fn money_is_exact_and_prints_in_cents() {
        let price = |dollars| Money::from_dollars(dollars).expect("an amount");
        assert_eq!(price(0.3).nano_dollars(), 300_000_000);
        assert_eq!(price(0.1) + price(0.2), price(0.3));
        assert_eq!(
            [price(5.0), price(0.154), price(0.155)].map(|it| it.to_string()),
            ["$5.00", "$0.15", "$0.16"]
        );
        assert_eq!(price(1.0).minus(price(2.0)), Money::ZERO);
        for wrong in [-0.1, f64::NAN, f64::INFINITY, 1e10] {
            assert_eq!(Money::from_dollars(wrong), None, "{wrong}");
        }
    }
}
