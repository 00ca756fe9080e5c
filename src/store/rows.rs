//! How domain values look in rows: the JSON bodies, and the columns beside them.
//!
//! Nothing here knows SQL, so that adapters for different databases store the same rows.
//!
//! Domain types are not `Serialize`, so that a change of theirs is a decision about what is stored
//! and not an accident. A value is in a column *or* in the body, never in both, so that the two
//! cannot disagree; only the folded repositories, the text to search and what [`ScopeColumns`]
//! holds are derived copies.
//! Decoding gives back exactly what was encoded; a property test holds this for every state.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::issue::acts::Acts;
use crate::issue::{Facts, Issue, IssueState};
use crate::types::{
    AccountName, Attempt, ExternalId, Failure, Generation, HomeId, IssueId, IssueNumber, Mode,
    NetworkKind, Phase, ProviderName, Repository, Sandbox, SandboxId, SandboxMeta, TemplateName,
    TemplateVersion, Timestamp, Wanted,
};

mod account;
mod conversation;
mod effect;
mod fan_out;
mod github;
mod hooks;
mod instruction;
mod network;
mod parts;
mod question;
mod shared;
mod steps;
mod workload;

pub(super) use account::{account_rules, account_rules_body};
use conversation::ConversationPart;
pub(super) use conversation::{run, run_body, source, source_word};
pub(super) use effect::{effect, effect_body};
pub(super) use fan_out::{fan_out, fan_out_body};
pub(super) use github::{github_body, github_effect};
pub(super) use instruction::{instruction, instruction_body};
use parts::{FactsPart, FailurePart, NextPart, PendingStartPart, RecordPart, Word};
use shared::shared;
use steps::{By, GoalPart, StepPart};

/// A row that this version cannot have written.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadRow {
    /// A live sandbox without something that its phase always has.
    #[error("a row in the phase {phase} has no {part}")]
    Missing { phase: Phase, part: &'static str },
    /// A row without a live sandbox if only such were asked for.
    #[error("a row has no live sandbox")]
    NotLive,
    /// A column holds a word that is none of the known ones.
    #[error("a row holds the unknown word {0:?}")]
    UnknownWord(String),
    /// The key of a delivery has not the length of a GUID.
    #[error("a row holds a GUID that is none")]
    Guid,
    /// An instruction has no text, neither in its column nor in its body.
    #[error("a row of an instruction has no text")]
    NoText,
    /// The body is not the JSON it should be.
    #[error("the body of a row cannot be read")]
    Body(#[from] serde_json::Error),
}

/// What of a home's state is not in columns.
#[derive(Serialize, Deserialize)]
struct IssueBody<'a> {
    #[serde(borrow)]
    facts: FactsPart<'a>,
    generation: u32,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "wish")]
    pending_start: Option<PendingStartPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delete_due: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    life_due: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    may_land_until: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    merged_into: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conversation: Option<ConversationPart>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    record: Option<RecordPart<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    step: Option<StepPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<GoalPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<By>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    failure: Option<FailurePart<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    next: Option<NextPart<'a>>,
}

/// A row of `issue` to be written, without home, account and version.
pub(super) struct IssueRow<'a> {
    pub(super) due_at: Option<i64>,
    pub(super) phase: Option<&'static str>,
    pub(super) sandbox_id: Option<&'a str>,
    pub(super) provider: Option<&'a str>,
    pub(super) external_id: Option<&'a str>,
    pub(super) created_at: Option<i64>,
    pub(super) repository: Option<String>,
    pub(super) search: Option<String>,
    pub(super) body: String,
    pub(super) scope_event: ScopeColumns,
}

/// The columns of `issue` by which news of a repository or an installation find it, and the pending
/// start. They are filled whatever the phase, and hardly ever change.
pub(super) struct ScopeColumns {
    pub(super) repository_id: Option<i64>,
    pub(super) installation_id: Option<i64>,
    pub(super) wish_at: Option<i64>,
    /// The repository in lower case; only if there is a pending start.
    pub(super) wish_repository: Option<String>,
}

