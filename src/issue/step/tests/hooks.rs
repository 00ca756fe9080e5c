//! Hooks in the lifecycle: the cold start before *running*, and what comes before a stop and a delete.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{StepBench, unavailable};
use crate::issue::commit::{Commit, Farewell};
use crate::issue::event::{CallError, ColdStartEnd, Command, Done, IssueEvent, NotAsked};
use crate::issue::state::{IssueState, Step, Verb};
use crate::types::{
    Cause, FailureCode, GitWorkload, HookAction, HookStep, Hooks, ObjectState, Phase, ProviderStep,
    RepositoryFile, SandboxId, SyncMoments, Workload,
};

const STEP_TIME: Duration = Duration::from_secs(7_200);

fn bench(set: impl FnOnce(&mut Workload)) -> StepBench {
    let mut bench = StepBench::new(true);
    let mut workload = Workload::default();
    set(&mut workload);
    bench.rules.default_template.workload = workload.into();
    bench.ensure();
    bench
}

fn steps() -> Vec<HookStep> {
    let action = HookAction::Run(vec!["a".into()]);
    vec![HookStep { action, cwd: None, timeout: STEP_TIME, env: BTreeMap::new() }]
}

fn with_cold_start() -> StepBench {
    bench(|workload| workload.hooks.on_cold_start = steps())
}

fn ended(bench: &mut StepBench, end: ColdStartEnd) -> Commit {
    bench.answer(Ok(Done::ColdStarted(end)))
}

fn verb(bench: &StepBench) -> Verb {
    match bench.issue.state.step() {
        Some(Step::Asked { verb, .. } | Step::Waiting { verb, .. }) => verb.clone(),
        None => panic!("nothing is asked: {:?}", bench.issue.state),
    }
}

fn is_cold_start(bench: &StepBench) -> bool {
    matches!(verb(bench), Verb::ColdStart { .. })
}

fn needs_cold_start(bench: &StepBench) -> bool {
    bench.issue.state.record().expect("a sandbox").needs_cold_start
}

#[test]
fn a_sandbox_runs_once_its_cold_start_succeeded() {
    let mut bench = with_cold_start();
    let up = bench.up();
    assert_eq!(bench.issue.state.phase(), Some(Phase::Creating));
    assert_eq!(up.timeline.last().expect("an entry").reason, "it is up; its cold start begins");
    let call = up.call.expect("the cold start is asked");
    assert!(call.deadline >= bench.now.after(STEP_TIME), "each step has its time");
    let deadline = bench.issue.state.deadline().expect("it has one");
    assert!(deadline > call.deadline, "the phase lasts longer than the call");
    let commit = ended(&mut bench, ColdStartEnd::Succeeded);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
    assert!(!needs_cold_start(&bench));
    let reason = &commit.timeline.last().expect("an entry").reason;
    assert_eq!(reason, "it is up; its cold start succeeded");
    let mut plain = bench_without();
    plain.up();
    assert_eq!(plain.issue.state.phase(), Some(Phase::Running), "there is nothing to wait for");
}

fn bench_without() -> StepBench {
    bench(|_| {})
}

#[test]
fn a_failed_cold_start_leaves_nothing_and_a_retry_runs_it_again() {
    let mut bench = with_cold_start();
    bench.up();
    ended(&mut bench, ColdStartEnd::Failed("on_cold_start step 1 of 1 (a)…:\nlast".into()));
    assert_eq!((bench.issue.state.phase(), verb(&bench)), (Some(Phase::Creating), Verb::Look));
    let left = bench.ours(ObjectState::Running);
    bench.answer(Ok(Done::Found(vec![left])));
    assert!(matches!(verb(&bench), Verb::Delete { .. }), "what was created is deleted");
    bench.answer(Err(CallError::Absent));
    bench.answer(Ok(Done::Found(vec![])));
    let failure = bench.issue.state.failure().expect("it failed").clone();
    assert_eq!(bench.issue.state.phase(), Some(Phase::Failed));
    assert_eq!((failure.code, failure.step), (FailureCode::HookFailed, ProviderStep::ColdStart));
    assert!(failure.message.ends_with("\nlast") && failure.retryable, "{failure:?}");
    assert!(!bench.issue.state.takes_slot(), "nothing is left");
    assert_eq!(bench.issue.due_at(), None, "no retry happens by itself");
    bench.command(Command::Retry);
    bench.answer(Ok(Done::Found(vec![])));
    assert_eq!(verb(&bench), Verb::Create);
    bench.up();
    assert!(is_cold_start(&bench), "it runs again");
    ended(&mut bench, ColdStartEnd::Succeeded);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
}

