//! `issuebox connect github`: prints a link to the page where a GitHub App is created for the server.

use std::process::ExitCode;

use clap::Subcommand;

use super::CliSession;
use super::open::login_link;

/// The page with the button.
const PAGE: &str = "/connect";

#[derive(Debug, Subcommand)]
pub(super) enum ConnectVerb {
    /// Print a link to the page where a GitHub App is created for the server; it logs in once
    Github,
}

pub(super) async fn run(
    session: &mut CliSession<'_>,
    verb: ConnectVerb,
) -> anyhow::Result<ExitCode> {
    let ConnectVerb::Github = verb;
    let url = login_link(session, Some(PAGE)).await?;
    session.screen.line(&url)?;
    eprintln!(
        "Open the link in a browser and press Create GitHub App. The link works once, within 10 minutes."
    );
    Ok(ExitCode::SUCCESS)
}
