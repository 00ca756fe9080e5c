//! `issuebox account`: accounts, for admins.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::json;

use super::CliSession;
use super::client::ApiRequest;
use super::output::{OutputMode, Shape};
use super::{table, wire};

#[derive(Debug, Subcommand)]
pub(super) enum AccountVerb {
    /// List accounts
    #[command(visible_alias = "list")]
    Ls(AccountLsArgs),
    /// Create an account, or replace what belongs to it
    Set(AccountSetArgs),
}

#[derive(Debug, Args)]
pub(super) struct AccountLsArgs {
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct AccountSetArgs {
    /// Its name
    name: String,
    /// Repositories of it, such as acme/*; may be given again
    #[arg(long = "repositories", value_name = "PATTERN")]
    repositories: Vec<String>,
    /// An owner whose repositories are all of it; may be given again
    #[arg(long = "owner", value_name = "LOGIN")]
    owners: Vec<String>,
    /// An installation of the GitHub App, by its number; may be given again
    #[arg(long = "installation", value_name = "ID")]
    installations: Vec<u64>,
    /// Start nothing in it, stop its sandboxes and refuse its tokens
    #[arg(long)]
    disabled: bool,
    #[command(flatten)]
    shape: Shape,
}

/// An account as the API shows it.
#[derive(Debug, Deserialize)]
pub(super) struct AccountRow {
    pub name: String,
    pub installations: Vec<u64>,
    pub owners: Vec<String>,
    pub repositories: Vec<String>,
    pub disabled: bool,
    pub configured: bool,
}

pub(super) async fn run(
    session: &mut CliSession<'_>,
    verb: AccountVerb,
) -> anyhow::Result<ExitCode> {
    match verb {
        AccountVerb::Ls(args) => list(session, &args).await,
        AccountVerb::Set(args) => set(session, args).await,
    }
}

async fn list(session: &mut CliSession<'_>, args: &AccountLsArgs) -> anyhow::Result<ExitCode> {
    let items = session.client.every(&["accounts"]).await?;
    let (mode, none) = (args.shape.mode(), "no accounts");
    session.screen.list(mode, items, |row: &AccountRow| &row.name, table::accounts, none)?;
    Ok(ExitCode::SUCCESS)
}

async fn set(session: &mut CliSession<'_>, args: AccountSetArgs) -> anyhow::Result<ExitCode> {
    let AccountSetArgs { name, repositories, owners, installations, disabled, shape } = args;
    let body = json!({
        "repositories": repositories, "owners": owners, "installations": installations,
        "disabled": disabled,
    });
    let answer = session.client.call(ApiRequest::put(&["accounts", &name]).json(body)).await?;
    if let OutputMode::Data(notation) = shape.mode() {
        session.screen.data(notation, answer.data())?;
        return Ok(ExitCode::SUCCESS);
    }
    let account: AccountRow = wire::read(answer.data())?;
    let line = match shape.mode() {
        OutputMode::Ids => account.name,
        OutputMode::Table(_) | OutputMode::Data(_) => format!(
            "the account {} was set{}",
            account.name,
            if account.disabled { "; it is disabled" } else { "" }
        ),
    };
    session.screen.line(&line)?;
    Ok(ExitCode::SUCCESS)
}