#[test]
fn what_the_file_of_a_repository_says_is_kept_with_the_success_of_the_cold_start() {
    let mut bench = bench(|workload| {
        let repository_file = Some(RepositoryFile::default());
        workload.git = Some(GitWorkload { repository_file, ..GitWorkload::default() });
    });
    let call = bench.up().call.expect("the cold start is asked, without a step of the template");
    assert!(call.deadline >= bench.now.after(RepositoryFile::SETUP_TIME_MAX), "setup has its time");
    assert!(needs_cold_start(&bench));
    let made_from = bench.issue.state.record().expect("a sandbox").template.clone();
    let file = |instructions: &str| RepositoryFile {
        commit: Some("c0ffee".into()),
        working_dir: Some("web".into()),
        instructions: instructions.into(),
    };
    let kept = |bench: &StepBench| {
        let record = bench.issue.state.record().expect("a sandbox");
        assert_eq!(record.template_version, record.template.version(), "as it is read back");
        assert_eq!(record.template_version, made_from.version(), "the template is the same one");
        assert_eq!(record.template.workload.repository_dir(), Some("web"));
        record.template.workload.repository_file().expect("it is read").clone()
    };
    ended(&mut bench, ColdStartEnd::SucceededWith(file("first")));
    assert_eq!(
        (bench.issue.state.phase(), needs_cold_start(&bench)),
        (Some(Phase::Running), false)
    );
    assert_eq!(kept(&bench), file("first"));
    for (end, expected) in
        [(ColdStartEnd::NotNeeded, "first"), (ColdStartEnd::SucceededWith(file("next")), "next")]
    {
        bench.command(Command::Stop);
        bench.answer(Ok(Done::Down));
        bench.command(Command::Start);
        bench.up();
        ended(&mut bench, end);
        assert_eq!(kept(&bench), file(expected), "it is in place of what was there before");
    }
}

#[test]
fn the_directory_of_the_configuration_wins() {
    let file = RepositoryFile { working_dir: Some("web".into()), ..RepositoryFile::default() };
    let git = Some(GitWorkload { repository_file: Some(file), ..GitWorkload::default() });
    let workload = Workload { git, ..Workload::default() };
    assert_eq!(workload.repository_dir(), Some("web"));
    let configured = Workload { working_dir: Some("server".into()), ..workload };
    assert_eq!(configured.repository_dir(), None);
}

/// A sandbox that had its cold start, and is up again after a stop.
fn up_again() -> (StepBench, Commit) {
    let mut bench = with_cold_start();
    bench.up();
    ended(&mut bench, ColdStartEnd::Succeeded);
    bench.command(Command::Stop);
    bench.answer(Ok(Done::Down));
    bench.command(Command::Start);
    let up = bench.up();
    assert!(is_cold_start(&bench) && !needs_cold_start(&bench), "its hooks look whether it must");
    (bench, up)
}

