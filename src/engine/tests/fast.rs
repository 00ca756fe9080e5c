//! Fast mode: the provider is asked while the record is being written, and nothing is left of it
//! if the record cannot be.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use tokio::sync::Notify;

use super::executor::call;
use super::transfers::{delivery, labelled, name};
use super::{BenchSetup, EngineBench, SetForward, account, ensure, eventually};
use crate::engine::fast_create::call::fast_create;
use crate::engine::fast_create::record::{PendingRecord, RECORD_TIME_MAX};
use crate::engine::{DeliveredStatus, EngineError, EnsureIssue, IssueKey};
use crate::issue::event::{CallError, DeliveryEffect};
use crate::issue::{IssueDelivery, ProviderCall, Verb};
use crate::store::CommitError;
use crate::types::{
    Alias, HoldScope, HomeId, IssueId, IssueNumber, Mode, Outcome, Phase, Repository,
};

fn fast(issue: &str) -> EnsureIssue {
    EnsureIssue { mode: Some(Mode::Fast), ..ensure(issue) }
}

impl EngineBench {
    /// A fast ensure whose record is refused once the provider has been asked.
    async fn refuse_late(&self, ask: EnsureIssue, error: CommitError) -> EngineError {
        self.store.fail_next(error);
        self.store.hold();
        let creates = self.provider.count("create");
        let engine = self.engine.clone();
        let refused = tokio::spawn(async move { engine.ensure(&account(), ask).await });
        eventually("it is asked for", async || self.provider.count("create") > creates).await;
        self.store.release();
        refused.await.expect("no panic").expect_err("the record is refused")
    }
}

#[actix::test]
async fn the_provider_is_asked_beside_the_record_and_the_answer_waits_for_both() {
    let bench = EngineBench::new().await;
    for first in ["store", "provider"] {
        bench.store.hold();
        bench.provider.hold();
        let creates = bench.provider.count("create");
        let engine = bench.engine.clone();
        let mut answer = tokio::spawn(async move { engine.ensure(&account(), fast(first)).await });
        eventually("it is asked though its record is not durable", async || {
            bench.provider.count("create") > creates
        })
        .await;
        match first {
            "store" => bench.store.release(),
            _ => bench.provider.release(),
        }
        let is_fast_create = tokio::time::timeout(Duration::from_millis(50), &mut answer).await;
        assert!(is_fast_create.is_err(), "answered after the {first} alone: {is_fast_create:?}");
        bench.store.release();
        bench.provider.release();
        let ensured = answer.await.expect("no panic").expect("it is answered");
        assert_eq!(
            (ensured.outcome, ensured.sandbox.phase),
            (Outcome::Created, Some(Phase::Running))
        );
        assert_eq!((ensured.sandbox.mode, ensured.sandbox.id.as_str().len()), (Mode::Fast, 32));
    }
    assert_eq!(bench.provider.objects(), 2);
}

#[actix::test]
async fn a_known_issue_is_fast_too_and_no_other_issue_waits_for_the_provider() {
    let bench = EngineBench::new().await;
    let first = bench.engine.ensure(&account(), fast("1")).await.expect("it is answered");
    let by_id = crate::engine::SandboxRef::Id(first.sandbox.id);
    let cause = crate::types::Cause::Service("test");
    let delete = crate::issue::Command::Delete;
    bench.engine.command(&account(), &by_id, delete, cause).await.expect("accepted");
    eventually("it is gone", async || bench.provider.objects() == 0).await;
    eventually("that is stored", async || {
        bench.store.issue(1).is_some_and(|issue| issue.state.phase().is_none())
    })
    .await;
    bench.provider.hold();
    let engine = bench.engine.clone();
    let second = tokio::spawn(async move { engine.ensure(&account(), fast("1")).await });
    eventually("it is asked for", async || bench.provider.count("create") == 2).await;
    let existing = bench.engine.ensure(&account(), fast("1")).await.expect("it is answered");
    assert_eq!(
        (existing.outcome, existing.sandbox.phase),
        (Outcome::Existing, Some(Phase::Creating))
    );
    assert!(second.now_or_never().is_none(), "the first asker waits for both");
    bench.provider.release();
    eventually("it is running", async || {
        bench.store.issue(1).is_some_and(|issue| issue.state.phase() == Some(Phase::Running))
    })
    .await;
}

