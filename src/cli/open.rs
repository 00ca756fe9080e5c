//! `issuebox open`: opens the page of a sandbox in a browser, with a link that logs in once.

use std::io::{self, IsTerminal};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::types::inert;

use super::CliSession;
use super::client::ApiRequest;
use super::env::EnvVars;
use super::target::IssueArg;

#[derive(Debug, Args)]
pub(super) struct OpenArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name [default: the list of
    /// all sandboxes]
    #[arg(value_parser = IssueArg::parse)]
    issue: Option<IssueArg>,
}

pub(super) async fn run(session: &mut CliSession<'_>, args: OpenArgs) -> anyhow::Result<ExitCode> {
    let page = match &args.issue {
        Some(issue) => Some(format!("/sandboxes/{}", issue.sandbox(&session.client).await?.id)),
        None => None,
    };
    let url = login_link(session, page.as_deref()).await?;
    session.screen.line(&url)?;
    browse(&url, session.env);
    Ok(ExitCode::SUCCESS)
}

/// A link that logs in once and shows this page then.
pub(super) async fn login_link(
    session: &CliSession<'_>,
    page: Option<&str>,
) -> anyhow::Result<String> {
    let answer = session.client.call(ApiRequest::post(&["login-links"])).await?;
    let mut url = inert(answer.data()["url"].as_str().unwrap_or_default()).into_owned();
    if let Some(page) = page {
        url.push_str(&format!("&next={}", utf8_percent_encode(page, NON_ALPHANUMERIC)));
    }
    Ok(url)
}

/// Starts a browser: the one that `BROWSER` names, else the desktop's. Without one the printed link has
/// to do.
fn browse(url: &str, env: &EnvVars) {
    let named = env.get("BROWSER").and_then(|programs| programs.split(':').next());
    let of_desktop = io::stdout().is_terminal().then_some("xdg-open");
    let Some(program) = named.or(of_desktop) else { return };
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _no_browser = command.spawn();
}
