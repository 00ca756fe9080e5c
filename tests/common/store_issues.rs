//! Issues to store in tests: plain ones to build on, and arbitrary ones for properties. Their
//! strategies are boxed, since nested by value they overflow a test thread's stack.

use std::time::Duration;

use crate::store_templates::any_plan;
use issuebox::conversation::{
    AgentSession, Conversation, IssueWords, MessageOrigin, Run, RunQuestions, RunWait,
};
use issuebox::issue::acts::Acts;
use issuebox::issue::state::Goal;
use issuebox::issue::{
    Dated, Facts, Healing, Issue, IssueState, PendingStart, Record, Step, StoppedBy, Verb,
};
use issuebox::store::{DeliveryRow, DeliveryState, Write};
use issuebox::types::{
    AccountName, AgentName, AgentQuestion, Alias, AnswerOption, Attempt, DeliveryId, ExternalId,
    Failure, FailureCode, Generation, HomeId, IssueId, IssueNumber, MessageId, Mode, Network,
    ObjectName, OnLimit, Phase, ProviderName, ProviderStep, QuestionAnswer, Repository, Resources,
    RunId, RunState, SandboxId, SandboxMeta, SessionId, Template, TemplateName, TemplateVersion,
    TimelineEntry, Timestamp,
};
use proptest::option::of;
use proptest::prelude::*;
use uuid::Uuid;

/// The repository of the plain issues.
pub const REPOSITORY: &str = "Octo/Hello";
/// When the plain issues were made; each home one millisecond later than the one before.
pub const BEGINNING_MS: i64 = 1_770_000_000_000;

pub fn at(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(BEGINNING_MS + ms)
}

pub fn template() -> Template {
    Template {
        name: TemplateName::trusted("default"),
        provider: ProviderName::trusted("simulated"),
        mode: Mode::Strong,
        resources: Resources { cpu: 1.0, memory_mb: 1024, processes: 256, disk_mb: 2048 },
        network: Network::None,
        ports: Vec::new(),
        on_limit: OnLimit::Kill,
        workload: issuebox::types::Workload::default().into(),
    }
}

pub fn record(home: HomeId, generation: u32) -> Record {
    static VERSION: std::sync::OnceLock<TemplateVersion> = std::sync::OnceLock::new();
    let name = format!("claude-issue-{home}");
    Record {
        id: SandboxId::trusted(format!("sandbox-{home}-{generation}")),
        object_name: ObjectName::trusted(name.as_str()),
        name,
        generation: Generation(generation),
        template_version: *VERSION.get_or_init(|| template().version()),
        template: template(),
        agent_id: None,
        meta: SandboxMeta::default(),
        mode: Mode::Strong,
        created_at: at(home.0),
        phase_since: at(home.0),
        last_activity_at: at(home.0),
        reason: "the trigger label was put on".into(),
        attempt: Attempt(1),
        may_land_until: None,
        stop_may_land_until: None,
        deadline: None,
        made_at_ns: None,
        healing: None,
        left_nothing: false,
        needs_cold_start: false,
        owes_farewell: false,
    }
}

/// A home's first state: a sandbox that the provider is being asked to make.
pub fn creating(account: &AccountName, home: HomeId) -> Issue {
    let mut issue = Issue::new(home, account.clone(), issue_id(home));
    (issue.version, issue.generation) = (1, Generation(1));
    issue.facts.repository = Some(Repository::trusted(REPOSITORY));
    issue.facts.number = Some(IssueNumber(home.0.unsigned_abs()));
    issue.facts.title = Some(Dated { value: format!("Title of {home}"), as_of: at(0) });
    issue.state = IssueState::Creating {
        record: record(home, 1),
        goal: Goal::Running,
        step: Step::Asked { verb: Verb::Create, until: at(home.0 + 120_000), tries_left: 2 },
        giving_up: None,
    };
    issue
}

/// The same home one version later, up.
pub fn running(before: &Issue) -> Issue {
    let record = before.state.record().expect("a sandbox").clone();
    let external_id = ExternalId::trusted(format!("object-of-{}", before.home));
    next(before, IssueState::Running { record, external_id })
}

/// The same home one version later, in another state.
pub fn next(before: &Issue, state: IssueState) -> Issue {
    Issue { version: before.version + 1, state, ..before.clone() }
}

