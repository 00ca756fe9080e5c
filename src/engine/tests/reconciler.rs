//! Sweeps: what is done from outside is found, and what only looks like it is not acted on.

use std::sync::Arc;
use std::time::Duration;

use super::provider::{HeldProvider, TestListing, TestOutage};
use super::store::HeldStore;
use super::{BenchSetup, EngineBench, SetForward, account, ensure, eventually, named, template};
use crate::clock::{Clock, SystemClock};
use crate::engine::{BreakerState, DriftKind, EngineError, EnsureIssue, Remedy, WaitFor};
use crate::issue::Command;
use crate::issue::commit::CommandRefusal;
use crate::issue::event::{FAST_ORPHAN_MAX, QUARANTINE};
use crate::issue::state::Step;
use crate::sandbox::{Labels, Object};
use crate::store::{Orphan, Store};
use crate::types::{
    Cause, ExternalId, FailureCode, Generation, HomeId, InstanceId, IssueId, Mode, ObjectName,
    ObjectState, Phase, ProviderName, Sandbox, SandboxId, TemplateName,
};

const PERSON: Cause = Cause::Service("test");

async fn running(bench: &EngineBench, issue: &str) -> Sandbox {
    bench.engine.ensure(&account(), ensure(issue)).await.expect("it is answered");
    reaches(bench, issue, Phase::Running).await
}

async fn reaches(bench: &EngineBench, issue: &str, phase: Phase) -> Sandbox {
    let until = WaitFor::Phase(phase);
    let at_most = Duration::from_secs(10);
    let waited = bench.engine.wait(&account(), &named(issue), until, at_most).await;
    let sandbox = waited.expect("it is known").sandbox.expect("a sandbox");
    assert_eq!(sandbox.phase, Some(phase), "{}", sandbox.reason);
    sandbox
}

async fn now(bench: &EngineBench, issue: &str) -> Sandbox {
    let at_most = Duration::ZERO;
    let waited = bench.engine.wait(&account(), &named(issue), WaitFor::Settled, at_most).await;
    waited.expect("it is known").sandbox.expect("a sandbox")
}

fn failure(sandbox: &Sandbox) -> Option<FailureCode> {
    sandbox.failure.as_ref().map(|failure| failure.code)
}

/// Sweeps, and shows what is left as `kind id`.
async fn swept(bench: &EngineBench) -> Vec<String> {
    bench.engine.sweep_now().await;
    let item = |item: crate::engine::DriftItem| format!("{} {}", item.kind.as_str(), item.id);
    bench.engine.drift().items.into_iter().map(item).collect()
}

async fn remedy(bench: &EngineBench, id: &str, remedy: Remedy) -> Result<(), EngineError> {
    bench.engine.remedy(id, remedy, PERSON).await.map(drop)
}

/// An object that this engine did not make.
fn object(external_id: &str, home: i64, generation: u32, mode: Mode) -> Object {
    let labels = Labels {
        instance: InstanceId::trusted("test-instance"),
        account: account(),
        home: HomeId(home),
        issue: IssueId::from_github(900),
        sandbox: SandboxId::trusted(format!("sandbox-of-{external_id}")),
        generation: Generation(generation),
        mode,
    };
    Object {
        external_id: ExternalId::trusted(external_id),
        name: ObjectName::trusted(external_id),
        labels: Some(labels),
        state: ObjectState::Running,
    }
}

fn state_of(bench: &EngineBench, external_id: &str) -> Option<ObjectState> {
    let all = bench.provider.all();
    all.iter().find(|o| o.external_id.as_str() == external_id).map(|o| o.state.clone())
}

/// As if a sweep had first seen this object so long ago.
async fn seen_ago(bench: &EngineBench, object: &Object, ago: Duration) {
    let labels = object.labels.clone().expect("it is labelled");
    let now = SystemClock.now().unix_ms();
    let ago = i64::try_from(ago.as_millis()).expect("a short time");
    let orphan = Orphan {
        provider: ProviderName::trusted("held"),
        external_id: object.external_id.clone(),
        object_name: object.name.clone(),
        sandbox: labels.sandbox,
        home: labels.home,
        issue: labels.issue,
        generation: labels.generation,
        mode: labels.mode,
        first_seen_at: crate::types::Timestamp::from_unix_ms(now - ago),
    };
    bench.store.put_orphans(vec![orphan]).await.expect("it is kept");
}

