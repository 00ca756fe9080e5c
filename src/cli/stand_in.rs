//! `issuebox stand-in-agent`: a small agent for tests and the demo. It takes claude's flags, writes
//! claude's lines, asks a model over HTTP and runs the `Bash` calls of its answers.
//!
//! # Guarantees
//! - It needs nothing but `/bin/sh` and this program.
//! - It ends as claude 2.1.332 does: 0 and a `result` after SIGINT, 143 and none after SIGTERM.
//! - Like claude it does not lock a session. Two runs at once in one session write a line to
//!   `stand-in-overlaps` in the configuration directory.

mod lines;
mod model;
mod session;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use lines::LineWriter;
use model::{Model, ModelAnswer};
use session::SessionLog;

use super::env::EnvVars;

/// A program of this name is the stand-in without a verb: an agent's path is that of one program, which
/// is given nothing but the agent's flags.
const PROGRAM: &str = "issuebox-stand-in-agent";

/// The most bytes of a command's output that the model is given.
const OUTPUT_MAX: u64 = 30_000;

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(super) struct StandInArgs {
    /// The flags of claude with which an agent is launched
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAG")]
    flags: Vec<String>,
}

/// The arguments, with the verb of a program that is called [`PROGRAM`].
pub(super) fn by_name(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let name = args.first().and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == PROGRAM) {
        args.insert(1, "stand-in-agent".into());
    }
    args
}

/// What the flags say.
#[derive(Debug, Default)]
struct Flags {
    new: Option<String>,
    resume: Option<String>,
    model: Option<String>,
    max_turns: Option<u32>,
    system: Option<PathBuf>,
    is_version: bool,
}

impl Flags {
    fn parse(flags: &[String]) -> Result<Self, String> {
        let mut parsed = Self::default();
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            let mut value = || {
                let value = flags.next().cloned();
                value.ok_or_else(|| format!("error: option '{flag}' argument missing"))
            };
            match flag.as_str() {
                "-p" | "--verbose" | "--include-partial-messages" | "--strict-mcp-config" => {}
                "--output-format" | "--permission-mode" => drop(value()?),
                "--settings" => {
                    serde_json::from_str::<Value>(&value()?)
                        .map_err(|_| "Error: Settings file not found".to_owned())?;
                }
                "--session-id" => {
                    let id = value()?;
                    uuid::Uuid::try_parse(&id).map_err(|_| {
                        "Error: Invalid session ID. Must be a valid UUID.".to_owned()
                    })?;
                    parsed.new = Some(id);
                }
                "--resume" => parsed.resume = Some(value()?),
                "--model" => parsed.model = Some(value()?),
                "--max-turns" => parsed.max_turns = value()?.parse().ok(),
                "--append-system-prompt-file" => parsed.system = Some(value()?.into()),
                "--version" => parsed.is_version = true,
                other => return Err(format!("error: unknown option '{other}'")),
            }
        }
        Ok(parsed)
    }
}

/// How a run ended that no signal ended.
struct FinishedRun {
    code: u8,
    result: Value,
}

/// What goes on, for a signal that ends it.
#[derive(Debug, Default)]
enum InProgress {
    #[default]
    Nothing,
    /// An answer streams: its blocks that are whole, and the one that is not.
    Answer(Vec<Value>, Option<Value>),
    /// A command runs: the call's id and the command's process group.
    Tool(String, u32),
}

struct StandIn {
    flags: Flags,
    lines: LineWriter,
    model: Model,
    log: SessionLog,
    doing: InProgress,
    turns: u32,
}

