//! The actions on a sandbox. Each is a form that asks for confirmation and names the sandbox.

use maud::{Markup, html};

use crate::engine::{EnsureIssue, IssueKey};
use crate::http::Shared;
use crate::http::api::checkouts::retry_checkout;
use crate::http::api::publish::publish_work;
use crate::http::error::ApiError;
use crate::http::page::shell::Frame;
use crate::http::page::text::shown;
use crate::http::page::visitor::Visitor;
use crate::issue::Command;
use crate::store::checkout::CheckoutRow;
use crate::types::{
    CheckoutState, HoldScope, Phase, PushPermission, Sandbox, SandboxId, SandboxMeta,
};

use super::View;

/// An action on a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop it.
    Stop,
    /// Start it.
    Start,
    /// Retry the step that failed.
    Retry,
    /// Publish its work, for which its pushes wait.
    Publish,
    /// Delete it.
    Delete,
    /// Delete the record without the provider's confirmation.
    ForceDelete,
    /// Create the issue's next sandbox after this one was deleted.
    Ensure,
    /// Hold its issue.
    Hold,
    /// Release the hold on its issue.
    Release,
}

impl Action {
    const ALL: [Self; 9] = [
        Self::Stop,
        Self::Start,
        Self::Retry,
        Self::Publish,
        Self::Delete,
        Self::ForceDelete,
        Self::Ensure,
        Self::Hold,
        Self::Release,
    ];

    /// The word in addresses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Retry => "retry",
            Self::Publish => "publish",
            Self::Delete => "delete",
            Self::ForceDelete => "force-delete",
            Self::Ensure => "ensure",
            Self::Hold => "hold",
            Self::Release => "release",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == word)
    }

    /// The label of its button.
    const fn label(self) -> &'static str {
        match self {
            Self::Stop => "Stop",
            Self::Start => "Start",
            Self::Retry => "Retry",
            Self::Publish => "Publish",
            Self::Delete => "Delete",
            Self::ForceDelete => "Force delete",
            Self::Ensure => "Create the next one",
            Self::Hold => "Hold",
            Self::Release => "Release",
        }
    }

    /// What the action will do, for its confirmation.
    const fn consequence(self) -> &'static str {
        match self {
            Self::Stop => "Its processes end; its workspace is kept.",
            Self::Start => "It starts with its workspace.",
            Self::Retry => "The failed step is retried; it stays the same sandbox.",
            Self::Publish => {
                "Its branch is pushed to GitHub now, and it pushes as it likes from then on."
            }
            Self::Delete => "Its processes end, and its workspace is deleted permanently.",
            Self::ForceDelete => {
                "This deletes the record without the provider's confirmation. The timeline records \
                 that, and sweeps remove the orphaned object."
            }
            Self::Ensure => "The issue gets its next sandbox, with an empty workspace.",
            Self::Hold => {
                "No sandbox of its issue is created, started or resumed until the hold is released."
            }
            Self::Release => "Pending starts of its issue continue.",
        }
    }

    const fn is_dangerous(self) -> bool {
        match self {
            Self::Delete | Self::ForceDelete => true,
            Self::Stop
            | Self::Start
            | Self::Retry
            | Self::Publish
            | Self::Ensure
            | Self::Hold
            | Self::Release => false,
        }
    }

    /// What happens next, after the action was accepted.
    pub const fn what_next(self, sandbox: &Sandbox) -> &'static str {
        match (self, sandbox.phase) {
            (Self::Stop, Some(Phase::Stopped)) => "It is stopped.",
            (Self::Stop, _) => "Stop accepted: it stops after the current step.",
            (Self::Start, Some(Phase::Running)) => "It is running.",
            (Self::Start, _) => "Start accepted: the provider starts it now.",
            (Self::Retry, Some(Phase::Running)) => "It is running.",
            (Self::Retry, _) => "Retry accepted: the failed step is retried now.",
            (Self::Publish, _) => "Its branch is pushed.",
            (Self::Delete | Self::ForceDelete, None) => "It is deleted; its timeline is kept.",
            (Self::Delete, Some(_)) => {
                "Delete accepted: the provider removes it now. This cannot be undone."
            }
            (Self::ForceDelete, Some(_)) => "The record is being deleted.",
            (Self::Ensure, _) => "This is the issue's new sandbox.",
            (Self::Hold, _) => "Its issue is held.",
            (Self::Release, _) => "The hold on its issue is released.",
        }
    }

    /// The actions that a sandbox offers, the likeliest first.
    fn offered(view: &View) -> Vec<Self> {
        let sandbox = &view.sandbox;
        let mut all = match sandbox.phase {
            Some(Phase::Running) if has_failed_checkout(view) => vec![Self::Retry, Self::Stop],
            Some(Phase::Running) if waits_for_a_person(view) => vec![Self::Publish, Self::Stop],
            Some(Phase::Running | Phase::Creating | Phase::Starting) => vec![Self::Stop],
            Some(Phase::Stopped | Phase::Stopping) => vec![Self::Start],
            Some(Phase::Failed) => vec![Self::Retry],
            Some(Phase::Deleting) if sandbox.failure.is_some() => vec![Self::ForceDelete],
            Some(Phase::Deleting) => Vec::new(),
            None if view.successor.is_none() => vec![Self::Ensure],
            None => Vec::new(),
        };
        if sandbox.phase.is_some() {
            let is_held = view.holds.iter().any(|hold| matches!(hold.scope, HoldScope::Issue(..)));
            all.push(if is_held { Self::Release } else { Self::Hold });
        }
        if !matches!(sandbox.phase, Some(Phase::Deleting) | None) {
            all.push(Self::Delete);
        }
        all
    }

    /// Carries out the action. Returns the sandbox to show.
    ///
    /// # Errors
    /// As for the same call under `/v1`.
    pub async fn carry_out(
        self,
        shared: &Shared,
        visitor: &Visitor,
        sandbox: &Sandbox,
        reason: String,
    ) -> Result<SandboxId, ApiError> {
        let (engine, caller) = (&shared.edge.engine, &visitor.caller);
        let command = match self {
            Self::Stop => Command::Stop,
            Self::Start => Command::Start,
            Self::Retry => {
                if retry_checkout(shared, sandbox).await? {
                    return Ok(sandbox.id.clone());
                }
                Command::Retry
            }
            Self::Publish => {
                publish_work(shared, sandbox, &caller.name).await?;
                return Ok(sandbox.id.clone());
            }
            Self::Delete => Command::Delete,
            Self::ForceDelete => Command::ForceDelete,
            Self::Ensure => {
                let ask = EnsureIssue {
                    issue: IssueKey { id: Some(sandbox.issue_id.clone()), numbered: None },
                    template: None,
                    provider: None,
                    agent_id: None,
                    meta: SandboxMeta::default(),
                    mode: None,
                    title: None,
                    retry: false,
                    cause: caller.cause(),
                };
                return Ok(shared.edge.callers().ensure(&caller.account, ask).await?.sandbox.id);
            }
            Self::Hold => {
                let scope = HoldScope::Issue(sandbox.account.clone(), sandbox.issue_id.clone());
                engine.hold(scope, reason, caller.name.to_string()).await?;
                return Ok(sandbox.id.clone());
            }
            Self::Release => {
                engine
                    .release(&HoldScope::Issue(sandbox.account.clone(), sandbox.issue_id.clone()))
                    .await?;
                return Ok(sandbox.id.clone());
            }
        };
        let of = crate::engine::SandboxRef::Id(sandbox.id.clone());
        let commanded = engine.command(&caller.account, &of, command, caller.cause()).await?;
        Ok(commanded.sandbox.id)
    }
}