impl ScopeColumns {
    fn of(issue: &Issue) -> Self {
        let Issue { facts, pending_start, .. } = issue;
        let wish_repository = pending_start.as_ref().and(facts.repository.as_ref());
        Self {
            repository_id: facts.repository_id.map(u64::cast_signed),
            installation_id: facts.installation_id.map(u64::cast_signed),
            wish_at: pending_start.as_ref().map(|pending_start| pending_start.since.unix_ms()),
            wish_repository: wish_repository.map(Repository::folded),
        }
    }
}

impl<'a> IssueRow<'a> {
    /// The row that keeps this state.
    ///
    /// # Errors
    /// [`BadRow::Body`] if JSON cannot express it, which no state is known to cause.
    pub(super) fn encode(issue: &'a Issue) -> Result<Self, BadRow> {
        let Issue {
            facts,
            generation,
            pending_start,
            delete_due,
            life_due,
            may_land_until,
            merged_into,
            conversation,
            state,
            home: _,
            account: _,
            version: _,
        } = issue;
        let (goal, by, next) = match state {
            IssueState::Absent | IssueState::Running { .. } => (None, None, None),
            IssueState::Creating { goal, .. }
            | IssueState::Starting { goal, .. }
            | IssueState::Failed { goal, .. } => (Some(*goal), None, None),
            IssueState::Stopping { goal, by, .. } => (Some(*goal), Some(*by), None),
            IssueState::Stopped { by, .. } => (None, Some(*by), None),
            IssueState::Deleting { next, .. } => (None, None, next.as_ref()),
        };
        let record = state.record();
        let body = IssueBody {
            facts: facts.into(),
            generation: generation.0,
            pending_start: pending_start.as_ref().map(Into::into),
            delete_due: delete_due.map(Timestamp::unix_ms),
            life_due: life_due.map(Timestamp::unix_ms),
            may_land_until: may_land_until.map(Timestamp::unix_ms),
            merged_into: merged_into.map(|home| home.0),
            conversation: conversation.as_deref().map(Into::into),
            record: record.map(Into::into),
            step: state.step().map(Into::into),
            goal: goal.map(Into::into),
            by: by.map(Into::into),
            failure: state.failure().map(Into::into),
            next: next.map(Into::into),
        };
        Ok(Self {
            due_at: issue.due_at().map(Timestamp::unix_ms),
            phase: state.phase().map(Phase::as_str),
            sandbox_id: record.map(|record| record.id.as_str()),
            provider: record.map(|record| record.template.provider.as_str()),
            external_id: state.external_id().map(ExternalId::as_str),
            created_at: record.map(|record| record.created_at.unix_ms()),
            repository: record.and(facts.repository.as_ref()).map(Repository::folded),
            search: record.map(|record| {
                let title = facts.title.as_ref().map(|known| known.value.as_str());
                search_text(&record.name, title, facts.repository.as_ref(), &record.id)
            }),
            body: serde_json::to_string(&body)?,
            scope_event: ScopeColumns::of(issue),
        })
    }
}

/// The columns of a row of `issue`, as a database gives them back.
pub(super) struct IssueColumns<'a> {
    pub(super) home: i64,
    pub(super) account: &'a str,
    pub(super) version: i64,
    pub(super) phase: Option<&'a str>,
    pub(super) sandbox_id: Option<&'a str>,
    pub(super) provider: Option<&'a str>,
    pub(super) external_id: Option<&'a str>,
    pub(super) created_at: Option<i64>,
    pub(super) body: &'a str,
}

