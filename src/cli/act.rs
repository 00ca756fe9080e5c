//! Shared by the verbs that act on several issues: they go one after the other, print each result,
//! and fold the exit codes.

use std::process::ExitCode;

use clap::Args;

use super::CliSession;
use super::client::ApiRequest;
use super::failure::{self, CliFailure, FAILED};
use super::output::{OutputMode, Shape};
use super::progress::Spinner;
use super::table;
use super::target::IssueArg;
use super::wire::{self, ApiSandbox};

/// Longest wait that the API accepts, in seconds.
pub(super) const WAIT_MAX: u64 = 300;

/// How long to wait for the result.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct WaitArgs {
    /// Wait for the result, at most SECONDS (300 by default)
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "300", value_parser = clap::value_parser!(u64).range(0..=WAIT_MAX))]
    wait: Option<u64>,
}

impl WaitArgs {
    /// How many seconds; `None` without `--wait`.
    pub const fn seconds(self) -> Option<u64> {
        self.wait
    }
}

/// Which issues to act on, and how to wait and print.
#[derive(Debug, Args)]
pub(super) struct Acting {
    /// The issues: each owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(required = true, value_name = "ISSUE", value_parser = IssueArg::parse)]
    pub issues: Vec<IssueArg>,
    #[command(flatten)]
    pub waiting: WaitArgs,
    #[command(flatten)]
    pub shape: Shape,
}

/// A command of the API on one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SandboxAction {
    Stop,
    Start,
    /// Stop it, wait for that, and start it.
    Restart,
    Retry,
    Delete,
    /// Delete the record even if the provider does not confirm the delete.
    ForceDelete,
}

impl SandboxAction {
    fn call(self, id: &str) -> ApiRequest {
        match self {
            Self::Stop => ApiRequest::post(&["sandboxes", id, "stop"]),
            Self::Start | Self::Restart => ApiRequest::post(&["sandboxes", id, "start"]),
            Self::Retry => ApiRequest::post(&["sandboxes", id, "retry"]),
            Self::Delete => ApiRequest::delete(&["sandboxes", id]),
            Self::ForceDelete => {
                ApiRequest::delete(&["sandboxes", id]).query("force", Some("true"))
            }
        }
    }

    /// The phase that a wait is for.
    const fn goal(self) -> &'static str {
        match self {
            Self::Stop => "stopped",
            Self::Start | Self::Restart | Self::Retry => "running",
            Self::Delete | Self::ForceDelete => "deleted",
        }
    }
}

/// Acts on each issue; a failure does not stop the others.
pub(super) async fn run(
    session: &mut CliSession<'_>,
    act: SandboxAction,
    args: Acting,
) -> anyhow::Result<ExitCode> {
    if let [only] = args.issues.as_slice() {
        one(session, act, only, &args).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut codes = Vec::new();
    for target in &args.issues {
        if let Err(error) = one(session, act, target, &args).await {
            codes.push(failure::code_of(&error));
            failure::print(&error.context(target.to_string()), session.env);
        }
    }
    match codes.as_slice() {
        [] => Ok(ExitCode::SUCCESS),
        [first, rest @ ..] if rest.iter().all(|code| code == first) => {
            Err(CliFailure::Reported(*first).into())
        }
        [..] => Err(CliFailure::Reported(FAILED).into()),
    }
}

async fn one(
    session: &mut CliSession<'_>,
    act: SandboxAction,
    target: &IssueArg,
    args: &Acting,
) -> anyhow::Result<()> {
    let found = target.sandbox(&session.client).await?;
    let wait = args.waiting.seconds();
    if act == SandboxAction::Restart && found.phase_word() != SandboxAction::Stop.goal() {
        let stop = SandboxAction::Stop;
        let _spinner = Spinner::start(&format!("waiting for {} to be stopped", found.name), true);
        let stopped = session.client.call(stop.call(&found.id).wait(Some(WAIT_MAX))).await?;
        reached(&wire::read(stopped.data())?, stop.goal(), WAIT_MAX)?;
    }
    let answer = {
        let what = format!("waiting for {} to be {}", found.name, act.goal());
        let _spinner = Spinner::start(&what, wait.is_some());
        session.client.call(act.call(&found.id).wait(wait)).await?
    };
    let sandbox: ApiSandbox = wire::read(answer.data())?;
    match args.shape.mode() {
        OutputMode::Table(_) => {
            let line = table::line(&session.screen, &sandbox);
            session.screen.line(&line)?;
        }
        OutputMode::Ids => session.screen.line(&sandbox.id)?,
        OutputMode::Data(notation) => session.screen.data(notation, answer.data())?,
    }
    match wait {
        Some(seconds) => reached(&sandbox, act.goal(), seconds).map_err(Into::into),
        None => Ok(()),
    }
}

/// Checks that a wait reached its goal.
///
/// # Errors
/// [`CliFailure::Failed`] says in which phase the sandbox is instead.
pub(super) fn reached(sandbox: &ApiSandbox, goal: &str, seconds: u64) -> Result<(), CliFailure> {
    let phase = sandbox.phase_word();
    if phase == goal {
        return Ok(());
    }
    let name = &sandbox.name;
    let failed = |message, hint: String| Err(CliFailure::Failed { message, hint });
    match (&sandbox.failure, phase) {
        (Some(failure), "failed") => failed(
            format!("{name} failed at {}: {}", failure.step, failure.message),
            format!("run issuebox retry {0} to try again, or issuebox rm {0}", sandbox.issue_id),
        ),
        (Some(failure), _) => failed(
            format!("{name} is still {phase}: {}", failure.message),
            format!("run issuebox events {} to see what happened", sandbox.issue_id),
        ),
        (None, _) => failed(
            format!("{name} is {phase}, not {goal}, after {seconds} s"),
            format!("run issuebox wait --for={goal} {} to wait longer", sandbox.issue_id),
        ),
    }
}
