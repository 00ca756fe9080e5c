//! `issuebox demo`: the product explaining itself in a minute.

use std::process::ExitCode;

use clap::Args;

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// End when it is over, instead of leaving the dashboard up
    #[arg(long)]
    exit: bool,
}

pub(super) fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    hand_over(args.exit)
}

/// Plays the deliveries against a fresh server.
fn hand_over(ends: bool) -> anyhow::Result<ExitCode> {
    anyhow::bail!("this build has no server to show (--exit: {ends})")
}
