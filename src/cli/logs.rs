//! `issuebox logs`: the output of commands in a sandbox, so far and as it is written.

use std::io;
use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use crate::types::inert;

use super::CliSession;
use super::client::ApiRequest;
use super::output::{OutputMode, Screen, Shape};
use super::rejoin::{Rejoins, ended_by_server};
use super::target::IssueArg;
use super::unresolved::Unresolved;
use super::wire;

#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// Follow new output
    #[arg(short, long)]
    follow: bool,
    /// At most the last N lines
    #[arg(long, value_name = "N", default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    tail: u64,
    /// Show when each line was written
    #[arg(short, long)]
    timestamps: bool,
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    #[command(flatten)]
    shape: Shape,
}

/// One line of output.
#[derive(Debug, Deserialize)]
struct LogRow {
    at: String,
    stream: String,
    text: String,
}

pub(super) async fn run(session: &mut CliSession<'_>, args: LogsArgs) -> anyhow::Result<ExitCode> {
    let sandbox = args.issue.newest(&session.client).await?;
    if sandbox.phase.is_none() {
        eprintln!(
            "note: the sandbox {} is deleted; this is what is kept of its output",
            sandbox.id
        );
    }
    let call =
        || ApiRequest::get(&["sandboxes", &sandbox.id, "logs"]).query("tail", Some(args.tail));
    if args.follow {
        follow(session, call, &args).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let answer = session.client.call(call()).await?;
    let lines = answer.data().as_array().map(Vec::as_slice).unwrap_or_default();
    let mut unresolved = Unresolved::default();
    lines
        .iter()
        .filter_map(|line| line["text"].as_str())
        .for_each(|t| unresolved.see(t.as_bytes()));
    match args.shape.mode() {
        OutputMode::Data(notation) => session.screen.data(notation, answer.data())?,
        OutputMode::Ids | OutputMode::Table(_) => {
            for line in lines {
                show(&mut session.screen, &args, line)?;
            }
        }
    }
    if let Some(hint) = unresolved.hint(&sandbox, &args.issue) {
        eprintln!("{hint}");
    }
    if lines.is_empty() && args.tail > 0 {
        // On standard error: a program that reads standard output gets no text.
        eprintln!("no output: no command has run yet, or its output is no longer kept");
    }
    Ok(ExitCode::SUCCESS)
}

async fn follow(
    session: &mut CliSession<'_>,
    call: impl Fn() -> ApiRequest,
    args: &LogsArgs,
) -> anyhow::Result<()> {
    let mut last: Option<String> = None;
    let mut rejoins = Rejoins::new();
    loop {
        let asked = call().query("follow", Some("true"));
        let ended = match session.client.stream(asked, last.as_deref()).await {
            Ok(mut events) => loop {
                match events.next().await {
                    Ok(Some(event)) if event.name == "log" => {
                        rejoins.joined();
                        let line: Value = wire::read_event_exact(&event.data)?;
                        show(&mut session.screen, args, &line)?;
                        last = event.id;
                    }
                    // Events of later versions.
                    Ok(Some(_)) => {}
                    Ok(None) => break ended_by_server(),
                    Err(failure) => break failure,
                }
            },
            Err(failure) => failure,
        };
        rejoins.wait(ended).await?;
    }
}

fn show(screen: &mut Screen, args: &LogsArgs, value: &Value) -> anyhow::Result<()> {
    let line: LogRow = wire::read(value)?;
    let text = inert(&line.text);
    let text = match (args.shape.mode(), line.stream.as_str()) {
        (OutputMode::Data(notation), _) => return screen.record(notation, value),
        (OutputMode::Ids, "stdout" | "stderr") => text.into_owned(),
        // With --quiet only the output itself is printed.
        (OutputMode::Ids, _) => return Ok(()),
        (OutputMode::Table(_), "stdout" | "stderr") => text.into_owned(),
        (OutputMode::Table(_), "command") => screen.faint(&format!("$ {text}")),
        (OutputMode::Table(_), "exit") => screen.faint(&format!("exit {text}")),
        (OutputMode::Table(_), _) => screen.faint(&format!("({text})")),
    };
    let text = match args.timestamps {
        true => format!("{} {text}", screen.faint(&inert(&line.at))),
        false => text,
    };
    let written: io::Result<()> = screen.line(&text);
    Ok(written?)
}
