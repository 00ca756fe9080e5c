//! `issuebox hold`, `release` and `holds`: the brake. What is held makes, starts and resumes
//! nothing until it is released; what runs goes on.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::clock::{Clock, SystemClock};
use crate::types::{Repository, inert};

use super::client::ApiRequest;
use super::failure::CliFailure;
use super::output::{Shape, Shown};
use super::target::IssueRef;
use super::wire::{self, HoldRow, Released};
use super::{ServerArgs, Session, table};

/// What is held or released; one of them.
#[derive(Debug, Args)]
#[group(id = "what", multiple = false)]
pub(super) struct What {
    /// One issue
    #[arg(value_parser = IssueRef::parse)]
    issue: Option<IssueRef>,
    /// Every issue of this repository
    #[arg(long, value_name = "OWNER/REPO", value_parser = parse_repository)]
    repository: Option<Repository>,
    /// Every issue of this account
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Everything (so does --server without a URL)
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(super) struct HoldArgs {
    #[command(flatten)]
    pub what: What,
    /// Why, for whoever is refused
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    pub what: What,
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

impl What {
    /// `--server` names the server to speak to, but without a URL it can only mean what is held.
    pub fn take_bare_server(&mut self, mut place: ServerArgs) -> ServerArgs {
        if place.server.as_deref() == Some("") {
            place.server = None;
            self.all = true;
        }
        place
    }

    /// Its place below `/v1/holds`, part by part.
    async fn path(&self, session: &Session<'_>) -> Result<Vec<String>, CliFailure> {
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
                    message: "it is not said what is meant".to_owned(),
                    hint: "name an ISSUE, --repository OWNER/REPO, --account NAME or --all"
                        .to_owned(),
                });
            }
            _ => {
                return Err(CliFailure::Usage {
                    message: "more than one thing is meant".to_owned(),
                    hint: "name one of ISSUE, --repository, --account and --all at a time"
                        .to_owned(),
                });
            }
        };
        Ok(parts)
    }
}

fn below_holds(parts: &[String]) -> Vec<&str> {
    std::iter::once("holds").chain(parts.iter().map(String::as_str)).collect()
}

pub(super) async fn hold(session: &mut Session<'_>, args: HoldArgs) -> anyhow::Result<ExitCode> {
    let parts = args.what.path(session).await?;
    let mut call = ApiRequest::put(&below_holds(&parts));
    if let Some(reason) = &args.reason {
        call = call.json(json!({"reason": reason}));
    }
    let answer = session.client.call(call).await?;
    if let Shown::Data(notation) = args.shape.shown() {
        session.screen.data(notation, answer.data())?;
        return Ok(ExitCode::SUCCESS);
    }
    let hold: HoldRow = wire::read(answer.data())?;
    let id = inert(&hold.id);
    let line = match args.shape.shown() {
        Shown::Ids => id.into_owned(),
        Shown::Table(_) | Shown::Data(_) => format!("{id} is held"),
    };
    session.screen.line(&line)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn release(
    session: &mut Session<'_>,
    args: ReleaseArgs,
) -> anyhow::Result<ExitCode> {
    let parts = args.what.path(session).await?;
    let answer = session.client.call(ApiRequest::delete(&below_holds(&parts))).await?;
    if let Shown::Data(notation) = args.shape.shown() {
        session.screen.data(notation, answer.data())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Released { id, released } = wire::read(answer.data())?;
    let id = inert(&id);
    let line = match (args.shape.shown(), released) {
        (Shown::Ids, _) => id.into_owned(),
        (Shown::Table(_) | Shown::Data(_), true) => format!("{id} is released"),
        (Shown::Table(_) | Shown::Data(_), false) => format!("{id} was not held"),
    };
    session.screen.line(&line)?;
    Ok(ExitCode::SUCCESS)
}

/// How many the API gives at once at most.
const PAGE_LEN: u64 = 200;

pub(super) async fn list(session: &mut Session<'_>, args: HoldsArgs) -> anyhow::Result<ExitCode> {
    let mut all: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let call = ApiRequest::get(&["holds"])
            .query("limit", Some(PAGE_LEN))
            .query("cursor", cursor.as_deref());
        let answer = session.client.call(call).await?;
        all.extend(answer.data().as_array().into_iter().flatten().cloned());
        cursor = answer.body["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if let Shown::Data(notation) = args.shape.shown() {
        session.screen.data(notation, &Value::Array(all))?;
        return Ok(ExitCode::SUCCESS);
    }
    let holds: Vec<HoldRow> = all.iter().map(wire::read).collect::<Result<_, _>>()?;
    if args.shape.shown() == Shown::Ids {
        for hold in &holds {
            session.screen.line(&inert(&hold.id))?;
        }
    } else if holds.is_empty() {
        // Not a result: a program that reads standard output gets nothing.
        eprintln!("nothing is held");
    } else {
        let list = table::holds(&session.screen, &holds, SystemClock.now());
        session.screen.line(&list)?;
    }
    Ok(ExitCode::SUCCESS)
}
