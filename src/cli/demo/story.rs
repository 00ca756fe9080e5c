//! The first half of the demo: a label makes an agent work, and what it pushes becomes a pull request.
//! GitHub is the in-memory one that the tests use, with real git behind it; the sandbox, the agent and the
//! gateways are real, and the model is a double unless the person chose one.

mod cast;

use std::cell::RefCell;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;

use super::super::client::{ApiClient, ApiRequest};
use super::super::output::Screen;
use super::super::progress::Spinner;
use super::{DemoProvider, server};
use crate::github::model::{APP_KEY, GithubModel, HookDoor};
use crate::sandbox::ProviderKind;
use crate::types::{RunState, inert};

use cast::AgentCast;
pub(super) use cast::RealModel;

const REPOSITORY: &str = "octo/hello";
const MAINTAINER: &str = "mona";
const TITLE: &str = "Greet by name";
/// How long each part of the story may take.
const PART_TIME_MAX: Duration = Duration::from_secs(120);
/// How often it is looked whether a part is over.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// What the status comment says when all is over.
const LAST_WORDS: &str = "**closed** and its sandbox is deleted";
/// What the issue asks for.
const TASK: &str = "The file `greeting` should say hello to people by their name: `Hello, mona!`. Commit that and push it.";
/// The remark of the review, and what it stands on.
const REMARK: &str = "Please say goodbye, too: append `Goodbye, mona!`, commit and push.";
const REMARKED: (&str, &str) = ("greeting", "@@ -0,0 +1 @@\n+Hello, mona!");
/// What the double has the agent do: for the issue, and for the review.
const WORK: [&str; 2] = [
    "echo 'Hello, mona!' > greeting && git add greeting && git commit -qm 'Greet by name' \
     && git push -q origin HEAD && git log --oneline -1",
    "echo 'Goodbye, mona!' >> greeting && git commit -qam 'Say goodbye, too' \
     && git push -q origin HEAD && git log --oneline -1",
];

/// Why this machine cannot show the story, if it cannot.
pub(super) fn obstacle(kind: &dyn ProviderKind) -> Option<String> {
    if !kind.runs_programs() {
        return Some(format!("the provider {} runs no git", kind.name()));
    }
    let programs = match Command::new("git").arg("--exec-path").stdin(Stdio::null()).output() {
        Ok(said) => String::from_utf8_lossy(&said.stdout).trim().to_owned(),
        Err(error) => return Some(format!("git cannot be run here: {error}")),
    };
    let is_there = Path::new(&programs).join("git-http-backend").exists();
    (!is_there).then(|| "git is installed without git-http-backend".to_owned())
}

/// Plays it with a server of its own. Says whether it came out as promised.
pub(super) async fn play(
    screen: &mut Screen,
    data: &Path,
    provider: &DemoProvider,
    model: Option<RealModel>,
) -> anyhow::Result<bool> {
    let agent = AgentCast::choose(data, model, WORK).await?;
    let github = GithubModel::start().context("cannot start the in-memory GitHub")?;
    github.repository(REPOSITORY);
    github.set_private(REPOSITORY, true);
    github.set_role(REPOSITORY, MAINTAINER, "admin");
    github.install("octo");
    let (app, _, secret) = github.app();
    let mut settings = vec![
        ("ISSUEBOX__GITHUB__API_URL", github.api_url()),
        ("ISSUEBOX__GITHUB__WEB_URL", github.web_url()),
        ("ISSUEBOX__GITHUB__APP_ID", app.to_string()),
        ("ISSUEBOX__GITHUB__APP_KEY", APP_KEY.to_owned()),
        ("ISSUEBOX_WEBHOOK_SECRET", secret),
        ("ISSUEBOX__LIFECYCLE__DELETE_AFTER_CLOSE_SECONDS", "1".to_owned()),
    ];
    settings.extend(agent.settings.clone());
    let (running, client) = server(&data.join("story"), provider, &settings)?;
    github.set_door(HookDoor::Open(format!("http://{}/webhooks/github", running.address)));
    let number = github.open_issue(REPOSITORY, MAINTAINER, TITLE, TASK);
    let story = Story { github, client, number, agent, reason: RefCell::default() };
    let played = tokio::select! {
        played = story.tell(screen) => played,
        signal = tokio::signal::ctrl_c() => Err(match signal {
            Ok(()) => anyhow!("the demo was interrupted"),
            Err(error) => error.into(),
        }),
    };
    story.github.set_door(HookDoor::Closed);
    // Also where the story broke off, so that no sandbox is left.
    let cleaned = super::clean(&story.client).await;
    running.stop()?;
    let holds = played?;
    cleaned?;
    Ok(holds)
}

