//! `issuebox chat`: says something to the agent of an issue, and shows what it says and does.
//!
//! # Guarantees
//! - A message is sent once: a call without an answer is an error and not repeated.
//! - The events are followed from before the message on. A broken connection goes on at its last event,
//!   so that nothing is missing or shown twice.
//! - The agent's words go to standard output, everything else to standard error. Nothing of it can command
//!   the terminal.

mod follow;
mod input;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::http::error::Code;
use crate::types::{IssueId, IssueNumber, Repository, RunState, inert};

use super::CliSession;
use super::client::{ApiClient, ApiRequest};
use super::failure::CliFailure;
use super::target::IssueArg;
use super::wire;
use follow::Followed;
use view::{ChatEvent, ChatView};

#[derive(Debug, Args)]
pub(super) struct ChatArgs {
    /// Cancel the run in progress, so that the message is answered at once
    #[arg(long)]
    interrupt: bool,
    /// Print the events as JSON, one a line
    #[arg(long)]
    json: bool,
    /// The agent that is to answer [default: the template's]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// GitHub's id of the issue owner/repo#number, if the server has not seen it
    #[arg(long, value_name = "ID", value_parser = IssueId::parse)]
    issue_id: Option<IssueId>,
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// What to say. Without it each line of the terminal is a message; if standard input is no terminal,
    /// all of it is one message
    #[arg(value_name = "TEXT")]
    text: Vec<String>,
}

/// Exit code after Ctrl-C, as a shell gives it: 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;
/// How long after Ctrl-C a second one cancels the run.
const SECOND_PRESS: Duration = Duration::from_secs(2);

/// The issue that is spoken to.
struct ChatIssue {
    id: String,
    numbered: Option<(Repository, IssueNumber)>,
}

impl ChatIssue {
    async fn find(client: &ApiClient, args: &ChatArgs) -> Result<Self, CliFailure> {
        let numbered = match &args.issue {
            IssueArg::Numbered(repository, number) => Some((repository.clone(), *number)),
            IssueArg::Word(_) => None,
        };
        let id = match &args.issue_id {
            Some(_) if numbered.is_none() => {
                return Err(CliFailure::Usage {
                    message: format!("{} is not of the form owner/repo#number", args.issue),
                    hint: "--issue-id goes with a repository and a number".to_owned(),
                });
            }
            Some(id) => id.to_string(),
            None => args.issue.known_issue_id(client).await?,
        };
        Ok(Self { id, numbered })
    }
}

/// What came of Ctrl-C.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupted {
    No,
    /// Pressed once: it leaves at this time, unless it is pressed again.
    Once(Instant),
    /// Pressed twice: it leaves when the run ended.
    Cancelling,
}

/// A conversation as it is led.
struct Chat<'a> {
    client: &'a ApiClient,
    issue: ChatIssue,
    args: &'a ChatArgs,
    view: ChatView,
    /// The runs that answer what was said here and that are not over.
    awaited: Vec<String>,
    /// How the last of them ended without success, and why.
    failed: Option<(RunState, String)>,
    interrupted: Interrupted,
}

pub(super) async fn run(session: &mut CliSession<'_>, args: ChatArgs) -> anyhow::Result<ExitCode> {
    let issue = ChatIssue::find(&session.client, &args).await?;
    let mut messages = input::messages(&args.text, &args.issue)?;
    let mut interrupts = signal(SignalKind::interrupt())?;
    let (sender, mut events) = mpsc::channel(64);
    let following = follow::follow(&session.client, issue.id.clone(), sender);
    tokio::pin!(following);
    let view = ChatView::new(args.json, messages.is_terminal);
    let (awaited, failed, interrupted) = (Vec::new(), None, Interrupted::No);
    let client = &session.client;
    let mut chat = Chat { client, issue, args: &args, view, awaited, failed, interrupted };
    let mut can_send = false;
    loop {
        let leaves_at = match chat.interrupted {
            Interrupted::Once(at) => Some(at),
            Interrupted::No | Interrupted::Cancelling => None,
        };
        tokio::select! {
            biased;
            Some(()) = interrupts.recv() => {
                if !chat.interrupt().await? {
                    return Ok(ExitCode::from(INTERRUPTED));
                }
            }
            () = sleep_until(leaves_at.unwrap_or_else(Instant::now)), if leaves_at.is_some() => {
                return Ok(ExitCode::from(INTERRUPTED));
            }
            failure = &mut following => return Err(failure.into()),
            Some(news) = events.recv() => match news {
                Followed::Ready => can_send = true,
                Followed::Event(data) => chat.take(&mut session.screen, &data)?,
                Followed::Gap => eprintln!("note: some events are missing; the server no longer has them"),
            },
            text = messages.next(), if can_send && messages.has_more() => {
                if let Some(text) = text {
                    chat.say(&text).await?;
                }
            }
        }
        let is_leaving = chat.interrupted == Interrupted::Cancelling;
        if chat.awaited.is_empty() && (is_leaving || !messages.has_more()) {
            return chat.end(&mut session.screen);
        }
    }
}

