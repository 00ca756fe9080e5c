//! What GitHub's deliveries lead to, whatever their order.

use super::StepBench;
use super::tables::bench_in;
use crate::issue::Instruction;
use crate::issue::commit::Reply;
use crate::issue::event::{
    CallError, Command, DeliveryEffect, Done, IssueDelivery, IssueEvent, News, TriggerKind,
};
use crate::issue::instruction::InstructionSource;
use crate::issue::state::{IssueState, StoppedBy};
use crate::types::{
    DeliveryId, Generation, IssueId, IssueNumber, Phase, Repository, Timestamp, Wanted,
};

pub(super) fn issue_delivery(
    action: &str,
    effect: DeliveryEffect,
    second: i64,
    open: bool,
    labelled: bool,
) -> IssueEvent {
    let news = News {
        issue_id: IssueId::from_github(1),
        repository: Repository::trusted("octo/hello"),
        repository_id: 7,
        number: IssueNumber(1),
        title: format!("as of {second}"),
        url: None,
        open: Some(open),
        labelled: Some(labelled),
        assigned: (effect == DeliveryEffect::Trigger(TriggerKind::Assigned))
            .then_some(true)
            .or_else(|| (action == "unassigned").then_some(false)),
        as_of: Timestamp::from_unix_ms(1_800_000_000_000 + second * 1000),
    };
    let issue_delivery = IssueDelivery {
        delivery: DeliveryId::trusted(format!("{action}-{second}")),
        received_at: Timestamp::from_unix_ms(1_800_000_000_000),
        recovered: false,
        event: "issues".into(),
        action: action.into(),
        acted_at: news.as_of,
        news,
        formerly: None,
        comment: None,
        installation: None,
        effect,
        instruction: None,
    };
    IssueEvent::Delivery { issue_delivery, claims: vec![], takes: vec![], place_elsewhere: false }
}

pub(super) fn labelled(second: i64) -> IssueEvent {
    issue_delivery("labeled", DeliveryEffect::Trigger(TriggerKind::Label), second, true, true)
}

pub(super) fn applied(commit: &crate::issue::Commit) -> bool {
    match &commit.reply {
        Reply::Delivered(result) => result.applied,
        other => panic!("a delivery is answered, got {other:?}"),
    }
}

#[test]
fn the_words_of_a_trigger_are_kept_when_it_is_applied() {
    let instruction = Instruction {
        source: InstructionSource::Issue,
        author: None,
        sender: None,
        as_of: Timestamp::from_unix_ms(0),
        title: Some("as of 5".into()),
        text: "fix it".into(),
    };
    let with_words = |event| match event {
        IssueEvent::Delivery { issue_delivery, claims, takes, place_elsewhere } => {
            let instruction = Some(instruction.clone());
            let issue_delivery = IssueDelivery { instruction, ..issue_delivery };
            IssueEvent::Delivery { issue_delivery, claims, takes, place_elsewhere }
        }
        other => other,
    };
    let mut bench = StepBench::new(true);
    let commit = bench.apply(with_words(labelled(5)));
    assert_eq!(commit.instruction.as_ref(), Some(&instruction));
    bench.up();
    let commit = bench.apply(with_words(labelled(6)));
    assert!(applied(&commit), "it counts as activity");
    assert_eq!(commit.instruction.as_ref(), Some(&instruction), "there is more to do");
    bench.apply(issue_delivery("closed", DeliveryEffect::Stop("closed"), 9, false, true));
    let commit = bench.apply(with_words(labelled(7)));
    assert!(!applied(&commit));
    assert_eq!(commit.instruction, None, "the issue is closed");
}

#[test]
fn a_close_that_arrives_before_an_older_trigger_wins() {
    let mut bench = StepBench::new(true);
    let closed =
        issue_delivery("closed", DeliveryEffect::Stop("the issue was closed"), 5, false, true);
    assert!(applied(&bench.apply(closed)));
    assert!(!applied(&bench.apply(labelled(3))), "older than the close");
    assert_eq!(bench.issue.state, IssueState::Absent);
    let reopened =
        issue_delivery("reopened", DeliveryEffect::Trigger(TriggerKind::Reopened), 9, true, true);
    assert!(applied(&bench.apply(reopened)));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Creating));
    let late =
        issue_delivery("closed", DeliveryEffect::Stop("the issue was closed"), 5, false, true);
    assert!(!applied(&bench.apply(late)), "older than the reopening");
    assert_eq!(bench.issue.state.wanted(), Wanted::Running);
}