pub fn issue_id(home: HomeId) -> IssueId {
    IssueId::trusted(format!("{}", 444_000_000 + home.0))
}

pub fn numbered(home: HomeId) -> Alias {
    Alias::Numbered(Repository::trusted(REPOSITORY), IssueNumber(home.0.unsigned_abs()))
}

pub fn guid(n: i64) -> DeliveryId {
    DeliveryId::trusted(format!("72d3162e-cc78-11e3-81ab-{n:012x}"))
}

pub fn delivery(n: i64, home: Option<HomeId>) -> DeliveryRow {
    DeliveryRow {
        account: AccountName::default_account(),
        id: guid(n),
        received_at: at(n),
        recovered: false,
        event: "issues".into(),
        action: "labeled".into(),
        home,
        applied: home.is_some(),
        reason: "the trigger label was put on".into(),
        state: DeliveryState::Done,
    }
}

pub fn entry(issue: &Issue, from: Option<Phase>) -> TimelineEntry {
    TimelineEntry {
        at: at(issue.home.0),
        generation: issue.generation,
        from,
        to: issue.state.phase(),
        reason: format!("step {}", issue.version),
        cause: "delivery 72d3162e-cc78-11e3-81ab-4c9367dc0958".into(),
    }
}

/// A write of nothing but this state.
pub fn only(issue: Issue) -> Write {
    Write { issue: Some(issue), ..Write::default() }
}

/// What a first delivery leads to: a new home with both names, its delivery and a timeline row.
pub fn first(account: &AccountName, home: HomeId) -> Write {
    let issue = creating(account, home);
    Write {
        aliases: vec![Alias::Issue(issue_id(home)), numbered(home)],
        timeline: vec![entry(&issue, None)],
        delivery: Some(delivery(home.0, Some(home))),
        ..only(issue)
    }
}

/// A write of nothing but a delivery.
pub fn only_delivery(delivery: DeliveryRow) -> Write {
    Write { delivery: Some(delivery), ..Write::default() }
}

fn time() -> impl Strategy<Value = Timestamp> {
    any::<i64>().prop_map(Timestamp::from_unix_ms)
}

/// Text of any kind: quotes, newlines, escapes, other scripts.
pub fn text() -> BoxedStrategy<String> {
    prop_oneof![any::<String>(), Just("it's \"quoted\"\n\t\\ \u{1b}[31m % _ \u{1F600}".into())]
        .boxed()
}

pub fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(all)
}

fn known<T: std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<Dated<T>>> {
    of((value, time()).prop_map(|(value, as_of)| Dated { value, as_of }))
}

/// Acts of each kind or not, at different times.
fn any_acts() -> impl Strategy<Value = Acts> {
    (proptest::array::uniform10(of(time()))).prop_map(|times| {
        let [first_asked, asked, reopened, started, stopped, taken_away, closed, deleted, ..] =
            times;
        let [.., shown_open, shown_closed] = times;
        Acts {
            first_asked,
            asked,
            reopened,
            started,
            stopped,
            taken_away,
            closed,
            deleted,
            shown_open,
            shown_closed,
        }
    })
}

fn any_facts() -> BoxedStrategy<Facts> {
    (
        "[A-Za-z0-9][A-Za-z0-9._]{0,20}",
        of("[A-Za-z0-9]{1,9}/[A-Za-z0-9._-]{1,9}"),
        of(any::<u64>()),
        of(any::<u64>()),
        known(text()),
        of(text()),
        known(any::<bool>()),
        known(any::<bool>()),
        any::<bool>(),
        (of(time()), proptest::collection::vec(any::<u64>(), 0..3), any_acts()),
    )
        .prop_map(
            |(
                id,
                repository,
                repository_id,
                number,
                title,
                url,
                open,
                labelled,
                deleted,
                (by, counted_comments, acts),
            )| {
                Facts {
                    issue_id: IssueId::trusted(id),
                    repository: repository.map(Repository::trusted),
                    repository_id,
                    installation_id: repository_id.map(u64::reverse_bits),
                    number: number.map(IssueNumber),
                    placed_as_of: by.map(|by| by.after(Duration::from_secs(1))),
                    renamed_as_of: by.map(|by| by.after(Duration::from_secs(2))),
                    title,
                    url,
                    open,
                    labelled: labelled.clone(),
                    // One more of the same kind, so that the two cannot be mixed up.
                    assigned: flipped(labelled),
                    deleted,
                    acts,
                    left_repositories: counted_comments.iter().map(|id| id / 2).collect(),
                    counted_comments,
                }
            },
        )
        .boxed()
}