impl Chat<'_> {
    /// Sends a message.
    async fn say(&mut self, text: &str) -> Result<(), CliFailure> {
        let mut body = json!({ "text": text });
        if self.args.interrupt {
            body["interrupt"] = true.into();
        }
        if let Some(agent) = &self.args.agent {
            body["agentId"] = agent.as_str().into();
        }
        if let Some((repository, number)) = &self.issue.numbered {
            body["repository"] = repository.as_str().into();
            body["issueNumber"] = number.0.into();
        }
        let call = ApiRequest::put(&["issues", &self.issue.id, "messages"]).json(body);
        let answer = self.client.call(call).await?;
        let said = answer.data();
        let message: String = wire::read_exact(&said["message"]["id"])?;
        let run: String = wire::read_exact(&said["run"]["id"])?;
        self.view.said_here(message, &run);
        if !self.awaited.contains(&run) {
            self.awaited.push(run);
        }
        Ok(())
    }

    /// Shows an event, and notes the end of a run that is waited for.
    fn take(&mut self, screen: &mut super::Screen, data: &str) -> anyhow::Result<()> {
        let value: Value = wire::read_event_exact(data)?;
        let event: ChatEvent = wire::read_exact(&value)?;
        self.view.show(screen, &value, &event)?;
        let Some((run, state)) = event.run_state() else { return Ok(()) };
        if !state.is_in_progress() && self.awaited.iter().any(|awaited| awaited == run) {
            self.awaited.retain(|awaited| awaited != run);
            let is_success = state == RunState::Succeeded;
            self.failed = (!is_success).then(|| (state, event.reason().to_owned()));
        }
        Ok(())
    }

    /// Ctrl-C was pressed; whether to go on.
    async fn interrupt(&mut self) -> Result<bool, CliFailure> {
        let Some(run) = self.awaited.first().cloned().or_else(|| self.view.going()) else {
            return Ok(false);
        };
        match self.interrupted {
            Interrupted::No => {
                let seconds = SECOND_PRESS.as_secs();
                eprintln!(
                    "\nleaving in {seconds} s, the run goes on; press Ctrl-C again to cancel it"
                );
                self.interrupted = Interrupted::Once(Instant::now() + SECOND_PRESS);
                Ok(true)
            }
            Interrupted::Once(_) => {
                eprintln!("cancelling the run; press Ctrl-C again to leave at once");
                self.interrupted = Interrupted::Cancelling;
                match self.client.call(ApiRequest::post(&["runs", &run, "cancel"])).await {
                    // It ended meanwhile.
                    Err(failure) if failure.is_code(Code::RunRefused) => Ok(false),
                    Err(failure) => Err(failure),
                    Ok(_) => {
                        if !self.awaited.contains(&run) {
                            self.awaited.push(run);
                        }
                        Ok(true)
                    }
                }
            }
            Interrupted::Cancelling => Ok(false),
        }
    }

    /// Nothing more is said or waited for.
    fn end(mut self, screen: &mut super::Screen) -> anyhow::Result<ExitCode> {
        self.view.end(screen)?;
        if self.interrupted == Interrupted::Cancelling {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let Some((state, reason)) = self.failed else { return Ok(ExitCode::SUCCESS) };
        let why = if reason.is_empty() { String::new() } else { format!(": {}", inert(&reason)) };
        let issue = &self.args.issue;
        let what = match state {
            RunState::OverBudget => "the run ended over budget",
            RunState::Cancelled => "the run was cancelled",
            _ => "the run failed",
        };
        Err(CliFailure::Failed {
            message: format!("{what}{why}"),
            hint: format!(
                "run issuebox retry {issue} to try it again, or issuebox runs {issue} to see all"
            ),
        }
        .into())
    }
}
