//! `issuebox stop`: stops sandboxes and keeps their workspaces.

use std::process::ExitCode;

use clap::Args;

use super::CliSession;
use super::act::{self, Acting, SandboxAction};

#[derive(Debug, Args)]
pub(super) struct StopArgs {
    #[command(flatten)]
    acting: Acting,
}

pub(super) async fn run(session: &mut CliSession<'_>, args: StopArgs) -> anyhow::Result<ExitCode> {
    act::run(session, SandboxAction::Stop, args.acting).await
}
