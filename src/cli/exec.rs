//! `issuebox exec`: runs a command in a sandbox, with its output on the same two streams and its exit
//! code. The command ends when this program ends. With `-t` it gets a terminal (`attach`).

mod attach;
mod outlet;
mod piped;

use std::io::{self, Write};
use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::http::error::Code;

use super::CliSession;
use super::client::{ApiRequest, EventStream};
use super::failure::CliFailure;
use super::sse::SseEvent;
use super::target::IssueArg;
use super::unresolved::Unresolved;
use super::wire::{self, BrokenOff, ExecExit, OutputChunk};

#[derive(Debug, Args)]
pub(super) struct ExecArgs {
    /// Pass standard input as it arrives, or with -t as it is typed
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Allocate a terminal; without CMD it runs a login shell
    #[arg(short, long)]
    tty: bool,
    /// Set an environment variable
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Working directory [default: the workspace]
    #[arg(short, long, value_name = "DIR")]
    workdir: Option<String>,
    /// Kill the command after this many seconds
    #[arg(long, value_name = "SECONDS", conflicts_with = "tty")]
    timeout: Option<u64>,
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// The command and its arguments, also after --; no shell interprets them
    #[arg(required_unless_present = "tty", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct ShellArgs {
    /// Set an environment variable
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Working directory [default: the workspace]
    #[arg(short, long, value_name = "DIR")]
    workdir: Option<String>,
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
}

impl From<ShellArgs> for ExecArgs {
    fn from(ShellArgs { env, workdir, issue }: ShellArgs) -> Self {
        Self { stdin: true, tty: true, env, workdir, timeout: None, issue, command: Vec::new() }
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("must have the form NAME=VALUE".to_owned()),
    }
}

pub(super) async fn run(session: &mut CliSession<'_>, args: ExecArgs) -> anyhow::Result<ExitCode> {
    if args.tty {
        return attach::run(session, args).await;
    }
    let sandbox = args.issue.sandbox(&session.client).await?;
    let (issue, mut unresolved) = (args.issue.clone(), Unresolved::default());
    let exited = if args.stdin {
        piped::run(&session.client, &sandbox.id, args, &mut unresolved).await?
    } else {
        let mut body = command_of(args);
        body.insert("encoding".into(), json!("base64"));
        let call = ApiRequest::post(&["sandboxes", &sandbox.id, "exec"]).json(Value::Object(body));
        follow(&mut session.client.stream(call, None).await?, &mut unresolved).await?
    };
    if let Some(hint) = unresolved.hint(&sandbox, &issue).filter(|_| exited.exit_code != 0) {
        eprintln!("{hint}");
    }
    if exited.timed_out {
        eprintln!("note: the command was killed because it reached its timeout");
    }
    Ok(ExitCode::from(exit_code(exited.exit_code)))
}

/// The command as the API takes it.
fn command_of(args: ExecArgs) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("command".into(), json!(args.command));
    if let Some(workdir) = args.workdir {
        body.insert("cwd".into(), json!(workdir));
    }
    if !args.env.is_empty() {
        let env = args.env.into_iter().map(|(name, value)| (name, Value::String(value)));
        body.insert("env".into(), Value::Object(env.collect()));
    }
    if let Some(seconds) = args.timeout {
        body.insert("timeoutSeconds".into(), json!(seconds));
    }
    body
}

/// Copies the command's output until it ends.
async fn follow(events: &mut EventStream, unresolved: &mut Unresolved) -> anyhow::Result<ExecExit> {
    while let Some(event) = events.next().await? {
        match event.name.as_str() {
            "stdout" => unresolved.see(&write(io::stdout().lock(), &event)?),
            "stderr" => unresolved.see(&write(io::stderr().lock(), &event)?),
            "exit" => return Ok(wire::read_event(&event.data)?),
            "error" => {
                let broken: BrokenOff = wire::read_event(&event.data)?;
                return Err(ended(&broken.message).into());
            }
            // Events of later versions.
            _ => {}
        }
    }
    Err(ended("the server ended the connection before the command ended").into())
}

/// Writes a piece of output and returns it.
fn write(mut to: impl Write, event: &SseEvent) -> anyhow::Result<Vec<u8>> {
    let output: OutputChunk = wire::read_event_exact(&event.data)?;
    let bytes = match output.encoding.as_str() {
        "base64" => BASE64
            .decode(&output.data)
            .map_err(|_| ended("the server sent output that is not base64"))?,
        _ => output.data.into_bytes(),
    };
    to.write_all(&bytes)?;
    to.flush()?;
    Ok(bytes)
}

/// The error of a socket as it came: those before the start have codes of their own.
fn broken_off(code: String, message: String) -> CliFailure {
    let is_start = |known: &&Code| known.as_str() == code;
    match [Code::CommandNotFound, Code::CannotStart].iter().find(is_start) {
        Some(known) => {
            let status = known.status().as_u16();
            CliFailure::Api { status, code, message, hint: None }
        }
        None => ended(&message),
    }
}

fn ended(message: &str) -> CliFailure {
    CliFailure::Failed {
        message: message.to_owned(),
        hint: "run issuebox get ISSUE to see whether the sandbox still runs".to_owned(),
    }
}

/// A process can only end with 0 to 255; anything else is a failure.
fn exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(1)
}
