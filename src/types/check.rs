//! One finding of `issuebox doctor`: what was checked, how it is, and what to do.

/// The state of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// Correct.
    Right,
    /// It works, but a person should look at it.
    Noted,
    /// Missing, or it does not work.
    Broken,
}

impl CheckState {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Noted => "noted",
            Self::Broken => "broken",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was checked, in a word or two.
    pub what: String,
    /// Its state.
    pub state: CheckState,
    /// What was found.
    pub found: String,
    /// What to do, if something must be done.
    pub remedy: Option<String>,
}

impl Check {
    /// A check that found nothing wrong.
    pub fn right(what: &str, found: impl Into<String>) -> Self {
        Self { what: what.to_owned(), state: CheckState::Right, found: found.into(), remedy: None }
    }

    /// It works, but a person should look at it.
    pub fn noted(what: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { what: what.to_owned(), state: CheckState::Noted, found: found.into(), remedy }
    }

    /// It is missing or does not work.
    pub fn broken(what: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { what: what.to_owned(), state: CheckState::Broken, found: found.into(), remedy }
    }
}
