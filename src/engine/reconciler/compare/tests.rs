//! Tables of the findings about a home, and of what is too much at once.

use super::*;

const PROVIDER: &str = "p";

fn provider() -> ProviderName {
    ProviderName::trusted(PROVIDER)
}

/// A home with generation 3, whose live sandbox `s3` has the object `o3`.
fn home(phase: Option<Phase>, external_id: Option<&str>) -> KnownHome {
    let recorded = phase.map(|phase| Recorded {
        id: SandboxId::trusted("s3"),
        provider: provider(),
        name: ObjectName::trusted("name"),
        external_id: external_id.map(ExternalId::trusted),
        phase,
        attempt: Attempt(5),
        since: Timestamp::from_unix_ms(0),
        stop_may_land: false,
    });
    KnownHome {
        home: HomeId(1),
        account: AccountName::default_account(),
        issue: IssueId::from_github(1),
        generation: Generation(3),
        sandbox: recorded,
    }
}

fn object(external_id: &str, sandbox: &str, generation: u32, state: ObjectState) -> Ours {
    Ours {
        external_id: ExternalId::trusted(external_id),
        name: ObjectName::trusted("name"),
        labels: Labels {
            instance: InstanceId::trusted("here"),
            account: AccountName::default_account(),
            home: HomeId(1),
            issue: IssueId::from_github(1),
            sandbox: SandboxId::trusted(sandbox),
            generation: Generation(generation),
            mode: if sandbox.starts_with('f') { Mode::Fast } else { Mode::Strong },
        },
        state,
    }
}

/// Findings in words; of the sandboxes, `deleted` is in history.
fn findings(known: &KnownHome, objects: &[Ours]) -> Vec<String> {
    let is_deleted = |id: &SandboxId| id.as_str() == "deleted";
    let word = |finding| match finding {
        Finding::Lost => "lost".to_owned(),
        Finding::Down(state) => format!("down {state}"),
        Finding::Up => "up".to_owned(),
        Finding::Back(state) => format!("back {state}"),
        Finding::Orphan(object, kind) => format!("{} {kind:?}", object.external_id),
    };
    compare(&provider(), known, objects, is_deleted).into_iter().map(word).collect()
}

#[test]
fn a_recorded_object_is_a_finding_only_if_it_contradicts_its_record() {
    use ObjectState::{Destroying, Partial, Running, Stopped};
    let error = ObjectState::Error { message: "no image".into() };
    let states = [Running, Stopped, Partial, Destroying, error].map(Some);
    let states: Vec<_> = [None].into_iter().chain(states).collect();
    let silent = [""; 6];
    for (phase, expected) in [
        (Phase::Running, ["lost", "", "down stopped", "down partial", "", "down error: no image"]),
        (Phase::Stopped, ["lost", "up", "", "", "", "down error: no image"]),
        (Phase::Creating, silent),
        (Phase::Starting, silent),
        (Phase::Stopping, silent),
        (Phase::Deleting, silent),
        (Phase::Failed, ["lost", "up", "", "", "", ""]),
    ] {
        for (state, expected) in states.iter().zip(expected) {
            let objects: Vec<_> =
                state.clone().map(|state| object("o3", "s3", 3, state)).into_iter().collect();
            let found = findings(&home(Some(phase), Some("o3")), &objects).join(", ");
            assert_eq!(found, expected, "{phase} with {state:?}");
        }
    }
}

/// A failed create has no object; one of its own may be there all the same.
#[test]
fn an_object_that_is_there_although_its_create_failed_is_a_finding() {
    use ObjectState::{Destroying, Partial, Running, Stopped};
    let failed = home(Some(Phase::Failed), None);
    for (state, expected) in [
        (None, ""),
        (Some(Running), "up"),
        (Some(Stopped), "back stopped"),
        (Some(Partial), "back partial"),
        (Some(Destroying), ""),
    ] {
        let objects: Vec<_> =
            state.clone().map(|state| object("o3", "s3", 3, state)).into_iter().collect();
        assert_eq!(findings(&failed, &objects).join(", "), expected, "{state:?}");
    }
}

