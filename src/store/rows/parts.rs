//! The parts that bodies are made of, each with its way from and to the domain.
//!
//! Names of fields and words are what is stored: renaming one needs a migration. A field that is
//! added later must be optional here, so that older rows can still be read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::BadRow;
use super::network::NetworkPart;
use super::shared::{no_workload, shared, version_of};
use super::workload::WorkloadPart;
use crate::issue::acts::Acts;
use crate::issue::{Dated, Facts, Healing, PendingStart, Record, SandboxPlan};
use crate::types::{
    Attempt, Failure, FailureCode, Generation, IssueId, IssueNumber, Mode, Network, NetworkKind,
    ObjectName, OnLimit, Phase, ProviderName, ProviderStep, Repository, Resources, SandboxId,
    SandboxMeta, Template, TemplateName, Timestamp, Wanted,
};

/// An enum of the vocabulary, stored as its stable word.
#[derive(Clone, Copy)]
pub(super) struct Word<T>(pub(super) T);

macro_rules! stored_as_word {
    ($($name:ident),*) => {$(
        impl Serialize for Word<$name> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.0.as_str())
            }
        }

        impl<'de> Deserialize<'de> for Word<$name> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let word = String::deserialize(from)?;
                let unknown = || D::Error::custom(format!("unknown {} {word:?}", stringify!($name)));
                $name::parse(&word).map(Word).ok_or_else(unknown)
            }
        }
    )*};
}
stored_as_word!(FailureCode, Mode, NetworkKind, Phase, ProviderStep, Wanted);

/// A fact, and as of when it is known.
#[derive(Serialize, Deserialize)]
struct KnownPart<T>(T, i64);

impl<T> KnownPart<T> {
    fn into_known<U>(self, value: impl FnOnce(T) -> U) -> Dated<U> {
        Dated { value: value(self.0), as_of: Timestamp::from_unix_ms(self.1) }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct FactsPart<'a> {
    #[serde(borrow)]
    issue_id: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repository_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    installation_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    placed_as_of: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renamed_as_of: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<KnownPart<Cow<'a, str>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<KnownPart<bool>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labelled: Option<KnownPart<bool>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assigned: Option<KnownPart<bool>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    /// In older rows only, in place of `acts`.
    #[serde(default, skip_serializing)]
    pub(super) ended_by_person_at: Option<i64>,
    /// Missing in older rows.
    #[serde(default)]
    pub(super) acts: Option<ActsPart>,
    #[serde(default, skip_serializing_if = "<[u64]>::is_empty")]
    left_repositories: Cow<'a, [u64]>,
    #[serde(default, skip_serializing_if = "<[u64]>::is_empty")]
    counted_comments: Cow<'a, [u64]>,
}

impl<'a> From<&'a Facts> for FactsPart<'a> {
    fn from(facts: &'a Facts) -> Self {
        let known = |fact: &Dated<bool>| KnownPart(fact.value, fact.as_of.unix_ms());
        Self {
            issue_id: Cow::Borrowed(facts.issue_id.as_str()),
            repository: facts.repository.as_ref().map(|name| Cow::Borrowed(name.as_str())),
            repository_id: facts.repository_id,
            installation_id: facts.installation_id,
            number: facts.number.map(|number| number.0),
            placed_as_of: facts.placed_as_of.map(Timestamp::unix_ms),
            renamed_as_of: facts.renamed_as_of.map(Timestamp::unix_ms),
            title: facts
                .title
                .as_ref()
                .map(|title| KnownPart(Cow::Borrowed(title.value.as_str()), title.as_of.unix_ms())),
            url: facts.url.as_deref().map(Cow::Borrowed),
            open: facts.open.as_ref().map(known),
            labelled: facts.labelled.as_ref().map(known),
            assigned: facts.assigned.as_ref().map(known),
            deleted: facts.deleted,
            ended_by_person_at: None,
            acts: Some((&facts.acts).into()),
            left_repositories: Cow::Borrowed(&facts.left_repositories),
            counted_comments: Cow::Borrowed(&facts.counted_comments),
        }
    }
}

impl From<FactsPart<'_>> for Facts {
    fn from(part: FactsPart<'_>) -> Self {
        Self {
            issue_id: IssueId::trusted(&*part.issue_id),
            repository: part.repository.map(|name| Repository::trusted(shared(&name))),
            repository_id: part.repository_id,
            installation_id: part.installation_id,
            number: part.number.map(IssueNumber),
            placed_as_of: part.placed_as_of.map(Timestamp::from_unix_ms),
            renamed_as_of: part.renamed_as_of.map(Timestamp::from_unix_ms),
            title: part.title.map(|known| known.into_known(Cow::into_owned)),
            url: part.url.map(Cow::into_owned),
            open: part.open.map(|known| known.into_known(|open| open)),
            labelled: part.labelled.map(|known| known.into_known(|labelled| labelled)),
            assigned: part.assigned.map(|known| known.into_known(|assigned| assigned)),
            deleted: part.deleted,
            acts: part.acts.map(Acts::from).unwrap_or_default(),
            left_repositories: part.left_repositories.into_owned(),
            counted_comments: part.counted_comments.into_owned(),
        }
    }
}

