//! `issuebox ls`: lists all sandboxes, newest first.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::clock::{Clock, SystemClock};

use super::CliSession;
use super::client::{ApiAnswer, ApiRequest};
use super::failure::CliFailure;
use super::output::{OutputMode, Shape};
use super::provider_errors::print_provider_errors;
use super::table;
use super::wire::{self, ApiSandbox};

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Only sandboxes in this phase
    #[arg(long, value_name = "PHASE")]
    phase: Option<String>,
    /// Only sandboxes of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Only sandboxes of this repository
    #[arg(long, value_name = "OWNER/REPO")]
    repository: Option<String>,
    /// Only sandboxes whose name, title or repository contains TEXT
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Include deleted sandboxes
    #[arg(long)]
    deleted: bool,
    #[command(flatten)]
    shape: Shape,
}

/// Largest page of the API.
const PAGE_LEN: u64 = 200;

pub(super) async fn run(session: &mut CliSession<'_>, args: LsArgs) -> anyhow::Result<ExitCode> {
    let mut all: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let answer = page(session, &args, cursor.as_deref()).await?;
        cursor = answer.body["nextCursor"].as_str().map(str::to_owned);
        match answer.body {
            Value::Object(mut fields) => match fields.remove("data") {
                Some(Value::Array(items)) => all.extend(items),
                Some(_) | None => cursor = None,
            },
            _ => cursor = None,
        }
        if cursor.is_none() {
            break;
        }
    }
    let mode = args.shape.mode();
    show(session, mode, all)?;
    if let OutputMode::Table(_) = mode {
        print_provider_errors(&session.client).await;
    }
    Ok(ExitCode::SUCCESS)
}

async fn page(
    session: &CliSession<'_>,
    args: &LsArgs,
    cursor: Option<&str>,
) -> Result<ApiAnswer, CliFailure> {
    let call = ApiRequest::get(&["sandboxes"])
        .query("phase", args.phase.as_deref())
        .query("provider", args.provider.as_deref())
        .query("repository", args.repository.as_deref())
        .query("q", args.search.as_deref())
        .query("deleted", args.deleted.then_some("true"))
        .query("limit", Some(PAGE_LEN))
        .query("cursor", cursor);
    session.client.call(call).await
}

fn show(session: &mut CliSession<'_>, mode: OutputMode, all: Vec<Value>) -> anyhow::Result<()> {
    let width = match mode {
        OutputMode::Data(notation) => return session.screen.data(notation, &Value::Array(all)),
        OutputMode::Table(width) => Some(width),
        OutputMode::Ids => None,
    };
    let sandboxes: Vec<ApiSandbox> = all.iter().map(wire::read).collect::<Result<_, _>>()?;
    let Some(width) = width else {
        for sandbox in &sandboxes {
            session.screen.line(&sandbox.id)?;
        }
        return Ok(());
    };
    if sandboxes.is_empty() {
        // On standard error: a program that reads standard output gets no text.
        eprintln!("no sandboxes; run issuebox ensure ISSUE to create one");
    } else {
        let list = table::list(&session.screen, width, &sandboxes, SystemClock.now());
        session.screen.line(&list)?;
    }
    Ok(())
}
