//! What is said on issues: once, the newest, and by every kind of answer; with the embedded store and a
//! GitHub in memory.

use std::sync::Arc;
use std::time::Duration;

use actix::Arbiter;

use super::fake_github::{FakeGitHub, STRANGER, WriteFault};
use super::provider::HeldProvider;
use super::serial::issue_delivery;
use super::{SetForward, TrapIds, account, eventually, named, rules, template};
use crate::clock::Clock;
use crate::engine::{Engine, EngineParts, GithubParts, Quotas, Retention, Threads, WaitFor};
use crate::git::LatePublisher;
use crate::github::api::{GitHubError, HeldReason, ReactionTarget};
use crate::github::messages::MessageContext;
use crate::issue::event::{DeliveryEffect, ProviderRules, TriggerKind};
use crate::issue::{Command, GithubRules, IssueDelivery, Rules};
use crate::sabotage::{Bug, with};
use crate::store::Store;
use crate::store::github::{GithubOutbox, GithubRow, GithubState};
use crate::store::sqlite::SqliteStore;
use crate::types::{Cause, HomeId, IssueNumber, Phase, ProviderName, PullRequestMode, Timestamp};

/// A server that may say something, in a test's hands.
pub(super) struct SaidBench {
    pub engine: Engine,
    arbiter: Arbiter,
    pub github: Arc<FakeGitHub>,
    pub clock: Arc<SetForward>,
    pub store: Arc<SqliteStore>,
    provider: Arc<HeldProvider>,
    dir: Arc<tempfile::TempDir>,
}

impl SaidBench {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Arc::new(SqliteStore::open(dir.path()).expect("opens"));
        let clock = Arc::new(SetForward::default());
        let github = Arc::new(FakeGitHub::new(Arc::clone(&clock)));
        Self::on(Arc::new(dir), store, Arc::default(), clock, github).await
    }

    async fn on(
        dir: Arc<tempfile::TempDir>,
        store: Arc<SqliteStore>,
        held: Arc<HeldProvider>,
        clock: Arc<SetForward>,
        github: Arc<FakeGitHub>,
    ) -> Self {
        let arbiter = Arbiter::new();
        let provider = ProviderName::trusted("held");
        let provider_rules = ProviderRules {
            names_enforced: true,
            late_effect_window: Duration::ZERO,
            dies_with_server: false,
        };
        let context = MessageContext {
            instance: store.instance(),
            public_url: Some("https://box.example.org".into()),
            command: "/issuebox".into(),
        };
        let engine = Engine::start(EngineParts {
            github: Some(GithubParts {
                api: Arc::clone(&github) as _,
                outbox: Arc::clone(&store) as _,
                checkouts: Arc::clone(&store) as _,
                publisher: LatePublisher::default(),
                working_label: "at work".into(),
                context: context.into(),
                runs: Arc::clone(&store) as _,
                live: Arc::new(()),
                texts: crate::types::PerRepository::default(),
            }),
            retention: Retention::default(),
            store: Arc::clone(&store) as _,
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TrapIds::default()),
            rules: Rules {
                github: Some(GithubRules {
                    comments: true,
                    reactions: true,
                    pull_request: PullRequestMode::Draft,
                    statuses: true,
                    working_label: true,
                }),
                providers: [(provider.clone(), provider_rules)].into(),
                ..rules()
            },
            templates: [(template().name.clone(), template())].into(),
            providers: [(provider, Arc::clone(&held) as _)].into(),
            creates_in_flight: 2,
            quotas: Quotas::default(),
            publisher: Arc::new(super::NoPublisher),
            spawner: Arc::new(Threads {
                arbiter: arbiter.handle(),
                io: tokio::runtime::Handle::current(),
                calls: tokio::runtime::Handle::current(),
            }),
            reconcile: None,
        })
        .await
        .expect("the engine starts");
        Self { engine, arbiter, github, clock, store, provider: held, dir }
    }

    /// The process ends here and now, and another one begins on what it stored.
    pub async fn crash(self) -> Self {
        self.engine.parts.env.begin_stop();
        self.arbiter.stop();
        Self::on(self.dir, self.store, self.provider, self.clock, self.github).await
    }

    pub async fn deliver(&self, guid: &str, change: impl FnOnce(&mut IssueDelivery)) {
        let mut delivery = issue_delivery(guid, 1);
        change(&mut delivery);
        self.engine.deliver(&account(), delivery).await.expect("durable");
    }

    pub async fn command(&self, command: Command) {
        let cause = Cause::Service("test");
        self.engine.command(&account(), &named("1"), command, cause).await.expect("accepted");
    }

    pub async fn phase(&self, phase: Phase) {
        let until = WaitFor::Phase(phase);
        let waited =
            self.engine.wait(&account(), &named("1"), until, Duration::from_secs(20)).await;
        assert_eq!(waited.expect("known").sandbox.expect("a sandbox").phase, Some(phase));
    }

    /// The only effect of this kind.
    pub async fn row(&self, kind: &str) -> Option<GithubRow> {
        let rows = self.store.github_effects_of(HomeId(1)).await.expect("reads");
        rows.into_iter().find(|row| row.effect.kind().as_str() == kind)
    }

    pub async fn until_state(&self, kind: &str, state: GithubState) {
        eventually(&format!("{kind} is {state:?}"), async || {
            self.row(kind).await.is_some_and(|row| row.state == state)
        })
        .await;
    }

    pub async fn until_said(&self, words: &str) {
        eventually(&format!("{words} is said"), async || {
            self.github.bodies().iter().any(|body| body.contains(words))
        })
        .await;
    }
}

