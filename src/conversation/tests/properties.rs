//! Whatever comes in whatever order: each message has one run, no two processes, nothing waits without
//! a reason.

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum RunAct {
    Say { interrupts: bool },
    Begin,
    BeginHeld,
    End(u8, bool),
    Progress,
    Ask,
    Answer(bool),
    Cancel,
    CancelNext,
    Retry,
    Stands(u8, u32),
    Goes(u8, u32),
    Later(u64),
}

fn act() -> impl Strategy<Value = RunAct> {
    prop_oneof![
        3 => any::<bool>().prop_map(|interrupts| RunAct::Say { interrupts }),
        4 => Just(RunAct::Begin),
        1 => Just(RunAct::BeginHeld),
        3 => (0..6_u8, any::<bool>()).prop_map(|(end, late)| RunAct::End(end, late)),
        1 => Just(RunAct::Progress),
        2 => Just(RunAct::Ask),
        2 => any::<bool>().prop_map(RunAct::Answer),
        1 => Just(RunAct::Cancel),
        1 => Just(RunAct::CancelNext),
        1 => Just(RunAct::Retry),
        3 => (0..6_u8, 1..3_u32).prop_map(|(standing, sandbox)| RunAct::Stands(standing, sandbox)),
        3 => (2..6_u8, 1..3_u32).prop_map(|(standing, sandbox)| RunAct::Goes(standing, sandbox)),
        1 => (1..600_u64).prop_map(RunAct::Later),
    ]
}

fn standing(which: u8) -> SandboxStanding {
    match which {
        0 | 1 => SandboxStanding::Up,
        2 => SandboxStanding::Coming("coming".into()),
        3 => SandboxStanding::Down,
        4 => SandboxStanding::StoppedByPerson,
        _ => SandboxStanding::Over("closed".into()),
    }
}

fn end(which: u8) -> RunEnd {
    match which {
        0 => RunEnd::Succeeded(String::new()),
        1 => RunEnd::OverBudget("$1.00 of $1.00".into()),
        2 => RunEnd::Failed("why".into()),
        3 => RunEnd::Unavailable("away".into(), None),
        4 => RunEnd::Cancelled,
        _ => RunEnd::Lost,
    }
}

/// The agent asks, or a person answers.
fn of_person(run: &Run, act: RunAct) -> RunEvent {
    let question = format!("{}-1", run.attempt);
    let RunAct::Answer(is_known) = act else {
        let question = super::questions::question(&question);
        return RunEvent::Asks(run.id, run.attempt, Box::new(question));
    };
    let option = if is_known { "once" } else { "maybe" }.to_owned();
    RunEvent::Answer(run.id, PersonAnswer { question, option, by: "mona".to_owned() })
}

/// What runs in a sandbox ends once that is down, or there is another one.
fn leave_processes(bench: &ConversationBench, processes: &mut Vec<(RunId, u32, SandboxId)>) {
    let around = &bench.around;
    let may_be_up = around.sandbox.as_ref().filter(|_| !around.is_down);
    processes.retain(|(_, _, sandbox)| Some(sandbox) == may_be_up);
}

