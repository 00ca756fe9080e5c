//! Effects of the outbox: carried out after a crash, never beside a call, tried again when they
//! fail, and given up at last.

use std::sync::Arc;
use std::time::Duration;

use super::{BenchSetup, EngineBench, SetForward, account, ensure, eventually, named, settled};
use crate::engine::EffectCounts;
use crate::issue::{Cleanup, CleanupAction, Command, Effect, EffectKind};
use crate::store::{CommitError, NewEffect, Store, Write};
use crate::types::{Cause, ExternalId, HomeId, Phase, ProviderName, SandboxId, Timestamp};

const HOME: HomeId = HomeId(1);

fn clean_up(object: &str, sandbox: &str, action: CleanupAction) -> Effect {
    Effect::CleanUp(Cleanup {
        provider: ProviderName::trusted("held"),
        external_id: ExternalId::trusted(object),
        expected: SandboxId::trusted(sandbox),
        action,
    })
}

fn removal(object: &str) -> Effect {
    clean_up(object, "unknown", CleanupAction::Remove)
}

/// Records an effect as a step of that home does.
async fn record(bench: &EngineBench, home: HomeId, effect: Effect) {
    let due_at = Timestamp::from_unix_ms(0);
    let effects = vec![NewEffect { home, effect, due_at }];
    let write = Write { effects, ..Write::default() };
    bench.store.commit(write).await.expect("it is stored");
    bench.engine.parts.registry.actor_parts().effects_recorded.notify_one();
}

fn counts(bench: &EngineBench) -> EffectCounts {
    bench.engine.figures().effects[0]
}

async fn outbox_is_empty(bench: &EngineBench) {
    eventually("the outbox is empty", async || bench.store.outbox() == 0).await;
}

#[actix::test]
async fn an_orphan_is_cleaned_up_and_never_beside_a_call() {
    let bench = EngineBench::new().await;
    let parts = &bench.engine.parts;
    let orphan = bench.provider.put("stray", "unknown");
    bench.provider.hold();
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    eventually("the create is asked", async || bench.provider.count("create") == 1).await;
    record(&bench, HOME, clean_up("stray", "unknown", CleanupAction::Stop)).await;
    eventually("it waits for the slot", async || bench.store.is_delayed()).await;
    assert_eq!(bench.provider.count("stop"), 0, "the create has the slot");
    bench.provider.release();
    settled(&bench, Phase::Running).await;
    eventually("it is stopped", async || parts.executor.cleanup_counts().stopped == 1).await;
    assert!(bench.provider.has(&orphan), "only stopped");
    outbox_is_empty(&bench).await;

    bench.provider.hold();
    record(&bench, HOME, removal("stray")).await;
    eventually("its removal is asked", async || bench.provider.count("delete") == 1).await;
    let stops = bench.provider.count("stop");
    let cause = Cause::Service("test");
    bench.engine.command(&account(), &named("1"), Command::Stop, cause).await.expect("accepted");
    assert_eq!(bench.provider.count("stop"), stops, "a lifecycle call waits for the removal");
    bench.provider.release();
    settled(&bench, Phase::Stopped).await;
    assert!(!bench.provider.has(&orphan));
    assert_eq!(bench.provider.objects(), 1, "the recorded one is untouched");
    // Removed already: there is nothing left to do.
    record(&bench, HOME, removal("stray")).await;
    outbox_is_empty(&bench).await;
    assert_eq!(parts.executor.cleanup_counts().removed, 2);
    let expected =
        EffectCounts { kind: EffectKind::CleanUp, pending: 0, done: 3, retried: 0, failed: 0 };
    eventually("all are counted", async || counts(&bench) == expected).await;
}

#[actix::test]
async fn an_effect_from_before_a_crash_is_carried_out_after_it() {
    let bench = EngineBench::new().await;
    let orphan = bench.provider.put("stray", "unknown");
    bench.provider.hold();
    record(&bench, HOME, removal("stray")).await;
    eventually("its removal is asked", async || bench.provider.count("delete") == 1).await;
    let (store, provider) = bench.crash();
    let bench = EngineBench::on(store, Arc::default()).await;
    outbox_is_empty(&bench).await;
    assert_eq!(bench.provider.count("delete"), 1, "asked again, of what is gone by then");
    assert!(provider.has(&orphan), "the first call never got further");
}

