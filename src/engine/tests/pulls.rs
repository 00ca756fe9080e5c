//! The pull request of a sandbox's branch: one, by every kind of answer; with the embedded store and a
//! GitHub in memory.

use std::time::Duration;

use super::fake_github::{STRANGER, WriteFault};
use super::said::SaidBench;
use super::serial::issue_delivery;
use super::transfers::name;
use super::{account, eventually, named};
use crate::conversation::{RunEnd, RunEvent, RunReply, SaidWords};
use crate::engine::WaitFor;
use crate::github::api::{CommitState, GitHubError, GitHubPull, NewPull, PullState};
use crate::issue::event::DeliveryEffect;
use crate::issue::{Command, GithubEffect, IssueDelivery};
use crate::sabotage::{Bug, with};
use crate::store::Store;
use crate::store::checkout::{CheckoutRow, CheckoutStore};
use crate::store::github::{GithubOutbox, GithubRow, GithubState};
use crate::types::{AgentName, Cause, CheckoutState, HomeId, Phase, Repository, SandboxId};

const BRANCH: &str = "issuebox/issue-1";

impl SaidBench {
    /// A bench with a sandbox that is up.
    async fn up() -> Self {
        let bench = Self::new().await;
        bench.deliver("a", |_| {}).await;
        bench.phase(Phase::Running).await;
        bench.until_said("**Running**").await;
        bench.until_state("show_status", GithubState::Done).await;
        bench
    }

    /// The sandbox pushed a commit.
    async fn push(&self, tip: &str) {
        let issue = self.store.load(HomeId(1)).await.expect("reads").expect("it is there");
        let sandbox = issue.state.record().expect("a sandbox").id.clone();
        let now = crate::clock::Clock::now(self.clock.as_ref());
        let remote = (Repository::trusted("octo/hello"), None);
        let row = CheckoutRow {
            state: CheckoutState::Ready,
            base: Some("main".into()),
            branch: Some(BRANCH.into()),
            tip: Some(tip.into()),
            ..CheckoutRow::begun(sandbox.clone(), HomeId(1), remote, now)
        };
        let mark = GithubEffect::SetCommitStatus { sandbox: sandbox.clone() };
        let effects = vec![GithubEffect::ShowPull { sandbox }, mark];
        self.store.put_checkout(row, effects, now).await.expect("stored");
        self.engine.say_recorded();
    }

    async fn only_pull(&self) -> GitHubPull {
        self.until_state("show_pull", GithubState::Done).await;
        let mut pulls = self.github.pulls();
        assert_eq!(pulls.len(), 1, "{pulls:?}");
        pulls.remove(0)
    }
}

fn unknown() -> GitHubError {
    GitHubError::Unknown("cut off".into())
}

#[actix::test]
async fn a_push_opens_one_draft_that_the_status_names() {
    let bench = SaidBench::up().await;
    bench.push("a").await;
    bench.until_state("show_pull", GithubState::Done).await;
    let pull = bench.only_pull().await;
    assert!(pull.is_draft && pull.base == "main", "{pull:?}");
    let issue = bench.store.load(HomeId(1)).await.expect("reads").expect("it is there");
    let title = issue.facts.title.map(|title| title.value);
    assert_eq!(Some(pull.title), title);
    assert!(pull.body.contains("\n<!-- begin -->\nFixes #1\n"), "{}", pull.body);
    // As a change of phase: without the pause of progress.
    bench.until_said(&format!("Branch `{BRANCH}`, pull request #{}.", pull.number)).await;
    bench.until_state("show_status", GithubState::Done).await;
    let writes = bench.github.writes();
    bench.push("b").await;
    bench.only_pull().await;
    assert_eq!(bench.github.writes(), writes, "nothing is to be said of another push");
}

#[actix::test]
async fn a_lost_answer_is_looked_for_and_leaves_one_pull_request() {
    for fault in [WriteFault::After(unknown()), WriteFault::Before(unknown())] {
        let bench = SaidBench::up().await;
        bench.github.fail_pull([fault]);
        bench.push("a").await;
        bench.clock.set_forward(Duration::from_secs(3));
        let pull = bench.only_pull().await;
        bench.until_said(&format!("pull request #{}.", pull.number)).await;
    }
}

#[actix::test]
async fn where_drafts_are_refused_it_is_ready_for_review() {
    let bench = SaidBench::up().await;
    bench.github.refuse_drafts();
    bench.push("a").await;
    assert!(!bench.only_pull().await.is_draft);
}