fn unknown() -> GitHubError {
    GitHubError::Unknown("cut off".into())
}

fn on_comment(id: u64, effect: DeliveryEffect) -> impl FnOnce(&mut IssueDelivery) {
    move |delivery| {
        delivery.comment = Some(id);
        delivery.action = "created".into();
        delivery.effect = effect;
    }
}

#[actix::test]
async fn a_label_gets_eyes_and_one_comment_that_is_edited() {
    let bench = SaidBench::new().await;
    bench.deliver("a", |_| {}).await;
    bench.until_said("**Running**").await;
    assert_eq!(bench.github.reactions(), [ReactionTarget::Issue(IssueNumber(1))]);
    bench.github.by_hand(|comments| {
        comments[0].body = format!("{}\nA person's note.", comments[0].body);
    });
    bench.command(Command::Stop).await;
    bench.phase(Phase::Stopped).await;
    bench.until_said("**Stopped**").await;
    let body = bench.github.bodies().remove(0);
    assert!(body.ends_with("A person's note."), "{body}");
    assert!(body.contains("[More on the page](https://box.example.org/sandboxes/"), "{body}");
    bench.command(Command::Delete).await;
    bench.until_said("the sandbox is deleted").await;
    bench.until_state("show_status", GithubState::Done).await;
    assert_eq!(bench.github.ours(), 1, "{:?}", bench.github.bodies());
    assert_eq!(bench.github.reactions().len(), 1);
}

#[actix::test]
async fn a_reaction_with_an_unknown_outcome_is_repeated() {
    let bench = SaidBench::new().await;
    bench.github.fail_reaction(WriteFault::After(unknown()));
    bench.deliver("a", |_| {}).await;
    eventually("it is answered", async || bench.github.reactions().len() == 1).await;
    bench.clock.set_forward(Duration::from_secs(3));
    bench.until_state("react", GithubState::Done).await;
    assert_eq!(bench.github.reactions().len(), 2);
}

#[actix::test]
async fn a_reply_is_written_once_although_its_answer_was_lost() {
    let bench = SaidBench::new().await;
    bench.github.fail([WriteFault::After(unknown())]);
    bench.deliver("a", on_comment(5, DeliveryEffect::Status)).await;
    bench.until_state("reply", GithubState::Look).await;
    let row = bench.row("reply").await.expect("it is there");
    let landed = row.first_begun_at.map(|at| at.after(Duration::from_secs(60)));
    assert!(row.due_at >= landed, "it may land until then");
    bench.clock.set_forward(Duration::from_secs(61));
    bench.until_state("reply", GithubState::Done).await;
    assert_eq!(bench.github.ours(), 1);
    bench.deliver("again", on_comment(5, DeliveryEffect::Status)).await;
    let refused = DeliveryEffect::Command(Command::Start);
    bench.deliver("b", on_comment(6, refused)).await;
    bench.until_said("This was not carried out: The issue has no sandbox.").await;
    assert_eq!(bench.github.ours(), 2);
}