#[actix::test]
async fn what_is_killed_or_removed_from_outside_fails_and_what_we_stopped_does_not() {
    let bench = EngineBench::new().await;
    let killed = running(&bench, "1").await.external_id.expect("it is up");
    let removed = running(&bench, "2").await.external_id.expect("it is up");
    running(&bench, "3").await;
    let stop = bench.engine.command(&account(), &named("3"), Command::Stop, PERSON).await;
    stop.expect("it is accepted");
    reaches(&bench, "3", Phase::Stopped).await;
    running(&bench, "4").await;
    assert_eq!(swept(&bench).await, Vec::<String>::new(), "nothing disagrees yet");
    bench.provider.outside(|objects| {
        objects.retain(|o| o.external_id != removed);
        let killed = objects.iter_mut().find(|o| o.external_id == killed);
        killed.expect("it is there").state = ObjectState::Stopped;
    });
    let looks = bench.provider.count("find");
    assert_eq!(swept(&bench).await, Vec::<String>::new(), "the records say what is true");
    assert_eq!(failure(&now(&bench, "1").await), Some(FailureCode::KilledOutside));
    assert_eq!(failure(&now(&bench, "2").await), Some(FailureCode::ObjectLost));
    assert_eq!(now(&bench, "3").await.phase, Some(Phase::Stopped));
    assert_eq!(now(&bench, "4").await.phase, Some(Phase::Running));
    assert_eq!(bench.provider.count("find") - looks, 2, "only what disagreed is looked at again");
}

#[actix::test]
async fn a_sweep_looks_until_no_stop_of_unknown_outcome_can_be_why_an_object_is_down() {
    let clock = Arc::<SetForward>::default();
    let setup = BenchSetup { clock: Some(Arc::clone(&clock)), ..BenchSetup::default() };
    let bench = EngineBench::new_with(setup).await;
    running(&bench, "1").await;
    bench.provider.panic_next();
    let stop = bench.engine.command(&account(), &named("1"), Command::Stop, PERSON).await;
    stop.expect("it is accepted");
    reaches(&bench, "1", Phase::Stopped).await;
    let object = running(&bench, "1").await.external_id.expect("it is up");
    let looks = bench.provider.count("find");
    assert_eq!(swept(&bench).await, Vec::<String>::new(), "nothing disagrees");
    assert_eq!(bench.provider.count("find") - looks, 1, "the first stop may still come");
    clock.set_forward(Duration::from_secs(60));
    assert_eq!(swept(&bench).await, Vec::<String>::new());
    assert_eq!(swept(&bench).await, Vec::<String>::new());
    assert_eq!(bench.provider.count("find") - looks, 2, "a look has shown that it did not");
    bench.provider.outside(|objects| {
        let own = objects.iter_mut().find(|o| o.external_id == object);
        own.expect("it is there").state = ObjectState::Stopped;
    });
    assert_eq!(swept(&bench).await, Vec::<String>::new());
    assert_eq!(failure(&now(&bench, "1").await), Some(FailureCode::KilledOutside));
}

#[actix::test]
async fn a_stale_or_partial_list_decides_nothing() {
    let bench = EngineBench::new().await;
    for issue in ["1", "2", "3"] {
        running(&bench, issue).await;
    }
    let mut stale = bench.provider.all();
    stale.truncate(2);
    stale[0].state = ObjectState::Stopped;
    let mut gone = stale[1].clone();
    gone.external_id = ExternalId::trusted("gone-meanwhile");
    stale.push(gone);
    for list in [Vec::new(), stale] {
        bench.provider.list_as(TestListing::Fixed(list));
        assert_eq!(swept(&bench).await, Vec::<String>::new());
        for issue in ["1", "2", "3"] {
            assert_eq!(now(&bench, issue).await.phase, Some(Phase::Running), "issue {issue}");
        }
        assert_eq!(bench.provider.objects(), 3);
        assert_eq!(bench.provider.count("stop") + bench.provider.count("delete"), 0);
    }
}

