//! `issuebox rm`: removes sandboxes and their workspaces, after a confirmation.

use std::process::ExitCode;

use clap::Args;

use super::CliSession;
use super::act::{self, Acting, SandboxAction};
use super::confirm::{Question, confirm};

#[derive(Debug, Args)]
pub(super) struct RmArgs {
    #[command(flatten)]
    acting: Acting,
    /// Delete the record even if the provider does not confirm that the sandbox is gone; what still
    /// runs there runs on until reconciliation removes it
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

pub(super) async fn run(session: &mut CliSession<'_>, args: RmArgs) -> anyhow::Result<ExitCode> {
    if !args.yes {
        // What cannot be removed is no question.
        for issue in &args.acting.issues {
            issue.sandbox(&session.client).await?;
        }
        let names: Vec<String> = args.acting.issues.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        let (prompt, consequence) = if args.force {
            (
                format!(
                    "Remove {names} by force? The record is deleted even if the provider does not \
                     confirm that the sandbox is gone. What still runs there runs on, beside the \
                     issue's next sandbox, until reconciliation removes it."
                ),
                format!(
                    "removing {names} by force deletes the record of a sandbox that may still run \
                     at the provider"
                ),
            )
        } else {
            (
                format!("Remove {names} with its workspace?"),
                format!("removing {names} deletes the workspace"),
            )
        };
        let declined = "nothing was removed";
        confirm(&Question { prompt: &prompt, consequence: &consequence, declined })?;
    }
    let act = if args.force { SandboxAction::ForceDelete } else { SandboxAction::Delete };
    act::run(session, act, args.acting).await
}
