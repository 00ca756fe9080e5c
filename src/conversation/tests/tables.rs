//! Each row of the table of runs.

use std::time::Duration;

use super::*;

fn order(bench: &ConversationBench) -> Option<RunOrderKind> {
    bench.conversation.order(&bench.around).map(|order| order.kind)
}

#[test]
fn a_message_waits_runs_and_is_answered() {
    let mut bench = ConversationBench::new();
    let RunReply::Said(message, run) = bench.say() else { panic!("it was said") };
    assert_eq!((run.state, run.messages), (RunState::Queued, 1));
    assert_eq!((bench.said[0].id, bench.said[0].run), (message, run.id));
    assert_eq!(order(&bench), Some(RunOrderKind::Begin(0)));
    bench.now = bench.now.after(Duration::from_secs(1));
    let RunReply::Begun(run, session) = bench.begin() else { panic!("it began") };
    assert_eq!((run.attempt, session.agent.as_str()), (1, "claude-code"));
    assert_eq!(run.since, bench.now, "its state is another one");
    assert_eq!(order(&bench), Some(RunOrderKind::Follow(1)));
    bench.end(RunEnd::Succeeded(String::new()));
    assert_eq!(bench.run().state, RunState::Succeeded);
    assert_eq!(order(&bench), None);
    // The next run goes on with the session.
    bench.say();
    let RunReply::Begun(next, again) = bench.begin() else { panic!("it began") };
    assert_eq!((next.attempt, again), (1, session));
    assert_ne!(next.id, run.id);
    assert_eq!(bench.former.len(), 1);
}

