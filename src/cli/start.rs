//! `issuebox start`: starts sandboxes.

use std::process::ExitCode;

use clap::Args;

use super::CliSession;
use super::act::{self, Acting, SandboxAction};

#[derive(Debug, Args)]
pub(super) struct StartArgs {
    #[command(flatten)]
    acting: Acting,
}

pub(super) async fn run(session: &mut CliSession<'_>, args: StartArgs) -> anyhow::Result<ExitCode> {
    act::run(session, SandboxAction::Start, args.acting).await
}