#[test]
fn an_orphan_is_classified_by_what_is_known_of_it() {
    let running = || ObjectState::Running;
    let none = home(None, None);
    let live = home(Some(Phase::Running), Some("o3"));
    let own = object("o3", "s3", 3, running());
    for (what, known, objects, expected) in [
        ("in history", &none, vec![object("a", "deleted", 3, running())], vec!["a Deleted"]),
        ("fast, the next", &none, vec![object("a", "f4", 4, running())], vec!["a FastNext"]),
        ("fast, older", &none, vec![object("a", "f3", 3, running())], vec!["a NeverSeen"]),
        ("fast, a later one", &none, vec![object("a", "f5", 5, running())], vec!["a NeverSeen"]),
        ("strong, the next", &none, vec![object("a", "s4", 4, running())], vec!["a NeverSeen"]),
        (
            "a second one",
            &live,
            vec![object("a", "s2", 2, running()), own.clone()],
            vec!["a Second"],
        ),
        (
            "an older one in history",
            &live,
            vec![own.clone(), object("a", "deleted", 2, running())],
            vec!["a Deleted"],
        ),
        ("the same twice", &live, vec![object("a", "s3", 3, running()), own], vec!["a Twin"]),
        ("under another id", &live, vec![object("a", "s3", 3, running())], vec!["lost", "a Twin"]),
        (
            "the recorded id on another's",
            &live,
            vec![object("o3", "s2", 2, running())],
            vec!["lost", "o3 Second"],
        ),
    ] {
        assert_eq!(findings(known, &objects), expected, "{what}");
    }
}

#[test]
fn what_failed_may_have_left_one_object_and_a_second_is_findings() {
    let failed = home(Some(Phase::Failed), None);
    let left = object("a", "s3", 3, ObjectState::Partial);
    assert_eq!(findings(&failed, std::slice::from_ref(&left)), ["back partial"]);
    let second = object("b", "s3", 3, ObjectState::Running);
    assert_eq!(findings(&failed, &[left, second]), ["back partial", "b Twin"]);
}

#[test]
fn a_sandbox_of_another_provider_explains_nothing_here() {
    let mut known = home(Some(Phase::Running), Some("o3"));
    let recorded = known.sandbox.as_mut().expect("it is live");
    recorded.provider = ProviderName::trusted("another");
    assert_eq!(findings(&known, &[]), Vec::<String>::new());
    let here = object("o3", "s3", 3, ObjectState::Running);
    assert_eq!(findings(&known, &[here]), ["o3 NeverSeen"]);
}

#[test]
fn another_installations_object_is_none_of_ours() {
    let theirs = object("a", "s3", 3, ObjectState::Running);
    let of = |labels| Object {
        external_id: theirs.external_id.clone(),
        name: theirs.name.clone(),
        labels,
        state: theirs.state.clone(),
    };
    let here = InstanceId::trusted("here");
    assert!(Ours::of(of(Some(theirs.labels.clone())), &here).is_some());
    assert_eq!(Ours::of(of(Some(theirs.labels.clone())), &InstanceId::trusted("there")), None);
    assert_eq!(Ours::of(of(None), &here), None);
}

#[test]
fn orphans_are_removed_in_their_time_or_by_a_person() {
    let at = Timestamp::from_unix_ms(1_000);
    for (kind, expected) in [
        (OrphanKind::Deleted, Some(at)),
        (OrphanKind::FastNext, Some(at.after(FAST_ORPHAN_MAX))),
        (OrphanKind::NeverSeen, Some(at.after(QUARANTINE))),
        (OrphanKind::Second, Some(at.after(QUARANTINE))),
        (OrphanKind::Twin, None),
    ] {
        assert_eq!(kind.removed_at(at), expected, "{kind:?}");
    }
}

#[test]
fn more_than_three_and_more_than_a_tenth_is_too_much() {
    for (part, of, expected) in [
        (0, 0, false),
        (3, 3, false),
        (4, 4, true),
        (4, 39, true),
        (4, 40, false),
        (5, 40, true),
        (100, 1_000, false),
        (101, 1_000, true),
    ] {
        let lost = SweepTally { records: of, objects: 1, lost: part, removals: 0 };
        let removals = SweepTally { records: 1, objects: of, lost: 0, removals: part };
        let (of_lost, of_removals) = (lost.too_much(), removals.too_much());
        assert_eq!(of_lost == [TooMuch::Lost], expected, "{part} of {of} lost");
        assert_eq!(of_removals == [TooMuch::Removals], expected, "{part} of {of} removed");
    }
}

#[test]
fn a_sight_carries_what_was_read_before_the_look() {
    let observation = home(Some(Phase::Running), Some("o3")).observation(
        &provider(),
        Timestamp::from_unix_ms(0),
        Vec::new(),
    );
    assert_eq!((observation.generation, observation.attempt), (Generation(3), Attempt(5)));
    assert_eq!(observation.phase, Some(Phase::Running));
    let observation =
        home(None, None).observation(&provider(), Timestamp::from_unix_ms(0), Vec::new());
    assert_eq!(
        (observation.generation, observation.attempt, observation.phase),
        (Generation(3), Attempt(0), None)
    );
}
