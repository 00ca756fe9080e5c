//! The fifth part of the store's contract: what people asked for in words.
//!
//! As in `store_suite`, each function gets a fresh world.

use issuebox::issue::instruction::{
    EXCERPT_LEN_MAX, GithubUser, InstructionSource, TEXT_BYTES_MAX,
};
use issuebox::issue::{Instruction, InstructionExcerpt, Issue};
use issuebox::store::{CommitError, DeliveryFilter, InstructionRow, PruneAsk, Store, Write};
use issuebox::types::{Cause, HomeId, TimelineEntry};

use crate::store_issues::{at, delivery, entry, guid, next, only, running};
use crate::store_suite::{World, ask, store_first};

/// Text of any kind: quotes, newlines, escapes, other scripts.
const TEXT: &str = "it's \"quoted\"\n\t\\ \u{1b}[31m % _ \u{1F600}";

/// One with all its parts, or with as few as there may be.
fn instruction(n: i64) -> Instruction {
    let is_whole = n % 2 == 0;
    let user = |id| GithubUser { id, login: TEXT.into() };
    Instruction {
        source: match n % 10 {
            0 => InstructionSource::Comment(u64::MAX),
            2 => InstructionSource::PlainComment(u64::MAX),
            4 => InstructionSource::Review { id: u64::MAX, pull: u32::MAX },
            6 => InstructionSource::Check(u64::MAX),
            _ => InstructionSource::Issue,
        },
        author: is_whole.then(|| user(u64::MAX)),
        sender: is_whole.then(|| user(1)),
        as_of: at(n),
        title: is_whole.then(|| TEXT.into()),
        text: format!("{n}{TEXT}"),
    }
}

/// The issue's next step, which the delivery of this number with its instruction led to.
fn asked(issue: &Issue, n: i64) -> Write {
    let cause = Cause::Delivery(guid(n)).to_string();
    Write {
        timeline: vec![TimelineEntry { cause, ..entry(issue, None) }],
        delivery: Some(delivery(n, Some(issue.home))),
        instruction: Some(instruction(n)),
        ..only(next(issue, issue.state.clone()))
    }
}

async fn store_asked(store: &dyn Store, issue: &Issue, n: i64) -> Issue {
    let write = asked(issue, n);
    let after = write.issue.clone().expect("has one");
    assert_eq!(store.commit(write).await, Ok(()));
    after
}

/// The numbers of the deliveries of a home's instructions, in their order.
async fn kept(store: &dyn Store, home: HomeId) -> Vec<InstructionRow> {
    store.instructions(home, 0, 100).await.expect("reads")
}

fn assert_are(rows: &[InstructionRow], expected: &[i64]) {
    let parts: Vec<_> = rows.iter().map(|row| (row.delivery.clone(), &row.instruction)).collect();
    let instructions: Vec<_> = expected.iter().map(|n| instruction(*n)).collect();
    let expected: Vec<_> =
        expected.iter().zip(&instructions).map(|(n, one)| (guid(*n), one)).collect();
    assert_eq!(parts, expected);
}

pub async fn instructions_come_back_as_they_were_in_order(world: &dyn World) {
    let store = world.open();
    let (one, other) = (store_first(&*store).await, store_first(&*store).await);
    let one = store_asked(&*store, &one, 100).await;
    store_asked(&*store, &other, 101).await;
    let one = store_asked(&*store, &one, 103).await;
    store_asked(&*store, &one, 102).await;
    drop(store);

    let store = world.open();
    let rows = kept(&*store, one.home).await;
    assert_are(&rows, &[100, 103, 102]);
    assert_are(&kept(&*store, other.home).await, &[101]);
    assert_are(&kept(&*store, HomeId(999)).await, &[]);
    assert_eq!(store.instructions(one.home, 0, 2).await, Ok(rows[..2].to_vec()));
    assert_eq!(store.instructions(one.home, rows[0].number, 9).await, Ok(rows[1..].to_vec()));
    assert_eq!(store.instructions(one.home, rows[2].number, 9).await, Ok(vec![]));
}

