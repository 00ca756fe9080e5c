//! `issuebox rm`: removes sandboxes and their workspaces. It asks before, on a terminal; where
//! there is nobody to ask, `--yes` must say that it is meant.

use std::process::ExitCode;

use clap::Args;

use super::Session;
use super::act::{self, Act, Acting};
use super::confirm::{Question, confirm};

#[derive(Debug, Args)]
pub(super) struct RmArgs {
    #[command(flatten)]
    acting: Acting,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(super) async fn run(session: &mut Session<'_>, args: RmArgs) -> anyhow::Result<ExitCode> {
    if !args.yes {
        let names: Vec<String> = args.acting.issues.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        confirm(&Question {
            asked: &format!("Remove {names} with its workspace?"),
            unasked: &format!("removing {names} loses the workspace"),
            refused: "nothing was removed",
        })?;
    }
    act::run(session, Act::Delete, args.acting).await
}
