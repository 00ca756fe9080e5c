//! `issuebox rm`: removes sandboxes and their workspaces. It asks before, on a terminal; where
//! there is nobody to ask, `--yes` must say that it is meant.

use std::process::ExitCode;

use clap::Args;

use super::Session;
use super::act::{self, Acting, SandboxAction};
use super::confirm::{Question, confirm};

#[derive(Debug, Args)]
pub(super) struct RmArgs {
    #[command(flatten)]
    acting: Acting,
    /// Give the record up although the provider does not confirm that the sandbox is gone: what
    /// still runs there runs on until a sweep removes it
    #[arg(long)]
    force: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(super) async fn run(session: &mut Session<'_>, args: RmArgs) -> anyhow::Result<ExitCode> {
    if !args.yes {
        let names: Vec<String> = args.acting.issues.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        let (asked, unasked) = if args.force {
            (
                format!(
                    "Remove {names} by force? The record is given up, whether or not the provider \
                     confirms that the sandbox is gone. What still runs there runs on, beside the \
                     issue's next sandbox, until a sweep removes it."
                ),
                format!(
                    "removing {names} by force gives up the record of what may still run at the \
                     provider"
                ),
            )
        } else {
            (
                format!("Remove {names} with its workspace?"),
                format!("removing {names} loses the workspace"),
            )
        };
        let refused = "nothing was removed";
        confirm(&Question { asked: &asked, unasked: &unasked, refused })?;
    }
    let act = if args.force { SandboxAction::ForceDelete } else { SandboxAction::Delete };
    act::run(session, act, args.acting).await
}