#[actix::test]
async fn what_a_refused_record_left_is_destroyed_before_the_home_asks_again() {
    let bench = EngineBench::new().await;
    bench.provider.hold();
    let full = CommitError::Failed("the disk is full".into());
    let refused = bench.refuse_late(fast("1"), full).await;
    assert!(matches!(refused, EngineError::StoreFailed(_)), "{refused:?}");
    // The create is still under way; who comes now finds the same home and waits behind it.
    let again = bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    assert_eq!((again.outcome, again.sandbox.home), (Outcome::Created, HomeId(1)));
    assert_eq!(bench.provider.count("create"), 1);
    bench.provider.release();
    eventually("it is running", async || {
        bench.store.issue(1).is_some_and(|issue| issue.state.phase() == Some(Phase::Running))
    })
    .await;
    assert_eq!((bench.provider.count("create"), bench.provider.count("delete")), (2, 1));
    assert_eq!(bench.provider.objects(), 1);
}

#[actix::test]
async fn what_is_not_asked_for_again_is_destroyed_too_and_its_name_is_free() {
    let bench = EngineBench::new().await;
    let refused = bench.refuse_late(fast("1"), CommitError::Overloaded).await;
    assert_eq!(refused, EngineError::Overloaded);
    eventually("its object is gone", async || {
        bench.provider.count("delete") == 1 && bench.provider.objects() == 0
    })
    .await;
    eventually("its name is free", async || {
        let parts = &bench.engine.parts;
        let name = Alias::Issue(IssueId::parse("1").expect("a valid id"));
        parts.directory.find(&account(), &name).await == Ok(None)
    })
    .await;
}

#[actix::test]
async fn a_record_that_takes_too_long_costs_the_object_and_the_actor_gets_an_answer() {
    let bench = EngineBench::new().await;
    let parts = &bench.engine.parts;
    let record = PendingRecord {
        end: futures_util::future::pending().boxed().shared(),
        by: parts.env.now(),
        account: account(),
        names: Vec::new(),
        too_slow: tokio::sync::oneshot::channel().0,
    };
    let create = ProviderCall { verb: Verb::Create, ..call("slow", 1) };
    let answer = fast_create(
        &parts.executor.calls,
        &parts.directory,
        HomeId(1),
        create,
        record,
        &Notify::new(),
    )
    .await;
    assert!(matches!(answer, Some(Err(CallError::Broken(_)))), "{answer:?}");
    assert_eq!((bench.provider.count("create"), bench.provider.objects()), (1, 0));
}

#[actix::test]
async fn the_caller_hears_that_it_failed_though_the_record_is_still_being_written() {
    let clock = Arc::new(SetForward::default());
    let bench =
        EngineBench::new_with(BenchSetup { clock: Some(clock.clone()), ..BenchSetup::default() })
            .await;
    bench.store.hold();
    let engine = bench.engine.clone();
    let asked = tokio::spawn(async move { engine.ensure(&account(), fast("1")).await });
    eventually("it is made", async || bench.provider.objects() == 1).await;
    clock.set_forward(RECORD_TIME_MAX);
    let answer = asked.await.expect("no panic").expect_err("its record took too long");
    assert_eq!(answer, EngineError::RecordTooSlow);
    assert_eq!(bench.provider.objects(), 0, "it is destroyed by then");
    assert_eq!(bench.provider.count("create"), 1);
    bench.store.release();
    eventually("the record is written, and its next try brings it up", async || {
        bench.store.issue(1).is_some_and(|issue| issue.state.phase() == Some(Phase::Running))
    })
    .await;
    assert_eq!((bench.provider.count("create"), bench.provider.objects()), (2, 1));
}

#[actix::test]
async fn a_new_home_is_certain_only_where_no_name_may_have_slipped_through() {
    let bench = EngineBench::new().await;
    let parts = &bench.engine.parts;
    let key = |id: &str| IssueKey { id: Some(IssueId::parse(id).expect("valid")), numbered: None };
    let look =
        async |id: &str| parts.directory.look(&account(), &key(id), None).await.expect("a look").0;
    let is_identity_known = |id: &str, names| {
        let place = parts.directory.place(&account(), &key(id), None, names).expect("a place");
        assert!(place.activation.brand_new, "{id}");
        (place.home, place.activation.identity_known)
    };
    let (first, identity_known) = is_identity_known("1", look("1").await);
    assert!(identity_known, "nothing happened meanwhile");
    let names = look("2").await;
    let alias = [Alias::Issue(IssueId::parse("1").expect("valid"))];
    parts.directory.confirm(&account(), first, &alias);
    assert!(!is_identity_known("2", names).1, "a name left between look and place");
    assert!(is_identity_known("3", look("3").await).1);
    parts.directory.abandon(parts.env.now(), &account(), first, &alias);
    assert!(
        !is_identity_known("4", look("4").await).1,
        "a caller may still claim the name that left"
    );
}

