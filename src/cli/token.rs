//! `issuebox token`: tokens of the API, for admins.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use jiff::{Span, SpanRelativeTo, Unit};
use serde::Deserialize;
use serde_json::json;

use crate::clock::{Clock, SystemClock};
use crate::types::Role;

use super::CliSession;
use super::client::ApiRequest;
use super::output::{OutputMode, Shape};
use super::{table, wire};

#[derive(Debug, Subcommand)]
pub(super) enum TokenVerb {
    /// Create a token and print it; it cannot be shown again
    Create(TokenCreateArgs),
    /// List tokens
    #[command(visible_alias = "list")]
    Ls(TokenLsArgs),
    /// Delete tokens: they are refused, and their streams and terminals end, at once
    #[command(visible_alias = "delete")]
    Rm(TokenRmArgs),
}

#[derive(Debug, Args)]
pub(super) struct TokenCreateArgs {
    /// Who or what uses it
    name: String,
    /// What it may do: read; work with sandboxes; manage tokens, accounts and drift
    #[arg(long, value_name = "ROLE", default_value = Role::Operator.as_str(),
          value_parser = PossibleValuesParser::new(Role::ALL.map(Role::as_str)))]
    role: String,
    /// The account whose sandboxes it sees [default: your own]
    #[arg(long = "for", value_name = "ACCOUNT")]
    of_account: Option<String>,
    /// How long it is valid, such as 12h or 90d [default: until it is deleted]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    expires_in: Option<u64>,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct TokenLsArgs {
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct TokenRmArgs {
    /// Ids of tokens, as issuebox token ls shows them
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

/// A token as the API shows it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenRow {
    pub id: String,
    pub name: String,
    pub role: String,
    pub account: String,
    pub created_at: String,
    pub expires_at: Option<String>,
    pub last_used_at: Option<String>,
    /// Only of one that was just created.
    pub token: Option<String>,
}

/// Reads a time such as `12h` or `90d`.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "must be a time such as 12h or 90d".to_owned();
    let span: Span = text.parse().map_err(|_| wrong())?;
    let total = span.total((Unit::Second, SpanRelativeTo::days_are_24_hours()));
    let total = total.map_err(|_| wrong())?;
    if total < 1.0 {
        return Err("must be a second or more".to_owned());
    }
    // A fraction of a second is dropped, and the API bounds the rest.
    Ok(total as u64)
}

pub(super) async fn run(session: &mut CliSession<'_>, verb: TokenVerb) -> anyhow::Result<ExitCode> {
    match verb {
        TokenVerb::Create(args) => create(session, args).await,
        TokenVerb::Ls(args) => list(session, &args).await,
        TokenVerb::Rm(args) => remove(session, &args).await,
    }
}

async fn create(session: &mut CliSession<'_>, args: TokenCreateArgs) -> anyhow::Result<ExitCode> {
    let TokenCreateArgs { name, role, of_account, expires_in, shape } = args;
    let body = json!({
        "name": name, "role": role, "account": of_account, "expiresInSeconds": expires_in,
    });
    let answer = session.client.call(ApiRequest::post(&["tokens"]).json(body)).await?;
    if let OutputMode::Data(notation) = shape.mode() {
        session.screen.data(notation, answer.data())?;
        return Ok(ExitCode::SUCCESS);
    }
    let created: TokenRow = wire::read(answer.data())?;
    let line = match shape.mode() {
        OutputMode::Ids => created.id,
        OutputMode::Table(_) | OutputMode::Data(_) => {
            // On standard error: a program that reads standard output gets the token alone.
            eprintln!(
                "{} for the account {}; it is shown this once, issuebox token rm {} deletes it",
                created.role, created.account, created.id
            );
            created.token.unwrap_or_default()
        }
    };
    session.screen.line(&line)?;
    Ok(ExitCode::SUCCESS)
}

async fn list(session: &mut CliSession<'_>, args: &TokenLsArgs) -> anyhow::Result<ExitCode> {
    let items = session.client.every(&["tokens"]).await?;
    let now = SystemClock.now();
    session.screen.list(
        args.shape.mode(),
        items,
        |row: &TokenRow| &row.id,
        |screen, width, rows| table::tokens(screen, width, rows, now),
        "no tokens but the configured admin token; issuebox token create NAME",
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn remove(session: &mut CliSession<'_>, args: &TokenRmArgs) -> anyhow::Result<ExitCode> {
    for id in &args.ids {
        session.client.call(ApiRequest::delete(&["tokens", id])).await?;
        session.screen.line(&format!("{} was deleted", crate::types::inert(id)))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_people_write_it() {
        for (text, expected) in [("90d", 7_776_000), ("12h", 43_200), ("1h 30m", 5_400)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for wrong in ["", "90", "-1h", "0s", "1 moon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
