//! The sixth part of the store's contract: the outbox of effects.
//!
//! As in `store_suite`, each function gets a fresh world.

use issuebox::issue::{Cleanup, CleanupAction, Effect, EffectKind};
use issuebox::store::{
    CommitError, EffectDelay, EffectId, EffectRow, NewEffect, PruneAsk, Store, Write,
};
use issuebox::types::{ExternalId, HomeId, ProviderName, SandboxId, Timestamp};

use crate::store_issues::{at, delivery, only, running};
use crate::store_suite::{World, store_first};

/// Later than anything is due.
const LATE: i64 = 1_000_000;

fn clean_up(object: &str, action: CleanupAction) -> Effect {
    Effect::CleanUp(Cleanup {
        provider: ProviderName::trusted("simulated"),
        external_id: ExternalId::trusted(format!("{object} \"'\u{1F600}")),
        expected: SandboxId::trusted("0190-gone"),
        action,
    })
}

fn removal(object: &str) -> Effect {
    clean_up(object, CleanupAction::Remove)
}

fn new(home: i64, effect: Effect, due: i64) -> NewEffect {
    NewEffect { home: HomeId(home), effect, due_at: at(due) }
}

/// Records effects alone, as the step of a home does whose state stays as it is.
async fn record(store: &dyn Store, effects: Vec<NewEffect>) {
    assert_eq!(store.commit(Write { effects, ..Write::default() }).await, Ok(()));
}

async fn due(store: &dyn Store, now: i64) -> Vec<EffectRow> {
    store.effects(at(now), 100).await.expect("reads")
}

/// The homes and effects of rows, in their order.
fn parts(rows: &[EffectRow]) -> Vec<(i64, Effect)> {
    rows.iter().map(|row| (row.home.0, row.effect.clone())).collect()
}

fn delay(due: i64, tries: u32) -> EffectDelay {
    EffectDelay { due_at: at(due), tries, reason: "no answer in time".into() }
}

async fn next(store: &dyn Store, now: i64) -> Option<Timestamp> {
    store.next_effect(at(now)).await.expect("reads")
}

pub async fn an_effect_is_recorded_with_its_state_or_not_at_all(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let home = issue.home.0;
    let next = running(&issue);
    let effects = vec![new(home, removal("a"), 5)];
    let write = Write { effects, ..only(next.clone()) };

    let repeated = Write { delivery: Some(delivery(home, None)), ..write.clone() };
    assert_eq!(store.commit(repeated).await, Err(CommitError::DuplicateDelivery));
    let fenced = Write { issue: Some(issue.clone()), ..write.clone() };
    assert_eq!(store.commit(fenced).await, Err(CommitError::Fenced));
    assert_eq!(due(&*store, LATE).await, []);

    assert_eq!(store.commit(write).await, Ok(()));
    let rows = due(&*store, LATE).await;
    assert_eq!(parts(&rows), [(home, removal("a"))]);
    assert_eq!((rows[0].due_at, rows[0].tries), (at(5), 0));
    assert_eq!(store.load(issue.home).await, Ok(Some(next)));

    // An effect of a home that is not stored needs no state.
    record(&*store, vec![new(999, removal("b"), 6)]).await;
    assert_eq!(due(&*store, LATE).await.len(), 2);
    assert_eq!(store.load(HomeId(999)).await, Ok(None));
}

pub async fn effects_of_a_home_come_one_after_the_other(world: &dyn World) {
    let store = world.open();
    let effects = vec![
        new(1, removal("first"), 30),
        new(1, clean_up("second", CleanupAction::Stop), 10),
        new(2, removal("other"), 20),
        new(3, removal("third"), 20),
    ];
    record(&*store, effects).await;
    assert_eq!(next(&*store, 0).await, Some(at(20)));
    assert_eq!(next(&*store, 20).await, Some(at(30)));
    assert_eq!(next(&*store, 30).await, None);
    assert_eq!(due(&*store, 19).await, [], "the second of a home waits for the first");
    assert_eq!(parts(&due(&*store, 20).await), [(2, removal("other")), (3, removal("third"))]);
    let rows = due(&*store, 30).await;
    let expected = [(2, removal("other")), (3, removal("third")), (1, removal("first"))];
    assert_eq!(parts(&rows), expected, "the earliest due comes first");
    assert_eq!(store.effects(at(30), 1).await, Ok(rows[..1].to_vec()));

    assert_eq!(store.finish_effect(rows[2].id).await, Ok(()));
    assert_eq!(next(&*store, 0).await, Some(at(10)));
    let second = parts(&due(&*store, 10).await);
    assert_eq!(second, [(1, clean_up("second", CleanupAction::Stop))]);
}