#[actix::test]
async fn a_create_holds_no_name_that_another_home_claims() {
    let bench = EngineBench::new().await;
    let parts = &bench.engine.parts;
    let id = IssueId::parse("1").expect("valid");
    let alias = [Alias::Issue(id.clone())];
    let key = IssueKey { id: Some(id), numbered: None };
    let route = async || parts.directory.route(&account(), &key).await.expect("a place").home;
    let first = route().await;
    let other = HomeId(first.0 + 100);
    assert!(!parts.directory.hold(&account(), other, &alias));
    parts.directory.abandon(parts.env.now(), &account(), first, &alias);
    assert_ne!(route().await, first, "its claim was abandoned");
}

#[actix::test]
async fn the_names_of_a_create_stay_whatever_becomes_of_a_successors_claims() {
    let bench = EngineBench::new().await;
    bench.provider.hold();
    let parts = &bench.engine.parts;
    let place = (Repository::trusted("garden/orchard"), IssueNumber(6));
    let name = Alias::Numbered(Repository::trusted("Garden/Orchard"), place.1);
    let by_word = fast("word");
    let issue = IssueKey { numbered: Some(place.clone()), ..by_word.issue };
    let full = || CommitError::Failed("the disk is full".into());
    bench.refuse_late(EnsureIssue { issue, ..by_word }, full()).await;
    // A caller names it otherwise, and the actor that took the first one's place is refused, too.
    let by_id = ensure("7");
    let issue = IssueKey { numbered: Some(place), ..by_id.issue };
    bench.store.fail_next(full());
    let second = bench.engine.ensure(&account(), EnsureIssue { issue, ..by_id }).await;
    assert!(second.is_err(), "{second:?}");
    assert_eq!(parts.directory.find(&account(), &name).await, Ok(Some(HomeId(1))));
    bench.provider.release();
    eventually("its object is gone and its name is free", async || {
        bench.provider.objects() == 0 && parts.directory.find(&account(), &name).await == Ok(None)
    })
    .await;
}

#[actix::test]
async fn the_names_of_a_create_stay_although_a_caller_is_denied_meanwhile() {
    let bench = EngineBench::new().await;
    bench.provider.hold();
    let parts = &bench.engine.parts;
    let find = async || {
        let name = Alias::Issue(IssueId::parse("1").expect("valid"));
        parts.directory.find(&account(), &name).await.expect("read")
    };
    let full = CommitError::Failed("the disk is full".into());
    bench.refuse_late(fast("1"), full).await;
    let (scope, by) = (HoldScope::Server, "me".to_owned());
    bench.engine.hold(scope, String::new(), by).await.expect("durable");
    let denied = bench.engine.ensure(&account(), ensure("1")).await;
    assert!(matches!(denied, Err(EngineError::Denied(_))), "{denied:?}");
    assert_eq!(find().await, Some(HomeId(1)), "its object is not destroyed yet");
    bench.provider.release();
    eventually("its object is gone and its name is free", async || {
        bench.provider.objects() == 0 && find().await.is_none()
    })
    .await;
}

#[actix::test]
async fn a_name_that_is_stored_leads_to_its_home_although_a_create_of_another_holds_it() {
    let bench = EngineBench::new().await;
    let place = (Repository::trusted("garden/orchard"), IssueNumber(6));
    let by_number = Alias::Numbered(place.0.clone(), place.1);
    let ask = ensure("16");
    let issue = IssueKey { numbered: Some(place), ..ask.issue };
    let ask = EnsureIssue { issue, ..ask };
    let first = bench.engine.ensure(&account(), ask.clone()).await.expect("it is answered");
    let directory = &bench.engine.parts.directory;
    let names = [Alias::Issue(IssueId::parse("16").expect("valid")), by_number];
    assert!(directory.hold(&account(), HomeId(first.sandbox.home.0 + 100), &names));
    for name in &names {
        assert_eq!(directory.find(&account(), name).await, Ok(Some(first.sandbox.home)));
    }
    let again = bench.engine.ensure(&account(), ask).await.expect("it is answered");
    assert_eq!(again.sandbox.id, first.sandbox.id);
    // It is the first to say the repository's id, which the name is not stored with.
    let issue = (16, "garden/orchard", 1, 6);
    let delivered = bench.deliver(labelled("guid", issue, 1)).await;
    assert_eq!(delivered.status, DeliveredStatus::Accepted, "{}", delivered.reason);
}