#[actix::test]
async fn an_object_that_has_become_the_issues_sandbox_is_left_alone() {
    let bench = EngineBench::new().await;
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    settled(&bench, Phase::Running).await;
    let object = bench.provider.all().remove(0);
    let sandbox = object.labels.expect("it is ours").sandbox;
    for action in [CleanupAction::Stop, CleanupAction::Remove] {
        let effect = clean_up(object.external_id.as_str(), sandbox.as_str(), action);
        record(&bench, HOME, effect).await;
        outbox_is_empty(&bench).await;
    }
    assert_eq!((bench.provider.count("stop"), bench.provider.count("delete")), (0, 0));
}

#[actix::test]
async fn an_effect_that_fails_is_tried_again_and_given_up_at_last() {
    let clock = Arc::new(SetForward::default());
    let setup = BenchSetup { clock: Some(Arc::clone(&clock)), ..BenchSetup::default() };
    let bench = EngineBench::new_with(setup).await;
    let orphan = bench.provider.put("stray", "unknown");
    bench.provider.panic_next();
    record(&bench, HOME, removal("stray")).await;
    eventually("a try has failed", async || counts(&bench).retried == 1).await;
    assert!(bench.provider.has(&orphan));
    clock.set_forward(Duration::from_secs(2));
    outbox_is_empty(&bench).await;
    assert!(!bench.provider.has(&orphan), "the second try removed it");

    bench.provider.put("another", "unknown");
    bench.provider.panic_next();
    record(&bench, HOME, removal("another")).await;
    for tries in 1..10 {
        eventually("a try has failed", async || counts(&bench).retried == 1 + tries).await;
        bench.provider.panic_next();
        clock.set_forward(Duration::from_secs(300));
    }
    eventually("it is given up", async || counts(&bench).failed == 1).await;
    assert_eq!(bench.store.outbox(), 0);
    assert_eq!(bench.provider.count("delete"), 2 + 10);
}

#[actix::test]
async fn an_effect_of_an_unknown_provider_is_given_up_at_once() {
    let bench = EngineBench::new().await;
    let Effect::CleanUp(cleanup) = removal("stray") else { panic!("a clean-up") };
    let provider = ProviderName::trusted("left out of the configuration");
    record(&bench, HOME, Effect::CleanUp(Cleanup { provider, ..cleanup })).await;
    eventually("it is given up", async || counts(&bench).failed == 1).await;
    assert_eq!(bench.store.outbox(), 0);
}

#[actix::test]
async fn effects_of_one_home_follow_each_other_and_delay_no_other_home() {
    let bench = EngineBench::new().await;
    for object in ["a", "b", "c"] {
        bench.provider.put(object, "unknown");
    }
    bench.provider.hold();
    record(&bench, HOME, removal("a")).await;
    record(&bench, HOME, removal("b")).await;
    record(&bench, HomeId(2), removal("c")).await;
    eventually("both homes' first are asked", async || bench.provider.count("delete") == 2).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.provider.count("delete"), 2, "the second one waits for the first");
    bench.provider.release();
    outbox_is_empty(&bench).await;
    assert_eq!(bench.provider.objects(), 0);
}

#[actix::test]
async fn an_effect_whose_end_cannot_be_recorded_is_repeated_without_harm() {
    let bench = EngineBench::new().await;
    bench.provider.put("stray", "unknown");
    bench.store.fail_next_finish();
    record(&bench, HOME, removal("stray")).await;
    outbox_is_empty(&bench).await;
    assert_eq!(bench.provider.count("delete"), 2);
    assert_eq!(counts(&bench).done, 1);
}

#[actix::test]
async fn nothing_is_carried_out_before_it_is_durable() {
    let bench = EngineBench::new().await;
    bench.provider.put("stray", "unknown");
    bench.store.fail_next(CommitError::Failed("the disk is full".into()));
    let effects = vec![NewEffect {
        home: HOME,
        effect: removal("stray"),
        due_at: Timestamp::from_unix_ms(0),
    }];
    let write = Write { effects, ..Write::default() };
    assert!(bench.store.commit(write).await.is_err());
    bench.engine.parts.registry.actor_parts().effects_recorded.notify_one();
    record(&bench, HomeId(2), removal("gone")).await;
    outbox_is_empty(&bench).await;
    assert_eq!((bench.provider.count("delete"), bench.provider.objects()), (1, 1));
}
