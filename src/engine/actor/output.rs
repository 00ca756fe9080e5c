//! What an actor's step led to, while it waits for its commit.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::Span;

use crate::issue::{Cleanup, Issue, IssueEvent, ProviderCall, Reply};
use crate::store::{DeliveryRow, DeliveryState};
use crate::types::{AccountName, Alias, DeliveryId, HomeId, Repository, Timestamp};

use super::{Answered, Unanswered};
use crate::engine::api::Change;

/// What a step led to, waiting for its commit to become durable.
pub(super) struct StepOutput {
    /// Given by [`IssueActor::push`].
    pub number: u64,
    pub durable: bool,
    pub delivery: Option<DeliveryId>,
    pub account: AccountName,
    pub durable_aliases: Vec<Alias>,
    pub reply: Option<oneshot::Sender<Result<Answered, Unanswered>>>,
    pub answered: Answered,
    pub change: Option<Change>,
    pub call: Option<ProviderCall>,
    pub cleanup: Option<Cleanup>,
    pub due: Option<Timestamp>,
    /// Its create was asked for beside the commit.
    pub is_fast_create: bool,
    /// It is what the hurried create led to.
    pub ends_fast_create: bool,
    /// The event that it comes of, for logs and traces.
    pub span: Span,
}

impl StepOutput {
    /// What leads to nothing: an answer that leaves once everything before it is durable.
    pub fn of_nothing(
        issue: &Issue,
        reply: Option<oneshot::Sender<Result<Answered, Unanswered>>>,
    ) -> Self {
        let sandbox = issue.sandbox().map(Arc::new);
        Self {
            number: 0,
            durable: true,
            delivery: None,
            account: issue.account.clone(),
            durable_aliases: Vec::new(),
            reply,
            answered: Answered { reply: Reply::Nothing, duplicate: false, moved: false, sandbox },
            change: None,
            call: None,
            cleanup: None,
            due: None,
            is_fast_create: false,
            ends_fast_create: false,
            span: Span::current(),
        }
    }
}

/// Answers whoever waits, where somebody does.
pub(super) fn answer(
    reply: Option<oneshot::Sender<Result<Answered, Unanswered>>>,
    answer: Result<Answered, Unanswered>,
) {
    if let Some(reply) = reply {
        // A caller that went away: what it asked for is done all the same.
        drop(reply.send(answer));
    }
}

/// Whether an event was sent to whichever home the issue's names belong to, and not to one of them
/// for its own sake.
pub(super) const fn is_for_the_issue(event: &IssueEvent) -> bool {
    match event {
        IssueEvent::Ensure(_)
        | IssueEvent::Delivery { .. }
        | IssueEvent::ScopeEvent { .. }
        | IssueEvent::Adopt(_) => true,
        IssueEvent::Command(_)
        | IssueEvent::Worked { .. }
        | IssueEvent::LimitStruck { .. }
        | IssueEvent::Answered(_)
        | IssueEvent::Due { .. }
        | IssueEvent::Learned { .. }
        | IssueEvent::Merged { .. }
        | IssueEvent::Observed(_)
        | IssueEvent::Discard { .. }
        | IssueEvent::Granted
        | IssueEvent::Activated { .. } => false,
    }
}

/// The row of the delivery that an event is, before it is known what came of it.
pub(super) fn delivery_row(event: &IssueEvent, home: HomeId) -> Option<DeliveryRow> {
    match event {
        IssueEvent::Delivery { issue_delivery, .. } => Some(DeliveryRow {
            id: issue_delivery.delivery.clone(),
            received_at: issue_delivery.received_at,
            event: issue_delivery.event.clone(),
            action: issue_delivery.action.clone(),
            home: Some(home),
            applied: false,
            reason: String::new(),
            state: DeliveryState::Done,
        }),
        IssueEvent::Ensure(_)
        | IssueEvent::Command(_)
        | IssueEvent::Worked { .. }
        | IssueEvent::LimitStruck { .. }
        | IssueEvent::Answered(_)
        | IssueEvent::Due { .. }
        | IssueEvent::ScopeEvent { .. }
        | IssueEvent::Learned { .. }
        | IssueEvent::Merged { .. }
        | IssueEvent::Observed(_)
        | IssueEvent::Adopt(_)
        | IssueEvent::Discard { .. }
        | IssueEvent::Granted
        | IssueEvent::Activated { .. } => None,
    }
}

/// The names that outputs which never leave had claimed.
pub(super) fn names_left(outbox: VecDeque<Box<StepOutput>>) -> Vec<(AccountName, Vec<Alias>)> {
    outbox.into_iter().map(|output| (output.account, output.durable_aliases)).collect()
}

/// The name that an issue's repository had before a step, and the one it has since, where it is the
/// same repository.
pub(super) fn renamed<'a>(
    before: &'a Issue,
    after: &'a Issue,
) -> Option<(&'a Repository, &'a Repository)> {
    let (was, is) = (&before.facts, &after.facts);
    let is_the_same = was.repository_id.is_some() && was.repository_id == is.repository_id;
    let (from, to) = (was.repository.as_ref()?, is.repository.as_ref()?);
    // Mostly it is the same word, which is seen without folding it.
    let differ = from != to && from.folded() != to.folded();
    (is_the_same && differ).then_some((from, to))
}