#[actix::test]
async fn too_much_at_once_is_not_believed_until_a_person_says_so() {
    let bench = EngineBench::new().await;
    for issue in ["1", "2", "3", "4"] {
        running(&bench, issue).await;
    }
    bench.provider.outside(Vec::clear);
    let looks = bench.provider.count("find");
    let left = swept(&bench).await;
    assert_eq!(left.len(), 5, "{left:?}");
    assert_eq!(left[0], "mass_loss mass_loss:held");
    assert_eq!(left[1], "object_lost held:object-1");
    assert_eq!(now(&bench, "1").await.phase, Some(Phase::Running));
    assert_eq!(bench.provider.count("find"), looks);
    assert_eq!(bench.engine.drift_alarms().len(), 1);
    // One of them without the others.
    remedy(&bench, "held:object-1", Remedy::Remove).await.expect("it is carried out");
    assert_eq!(failure(&now(&bench, "1").await), Some(FailureCode::ObjectLost));
    assert_eq!(now(&bench, "2").await.phase, Some(Phase::Running));
    assert_eq!(bench.engine.drift().total, 4);
    remedy(&bench, "mass_loss:held", Remedy::Adopt).await.expect("it is carried out");
    assert_eq!(swept(&bench).await, Vec::<String>::new());
    for issue in ["2", "3", "4"] {
        assert_eq!(failure(&now(&bench, issue).await), Some(FailureCode::ObjectLost));
    }
    let again = remedy(&bench, "mass_loss:held", Remedy::Adopt).await;
    assert_eq!(again, Err(EngineError::Refused(CommandRefusal::ObservationOutdated)));
}

#[actix::test]
async fn what_no_record_ever_knew_is_stopped_and_kept_for_a_day() {
    let bench = EngineBench::new().await;
    let orphan = object("orphan", 70, 3, Mode::Strong);
    bench.provider.outside(|objects| objects.push(orphan.clone()));
    assert_eq!(swept(&bench).await, ["quarantined held:orphan"]);
    eventually("it is stopped", async || state_of(&bench, "orphan") == Some(ObjectState::Stopped))
        .await;
    assert_eq!(swept(&bench).await, ["quarantined held:orphan"]);
    assert_eq!(bench.provider.count("delete"), 0);
    assert!(bench.store.next_home() > HomeId(70), "its home is given to no other issue");
    let since = bench.store.orphans().await.expect("they are kept")[0].first_seen_at;
    bench
        .store
        .remove_orphans(&[(ProviderName::trusted("held"), orphan.external_id.clone())])
        .await
        .expect("it is forgotten");
    seen_ago(&bench, &orphan, QUARANTINE).await;
    assert!(bench.engine.drift().items[0].since >= since);
    swept(&bench).await;
    eventually("its day is over", async || state_of(&bench, "orphan").is_none()).await;
    assert_eq!(swept(&bench).await, Vec::<String>::new());
    assert_eq!(bench.store.orphans().await.expect("they are kept"), Vec::new());
}

#[actix::test]
async fn a_person_adopts_or_removes_what_no_record_knew() {
    let bench = EngineBench::new().await;
    let mut wanted = object("wanted", 70, 3, Mode::Strong);
    wanted.state = ObjectState::Stopped;
    let unwanted = object("unwanted", 71, 1, Mode::Strong);
    bench.provider.outside(|objects| objects.extend([wanted, unwanted]));
    let left = swept(&bench).await;
    assert_eq!(left, ["quarantined held:wanted", "quarantined held:unwanted"]);
    remedy(&bench, "held:wanted", Remedy::Adopt).await.expect("it is carried out");
    let adopted = now(&bench, "900").await;
    assert_eq!(adopted.phase, Some(Phase::Stopped));
    assert_eq!((adopted.generation, adopted.home), (Generation(3), HomeId(70)));
    assert_eq!(adopted.template, template().name);
    // The other carries an issue that has a home now: it would be its second sandbox.
    let second = remedy(&bench, "held:unwanted", Remedy::Adopt).await;
    assert_eq!(second, Err(EngineError::IssueElsewhere(IssueId::from_github(900))));
    eventually("nothing is being done to it", async || {
        state_of(&bench, "unwanted") == Some(ObjectState::Stopped)
    })
    .await;
    swept(&bench).await;
    remedy(&bench, "held:unwanted", Remedy::Remove).await.expect("it is carried out");
    eventually("it is removed", async || state_of(&bench, "unwanted").is_none()).await;
    assert_eq!(swept(&bench).await, Vec::<String>::new());
    assert_eq!(bench.provider.objects(), 1);
}

