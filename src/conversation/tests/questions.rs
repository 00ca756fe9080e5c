//! What an agent asks people: once answered, never without a process, and gone with it.

use super::*;

pub(super) fn question(id: &str) -> AgentQuestion {
    let option = |id: &str, name: &str, kind: &str| AnswerOption {
        id: id.into(),
        name: name.into(),
        kind: kind.into(),
    };
    let options =
        vec![option("once", "Allow once", "allow_once"), option("no", "Reject", "reject_once")];
    AgentQuestion { id: id.into(), text: "execute: ls".into(), options }
}

fn asks(bench: &mut ConversationBench, id: &str) -> RunReply {
    let (run, attempt) = (bench.run().id, bench.run().attempt);
    bench.event(RunEvent::Asks(run, attempt, Box::new(question(id))))
}

fn answer(bench: &mut ConversationBench, question: &str, option: &str) -> RunReply {
    let run = bench.run().id;
    let answer =
        PersonAnswer { question: question.into(), option: option.into(), by: "mona".into() };
    bench.event(RunEvent::Answer(run, answer))
}

/// The answer that the worker is given.
fn ordered(bench: &ConversationBench) -> Option<(RunOrderKind, Option<String>)> {
    let order = bench.conversation.order(&bench.around)?;
    Some((order.kind, order.answer.map(|answer| answer.question)))
}

#[test]
fn a_question_waits_and_its_first_answer_counts() {
    let mut bench = ConversationBench::running();
    asks(&mut bench, "1-1");
    assert_eq!(bench.run().state, RunState::WaitingForPerson);
    let standing = bench.conversation.standing().expect("it has a run");
    assert_eq!(standing.question, Some(question("1-1")));
    assert_eq!(
        (standing.state.of_agent(), standing.reason.as_str()),
        ("waiting_for_person", "execute: ls")
    );
    assert!(bench.conversation.is_at_work());
    assert_eq!(ordered(&bench), Some((RunOrderKind::Follow(1), None)));
    let not_asked = RunReply::Refused(RunRefusal::NotAsked("1-1".into()));
    assert_eq!(answer(&mut bench, "1-1", "maybe"), not_asked);
    assert!(matches!(answer(&mut bench, "1-2", "once"), RunReply::Refused(_)));
    assert!(
        matches!(answer(&mut bench, "1-1", "no"), RunReply::Is(run) if run.state == RunState::Running)
    );
    assert_eq!(ordered(&bench), Some((RunOrderKind::Follow(1), Some("1-1".into()))));
    let RunReply::Refused(RunRefusal::Answered(words)) = answer(&mut bench, "1-1", "once") else {
        panic!("it is answered")
    };
    assert_eq!(words, "mona answered \"Reject\" already (no)");
    assert_eq!(bench.run().questions.answered.len(), 1);
    // The next one of the same process.
    asks(&mut bench, "1-2");
    answer(&mut bench, "1-2", "once");
    assert_eq!(ordered(&bench), Some((RunOrderKind::Follow(1), Some("1-2".into()))));
}

#[test]
fn only_a_process_that_goes_on_asks() {
    let mut bench = ConversationBench::running();
    let run = bench.run().id;
    let other = RunEvent::Asks(run, 2, Box::new(question("2-1")));
    assert!(matches!(bench.event(other), RunReply::Refused(RunRefusal::NotInProgress)));
    bench.event(RunEvent::Cancel(None, "enough".into()));
    assert!(matches!(asks(&mut bench, "1-1"), RunReply::Refused(_)));
    assert_eq!(bench.run().state, RunState::Cancelling);
}

#[test]
fn a_question_is_gone_with_its_process_and_answers_stay() {
    let mut bench = ConversationBench::running();
    asks(&mut bench, "1-1");
    answer(&mut bench, "1-1", "once");
    asks(&mut bench, "1-2");
    bench.end(RunEnd::Lost);
    assert_eq!((bench.run().state, &bench.run().questions.open), (RunState::Interrupted, &None));
    assert!(matches!(
        answer(&mut bench, "1-2", "once"),
        RunReply::Refused(RunRefusal::NotAsked(_))
    ));
    assert!(matches!(
        answer(&mut bench, "1-1", "once"),
        RunReply::Refused(RunRefusal::Answered(_))
    ));
    bench.begin();
    asks(&mut bench, "2-1");
    // Cancelling ends what waits.
    bench.event(RunEvent::Cancel(None, "enough".into()));
    assert_eq!((bench.run().state, &bench.run().questions.open), (RunState::Cancelling, &None));
    bench.end(RunEnd::Cancelled);
    assert_eq!(bench.run().state, RunState::Cancelled);
    // So does the end of the sandbox.
    let mut bench = ConversationBench::running();
    asks(&mut bench, "1-1");
    bench.stands(1, SandboxStanding::Over("closed".into()));
    assert_eq!((bench.run().state, &bench.run().questions.open), (RunState::Cancelled, &None));
}

#[test]
fn the_newest_answers_are_remembered() {
    let mut bench = ConversationBench::running();
    for number in 0..25 {
        let id = format!("1-{number}");
        asks(&mut bench, &id);
        answer(&mut bench, &id, "once");
    }
    let answered = &bench.run().questions.answered;
    assert_eq!((answered.len(), answered[19].question.as_str()), (20, "1-24"));
}