#[test]
fn a_late_trigger_counts_behind_a_newer_edit() {
    let mut bench = StepBench::new(true);
    assert!(applied(&bench.apply(issue_delivery("edited", DeliveryEffect::Update, 9, true, true))));
    assert!(applied(&bench.apply(labelled(3))));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Creating));
    let title = bench.issue.facts.title.as_ref().map(|known| known.value.as_str());
    assert_eq!(title, Some("as of 9"), "the older title does not come back");
}

#[test]
fn a_label_that_was_taken_off_since_is_no_trigger() {
    let mut bench = StepBench::new(true);
    bench.apply(issue_delivery("unlabeled", DeliveryEffect::Stop("unlabelled"), 5, true, false));
    assert!(!applied(&bench.apply(labelled(3))));
    assert_eq!(bench.issue.state, IssueState::Absent);
}

#[test]
fn an_assignment_that_was_taken_back_since_is_no_trigger() {
    let mut bench = StepBench::new(true);
    bench.apply(issue_delivery(
        "unassigned",
        DeliveryEffect::Stop("the bot was unassigned"),
        5,
        true,
        false,
    ));
    let assigned = |second| {
        issue_delivery(
            "assigned",
            DeliveryEffect::Trigger(TriggerKind::Assigned),
            second,
            true,
            false,
        )
    };
    assert!(!applied(&bench.apply(assigned(3))));
    assert_eq!(bench.issue.state, IssueState::Absent);
    assert!(applied(&bench.apply(assigned(9))));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Creating));
    let late = issue_delivery(
        "unassigned",
        DeliveryEffect::Stop("the bot was unassigned"),
        5,
        true,
        false,
    );
    assert!(!applied(&bench.apply(late)), "older than the assignment");
    assert_eq!(bench.issue.state.wanted(), Wanted::Running);
}

#[test]
fn a_trigger_older_than_a_persons_stop_is_refused_and_a_newer_one_resumes() {
    let mut bench = bench_in(Some(Phase::Stopped));
    assert!(!applied(&bench.apply(labelled(-60))));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Stopped));
    assert!(applied(&bench.apply(labelled(60))));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Starting));
}

#[test]
fn a_reopening_starts_only_what_had_a_sandbox_or_the_label() {
    let reopened = || {
        issue_delivery("reopened", DeliveryEffect::Trigger(TriggerKind::Reopened), 1, true, false)
    };
    assert!(!applied(&StepBench::new(true).apply(reopened())));
    let mut bench = bench_in(Some(Phase::Deleting));
    bench.answer(Err(CallError::Absent));
    bench.now = bench.now.after(std::time::Duration::from_secs(2));
    let later =
        issue_delivery("reopened", DeliveryEffect::Trigger(TriggerKind::Reopened), 9, true, false);
    assert!(applied(&bench.apply(later)));
    assert_eq!(bench.issue.generation, Generation(2));
}

#[test]
fn an_issue_deleted_on_github_is_deleted_here_and_never_comes_back() {
    let mut bench = bench_in(Some(Phase::Running));
    bench.apply(issue_delivery("deleted", DeliveryEffect::Delete, 5, true, true));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Deleting));
    assert!(!applied(&bench.apply(labelled(9))));
    assert_eq!(bench.issue.state.wanted(), Wanted::Deleted);
}

#[test]
fn a_persons_stop_outlives_githubs_also_while_stopping() {
    let mut bench = bench_in(Some(Phase::Running));
    bench.command(Command::Stop);
    bench.apply(issue_delivery(
        "closed",
        DeliveryEffect::Stop("closed"),
        1_900_000_000,
        false,
        true,
    ));
    bench.answer(Ok(Done::Down));
    assert!(
        matches!(bench.issue.state, IssueState::Stopped { by: StoppedBy::Person, .. }),
        "{:?}",
        bench.issue.state
    );
}

#[test]
fn what_says_nothing_new_is_ignored_and_what_somebody_does_counts_where_something_is() {
    let mut bench = bench_in(Some(Phase::Running));
    let edited = || issue_delivery("edited", DeliveryEffect::Update, 5, true, true);
    assert!(applied(&bench.apply(edited())));
    assert!(!applied(&bench.apply(edited())), "nothing new");
    assert!(applied(&bench.apply(issue_delivery(
        "created",
        DeliveryEffect::Activity,
        6,
        true,
        true
    ))));
    let mut bench = bench_in(None);
    assert!(!applied(&bench.apply(issue_delivery(
        "created",
        DeliveryEffect::Activity,
        6,
        true,
        true
    ))));
}

