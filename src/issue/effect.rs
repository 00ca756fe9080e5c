//! What a step asks to be done outside of the issue's state, as data.
//!
//! A lifecycle call to the provider is part of the state: one at a time, with an attempt that its
//! answer names. An effect is everything else. The store records it in its outbox, in the
//! transaction of the state that asked for it, and one worker carries it out, at least once. So
//! each kind of effect must be harmless when it is repeated.
//!
//! Two effects of one home with the same kind and key are one: the newer replaces the older and
//! takes its place in the order. An effect whose newest content counts (a desired state) has a
//! constant key. An effect that must happen once has a key of its own, such as a delivery's GUID.

use crate::types::{ExternalId, Generation, ProviderName, SandboxId};

/// Something to be done outside of the issue's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Stop or remove an orphan at a provider.
    CleanUp(Cleanup),
    /// Say something on the issue.
    Github(GithubEffect),
}

/// Who carries an effect out: each queue has its own worker, table and rules of repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectQueue {
    /// Providers: an effect is harmless when it is repeated, and is removed when it is done.
    Provider,
    /// GitHub: an effect whose outcome is unknown is looked for, and is kept when it is done.
    Github,
}

/// Something to be said on the issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GithubEffect {
    /// React with 👀, once for each target and generation.
    React {
        /// To what.
        to: ReactTo,
        /// The sandbox that was asked for.
        generation: Generation,
    },
    /// Answer a comment, once.
    Reply {
        /// GitHub's id of it.
        comment: u64,
        /// What to answer.
        answer: CommentAnswer,
    },
    /// Bring the status comment to what is true by then. Its text is composed when it is written, so
    /// that many changes are one edit.
    ShowStatus {
        /// The version of the issue that asked for it, so that each one differs.
        version: u64,
        /// Whether a person asked for something: a comment that was deleted is written again.
        is_asked: bool,
        /// Whether it may wait some seconds, since the next change is expected soon.
        can_wait: bool,
    },
    /// Publish the work of a sandbox: a comment asked for it.
    Publish {
        /// GitHub's id of the comment.
        comment: u64,
        /// The sandbox.
        sandbox: SandboxId,
        /// Who wrote the comment, for people.
        by: String,
    },
    /// Bring the commit status of a sandbox's last push to what is true by then.
    SetCommitStatus {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// Bring the label that shows that a sandbox is at work to what is true by then.
    SetWorkingLabel,
    /// Bring the pull request of a sandbox's branch to what is wanted: one for each generation.
    ShowPull {
        /// The sandbox that pushed.
        sandbox: SandboxId,
    },
}

/// What is reacted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReactTo {
    /// The issue itself.
    Issue,
    /// The comment with this id.
    Comment(u64),
}

/// The answer to a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommentAnswer {
    /// How the sandbox is, in words.
    Status(String),
    /// Why its command was not carried out, in words.
    Refused(String),
}

/// What kind of effect it is: for the order within a home, metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffectKind {
    /// [`Effect::CleanUp`].
    CleanUp,
    /// [`GithubEffect::Publish`].
    Publish,
    /// [`GithubEffect::React`].
    React,
    /// [`GithubEffect::Reply`].
    Reply,
    /// [`GithubEffect::SetCommitStatus`].
    SetCommitStatus,
    /// [`GithubEffect::SetWorkingLabel`].
    SetWorkingLabel,
    /// [`GithubEffect::ShowPull`].
    ShowPull,
    /// [`GithubEffect::ShowStatus`].
    ShowStatus,
}

