//! The wire types: the JSON of the API, converted from domain types by `From`.
//!
//! Domain types are not serializable, so that renaming one does not change the API. Times are
//! RFC 3339 in UTC, 64-bit ids are strings, sizes are bytes, and every duration has its unit in
//! its name.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::doc::words::{
    AgentStateWord, ErrorWord, FailureWord, ModeWord, NetworkWord, PhaseWord, StepWord, WantedWord,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::instruction::InstructionBody;
use super::question::QuestionBody;
use crate::store::TimelineListRow;
use crate::store::sync::SyncRow;
use crate::types::{Failure, Money, Phase, RunState, Sandbox, SyncStats};

/// A successful call.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Success<T> {
    /// Always true.
    pub success: bool,
    /// The result.
    pub data: T,
    /// The id of the sandbox, if the call is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
}

impl<T> Success<T> {
    /// A result about no sandbox.
    pub fn of(data: T) -> Self {
        Self { success: true, data, sandbox_id: None }
    }

    /// A result about this sandbox.
    pub fn about(sandbox: &Sandbox, data: T) -> Self {
        Self { success: true, data, sandbox_id: Some(sandbox.id.to_string()) }
    }
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListAnswer<T> {
    /// Always true.
    pub success: bool,
    /// The entries of this page.
    pub data: Vec<T>,
    /// The `cursor` of the next page; null on the last.
    pub next_cursor: Option<String>,
    /// The number of entries on all pages.
    pub total: u64,
    /// Resumes `/v1/events` after this list without a gap; only on lists of sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_cursor: Option<String>,
}

/// A failed call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Failure)]
pub struct ErrorAnswer<'a> {
    /// Always false.
    pub success: bool,
    /// The error.
    pub error: ErrorBody<'a>,
}

/// The error of a failed call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub struct ErrorBody<'a> {
    /// A stable code to branch on.
    #[schema(value_type = ErrorWord)]
    pub code: &'static str,
    /// A message for people.
    pub message: &'a str,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'a str>,
    /// The input that was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'a str>,
    /// What the input could have named, in alphabetical order; only with `template_unknown`.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub known: &'a [String],
}

/// A sandbox.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Sandbox)]
pub struct SandboxBody<'a> {
    /// Its opaque id.
    pub id: &'a str,
    /// Its name for people, `claude-issue-{issueId}`.
    pub name: &'a str,
    /// Its account.
    pub account: &'a str,
    /// The issue's id: the decimal of GitHub's global id, or an id that a caller chose.
    pub issue_id: &'a str,
    /// `owner/name`, if known.
    pub repository: Option<&'a str>,
    /// The issue's number in its repository, if known.
    pub issue_number: Option<u64>,
    /// The issue's title, if known.
    pub issue_title: Option<&'a str>,
    /// The address of the issue's page, if known.
    pub issue_url: Option<&'a str>,
    /// Its provider.
    pub provider: &'a str,
    /// The id of its object at the provider, once known.
    pub external_id: Option<&'a str>,
    /// Its template.
    pub template: &'a str,
    /// The version that its template had when it was recorded, see `/v1/templates`; null of one that
    /// was deleted before versions were kept.
    pub template_version: Option<String>,
    /// The `agentId` of the ensure that had it created; null if none was given.
    pub agent_id: Option<&'a str>,
    /// What it can reach.
    #[schema(value_type = NetworkWord)]
    pub network: &'static str,
    /// How its create was recorded.
    #[schema(value_type = ModeWord)]
    pub mode: &'static str,
    /// Its phase; null after its deletion.
    #[schema(value_type = Option<PhaseWord>)]
    pub phase: Option<&'static str>,
    /// Its desired state.
    #[schema(value_type = WantedWord)]
    pub wanted: &'static str,
    /// Counts the sandboxes of its issue: 1, 2, …
    pub generation: u32,
    /// The number of its latest provider call.
    pub attempt: u32,
    /// Its failure, if it has one.
    pub failure: Option<FailureBody<'a>>,
    /// Why it is in this phase.
    pub reason: &'a str,
    /// The ports that can be reached from outside.
    pub endpoints: Vec<EndpointBody>,
    /// The agent in it.
    pub agent: AgentBody<'a>,
    /// When it was recorded.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it entered its phase.
    #[schema(format = DateTime)]
    pub phase_since: String,
    /// When it was last used: by work in it, an ensure or a delivery.
    #[schema(format = DateTime)]
    pub last_activity_at: String,
    /// When the provider confirmed its deletion.
    #[schema(format = DateTime)]
    pub deleted_at: Option<String>,
    /// When its workspace was last synced with the object storage; left out if it never was.
    #[schema(format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_at: Option<String>,
    /// The same in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_unix: Option<i64>,
    /// What that sync did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_stats: Option<SyncStatsBody>,
    /// What callers noted with it, see `setSandboxMeta`.
    #[schema(value_type = std::collections::HashMap<String, String>)]
    pub meta: BTreeMap<&'a str, &'a str>,
}

