//! `issuebox ls`: lists all sandboxes, newest first.

use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;

use crate::clock::{Clock, SystemClock};
use crate::types::Phase;

use super::CliSession;
use super::client::{ApiAnswer, ApiRequest};
use super::failure::CliFailure;
use super::hold;
use super::output::{OutputMode, Screen, Shape, Width};
use super::provider_errors::print_provider_errors;
use super::table::{self, TableParts};
use super::wire::{self, ApiSandbox, HoldRow};

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Only sandboxes in this phase; deleted lists deleted ones alone
    #[arg(long, value_name = "PHASE", value_parser = PossibleValuesParser::new(phases()))]
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

fn phases() -> Vec<&'static str> {
    Phase::ALL.iter().map(|phase| phase.as_str()).chain(["deleted"]).collect()
}

impl LsArgs {
    /// Whether sandboxes are left out that it would list without arguments.
    const fn is_filtered(&self) -> bool {
        let Self { phase, provider, repository, search, deleted: _, shape: _ } = self;
        phase.is_some() || provider.is_some() || repository.is_some() || search.is_some()
    }
}

/// Largest page of the API.
const PAGE_LEN: u64 = 200;
/// How many rows of a table are laid out together: their columns are as wide as the widest of them.
const PART_LEN: usize = 1_000;

/// Prints page by page, so that a list of any length takes the memory of a part of it.
pub(super) async fn run(session: &mut CliSession<'_>, args: LsArgs) -> anyhow::Result<ExitCode> {
    let mode = args.shape.mode();
    let holds = match mode {
        OutputMode::Table(Width::Whole) => hold::in_force(&session.client).await?,
        OutputMode::Table(Width::Fitting) | OutputMode::Data(_) | OutputMode::Ids => Vec::new(),
    };
    let mut list = Listing { holds, ..Listing::default() };
    let mut cursor: Option<String> = None;
    loop {
        let mut answer = page(session, &args, cursor.as_deref()).await?;
        cursor = answer.body["nextCursor"].as_str().map(str::to_owned);
        let items = match answer.body.get_mut("data").map(Value::take) {
            Some(Value::Array(items)) => items,
            Some(_) | None => {
                cursor = None;
                Vec::new()
            }
        };
        match mode {
            OutputMode::Data(notation) => session.screen.items(notation, &items, list.is_begun)?,
            OutputMode::Ids => list.ids(&mut session.screen, &items)?,
            OutputMode::Table(width) => {
                for item in &items {
                    list.held_back.push(wire::read(item)?);
                }
                if list.held_back.len() >= PART_LEN || cursor.is_none() {
                    list.part(&mut session.screen, width)?;
                }
            }
        }
        list.is_begun |= !items.is_empty();
        if cursor.is_none() {
            break;
        }
    }
    match mode {
        OutputMode::Data(notation) => session.screen.end_items(notation, list.is_begun)?,
        OutputMode::Ids => {}
        OutputMode::Table(_) => {
            if !list.is_begun {
                // On standard error: a program that reads standard output gets no text.
                eprintln!(
                    "{}",
                    match args.is_filtered() {
                        true => "no sandbox matches; issuebox ls without filters lists all",
                        false => "no sandboxes; run issuebox ensure ISSUE to create one",
                    }
                );
            }
            print_provider_errors(&session.client).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What of a list is not printed yet, and how what was printed looks.
#[derive(Debug, Default)]
struct Listing {
    is_begun: bool,
    held_back: Vec<ApiSandbox>,
    holds: Vec<HoldRow>,
    parts: TableParts,
}

impl Listing {
    fn ids(&self, screen: &mut Screen, items: &[Value]) -> anyhow::Result<()> {
        let ids: Result<Vec<String>, CliFailure> =
            items.iter().map(|item| wire::read(item).map(|one: ApiSandbox| one.id)).collect();
        let ids = ids?;
        if !ids.is_empty() {
            screen.line(&ids.join("\n"))?;
        }
        Ok(())
    }

    fn part(&mut self, screen: &mut Screen, width: Width) -> anyhow::Result<()> {
        let rows = std::mem::take(&mut self.held_back);
        if !rows.is_empty() {
            let now = SystemClock.now();
            let rows = (rows.as_slice(), self.holds.as_slice());
            screen.line(&table::list(screen, width, rows, now, &mut self.parts))?;
        }
        Ok(())
    }
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