impl IssueColumns<'_> {
    /// The state that this row keeps.
    ///
    /// # Errors
    /// [`BadRow`] if this version cannot have written it.
    pub(super) fn decode(&self) -> Result<Issue, BadRow> {
        let mut body: IssueBody<'_> = serde_json::from_str(self.body)?;
        let state = match parse_phase(self.phase)? {
            None => IssueState::Absent,
            Some(phase) => self.state(phase, &mut body)?,
        };
        let conversation = body.conversation.take().map(TryInto::try_into).transpose()?;
        // Of an older row; `None` if it has acts.
        let ended = body.facts.acts.is_none().then_some(body.facts.ended_by_person_at);
        let mut issue = Issue {
            home: HomeId(self.home),
            account: AccountName::trusted(shared(self.account)),
            version: self.version.cast_unsigned(),
            facts: Facts::from(body.facts),
            generation: Generation(body.generation),
            pending_start: body
                .pending_start
                .map(PendingStartPart::into_pending_start)
                .transpose()?,
            delete_due: body.delete_due.map(Timestamp::from_unix_ms),
            life_due: body.life_due.map(Timestamp::from_unix_ms),
            may_land_until: body.may_land_until.map(Timestamp::from_unix_ms),
            merged_into: body.merged_into.map(HomeId),
            conversation: conversation.map(Box::new),
            state,
        };
        if let Some(ended) = ended {
            issue.facts.acts = Acts::of_older_row(&issue, ended.map(Timestamp::from_unix_ms));
        }
        Ok(issue)
    }

    /// The live sandbox of this row.
    ///
    /// # Errors
    /// As for [`Self::decode`]; [`BadRow::NotLive`] for a row without one.
    pub(super) fn live_sandbox(&self) -> Result<Sandbox, BadRow> {
        self.decode()?.sandbox().ok_or(BadRow::NotLive)
    }

    /// The state of a live sandbox, taken out of its body.
    fn state(&self, phase: Phase, body: &mut IssueBody<'_>) -> Result<IssueState, BadRow> {
        let need = |part| BadRow::Missing { phase, part };
        let external_id = self.external_id.map(ExternalId::trusted);
        let record = body.record.take().ok_or_else(|| need("record"))?.into_record(
            SandboxId::trusted(self.sandbox_id.ok_or_else(|| need("sandbox id"))?),
            ProviderName::trusted(shared(self.provider.ok_or_else(|| need("provider"))?)),
            Timestamp::from_unix_ms(self.created_at.ok_or_else(|| need("creation time"))?),
        )?;
        let step = body.step.take().map(Into::into).ok_or_else(|| need("step"));
        let goal = body.goal.take().map(Into::into).ok_or_else(|| need("goal"));
        let by = body.by.take().map(Into::into).ok_or_else(|| need("by"));
        let object = external_id.clone().ok_or_else(|| need("external id"));
        let failure = body.failure.take().map(Failure::from);
        Ok(match phase {
            Phase::Creating => {
                IssueState::Creating { record, goal: goal?, step: step?, giving_up: failure }
            }
            Phase::Running => IssueState::Running { record, external_id: object? },
            Phase::Stopping => IssueState::Stopping {
                record,
                external_id: object?,
                by: by?,
                goal: goal?,
                step: step?,
            },
            Phase::Stopped => IssueState::Stopped { record, external_id: object?, by: by? },
            Phase::Starting => {
                IssueState::Starting { record, external_id: object?, goal: goal?, step: step? }
            }
            Phase::Failed => IssueState::Failed {
                record,
                external_id,
                goal: goal?,
                failure: failure.ok_or_else(|| need("failure"))?,
            },
            Phase::Deleting => IssueState::Deleting {
                record,
                external_id,
                step: step?,
                failure,
                next: body.next.take().map(NextPart::into_plan).transpose()?,
            },
        })
    }
}

/// What of an ended sandbox is not in columns.
#[derive(Serialize, Deserialize)]
struct EndedBody<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    issue_id: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<Cow<'a, str>>,
    #[serde(borrow)]
    template: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    meta: BTreeMap<String, String>,
    /// `None` if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Word<NetworkKind>>,
    #[serde(default, skip_serializing_if = "<[u16]>::is_empty")]
    ports: Cow<'a, [u16]>,
    mode: Word<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<Word<Phase>>,
    wanted: Word<Wanted>,
    attempt: u32,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    failure: Option<FailurePart<'a>>,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    phase_since: i64,
    last_activity_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<i64>,
}