pub(super) fn run(args: &StandInArgs, env: &EnvVars) -> anyhow::Result<ExitCode> {
    let complain = |words: &str| {
        eprintln!("{words}");
        Ok(ExitCode::FAILURE)
    };
    let flags = match Flags::parse(&args.flags) {
        Ok(flags) => flags,
        Err(words) => return complain(&words),
    };
    if flags.is_version {
        println!("{} (issuebox stand-in agent)", env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    }
    if rustix::process::geteuid().is_root() && env.get("IS_SANDBOX").is_none() {
        return complain("permissions cannot be bypassed as root outside of a sandbox");
    }
    let log = match SessionLog::open(&flags, env) {
        Ok(log) => log,
        Err(session::SessionError::Taken(id)) => {
            return complain(&format!("Error: Session ID {id} is already in use."));
        }
        Err(session::SessionError::Missing(id)) => {
            let words = format!("No conversation found with session ID: {id}");
            LineWriter::new(&id).write(&lines::no_session(&words));
            return complain(&words);
        }
        Err(session::SessionError::Io(error)) => return Err(error.into()),
    };
    let prompt = std::io::read_to_string(std::io::stdin())?;
    let lines = LineWriter::new(log.id());
    let model = Model::new(&flags, env, log.id())?;
    let mut stand_in = StandIn { flags, lines, model, log, doing: InProgress::Nothing, turns: 0 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(stand_in.run(&prompt))?;
    runtime.shutdown_background();
    Ok(ExitCode::from(code))
}

impl StandIn {
    async fn run(&mut self, prompt: &str) -> anyhow::Result<u8> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        self.lines.write(&lines::init(&self.model.name));
        let code = tokio::select! {
            biased;
            _ = interrupt.recv() => 0,
            _ = terminate.recv() => 143,
            _ = hangup.recv() => 129,
            ended = self.converse(prompt) => {
                let FinishedRun { code, result } = ended?;
                self.lines.write(&result);
                return Ok(code);
            }
        };
        self.interrupted(code)?;
        Ok(code)
    }

    /// Ends what goes on. After SIGINT the lines say so, and what was streamed is kept.
    fn interrupted(&mut self, code: u8) -> anyhow::Result<()> {
        let is_asked = code == 0;
        match std::mem::take(&mut self.doing) {
            InProgress::Tool(call, group) => {
                kill_group(group);
                let words = if is_asked { "The tool use was rejected" } else { "Exit code 137" };
                let message = tool_results(&[(call, words.to_owned(), true)]);
                self.lines.write(&lines::message("user", &message));
                self.log.add("user", &message["content"])?;
                if is_asked {
                    self.lines.write(&self.lines_result("aborted_tools"));
                }
            }
            InProgress::Answer(mut content, partial) if is_asked => {
                content.retain(|block| block["type"] != "tool_use");
                if let Some(block) = partial {
                    let message = json!({ "role": "assistant", "content": [block] });
                    self.lines.write(&lines::message("assistant", &message));
                    content.push(block);
                }
                if !content.is_empty() {
                    self.log.add("assistant", &json!(content))?;
                }
                self.lines.write(&self.lines_result("aborted_streaming"));
            }
            InProgress::Nothing if is_asked => {
                self.lines.write(&self.lines_result("aborted_streaming"))
            }
            InProgress::Answer(..) | InProgress::Nothing => {}
        }
        Ok(())
    }

    fn lines_result(&self, reason: &str) -> Value {
        lines::result(reason, "", self.turns, None, &self.model.usage)
    }

    async fn converse(&mut self, prompt: &str) -> anyhow::Result<FinishedRun> {
        self.log.add("user", &json!(prompt))?;
        loop {
            if self.flags.max_turns.is_some_and(|max| self.turns >= max) {
                return Ok(FinishedRun { code: 1, result: self.lines_result("max_turns") });
            }
            self.turns += 1;
            self.lines.write(&json!({ "type": "system", "subtype": "status",
                "status": "requesting" }));
            self.doing = InProgress::Answer(Vec::new(), None);
            let answer = self.model.ask(&self.log, &self.lines, &mut self.doing).await;
            let ModelAnswer { content, stop } = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    self.lines.write(&lines::error_message(&error.words));
                    let (turns, usage) = (self.turns, &self.model.usage);
                    let result =
                        lines::result("api_error", &error.words, turns, error.status, usage);
                    return Ok(FinishedRun { code: 1, result });
                }
            };
            self.doing = InProgress::Nothing;
            self.log.add("assistant", &json!(content))?;
            let calls: Vec<&Value> = content.iter().filter(|it| it["type"] == "tool_use").collect();
            if stop != "tool_use" || calls.is_empty() {
                let mut texts = content.iter().filter_map(|block| block["text"].as_str());
                let words = texts.next_back().unwrap_or_default();
                let (turns, usage) = (self.turns, &self.model.usage);
                let result = lines::result("completed", words, turns, None, usage);
                return Ok(FinishedRun { code: 0, result });
            }
            let mut results = Vec::new();
            for call in calls {
                let id = call["id"].as_str().unwrap_or_default().to_owned();
                let (words, is_error) = self.call(&id, call).await;
                let result = (id, words, is_error);
                let message = tool_results(std::slice::from_ref(&result));
                self.lines.write(&lines::message("user", &message));
                results.push(result);
            }
            self.log.add("user", &tool_results(&results)["content"])?;
        }
    }

    /// Runs a tool: its answer, and whether it failed.
    async fn call(&mut self, id: &str, call: &Value) -> (String, bool) {
        let name = call["name"].as_str().unwrap_or_default();
        let Some(command) = call["input"]["command"].as_str().filter(|_| name == "Bash") else {
            return (format!("Error: No such tool available: {name}"), true);
        };
        let child = Command::new("/bin/sh")
            .args(["-c", command])
            .process_group(0)
            // Closed at once; a sandbox need not have /dev/null.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => return (format!("Error: /bin/sh cannot be started: {error}"), true),
        };
        self.doing = InProgress::Tool(id.to_owned(), child.id().unwrap_or_default());
        let (output, code) = finish(&mut child).await;
        self.doing = InProgress::Nothing;
        let output = String::from_utf8_lossy(&output).trim_end().to_owned();
        match code {
            Some(0) if output.is_empty() => ("(Bash completed with no output)".to_owned(), false),
            Some(0) => (output, false),
            code => (format!("Exit code {}\n{output}", code.unwrap_or(137)), true),
        }
    }
}

/// The output of a command and its exit code; `None` if a signal killed it.
async fn finish(child: &mut Child) -> (Vec<u8>, Option<i32>) {
    drop(child.stdin.take());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let status = {
        let read = async { tokio::join!(read(stdout, &mut first), read(stderr, &mut second)) };
        tokio::pin!(read);
        tokio::select! {
            _ = &mut read => child.wait().await,
            // A process that the command leaves behind may hold the output open.
            status = child.wait() => {
                let _ = tokio::time::timeout(Duration::from_millis(200), &mut read).await;
                status
            }
        }
    };
    first.append(&mut second);
    (first, status.ok().and_then(|status| status.code()))
}

/// Reads an output to its end, and keeps its beginning.
async fn read(output: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(mut output) = output else { return };
    // A failed read ends the output, as its end does.
    let _ = (&mut output).take(OUTPUT_MAX).read_to_end(into).await;
    let _ = tokio::io::copy(&mut output, &mut tokio::io::sink()).await;
}

fn tool_results(results: &[(String, String, bool)]) -> Value {
    let results = results.iter().map(|(id, words, is_error)| {
        json!({ "type": "tool_result", "tool_use_id": id, "content": words, "is_error": is_error })
    });
    json!({ "role": "user", "content": results.collect::<Vec<_>>() })
}

fn kill_group(group: u32) {
    let group = i32::try_from(group).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        // One that has ended needs no signal.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}