#[actix::test]
async fn what_the_store_knows_as_deleted_is_removed() {
    let bench = EngineBench::new().await;
    running(&bench, "1").await;
    let copy = bench.provider.all();
    let delete = bench.engine.command(&account(), &named("1"), Command::Delete, PERSON).await;
    delete.expect("it is accepted");
    eventually("it is gone", async || {
        bench
            .engine
            .wait(&account(), &named("1"), WaitFor::Absent, Duration::ZERO)
            .await
            .is_ok_and(|waited| waited.settled)
    })
    .await;
    bench.provider.outside(|objects| objects.extend(copy));
    assert_eq!(swept(&bench).await, ["orphan held:object-1"]);
    eventually("it is removed", async || bench.provider.objects() == 0).await;
    assert_eq!(swept(&bench).await, Vec::<String>::new());
}

#[actix::test]
async fn one_of_fast_mode_without_a_record_has_its_minute() {
    let bench = EngineBench::new().await;
    let fast = object("fast", 70, 1, Mode::Fast);
    bench.provider.outside(|objects| objects.push(fast.clone()));
    seen_ago(&bench, &fast, FAST_ORPHAN_MAX / 2).await;
    assert_eq!(swept(&bench).await, ["orphan held:fast"]);
    assert_eq!(state_of(&bench, "fast"), Some(ObjectState::Running));
    assert_eq!(bench.provider.count("stop") + bench.provider.count("delete"), 0);
    let key = (ProviderName::trusted("held"), fast.external_id.clone());
    bench.store.remove_orphans(&[key]).await.expect("it is forgotten");
    seen_ago(&bench, &fast, FAST_ORPHAN_MAX).await;
    swept(&bench).await;
    eventually("it is removed", async || bench.provider.objects() == 0).await;
}

#[actix::test]
async fn two_objects_for_one_issue_fail_closed_and_both_stay() {
    let bench = EngineBench::new().await;
    running(&bench, "1").await;
    bench.provider.outside(|objects| {
        let mut twin = objects[0].clone();
        twin.external_id = ExternalId::trusted("twin");
        objects.push(twin);
    });
    // The failed sandbox's own object runs, too.
    let both = ["started_outside held:object-1", "duplicate held:twin"];
    assert_eq!(swept(&bench).await, both);
    assert_eq!(failure(&now(&bench, "1").await), Some(FailureCode::DuplicateObject));
    assert_eq!(swept(&bench).await, both);
    assert_eq!(bench.provider.objects(), 2);
    assert_eq!(bench.engine.drift_alarms().len(), 1);
    remedy(&bench, "held:twin", Remedy::Remove).await.expect("it is carried out");
    eventually("the other one is gone", async || bench.provider.objects() == 1).await;
    assert_eq!(swept(&bench).await, both[..1]);
    assert_eq!(state_of(&bench, "object-1"), Some(ObjectState::Running));
    remedy(&bench, both[0].trim_start_matches("started_outside "), Remedy::Adopt)
        .await
        .expect("it is retried");
    reaches(&bench, "1", Phase::Running).await;
    assert_eq!(swept(&bench).await, Vec::<String>::new());
}

