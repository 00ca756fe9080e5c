//! `issuebox sync`: a workspace in the object storage, in versions.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::clock::{Clock, SystemClock};
use crate::types::inert;

use super::CliSession;
use super::client::{ApiList, ApiRequest};
use super::output::{OutputMode, Screen, Shape};
use super::progress::Spinner;
use super::table;
use super::target::IssueArg;

#[derive(Debug, Subcommand)]
pub(super) enum SyncVerb {
    /// Store the workspace as a new version
    Push(PushArgs),
    /// Bring the workspace to a version; deletes what that does not have
    Pull(PullArgs),
    /// List the stored versions, newest first, also of a deleted sandbox
    Versions(VersionsArgs),
}

#[derive(Debug, Args)]
pub(super) struct PushArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// Only if the last sync ended longer ago than so many seconds, and if something changed since
    #[arg(long, value_name = "SECONDS")]
    if_older_than: Option<u64>,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct PullArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// This version instead of the newest
    #[arg(long = "to", value_name = "VERSION")]
    version: Option<String>,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Debug, Args)]
pub(super) struct VersionsArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    shape: Shape,
}

pub(super) async fn run(session: &mut CliSession<'_>, verb: SyncVerb) -> anyhow::Result<ExitCode> {
    match verb {
        SyncVerb::Push(args) => {
            let body = json!({ "direction": "push", "ifOlderThanSeconds": args.if_older_than });
            sync(session, &args.issue, body, args.shape).await
        }
        SyncVerb::Pull(args) => {
            let body = json!({ "direction": "pull", "version": args.version });
            sync(session, &args.issue, body, args.shape).await
        }
        SyncVerb::Versions(args) => versions(session, args).await,
    }
}

async fn sync(
    session: &mut CliSession<'_>,
    issue: &IssueArg,
    body: Value,
    shape: Shape,
) -> anyhow::Result<ExitCode> {
    let sandbox = issue.sandbox(&session.client).await?;
    let answer = {
        let _spinner = Spinner::start(&format!("syncing {}", sandbox.name), true);
        let call = ApiRequest::post(&["sandboxes", &sandbox.id, "sync"]).json(body);
        session.client.call(call).await?
    };
    let data = answer.data();
    match shape.mode() {
        OutputMode::Table(_) => session.screen.line(&sentence(&sandbox.name, data))?,
        OutputMode::Ids => session.screen.line(&inert(word(data, "version")))?,
        OutputMode::Data(notation) => session.screen.data(notation, data)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What a sync did, for people.
fn sentence(name: &str, data: &Value) -> String {
    let stats = &data["stats"];
    let count = |key: &str| stats[key].as_u64().unwrap_or(0);
    let (version, deleted) = (inert(word(data, "version")), count("filesDeleted"));
    let (bytes, skipped) = (count("bytesTransferred"), count("filesSkipped"));
    if data["skipped"].as_bool() == Some(true) {
        format!("{name} was synced recently enough: {version} ({} files)", count("filesProcessed"))
    } else if word(data, "direction") == "pull" {
        let written = count("filesDownloaded");
        format!(
            "{name} has {version} now (files: {written} written with {bytes} bytes, {deleted} \
             deleted, {skipped} as they were)"
        )
    } else {
        let stored = count("filesUploaded");
        format!(
            "{name} is stored as {version} (files: {stored} stored with {bytes} bytes, {deleted} \
             gone, {skipped} unchanged)"
        )
    }
}

fn word<'a>(data: &'a Value, key: &str) -> &'a str {
    data[key].as_str().unwrap_or_default()
}

async fn versions(session: &mut CliSession<'_>, args: VersionsArgs) -> anyhow::Result<ExitCode> {
    let sandbox = args.issue.sandbox(&session.client).await?;
    let ask = || ApiRequest::get(&["sandboxes", &sandbox.id, "sync", "versions"]);
    let ApiList { items: all, total, last } = session.client.list(ask, args.limit).await?;
    match args.shape.mode() {
        OutputMode::Data(notation) => {
            session.screen.data(notation, &Value::Array(all))?;
            return Ok(ExitCode::SUCCESS);
        }
        OutputMode::Ids => {
            for one in &all {
                session.screen.line(&inert(word(one, "version")))?;
            }
        }
        OutputMode::Table(_) if all.is_empty() => {
            // On standard error: a program that reads standard output gets no text.
            eprintln!("no versions");
        }
        OutputMode::Table(_) => {
            let list = list(&session.screen, &all);
            session.screen.line(&list)?;
            if (all.len() as u64) < total && last["nextCursor"].is_string() {
                eprintln!("note: {} of {total}; --limit shows more", all.len());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(screen: &Screen, all: &[Value]) -> String {
    let now = SystemClock.now();
    let number = |value: &Value| value.as_u64().unwrap_or(0).to_string();
    let row = |one: &Value| {
        vec![
            inert(word(one, "version")).into_owned(),
            table::age(word(one, "createdAt"), now),
            number(&one["files"]),
            number(&one["size"]),
            number(&one["stats"]["filesUploaded"]),
        ]
    };
    table::versions(screen, all.iter().map(row).collect())
}
