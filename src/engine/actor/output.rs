//! What an actor's step led to, while it waits for its commit.

use std::collections::VecDeque;
use std::sync::Arc;

use tracing::Span;

use crate::issue::event::EventMeta;
use crate::issue::{Commit, InstructionExcerpt, Issue, ProviderCall, Reply};
use crate::store::{CommitError, DeliveryRow, DeliveryState};
use crate::types::{
    AccountName, Alias, DeliveryId, Phase, Repository, Sandbox, TimelineEntry, Timestamp, Workload,
};

use crate::engine::admission::QuotaReservation;
use crate::engine::api::{Change, order};
use crate::engine::executor::slots::CallId;
use crate::engine::mailbox::{Answered, ReplySender, Unanswered};

/// What a step led to, waiting for its commit to become durable.
pub(super) struct StepOutput {
    /// Given by [`IssueActor::push`].
    pub number: u64,
    pub durable: bool,
    pub delivery: Option<DeliveryId>,
    pub account: AccountName,
    /// The names that its event claims.
    pub claims: Vec<Alias>,
    /// Whether its commit makes them durable. One that stores nothing claims nothing.
    pub stores_claims: bool,
    pub reply: Option<ReplySender>,
    pub answered: Answered,
    pub change: Option<Change>,
    pub call: Option<ProviderCall>,
    /// A create that is of no use any more: given up if it still waits for its turn.
    pub withdrawn: Option<CallId>,
    /// The outbox of the store has something new.
    pub records_effects: bool,
    pub due: Option<Timestamp>,
    /// Its create was asked for beside the commit.
    pub is_fast_create: bool,
    /// It is what the answer to the fast create led to.
    pub ends_fast_create: bool,
    /// The slot under the quotas that its sandbox was given.
    pub reservation: Option<QuotaReservation>,
    /// The event that led to it, for logs and traces.
    pub span: Span,
}

impl StepOutput {
    /// An answer alone, which leaves once everything before it is durable.
    pub fn of_no_step(issue: &Issue, reply: Option<ReplySender>) -> Self {
        let sandbox = issue.sandbox().map(Arc::new);
        Self {
            number: 0,
            durable: true,
            delivery: None,
            account: issue.account.clone(),
            claims: Vec::new(),
            stores_claims: false,
            reply,
            answered: Answered { reply: Reply::Nothing, duplicate: false, moved: false, sandbox },
            change: None,
            call: None,
            withdrawn: None,
            records_effects: false,
            due: None,
            is_fast_create: false,
            ends_fast_create: false,
            reservation: None,
            span: Span::current(),
        }
    }
}

/// Sends an answer if a caller waits for it.
pub(super) fn answer(reply: Option<ReplySender>, answer: Result<Answered, Unanswered>) {
    if let Some(reply) = reply {
        // If the caller went away, what it asked for is done all the same.
        drop(reply.send(answer));
    }
}

/// The row of the delivery that a commit records, before its result is known.
pub(super) fn delivery_row(meta: &EventMeta<'_>, issue: &Issue) -> Option<DeliveryRow> {
    let delivery = meta.issue_delivery?;
    Some(DeliveryRow {
        account: issue.account.clone(),
        id: delivery.delivery.clone(),
        received_at: delivery.received_at,
        recovered: delivery.recovered,
        event: delivery.event.clone(),
        action: delivery.action.clone(),
        home: Some(issue.home),
        applied: false,
        reason: String::new(),
        state: DeliveryState::Done,
    })
}

/// The row with what the step answered.
pub(super) fn with_result(row: DeliveryRow, reply: &Reply) -> DeliveryRow {
    match reply {
        Reply::Delivered(result) => {
            DeliveryRow { applied: result.applied, reason: result.reason.clone(), ..row }
        }
        Reply::Nothing
        | Reply::Ensured { .. }
        | Reply::OtherPlace
        | Reply::Accepted
        | Reply::AlreadyAbsent
        | Reply::Denied(_)
        | Reply::Merged { .. }
        | Reply::Run(_)
        | Reply::Refused(_) => row,
    }
}

/// What a commit changes, as it is published.
pub(super) fn change(commit: &Commit, sandbox: Option<Arc<Sandbox>>) -> Change {
    let Commit { issue, aliases, ended, timeline, instruction, said, .. } = commit;
    let new_ids = aliases.iter().filter_map(|alias| match alias {
        Alias::Issue(id) => Some(id.clone()),
        Alias::Numbered(..) => None,
    });
    Change {
        home: issue.home,
        account: issue.account.clone(),
        version: issue.version,
        aliases: new_ids.collect(),
        is_deleted: issue.facts.deleted,
        names_go_to: issue.merged_into,
        placed_as_of: issue.facts.named_as_of(),
        sandbox,
        ended: ended.clone().map(Arc::new),
        came_up: came_up(issue, timeline),
        timeline: timeline.clone(),
        instruction: instruction.as_ref().map(InstructionExcerpt::of),
        messages: said.messages.clone(),
        runs: said.runs.clone(),
        order: order(issue),
    }
}

/// The names that outputs had claimed which never leave. Whether their commits landed is unknown,
/// so that their slots are kept until the successor has loaded.
pub(super) fn names_left(outbox: VecDeque<Box<StepOutput>>) -> Vec<(AccountName, Vec<Alias>)> {
    let left = |output: Box<StepOutput>| {
        output.reservation.into_iter().for_each(QuotaReservation::keep);
        (output.account, output.claims)
    };
    outbox.into_iter().map(left).collect()
}

/// Whether a commit that ended like this is certain not to be stored, and no other activation of
/// the home can have stored one in between.
pub(super) const fn is_not_stored(error: &CommitError) -> bool {
    match error {
        CommitError::DuplicateDelivery | CommitError::AliasTaken | CommitError::Overloaded => true,
        CommitError::Fenced | CommitError::Damaged { .. } | CommitError::Failed(_) => false,
    }
}

/// The name that an issue's repository had before a step, and the one it has since, if it is the
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

/// What an issue's template says runs in its sandbox, if that came up in this step.
fn came_up(issue: &Issue, timeline: &[TimelineEntry]) -> Option<Arc<Workload>> {
    let came_up = |entry: &TimelineEntry| {
        matches!(entry.from, Some(Phase::Creating | Phase::Starting))
            && entry.to == Some(Phase::Running)
    };
    let record = issue.state.record().filter(|_| timeline.iter().any(came_up))?;
    Some(Arc::clone(&record.template.workload))
}