#[test]
fn of_equal_times_that_contradict_each_other_closed_wins_in_either_order() {
    let says = |open| issue_delivery("edited", DeliveryEffect::Update, 5, open, true);
    for (first, second) in [(true, false), (false, true)] {
        let mut bench = bench_in(None);
        bench.apply(says(first));
        bench.apply(says(second));
        let open = bench.issue.facts.open.as_ref().map(|known| known.value);
        assert_eq!(open, Some(false), "{first} then {second}");
    }
}

#[test]
fn a_trigger_of_the_second_in_which_a_person_stopped_it_counts() {
    let mut bench = bench_in(Some(Phase::Stopped));
    assert!(applied(&bench.apply(labelled(0))));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Starting));
}

#[test]
fn a_label_taken_off_before_it_was_put_on_stops_nothing() {
    let mut bench = bench_in(None);
    bench.apply(labelled(9));
    bench.up();
    let late = issue_delivery(
        "unlabeled",
        DeliveryEffect::Stop("the label was taken off"),
        5,
        true,
        false,
    );
    assert!(!applied(&bench.apply(late)));
    assert_eq!(bench.issue.state.phase(), Some(Phase::Running));
}

fn reason(commit: &crate::issue::Commit) -> &str {
    match &commit.reply {
        Reply::Delivered(result) => &result.reason,
        other => panic!("a delivery is answered, got {other:?}"),
    }
}

#[test]
fn a_trigger_says_once_what_happened_and_what_came_of_it() {
    let mut bench = StepBench::new(true);
    let commit = bench.apply(labelled(3));
    insta::assert_snapshot!(reason(&commit), @"label agent added; the sandbox is being created");
    assert_eq!(commit.timeline[0].reason, reason(&commit), "the timeline says the same");
    bench.up();
    let commit = bench.apply(labelled(4));
    insta::assert_snapshot!(reason(&commit), @"label agent added; the sandbox is running");
    for phase in [None, Some(Phase::Running), Some(Phase::Stopped), Some(Phase::Deleting)] {
        for kind in [TriggerKind::Label, TriggerKind::Command, TriggerKind::EditedIssue] {
            let mut bench = bench_in(phase);
            let why = kind.describe(&bench.rules, None).into_owned();
            let trigger = DeliveryEffect::Trigger(kind);
            let commit = bench.apply(issue_delivery("labeled", trigger, 90_000, true, true));
            let said = reason(&commit);
            assert_eq!(said.matches(&why).count(), 1, "{phase:?}: {said}");
        }
    }
}

#[test]
fn an_edit_is_named_by_what_it_edited() {
    let mut bench = StepBench::new(true);
    let edit = |second| issue_delivery("edited", DeliveryEffect::Update, second, true, true);
    assert_eq!(reason(&bench.apply(edit(3))), "the issue's title was edited");
    let IssueEvent::Delivery { mut issue_delivery, .. } = edit(4) else { panic!("a delivery") };
    issue_delivery.news.title = "as of 3".into();
    let same_title = IssueEvent::Delivery {
        issue_delivery,
        claims: vec![],
        takes: vec![],
        place_elsewhere: false,
    };
    assert_eq!(reason(&bench.apply(same_title)), "the issue's text was edited");
}

#[test]
fn words_in_a_comment_stand_on_the_timeline_whatever_else_happens() {
    let asked = |source, second| {
        let trigger = DeliveryEffect::Trigger(TriggerKind::Command);
        match issue_delivery("created", trigger, second, true, true) {
            IssueEvent::Delivery { mut issue_delivery, claims, takes, place_elsewhere } => {
                issue_delivery.instruction = Some(Instruction {
                    source,
                    author: None,
                    sender: None,
                    as_of: Timestamp::from_unix_ms(0),
                    title: None,
                    text: "fix this".into(),
                });
                IssueEvent::Delivery { issue_delivery, claims, takes, place_elsewhere }
            }
            other => other,
        }
    };
    let mut bench = bench_in(Some(Phase::Running));
    let commit = bench.apply(asked(InstructionSource::Comment(7), 90_000));
    let entries: Vec<_> = commit.timeline.iter().map(|entry| entry.reason.as_str()).collect();
    assert_eq!(entries, ["a comment gave the command; the sandbox is running"]);
    assert!(commit.changed, "it is stored");
    let commit = bench.apply(asked(InstructionSource::Issue, 90_001));
    assert_eq!(commit.timeline, [], "the issue's own text is not said again");
    let mut bench = StepBench::new(true);
    let commit = bench.apply(asked(InstructionSource::Comment(7), 90_000));
    assert_eq!(commit.timeline.len(), 1, "the create says it");
}

