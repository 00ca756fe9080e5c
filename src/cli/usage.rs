//! `issuebox usage`: what agents used of models, and what that cost.

use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Deserialize;

use crate::store::usage::UsageBy;
use crate::types::inert;

use super::CliSession;
use super::client::ApiRequest;
use super::output::{OutputMode, Shape};
use super::runs::{ApiUsage, RunIssue};
use super::table;
use super::wire;

#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// What sums are made for
    #[arg(long, value_name = "WHAT", default_value = "issue",
          value_parser = PossibleValuesParser::new(UsageBy::LISTED.map(UsageBy::as_str)))]
    by: String,
    /// Only requests of this day (2026-01-31, UTC) and later ones
    #[arg(long, value_name = "DAY")]
    since: Option<String>,
    #[command(flatten)]
    shape: Shape,
}

/// What was used of models.
#[derive(Debug, Deserialize)]
pub(super) struct UsageReport {
    pub sums: Vec<UsageRow>,
    pub total: ApiUsage,
}

/// One sum.
#[derive(Debug, Deserialize)]
pub(super) struct UsageRow {
    name: Option<String>,
    issue: Option<RunIssue>,
    pub usage: ApiUsage,
}

impl UsageRow {
    /// What the sum is of, for display.
    pub fn shown(&self) -> String {
        let issue = self.issue.as_ref().map(RunIssue::shown);
        issue.or_else(|| self.name.clone()).unwrap_or_else(|| "(unknown)".to_owned())
    }
}

pub(super) async fn run(session: &mut CliSession<'_>, args: UsageArgs) -> anyhow::Result<ExitCode> {
    let call = ApiRequest::get(&["usage"])
        .query("by", Some(&args.by))
        .query("since", args.since.as_deref());
    let answer = session.client.call(call).await?;
    let width = match args.shape.mode() {
        OutputMode::Data(notation) => {
            session.screen.data(notation, answer.data())?;
            return Ok(ExitCode::SUCCESS);
        }
        OutputMode::Table(width) => Some(width),
        OutputMode::Ids => None,
    };
    let report: UsageReport = wire::read(answer.data())?;
    match width {
        None => {
            let names = report.sums.iter().filter_map(|row| row.name.as_deref());
            names.map(inert).try_for_each(|name| session.screen.line(&name))?;
        }
        // On standard error: a program that reads standard output gets no text.
        Some(_) if report.sums.is_empty() => eprintln!("no model was asked yet"),
        Some(width) => {
            let list = table::usage(&session.screen, width, &args.by, &report);
            session.screen.line(&list)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