#[actix::test]
async fn another_installations_objects_are_never_touched_nor_shown() {
    let bench = EngineBench::new().await;
    running(&bench, "1").await;
    bench.provider.outside(|objects| {
        let mut theirs = object("theirs", 1, 9, Mode::Strong);
        theirs.name = objects[0].name.clone();
        theirs.labels.as_mut().expect("it is labelled").instance = InstanceId::trusted("other");
        let mut unlabelled = theirs.clone();
        unlabelled.external_id = ExternalId::trusted("unlabelled");
        unlabelled.labels = None;
        objects.extend([theirs, unlabelled]);
    });
    assert_eq!(swept(&bench).await, Vec::<String>::new());
    assert_eq!(now(&bench, "1").await.phase, Some(Phase::Running));
    assert_eq!(state_of(&bench, "theirs"), Some(ObjectState::Running));
    assert_eq!(state_of(&bench, "unlabelled"), Some(ObjectState::Running));
}

#[actix::test]
async fn one_broken_issue_does_not_hold_up_the_rest() {
    let bench = EngineBench::new().await;
    for issue in ["1", "2"] {
        running(&bench, issue).await;
    }
    let first = now(&bench, "1").await.home.0;
    bench.provider.outside(Vec::clear);
    bench.provider.break_home(first);
    assert_eq!(swept(&bench).await, ["object_lost held:object-1"]);
    assert_eq!(now(&bench, "1").await.phase, Some(Phase::Running));
    assert_eq!(failure(&now(&bench, "2").await), Some(FailureCode::ObjectLost));
    let item = &bench.engine.drift().items[0];
    assert!(item.next.contains("it is set to break"), "{}", item.next);
}

#[actix::test]
async fn one_providers_trouble_does_not_hold_up_another() {
    let store = Arc::new(HeldStore::default());
    let (provider, other) = (Arc::<HeldProvider>::default(), Arc::<HeldProvider>::default());
    for listing in [TestListing::Hangs, TestListing::Panics, TestListing::Fails] {
        provider.list_as(listing);
        let before = other.count("list");
        let setting = BenchSetup {
            other: Some(Arc::clone(&other)),
            reconcile: Some(Duration::from_millis(20)),
            ..BenchSetup::default()
        };
        let bench = EngineBench::with(Arc::clone(&store), Arc::clone(&provider), setting).await;
        eventually("the other is swept again and again", async || {
            other.count("list") >= before + 3
        })
        .await;
        let template = Some(TemplateName::trusted("other"));
        let issue = format!("{before}");
        let ask = EnsureIssue { template, ..ensure(&issue) };
        bench.engine.ensure(&account(), ask).await.expect("it is answered");
        reaches(&bench, &issue, Phase::Running).await;
        other.outside(Vec::clear);
        let sandbox = reaches(&bench, &issue, Phase::Failed).await;
        assert_eq!(failure(&sandbox), Some(FailureCode::ObjectLost));
        bench.engine.stop(Duration::ZERO).await;
        bench.crash();
    }
}

#[actix::test]
async fn a_provider_that_cannot_be_looked_at_has_lost_nothing() {
    let bench = EngineBench::new().await;
    running(&bench, "1").await;
    bench.provider.outside(Vec::clear);
    bench.provider.list_as(TestListing::Fails);
    assert_eq!(swept(&bench).await, ["provider_unreachable provider_unreachable:held"]);
    assert_eq!(now(&bench, "1").await.phase, Some(Phase::Running));
    bench.provider.list_as(TestListing::True);
    assert_eq!(swept(&bench).await, Vec::<String>::new());
    assert_eq!(failure(&now(&bench, "1").await), Some(FailureCode::ObjectLost));
}