/// When each kind of act last happened, in milliseconds since 1970.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct ActsPart {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_asked: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reopened: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taken_away: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shown_open: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shown_closed: Option<i64>,
}

impl From<&Acts> for ActsPart {
    fn from(acts: &Acts) -> Self {
        let ms = |time: Option<Timestamp>| time.map(Timestamp::unix_ms);
        Self {
            first_asked: ms(acts.first_asked),
            asked: ms(acts.asked),
            reopened: ms(acts.reopened),
            started: ms(acts.started),
            stopped: ms(acts.stopped),
            taken_away: ms(acts.taken_away),
            closed: ms(acts.closed),
            deleted: ms(acts.deleted),
            shown_open: ms(acts.shown_open),
            shown_closed: ms(acts.shown_closed),
        }
    }
}

impl From<ActsPart> for Acts {
    fn from(part: ActsPart) -> Self {
        let time = |ms: Option<i64>| ms.map(Timestamp::from_unix_ms);
        Self {
            first_asked: time(part.first_asked),
            asked: time(part.asked),
            reopened: time(part.reopened),
            started: time(part.started),
            stopped: time(part.stopped),
            taken_away: time(part.taken_away),
            closed: time(part.closed),
            deleted: time(part.deleted),
            shown_open: time(part.shown_open),
            shown_closed: time(part.shown_closed),
        }
    }
}

/// A record without its id, provider and time of making, which are columns.
#[derive(Serialize, Deserialize)]
pub(super) struct RecordPart<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    object: Cow<'a, str>,
    generation: u32,
    #[serde(borrow)]
    template: TemplatePart<'a>,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    agent_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    meta: BTreeMap<String, String>,
    mode: Word<Mode>,
    phase_since: i64,
    last_activity_at: i64,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    may_land_until: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_may_land_until: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    made_at_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    healing: Option<HealingPart>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    left_nothing: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    needs_cold_start: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    owes_farewell: bool,
}

/// The automatic retries of a failure: since when, how many, when next.
#[derive(Serialize, Deserialize)]
struct HealingPart(i64, u32, i64);

impl<'a> From<&'a Record> for RecordPart<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            name: Cow::Borrowed(&record.name),
            object: Cow::Borrowed(record.object_name.as_str()),
            generation: record.generation.0,
            template: (&record.template).into(),
            agent_id: record.agent_id.as_deref().map(Cow::Borrowed),
            meta: record.meta.to_entries(),
            mode: Word(record.mode),
            phase_since: record.phase_since.unix_ms(),
            last_activity_at: record.last_activity_at.unix_ms(),
            reason: Cow::Borrowed(&record.reason),
            attempt: record.attempt.0,
            may_land_until: record.may_land_until.map(Timestamp::unix_ms),
            stop_may_land_until: record.stop_may_land_until.map(Timestamp::unix_ms),
            deadline: record.deadline.map(Timestamp::unix_ms),
            made_at_ns: record.made_at_ns,
            healing: record.healing.map(|Healing { since, tries, due }| {
                HealingPart(since.unix_ms(), tries, due.unix_ms())
            }),
            left_nothing: record.left_nothing,
            needs_cold_start: record.needs_cold_start,
            owes_farewell: record.owes_farewell,
        }
    }
}

impl RecordPart<'_> {
    pub(super) fn into_record(
        self,
        id: SandboxId,
        provider: ProviderName,
        created_at: Timestamp,
    ) -> Result<Record, BadRow> {
        // The version is not stored: it follows from the template, which is stored whole.
        let template = self.template.into_template(provider)?;
        Ok(Record {
            id,
            name: self.name.into_owned(),
            object_name: ObjectName::trusted(&*self.object),
            generation: Generation(self.generation),
            template_version: version_of(&template),
            template,
            agent_id: self.agent_id.map(|id| shared(&id)),
            meta: SandboxMeta::stored(self.meta),
            mode: self.mode.0,
            created_at,
            phase_since: Timestamp::from_unix_ms(self.phase_since),
            last_activity_at: Timestamp::from_unix_ms(self.last_activity_at),
            reason: self.reason.into_owned(),
            attempt: Attempt(self.attempt),
            may_land_until: self.may_land_until.map(Timestamp::from_unix_ms),
            stop_may_land_until: self.stop_may_land_until.map(Timestamp::from_unix_ms),
            deadline: self.deadline.map(Timestamp::from_unix_ms),
            made_at_ns: self.made_at_ns,
            healing: self.healing.map(|HealingPart(since, tries, due)| Healing {
                since: Timestamp::from_unix_ms(since),
                tries,
                due: Timestamp::from_unix_ms(due),
            }),
            left_nothing: self.left_nothing,
            needs_cold_start: self.needs_cold_start,
            owes_farewell: self.owes_farewell,
        })
    }
}

