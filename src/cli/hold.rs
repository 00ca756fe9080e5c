//! `issuebox hold`, `release` and `holds`. Under a hold no sandbox is created, started or resumed;
//! running ones go on.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::clock::{Clock, SystemClock};
use crate::types::{Repository, inert};

use super::client::{ApiClient, ApiRequest};
use super::failure::CliFailure;
use super::output::{OutputMode, Shape};
use super::target::IssueArg;
use super::wire::{self, HoldRow, Released};
use super::{CliSession, table};

/// What to hold or release; exactly one of these.
#[derive(Debug, Args)]
#[group(id = "what", multiple = false)]
pub(super) struct HoldScopeArgs {
    /// One issue
    #[arg(value_parser = IssueArg::parse)]
    issue: Option<IssueArg>,
    /// Every issue of this repository
    #[arg(long, value_name = "OWNER/REPO", value_parser = parse_repository)]
    repository: Option<Repository>,
    /// Every issue of this account
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Everything
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(super) struct HoldArgs {
    #[command(flatten)]
    pub what: HoldScopeArgs,
    /// The reason, shown to refused callers
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    pub what: HoldScopeArgs,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct HoldsArgs {
    #[command(flatten)]
    shape: Shape,
}

fn parse_repository(text: &str) -> Result<Repository, String> {
    Repository::parse(text).map_err(|wrong| wrong.to_string())
}

impl HoldScopeArgs {
    /// The path segments below `/v1/holds`.
    async fn path(&self, session: &CliSession<'_>) -> Result<Vec<String>, CliFailure> {
        let given = (&self.issue, &self.repository, &self.account, self.all);
        let parts: Vec<String> = match given {
            (Some(target), None, None, false) => {
                vec!["issues".into(), target.known_issue_id(&session.client).await?]
            }
            (None, Some(repository), None, false) => {
                let parts = repository.as_str().split('/').map(str::to_owned);
                std::iter::once("repositories".into()).chain(parts).collect()
            }
            (None, None, Some(account), false) => vec!["accounts".into(), account.clone()],
            (None, None, None, true) => vec!["server".into()],
            (None, None, None, false) => {
                return Err(CliFailure::Usage {
                    message: "no scope is given".to_owned(),
                    hint: "specify an ISSUE, --repository OWNER/REPO, --account NAME or --all"
                        .to_owned(),
                });
            }
            _ => {
                return Err(CliFailure::Usage {
                    message: "more than one scope is given".to_owned(),
                    hint: "specify only one of ISSUE, --repository, --account and --all".to_owned(),
                });
            }
        };
        Ok(parts)
    }
}

fn below_holds(parts: &[String]) -> Vec<&str> {
    std::iter::once("holds").chain(parts.iter().map(String::as_str)).collect()
}

pub(super) async fn hold(session: &mut CliSession<'_>, args: HoldArgs) -> anyhow::Result<ExitCode> {
    let parts = args.what.path(session).await?;
    let mut call = ApiRequest::put(&below_holds(&parts));
    if let Some(reason) = &args.reason {
        call = call.json(json!({"reason": reason}));
    }
    let answer = session.client.call(call).await?;
    if let OutputMode::Data(notation) = args.shape.mode() {
        session.screen.data(notation, answer.data())?;
        return Ok(ExitCode::SUCCESS);
    }
    let hold: HoldRow = wire::read(answer.data())?;
    let line = match args.shape.mode() {
        OutputMode::Ids => hold.id,
        OutputMode::Table(_) | OutputMode::Data(_) => format!("{} is held", hold.shown()),
    };
    session.screen.line(&line)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn release(
    session: &mut CliSession<'_>,
    args: ReleaseArgs,
) -> anyhow::Result<ExitCode> {
    let parts = args.what.path(session).await?;
    let answer = session.client.call(ApiRequest::delete(&below_holds(&parts))).await?;
    if let OutputMode::Data(notation) = args.shape.mode() {
        session.screen.data(notation, answer.data())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Released { id, label, released } = wire::read(answer.data())?;
    let shown = label.as_ref().unwrap_or(&id);
    let line = match (args.shape.mode(), released) {
        (OutputMode::Ids, _) => id,
        (OutputMode::Table(_) | OutputMode::Data(_), true) => format!("{shown} was released"),
        (OutputMode::Table(_) | OutputMode::Data(_), false) => format!("{shown} was not held"),
    };
    session.screen.line(&line)?;
    Ok(ExitCode::SUCCESS)
}

/// All holds in force, the widest first.
pub(super) async fn in_force(client: &ApiClient) -> Result<Vec<HoldRow>, CliFailure> {
    client.every(&["holds"]).await?.iter().map(wire::read).collect()
}

pub(super) async fn list(
    session: &mut CliSession<'_>,
    args: HoldsArgs,
) -> anyhow::Result<ExitCode> {
    let all = session.client.every(&["holds"]).await?;
    if let OutputMode::Data(notation) = args.shape.mode() {
        session.screen.data(notation, &Value::Array(all))?;
        return Ok(ExitCode::SUCCESS);
    }
    let holds: Vec<HoldRow> = all.iter().map(wire::read).collect::<Result<_, _>>()?;
    if args.shape.mode() == OutputMode::Ids {
        for hold in &holds {
            session.screen.line(&inert(&hold.id))?;
        }
    } else if holds.is_empty() {
        // On standard error: a program that reads standard output gets no text.
        eprintln!("no holds");
    } else {
        let list = table::holds(&session.screen, &holds, SystemClock.now());
        session.screen.line(&list)?;
    }
    Ok(ExitCode::SUCCESS)
}