/// What a sync did. Files are regular files and links.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SyncStats)]
pub struct SyncStatsBody {
    /// The files of the version.
    pub files_processed: u64,
    /// Those that were stored; the content of others was there already.
    pub files_uploaded: u64,
    /// Those that were written into the workspace.
    pub files_downloaded: u64,
    /// Files that are gone: since the last version, or out of the workspace.
    pub files_deleted: u64,
    /// Files that were there already.
    pub files_skipped: u64,
    /// Contents that were moved, in bytes.
    pub bytes_transferred: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

impl From<SyncStats> for SyncStatsBody {
    fn from(stats: SyncStats) -> Self {
        Self {
            files_processed: stats.files_processed,
            files_uploaded: stats.files_uploaded,
            files_downloaded: stats.files_downloaded,
            files_deleted: stats.files_deleted,
            files_skipped: stats.files_skipped,
            bytes_transferred: stats.bytes_transferred,
            duration_ms: stats.duration_ms,
        }
    }
}

/// What the agent in a sandbox does.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Agent)]
pub struct AgentBody<'a> {
    /// What.
    #[schema(value_type = AgentStateWord)]
    pub state: &'static str,
    /// Since when.
    #[schema(format = DateTime)]
    pub since: String,
    /// Why, in words; of an idle one how its last run ended. May be empty.
    pub reason: Cow<'a, str>,
    /// The id of the run in progress, else of the last one.
    pub run: Option<String>,
    /// What it asks a person, while it waits for the answer.
    pub question: Option<QuestionBody>,
    /// What that run has cost so far, in US dollars. Null in events and in answers to commands.
    pub cost: Option<f64>,
}

impl<'a> AgentBody<'a> {
    fn of(sandbox: &'a Sandbox, cost: Option<Money>) -> Self {
        let Some(agent) = sandbox.agent.as_deref() else {
            return Self {
                state: "idle",
                since: sandbox.phase_since.to_string(),
                reason: Cow::Borrowed(""),
                run: None,
                question: None,
                cost: None,
            };
        };
        let reason = match agent.state {
            RunState::Failed | RunState::OverBudget | RunState::Cancelled => {
                let state = agent.state.as_str().replace('_', " ");
                Cow::Owned(format!("the last run is {state}: {}", agent.reason))
            }
            RunState::Queued
            | RunState::Running
            | RunState::WaitingForPerson
            | RunState::Cancelling
            | RunState::Interrupted
            | RunState::Succeeded => Cow::Borrowed(agent.reason.as_str()),
        };
        Self {
            state: agent.state.of_agent(),
            since: agent.since.to_string(),
            reason,
            run: Some(agent.run.to_string()),
            question: agent.question.as_ref().map(Into::into),
            cost: cost.map(Money::dollars),
        }
    }
}

/// Why a sandbox failed, or why its delete does not succeed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SandboxFailure)]
pub struct FailureBody<'a> {
    /// The kind of failure.
    #[schema(value_type = FailureWord)]
    pub code: &'static str,
    /// The step that failed.
    #[schema(value_type = StepWord)]
    pub step: &'static str,
    /// What happened and what may be left at the provider, for people.
    pub message: &'a str,
    /// Whether a retry can succeed without a change.
    pub retryable: bool,
}

impl<'a> From<&'a Failure> for FailureBody<'a> {
    fn from(failure: &'a Failure) -> Self {
        Self {
            code: failure.code.as_str(),
            step: failure.step.as_str(),
            message: &failure.message,
            retryable: failure.retryable,
        }
    }
}