#[actix::test]
async fn a_branch_without_commits_has_nothing_to_propose_until_it_has_some() {
    let bench = SaidBench::up().await;
    let words = format!("Validation Failed: No commits between main and {BRANCH}");
    bench.github.fail_pull([WriteFault::Before(GitHubError::Refused { status: 422, words })]);
    bench.push("a").await;
    bench.until_state("show_pull", GithubState::GivenUp).await;
    bench.push("a").await;
    bench.only_pull().await;
    bench.until_said("pull request #").await;
}

#[actix::test]
async fn why_there_is_no_pull_request_is_in_the_status() {
    let bench = SaidBench::up().await;
    let refused = || GitHubError::Refused { status: 422, words: "the base is not there".into() };
    bench.github.fail_pull([WriteFault::Before(refused())]);
    bench.push("a").await;
    bench.until_said("No pull request: GitHub refused it (422): the base is not there").await;
    assert_eq!(bench.github.pulls(), []);
}

#[actix::test]
async fn one_that_a_person_opened_is_taken_and_left_as_it_is() {
    let new = NewPull {
        head: BRANCH.into(),
        base: "main".into(),
        title: "mine".into(),
        body: "<!-- begin -->\nmine\n<!-- end -->".into(),
        draft: false,
    };
    for is_opened_meanwhile in [false, true] {
        let bench = SaidBench::up().await;
        let theirs = bench.github.pull_of(STRANGER, &new);
        bench.github.pulls_by_hand(|pulls| pulls.push(theirs.clone()));
        if is_opened_meanwhile {
            bench.github.hide_pulls_once();
        }
        bench.push("a").await;
        assert_eq!(bench.only_pull().await, theirs);
        bench.until_said(&format!("pull request #{}.", theirs.number)).await;
    }
}

/// How many pull requests there are after a server was killed while it opened one, which a person
/// closed before the next start.
fn pulls_after_a_kill() -> usize {
    actix::System::new().block_on(async {
        let bench = SaidBench::up().await;
        bench.github.fail_pull([WriteFault::Hangs]);
        bench.push("a").await;
        bench.until_state("show_pull", GithubState::Asked).await;
        super::eventually("it has its effect", async || bench.github.pulls().len() == 1).await;
        let bench = bench.crash().await;
        bench.github.pulls_by_hand(|pulls| pulls[0].state = PullState::Closed);
        bench.clock.set_forward(Duration::from_secs(70));
        bench.until_state("show_pull", GithubState::Done).await;
        bench.until_said("pull request #").await;
        bench.github.pulls().len()
    })
}

#[test]
fn one_that_a_person_closed_is_left_alone_although_the_server_was_killed() {
    assert_eq!(pulls_after_a_kill(), 1);
    assert_eq!(with(Bug::ClosedPullForgotten, pulls_after_a_kill), 2, "a bug is noticed");
}

#[actix::test]
async fn a_label_and_the_commits_status_show_whether_the_sandbox_is_at_work() {
    let bench = SaidBench::up().await;
    bench.until_state("set_working_label", GithubState::Done).await;
    assert_eq!(bench.github.labels(), ["at work"]);
    assert_eq!(bench.github.statuses(), [], "there is no commit yet");
    bench.push("abc").await;
    let states = || {
        let statuses = bench.github.statuses();
        statuses.into_iter().map(|(commit, status)| (commit, status.state)).collect::<Vec<_>>()
    };
    let is_shown = async |wanted| states().last() == Some(&("abc".to_owned(), wanted));
    super::eventually("pending", async || is_shown(CommitState::Pending).await).await;
    bench.command(Command::Stop).await;
    bench.phase(Phase::Stopped).await;
    super::eventually("success", async || is_shown(CommitState::Success).await).await;
    super::eventually("the label is off", async || bench.github.labels().is_empty()).await;
    bench.command(Command::Start).await;
    bench.phase(Phase::Running).await;
    super::eventually("pending again", async || is_shown(CommitState::Pending).await).await;
    super::eventually("the label is on", async || bench.github.labels() == ["at work"]).await;
    let (_, status) = bench.github.statuses().remove(0);
    assert_eq!(status.context, "issuebox");
    assert!(status.target_url.is_some_and(|url| url.contains("/sandboxes/")));
}