#[actix::test]
async fn a_provider_with_another_identity_is_neither_believed_nor_asked() {
    let (store, provider) = (Arc::<HeldStore>::default(), Arc::<HeldProvider>::default());
    provider.identify("first");
    let bench = EngineBench::on(Arc::clone(&store), Arc::clone(&provider)).await;
    running(&bench, "1").await;
    let (store, provider) = bench.crash();
    // The server restarts, and another engine answers at the same address.
    provider.identify("second");
    let theirs = provider.all();
    provider.outside(Vec::clear);
    let bench = EngineBench::on(store, provider).await;
    assert_eq!(swept(&bench).await, ["identity_changed identity:held"]);
    assert_eq!(bench.engine.drift().items[0].kind, DriftKind::IdentityChanged);
    assert_eq!(now(&bench, "1").await.phase, Some(Phase::Running));
    let stop = bench.engine.command(&account(), &named("1"), Command::Stop, PERSON).await;
    stop.expect("it is accepted");
    bench.engine.ensure(&account(), ensure("2")).await.expect("it is answered");
    swept(&bench).await;
    assert_eq!(bench.provider.count("stop"), 0);
    assert_eq!(bench.provider.count("create"), 1, "that of before");
    assert_eq!(bench.provider.count("list"), 0);
    // The first one is back: nothing was lost.
    bench.provider.identify("first");
    bench.provider.outside(|objects| objects.extend(theirs));
    assert_eq!(swept(&bench).await, Vec::<String>::new());
    assert_eq!(bench.provider.count("list"), 1);
    bench.provider.identify("third");
    assert_eq!(swept(&bench).await, ["identity_changed identity:held"]);
    remedy(&bench, "identity:held", Remedy::Adopt).await.expect("it is carried out");
    assert_eq!(swept(&bench).await, Vec::<String>::new());
    let kept = bench.store.identities().await.expect("they are kept");
    assert_eq!(kept, [(ProviderName::trusted("held"), "third".to_owned())]);
}

#[actix::test]
async fn a_second_identity_before_the_first_is_stored_is_another_one() {
    let (store, provider) = (Arc::<HeldStore>::default(), Arc::<HeldProvider>::default());
    provider.identify("first");
    let bench = EngineBench::on(store, provider).await;
    bench.store.hold_identities(true);
    let engine = bench.engine.clone();
    let sweep = actix::spawn(async move { engine.sweep_now().await });
    eventually("it is being stored", async || bench.store.waiting_identities() == 1).await;
    bench.provider.identify("second");
    let asked = bench.provider.count("health");
    bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    eventually("it is asked again", async || bench.provider.count("health") > asked).await;
    bench.store.hold_identities(false);
    sweep.await.expect("it ends");
    assert_eq!(swept(&bench).await, ["identity_changed identity:held"]);
    let made = ["find", "create", "list"].map(|call| bench.provider.count(call));
    assert_eq!(made, [0, 0, 0]);
    let kept = bench.store.identities().await.expect("they are kept");
    assert_eq!(kept, [(ProviderName::trusted("held"), "first".to_owned())]);
}

#[actix::test]
async fn a_known_provider_that_does_not_say_who_it_is_is_not_asked() {
    let (store, provider) = (Arc::<HeldStore>::default(), Arc::<HeldProvider>::default());
    provider.identify("first");
    let bench = EngineBench::on(store, provider).await;
    running(&bench, "1").await;
    let (store, provider) = bench.crash();
    provider.forget_identity();
    provider.outage(Some(TestOutage::Says));
    provider.outside(Vec::clear);
    let bench = EngineBench::on(store, provider).await;
    let before = (bench.provider.count("find"), bench.provider.count("list"));
    let stop = bench.engine.command(&account(), &named("1"), Command::Stop, PERSON).await;
    stop.expect("it is accepted");
    assert_eq!(swept(&bench).await, ["provider_unreachable provider_unreachable:held"]);
    eventually("its breaker opens", async || {
        bench.engine.figures().breakers[0].1.state == BreakerState::Open
    })
    .await;
    assert_eq!(bench.provider.count("stop"), 0);
    assert_eq!((bench.provider.count("find"), bench.provider.count("list")), before);
    assert_eq!(now(&bench, "1").await.phase, Some(Phase::Stopping));
}