pub async fn a_newer_effect_of_the_same_key_takes_the_place_of_the_older(world: &dyn World) {
    let store = world.open();
    let stop = || clean_up("a", CleanupAction::Stop);
    record(&*store, vec![new(1, stop(), 10), new(1, removal("b"), 10)]).await;
    let before = due(&*store, LATE).await.remove(0);
    assert_eq!(store.delay_effect(before.id, delay(50, 3)).await, Ok(()));
    record(&*store, vec![new(1, stop(), 20)]).await;
    let same = due(&*store, LATE).await.remove(0);
    let expected = EffectRow { due_at: at(50), tries: 3, ..before.clone() };
    assert_eq!(same, expected, "the same effect once more changes nothing");

    record(&*store, vec![new(1, removal("a"), 30)]).await;
    let replaced = due(&*store, LATE).await.remove(0);
    let id = EffectId { revision: before.id.revision + 1, ..before.id };
    let effect = removal("a");
    assert_eq!(replaced, EffectRow { id, effect, due_at: at(30), tries: 0, ..before.clone() });
    // What is said of the older one does not reach it.
    assert_eq!(store.finish_effect(before.id).await, Ok(()));
    assert_eq!(store.delay_effect(before.id, delay(90, 9)).await, Ok(()));
    assert_eq!(due(&*store, LATE).await, std::slice::from_ref(&replaced));
    // Nor does another home's.
    record(&*store, vec![new(2, stop(), 40)]).await;
    assert_eq!(due(&*store, LATE).await[0], replaced);
    assert_eq!(store.effect_counts().await, Ok(vec![(EffectKind::CleanUp, 3)]));
}

pub async fn an_effect_stays_until_it_is_done(world: &dyn World) {
    let store = world.open();
    assert_eq!(store.effect_counts().await, Ok(vec![]));
    assert_eq!(next(&*store, 0).await, None);
    record(&*store, vec![new(1, removal("a"), 10), new(2, removal("b"), 11)]).await;
    let id = due(&*store, LATE).await[0].id;
    assert_eq!(store.delay_effect(id, delay(60, 1)).await, Ok(()));
    assert_eq!(parts(&due(&*store, 59).await), [(2, removal("b"))]);
    let forever = Some(at(i64::from(i32::MAX)));
    let (deliveries_before, timeline_before) = (forever, forever);
    let now = at(i64::from(i32::MAX));
    let deleted_before = None;
    let ask = PruneAsk { now, deliveries_before, timeline_before, deleted_before, limit: 1_000 };
    assert_eq!(store.prune(ask).await, Ok(0));
    drop(store);

    let store = world.open();
    let rows = due(&*store, LATE).await;
    assert_eq!(parts(&rows), [(2, removal("b")), (1, removal("a"))]);
    assert_eq!((rows[1].id, rows[1].due_at, rows[1].tries), (id, at(60), 1));
    for row in &rows {
        assert_eq!(store.finish_effect(row.id).await, Ok(()));
        assert_eq!(store.finish_effect(row.id).await, Ok(()), "once more does no harm");
    }
    assert_eq!((due(&*store, LATE).await, next(&*store, 0).await), (vec![], None));
    // A number is never given twice: what is late about an old effect misses the new ones.
    record(&*store, vec![new(1, removal("a"), 10)]).await;
    let number = due(&*store, LATE).await[0].id.number;
    assert!(rows.iter().all(|row| row.id.number < number), "{number}");
}

pub async fn a_newer_epoch_fences_the_outbox(world: &dyn World) {
    let store = world.open();
    record(&*store, vec![new(1, removal("a"), 10)]).await;
    let rows = due(&*store, LATE).await;
    world.overtake();
    let write = Write { effects: vec![new(1, removal("b"), 10)], ..Write::default() };
    assert_eq!(store.commit(write).await, Err(CommitError::Fenced));
    assert_eq!(store.delay_effect(rows[0].id, delay(60, 1)).await, Err(CommitError::Fenced));
    assert_eq!(store.finish_effect(rows[0].id).await, Err(CommitError::Fenced));
    assert_eq!(due(&*store, LATE).await, rows);
}