#[test]
fn a_start_whose_cold_start_fails_keeps_the_workspace() {
    let (mut bench, _) = up_again();
    let commit = ended(&mut bench, ColdStartEnd::Failed("no such package".into()));
    assert_eq!((bench.issue.state.phase(), commit.call), (Some(Phase::Failed), None));
    assert_eq!(bench.issue.state.failure().map(|it| it.code), Some(FailureCode::HookFailed));
    // What the steps left behind does not count as work of the sandbox.
    bench.command(Command::Retry);
    assert_eq!(verb(&bench), Verb::Start);
    bench.up();
    assert!(is_cold_start(&bench) && needs_cold_start(&bench));
    ended(&mut bench, ColdStartEnd::Failed("still none".into()));
    assert_eq!((bench.issue.state.phase(), bench.issue.state.step()), (Some(Phase::Failed), None));
}

#[test]
fn a_cold_start_whose_answer_is_lost_is_looked_for_and_runs_again() {
    let mut bench = with_cold_start();
    bench.up();
    let restarted = IssueEvent::Activated { in_flight: None, after_restart: true };
    bench.apply(restarted.clone());
    assert_eq!(verb(&bench), Verb::Look);
    let stopped = bench.ours(ObjectState::Stopped);
    bench.answer(Ok(Done::Found(vec![stopped])));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Starting));
    bench.up();
    assert_eq!(bench.issue.state.phase(), Some(Phase::Starting));
    assert!(is_cold_start(&bench) && needs_cold_start(&bench));
    // Once more, in this phase.
    bench.apply(restarted);
    assert_eq!(verb(&bench), Verb::Start);
    bench.up();
    ended(&mut bench, ColdStartEnd::Succeeded);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
    // What ended by itself meanwhile is looked at, too.
    let mut bench = with_cold_start();
    bench.up();
    bench.answer(Err(unavailable()));
    bench.due();
    assert_eq!(verb(&bench), Verb::Look);
    let running = bench.ours(ObjectState::Running);
    bench.answer(Ok(Done::Found(vec![running])));
    assert!(is_cold_start(&bench));
    let why = NotAsked::NoTurn;
    bench.answer(Err(CallError::NotAsked(why)));
    bench.due();
    assert!(is_cold_start(&bench), "what was not asked is asked again");
}

#[test]
fn a_start_asks_whether_the_workspace_needs_a_cold_start() {
    let (mut bench, up) = up_again();
    assert!(up.timeline.is_empty(), "mostly it is not needed");
    let commit = ended(&mut bench, ColdStartEnd::NotNeeded);
    assert_eq!(commit.timeline.last().expect("an entry").reason, "it is up again");
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
}

#[test]
fn a_cold_start_is_given_up_when_the_sandbox_is_not_wanted_any_more() {
    let mut bench = with_cold_start();
    bench.up();
    bench.command(Command::Stop);
    ended(&mut bench, ColdStartEnd::Withdrawn);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Stopping));
    bench.answer(Ok(Done::Down));
    assert!(needs_cold_start(&bench));
    bench.command(Command::Start);
    bench.up();
    assert!(is_cold_start(&bench), "the next start runs it");
    bench.command(Command::Stop);
    bench.command(Command::Start);
    ended(&mut bench, ColdStartEnd::Withdrawn);
    assert!(is_cold_start(&bench), "it is wanted again");
    bench.command(Command::Delete);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Deleting));
    ended(&mut bench, ColdStartEnd::Withdrawn);
    assert!(matches!(verb(&bench), Verb::Delete { .. }));
    // In a create its object is found first.
    let mut bench = with_cold_start();
    bench.up();
    bench.command(Command::Delete);
    ended(&mut bench, ColdStartEnd::Failed("too late".into()));
    assert_eq!((bench.issue.state.phase(), verb(&bench)), (Some(Phase::Deleting), Verb::Look));
}

#[test]
fn without_githubs_consent_the_sandbox_is_stopped_and_its_cold_start_is_still_to_come() {
    let mut bench = with_cold_start();
    bench.up();
    let commit = ended(&mut bench, ColdStartEnd::Withheld("it is closed".into()));
    let reason = &commit.timeline.last().expect("an entry").reason;
    assert_eq!(reason, "its cold start did not begin: it is closed");
    assert!(matches!(bench.issue.state, IssueState::Stopping { .. }));
    assert!(needs_cold_start(&bench));
}

