//! `issuebox wait`: waits until a sandbox reaches a phase.
//!
//! It sends requests that wait at the server until the time is up. If the server answers early, it
//! sends at most one a second.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::time::Instant;

use super::CliSession;
use super::act::{WAIT_MAX, reached};
use super::client::ApiRequest;
use super::failure::CliFailure;
use super::output::{OutputMode, Shape};
use super::progress::Spinner;
use super::table;
use super::target::IssueArg;
use super::wire::{self, ApiSandbox};

#[derive(Debug, Args)]
pub(super) struct WaitVerbArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// The phase to wait for
    #[arg(long = "for", value_name = "PHASE", default_value = "running")]
    goal: WaitGoal,
    /// Time limit in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = WAIT_MAX)]
    timeout: u64,
    #[command(flatten)]
    shape: Shape,
}

/// A phase to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WaitGoal {
    Running,
    Stopped,
    Failed,
    Deleted,
}

impl WaitGoal {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Deleted => "deleted",
        }
    }

    /// Whether the goal can no longer be reached without an action.
    fn is_lost(self, phase: &str) -> bool {
        match self {
            Self::Running | Self::Stopped => matches!(phase, "failed" | "deleting" | "deleted"),
            Self::Failed => phase == "deleted",
            Self::Deleted => false,
        }
    }
}

/// Longest wait of one request, in seconds; proxies cut off longer ones.
const STRIDE: u64 = 30;

pub(super) async fn run(
    session: &mut CliSession<'_>,
    args: WaitVerbArgs,
) -> anyhow::Result<ExitCode> {
    let Some(mut sandbox) = args.issue.find(&session.client).await? else {
        return match args.goal {
            WaitGoal::Deleted => Ok(ExitCode::SUCCESS),
            WaitGoal::Running | WaitGoal::Stopped | WaitGoal::Failed => {
                Err(args.issue.not_found().into())
            }
        };
    };
    let goal = args.goal.as_str();
    let until = Instant::now() + Duration::from_secs(args.timeout);
    {
        let spinner = Spinner::start(&waiting(&sandbox, goal), true);
        loop {
            let phase = sandbox.phase_word();
            if phase == goal || args.goal.is_lost(phase) || Instant::now() >= until {
                break;
            }
            sandbox = once_more(session, &sandbox.id, goal, until).await?;
            spinner.set(&waiting(&sandbox, goal));
        }
    }
    reached(&sandbox, goal, args.timeout)?;
    match args.shape.mode() {
        OutputMode::Table(_) => {
            let line = table::line(&session.screen, &sandbox);
            session.screen.line(&line)?;
        }
        OutputMode::Ids => session.screen.line(&sandbox.id)?,
        OutputMode::Data(notation) => {
            let answer = session.client.call(ApiRequest::get(&["sandboxes", &sandbox.id])).await?;
            session.screen.data(notation, answer.data())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn waiting(sandbox: &ApiSandbox, goal: &str) -> String {
    format!("{} is {}, waiting for {goal}", sandbox.name, sandbox.phase_word())
}

/// One waiting request; it takes at least a second.
async fn once_more(
    session: &CliSession<'_>,
    id: &str,
    goal: &str,
    until: Instant,
) -> Result<ApiSandbox, CliFailure> {
    let sent = Instant::now();
    let left = until.saturating_duration_since(sent);
    let seconds = left.as_secs().clamp(1, STRIDE);
    let call = ApiRequest::get(&["sandboxes", id]).query("until", Some(goal)).wait(Some(seconds));
    let sandbox: ApiSandbox = wire::read(session.client.call(call).await?.data())?;
    if sandbox.phase_word() != goal {
        let paced = sent + Duration::from_secs(1);
        tokio::time::sleep_until(paced.min(until)).await;
    }
    Ok(sandbox)
}
