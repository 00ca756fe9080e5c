//! `issuebox runs` and `issuebox cancel`: the runs of agents, and ending one.

use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Deserialize;
use serde_json::Value;

use crate::clock::{Clock, SystemClock};
use crate::types::{RunState, inert};

use super::CliSession;
use super::client::{ApiList, ApiRequest};
use super::failure::CliFailure;
use super::output::{OutputMode, Shape};
use super::table;
use super::target::IssueArg;
use super::wire;

#[derive(Debug, Args)]
pub(super) struct RunsArgs {
    /// Only runs of this issue
    #[arg(value_parser = IssueArg::parse)]
    issue: Option<IssueArg>,
    /// Only runs in this state; several with commas between them
    #[arg(long, value_name = "STATE", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(RunState::ALL.map(RunState::as_str)))]
    state: Vec<String>,
    /// At most this many, the newest
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    #[command(flatten)]
    shape: Shape,
}

/// A run of an agent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiRun {
    pub id: String,
    pub agent: String,
    pub state: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub summary: String,
    pub messages: u64,
    pub since: String,
    pub usage: ApiUsage,
    /// Its issue; only in lists.
    pub issue: Option<RunIssue>,
}

/// What was used of models.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiUsage {
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cost_usd: f64,
}

/// An issue by its names.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunIssue {
    pub issue_id: String,
    pub repository: Option<String>,
    pub issue_number: Option<u64>,
}

impl RunIssue {
    /// The issue for display.
    pub fn shown(&self) -> String {
        match (&self.repository, self.issue_number) {
            (Some(repository), Some(number)) => format!("{repository}#{number}"),
            (None, _) | (_, None) => self.issue_id.clone(),
        }
    }
}

impl ApiRun {
    /// What people want to know beside the state: why it is so, or what came of it.
    pub fn why(&self) -> &str {
        if self.reason.is_empty() { &self.summary } else { &self.reason }
    }
}

/// Largest page of the API.
const PAGE_LEN: u64 = 200;

pub(super) async fn runs(session: &mut CliSession<'_>, args: RunsArgs) -> anyhow::Result<ExitCode> {
    let issue_id = match &args.issue {
        Some(target) => Some(target.known_issue_id(&session.client).await?),
        None => None,
    };
    let states = (!args.state.is_empty()).then(|| args.state.join(","));
    let ask = || {
        ApiRequest::get(&["runs"])
            .query("state", states.as_deref())
            .query("issueId", issue_id.as_deref())
    };
    let ApiList { items: all, total, .. } = session.client.list(ask, args.limit).await?;
    let width = match args.shape.mode() {
        OutputMode::Data(notation) => {
            session.screen.data(notation, &Value::Array(all))?;
            return Ok(ExitCode::SUCCESS);
        }
        OutputMode::Table(width) => Some(width),
        OutputMode::Ids => None,
    };
    let runs: Vec<ApiRun> = all.iter().map(wire::read).collect::<Result<_, _>>()?;
    match width {
        None => {
            runs.iter().try_for_each(|run| session.screen.line(&inert(&run.id)))?;
        }
        // On standard error: a program that reads standard output gets no text.
        Some(_) if runs.is_empty() => eprintln!("no runs; issuebox chat ISSUE begins one"),
        Some(width) => {
            let list = table::runs(&session.screen, width, &runs, SystemClock.now());
            session.screen.line(&list)?;
            if (runs.len() as u64) < total {
                eprintln!("note: {} of {total}; --limit shows more", runs.len());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn cancel(
    session: &mut CliSession<'_>,
    args: CancelArgs,
) -> anyhow::Result<ExitCode> {
    let issue_id = args.issue.known_issue_id(&session.client).await?;
    let in_progress = RunState::ALL.into_iter().filter(|state| state.is_in_progress());
    let states = in_progress.map(RunState::as_str).collect::<Vec<_>>().join(",");
    let call = ApiRequest::get(&["runs"])
        .query("issueId", Some(&issue_id))
        .query("state", Some(states))
        .query("limit", Some(PAGE_LEN));
    let found: Vec<ApiRun> = wire::read(session.client.call(call).await?.data())?;
    // The newest comes first; the others are before it.
    let Some((run, waiting)) = found.split_last() else {
        return Err(CliFailure::NotFound {
            message: format!("{} has no run in progress", args.issue),
            hint: format!("run issuebox runs {} to see those that ended", args.issue),
        }
        .into());
    };
    let call = ApiRequest::post(&["runs", &run.id, "cancel"]);
    let answer = session.client.call(call).await?;
    match args.shape.mode() {
        OutputMode::Data(notation) => session.screen.data(notation, answer.data())?,
        OutputMode::Ids => session.screen.line(&run.id)?,
        OutputMode::Table(_) => {
            let run: ApiRun = wire::read(answer.data())?;
            let why = session.screen.faint(&inert(run.why()));
            let state = session.screen.phase(&run.state, &inert(&run.state));
            session.screen.line(format!("{} {state}  {why}", inert(&run.id)).trim_end())?;
        }
    }
    if !waiting.is_empty() {
        eprintln!("note: what was said meanwhile is answered next; cancel again to drop it");
    }
    Ok(ExitCode::SUCCESS)
}
