//! `issuebox answer`: what the agent of an issue asks, and a person's answer.

use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use crate::types::{RunState, inert};

use super::CliSession;
use super::client::ApiRequest;
use super::failure::CliFailure;
use super::output::{OutputMode, Shape};
use super::target::IssueArg;
use super::wire;

#[derive(Debug, Args)]
pub(super) struct AnswerArgs {
    /// The issue: owner/repo#number, its URL or id, or its sandbox's id or name
    #[arg(value_parser = IssueArg::parse)]
    issue: IssueArg,
    /// The option that is chosen, by its id or name. Without it the question is shown
    #[arg(value_name = "OPTION")]
    option: Option<String>,
    /// The question that is answered [default: the one that waits]
    #[arg(long, value_name = "ID")]
    question: Option<String>,
    #[command(flatten)]
    shape: Shape,
}

/// A run whose agent asks something.
#[derive(Debug, Deserialize)]
struct AskingRun {
    id: String,
    question: Option<AskedQuestion>,
}

#[derive(Debug, Deserialize)]
struct AskedQuestion {
    id: String,
    text: String,
    options: Vec<AskedOption>,
}

#[derive(Debug, Deserialize)]
struct AskedOption {
    id: String,
    name: String,
}

impl AskedQuestion {
    /// The option with this id, or else with this name.
    fn option(&self, word: &str) -> Option<&AskedOption> {
        let by_id = self.options.iter().find(|option| option.id == word);
        by_id.or_else(|| self.options.iter().find(|option| option.name.eq_ignore_ascii_case(word)))
    }

    fn ids(&self) -> String {
        let ids: Vec<_> = self.options.iter().map(|option| inert(&option.id)).collect();
        ids.join(", ")
    }
}

pub(super) async fn answer(
    session: &mut CliSession<'_>,
    args: AnswerArgs,
) -> anyhow::Result<ExitCode> {
    let issue_id = args.issue.known_issue_id(&session.client).await?;
    let call = ApiRequest::get(&["runs"])
        .query("issueId", Some(&issue_id))
        .query("state", Some(RunState::WaitingForPerson.as_str()));
    let found = session.client.call(call).await?;
    let runs: Vec<AskingRun> = wire::read(found.data())?;
    let asking = runs.into_iter().find_map(|run| Some((run.id, run.question?)));
    let Some((run, question)) = asking else {
        return Err(CliFailure::NotFound {
            message: format!("the agent of {} asks nothing", args.issue),
            hint: format!("run issuebox runs {} to see what it does", args.issue),
        }
        .into());
    };
    let Some(word) = &args.option else {
        match args.shape.mode() {
            OutputMode::Data(notation) => {
                session.screen.data(notation, &found.data()[0]["question"])?
            }
            OutputMode::Ids => session.screen.line(&question.id)?,
            OutputMode::Table(_) => {
                session.screen.line(&inert(&question.text))?;
                for AskedOption { id, name } in &question.options {
                    session.screen.line(&format!(
                        "  {}  {}",
                        inert(id),
                        session.screen.faint(&inert(name))
                    ))?;
                }
            }
        }
        return Ok(ExitCode::SUCCESS);
    };
    let Some(option) = question.option(word) else {
        return Err(CliFailure::Usage {
            message: format!("{word:?} is none of the options"),
            hint: format!("one of {}", question.ids()),
        }
        .into());
    };
    let asked = args.question.as_ref().unwrap_or(&question.id);
    let body = json!({ "question": asked, "option": option.id });
    let call = ApiRequest::post(&["runs", &run, "answer"]).json(body);
    let answer = session.client.call(call).await?;
    match args.shape.mode() {
        OutputMode::Data(notation) => session.screen.data(notation, answer.data())?,
        OutputMode::Ids => session.screen.line(&run)?,
        OutputMode::Table(_) => {
            session.screen.line(&format!("answered: {}", inert(&option.name)))?
        }
    }
    Ok(ExitCode::SUCCESS)
}