fn any_record() -> BoxedStrategy<Record> {
    (
        (any::<u128>(), text(), text(), any::<u32>()),
        any_plan(),
        one_of(Mode::ALL),
        (time(), time(), time(), of(time()), of(time()), of(any::<i64>())),
        text(),
        any::<u32>(),
    )
        .prop_map(|((id, name, object, generation), plan, mode, times, reason, attempt)| Record {
            id: SandboxId::trusted(format!("{id:032x}")),
            name,
            object_name: ObjectName::trusted(object),
            generation: Generation(generation),
            template_version: plan.template.version(),
            template: plan.template,
            agent_id: plan.agent_id,
            meta: plan.meta,
            mode,
            created_at: times.0,
            phase_since: times.1,
            last_activity_at: times.2,
            reason,
            attempt: Attempt(attempt),
            may_land_until: times.3,
            stop_may_land_until: times.4.map(|at| at.after(Duration::from_secs(3))),
            deadline: times.4,
            made_at_ns: times.5,
            left_nothing: attempt % 2 == 1,
            needs_cold_start: attempt % 3 == 1,
            owes_farewell: attempt % 5 == 1,
            healing: times.3.map(|due| Healing { since: times.1, tries: attempt, due }),
        })
        .boxed()
}

fn any_external_id() -> impl Strategy<Value = ExternalId> {
    text().prop_map(ExternalId::trusted)
}

fn any_verb() -> BoxedStrategy<Verb> {
    prop_oneof![
        Just(Verb::Look),
        Just(Verb::Create),
        Just(Verb::Start),
        Just(Verb::Stop),
        any_external_id().prop_map(|external_id| Verb::ColdStart { external_id }),
        (any_external_id(), text()).prop_map(|(external_id, expected)| Verb::Delete {
            external_id,
            expected: SandboxId::trusted(expected)
        }),
    ]
    .boxed()
}

fn any_step() -> BoxedStrategy<Step> {
    (any::<bool>(), any_verb(), time(), any::<u32>())
        .prop_map(|(asked, verb, time, tries_left)| {
            if asked {
                Step::Asked { verb, until: time, tries_left }
            } else {
                Step::Waiting { verb, due: time, tries_left }
            }
        })
        .boxed()
}

fn any_by() -> impl Strategy<Value = StoppedBy> {
    one_of(&[
        StoppedBy::Person,
        StoppedBy::Issue,
        StoppedBy::Restart,
        StoppedBy::Provider,
        StoppedBy::Idle,
    ])
}

fn any_goal() -> impl Strategy<Value = Goal> {
    prop_oneof![Just(Goal::Running), any_by().prop_map(Goal::Stopped)]
}

fn any_failure() -> BoxedStrategy<Failure> {
    (one_of(FailureCode::ALL), one_of(ProviderStep::ALL), text(), any::<bool>())
        .prop_map(|(code, step, message, retryable)| Failure { code, step, message, retryable })
        .boxed()
}

/// Every variant of the state, with anything in it.
pub fn any_state() -> BoxedStrategy<IssueState> {
    prop_oneof![
        Just(IssueState::Absent),
        (any_record(), any_goal(), any_step(), of(any_failure())).prop_map(
            |(record, goal, step, giving_up)| IssueState::Creating {
                record,
                goal,
                step,
                giving_up
            }
        ),
        (any_record(), any_external_id())
            .prop_map(|(record, external_id)| IssueState::Running { record, external_id }),
        (any_record(), any_external_id(), any_by(), any_goal(), any_step()).prop_map(
            |(record, external_id, by, goal, step)| IssueState::Stopping {
                record,
                external_id,
                by,
                goal,
                step
            }
        ),
        (any_record(), any_external_id(), any_by())
            .prop_map(|(record, external_id, by)| IssueState::Stopped { record, external_id, by }),
        (any_record(), any_external_id(), any_goal(), any_step()).prop_map(
            |(record, external_id, goal, step)| IssueState::Starting {
                record,
                external_id,
                goal,
                step
            }
        ),
        (any_record(), of(any_external_id()), any_goal(), any_failure()).prop_map(
            |(record, external_id, goal, failure)| IssueState::Failed {
                record,
                external_id,
                goal,
                failure
            }
        ),
        (any_record(), of(any_external_id()), any_step(), of(any_failure()), of(any_plan()))
            .prop_map(|(record, external_id, step, failure, next)| IssueState::Deleting {
                record,
                external_id,
                step,
                failure,
                next
            }),
    ]
    .boxed()
}