fn has_failed_checkout(view: &View) -> bool {
    view.checkout.as_ref().is_some_and(|checkout| checkout.state == CheckoutState::Failed)
}

fn waits_for_a_person(view: &View) -> bool {
    let waits = |checkout: &CheckoutRow| {
        let is_ready = checkout.state == CheckoutState::Ready;
        is_ready && checkout.pushes == PushPermission::Waits && checkout.published_by.is_none()
    };
    view.checkout.as_ref().is_some_and(waits)
}

/// A form for each action.
pub(super) fn forms(view: &View, frame: &Frame) -> Markup {
    let sandbox = &view.sandbox;
    html! {
        div .actions role="group" aria-label="Actions" {
            @for action in Action::offered(view) {
                details .action .danger[action.is_dangerous()] .first[matches!(action, Action::Retry | Action::Publish)] name="action" data-key={ "do-" (action.as_str()) } {
                    summary .button { (action.label()) "…" }
                    form .card method="post" action={ "/sandboxes/" (sandbox.id) "/" (action.as_str()) } {
                        (frame.token())
                        p { strong { (action.label()) " " span .name { (shown(&sandbox.name)) } "?" } }
                        p .lead { (action.consequence()) }
                        @if action == Action::Hold {
                            label { "Reason, shown to callers that are refused"
                                input type="text" name="reason" maxlength="500"; }
                        }
                        button .primary .danger[action.is_dangerous()] type="submit" {
                            (action.label()) " " (shown(&sandbox.name))
                        }
                    }
                }
            }
        }
    }
}