/// A port of a sandbox that can be reached from outside.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Endpoint)]
pub struct EndpointBody {
    /// The TCP port in the sandbox.
    pub port: u16,
    /// Its path on this server. `GET /v1/sandboxes/{id}/ports` says whether a server listens.
    pub url: String,
}

impl EndpointBody {
    /// The ports that the sandbox's template lists.
    pub fn all_of(sandbox: &Sandbox) -> Vec<Self> {
        let one = |port: &u16| {
            let url = format!("/v1/sandboxes/{}/ports/{port}/", sandbox.id);
            Self { port: *port, url }
        };
        sandbox.ports.iter().map(one).collect()
    }
}

impl<'a> SandboxBody<'a> {
    /// A sandbox, with what its agent's run cost if that is known.
    pub fn of(sandbox: &'a Sandbox, cost: Option<Money>) -> Self {
        Self {
            id: sandbox.id.as_str(),
            name: &sandbox.name,
            account: sandbox.account.as_str(),
            issue_id: sandbox.issue_id.as_str(),
            repository: sandbox.repository.as_ref().map(|r| r.as_str()),
            issue_number: sandbox.issue_number.map(|n| n.0),
            issue_title: sandbox.issue_title.as_deref(),
            issue_url: sandbox.issue_url.as_deref(),
            provider: sandbox.provider.as_str(),
            external_id: sandbox.external_id.as_ref().map(|id| id.as_str()),
            template: sandbox.template.as_str(),
            template_version: sandbox.template_version.map(|version| version.to_string()),
            agent_id: sandbox.agent_id.as_deref(),
            network: sandbox.network.as_str(),
            mode: sandbox.mode.as_str(),
            phase: sandbox.phase.map(Phase::as_str),
            wanted: sandbox.wanted.as_str(),
            generation: sandbox.generation.0,
            attempt: sandbox.attempt.0,
            failure: sandbox.failure.as_ref().map(FailureBody::from),
            reason: &sandbox.reason,
            endpoints: EndpointBody::all_of(sandbox),
            agent: AgentBody::of(sandbox, cost),
            created_at: sandbox.created_at.to_string(),
            phase_since: sandbox.phase_since.to_string(),
            last_activity_at: sandbox.last_activity_at.to_string(),
            deleted_at: sandbox.deleted_at.map(|at| at.to_string()),
            last_sync_at: None,
            last_sync_unix: None,
            sync_stats: None,
            meta: sandbox.meta.entries().collect(),
        }
    }
}

impl SandboxBody<'_> {
    /// The same with the sandbox's last sync, if there was one.
    #[must_use]
    pub fn with_sync(self, last: Option<&SyncRow>) -> Self {
        Self {
            last_sync_at: last.map(|row| row.synced_at.to_string()),
            last_sync_unix: last.map(|row| row.synced_at.unix_ms().div_euclid(1_000)),
            sync_stats: last.map(|row| row.stats.into()),
            ..self
        }
    }
}

impl<'a> From<&'a Sandbox> for SandboxBody<'a> {
    fn from(sandbox: &'a Sandbox) -> Self {
        Self::of(sandbox, None)
    }
}

/// An entry of an issue's timeline.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TimelineEntry)]
pub struct TimelineBody {
    /// When it happened.
    #[schema(format = DateTime)]
    pub at: String,
    /// The generation of the sandbox; 0 if there is none.
    pub generation: u32,
    /// The phase before; null if there was no sandbox.
    #[schema(value_type = Option<PhaseWord>)]
    pub from: Option<&'static str>,
    /// The phase after; null if there is no sandbox.
    #[schema(value_type = Option<PhaseWord>)]
    pub to: Option<&'static str>,
    /// What happened and why.
    pub reason: String,
    /// Its cause: a delivery, a caller or a part of the service.
    pub cause: String,
    /// What the delivery brought for the agent, or the beginning of it; null if it brought nothing.
    pub instruction: Option<InstructionBody>,
}

impl From<TimelineListRow> for TimelineBody {
    fn from(TimelineListRow { entry, instruction }: TimelineListRow) -> Self {
        Self {
            instruction: instruction.map(Into::into),
            at: entry.at.to_string(),
            generation: entry.generation.0,
            from: entry.from.map(Phase::as_str),
            to: entry.to.map(Phase::as_str),
            reason: entry.reason,
            cause: entry.cause,
        }
    }
}