#[actix::test]
async fn who_answers_behind_a_lost_answer_is_asked_who_it_is() {
    let bench = EngineBench::new().await;
    bench.provider.identify("first");
    running(&bench, "1").await;
    // Another one takes its place while the server runs, and a connection breaks over it.
    bench.provider.identify("second");
    bench.provider.lose_next();
    bench.engine.ensure(&account(), ensure("2")).await.expect("it is answered");
    eventually("its looks are put off", async || {
        let issue = bench.store.issue(2).expect("it is stored");
        let attempt = issue.state.record().map(|record| record.attempt.0);
        matches!(issue.state.step(), Some(Step::Waiting { .. })) && attempt >= Some(2)
    })
    .await;
    assert_eq!(bench.provider.count("find"), 0, "nothing that it has is believed");
    assert_eq!(swept(&bench).await, ["identity_changed identity:held"]);
}

#[actix::test]
async fn what_runs_although_it_is_stopped_is_stopped_again() {
    let bench = EngineBench::new().await;
    running(&bench, "1").await;
    let stop = bench.engine.command(&account(), &named("1"), Command::Stop, PERSON).await;
    stop.expect("it is accepted");
    reaches(&bench, "1", Phase::Stopped).await;
    bench.provider.outside(|objects| objects[0].state = ObjectState::Running);
    swept(&bench).await;
    eventually("it is stopped again", async || {
        state_of(&bench, "object-1") == Some(ObjectState::Stopped)
    })
    .await;
    reaches(&bench, "1", Phase::Stopped).await;
    assert_eq!(swept(&bench).await, Vec::<String>::new());
}

#[actix::test]
async fn a_look_is_never_beside_a_call_and_a_call_waits_for_it() {
    let bench = EngineBench::new().await;
    running(&bench, "1").await;
    let parts = &bench.engine.parts;
    let home = now(&bench, "1").await.home;
    bench.provider.outside(Vec::clear);
    let slot = parts.executor.lease(home).expect("nothing is under way");
    assert!(parts.executor.lease(home).is_none(), "one at a time");
    let looks = bench.provider.count("find");
    assert_eq!(swept(&bench).await, ["object_lost held:object-1"]);
    assert_eq!(bench.provider.count("find"), looks);
    let item = &bench.engine.drift().items[0];
    assert!(item.next.contains("a call to the provider is under way"), "{}", item.next);
    let stop = bench.engine.command(&account(), &named("1"), Command::Stop, PERSON).await;
    stop.expect("it is accepted");
    assert_eq!(bench.provider.count("stop"), 0, "it waits");
    drop(slot);
    eventually("the call leaves", async || bench.provider.count("stop") >= 1).await;
    reaches(&bench, "1", Phase::Failed).await;
    assert_eq!(swept(&bench).await, Vec::<String>::new());
}

#[actix::test]
async fn an_object_that_is_reported_down_is_seen_without_a_sweep() {
    let bench = EngineBench::new().await;
    running(&bench, "1").await;
    running(&bench, "2").await;
    bench.provider.outside(|all| all.iter_mut().for_each(|o| o.state = ObjectState::Stopped));
    let all = bench.provider.all();
    // Of another installation: not ours to look at.
    let mut foreign = all[1].clone();
    foreign.labels.as_mut().expect("labels").instance = InstanceId::trusted("another");
    bench.provider.hint(&foreign);
    bench.provider.hint(&all[0]);
    let failed = reaches(&bench, "1", Phase::Failed).await;
    assert_eq!(failure(&failed), Some(FailureCode::KilledOutside));
    assert_eq!(now(&bench, "2").await.phase, Some(Phase::Running), "a hint is about one issue");
    assert_eq!(bench.provider.count("list"), 0);
}

/// How much else is missing, only a sweep knows.
#[actix::test]
async fn an_object_that_is_reported_missing_is_lost_by_the_sweep_that_follows() {
    let setup = BenchSetup { reconcile: Some(Duration::from_secs(86_400)), ..Default::default() };
    let bench = EngineBench::new_with(setup).await;
    running(&bench, "1").await;
    eventually("the first sweep", async || bench.provider.count("list") == 1).await;
    let all = bench.provider.all();
    bench.provider.outside(Vec::clear);
    bench.provider.hint(&all[0]);
    let failed = reaches(&bench, "1", Phase::Failed).await;
    assert_eq!(failure(&failed), Some(FailureCode::ObjectLost));
    assert_eq!(bench.provider.count("list"), 2);
}
