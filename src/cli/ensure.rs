//! `issuebox ensure`: creates an issue's sandbox, or shows the one it has.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::types::{IssueId, inert};

use super::CliSession;
use super::act::{WaitArgs, reached};
use super::client::ApiRequest;
use super::failure::CliFailure;
use super::hints::HintSubject;
use super::output::{OutputMode, Shape};
use super::progress::Spinner;
use super::table;
use super::target::IssueRef;
use super::wire::{self, ApiSandbox, EnsureResult};

#[derive(Debug, Args)]
pub(super) struct EnsureArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueRef::parse)]
    issue: IssueRef,
    /// GitHub's id of the issue owner/repo#number, if the server has not seen it and cannot ask GitHub:
    /// the field `id` of https://api.github.com/repos/OWNER/REPO/issues/NUMBER
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    issue_id: Option<IssueId>,
    /// Template for a new sandbox
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// When a create is recorded: before the provider is called (strong), or concurrently (fast)
    #[arg(long, value_name = "MODE", value_parser = ["strong", "fast"])]
    mode: Option<String>,
    /// Retry the sandbox if it has failed
    #[arg(long)]
    retry: bool,
    /// The issue's title, if the server does not know it
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    shape: Shape,
}

fn parse_id(text: &str) -> Result<IssueId, String> {
    IssueId::parse(text).map_err(|wrong| wrong.to_string())
}

pub(super) async fn run(
    session: &mut CliSession<'_>,
    args: EnsureArgs,
) -> anyhow::Result<ExitCode> {
    session.client.about(HintSubject::issue(&args.issue, None));
    let body = body_of(session, &args).await?;
    let wait = args.waiting.seconds();
    let answer = {
        let what = format!("waiting for {} to be running", args.issue);
        let _spinner = Spinner::start(&what, wait.is_some());
        session.client.call(ApiRequest::post(&["sandboxes"]).json(body).wait(wait)).await?
    };
    let ensured: EnsureResult = wire::read(&answer.body)?;
    let sandbox: ApiSandbox = wire::read(answer.data())?;
    match args.shape.mode() {
        OutputMode::Data(notation) => session.screen.data(notation, &answer.body)?,
        OutputMode::Ids => session.screen.line(&sandbox.id)?,
        OutputMode::Table(_) => {
            let line = table::line(&session.screen, &sandbox);
            let why = format!("{}: {}", inert(&ensured.outcome), inert(&ensured.reason));
            let why = session.screen.faint(&why);
            session.screen.line(&format!("{line}  {why}"))?;
        }
    }
    if !ensured.mismatch.is_empty() {
        let parts = ensured.mismatch.join(", ");
        eprintln!("note: the sandbox exists with another {}, which is kept", inert(&parts));
    }
    if wait.is_some() || sandbox.phase_word() == "failed" {
        reached(&sandbox, "running", wait.unwrap_or(0))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The request's body. Only the server can map a sandbox's id to its issue.
async fn body_of(session: &CliSession<'_>, args: &EnsureArgs) -> anyhow::Result<Value> {
    let mut body = Map::new();
    match (&args.issue, args.issue.issue_id()) {
        (IssueRef::Numbered(repository, number), _) => {
            body.insert("repository".into(), json!(repository.as_str()));
            body.insert("issueNumber".into(), json!(number.0));
            if let Some(id) = &args.issue_id {
                body.insert("issueId".into(), json!(id.as_str()));
            }
        }
        (IssueRef::Word(_), _) if args.issue_id.is_some() => {
            return Err(CliFailure::Usage {
                message: format!("{} is not of the form owner/repo#number", args.issue),
                hint: "--issue-id goes with a repository and a number; an issue id alone is ISSUE"
                    .to_owned(),
            }
            .into());
        }
        (IssueRef::Word(word), Some(_)) if uuid::Uuid::parse_str(word).is_ok() => {
            let known = args.issue.find(&session.client).await?;
            let id = known.map_or_else(|| word.clone(), |sandbox| sandbox.issue_id);
            body.insert("issueId".into(), json!(id));
        }
        (IssueRef::Word(_), Some(id)) => {
            body.insert("issueId".into(), json!(id.as_str()));
        }
        (IssueRef::Word(word), None) => {
            // The server explains what is wrong with it.
            body.insert("issueId".into(), json!(word));
        }
    }
    if let Some(template) = &args.template {
        body.insert("template".into(), json!(template));
    }
    if let Some(mode) = &args.mode {
        body.insert("mode".into(), json!(mode));
    }
    if args.retry {
        body.insert("retry".into(), json!(true));
    }
    if let Some(title) = &args.title {
        body.insert("issueTitle".into(), json!(title));
    }
    Ok(Value::Object(body))
}
