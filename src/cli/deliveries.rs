//! `issuebox deliveries`: what came from GitHub, newest first, and what came of it.

use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;

use crate::clock::{Clock, SystemClock};

use super::Session;
use super::client::ApiRequest;
use super::output::{Shape, Shown};
use super::table;
use super::target::IssueRef;
use super::wire::{self, Delivery};

/// What the API can be asked for.
const STATUSES: [&str; 6] =
    ["accepted", "ignored", "pending", "set_aside", "badly_signed", "refused"];

#[derive(Debug, Args)]
pub(super) struct DeliveriesArgs {
    /// Only those that led to this issue
    #[arg(value_parser = IssueRef::parse)]
    issue: Option<IssueRef>,
    /// Only those of this event, such as issues
    #[arg(long, value_name = "EVENT")]
    event: Option<String>,
    /// Only those that this became of
    #[arg(long, value_name = "STATUS", value_parser = PossibleValuesParser::new(STATUSES))]
    status: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    shape: Shape,
}

/// How many the API gives at once at most.
const PAGE_LEN: u64 = 200;

pub(super) async fn run(
    session: &mut Session<'_>,
    args: DeliveriesArgs,
) -> anyhow::Result<ExitCode> {
    let issue_id = match &args.issue {
        Some(target) => Some(target.known_issue_id(&session.client).await?),
        None => None,
    };
    let mut all: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    let total = loop {
        let left = args.limit - all.len() as u64;
        let call = ApiRequest::get(&["deliveries"])
            .query("event", args.event.as_deref())
            .query("status", args.status.as_deref())
            .query("issueId", issue_id.as_deref())
            .query("limit", Some(left.min(PAGE_LEN)))
            .query("cursor", cursor.as_deref());
        let answer = session.client.call(call).await?;
        all.extend(answer.data().as_array().into_iter().flatten().cloned());
        cursor = answer.body["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() || all.len() as u64 >= args.limit {
            break answer.body["total"].as_u64().unwrap_or(0);
        }
    };
    show(session, args.shape.shown(), all, total)?;
    Ok(ExitCode::SUCCESS)
}

fn show(
    session: &mut Session<'_>,
    shown: Shown,
    all: Vec<Value>,
    total: u64,
) -> anyhow::Result<()> {
    let width = match shown {
        Shown::Data(notation) => return session.screen.data(notation, &Value::Array(all)),
        Shown::Table(width) => Some(width),
        Shown::Ids => None,
    };
    let deliveries: Vec<Delivery> = all.iter().map(wire::read).collect::<Result<_, _>>()?;
    let Some(width) = width else {
        for id in deliveries.iter().filter_map(|one| one.delivery.as_deref()) {
            session.screen.line(&crate::types::inert(id))?;
        }
        return Ok(());
    };
    if deliveries.is_empty() {
        // Not a result: a program that reads standard output gets nothing.
        eprintln!("no deliveries");
        return Ok(());
    }
    let list = table::deliveries(&session.screen, width, &deliveries, SystemClock.now());
    session.screen.line(&list)?;
    if (deliveries.len() as u64) < total {
        eprintln!("note: {} of {total}; --limit shows more", deliveries.len());
    }
    Ok(())
}