/// The sandbox as JSON.
pub fn sandbox_json(sandbox: &Sandbox) -> String {
    to_json(&SandboxBody::from(sandbox))
}

/// The answer to a look-up, encoded once for each state by [`answer_json`].
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LookupAnswer<'a> {
    /// Always true.
    pub success: bool,
    /// The sandbox; null if there is none.
    pub data: Option<SandboxBody<'a>>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<&'a str>,
}

/// [`LookupAnswer`] with a sandbox, with what its agent's run cost if that is known, and with its last
/// sync if there was one.
pub fn answer_json(sandbox: &Sandbox, cost: Option<Money>, last_sync: Option<&SyncRow>) -> String {
    to_json(&LookupAnswer {
        success: true,
        data: Some(SandboxBody::of(sandbox, cost).with_sync(last_sync)),
        sandbox_id: Some(sandbox.id.as_str()),
    })
}

/// `{"success":true,"data":null}`: the issue has no sandbox.
pub const NO_SANDBOX: &str = r#"{"success":true,"data":null}"#;

/// Any wire type as JSON.
pub fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("wire types have text keys and no failing parts")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::types::*;

    /// A running sandbox of issue `issue_id`.
    pub fn sample(issue_id: &str) -> Sandbox {
        let issue_id = IssueId::parse(issue_id).expect("a valid issue id");
        let at = Timestamp::from_unix_ms(1_769_860_800_000);
        Sandbox {
            id: SandboxId::trusted(format!("sb-{issue_id}")),
            home: HomeId(1),
            account: AccountName::default_account(),
            name: issue_id.sandbox_name(),
            issue_id,
            repository: Some(Repository::parse("Octo/hello").expect("a valid repository")),
            issue_number: Some(IssueNumber(7)),
            issue_title: Some("A \"title\"".into()),
            issue_url: None,
            provider: ProviderName::trusted("simulated"),
            external_id: None,
            template: TemplateName::trusted("default"),
            template_version: TemplateVersion::parse("0123456789ab"),
            agent_id: Some("reviewer".into()),
            meta: SandboxMeta::stored([("team".to_owned(), "core".to_owned())].into()),
            network: NetworkKind::None,
            ports: vec![3000],
            mode: Mode::Strong,
            phase: Some(Phase::Running),
            wanted: Wanted::Running,
            generation: Generation(1),
            attempt: Attempt(2),
            failure: None,
            reason: "it is up".into(),
            created_at: at,
            phase_since: at,
            last_activity_at: at,
            agent: None,
            deleted_at: None,
        }
    }

    #[test]
    fn the_constant_for_no_sandbox_has_the_shape_that_is_described() {
        let none = LookupAnswer { success: true, data: None, sandbox_id: None };
        assert_eq!(NO_SANDBOX, to_json(&none));
    }

    #[test]
    fn a_sandbox_has_every_field_of_the_contract() {
        let sandbox = sample("444500041");
        let json = answer_json(&sandbox, None, None);
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let at = "2026-01-31T12:00:00.000Z";
        assert_eq!(
            value,
            serde_json::json!({"success": true, "sandboxId": "sb-444500041", "data": {
                "id": "sb-444500041", "name": "claude-issue-444500041", "account": "default",
                "network": "none",
                "issueId": "444500041", "repository": "Octo/hello", "issueNumber": 7,
                "issueTitle": "A \"title\"", "issueUrl": null, "provider": "simulated",
                "externalId": null, "template": "default",
                "templateVersion": "0123456789ab", "agentId": "reviewer", "mode": "strong", "phase": "running",
                "wanted": "running", "generation": 1, "attempt": 2, "failure": null,
                "reason": "it is up",
                "endpoints": [{"port": 3000, "url": "/v1/sandboxes/sb-444500041/ports/3000/"}],
                "agent": {
                    "state": "idle", "since": at, "reason": "", "run": null,
                    "question": null, "cost": null
                },
                "createdAt": at, "phaseSince": at, "lastActivityAt": at, "deletedAt": null,
                "meta": { "team": "core" }
            }})
        );
    }
}
