//! `issuebox get`: shows one sandbox.

use std::process::ExitCode;

use clap::Args;

use crate::clock::{Clock, SystemClock};

use super::CliSession;
use super::client::ApiRequest;
use super::hold;
use super::output::{OutputMode, Shape};
use super::provider_errors::print_provider_errors;
use super::table;
use super::target::IssueArg;
use super::wire::{self, Checkout, Endpoint, Limit, TimelineRow};

/// How many of the newest timeline entries are searched for what was asked last.
const TIMELINE_LEN: u32 = 50;

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    #[command(flatten)]
    shape: Shape,
}

pub(super) async fn run(session: &mut CliSession<'_>, args: GetArgs) -> anyhow::Result<ExitCode> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    let limits = || ApiRequest::get(&["sandboxes", &sandbox.id, "limits"]);
    let checkout = || ApiRequest::get(&["sandboxes", &sandbox.id, "checkout"]);
    match args.shape.mode() {
        OutputMode::Table(width) => {
            // An older server says less of them; the sandbox is shown all the same.
            let holds = hold::in_force(&session.client).await.unwrap_or_default();
            let now = SystemClock.now();
            let sheet = table::sheet(&session.screen, width, &sandbox, &holds, now);
            session.screen.line(&sheet)?;
            let events = ApiRequest::get(&["issues", &sandbox.issue_id, "events"])
                .query("limit", Some(TIMELINE_LEN));
            if let Ok(answer) = session.client.call(events).await {
                let timeline: Vec<TimelineRow> = wire::read(answer.data())?;
                if let Some(words) = timeline.iter().find_map(|row| row.instruction.as_ref()) {
                    session.screen.line(&table::asked(&session.screen, words))?;
                }
            }
            if let Ok(answer) = session.client.call(checkout()).await {
                let found: Option<Checkout> = wire::read(answer.data())?;
                if let Some(checkout) = found {
                    session.screen.line(&table::checkout(&session.screen, &checkout))?;
                }
            }
            // An older server does not have them.
            if let Ok(answer) = session.client.call(limits()).await {
                let limits: Vec<Limit> = wire::read(answer.data())?;
                session.screen.line(&table::limits(&session.screen, &limits))?;
            }
            let ports = ApiRequest::get(&["sandboxes", &sandbox.id, "ports"]);
            if let Ok(answer) = session.client.call(ports).await {
                let endpoints: Vec<Endpoint> = wire::read(answer.data())?;
                if !endpoints.is_empty() {
                    session.screen.line(&table::endpoints(&session.screen, &endpoints))?;
                }
            }
            print_provider_errors(&session.client).await;
        }
        OutputMode::Ids => session.screen.line(&sandbox.id)?,
        OutputMode::Data(notation) => {
            let answer = session.client.call(ApiRequest::get(&["sandboxes", &sandbox.id])).await?;
            let mut data = answer.data().clone();
            // An older server does not have them.
            if let Ok(answer) = session.client.call(limits()).await {
                data["limits"] = answer.data().clone();
            }
            if let Ok(answer) = session.client.call(checkout()).await {
                data["checkout"] = answer.data().clone();
            }
            session.screen.data(notation, &data)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