/// How many comments are ours after a server was killed between a creation and its answer.
fn comments_after_a_kill() -> usize {
    actix::System::new().block_on(async {
        let bench = SaidBench::new().await;
        bench.github.fail([WriteFault::Hangs]);
        bench.deliver("a", |_| {}).await;
        bench.phase(Phase::Running).await;
        bench.clock.set_forward(Duration::from_secs(4));
        bench.until_state("show_status", GithubState::Asked).await;
        eventually("it has its effect", async || bench.github.ours() == 1).await;
        let bench = bench.crash().await;
        bench.clock.set_forward(Duration::from_secs(70));
        bench.command(Command::Stop).await;
        bench.phase(Phase::Stopped).await;
        bench.clock.set_forward(Duration::from_secs(4));
        bench.until_state("show_status", GithubState::Done).await;
        bench.until_said("**Stopped**").await;
        bench.github.ours()
    })
}

#[test]
fn one_comment_is_written_although_the_server_was_killed() {
    assert_eq!(comments_after_a_kill(), 1);
    assert_eq!(with(Bug::AskedForgotten, comments_after_a_kill), 2, "a bug is noticed");
}

/// Whether the status is shown by us after a stranger quoted our marker.
fn is_said_beside_a_quote() -> bool {
    actix::System::new().block_on(async {
        let bench = SaidBench::new().await;
        bench.github.fail([WriteFault::Before(unknown())]);
        bench.deliver("a", |_| {}).await;
        bench.phase(Phase::Running).await;
        bench.clock.set_forward(Duration::from_secs(4));
        bench.until_state("show_status", GithubState::Look).await;
        let marker = format!("<!-- issuebox {} 1 -->", bench.store.instance());
        let quote = bench.github.comment_of(STRANGER, &format!("{marker}\nnot ours"));
        bench.github.by_hand(|comments| comments.push(quote));
        bench.clock.set_forward(Duration::from_secs(70));
        eventually("the look is over", async || {
            let over = [GithubState::Done, GithubState::Gone];
            bench.row("show_status").await.is_some_and(|row| over.contains(&row.state))
        })
        .await;
        assert!(bench.github.bodies()[0].ends_with("not ours"), "the quote is left alone");
        bench.github.ours() == 1
    })
}

#[test]
fn a_quoted_marker_is_not_taken_for_ours() {
    assert!(is_said_beside_a_quote());
    assert!(!with(Bug::MarkerAlone, is_said_beside_a_quote), "a bug is noticed");
}

#[actix::test]
async fn a_comment_that_a_person_deleted_is_not_written_again_until_asked_for() {
    let bench = SaidBench::new().await;
    bench.deliver("a", |_| {}).await;
    bench.until_said("**Running**").await;
    bench.until_state("show_status", GithubState::Done).await;
    bench.github.by_hand(Vec::clear);
    bench.command(Command::Stop).await;
    bench.phase(Phase::Stopped).await;
    bench.clock.set_forward(Duration::from_secs(4));
    bench.until_state("show_status", GithubState::Gone).await;
    assert_eq!(bench.github.ours(), 0);
    let trigger = DeliveryEffect::Trigger(TriggerKind::Command);
    let later = |delivery: &mut IssueDelivery| {
        on_comment(9, trigger)(delivery);
        delivery.acted_at = delivery.acted_at.after(Duration::from_secs(86_400 * 900));
        delivery.received_at = delivery.acted_at;
    };
    bench.deliver("again", later).await;
    bench.phase(Phase::Running).await;
    bench.clock.set_forward(Duration::from_secs(4));
    bench.until_said("**Running**").await;
    assert_eq!(bench.github.ours(), 1);
}

#[actix::test]
async fn a_comment_without_its_marks_is_left_alone() {
    let bench = SaidBench::new().await;
    bench.deliver("a", |_| {}).await;
    bench.until_said("**Running**").await;
    bench.until_state("show_status", GithubState::Done).await;
    bench.github.by_hand(|comments| comments[0].body = "mine".into());
    bench.command(Command::Stop).await;
    bench.phase(Phase::Stopped).await;
    bench.clock.set_forward(Duration::from_secs(4));
    bench.until_state("show_status", GithubState::Gone).await;
    assert_eq!(bench.github.bodies(), ["mine"]);
}

/// A bench whose issue was locked when its sandbox had started: what it refused is held.
async fn locked_bench() -> SaidBench {
    let bench = SaidBench::new().await;
    let locked = || {
        let (reason, words) = (HeldReason::Locked, "the issue is locked".into());
        WriteFault::Before(GitHubError::Held { reason, words })
    };
    bench.github.fail([locked()]);
    bench.github.fail_reaction(locked());
    bench.deliver("a", |_| {}).await;
    bench.phase(Phase::Running).await;
    bench.clock.set_forward(Duration::from_secs(4));
    bench.until_state("react", GithubState::Held).await;
    bench.until_state("show_status", GithubState::Held).await;
    bench
}