fn farewell(commit: &Commit) -> Option<Farewell> {
    commit.call.as_ref().expect("a call").before
}

#[test]
fn a_running_sandbox_has_its_grace_before_a_stop_and_a_delete() {
    let grace = Hooks::GRACE_DEFAULT;
    let terminate = |workload: &mut Workload| workload.hooks.on_terminate = steps();
    let hook = Some(Farewell { grace, has_hook: true, pushes: false });
    let push = Some(Farewell { grace, has_hook: false, pushes: true });
    let on_stop = |one: &mut Workload| one.sync = SyncMoments { on_stop: true, ..one.sync };
    let on_delete = |one: &mut Workload| one.sync = SyncMoments { before_delete: true, ..one.sync };
    type Set = fn(&mut Workload);
    let cases: [(Set, Option<Farewell>, Option<Farewell>); 4] = [
        (|_| {}, None, None),
        (terminate, hook, hook),
        (on_stop, push, None),
        (on_delete, None, push),
    ];
    for (set, before_stop, before_delete) in cases {
        for (command, expected) in [(Command::Stop, before_stop), (Command::Delete, before_delete)]
        {
            let mut bench = bench(set);
            bench.up();
            let commit = bench.command(command);
            assert_eq!(farewell(&commit), expected, "{command:?}");
            let longer = expected.map_or(Duration::ZERO, |farewell| farewell.grace);
            let call = commit.call.expect("a call");
            assert_eq!(call.deadline, bench.now.after(Duration::from_secs(60) + longer));
        }
    }
}

#[test]
fn a_farewell_is_said_once_and_only_to_what_runs() {
    let mut bench = bench(|workload| workload.hooks.on_terminate = steps());
    bench.up();
    bench.command(Command::Stop);
    bench.answer(Err(unavailable()));
    assert_eq!(farewell(&bench.due()), None, "it was said at the first try");
    bench.answer(Ok(Done::Down));
    assert_eq!(farewell(&bench.command(Command::Delete)), None, "it is down");
}

#[test]
fn a_farewell_is_owed_until_a_call_was_answered() {
    let mut bench = bench(|workload| workload.hooks.on_terminate = steps());
    bench.up();
    assert!(farewell(&bench.command(Command::Delete)).is_some());
    bench.answer(Err(CallError::NotAsked(NotAsked::NoTurn)));
    assert!(farewell(&bench.due()).is_some(), "the call was not made");
    // The server is killed in the middle of it.
    bench.apply(IssueEvent::Activated { in_flight: None, after_restart: true });
    let found = vec![bench.ours(ObjectState::Running)];
    let seen = bench.answer(Ok(Done::Found(found)));
    let asked = if seen.call.is_some() { seen } else { bench.due() };
    assert!(farewell(&asked).is_some(), "nothing is known of it");
    bench.answer(Err(unavailable()));
    assert_eq!(farewell(&bench.due()), None, "a call with it was answered");
}

#[test]
fn a_note_is_an_entry_of_its_sandbox_alone() {
    let mut bench = bench_without();
    bench.up();
    let sandbox = bench.issue.state.record().expect("a sandbox").id.clone();
    let note = |sandbox: &SandboxId| IssueEvent::Noted {
        sandbox: sandbox.clone(),
        what: "on_message step 1 of 1 (a) succeeded".into(),
        cause: Cause::Service("hook"),
    };
    let commit = bench.apply(note(&sandbox));
    let entry = commit.timeline.first().expect("an entry");
    assert_eq!((entry.from, entry.to), (Some(Phase::Running), Some(Phase::Running)));
    assert_eq!((entry.cause.as_str(), commit.changed), ("hook", true));
    assert!(!bench.apply(note(&SandboxId::trusted("another"))).changed);
}
