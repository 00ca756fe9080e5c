//! `issuebox ensure`: creates an issue's sandbox, or shows the one it has.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::types::{IssueId, SandboxMeta, inert};

use super::CliSession;
use super::act::{WaitArgs, reached};
use super::client::ApiRequest;
use super::failure::CliFailure;
use super::hints::HintSubject;
use super::output::{OutputMode, Shape};
use super::progress::Spinner;
use super::table;
use super::target::IssueArg;
use super::wire::{self, ApiSandbox, EnsureResult};

#[derive(Debug, Args)]
pub(super) struct EnsureArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// GitHub's id of the issue owner/repo#number, if the server has not seen it and cannot ask GitHub:
    /// the field `id` of https://api.github.com/repos/OWNER/REPO/issues/NUMBER
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    issue_id: Option<IssueId>,
    /// Template for a new sandbox
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Provider for a new sandbox, made from the default template of that provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Your name for who works in the sandbox; kept with it and shown
    #[arg(long, value_name = "TEXT")]
    agent_id: Option<String>,
    /// Something of your own to note with the sandbox; kept with it and shown. At most 16
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_meta)]
    meta: Vec<(String, String)>,
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

fn parse_meta(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let entry = (name.to_owned(), value.to_owned());
    SandboxMeta::new([entry.clone()].into()).map(|_| entry).map_err(|wrong| format!("it {wrong}"))
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
        (IssueArg::Numbered(repository, number), _) => {
            body.insert("repository".into(), json!(repository.as_str()));
            body.insert("issueNumber".into(), json!(number.0));
            if let Some(id) = &args.issue_id {
                body.insert("issueId".into(), json!(id.as_str()));
            }
        }
        (IssueArg::Word(_), _) if args.issue_id.is_some() => {
            return Err(CliFailure::Usage {
                message: format!("{} is not of the form owner/repo#number", args.issue),
                hint: "--issue-id goes with a repository and a number; an issue id alone is ISSUE"
                    .to_owned(),
            }
            .into());
        }
        (IssueArg::Word(word), Some(_)) if uuid::Uuid::parse_str(word).is_ok() => {
            let known = args.issue.find(&session.client).await?;
            let id = known.map_or_else(|| word.clone(), |sandbox| sandbox.issue_id);
            body.insert("issueId".into(), json!(id));
        }
        (IssueArg::Word(_), Some(id)) => {
            body.insert("issueId".into(), json!(id.as_str()));
        }
        (IssueArg::Word(word), None) => {
            // The server explains what is wrong with it.
            body.insert("issueId".into(), json!(word));
        }
    }
    if let Some(template) = &args.template {
        body.insert("template".into(), json!(template));
    }
    if let Some(provider) = &args.provider {
        body.insert("provider".into(), json!(provider));
    }
    if let Some(agent_id) = &args.agent_id {
        body.insert("agentId".into(), json!(agent_id));
    }
    if !args.meta.is_empty() {
        let entries: BTreeMap<&str, &str> =
            args.meta.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        body.insert("meta".into(), json!(entries));
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
