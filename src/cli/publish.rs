//! `issuebox publish`: publishes the work of a sandbox whose pushes wait for a person.

use std::process::ExitCode;

use clap::Args;

use crate::types::inert;

use super::CliSession;
use super::client::ApiRequest;
use super::output::{OutputMode, Shape};
use super::progress::Spinner;
use super::target::IssueArg;

#[derive(Debug, Args)]
pub(super) struct PublishArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    #[command(flatten)]
    shape: Shape,
}

pub(super) async fn run(
    session: &mut CliSession<'_>,
    args: PublishArgs,
) -> anyhow::Result<ExitCode> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    let answer = {
        let _spinner = Spinner::start(&format!("waiting for {} to push", sandbox.name), true);
        let call = ApiRequest::post(&["sandboxes", &sandbox.id, "publish"]);
        session.client.call(call).await?
    };
    match args.shape.mode() {
        OutputMode::Table(_) => {
            let branch = inert(answer.data()["branch"].as_str().unwrap_or_default());
            session.screen.line(&format!("{} pushed {branch}", sandbox.name))?;
        }
        OutputMode::Ids => session.screen.line(&sandbox.id)?,
        OutputMode::Data(notation) => session.screen.data(notation, answer.data())?,
    }
    Ok(ExitCode::SUCCESS)
}