impl EffectKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::CleanUp,
        Self::Publish,
        Self::React,
        Self::Reply,
        Self::SetCommitStatus,
        Self::SetWorkingLabel,
        Self::ShowPull,
        Self::ShowStatus,
    ];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CleanUp => "clean_up",
            Self::Publish => "publish",
            Self::React => "react",
            Self::Reply => "reply",
            Self::SetCommitStatus => "set_commit_status",
            Self::SetWorkingLabel => "set_working_label",
            Self::ShowPull => "show_pull",
            Self::ShowStatus => "show_status",
        }
    }

    /// Who carries it out.
    pub const fn queue(self) -> EffectQueue {
        match self {
            Self::CleanUp => EffectQueue::Provider,
            Self::Publish
            | Self::React
            | Self::Reply
            | Self::SetCommitStatus
            | Self::SetWorkingLabel
            | Self::ShowPull
            | Self::ShowStatus => EffectQueue::Github,
        }
    }

    /// Whether it is a desired state of GitHub: what was done is compared again when a newer one is
    /// recorded. Any other is done once for each key.
    pub const fn is_desired_state(self) -> bool {
        match self {
            Self::CleanUp | Self::Publish | Self::React | Self::Reply => false,
            Self::SetCommitStatus | Self::SetWorkingLabel | Self::ShowPull | Self::ShowStatus => {
                true
            }
        }
    }

    /// The kind that [`Self::as_str`] gives this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl Effect {
    /// Its kind.
    pub const fn kind(&self) -> EffectKind {
        match self {
            Self::CleanUp(_) => EffectKind::CleanUp,
            Self::Github(effect) => effect.kind(),
        }
    }

    /// What it is about: a newer effect of the same home, kind and key replaces it.
    pub fn key(&self) -> String {
        match self {
            Self::CleanUp(cleanup) => format!("{}/{}", cleanup.provider, cleanup.external_id),
            Self::Github(effect) => effect.key(),
        }
    }
}

impl GithubEffect {
    /// Its kind.
    pub const fn kind(&self) -> EffectKind {
        match self {
            Self::Publish { .. } => EffectKind::Publish,
            Self::React { .. } => EffectKind::React,
            Self::Reply { .. } => EffectKind::Reply,
            Self::SetCommitStatus { .. } => EffectKind::SetCommitStatus,
            Self::SetWorkingLabel => EffectKind::SetWorkingLabel,
            Self::ShowPull { .. } => EffectKind::ShowPull,
            Self::ShowStatus { .. } => EffectKind::ShowStatus,
        }
    }

    /// What it is about. Of a reaction and a reply there is one for each key, ever; the status and
    /// the label have one, and each sandbox has one commit status and pull request.
    pub fn key(&self) -> String {
        match self {
            Self::React { to: ReactTo::Issue, generation } => format!("issue/{}", generation.0),
            Self::React { to: ReactTo::Comment(id), generation } => {
                format!("comment/{id}/{}", generation.0)
            }
            Self::Publish { comment, .. } | Self::Reply { comment, .. } => comment.to_string(),
            Self::SetCommitStatus { sandbox } | Self::ShowPull { sandbox } => {
                sandbox.as_str().to_owned()
            }
            Self::SetWorkingLabel | Self::ShowStatus { .. } => String::new(),
        }
    }
}

/// An orphan, which is an object without a record, and what to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleanup {
    /// The provider that has it.
    pub provider: ProviderName,
    /// The provider's id of it.
    pub external_id: ExternalId,
    /// The sandbox id in its labels.
    pub expected: SandboxId,
    /// What to do.
    pub action: CleanupAction,
}

/// What to do with an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupAction {
    /// Stop it and keep it until a person decides.
    Stop,
    /// Remove it.
    Remove,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_word() {
        for kind in EffectKind::ALL {
            assert_eq!(EffectKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(EffectKind::parse("clean up"), None);
    }

    #[test]
    fn cleanups_of_one_object_are_one_effect() {
        let cleanup = |provider, object, action| {
            Effect::CleanUp(Cleanup {
                provider: ProviderName::trusted(provider),
                external_id: ExternalId::trusted(object),
                expected: SandboxId::trusted("sandbox"),
                action,
            })
        };
        let stop = cleanup("a", "x", CleanupAction::Stop);
        assert_eq!(stop.key(), cleanup("a", "x", CleanupAction::Remove).key());
        assert_ne!(stop.key(), cleanup("a", "y", CleanupAction::Stop).key());
        assert_ne!(stop.key(), cleanup("b", "x", CleanupAction::Stop).key());
    }
}