pub async fn a_timeline_shows_the_beginning_of_what_each_delivery_brought(world: &dyn World) {
    let store = world.open();
    let (one, other) = (store_first(&*store).await, store_first(&*store).await);
    let one = store_asked(&*store, &one, 100).await;
    store_asked(&*store, &other, 101).await;
    let silent = next(&one, one.state.clone());
    let plain = Write { timeline: vec![entry(&silent, None)], ..only(silent.clone()) };
    assert_eq!(store.commit(plain).await, Ok(()));
    let long = Instruction { text: "ä".repeat(TEXT_BYTES_MAX / 2), ..instruction(102) };
    let write = Write { instruction: Some(long.clone()), ..asked(&silent, 102) };
    assert_eq!(store.commit(write).await, Ok(()));

    let page = store.timeline(one.home, &ask(9, None)).await.expect("reads");
    let shown: Vec<_> = page.items.iter().map(|row| row.instruction.clone()).collect();
    let excerpt = |of: &Instruction| Some(InstructionExcerpt::of(of));
    assert_eq!(shown, [excerpt(&long), None, excerpt(&instruction(100)), None]);
    let cut = shown[0].as_ref().expect("one");
    assert_eq!((cut.instruction.text.chars().count(), cut.is_cut), (EXCERPT_LEN_MAX, true));
    let second = store.timeline(one.home, &ask(1, page.next.as_deref())).await.expect("reads");
    assert_eq!(second.items.len(), 1, "a page by itself");
    // It is shown as long as it is kept, also without the delivery.
    let other = store.timeline(other.home, &ask(1, None)).await.expect("reads");
    assert_eq!(other.items[0].instruction, excerpt(&instruction(101)));
}

pub async fn an_instruction_is_stored_with_its_delivery_or_not_at_all(world: &dyn World) {
    let store = world.open();
    let before = store_first(&*store).await;
    let issue = store_asked(&*store, &before, 100).await;
    let repeated = Write { instruction: Some(instruction(102)), ..asked(&issue, 100) };
    assert_eq!(store.commit(repeated).await, Err(CommitError::DuplicateDelivery));
    assert_eq!(store.commit(asked(&before, 103)).await, Err(CommitError::Fenced));
    for wrong in [
        Write { delivery: None, ..asked(&issue, 104) },
        Write { issue: None, timeline: vec![], ..asked(&issue, 104) },
    ] {
        let verdict = store.commit(wrong).await;
        assert!(matches!(verdict, Err(CommitError::Failed(_))), "{verdict:?}");
    }
    world.overtake();
    assert_eq!(store.commit(asked(&issue, 105)).await, Err(CommitError::Fenced));
    assert_are(&kept(&*store, issue.home).await, &[100]);
}

pub async fn instructions_outlive_their_deliveries_until_the_issue_is_deleted(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let issue = store_asked(&*store, &issue, 100).await;
    let other = store_first(&*store).await;
    store_asked(&*store, &other, 101).await;
    let ask = PruneAsk {
        now: at(i64::from(i32::MAX)),
        deliveries_before: Some(at(i64::from(i32::MAX))),
        timeline_before: Some(at(i64::from(i32::MAX))),
        deleted_before: None,
        limit: 1_000,
    };
    assert!(store.prune(ask).await.expect("prunes") > 0);
    assert_eq!(store.delivery(&guid(100)).await, Ok(None));
    let ended = running(&issue);
    assert_eq!(store.commit(only(ended.clone())).await, Ok(()));
    assert_are(&kept(&*store, issue.home).await, &[100]);

    let mut deleted = running(&ended);
    deleted.facts.deleted = true;
    assert_eq!(store.commit(only(deleted)).await, Ok(()));
    assert_are(&kept(&*store, issue.home).await, &[]);
    assert_are(&kept(&*store, other.home).await, &[101]);
}

pub async fn a_home_that_gives_way_leaves_its_instructions_to_the_other(world: &dyn World) {
    let store = world.open();
    let (from, to) = (store_first(&*store).await, store_first(&*store).await);
    let from = store_asked(&*store, &from, 100).await;
    store_asked(&*store, &to, 101).await;
    let mut merged = running(&from);
    merged.merged_into = Some(to.home);
    let write = Write { names_go_to: Some(to.home), ..only(merged) };
    assert_eq!(store.commit(write).await, Ok(()));
    assert_are(&kept(&*store, from.home).await, &[]);
    assert_are(&kept(&*store, to.home).await, &[101, 100]);

    // So does the timeline of the home that gave way, and the list of deliveries.
    let timeline = store.timeline(from.home, &ask(9, None)).await.expect("reads");
    let shown = |n| Some(InstructionExcerpt::of(&instruction(n)));
    assert_eq!(timeline.items[0].instruction, shown(100));
    let page = store.deliveries(&DeliveryFilter::default(), &ask(9, None)).await.expect("lists");
    for listed in page.items {
        let n = [100, 101].into_iter().find(|n| guid(*n) == listed.row.id);
        assert_eq!(listed.instruction, n.map(instruction), "{}", listed.row.id);
    }
}
