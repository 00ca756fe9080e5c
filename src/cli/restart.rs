//! `issuebox restart`: stops sandboxes and starts them again.

use std::process::ExitCode;

use clap::Args;

use super::CliSession;
use super::act::{self, Acting, SandboxAction};

#[derive(Debug, Args)]
pub(super) struct RestartArgs {
    #[command(flatten)]
    acting: Acting,
}

pub(super) async fn run(
    session: &mut CliSession<'_>,
    args: RestartArgs,
) -> anyhow::Result<ExitCode> {
    act::run(session, SandboxAction::Restart, args.acting).await
}
