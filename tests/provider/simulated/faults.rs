//! Each fault does what it says, and no more.

use std::sync::atomic::Ordering;
use std::time::Duration;

use issuebox::clock::Clock;
use issuebox::sandbox::simulated::SimulatedFaults;
use issuebox::sandbox::{CreateSpec, Lifecycle, Object, ProviderError, TargetCall};
use issuebox::types::{InstanceId, ObjectState, SandboxId};

use super::world::{World, is_broken, is_unavailable, key, present};

#[tokio::test(start_paused = true)]
async fn a_failing_create_makes_nothing() {
    let world = World::new();
    let provider = world.open();
    provider.set_faults(SimulatedFaults { fail_create: 0.25, ..SimulatedFaults::default() });
    world.dice.permille.store(250, Ordering::Relaxed);
    assert!(is_broken(provider.create(world.spec(7, "s1")).await));
    assert_eq!(world.files().len(), 0);
    world.dice.permille.store(251, Ordering::Relaxed);
    assert!(provider.create(world.spec(7, "s1")).await.is_ok(), "only as often as is said");

    provider.set_faults(SimulatedFaults { fail_create: 1.0, ..SimulatedFaults::default() });
    world.dice.permille.store(1000, Ordering::Relaxed);
    assert!(is_broken(provider.create(world.spec(8, "s2")).await), "1 is always");
    provider.set_faults(SimulatedFaults::default());
    world.dice.permille.store(0, Ordering::Relaxed);
    assert!(provider.create(world.spec(8, "s2")).await.is_ok(), "0 is never");
}

#[tokio::test(start_paused = true)]
async fn the_first_creates_fail_as_often_as_is_said() {
    let world = World::new();
    let faults = SimulatedFaults { fail_first_n: 2, ..SimulatedFaults::default() };
    let provider = world.open_with(true, faults);
    for _ in 0..2 {
        assert!(is_broken(provider.create(world.spec(7, "s1")).await));
    }
    assert_eq!(world.files().len(), 0);
    assert!(provider.create(world.spec(7, "s1")).await.is_ok());
    provider.set_faults(faults);
    assert!(is_broken(provider.create(world.spec(8, "s2")).await), "counted anew when set");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_the_object() {
    let world = World::new();
    let provider = world.open();
    provider.set_faults(SimulatedFaults { lose_response: 1.0, ..SimulatedFaults::default() });
    assert!(is_unavailable(provider.create(world.spec(7, "s1")).await));
    let found = provider.find(key(7)).await.expect("finds");
    assert_eq!(found.len(), 1);
    let labels = found[0].labels.as_ref().expect("are ours");
    assert_eq!(labels.sandbox, SandboxId::trusted("s1"));
    assert_eq!(world.results(), ["create lost", "get ok"]);
}

#[tokio::test(start_paused = true)]
async fn every_call_errors_while_it_is_unavailable() {
    let world = World::new();
    let provider = world.open();
    let object = provider.create(world.spec(7, "s1")).await.expect("is made");
    let before = world.files();
    provider.set_faults(SimulatedFaults { unavailable: true, ..SimulatedFaults::default() });
    let call = || world.call(&object, "s1");
    assert!(is_unavailable(provider.create(world.spec(8, "s2")).await));
    assert!(is_unavailable(provider.find(key(7)).await));
    assert!(is_unavailable(provider.list(InstanceId::trusted("here")).await));
    assert!(is_unavailable(provider.start(call()).await));
    assert!(is_unavailable(provider.stop(call()).await));
    assert!(is_unavailable(provider.delete(call()).await));
    assert!(provider.health().await.trouble.is_some());
    assert_eq!(world.files(), before);
    provider.set_faults(SimulatedFaults::default());
    assert_eq!(provider.find(key(7)).await, Ok(vec![object]));
    assert_eq!(provider.health().await.trouble, None);
}

#[tokio::test(start_paused = true)]
async fn steps_take_as_long_as_is_said() {
    let world = World::new();
    let provider = world.open();
    provider.set_faults(SimulatedFaults {
        create_delay_ms: 1_000,
        stop_delay_ms: 200,
        delete_delay_ms: 30,
        ..SimulatedFaults::default()
    });
    let begun = world.clock.now();
    let object = provider.create(world.spec(7, "s1")).await.expect("is made");
    assert_eq!(world.clock.now().since(begun), Duration::from_millis(1_000));
    provider.stop(world.call(&object, "s1")).await.expect("is stopped");
    assert_eq!(world.clock.now().since(begun), Duration::from_millis(1_200));
    provider.delete(world.call(&object, "s1")).await.expect("is removed");
    assert_eq!(world.clock.now().since(begun), Duration::from_millis(1_230));

    let object = provider.create(world.spec(7, "s2")).await.expect("is made");
    let begun = world.clock.now();
    let forced = || TargetCall { force: true, ..world.call(&object, "s2") };
    provider.stop(forced()).await.expect("is stopped");
    provider.delete(forced()).await.expect("is removed");
    assert_eq!(world.clock.now(), begun, "force does not wait");
}

#[tokio::test(start_paused = true)]
async fn a_create_that_is_given_up_never_lands() {
    let world = World::new();
    let provider = world.open();
    provider.set_faults(SimulatedFaults { create_delay_ms: 5_000, ..SimulatedFaults::default() });
    let begun = world.clock.now();
    let deadline = begun.after(Duration::from_secs(2));
    let late = provider.create(CreateSpec { deadline, ..world.spec(7, "s1") }).await;
    assert!(is_unavailable(late));
    assert_eq!(world.clock.now(), deadline, "it gives up at its deadline");

    let dropped = provider.create(world.spec(7, "s1"));
    assert!(tokio::time::timeout(Duration::from_secs(1), dropped).await.is_err());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.files().len(), 0);
    assert_eq!(provider.descriptor().late_effect_window, Duration::ZERO, "as it says");
    assert_eq!(world.results(), ["create unavailable", "create dropped"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_being_destroyed_is_still_there() {
    let world = World::new();
    let provider = world.open();
    let object = provider.create(world.spec(7, "s1")).await.expect("is made");
    provider.set_faults(SimulatedFaults { delete_delay_ms: 1_000, ..SimulatedFaults::default() });
    let destroying = Object { state: ObjectState::Destroying, ..object.clone() };
    let call = || world.call(&object, "s1");
    let watch = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(world.files()[0]["state"], "destroying");
        assert_eq!(provider.find(key(7)).await, Ok(vec![destroying.clone()]));
        let again = provider.create(world.spec(7, "s1")).await;
        assert_eq!(again, Err(present(&destroying)), "not even the same sandbox comes back");
        let next = provider.create(world.spec(7, "s2")).await;
        assert_eq!(next, Err(present(&destroying)));
        assert!(matches!(provider.start(call()).await, Err(ProviderError::Refused(_))));
        assert!(matches!(provider.stop(call()).await, Err(ProviderError::Refused(_))));
    };
    let (deleted, ()) = tokio::join!(provider.delete(call()), watch);
    assert_eq!(deleted, Ok(()));
    assert_eq!(provider.find(key(7)).await, Ok(vec![]));

    // Given up in the middle, it stays so until somebody deletes it again.
    let object = provider.create(world.spec(7, "s3")).await.expect("is made");
    let call = || world.call(&object, "s3");
    let short =
        TargetCall { deadline: world.clock.now().after(Duration::from_millis(10)), ..call() };
    assert!(is_unavailable(provider.delete(short).await));
    assert_eq!(world.files()[0]["state"], "destroying");
    assert_eq!(provider.delete(call()).await, Ok(()));
    assert_eq!(world.files().len(), 0);
}