/// The body of the row of `ended` that keeps this sandbox.
///
/// # Errors
/// As for [`IssueRow::encode`].
pub(super) fn ended_body(sandbox: &Sandbox) -> Result<String, BadRow> {
    Ok(serde_json::to_string(&EndedBody {
        name: Cow::Borrowed(&sandbox.name),
        issue_id: Cow::Borrowed(sandbox.issue_id.as_str()),
        repository: sandbox.repository.as_ref().map(|name| Cow::Borrowed(name.as_str())),
        number: sandbox.issue_number.map(|number| number.0),
        title: sandbox.issue_title.as_deref().map(Cow::Borrowed),
        url: sandbox.issue_url.as_deref().map(Cow::Borrowed),
        template: Cow::Borrowed(sandbox.template.as_str()),
        template_version: sandbox.template_version.map(|version| version.to_string()),
        agent_id: sandbox.agent_id.as_deref().map(Cow::Borrowed),
        meta: sandbox.meta.to_entries(),
        network: match sandbox.network {
            NetworkKind::None => None,
            kind @ (NetworkKind::Allow | NetworkKind::Full | NetworkKind::Host) => Some(Word(kind)),
        },
        ports: Cow::Borrowed(&sandbox.ports),
        mode: Word(sandbox.mode),
        phase: sandbox.phase.map(Word),
        wanted: Word(sandbox.wanted),
        attempt: sandbox.attempt.0,
        failure: sandbox.failure.as_ref().map(Into::into),
        reason: Cow::Borrowed(&sandbox.reason),
        phase_since: sandbox.phase_since.unix_ms(),
        last_activity_at: sandbox.last_activity_at.unix_ms(),
        deleted_at: sandbox.deleted_at.map(Timestamp::unix_ms),
    })?)
}

/// The columns of a row of `ended`, as a database gives them back.
pub(super) struct EndedColumns<'a> {
    pub(super) home: i64,
    pub(super) account: &'a str,
    pub(super) generation: u32,
    pub(super) sandbox_id: &'a str,
    pub(super) provider: &'a str,
    pub(super) external_id: Option<&'a str>,
    pub(super) created_at: i64,
    pub(super) body: &'a str,
}

impl EndedColumns<'_> {
    /// The ended sandbox that this row keeps.
    ///
    /// # Errors
    /// [`BadRow`] if this version cannot have written it.
    pub(super) fn decode(&self) -> Result<Sandbox, BadRow> {
        let body: EndedBody<'_> = serde_json::from_str(self.body)?;
        Ok(Sandbox {
            id: SandboxId::trusted(self.sandbox_id),
            home: HomeId(self.home),
            account: AccountName::trusted(shared(self.account)),
            name: body.name.into_owned(),
            issue_id: IssueId::trusted(&*body.issue_id),
            repository: body.repository.map(|name| Repository::trusted(shared(&name))),
            issue_number: body.number.map(IssueNumber),
            issue_title: body.title.map(Cow::into_owned),
            issue_url: body.url.map(Cow::into_owned),
            provider: ProviderName::trusted(shared(self.provider)),
            external_id: self.external_id.map(ExternalId::trusted),
            template: TemplateName::trusted(shared(&body.template)),
            template_version: body.template_version.as_deref().and_then(TemplateVersion::parse),
            agent_id: body.agent_id.map(|id| shared(&id)),
            meta: SandboxMeta::stored(body.meta),
            network: body.network.map_or(NetworkKind::None, |word| word.0),
            ports: body.ports.into_owned(),
            mode: body.mode.0,
            phase: body.phase.map(|word| word.0),
            wanted: body.wanted.0,
            generation: Generation(self.generation),
            attempt: Attempt(body.attempt),
            failure: body.failure.map(Into::into),
            reason: body.reason.into_owned(),
            created_at: Timestamp::from_unix_ms(self.created_at),
            phase_since: Timestamp::from_unix_ms(body.phase_since),
            last_activity_at: Timestamp::from_unix_ms(body.last_activity_at),
            agent: None,
            deleted_at: body.deleted_at.map(Timestamp::from_unix_ms),
        })
    }
}

/// The text in which `q` is searched, in lower case. A newline keeps its parts apart.
pub(super) fn search_text(
    name: &str,
    title: Option<&str>,
    repository: Option<&Repository>,
    id: &SandboxId,
) -> String {
    let mut text = String::with_capacity(160);
    let parts = [Some(name), title, repository.map(Repository::as_str), Some(id.as_str())];
    for part in parts.into_iter().flatten() {
        text.push_str(part);
        text.push('\n');
    }
    text.to_lowercase()
}

/// A phase as a column holds it.
///
/// # Errors
/// [`BadRow::UnknownWord`].
pub(super) fn parse_phase(word: Option<&str>) -> Result<Option<Phase>, BadRow> {
    let parse = |word| Phase::parse(word).ok_or_else(|| BadRow::UnknownWord(word.into()));
    word.map(parse).transpose()
}
