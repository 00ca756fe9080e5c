//! `issuebox deliveries`: deliveries from GitHub and their results, newest first.

use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;

use crate::clock::{Clock, SystemClock};

use super::CliSession;
use super::client::{ApiList, ApiRequest};
use super::output::{OutputMode, Shape};
use super::table;
use super::target::IssueArg;
use super::wire::{self, Delivery};

/// The statuses by which the API can filter.
const STATUSES: [&str; 6] =
    ["accepted", "ignored", "pending", "set_aside", "badly_signed", "refused"];

#[derive(Debug, Args)]
pub(super) struct DeliveriesArgs {
    /// Only deliveries about this issue
    #[arg(value_parser = IssueArg::parse)]
    issue: Option<IssueArg>,
    /// Only deliveries of this event, such as issues or issues.labeled
    #[arg(long, value_name = "EVENT")]
    event: Option<String>,
    /// Only deliveries with this status
    #[arg(long, value_name = "STATUS", value_parser = PossibleValuesParser::new(STATUSES))]
    status: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    shape: Shape,
}

pub(super) async fn run(
    session: &mut CliSession<'_>,
    args: DeliveriesArgs,
) -> anyhow::Result<ExitCode> {
    let issue_id = match &args.issue {
        Some(target) => Some(target.known_issue_id(&session.client).await?),
        None => None,
    };
    let ask = || {
        ApiRequest::get(&["deliveries"])
            .query("event", args.event.as_deref())
            .query("status", args.status.as_deref())
            .query("issueId", issue_id.as_deref())
    };
    let ApiList { items: all, total, .. } = session.client.list(ask, args.limit).await?;
    show(session, args.shape.mode(), all, total)?;
    Ok(ExitCode::SUCCESS)
}

fn show(
    session: &mut CliSession<'_>,
    mode: OutputMode,
    all: Vec<Value>,
    total: u64,
) -> anyhow::Result<()> {
    let width = match mode {
        OutputMode::Data(notation) => return session.screen.data(notation, &Value::Array(all)),
        OutputMode::Table(width) => Some(width),
        OutputMode::Ids => None,
    };
    let deliveries: Vec<Delivery> = all.iter().map(wire::read).collect::<Result<_, _>>()?;
    let Some(width) = width else {
        for id in deliveries.iter().filter_map(|one| one.delivery.as_deref()) {
            session.screen.line(&crate::types::inert(id))?;
        }
        return Ok(());
    };
    if deliveries.is_empty() {
        // On standard error: a program that reads standard output gets no text.
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