#[actix::test]
async fn a_home_that_gives_way_keeps_no_name_of_a_create_that_is_being_undone() {
    let (here, there) = ((16, "garden/orchard", 1, 6), (108, "garden/press", 2, 8));
    let bench = EngineBench::new().await;
    bench.deliver(labelled("first", here, 1)).await;
    let stays = bench.settled(here).await;
    let place = (Repository::trusted("garden/press"), IssueNumber(8));
    let ask = fast("108");
    let issue = IssueKey { numbered: Some(place.clone()), ..ask.issue };
    bench.provider.hold();
    let full = CommitError::Failed("the disk is full".into());
    bench.refuse_late(EnsureIssue { issue, ..ask }, full).await;
    let moved = |guid| IssueDelivery {
        formerly: Some(name(here)),
        ..delivery(guid, there, 10, DeliveryEffect::Update)
    };
    // Its home was never stored.
    let refused = bench.engine.deliver(&account(), moved("early")).await;
    assert_eq!(refused, Err(EngineError::CreateBeingUndone));
    let second = bench.engine.ensure(&account(), ensure("108")).await.expect("it is answered");
    assert_ne!(second.sandbox.home, stays.home);
    // Its home gives way while its first create is still being undone.
    let delivered = bench.deliver(moved("late")).await;
    assert_eq!(delivered.status, DeliveredStatus::Accepted, "{}", delivered.reason);
    let issue = IssueKey { id: None, numbered: Some(place) };
    let ask = EnsureIssue { issue, ..ensure("108") };
    let ensured = bench.engine.ensure(&account(), ask).await.expect("it is answered");
    assert_eq!(ensured.sandbox.id, stays.id);
    bench.provider.release();
    eventually("one object is left", async || bench.provider.objects() == 1).await;
}

#[actix::test]
async fn no_new_home_is_certain_right_after_a_caller_was_denied() {
    let bench = EngineBench::new().await;
    let (scope, by) = (HoldScope::Server, "me".to_owned());
    bench.engine.hold(scope, String::new(), by).await.expect("durable");
    let denied = bench.engine.ensure(&account(), fast("1")).await;
    assert!(matches!(denied, Err(EngineError::Denied(_))), "{denied:?}");
    bench.engine.release(&HoldScope::Server).await.expect("durable");
    for issue in ["1", "2"] {
        let ensured = bench.engine.ensure(&account(), fast(issue)).await.expect("it is answered");
        assert_eq!(ensured.sandbox.mode, Mode::Strong, "its name may be another home's: {issue}");
    }
}

#[actix::test]
async fn what_a_crash_left_of_an_issue_that_was_never_recorded_makes_room_for_it() {
    let bench = EngineBench::new().await;
    bench.provider.hold();
    bench.store.hold();
    let engine = bench.engine.clone();
    tokio::spawn(async move { engine.ensure(&account(), fast("1")).await });
    eventually("it is asked for", async || bench.provider.count("create") == 1).await;
    let (_lost, provider) = bench.crash();
    provider.release();
    // The process is gone and its call goes on; of the record nothing was stored.
    eventually("the object is there", async || provider.objects() == 1).await;
    let store = std::sync::Arc::new(super::store::HeldStore::default());
    // Its number was handed out once.
    crate::store::Store::next_home(store.as_ref());
    let bench = EngineBench::on(store, provider).await;
    let again = bench.engine.ensure(&account(), ensure("1")).await.expect("it is answered");
    assert_eq!(again.sandbox.home, HomeId(2));
    eventually("it is running", async || {
        bench.store.issue(2).is_some_and(|issue| issue.state.phase() == Some(Phase::Running))
    })
    .await;
    assert_eq!((bench.provider.objects(), bench.provider.count("delete")), (1, 1));
}
