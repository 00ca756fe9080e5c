//! The life of objects: made, found, started, stopped, deleted, and what goes wrong on the way.

use std::time::Duration;

use issuebox::clock::{Clock, SystemClock};
use issuebox::sandbox::{CreateSpec, Object, ObjectKey, ProviderError, TargetCall, WorkError};
use issuebox::types::{HomeId, InstanceId, ObjectName, ObjectState};

use crate::subject::{Subject, WAIT, call, target};

/// How long something that lands too late is looked for; nothing can be waited for that must not come.
const LATE_LOOKS: Duration = Duration::from_millis(500);

contract!(
    start_and_stop_are_idempotent_and_show_their_state,
    a_forced_stop_and_delete_come_to_the_same_as_others,
    find_is_by_name_and_by_home_and_list_by_instance,
    work_needs_a_running_object,
    a_delete_does_not_keep_the_workspace,
    a_list_is_whole_however_many_objects_there_are,
    a_create_whose_answer_is_lost_makes_one_object,
    nothing_lands_after_the_late_effect_window,
    what_was_killed_from_outside_is_found_down_and_starts_again,
    what_is_being_destroyed_is_present_until_it_is_gone,
    events_have_any_number_of_subscribers,
);

/// Start and stop bring about a state; being there already is success.
async fn start_and_stop_are_idempotent_and_show_their_state(subject: &Subject) {
    let object = subject.make("updown", "s1").await;
    let up = subject.provider.lifecycle.start(call(&target(&object))).await.expect("already up");
    assert_eq!(up, object);
    for _ in 0..2 {
        let down = subject.provider.lifecycle.stop(call(&target(&object))).await.expect("down");
        assert_eq!(down, Object { state: ObjectState::Stopped, ..object.clone() });
    }
    assert_eq!(subject.find("updown").await[0].state, ObjectState::Stopped);
    for _ in 0..2 {
        let up = subject.provider.lifecycle.start(call(&target(&object))).await.expect("up");
        assert_eq!(up, object);
    }
    subject.remove(&object, false).await;
}

/// Force is without grace and leads to the same state; an object that is down is removed too.
async fn a_forced_stop_and_delete_come_to_the_same_as_others(subject: &Subject) {
    let object = subject.make("force", "s1").await;
    let target = target(&object);
    subject.write(&target, b"kept", "kept".into()).await.expect("written");
    for _ in 0..2 {
        let call = TargetCall { force: true, ..call(&target) };
        let down = subject.provider.lifecycle.stop(call).await.expect("down");
        assert_eq!(down, Object { state: ObjectState::Stopped, ..object.clone() });
    }
    let up = subject.provider.lifecycle.start(call(&target)).await.expect("up");
    assert_eq!(up, object);
    assert_eq!(subject.read(&target, b"kept").await, Ok(b"kept".to_vec()), "the workspace is kept");
    subject.remove(&object, true).await;
    assert_eq!(subject.find("force").await, []);
}

/// `find` sees what has the name or the home, `list` what has the instance.
async fn find_is_by_name_and_by_home_and_list_by_instance(subject: &Subject) {
    let one = subject.make("find-one", "s1").await;
    let mut spec = subject.spec("find-two", "s2");
    spec.labels.instance = InstanceId::trusted(format!("{}-other", subject.name));
    let two = subject.provider.lifecycle.create(spec).await.expect("made");
    let key = |name: &str, object: &Object| {
        let labels = object.labels.as_ref().expect("ours");
        let name = ObjectName::trusted(format!("{}-{name}", subject.name));
        ObjectKey { name, instance: labels.instance.clone(), home: labels.home }
    };
    let find = async |key| subject.provider.lifecycle.find(key).await.expect("found");
    assert_eq!(find(key("no-such-name", &one)).await, std::slice::from_ref(&one), "by home");
    assert_eq!(
        find(key("no-such-name", &two)).await,
        std::slice::from_ref(&two),
        "by home and instance"
    );
    let by_name = ObjectKey { home: HomeId(-1), ..key("find-one", &one) };
    assert_eq!(find(by_name).await, std::slice::from_ref(&one), "by name");
    for object in [&one, &two] {
        let instance = object.labels.as_ref().expect("ours").instance.clone();
        let listed = subject.provider.lifecycle.list(instance).await.expect("listed");
        assert_eq!(listed, std::slice::from_ref(object));
        subject.remove(object, false).await;
    }
}

/// Exec and files need an object that is up, and say so.
async fn work_needs_a_running_object(subject: &Subject) {
    let target = subject.target().await;
    subject.stop(&target).await;
    let exec = subject.exec(&target, &["true"]).await;
    assert_eq!(exec.err(), Some(WorkError::NotRunning));
    assert_eq!(subject.read(&target, b"file").await, Err(WorkError::NotRunning));
    assert_eq!(subject.write(&target, b"file", "x".into()).await, Err(WorkError::NotRunning));
    subject.start(&target).await;
    assert_eq!(subject.run(&target, &["true"]).await.exit, Some((0, false)));
}