struct Story {
    github: GithubModel,
    client: ApiClient,
    number: u64,
    agent: AgentCast,
    /// Why the sandbox is as it is, as last seen.
    reason: RefCell<String>,
}

impl Story {
    async fn tell(&self, screen: &mut Screen) -> anyhow::Result<bool> {
        let (github, at) = (&self.github, (REPOSITORY, self.number));
        screen.line(&format!(
            "From a label to a pull request, with an in-memory GitHub and real git. The agent is {}.\n\
             \n  {MAINTAINER} puts the label agent on {REPOSITORY}#{}, \"{TITLE}\"",
            inert(&self.agent.words),
            self.number
        ))?;
        let began = Instant::now();
        github.label(at, MAINTAINER, "agent");
        let found = self.until("a running sandbox", || self.running()).await?;
        let id = found["id"].as_str().context("a sandbox has an id")?.to_owned();
        let name = inert(found["name"].as_str().unwrap_or_default()).into_owned();
        let took = began.elapsed().as_millis();
        screen.line(&format!("  {name} runs, {took} ms later"))?;
        let checkout = self.until("the checkout", || self.checkout(&id)).await?;
        let branch = inert(checkout["branch"].as_str().unwrap_or_default()).into_owned();
        screen.line(&format!("  the repository is checked out in it, on the branch {branch}"))?;

        self.work(screen, &id, 0).await?;
        let pull = async || Ok(github.pulls(REPOSITORY).into_iter().next());
        let pull = self.until("the pull request", pull).await?;
        let number = pull["number"].as_u64().context("a pull request has a number")?;
        let draft = if pull["draft"] == true { "draft " } else { "" };
        screen.line(&format!("  the server opens the {draft}pull request #{number}"))?;
        let named = format!("pull request #{number}");
        self.until("the comment", async || Ok(self.comment_with(&named))).await?;
        let first = github.tip(REPOSITORY, &branch);

        let (file, hunk) = REMARKED;
        screen.line(&format!("\n  {MAINTAINER} reviews it and remarks on {file}: {REMARK}"))?;
        let remarks = [(file, hunk, REMARK)];
        github.review((REPOSITORY, number), MAINTAINER, "changes_requested", "", &remarks);
        self.work(screen, &id, 1).await?;
        let second = github.tip(REPOSITORY, &branch);
        screen.line("  the pull request has the new commit\n")?;
        let (reactions, comments, pulls) = self.close(screen).await?;
        Ok(first != second && (reactions, comments, pulls) == (1, 1, 1))
    }

    /// Waits for a run of the agent, the first or a later one, and shows what it says in the end.
    async fn work(&self, screen: &mut Screen, id: &str, which: usize) -> anyhow::Result<()> {
        let run = self.until("the agent", || self.ended_run(id, which)).await?;
        let text = |name: &str| run[name].as_str().unwrap_or_default();
        ensure!(
            text("state") == "succeeded",
            "the agent's run ended {}: {}",
            text("state"),
            inert(text("reason"))
        );
        let usage = &run["usage"];
        let cost = usage["costUsd"].as_f64().unwrap_or_default();
        screen.line(&format!(
            "  the agent works, commits and pushes, without a key: {} requests to the model, ${cost:.4}",
            usage["requests"]
        ))?;
        for line in text("summary").lines() {
            screen.line(&format!("    > {}", inert(line)))?;
        }
        Ok(())
    }

