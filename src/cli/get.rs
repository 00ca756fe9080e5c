//! `issuebox get`: shows one sandbox.

use std::process::ExitCode;

use clap::Args;

use crate::clock::{Clock, SystemClock};

use super::Session;
use super::client::Call;
use super::output::{Shape, Shown};
use super::table;
use super::target::Target;
use super::trouble::tell_troubles;

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// Which issue
    #[arg(value_parser = Target::parse)]
    issue: Target,
    #[command(flatten)]
    shape: Shape,
}

pub(super) async fn run(session: &mut Session<'_>, args: GetArgs) -> anyhow::Result<ExitCode> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    match args.shape.shown() {
        Shown::Table(_) => {
            let sheet = table::sheet(&session.screen, &sandbox, SystemClock.now());
            session.screen.line(&sheet)?;
            tell_troubles(&session.client).await;
        }
        Shown::Ids => session.screen.line(&sandbox.id)?,
        Shown::Data(notation) => {
            let answer = session.client.call(Call::get(&["sandboxes", &sandbox.id])).await?;
            session.screen.data(notation, answer.data())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