#[actix::test]
async fn what_a_locked_issue_refuses_is_said_once_it_is_unlocked() {
    let bench = locked_bench().await;
    bench.clock.set_forward(Duration::from_secs(1_800));
    bench.command(Command::Stop).await;
    bench.phase(Phase::Stopped).await;
    assert_eq!(bench.github.writes(), 0, "it is not tried again within the hour");
    let unlocked = |delivery: &mut IssueDelivery| {
        delivery.action = "unlocked".into();
        delivery.effect = DeliveryEffect::Update;
    };
    bench.deliver("b", unlocked).await;
    bench.until_said("**Stopped**").await;
    bench.until_state("react", GithubState::Done).await;
    assert_eq!(bench.github.ours(), 1);
}

/// GitHub can report an unlock while a call that it refuses is still open, or not at all.
#[actix::test]
async fn an_unlock_that_was_missed_is_noticed_within_an_hour() {
    let bench = locked_bench().await;
    bench.clock.set_forward(Duration::from_secs(3_601));
    bench.until_said("**Running**").await;
    bench.until_state("react", GithubState::Done).await;
    assert_eq!(bench.github.ours(), 1);
}

#[actix::test]
async fn many_changes_while_github_is_down_are_one_comment() {
    let bench = SaidBench::new().await;
    bench.github.down(Some(GitHubError::Unreachable("no route".into())));
    bench.deliver("a", |_| {}).await;
    bench.phase(Phase::Running).await;
    for _ in 0..3 {
        bench.command(Command::Stop).await;
        bench.phase(Phase::Stopped).await;
        bench.command(Command::Start).await;
        bench.phase(Phase::Running).await;
    }
    bench.clock.set_forward(Duration::from_secs(3600));
    // An attempt that began with an older status may still be under way.
    for kind in ["show_status", "react"] {
        eventually(&format!("{kind} failed again"), async || {
            let due_at = bench.row(kind).await.and_then(|row| row.due_at);
            due_at.is_some_and(|at| at > bench.clock.now())
        })
        .await;
    }
    bench.github.down(None);
    bench.clock.set_forward(Duration::from_secs(301));
    bench.until_said("**Running**").await;
    bench.until_state("show_status", GithubState::Done).await;
    bench.until_state("react", GithubState::Done).await;
    assert_eq!(bench.github.writes(), 2, "a reaction and a comment");
}

#[actix::test]
async fn each_answer_of_github_leads_to_its_state() {
    let held = |reason| GitHubError::Held { reason, words: "words".into() };
    let until = Timestamp::from_unix_ms(i64::MAX / 2);
    for (error, state, is_due) in [
        (GitHubError::Limited { until }, GithubState::Due, true),
        (GitHubError::Unauthorized("401".into()), GithubState::Due, true),
        (GitHubError::Moved { repository_id: 3, number: None }, GithubState::Due, true),
        (GitHubError::NotFound("404".into()), GithubState::Held, true),
        (held(HeldReason::Suspended), GithubState::Held, true),
        (held(HeldReason::Permission(None)), GithubState::Held, true),
        (held(HeldReason::Uninstalled), GithubState::Held, true),
        (held(HeldReason::Other), GithubState::Held, false),
        (held(HeldReason::Archived), GithubState::GivenUp, false),
        (GitHubError::Refused { status: 422, words: "no".into() }, GithubState::GivenUp, false),
        (GitHubError::Gone("410".into()), GithubState::GivenUp, false),
        (unknown(), GithubState::Look, true),
    ] {
        let bench = SaidBench::new().await;
        bench.github.fail([WriteFault::Before(error.clone())]);
        bench.deliver("a", on_comment(5, DeliveryEffect::Status)).await;
        eventually(&format!("{error:?} is answered"), async || {
            let row = bench.row("reply").await;
            bench.github.faults_left() == 0
                && row.is_some_and(|row| row.state == state && row.reason.is_some())
        })
        .await;
        let row = bench.row("reply").await.expect("it is there");
        assert_eq!(row.due_at.is_some(), is_due, "{error:?}");
        let spends_try = matches!(error, GitHubError::Moved { .. } | GitHubError::Unknown(_));
        assert_eq!(row.tries, u32::from(spends_try), "{error:?}");
    }
}

#[actix::test]
async fn what_fails_for_a_day_is_given_up() {
    let bench = SaidBench::new().await;
    bench.github.down(Some(GitHubError::Unreachable("no route".into())));
    bench.deliver("a", on_comment(5, DeliveryEffect::Status)).await;
    eventually("a try has failed", async || {
        bench.row("reply").await.is_some_and(|row| row.tries > 0)
    })
    .await;
    bench.clock.set_forward(Duration::from_secs(86_401));
    bench.until_state("reply", GithubState::GivenUp).await;
}

