//! What is said on an issue, by what happens to it.

use super::StepBench;
use super::issue_deliveries::{issue_delivery, labelled};
use super::pending_starts::from_repository;
use crate::issue::event::{Command, DeliveryEffect, GithubRules, IssueEvent, TriggerKind};
use crate::issue::{CommentAnswer, Commit, Effect, EffectKind, GithubEffect, ReactTo};
use crate::types::{Generation, PullRequestMode};

const RULES: GithubRules = GithubRules {
    comments: true,
    reactions: true,
    pull_request: PullRequestMode::Draft,
    statuses: false,
    working_label: false,
};

fn bench() -> StepBench {
    let mut bench = StepBench::new(true);
    bench.rules.github = Some(RULES);
    bench
}

fn said(commit: &Commit) -> Vec<GithubEffect> {
    let said = |effect: &Effect| match effect {
        Effect::Github(effect) => Some(effect.clone()),
        Effect::CleanUp(_) => None,
    };
    commit.effects.iter().filter_map(said).collect()
}

fn kinds(commit: &Commit) -> Vec<EffectKind> {
    said(commit).iter().map(GithubEffect::kind).collect()
}

fn comment(id: u64, second: i64, effect: DeliveryEffect) -> IssueEvent {
    let event = issue_delivery("created", effect, second, true, false);
    let IssueEvent::Delivery { mut issue_delivery, claims, takes, place_elsewhere } = event else {
        panic!("a delivery")
    };
    issue_delivery.comment = Some(id);
    IssueEvent::Delivery { issue_delivery, claims, takes, place_elsewhere }
}

#[test]
fn a_trigger_gets_a_reaction_and_each_change_of_the_sandbox_a_status() {
    let mut bench = bench();
    let triggered = bench.apply(labelled(1));
    let react = GithubEffect::React { to: ReactTo::Issue, generation: Generation(1) };
    let version = triggered.issue.version;
    let status =
        |version, is_asked, can_wait| GithubEffect::ShowStatus { version, is_asked, can_wait };
    assert_eq!(said(&triggered), [react, status(version, true, true)]);
    let up = bench.up();
    assert_eq!(said(&up), [status(version + 1, false, false)]);
    let again = said(&bench.apply(labelled(1)));
    assert_eq!(again[0].key(), "issue/1", "a second label is the same reaction");
    let stopping = bench.command(Command::Stop);
    assert_eq!(said(&stopping), [status(stopping.issue.version, false, true)]);
}

#[test]
fn a_comment_gets_its_reaction_or_reply_once() {
    let mut bench = bench();
    let asked = bench.apply(comment(5, 1, DeliveryEffect::Status));
    let answer = CommentAnswer::Status("the issue has no sandbox".into());
    assert_eq!(said(&asked), [GithubEffect::Reply { comment: 5, answer }]);
    assert_eq!(kinds(&bench.apply(comment(5, 1, DeliveryEffect::Status))), []);
    let refused = bench.apply(comment(6, 2, DeliveryEffect::Command(Command::Start)));
    let answer = CommentAnswer::Refused("the issue has no sandbox".into());
    assert_eq!(said(&refused), [GithubEffect::Reply { comment: 6, answer }]);
    let trigger = DeliveryEffect::Trigger(TriggerKind::Command);
    let triggered = bench.apply(comment(7, 3, trigger.clone()));
    let react = GithubEffect::React { to: ReactTo::Comment(7), generation: Generation(1) };
    assert_eq!(said(&triggered)[0], react);
    assert_eq!(kinds(&bench.apply(comment(7, 3, trigger))), []);
}

#[test]
fn what_is_turned_off_or_has_no_place_is_not_said() {
    let mut silent = StepBench::new(true);
    assert_eq!(kinds(&silent.apply(labelled(1))), [], "without credentials");
    let mut bench = bench();
    assert_eq!(kinds(&bench.ensure()), [], "GitHub has said nothing of this issue");
    for (rules, expected) in [
        (GithubRules { comments: false, ..RULES }, vec![EffectKind::React]),
        (GithubRules { reactions: false, ..RULES }, vec![EffectKind::ShowStatus]),
    ] {
        let mut bench = StepBench::new(true);
        bench.rules.github = Some(rules);
        assert_eq!(kinds(&bench.apply(labelled(1))), expected);
    }
}

#[test]
fn nothing_is_said_on_a_deleted_issue_or_of_one_without_a_sandbox() {
    let mut bench = bench();
    let edited = issue_delivery("edited", DeliveryEffect::Update, 1, true, false);
    assert_eq!(kinds(&bench.apply(edited)), []);
    bench.apply(labelled(2));
    let deleted = issue_delivery("deleted", DeliveryEffect::Delete, 3, true, true);
    assert_eq!(kinds(&bench.apply(deleted)), []);
}

#[test]
fn an_unlocked_conversation_releases_what_was_held() {
    let mut bench = bench();
    let unlocked = issue_delivery("unlocked", DeliveryEffect::Update, 1, true, false);
    assert!(bench.apply(unlocked).is_unlocked);
    assert!(!bench.apply(labelled(2)).is_unlocked);
}

#[test]
fn the_status_follows_what_the_timeline_does_not_have() {
    let mut bench = bench();
    bench.apply(labelled(1));
    bench.up();
    let edited =
        |second, open| issue_delivery("edited", DeliveryEffect::Update, second, open, true);
    let closed = bench.apply(edited(2, false));
    assert_eq!(kinds(&closed), [EffectKind::ShowStatus], "the delivery of the act was lost");
    assert_eq!(kinds(&bench.apply(edited(3, false))), []);
}

#[test]
fn a_transfer_is_shown_in_the_status() {
    let mut bench = bench();
    bench.apply(labelled(1));
    bench.up();
    let opened = |second| issue_delivery("opened", DeliveryEffect::Update, second, true, true);
    let renamed = bench.apply(from_repository(opened(2), 7, None));
    assert_eq!(kinds(&renamed), [], "it is in the same repository");
    let moved = bench.apply(from_repository(opened(3), 8, Some(7)));
    assert_eq!(kinds(&moved), [EffectKind::ShowStatus]);
}