fn apply(bench: &mut ConversationBench, act: RunAct, processes: &mut Vec<(RunId, u32, SandboxId)>) {
    let run = bench.conversation.run.clone();
    match act {
        RunAct::Say { interrupts } => {
            let words = SaidWords { interrupts, ..SaidWords::of_caller("m".into(), "t".into()) };
            bench.say_this(words, None);
        }
        RunAct::Begin => {
            if let Some(RunReply::Begun(run, _)) = run.map(|_| bench.begin()) {
                let sandbox = run.sandbox.clone().expect("it has a sandbox");
                // The worker kills what the attempt before left.
                processes.retain(|(id, _, _)| *id != run.id);
                processes.push((run.id, run.attempt, sandbox));
            }
        }
        RunAct::BeginHeld => {
            if let Some(run) = run {
                bench.step(|step, around| {
                    step.run_event(RunEvent::Begin(run.id, run.messages), around, Some("held"))
                });
            }
        }
        RunAct::End(which, late) => {
            let Some(run) = run else { return };
            let attempt = run.attempt.saturating_sub(u32::from(late));
            bench.event(RunEvent::Ended(run.id, attempt, end(which)));
            processes.retain(|(id, of, _)| (*id, *of) != (run.id, attempt));
        }
        RunAct::Progress => {
            if let Some(run) = run {
                bench.event(RunEvent::Progressed(run.id, run.attempt));
            }
        }
        RunAct::Ask | RunAct::Answer(_) => {
            if let Some(run) = run {
                bench.event(of_person(&run, act));
            }
        }
        RunAct::Cancel => {
            bench.event(RunEvent::Cancel(None, "enough".into()));
        }
        RunAct::CancelNext => {
            let next = bench.conversation.next.as_ref().map(|next| next.id);
            if next.is_some() {
                bench.event(RunEvent::Cancel(next, "not this".into()));
            }
        }
        RunAct::Retry => {
            bench.event(RunEvent::Retry(None));
        }
        RunAct::Stands(which, sandbox) => {
            bench.stands(sandbox, standing(which));
            leave_processes(bench, processes);
        }
        RunAct::Goes(which, sandbox) => {
            bench.goes(sandbox, standing(which));
            leave_processes(bench, processes);
        }
        RunAct::Later(seconds) => {
            bench.now = bench.now.after(Duration::from_secs(seconds));
            bench.step(|step, _| step.due());
        }
    }
}

proptest! {
    #[test]
    fn each_message_has_one_run_and_no_two_processes_go_on(acts in proptest::collection::vec(act(), 1..200)) {
        let mut bench = ConversationBench::new();
        let mut processes = Vec::new();
        for act in acts {
            apply(&mut bench, act, &mut processes);
            prop_assert!(processes.len() <= 1, "{processes:?}");
            let (run, next) = (&bench.conversation.run, &bench.conversation.next);
            if let Some(next) = next {
                prop_assert!(run.as_ref().is_some_and(|run| run.state.is_in_progress()));
                prop_assert_eq!((next.state, next.attempt), (RunState::Queued, 0));
            }
            if let Some(run) = run {
                let is_up = bench.around.standing == SandboxStanding::Up;
                let is_its = run.sandbox == bench.around.sandbox;
                let may_be_there = is_its && (is_up || !bench.around.is_down && run.state == RunState::Cancelling);
                prop_assert!(!run.state.has_process() || may_be_there);
                let waits = run.state == RunState::WaitingForPerson;
                prop_assert_eq!(waits, run.questions.open.is_some(), "{:?}", run);
            }
            // Each message is in the count of the one run that it names.
            let all: Vec<_> = bench.former.iter().chain(run).chain(next).collect();
            let ids: HashSet<_> = all.iter().map(|run| run.id).collect();
            prop_assert_eq!(ids.len(), all.len(), "a run is recorded twice");
            for run in all {
                let said = bench.said.iter().filter(|message| message.run == run.id).count();
                prop_assert_eq!(said, run.messages as usize);
            }
            let known = bench.said.iter().filter(|message| ids.contains(&message.run)).count();
            prop_assert_eq!(known, bench.said.len(), "a message has no run");
        }
        // When the sandbox is up and stays up, everything comes to an end.
        bench.stands(1, SandboxStanding::Up);
        for _ in 0..400 {
            let Some(run) = bench.conversation.run.clone().filter(|run| run.state.is_in_progress()) else { break };
            match bench.conversation.order(&bench.around).map(|order| order.kind) {
                Some(RunOrderKind::Begin(_)) => drop(bench.begin()),
                Some(RunOrderKind::Follow(_)) => drop(bench.end(RunEnd::Succeeded(String::new()))),
                Some(RunOrderKind::End(_)) => drop(bench.end(RunEnd::Cancelled)),
                None => {
                    bench.now = run.retry_at.expect("it waits for a time");
                    bench.step(|step, _| step.due());
                }
            }
        }
        let left = bench.conversation.run.iter().chain(&bench.conversation.next);
        prop_assert_eq!(left.filter(|run| run.state.is_in_progress()).count(), 0);
    }
}
