//! `issuebox rm`: removes sandboxes and their workspaces. It asks before, on a terminal; where
//! there is nobody to ask, `--yes` must say that it is meant.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;

use super::Session;
use super::act::{self, Act, Acting};
use super::failure::Failure;

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
        confirm(&args.acting)?;
    }
    act::run(session, Act::Delete, args.acting).await
}

fn confirm(acting: &Acting) -> anyhow::Result<()> {
    let names: Vec<String> = acting.issues.iter().map(ToString::to_string).collect();
    let names = names.join(", ");
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::Usage {
            message: format!("removing {names} loses the workspace, and there is nobody to ask"),
            hint: "add --yes where that is meant".to_owned(),
        }
        .into());
    }
    eprint!("Remove {names} with its workspace? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::Failed {
        message: "nothing was removed".to_owned(),
        hint: "answer y to remove it".to_owned(),
    }
    .into())
}