#[actix::test]
async fn progress_is_shown_after_a_pause_and_a_phase_at_once() {
    let bench = SaidBench::new().await;
    bench.deliver("a", |_| {}).await;
    bench.until_said("**Running**").await;
    bench.until_state("show_status", GithubState::Done).await;
    let shown = bench.row("show_status").await.and_then(|row| row.shown.at);
    let progress = DeliveryEffect::Trigger(TriggerKind::Command);
    let instructed = |delivery: &mut IssueDelivery| {
        on_comment(9, progress)(delivery);
        delivery.instruction = Some(crate::issue::Instruction {
            source: crate::issue::instruction::InstructionSource::Comment(9),
            author: None,
            sender: None,
            as_of: delivery.acted_at,
            title: None,
            text: "and more".into(),
        });
    };
    bench.deliver("b", instructed).await;
    eventually("it waits", async || {
        let row = bench.row("show_status").await;
        row.is_some_and(|row| {
            row.state == GithubState::Due
                && row.due_at == shown.map(|at| at.after(Duration::from_secs(30)))
        })
    })
    .await;
    assert!(!bench.github.bodies()[0].contains("comment gave the command"));
    bench.clock.set_forward(Duration::from_secs(31));
    bench.until_said("comment gave the command").await;
    assert_eq!(bench.github.ours(), 1);
}

#[actix::test]
async fn what_was_given_up_is_said_when_a_person_retries_it() {
    let bench = SaidBench::new().await;
    bench
        .github
        .fail([WriteFault::Before(GitHubError::Refused { status: 422, words: "no".into() })]);
    bench.deliver("a", on_comment(5, DeliveryEffect::Status)).await;
    bench.until_state("reply", GithubState::GivenUp).await;
    let rows = bench.engine.unfinished_github_effects(10).await.expect("reads");
    let reply = rows.iter().find(|row| row.effect.kind().as_str() == "reply").expect("listed");
    assert_eq!(bench.github.ours(), 0);
    bench.engine.retry_github_effect(reply.id.number).await.expect("durable");
    bench.until_state("reply", GithubState::Done).await;
    assert_eq!(bench.github.ours(), 1);
    // Of what is done nothing is repeated.
    bench.engine.retry_github_effect(reply.id.number).await.expect("durable");
    bench.until_state("reply", GithubState::Done).await;
    assert_eq!(bench.github.ours(), 1);
}

#[actix::test]
async fn a_retry_of_an_unknown_outcome_looks_first() {
    let bench = SaidBench::new().await;
    bench.github.fail([WriteFault::After(unknown())]);
    bench.deliver("a", on_comment(5, DeliveryEffect::Status)).await;
    bench.until_state("reply", GithubState::Look).await;
    let reply = bench.row("reply").await.expect("it is there");
    bench.engine.retry_github_effect(reply.id.number).await.expect("durable");
    bench.clock.set_forward(Duration::from_secs(61));
    bench.until_state("reply", GithubState::Done).await;
    assert_eq!(bench.github.ours(), 1, "{:?}", bench.github.bodies());
}

#[actix::test]
async fn an_edit_with_an_unknown_outcome_is_repeated_when_it_must_have_landed() {
    let bench = SaidBench::new().await;
    bench.deliver("a", |_| {}).await;
    bench.until_said("**Running**").await;
    bench.until_state("show_status", GithubState::Done).await;
    bench.github.fail([WriteFault::Before(unknown())]);
    bench.command(Command::Stop).await;
    bench.phase(Phase::Stopped).await;
    bench.clock.set_forward(Duration::from_secs(4));
    bench.until_state("show_status", GithubState::Look).await;
    let row = bench.row("show_status").await.expect("it is there");
    let landed = row.first_begun_at.expect("it began").after(Duration::from_secs(60));
    assert_eq!(row.due_at, Some(landed), "it may land until then");
    // A person does not hurry it.
    bench.engine.retry_github_effect(row.id.number).await.expect("durable");
    eventually("it was looked at", async || {
        let row = bench.row("show_status").await.expect("it is there");
        row.tries == 0 && row.due_at == Some(landed)
    })
    .await;
    bench.clock.set_forward(Duration::from_secs(61));
    bench.until_said("**Stopped**").await;
    assert_eq!(bench.github.ours(), 1);
}