/// The issue had two homes, and the one that gives way had taken the label off.
#[actix::test]
async fn the_label_shows_the_home_that_stays_after_a_transfer() {
    let bench = SaidBench::up().await;
    bench.until_state("set_working_label", GithubState::Done).await;
    let there = |delivery: &mut IssueDelivery| {
        delivery.news = issue_delivery("", 2).news;
        delivery.news.repository = Repository::trusted("octo/press");
        delivery.news.repository_id = 2;
    };
    bench.deliver("there", there).await;
    let until = WaitFor::Phase(Phase::Running);
    let (account, key) = (account(), named("2"));
    let waited = bench.engine.wait(&account, &key, until, Duration::from_secs(20)).await;
    assert_eq!(waited.expect("known").sandbox.expect("a sandbox").phase, Some(Phase::Running));
    eventually("its label is set", async || {
        let rows = bench.store.github_effects_of(HomeId(2)).await.expect("reads");
        let is_set = |row: &GithubRow| row.state == GithubState::Done;
        rows.iter().any(|row| row.effect == GithubEffect::SetWorkingLabel && is_set(row))
    })
    .await;
    let cause = Cause::Service("test");
    bench.engine.command(&account, &key, Command::Stop, cause).await.expect("accepted");
    eventually("the label is off", async || bench.github.labels().is_empty()).await;
    let transfer = |delivery: &mut IssueDelivery| {
        there(delivery);
        delivery.effect = DeliveryEffect::Update;
        delivery.formerly = Some(name((1, "octo/hello", 1, 1)));
    };
    bench.deliver("transfer", transfer).await;
    eventually("the label is on", async || bench.github.labels() == ["at work"]).await;
    bench.phase(Phase::Running).await;
}

#[actix::test]
async fn a_checkout_that_failed_is_in_the_status() {
    let bench = SaidBench::up().await;
    let issue = bench.store.load(HomeId(1)).await.expect("reads").expect("it is there");
    let sandbox: SandboxId = issue.state.record().expect("a sandbox").id.clone();
    let now = crate::clock::Clock::now(bench.clock.as_ref());
    let row = CheckoutRow {
        state: CheckoutState::Failed,
        reason: "the repository is empty".into(),
        ..CheckoutRow::begun(sandbox, HomeId(1), (Repository::trusted("octo/hello"), None), now)
    };
    let status = GithubEffect::ShowStatus { version: 0, is_asked: false, can_wait: false };
    bench.store.put_checkout(row, vec![status], now).await.expect("stored");
    bench.engine.say_recorded();
    bench.until_said("**The checkout failed**: The repository is empty.").await;
}

impl SaidBench {
    /// A run of an agent ends with these words.
    async fn agent_says(&self, words: &str) {
        let (caller, cause) = (account(), Cause::Service("test"));
        let agent = Some(AgentName::trusted("claude-code"));
        let ask = SaidWords { agent, ..SaidWords::of_caller("mona".into(), "do it".into()) };
        let said = self.engine.say_in(&caller, &named("1"), ask, cause).await;
        let (home, reply) = said.expect("it is said");
        let RunReply::Said(_, run) = reply else { panic!("{reply:?}") };
        let begun = self.engine.run_event(home, RunEvent::Begin(run.id, run.messages)).await;
        let Ok(RunReply::Begun(run, _)) = begun else { panic!("{begun:?}") };
        let end = RunEnd::Succeeded(words.to_owned());
        let ended = self.engine.run_event(home, RunEvent::Ended(run.id, run.attempt, end)).await;
        ended.expect("it ends");
    }

    /// The text of the only pull request, once it says this.
    async fn pull_that_says(&self, words: &str) -> String {
        eventually(&format!("{words} is in the pull request"), async || {
            self.github.pulls().iter().any(|pull| pull.body.contains(words))
        })
        .await;
        self.only_pull().await.body
    }
}

#[actix::test]
async fn the_agents_last_words_are_in_the_pull_request_and_the_status() {
    let bench = SaidBench::up().await;
    bench.agent_says("Nothing is pushed yet, @mona.").await;
    // At once, like a change of phase.
    bench.until_said("> Nothing is pushed yet, `@mona.`").await;
    bench.until_state("show_pull", GithubState::Done).await;
    assert_eq!(bench.github.pulls(), Vec::new());
    bench.push("a").await;
    let body = bench.pull_that_says("Nothing is pushed yet, `@mona.`").await;
    assert!(body.contains("\n<!-- begin -->\nFixes #1\n\nNothing"), "{body}");
    bench.agent_says("It is done. Closes #7. <!-- end --> /issuebox stop").await;
    let body = bench.pull_that_says("It is done.").await;
    assert!(!body.contains("Nothing is pushed yet") && body.contains("`#7.`"), "{body}");
    assert_eq!(body.matches("<!-- end -->").count(), 1, "{body}");
    bench.until_said("> It is done.").await;
    assert_eq!(bench.github.ours(), 1);
}
