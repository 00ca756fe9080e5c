//! Whose an object is: one for each sandbox, and never another's.

use issuebox::sandbox::{Object, Provider, ProviderError, Target, Uniqueness, WorkError};
use issuebox::types::{ExternalId, Generation, ObjectState};

use crate::subject::{Subject, call, path, request, target};

contract!(
    create_of_the_same_sandbox_is_the_same_object,
    a_name_of_another_sandbox_is_present_and_unchanged,
    of_many_creates_at_once_one_makes_an_object,
    the_sandbox_id_on_an_object_is_checked,
    an_unknown_external_id_is_absent,
    a_deleted_object_is_absent_and_never_its_successor,
    an_older_generation_is_shown_and_gives_way_once_it_is_deleted,
);

/// `create` again, with the same sandbox id, answers with the same object.
async fn create_of_the_same_sandbox_is_the_same_object(subject: &Subject) {
    let first = subject.make("same", "s1").await;
    assert_eq!(first.state, ObjectState::Running);
    let labels = subject.spec("same", "s1").labels;
    assert_eq!(first.labels.as_ref(), Some(&labels), "every label is carried");
    let again = subject.make("same", "s1").await;
    assert_eq!(again, first);
    subject.stop(&target(&first)).await;
    let up_again = subject.make("same", "s1").await;
    assert_eq!(up_again, first, "create completes what is there, also where it was down");
    assert_eq!(subject.find("same").await, std::slice::from_ref(&first));
    subject.remove(&first, false).await;
}

/// `create` under a name that another sandbox has answers *present* and changes nothing.
async fn a_name_of_another_sandbox_is_present_and_unchanged(subject: &Subject) {
    let first = subject.make("taken", "s1").await;
    for state in [ObjectState::Running, ObjectState::Stopped] {
        if state == ObjectState::Stopped {
            subject.stop(&target(&first)).await;
        }
        let expected = Object { state, ..first.clone() };
        match subject.provider.lifecycle.create(subject.spec("taken", "s2")).await {
            Err(ProviderError::Present(there)) => assert_eq!(*there, expected),
            other => panic!("{other:?}"),
        }
        assert_eq!(subject.find("taken").await, [expected]);
    }
    subject.remove(&first, false).await;
}

/// Where names are enforced, creates at once make one object; the others see it.
async fn of_many_creates_at_once_one_makes_an_object(subject: &Subject) {
    if subject.provider.descriptor.uniqueness != Uniqueness::EnforcedNames {
        return;
    }
    let create = |n: usize| {
        let sandbox = format!("s{}", n % 3);
        subject.provider.lifecycle.create(subject.spec("many", &sandbox))
    };
    let answers = futures_util::future::join_all((0..9).map(create)).await;
    let made: Vec<&Object> = answers.iter().filter_map(|a| a.as_ref().ok()).collect();
    assert!(made.len() >= 3, "all creates of one sandbox succeed: {answers:?}");
    assert!(made.iter().all(|object| *object == made[0]), "{answers:?}");
    for answer in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        let ProviderError::Present(there) = answer else { panic!("{answer:?}") };
        assert_eq!(there.external_id, made[0].external_id);
    }
    assert_eq!(subject.find("many").await, [made[0].clone()]);
    subject.remove(made[0], false).await;
}

/// Every call that names an object names the sandbox on it; another's is not touched.
async fn the_sandbox_id_on_an_object_is_checked(subject: &Subject) {
    let object = subject.make("checked", "s1").await;
    let other =
        Target { expected: subject.spec("checked", "s2").labels.sandbox, ..target(&object) };
    let Provider { lifecycle, workspace, processes, .. } = &subject.provider;
    for error in [
        lifecycle.start(call(&other)).await.expect_err("another's"),
        lifecycle.stop(call(&other)).await.expect_err("another's"),
        lifecycle.delete(call(&other)).await.expect_err("another's"),
    ] {
        let ProviderError::Present(there) = error else { panic!("{error:?}") };
        assert_eq!(*there, object);
    }
    subject.write(&target(&object), b"file", "kept".into()).await.expect("written");
    let refused = Some(WorkError::NotRunning);
    let exec = processes.exec(other.clone(), request(&["true"])).await;
    assert_eq!(exec.err(), refused);
    assert_eq!(subject.read(&other, b"file").await.err(), refused);
    assert_eq!(subject.write(&other, b"file", "x".into()).await.err(), refused);
    assert_eq!(workspace.delete_file(other.clone(), path(b"file")).await.err(), refused);
    assert_eq!(subject.find("checked").await, std::slice::from_ref(&object));
    assert_eq!(subject.read(&target(&object), b"file").await, Ok(b"kept".to_vec()));
    subject.remove(&object, false).await;
}

/// What was never there is absent.
async fn an_unknown_external_id_is_absent(subject: &Subject) {
    let mut gone = subject.make("unknown", "s1").await;
    subject.remove(&gone, false).await;
    for external_id in [gone.external_id.clone(), ExternalId::trusted("no-such-object")] {
        gone.external_id = external_id;
        let absent = Err(ProviderError::Absent);
        assert_eq!(subject.provider.lifecycle.start(call(&target(&gone))).await, absent);
        assert_eq!(subject.provider.lifecycle.stop(call(&target(&gone))).await, absent);
        assert_eq!(
            subject.provider.lifecycle.delete(call(&target(&gone))).await,
            Err(ProviderError::Absent)
        );
    }
    assert_eq!(subject.find("unknown").await, []);
}

/// A name can be used again once its object is gone; the old external id is never the new one.
async fn a_deleted_object_is_absent_and_never_its_successor(subject: &Subject) {
    let first = subject.make("again", "s1").await;
    subject.remove(&first, false).await;
    // The same sandbox id too: an answer that came late must not hit what came after.
    for sandbox in ["s2", "s1"] {
        let next = subject.make("again", sandbox).await;
        assert_ne!(next.external_id, first.external_id);
        for answer in [
            subject.provider.lifecycle.delete(call(&target(&first))).await.err(),
            subject.provider.lifecycle.stop(call(&target(&first))).await.err(),
            subject.provider.lifecycle.start(call(&target(&first))).await.err(),
        ] {
            let is_refused =
                matches!(answer, Some(ProviderError::Absent | ProviderError::Present(_)));
            assert!(is_refused, "{answer:?}");
        }
        assert_eq!(
            subject.find("again").await,
            std::slice::from_ref(&next),
            "the successor is untouched"
        );
        subject.remove(&next, false).await;
    }
}

/// A create finds an older generation's object under its name, and works once that is deleted by
/// the sandbox id that it carries.
async fn an_older_generation_is_shown_and_gives_way_once_it_is_deleted(subject: &Subject) {
    let mut older = subject.spec("older", "s1");
    older.labels.generation = Generation(2);
    let older = subject.provider.lifecycle.create(older).await.expect("made");
    let refused = subject.provider.lifecycle.create(subject.spec("older", "s2")).await;
    let Err(ProviderError::Present(there)) = refused else { panic!("{refused:?}") };
    assert_eq!(there.labels, older.labels);
    subject.remove(&there, false).await;
    let next = subject.make("older", "s2").await;
    assert_eq!(subject.find("older").await, [next]);
}