/// What was in a deleted object's workspace is not in its successor's.
async fn a_delete_does_not_keep_the_workspace(subject: &Subject) {
    let first = subject.make("fresh", "s1").await;
    subject.write(&target(&first), b"file", "old".into()).await.expect("written");
    subject.remove(&first, false).await;
    let next = subject.make("fresh", "s2").await;
    assert_eq!(subject.read(&target(&next), b"file").await, Err(WorkError::NoSuchFile));
}

/// A list has every object, however many pages the provider needs for it.
async fn a_list_is_whole_however_many_objects_there_are(subject: &Subject) {
    let mut made = Vec::new();
    for n in 0..12 {
        made.push(subject.make(&format!("page-{n}"), &format!("s{n}")).await);
    }
    let instance = subject.spec("page", "s").labels.instance;
    let mut listed = subject.provider.lifecycle.list(instance).await.expect("listed");
    for all in [&mut made, &mut listed] {
        all.sort_by(|a, b| a.external_id.cmp(&b.external_id));
    }
    assert_eq!(listed, made);
}

/// A caller that goes away in the middle of a create finds one object when it asks again.
async fn a_create_whose_answer_is_lost_makes_one_object(subject: &Subject) {
    for polls in [1, 2, 5] {
        let mut create = subject.provider.lifecycle.create(subject.spec("lost", "s1"));
        for _ in 0..polls {
            if futures_util::poll!(&mut create).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(create);
        let object = subject.make("lost", "s1").await;
        assert_eq!(object.state, ObjectState::Running);
        assert_eq!(subject.find("lost").await, std::slice::from_ref(&object), "after {polls}");
        subject.remove(&object, false).await;
    }
}

/// A call whose deadline has passed says that its outcome is unknown, and what it asked for comes
/// into effect within the declared time or never.
async fn nothing_lands_after_the_late_effect_window(subject: &Subject) {
    let deadline = SystemClock.now();
    let late = CreateSpec { deadline, ..subject.spec("late", "s1") };
    let answer = subject.provider.lifecycle.create(late).await;
    assert!(matches!(answer, Ok(_) | Err(ProviderError::Unavailable { .. })), "{answer:?}");
    let window = subject.provider.descriptor.late_effect_window;
    SystemClock.sleep_until(SystemClock.now().after(window)).await;
    let settled = subject.find("late").await;
    assert!(settled.len() <= 1, "{settled:?}");
    let end = SystemClock.now().after(LATE_LOOKS);
    while SystemClock.now() < end {
        assert_eq!(subject.find("late").await, settled, "nothing lands any more");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let again = subject.make("late", "s1").await;
    assert_eq!(subject.find("late").await, [again]);
}

/// An object that was ended from outside is found stopped, and can be started.
async fn what_was_killed_from_outside_is_found_down_and_starts_again(subject: &Subject) {
    let object = subject.make("killed", "s1").await;
    subject.kill(&object);
    let down = async {
        while subject.find("killed").await[0].state == ObjectState::Running {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, down).await.expect("it is found down");
    assert_eq!(subject.exec(&target(&object), &["true"]).await.err(), Some(WorkError::NotRunning));
    subject.start(&target(&object)).await;
    assert_eq!(subject.run(&target(&object), &["true"]).await.exit, Some((0, false)));
}

/// Until a delete says that the object is absent, it is found, or gone for good.
async fn what_is_being_destroyed_is_present_until_it_is_gone(subject: &Subject) {
    let object = subject.make("going", "s1").await;
    let mut was_gone = false;
    loop {
        let deleted = subject.provider.lifecycle.delete(call(&target(&object))).await;
        let found = subject.find("going").await;
        assert!(!was_gone || found.is_empty(), "it came back: {found:?}");
        was_gone = found.is_empty();
        match deleted {
            Ok(()) => {
                let is_going = |object: &Object| object.state == ObjectState::Destroying;
                assert!(found.iter().all(is_going), "{found:?}");
            }
            Err(error) => {
                assert_eq!((error, found), (ProviderError::Absent, vec![]));
                return;
            }
        }
    }
}

/// Anybody may follow a provider's events.
async fn events_have_any_number_of_subscribers(subject: &Subject) {
    let lifecycle = &subject.provider.lifecycle;
    let mut all = [lifecycle.subscribe(), lifecycle.subscribe(), lifecycle.subscribe()];
    let target = subject.target().await;
    subject.stop(&target).await;
    for events in &mut all {
        // What we asked for ourselves is no news.
        assert_eq!(events.try_next(), None);
    }
}

/// What is in the workspace is there after a stop, a restart of the server, and a start.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_keeps_the_workspace_and_so_does_a_restart() {
    let subjects = [Subject::simulated().await, Subject::local().await, Subject::daytona().await];
    for subject in subjects.into_iter().flatten() {
        a_workspace_stays(subject).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_stop_keeps_a_container_s_workspace_and_so_does_a_restart() {
    a_workspace_stays(Subject::docker()).await;
}

async fn a_workspace_stays(subject: Subject) {
    let target = subject.target().await;
    subject.write(&target, b"dir/file", "kept".into()).await.expect("written");
    subject.stop(&target).await;
    let subject = subject.restarted();
    assert_eq!(subject.find("work").await[0].state, ObjectState::Stopped);
    subject.start(&target).await;
    assert_eq!(subject.read(&target, b"dir/file").await, Ok(b"kept".to_vec()));
}
