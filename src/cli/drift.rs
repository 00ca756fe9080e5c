//! `issuebox drift`: lists where records and providers disagree, and resolves an item.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::Value;

use crate::clock::{Clock, SystemClock};
use crate::types::{Timestamp, inert};

use super::CliSession;
use super::client::{ApiClient, ApiList, ApiRequest};
use super::confirm::{Question, confirm};
use super::failure::CliFailure;
use super::output::{OutputMode, Screen, Shape};
use super::table::age;
use super::wire;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct DriftArgs {
    #[command(subcommand)]
    decide: Option<Decide>,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Subcommand)]
enum Decide {
    /// Accept the provider's state
    Adopt(DecideArgs),
    /// Remove the object, or the record of a lost object
    Remove(DecideArgs),
}

#[derive(Debug, Args)]
struct DecideArgs {
    /// An item's id, as `issuebox drift` lists it
    #[arg(value_name = "ID")]
    id: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    shape: Shape,
}

/// One drift item.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    id: String,
    kind: String,
    issue_id: Option<String>,
    record: Option<RecordColumn>,
    object: Option<ObjectColumn>,
    reason: String,
    since: String,
    next: String,
    next_at: Option<String>,
    remedies: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordColumn {
    sandbox_id: String,
    generation: u64,
    phase: String,
    external_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectColumn {
    external_id: String,
    state: String,
    sandbox_id: String,
    generation: u64,
    mode: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sweeps {
    provider: String,
    last_at: Option<String>,
}

pub(super) async fn run(session: &mut CliSession<'_>, args: DriftArgs) -> anyhow::Result<ExitCode> {
    match args.decide {
        None => list(session, args.shape.mode()).await,
        Some(Decide::Adopt(args)) => decide(session, "adopt", args).await,
        Some(Decide::Remove(args)) => decide(session, "remove", args).await,
    }
}

/// All items, their number at the server, and the sweeps.
async fn items(client: &ApiClient) -> Result<(Vec<Value>, u64, Vec<Sweeps>), CliFailure> {
    let ask = || ApiRequest::get(&["system", "drift"]);
    let ApiList { items, total, last } = client.list(ask, u64::MAX).await?;
    Ok((items, total, wire::read(&last["sweeps"])?))
}

async fn list(session: &mut CliSession<'_>, mode: OutputMode) -> anyhow::Result<ExitCode> {
    let (all, total, sweeps) = items(&session.client).await?;
    match mode {
        OutputMode::Data(notation) => session.screen.data(notation, &Value::Array(all))?,
        OutputMode::Ids | OutputMode::Table(_) => {
            let now = SystemClock.now();
            for value in &all {
                let item: Item = wire::read(value)?;
                let text = match mode {
                    OutputMode::Ids => inert(&item.id).into_owned(),
                    OutputMode::Data(_) | OutputMode::Table(_) => {
                        sheet(&session.screen, &item, now)
                    }
                };
                session.screen.line(&text)?;
            }
            // On standard error: a program that reads standard output gets the items alone.
            if total > all.len() as u64 {
                eprintln!("showing {} of {total}", all.len());
            }
            if total == 0 {
                eprintln!("{}", nothing(&sweeps, now));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// "No drift" means little for a provider that was not checked, so this lists the checks.
fn nothing(sweeps: &[Sweeps], now: Timestamp) -> String {
    let one = |sweep: &Sweeps| {
        let name = inert(&sweep.provider);
        match &sweep.last_at {
            Some(at) => format!("{name} was checked {} ago", age(at, now)),
            None => format!("{name} was not checked yet"),
        }
    };
    let looked: Vec<String> = sweeps.iter().map(one).collect();
    if looked.is_empty() {
        return "no drift; no provider was checked yet".to_owned();
    }
    format!("no drift; {}", looked.join(", "))
}

/// The details of one item.
fn sheet(screen: &Screen, item: &Item, now: Timestamp) -> String {
    let issue = item.issue_id.as_ref().map(|issue| format!("  issue {}", inert(issue)));
    let head = format!(
        "{}  {}{}  since {}",
        inert(&item.id),
        inert(&item.kind),
        issue.unwrap_or_default(),
        age(&item.since, now)
    );
    let record = item.record.as_ref().map(|record| {
        let object = record.external_id.as_deref().unwrap_or("none");
        let RecordColumn { sandbox_id, generation, phase, .. } = record;
        format!("{phase}, sandbox {sandbox_id} (generation {generation}), object {object}")
    });
    let object = item.object.as_ref().map(|object| {
        let ObjectColumn { external_id, state, sandbox_id, generation, mode } = object;
        format!("{external_id} {state}, sandbox {sandbox_id} (generation {generation}, {mode})")
    });
    let next = match &item.next_at {
        Some(at) => format!("{} (not before {at})", item.next),
        None => item.next.clone(),
    };
    let remedies: Vec<String> =
        item.remedies.iter().map(|what| format!("issuebox drift {what} {}", item.id)).collect();
    let remedies = (!remedies.is_empty()).then(|| remedies.join(", or "));
    let rows = [
        ("why", Some(item.reason.clone())),
        ("record", record),
        ("provider", object),
        ("next", Some(next)),
        ("decide", remedies),
    ];
    let line = |(name, value): (&str, Option<String>)| {
        let value = value?;
        Some(format!("  {} {}", screen.faint(&format!("{name:<9}")), inert(&value)))
    };
    std::iter::once(head).chain(rows.into_iter().filter_map(line)).collect::<Vec<_>>().join("\n")
}

async fn decide(
    session: &mut CliSession<'_>,
    remedy: &str,
    args: DecideArgs,
) -> anyhow::Result<ExitCode> {
    let id = inert(&args.id).into_owned();
    if !args.yes {
        let (all, ..) = items(&session.client).await?;
        let asked = all.iter().find(|item| item["id"].as_str() == Some(&args.id));
        let asked: Item = wire::read(asked.ok_or_else(|| unknown(&id))?)?;
        eprintln!("{}", sheet(&session.screen, &asked, SystemClock.now()));
        let (prompt, consequence) = match remedy {
            "remove" => (
                format!("Remove the object or record of {id}? Its data is lost."),
                format!("removing the object or record of {id} loses its data"),
            ),
            _ => (
                format!("Accept the provider's state for {id}?"),
                format!("this accepts the provider's state for {id}"),
            ),
        };
        let declined = "nothing was decided";
        confirm(&Question { prompt: &prompt, consequence: &consequence, declined })?;
    }
    let call = ApiRequest::post(&["system", "drift", &args.id, remedy]);
    let answer = session.client.call(call).await.map_err(as_not_found)?;
    let line = match args.shape.mode() {
        OutputMode::Data(notation) => {
            session.screen.data(notation, answer.data())?;
            return Ok(ExitCode::SUCCESS);
        }
        OutputMode::Ids => id,
        OutputMode::Table(_) => {
            format!("{id}  {remedy} accepted; run issuebox drift to see what remains")
        }
    };
    session.screen.line(&line)?;
    Ok(ExitCode::SUCCESS)
}

fn unknown(id: &str) -> CliFailure {
    CliFailure::NotFound {
        message: format!("there is no drift item {id}"),
        hint: "run issuebox drift to list the current items".to_owned(),
    }
}

/// Reports an item that no longer exists as not found.
fn as_not_found(failure: CliFailure) -> CliFailure {
    match failure {
        CliFailure::Api { code, message, .. } if code == "drift_over" => CliFailure::NotFound {
            message,
            hint: "run issuebox drift to list the current items".to_owned(),
        },
        CliFailure::Api { .. }
        | CliFailure::Unreachable { .. }
        | CliFailure::BrokenOff { .. }
        | CliFailure::NotFound { .. }
        | CliFailure::Usage { .. }
        | CliFailure::Failed { .. }
        | CliFailure::Reported(_) => failure,
    }
}
