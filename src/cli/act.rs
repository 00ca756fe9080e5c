//! What the verbs that act have in common: several issues one after the other, each told as it
//! ends, and an exit code that says whether all went well.

use std::process::ExitCode;

use clap::Args;

use super::Session;
use super::client::ApiRequest;
use super::failure::{self, CliFailure, FAILED};
use super::output::{Shape, Shown};
use super::progress::Spinner;
use super::table;
use super::target::IssueRef;
use super::wire::{self, Sandbox};

/// Longest wait that the API takes, in seconds.
pub(super) const WAIT_MAX: u64 = 300;

/// Waiting for what was asked for to come about.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct WaitArgs {
    /// Wait until it has come about, at most SECONDS (300 where left out)
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "300", value_parser = clap::value_parser!(u64).range(0..=WAIT_MAX))]
    wait: Option<u64>,
}

impl WaitArgs {
    /// How many seconds; `None` where nothing is waited for.
    pub const fn seconds(self) -> Option<u64> {
        self.wait
    }
}

/// Which issues, and how to wait and tell.
#[derive(Debug, Args)]
pub(super) struct Acting {
    /// Which issues
    #[arg(required = true, value_name = "ISSUE", value_parser = IssueRef::parse)]
    pub issues: Vec<IssueRef>,
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
    Retry,
    Delete,
    /// Delete, and give the record up where the provider does not confirm it.
    ForceDelete,
}

impl SandboxAction {
    fn call(self, id: &str) -> ApiRequest {
        match self {
            Self::Stop => ApiRequest::post(&["sandboxes", id, "stop"]),
            Self::Start => ApiRequest::post(&["sandboxes", id, "start"]),
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
            Self::Start | Self::Retry => "running",
            Self::Delete | Self::ForceDelete => "deleted",
        }
    }
}

/// Does it to each issue. One that fails does not keep the others from being done.
pub(super) async fn run(
    session: &mut Session<'_>,
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
            failure::tell(&error.context(target.to_string()), session.env);
        }
    }
    match codes.as_slice() {
        [] => Ok(ExitCode::SUCCESS),
        [first, rest @ ..] if rest.iter().all(|code| code == first) => {
            Err(CliFailure::Told(*first).into())
        }
        [..] => Err(CliFailure::Told(FAILED).into()),
    }
}

async fn one(
    session: &mut Session<'_>,
    act: SandboxAction,
    target: &IssueRef,
    args: &Acting,
) -> anyhow::Result<()> {
    let found = target.sandbox(&session.client).await?;
    let wait = args.waiting.seconds();
    let answer = {
        let what = format!("waiting for {} to be {}", found.name, act.goal());
        let _spinner = Spinner::start(&what, wait.is_some());
        session.client.call(act.call(&found.id).wait(wait)).await?
    };
    let sandbox: Sandbox = wire::read(answer.data())?;
    match args.shape.shown() {
        Shown::Table(_) => {
            let line = table::line(&session.screen, &sandbox);
            session.screen.line(&line)?;
        }
        Shown::Ids => session.screen.line(&sandbox.id)?,
        Shown::Data(notation) => session.screen.data(notation, answer.data())?,
    }
    match wait {
        Some(seconds) => reached(&sandbox, act.goal(), seconds).map_err(Into::into),
        None => Ok(()),
    }
}

/// Whether a wait came to its goal.
///
/// # Errors
/// [`CliFailure::Failed`] says where the sandbox stands instead.
pub(super) fn reached(sandbox: &Sandbox, goal: &str, seconds: u64) -> Result<(), CliFailure> {
    let phase = sandbox.phase_word();
    if phase == goal {
        return Ok(());
    }
    let name = &sandbox.name;
    let failed = |message, hint: String| Err(CliFailure::Failed { message, hint });
    match (&sandbox.failure, phase) {
        (Some(failure), "failed") => failed(
            format!("{name} has failed at {}: {}", failure.step, failure.message),
            format!("issuebox retry {0} tries again, issuebox rm {0} removes it", sandbox.issue_id),
        ),
        (Some(failure), _) => failed(
            format!("{name} is still {phase}: {}", failure.message),
            format!("issuebox events {} shows what happened", sandbox.issue_id),
        ),
        (None, _) => failed(
            format!("{name} is {phase} and not {goal} after {seconds} s"),
            format!("issuebox wait --for={goal} {} goes on waiting", sandbox.issue_id),
        ),
    }
}