#[test]
fn messages_that_come_while_a_run_goes_on_share_the_next_one() {
    let mut bench = ConversationBench::running();
    let first = bench.run().id;
    let runs: Vec<_> = (0..3)
        .map(|_| match bench.say() {
            RunReply::Said(_, run) => run.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(runs.iter().all(|run| *run == runs[0] && *run != first));
    bench.end(RunEnd::Failed("no".into()));
    assert_eq!((bench.run().id, bench.run().messages), (runs[0], 3));
    assert_eq!(bench.former[0].state, RunState::Failed);
}

#[test]
fn a_message_that_joins_a_run_while_it_is_verified_has_it_verified_again() {
    let mut bench = ConversationBench::new();
    bench.say();
    let looked_at = bench.conversation.order(&bench.around).expect("an order");
    bench.say();
    let begun = bench.event(RunEvent::Begin(looked_at.run, looked_at.messages));
    assert_eq!(begun, RunReply::Refused(RunRefusal::MessageJoined));
    assert_eq!(bench.run().state, RunState::Queued);
    let order = bench.conversation.order(&bench.around).expect("an order");
    assert_eq!((order.run, order.messages), (looked_at.run, 2));
    let begun = bench.event(RunEvent::Begin(order.run, order.messages));
    assert!(matches!(begun, RunReply::Begun(..)), "{begun:?}");
}

#[test]
fn a_follow_up_is_said_once_and_failed_checks_of_three_commits_in_a_row() {
    let mut bench = ConversationBench::running();
    assert!(matches!(bench.follow_up(MessageOrigin::Review(7), None), RunReply::Said(..)));
    assert_eq!(bench.follow_up(MessageOrigin::Review(7), None), RunReply::Heard);
    let mut checks = 0;
    let mut fails = |bench: &mut ConversationBench, commit: &str| {
        checks += 1;
        bench.follow_up(MessageOrigin::Check(checks), Some(commit))
    };
    for commit in ["a", "a", "b", "c", "c"] {
        assert!(matches!(fails(&mut bench, commit), RunReply::Said(..)), "{commit}");
    }
    let refused = RunReply::Refused(RunRefusal::ChecksGoOnFailing);
    assert_eq!(fails(&mut bench, "d"), refused);
    assert!(matches!(fails(&mut bench, "b"), RunReply::Said(..)), "it is known");
    assert_eq!(fails(&mut bench, "e"), refused);
    bench.say();
    assert!(matches!(fails(&mut bench, "e"), RunReply::Said(..)), "a person said something");
}

#[test]
fn a_hundred_messages_wait_and_no_more() {
    let mut bench = ConversationBench::running();
    for _ in 0..WAITING_MAX {
        assert!(matches!(bench.say(), RunReply::Said(..)));
    }
    assert_eq!(bench.say(), RunReply::Refused(RunRefusal::QueueFull));
    assert_eq!(bench.said.len(), 1 + WAITING_MAX as usize);
}

#[test]
fn without_an_agent_nothing_is_said() {
    let mut bench = ConversationBench::new();
    bench.around.agent = None;
    assert_eq!(bench.say(), RunReply::Refused(RunRefusal::NoAgent));
    assert_eq!(bench.conversation, Conversation::default());
    let agent = Some(AgentName::trusted("command"));
    let words = SaidWords { agent, ..SaidWords::of_caller("mona".into(), "hello".into()) };
    assert!(matches!(bench.say_this(words, None), RunReply::Said(..)));
    assert_eq!(bench.run().agent.as_str(), "command");
}

#[test]
fn the_issue_s_own_words_are_said_once() {
    let words = |second: i64, digest| {
        let as_of = Timestamp::from_unix_ms(second * 1000);
        let words = SaidWords {
            source: MessageOrigin::Issue,
            ..SaidWords::of_caller("m".into(), "t".into())
        };
        (words, Some(IssueWords { as_of, digest }))
    };
    let mut bench = ConversationBench::new();
    let say = |bench: &mut ConversationBench, second, digest| {
        let (words, which) = words(second, digest);
        bench.say_this(words, which)
    };
    assert!(matches!(say(&mut bench, 100, 1), RunReply::Said(..)));
    assert_eq!(say(&mut bench, 100, 1), RunReply::Heard, "another GUID");
    assert_eq!(say(&mut bench, 99, 2), RunReply::Heard, "older");
    assert_eq!(say(&mut bench, 300, 1), RunReply::Heard, "it waits to be answered");
    bench.begin();
    assert_eq!(say(&mut bench, 101, 1), RunReply::Heard, "opened with its label");
    assert!(matches!(say(&mut bench, 300, 1), RunReply::Said(..)), "asked again");
    assert!(matches!(say(&mut bench, 301, 2), RunReply::Said(..)), "edited");
    bench.end(RunEnd::Unavailable("away".into(), None));
    assert!(matches!(say(&mut bench, 401, 2), RunReply::Said(..)), "its run has begun before");
}

#[test]
fn a_run_whose_sandbox_goes_down_is_interrupted_and_goes_on_three_times() {
    let mut bench = ConversationBench::running();
    for interruption in 1..=3 {
        assert!(bench.stands(1, SandboxStanding::Down), "it needs the sandbox");
        assert_eq!(bench.run().state, RunState::Interrupted);
        assert_eq!(bench.run().interruptions, interruption);
        assert!(!bench.stands(1, SandboxStanding::Coming("soon".into())));
        assert_eq!(bench.run().reason, "soon");
        bench.stands(1, SandboxStanding::Up);
        // The order differs from that of the attempt before, which is carried out.
        assert_eq!(order(&bench), Some(RunOrderKind::Begin(interruption)));
        assert!(
            matches!(bench.begin(), RunReply::Begun(run, _) if run.attempt == interruption + 1)
        );
    }
    assert!(!bench.stands(1, SandboxStanding::Down));
    assert_eq!(bench.run().state, RunState::Failed);
}

#[test]
fn progress_forgets_interruptions() {
    let mut bench = ConversationBench::running();
    for _ in 0..10 {
        bench.stands(1, SandboxStanding::Down);
        bench.stands(1, SandboxStanding::Up);
        bench.begin();
        let (id, attempt) = (bench.run().id, bench.run().attempt);
        bench.event(RunEvent::Progressed(id, attempt));
    }
    assert_eq!(bench.run().state, RunState::Running);
}

#[test]
fn a_stop_by_a_person_cancels_the_run_and_keeps_what_waits() {
    let mut bench = ConversationBench::running();
    bench.say();
    assert!(!bench.stands(1, SandboxStanding::StoppedByPerson));
    assert_eq!(bench.former[0].state, RunState::Cancelled);
    assert_eq!((bench.run().state, bench.run().waits), (RunState::Queued, RunWait::Sandbox));
    bench.stands(1, SandboxStanding::Up);
    assert_eq!(order(&bench), Some(RunOrderKind::Begin(0)));
}

#[test]
fn a_run_is_being_cancelled_until_its_sandbox_is_known_to_be_down() {
    for going in [SandboxStanding::StoppedByPerson, SandboxStanding::Over("closed".into())] {
        let mut bench = ConversationBench::running();
        bench.goes(1, going.clone());
        assert_eq!(bench.run().state, RunState::Cancelling);
        // The worker does not see its process any more.
        bench.end(RunEnd::Lost);
        bench.goes(1, SandboxStanding::Failed("the provider is away".into()));
        assert_eq!((bench.run().state, order(&bench)), (RunState::Cancelling, None));
        bench.stands(1, going);
        assert_eq!(bench.run().state, RunState::Cancelled);
    }
}

#[test]
fn a_process_is_ended_whose_sandbox_never_went_down() {
    let mut bench = ConversationBench::running();
    bench.goes(1, SandboxStanding::StoppedByPerson);
    bench.goes(1, SandboxStanding::Coming("it is started again".into()));
    bench.stands(1, SandboxStanding::Up);
    assert_eq!(order(&bench), Some(RunOrderKind::End(1)));
    bench.end(RunEnd::Lost);
    assert_eq!(bench.run().state, RunState::Cancelled);

    // One that is interrupted, and then cancelled by a person.
    let mut bench = ConversationBench::running();
    bench.goes(1, SandboxStanding::Failed("the provider is away".into()));
    assert_eq!(bench.run().state, RunState::Interrupted);
    bench.event(RunEvent::Cancel(None, "enough".into()));
    bench.stands(1, SandboxStanding::Up);
    assert_eq!(order(&bench), Some(RunOrderKind::End(1)));
}

#[test]
fn a_closed_issue_cancels_what_runs_and_what_waits() {
    for begins in [true, false] {
        let mut bench = ConversationBench::new();
        bench.say();
        if begins {
            bench.begin();
            bench.say();
        }
        bench.stands(1, SandboxStanding::Over("the issue was closed".into()));
        assert_eq!(bench.run().state, RunState::Cancelled);
        assert_eq!(bench.run().reason, "the issue was closed");
        assert!(bench.former.iter().all(|run| run.state == RunState::Cancelled));
        assert_eq!(order(&bench), None);
    }
}

#[test]
fn another_sandbox_is_not_the_one_that_a_run_is_in() {
    let mut bench = ConversationBench::running();
    bench.stands(2, SandboxStanding::Up);
    assert_eq!(bench.run().state, RunState::Interrupted);
}

#[test]
fn cancel_asks_the_process_to_end_and_takes_what_waits_at_once() {
    let mut bench = ConversationBench::running();
    bench.say();
    let next = bench.conversation.next.as_ref().expect("it waits").id;
    bench.event(RunEvent::Cancel(Some(next), "not this".into()));
    assert_eq!(
        (bench.conversation.next.as_ref(), bench.former[0].state),
        (None, RunState::Cancelled)
    );
    bench.event(RunEvent::Cancel(None, "enough".into()));
    assert_eq!(bench.run().state, RunState::Cancelling);
    assert_eq!(order(&bench), Some(RunOrderKind::End(1)));
    bench.end(RunEnd::Failed("exit code 143".into()));
    assert_eq!((bench.run().state, bench.run().reason.as_str()), (RunState::Cancelled, "enough"));
    assert_eq!(
        bench.event(RunEvent::Cancel(None, "again".into())),
        RunReply::Refused(RunRefusal::NotInProgress)
    );
}

#[test]
fn a_run_that_ended_well_although_it_was_cancelled_succeeded() {
    let mut bench = ConversationBench::running();
    bench.event(RunEvent::Cancel(None, "enough".into()));
    bench.end(RunEnd::Succeeded(String::new()));
    assert_eq!(bench.run().state, RunState::Succeeded);
}

#[test]
fn a_message_that_interrupts_ends_the_run_and_is_answered_by_the_next() {
    let mut bench = ConversationBench::running();
    let words = SaidWords {
        interrupts: true,
        ..SaidWords::of_caller("mona".into(), "stop, do that".into())
    };
    bench.say_this(words, None);
    assert_eq!(order(&bench), Some(RunOrderKind::End(1)));
    bench.end(RunEnd::Cancelled);
    assert_eq!((bench.former[0].state, bench.run().state), (RunState::Cancelled, RunState::Queued));
}

#[test]
fn a_run_whose_model_is_away_is_tried_again_for_a_day() {
    let mut bench = ConversationBench::running();
    let began = bench.now;
    let mut pauses = Vec::new();
    while bench.run().state != RunState::Failed {
        bench.end(RunEnd::Unavailable("no answer".into(), None));
        let Some(at) = bench.run().retry_at else { break };
        assert_eq!((bench.run().state, order(&bench)), (RunState::Queued, None));
        assert_eq!(bench.conversation.due_at(), Some(at));
        assert!(at > bench.now, "it would be tried again and again");
        pauses.push(at.since(bench.now).as_secs());
        bench.now = at;
        bench.step(|step, _| step.due());
        assert_eq!(order(&bench), Some(RunOrderKind::Begin(bench.run().attempt)));
        bench.begin();
    }
    assert_eq!(pauses[..8], [5, 10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(bench.run().state, RunState::Failed);
    assert!(bench.now.since(began) >= Duration::from_secs(24 * 3600));
}

#[test]
fn a_run_is_not_tried_again_before_the_time_for_which_the_model_asks() {
    let mut bench = ConversationBench::running();
    let until = bench.now.after(Duration::from_secs(3_600));
    bench.end(RunEnd::Unavailable("The model asks to wait until 14:05".into(), Some(until)));
    assert_eq!(bench.run().retry_at, Some(until));
    assert_eq!(bench.run().reason, "The model asks to wait until 14:05; it is tried again then");
    // A person can try at once, and a time that is past or far away changes little.
    bench.event(RunEvent::Retry(None));
    bench.begin();
    bench.end(RunEnd::Unavailable("away".into(), Some(bench.now)));
    assert_eq!(bench.run().retry_at, Some(bench.now.after(Duration::from_secs(5))));
    bench.event(RunEvent::Retry(None));
    bench.begin();
    let same = bench.now.after(Duration::from_secs(5));
    bench.end(RunEnd::Unavailable("away".into(), Some(same)));
    assert_eq!(bench.run().retry_at, Some(same));
    assert_eq!(bench.run().reason, "away; it is tried again in 5 s", "as it would be anyway");
    bench.event(RunEvent::Retry(None));
    bench.begin();
    bench.end(RunEnd::Unavailable(
        "away".into(),
        Some(bench.now.after(Duration::from_secs(1 << 30))),
    ));
    assert_eq!(bench.run().retry_at, Some(bench.now.after(Duration::from_secs(24 * 3600))));
}

#[test]
fn a_retry_answers_the_same_messages() {
    let mut bench = ConversationBench::running();
    assert_eq!(bench.event(RunEvent::Retry(None)), RunReply::Refused(RunRefusal::NothingToRetry));
    let id = bench.run().id;
    bench.end(RunEnd::OverBudget("$5.00 of $5.00".into()));
    assert_eq!(bench.run().state, RunState::OverBudget);
    bench.event(RunEvent::Retry(Some(id)));
    assert_eq!(
        (bench.run().id, bench.run().state, bench.run().messages),
        (id, RunState::Queued, 1)
    );
    // What comes now is not among the messages that the agent was given already.
    bench.say();
    assert_eq!(bench.run().messages, 1);
    assert!(matches!(bench.begin(), RunReply::Begun(run, _) if run.attempt == 2));
}

#[test]
fn an_end_of_another_attempt_changes_nothing() {
    let mut bench = ConversationBench::running();
    let id = bench.run().id;
    bench.end(RunEnd::Lost);
    bench.begin();
    let late = bench.event(RunEvent::Ended(id, 1, RunEnd::Succeeded(String::new())));
    assert_eq!(late, RunReply::Refused(RunRefusal::NotInProgress));
    assert_eq!((bench.run().state, bench.run().attempt), (RunState::Running, 2));
}

#[test]
fn no_run_begins_while_it_is_held_or_the_sandbox_is_not_up() {
    let mut bench = ConversationBench::new();
    bench.say();
    let id = bench.run().id;
    let held =
        bench.step(|step, around| step.run_event(RunEvent::Begin(id, 1), around, Some("held"))).0;
    assert_eq!(held, RunReply::Refused(RunRefusal::Held("held".into())));
    assert_eq!((bench.run().waits, bench.run().attempt), (RunWait::Hold, 0));
    bench.stands(1, SandboxStanding::Failed("it failed".into()));
    assert!(matches!(bench.begin(), RunReply::Refused(RunRefusal::NotNow(_))));
    assert_eq!(bench.run().reason, "it failed");
}

#[test]
fn a_caller_whose_answer_was_lost_says_the_same_once() {
    let mut bench = ConversationBench::new();
    let id = MessageId(Uuid::from_u128(99));
    let say = |bench: &mut ConversationBench| {
        let words = SaidWords::of_caller("mona".into(), "hello".into());
        let ask = SayAsk { id: Some(id), ..SayAsk::of(words) };
        bench.step(|step, around| step.say(ask, around.agent.as_ref())).0
    };
    let first = say(&mut bench);
    assert!(matches!(&first, RunReply::Said(said, run) if *said == id && run.messages == 1));
    assert_eq!(say(&mut bench), first);
    bench.begin();
    bench.end(RunEnd::Succeeded(String::new()));
    assert!(matches!(say(&mut bench), RunReply::Said(_, run) if run.state == RunState::Succeeded));
    assert_eq!(bench.said.len(), 1);
    bench.say();
    assert_eq!(say(&mut bench), RunReply::Heard, "its run has left the conversation");
    assert_eq!(bench.said.len(), 2);
}

#[test]
fn a_step_without_messages_and_runs_changed_nothing() {
    let mut bench = ConversationBench::new();
    bench.say();
    let messages = vec![bench.said[0].clone()];
    let runs = vec![bench.run().clone()];
    assert!(ConversationRows::default().is_empty());
    assert!(!ConversationRows { messages, ..Default::default() }.is_empty());
    assert!(!ConversationRows { runs, ..Default::default() }.is_empty());
}