/// Words on GitHub that are no trigger, as of this second.
fn followed_up(source: InstructionSource, second: i64, failed_commit: Option<&str>) -> IssueEvent {
    let failed_commit = failed_commit.map(str::to_owned);
    let effect = DeliveryEffect::FollowUp { failed_commit };
    match issue_delivery("submitted", effect, second, true, true) {
        IssueEvent::Delivery { mut issue_delivery, claims, takes, place_elsewhere } => {
            // It says nothing of the issue itself.
            (issue_delivery.news.open, issue_delivery.news.labelled) = (None, None);
            issue_delivery.instruction = Some(Instruction {
                source,
                author: None,
                sender: None,
                as_of: issue_delivery.acted_at,
                title: None,
                text: "more".into(),
            });
            IssueEvent::Delivery { issue_delivery, claims, takes, place_elsewhere }
        }
        other => other,
    }
}

fn with_agent() -> StepBench {
    let mut bench = StepBench::new(true);
    bench.rules.default_template.workload = crate::types::Workload {
        agent: Some(crate::types::AgentWorkload {
            name: crate::types::AgentName::trusted("claude-code"),
            model: None,
            run_time_max: std::time::Duration::from_secs(60),
            quiet_time_max: std::time::Duration::from_secs(60),
            turns_max: None,
            while_running: crate::types::WhileRunning::Queue,
            instructions: String::new(),
        }),
        ..crate::types::Workload::default()
    }
    .into();
    bench
}

#[test]
fn a_follow_up_is_a_message_and_takes_no_place_in_the_order_of_acts() {
    let mut bench = with_agent();
    let review = InstructionSource::Review { id: 3, pull: 14 };
    assert!(!applied(&bench.apply(followed_up(review, 4, None))), "there is no sandbox");
    bench.apply(labelled(5));
    bench.up();
    let before = bench.issue.facts.acts.clone();
    let commit = bench.apply(followed_up(review, 9, None));
    assert!(applied(&commit), "{:?}", commit.reply);
    assert_eq!(commit.said.messages.len(), 1);
    assert!(commit.instruction.is_some(), "its words are kept");
    assert_eq!(bench.issue.facts.acts, before);
    let again = bench.apply(followed_up(review, 10, None));
    assert!(!applied(&again) && again.said.messages.is_empty() && again.instruction.is_none());
    // A stop from before it that arrives later.
    let stop = DeliveryEffect::Command(crate::issue::Command::Stop);
    let commit = bench.apply(issue_delivery("created", stop, 8, true, true));
    assert!(applied(&commit), "{:?}", commit.reply);
    assert_eq!(bench.issue.state.phase(), Some(Phase::Stopping));
}

#[test]
fn nothing_is_said_on_a_closed_issue_or_without_an_agent() {
    let mut bench = with_agent();
    bench.apply(labelled(5));
    bench.up();
    let closed = DeliveryEffect::Stop("the issue was closed");
    bench.apply(issue_delivery("closed", closed, 7, false, true));
    let commit = bench.apply(followed_up(InstructionSource::PlainComment(8), 9, None));
    assert!(!applied(&commit) && commit.said.messages.is_empty(), "{:?}", commit.reply);
    let mut bare = StepBench::new(true);
    bare.apply(labelled(5));
    bare.up();
    let activity = bare.apply(followed_up(InstructionSource::PlainComment(8), 9, None));
    assert!(applied(&activity) && activity.said.messages.is_empty(), "there is no agent");
    let check = bare.apply(followed_up(InstructionSource::Check(8), 9, Some("abc")));
    assert!(!applied(&check));
}

#[test]
fn what_was_said_goes_with_an_issue_that_is_deleted_and_nothing_more_can_be_said() {
    let mut bench = with_agent();
    bench.apply(labelled(5));
    bench.up();
    let said = bench.apply(followed_up(InstructionSource::PlainComment(8), 6, None));
    assert_eq!(said.said.messages.len(), 1);
    assert!(bench.issue.conversation.is_some());
    bench.apply(issue_delivery("deleted", DeliveryEffect::Delete, 7, false, false));
    assert_eq!(bench.issue.conversation, None, "its run had no process");
    let words = crate::conversation::SaidWords::of_caller("mona".into(), "go on".into());
    let commit = bench.apply(IssueEvent::Say(crate::issue::event::SayIssue {
        id: crate::types::MessageId(uuid::Uuid::from_u128(9)),
        words,
        numbered: None,
        claims: Vec::new(),
        cause: crate::types::Cause::Service("test"),
    }));
    let refused = crate::conversation::RunRefusal::IssueDeleted;
    assert_eq!(commit.reply, Reply::Run(crate::conversation::RunReply::Refused(refused)));
    assert!(commit.said.messages.is_empty() && commit.call.is_none());
}
