//! What an actor's step led to, while it waits for its commit.

use std::collections::VecDeque;
use std::sync::Arc;

use tracing::Span;

use crate::issue::event::EventMeta;
use crate::issue::{Cleanup, Issue, ProviderCall, Reply};
use crate::store::{DeliveryRow, DeliveryState};
use crate::types::{
    AccountName, Alias, DeliveryId, HomeId, Phase, Repository, TimelineEntry, Timestamp,
};

use crate::engine::api::Change;
use crate::engine::mailbox::{Answered, ReplySender, Unanswered};

/// What a step led to, waiting for its commit to become durable.
pub(super) struct StepOutput {
    /// Given by [`IssueActor::push`].
    pub number: u64,
    pub durable: bool,
    pub delivery: Option<DeliveryId>,
    pub account: AccountName,
    pub durable_aliases: Vec<Alias>,
    pub reply: Option<ReplySender>,
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
    pub fn of_nothing(issue: &Issue, reply: Option<ReplySender>) -> Self {
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
pub(super) fn answer(reply: Option<ReplySender>, answer: Result<Answered, Unanswered>) {
    if let Some(reply) = reply {
        // A caller that went away: what it asked for is done all the same.
        drop(reply.send(answer));
    }
}

/// The row of the delivery that a commit records, before its result is known.
pub(super) fn delivery_row(meta: &EventMeta<'_>, home: HomeId) -> Option<DeliveryRow> {
    let delivery = meta.issue_delivery?;
    Some(DeliveryRow {
        id: delivery.delivery.clone(),
        received_at: delivery.received_at,
        event: delivery.event.clone(),
        action: delivery.action.clone(),
        home: Some(home),
        applied: false,
        reason: String::new(),
        state: DeliveryState::Done,
    })
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

/// The command of an issue's template, if its sandbox came up in this step.
pub(super) fn entry_command(issue: &Issue, timeline: &[TimelineEntry]) -> Vec<String> {
    let came_up = |entry: &TimelineEntry| {
        matches!(entry.from, Some(Phase::Creating | Phase::Starting))
            && entry.to == Some(Phase::Running)
    };
    match issue.state.record() {
        Some(record) if timeline.iter().any(came_up) => record.template.workload.command.clone(),
        Some(_) | None => Vec::new(),
    }
}
