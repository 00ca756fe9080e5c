//! `issuebox login`: creates a link that logs a person in to the dashboard once.

use std::process::ExitCode;

use clap::Args;

use crate::types::inert;

use super::CliSession;
use super::client::ApiRequest;
use super::output::{OutputMode, Shape};

#[derive(Debug, Args)]
pub(super) struct LoginArgs {
    #[command(flatten)]
    shape: Shape,
}

pub(super) async fn run(session: &mut CliSession<'_>, args: LoginArgs) -> anyhow::Result<ExitCode> {
    let answer = session.client.call(ApiRequest::post(&["login-links"])).await?;
    let url = inert(answer.data()["url"].as_str().unwrap_or_default());
    match args.shape.mode() {
        OutputMode::Table(_) => {
            session.screen.line(&url)?;
            eprintln!("Open the link in a browser. It works once, within 10 minutes.");
        }
        OutputMode::Ids => session.screen.line(&url)?,
        OutputMode::Data(notation) => session.screen.data(notation, answer.data())?,
    }
    Ok(ExitCode::SUCCESS)
}
