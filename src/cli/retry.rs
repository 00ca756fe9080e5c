//! `issuebox retry`: retries the step at which a sandbox failed.

use std::process::ExitCode;

use clap::Args;

use super::CliSession;
use super::act::{self, Acting, SandboxAction};

#[derive(Debug, Args)]
pub(super) struct RetryArgs {
    #[command(flatten)]
    acting: Acting,
}

pub(super) async fn run(session: &mut CliSession<'_>, args: RetryArgs) -> anyhow::Result<ExitCode> {
    act::run(session, SandboxAction::Retry, args.acting).await
}