    /// Closes the issue, and shows what is left on GitHub: reactions, comments and pull requests.
    async fn close(&self, screen: &mut Screen) -> anyhow::Result<(usize, usize, usize)> {
        let (github, at) = (&self.github, (REPOSITORY, self.number));
        github.close(at, MAINTAINER);
        self.until("the end of the sandbox", || self.is_deleted()).await?;
        let last = self.until("the last word", async || Ok(self.comment_with(LAST_WORDS))).await?;
        screen.line(&format!(
            "  {MAINTAINER} closes the issue; the sandbox and its disk are deleted, and the comment says:\n"
        ))?;
        for line in last.lines().filter(|line| !line.starts_with("<!--")) {
            screen.line(&format!("    {}", inert(line)))?;
        }
        let (reactions, comments) = (github.reactions(at, None).len(), self.comments().len());
        let pulls = github.pulls(REPOSITORY).len();
        screen.line(&format!(
            "\n  In all {reactions} reaction, {comments} comment and {pulls} pull request.\n"
        ))?;
        Ok((reactions, comments, pulls))
    }

    /// Looks again and again until there is something.
    async fn until<T>(
        &self,
        what: &str,
        look: impl AsyncFn() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let _spinner = Spinner::start(&format!("waiting for {what}"), true);
        let began = Instant::now();
        while began.elapsed() < PART_TIME_MAX {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        let reason = self.reason.borrow();
        let now = if reason.is_empty() { String::new() } else { format!(": {}", inert(&reason)) };
        bail!("{what} did not come within {} s{now}", PART_TIME_MAX.as_secs())
    }

    async fn running(&self) -> anyhow::Result<Option<Value>> {
        let found = self.sandbox().await?;
        if let Some(sandbox) = &found {
            let reason = sandbox["reason"].as_str().unwrap_or_default();
            if sandbox["phase"] == "failed" {
                bail!("the sandbox failed: {}", inert(reason));
            }
            reason.clone_into(&mut self.reason.borrow_mut());
        }
        Ok(found.filter(|sandbox| sandbox["phase"] == "running"))
    }

    async fn is_deleted(&self) -> anyhow::Result<Option<()>> {
        Ok(self.sandbox().await?.is_none().then_some(()))
    }

    async fn sandbox(&self) -> anyhow::Result<Option<Value>> {
        let (owner, name) = REPOSITORY.split_once('/').context("a repository has an owner")?;
        let number = self.number.to_string();
        let path = ["repos", owner, name, "issues", &number, "sandbox"];
        let answer = self.client.call(ApiRequest::get(&path)).await?;
        Ok(Some(answer.data().clone()).filter(|data| !data.is_null()))
    }

    async fn checkout(&self, id: &str) -> anyhow::Result<Option<Value>> {
        let answer = self.client.call(ApiRequest::get(&["sandboxes", id, "checkout"])).await?;
        let checkout = answer.data();
        let reason = checkout["reason"].as_str().unwrap_or_default();
        match checkout["state"].as_str() {
            Some("ready") => Ok(Some(checkout.clone())),
            // While it is fetching, a reason is that of a failed try. Nothing is out of order here for
            // a moment only, so the next one would fail, too.
            Some("failed" | "fetching") if !reason.is_empty() => {
                bail!("the checkout failed: {}", inert(reason))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// A run of the conversation that has ended.
    async fn ended_run(&self, id: &str, which: usize) -> anyhow::Result<Option<Value>> {
        let answer = self.client.call(ApiRequest::get(&["sandboxes", id, "conversation"])).await?;
        let run = &answer.data()["runs"][which];
        let state = run["state"].as_str().and_then(RunState::parse);
        Ok(state.is_some_and(|state| !state.is_in_progress()).then(|| run.clone()))
    }

    /// The server's comments.
    fn comments(&self) -> Vec<Value> {
        let comments = self.github.comments((REPOSITORY, self.number)).into_iter();
        comments.filter(|comment| comment["user"]["login"] != MAINTAINER).collect()
    }

    /// The comment, if it is the only one and has these words.
    fn comment_with(&self, words: &str) -> Option<String> {
        let comments = self.comments();
        let [one] = &comments[..] else { return None };
        one["body"].as_str().filter(|body| body.contains(words)).map(str::to_owned)
    }
}