fn any_questions() -> impl Strategy<Value = RunQuestions> {
    let option =
        || (text(), text(), text()).prop_map(|(id, name, kind)| AnswerOption { id, name, kind });
    let question = (text(), text(), proptest::collection::vec(option(), 0..3))
        .prop_map(|(id, text, options)| AgentQuestion { id, text, options });
    let answer = (text(), option(), text(), time())
        .prop_map(|(question, option, by, at)| QuestionAnswer { question, option, by, at });
    (of(question), proptest::collection::vec(answer, 0..3))
        .prop_map(|(open, answered)| RunQuestions { open, answered })
}

fn any_run() -> impl Strategy<Value = Run> {
    let words = (text(), text(), text(), of(text()));
    let state = proptest::sample::select(RunState::ALL.to_vec());
    let waits = proptest::sample::select(RunWait::ALL.to_vec());
    let counts = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    let times = (time(), time(), of(time()), of(time()), of(time()), time());
    (any::<u128>(), words, state, waits, counts, times, any_questions()).prop_map(
        |(id, (agent, reason, summary, sandbox), state, waits, counts, times, questions)| Run {
            id: RunId(Uuid::from_u128(id)),
            agent: AgentName::trusted(agent),
            messages: counts.0,
            state,
            reason,
            summary,
            waits,
            since: times.0,
            created_at: times.1,
            said_at: times.5,
            started_at: times.2,
            attempt: counts.1,
            sandbox: sandbox.map(SandboxId::trusted),
            interruptions: counts.2,
            failures: counts.3,
            failing_since: times.3,
            retry_at: times.4,
            questions,
        },
    )
}

fn any_conversation() -> impl Strategy<Value = Conversation> {
    let session = (any::<u128>(), text()).prop_map(|(id, agent)| AgentSession {
        id: SessionId(Uuid::from_u128(id)),
        agent: AgentName::trusted(agent),
    });
    let words = (time(), any::<u64>()).prop_map(|(as_of, digest)| IssueWords { as_of, digest });
    let heard = prop_oneof![
        any::<u64>().prop_map(MessageOrigin::Comment),
        any::<u64>().prop_map(MessageOrigin::Review),
        any::<u64>().prop_map(MessageOrigin::Check),
    ];
    let follow_ups =
        (proptest::collection::vec(heard, 0..3), proptest::collection::vec(text(), 0..3));
    let id = any::<u128>().prop_map(Uuid::from_u128);
    let tried = (id.clone().prop_map(MessageId), id.prop_map(RunId));
    let follow_ups = (follow_ups, proptest::collection::vec(tried, 0..3));
    (of(session), of(any_run()), of(any_run()), of(words), follow_ups).prop_map(
        |(session, run, next, issue_words, ((heard, failed_commits), tried))| Conversation {
            session,
            run,
            next,
            issue_words,
            heard,
            failed_commits,
            tried,
        },
    )
}

/// A home in its first version, with anything in it. The home's number is for the test to give.
pub fn any_issue() -> BoxedStrategy<Issue> {
    let pending_start = (time(), text(), of(any_plan()))
        .prop_map(|(since, why, plan)| PendingStart { since, why, plan });
    let times = (of(time()), of(time()), of(time()), of(any::<i64>().prop_map(HomeId)));
    let conversation = of(any_conversation().prop_map(Box::new));
    let states = (conversation, any_state());
    ("[a-z]{1,3}", any_facts(), any::<u32>(), of(pending_start), times, states)
        .prop_map(|(account, facts, generation, pending_start, times, states)| Issue {
            home: HomeId(0),
            account: AccountName::trusted(account),
            version: 1,
            facts,
            generation: Generation(generation),
            pending_start,
            delete_due: times.0,
            may_land_until: times.1,
            life_due: times.2,
            merged_into: times.3,
            conversation: states.0,
            state: states.1,
        })
        .boxed()
}

fn flipped(known: Option<Dated<bool>>) -> Option<Dated<bool>> {
    known.map(|known| Dated { value: !known.value, ..known })
}