/// A template without its provider.
#[derive(Serialize, Deserialize)]
struct TemplatePart<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    mode: Word<Mode>,
    /// As text, since that gives the same number back to the last bit.
    #[serde(borrow)]
    cpu: Cow<'a, str>,
    memory_mb: u64,
    processes: u32,
    disk_mb: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    stops_on_limit: bool,
    /// `None` if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<NetworkPart>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ports: Vec<u16>,
    /// Empty if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workload: Option<WorkloadPart>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl<'a> From<&'a Template> for TemplatePart<'a> {
    fn from(template: &'a Template) -> Self {
        let Resources { cpu, memory_mb, processes, disk_mb } = template.resources;
        Self {
            name: Cow::Borrowed(template.name.as_str()),
            mode: Word(template.mode),
            cpu: Cow::Owned(cpu.to_string()),
            memory_mb,
            processes,
            disk_mb,
            stops_on_limit: match template.on_limit {
                OnLimit::Kill => false,
                OnLimit::Stop => true,
            },
            network: NetworkPart::of(&template.network),
            ports: template.ports.clone(),
            workload: WorkloadPart::of(&template.workload),
        }
    }
}

impl TemplatePart<'_> {
    fn into_template(self, provider: ProviderName) -> Result<Template, BadRow> {
        let cpu = self.cpu.parse().map_err(|_| BadRow::UnknownWord(self.cpu.into_owned()))?;
        Ok(Template {
            name: TemplateName::trusted(shared(&self.name)),
            provider,
            mode: self.mode.0,
            resources: Resources {
                cpu,
                memory_mb: self.memory_mb,
                processes: self.processes,
                disk_mb: self.disk_mb,
            },
            network: self.network.map_or(Ok(Network::None), NetworkPart::into_network)?,
            ports: self.ports,
            on_limit: if self.stops_on_limit { OnLimit::Stop } else { OnLimit::Kill },
            workload: match self.workload {
                Some(workload) => workload.into_workload()?.into(),
                None => no_workload(),
            },
        })
    }
}

/// A pending start.
#[derive(Serialize, Deserialize)]
pub(super) struct PendingStartPart<'a> {
    since: i64,
    #[serde(borrow)]
    why: Cow<'a, str>,
    #[serde(borrow, rename = "template", skip_serializing_if = "Option::is_none")]
    plan: Option<NextPart<'a>>,
}

impl<'a> From<&'a PendingStart> for PendingStartPart<'a> {
    fn from(pending_start: &'a PendingStart) -> Self {
        Self {
            since: pending_start.since.unix_ms(),
            why: Cow::Borrowed(&pending_start.why),
            plan: pending_start.plan.as_ref().map(Into::into),
        }
    }
}

impl PendingStartPart<'_> {
    pub(super) fn into_pending_start(self) -> Result<PendingStart, BadRow> {
        Ok(PendingStart {
            since: Timestamp::from_unix_ms(self.since),
            why: self.why.into_owned(),
            plan: self.plan.map(NextPart::into_plan).transpose()?,
        })
    }
}

/// What a generation is to be that waits for the removal of the last one, or to be granted.
#[derive(Serialize, Deserialize)]
pub(super) struct NextPart<'a> {
    #[serde(borrow)]
    provider: Cow<'a, str>,
    #[serde(borrow)]
    template: TemplatePart<'a>,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    agent_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    meta: BTreeMap<String, String>,
}

impl<'a> From<&'a SandboxPlan> for NextPart<'a> {
    fn from(plan: &'a SandboxPlan) -> Self {
        let SandboxPlan { template, agent_id, meta } = plan;
        Self {
            provider: Cow::Borrowed(template.provider.as_str()),
            template: template.into(),
            agent_id: agent_id.as_deref().map(Cow::Borrowed),
            meta: meta.to_entries(),
        }
    }
}

impl NextPart<'_> {
    pub(super) fn into_plan(self) -> Result<SandboxPlan, BadRow> {
        Ok(SandboxPlan {
            template: self.template.into_template(ProviderName::trusted(&*self.provider))?,
            agent_id: self.agent_id.map(|id| shared(&id)),
            meta: SandboxMeta::stored(self.meta),
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct FailurePart<'a> {
    code: Word<FailureCode>,
    step: Word<ProviderStep>,
    #[serde(borrow)]
    message: Cow<'a, str>,
    retryable: bool,
}

impl<'a> From<&'a Failure> for FailurePart<'a> {
    fn from(failure: &'a Failure) -> Self {
        Self {
            code: Word(failure.code),
            step: Word(failure.step),
            message: Cow::Borrowed(&failure.message),
            retryable: failure.retryable,
        }
    }
}

impl From<FailurePart<'_>> for Failure {
    fn from(part: FailurePart<'_>) -> Self {
        Self {
            code: part.code.0,
            step: part.step.0,
            message: part.message.into_owned(),
            retryable: part.retryable,
        }
    }
}
