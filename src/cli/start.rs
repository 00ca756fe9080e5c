//! `issuebox start`: starts sandboxes.

use std::process::ExitCode;

use clap::Args;

use super::Session;
use super::act::{self, Acting, SandboxAction};

#[derive(Debug, Args)]
pub(super) struct StartArgs {
    #[command(flatten)]
    acting: Acting,
}

pub(super) async fn run(session: &mut Session<'_>, args: StartArgs) -> anyhow::Result<ExitCode> {
    act::run(session, SandboxAction::Start, args.acting).await
}
