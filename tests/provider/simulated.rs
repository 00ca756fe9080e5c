//! The simulated provider keeps the provider's contract, shows what it did in its files, notices
//! what others do there, and fails exactly as it is told to.

mod faults;
mod world;

use std::fs;
use std::sync::Arc;

use futures_util::future::join_all;
use issuebox::sandbox::simulated::{SimulatedConfig, SimulatedFaults, SimulatedProvider};
use issuebox::sandbox::{
    CreateSpec, Descriptor, Enforcement, ExecEvent, ExecRequest, Lifecycle, Object, Processes,
    ProviderError, Uniqueness, WorkError,
};
use issuebox::types::{ExternalId, InstanceId, ObjectName, ObjectState};
use serde_json::{Value, json};
use world::{World, is_unavailable, key, present, target};

#[tokio::test(start_paused = true)]
async fn a_create_leaves_one_file_that_says_what_it_is() {
    let world = World::new();
    let object = world.open().create(world.spec(7, "s1")).await.expect("is made");
    assert_eq!(object.state, ObjectState::Running);
    let expected = json!({
        "name": "claude-issue-7",
        "labels": {
            "issuebox.instance": "here",
            "issuebox.account": "default",
            "issuebox.home": "7",
            "issuebox.issue": "7",
            "issuebox.sandbox": "s1",
            "issuebox.generation": "1",
            "issuebox.mode": "strong",
        },
        "state": "running",
        "externalId": object.external_id.as_str(),
        "createdAt": "2026-02-02T02:40:00.000Z",
    });
    assert_eq!(world.files(), [expected]);
    assert!(world.path(&format!("{}.json", object.external_id)).exists());
}

#[tokio::test(start_paused = true)]
async fn what_was_made_survives_the_server() {
    let world = World::new();
    let first = world.open();
    let object = first.create(world.spec(7, "s1")).await.expect("is made");
    let identity = first.health().await.identity;
    drop(first);
    let second = world.open();
    assert_eq!(second.find(key(7)).await, Ok(vec![object.clone()]));
    assert_eq!(second.create(world.spec(7, "s1")).await, Ok(object.clone()), "it is adopted");
    assert_eq!(second.create(world.spec(7, "s2")).await, Err(present(&object)));
    assert!(identity.is_some());
    assert_eq!(second.health().await.identity, identity, "it is the same provider");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_create_brings_the_same_object_up() {
    let world = World::new();
    let provider = world.open();
    let object = provider.create(world.spec(7, "s1")).await.expect("is made");
    for state in ["stopped", "partial", "running"] {
        let mut file = world.files().remove(0);
        file["state"] = state.into();
        world.put(object.external_id.as_str(), &file);
        assert_eq!(provider.create(world.spec(7, "s1")).await, Ok(object.clone()), "from {state}");
        assert_eq!(world.files()[0]["state"], "running");
    }
    assert_eq!(world.files().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn anyone_elses_object_of_the_name_is_shown_and_left_alone() {
    let world = World::new();
    let provider = world.open();
    let foreign = json!({"name": "claude-issue-7", "labels": {"by": "hand"}, "state": "running"});
    world.put("theirs", &foreign);
    let seen = Object {
        external_id: ExternalId::trusted("theirs"),
        name: ObjectName::trusted("claude-issue-7"),
        labels: None,
        state: ObjectState::Running,
    };
    assert_eq!(provider.create(world.spec(7, "s1")).await, Err(present(&seen)));
    assert_eq!(provider.find(key(7)).await, Ok(vec![seen.clone()]));
    assert_eq!(provider.list(InstanceId::trusted("here")).await, Ok(vec![]), "it is not ours");
    assert_eq!(provider.delete(world.call(&seen, "s1")).await, Err(present(&seen)));
    assert_eq!(world.files(), [foreign]);
}

#[tokio::test(start_paused = true)]
async fn an_object_in_error_is_shown_with_its_reason_and_can_only_be_deleted() {
    let world = World::new();
    let provider = world.open();
    let object = provider.create(world.spec(7, "s1")).await.expect("is made");
    let mut file = world.files().remove(0);
    file["state"] = json!("error");
    file["message"] = json!("no such image");
    world.put(object.external_id.as_str(), &file);
    let state = ObjectState::Error { message: "no such image".into() };
    let dead = Object { state, ..object.clone() };
    assert_eq!(provider.find(key(7)).await, Ok(vec![dead.clone()]));
    assert_eq!(provider.create(world.spec(7, "s1")).await, Err(present(&dead)), "not completed");
    let broken = || Err(ProviderError::Broken("no such image".into()));
    assert_eq!(provider.start(world.call(&object, "s1")).await, broken());
    assert_eq!(provider.stop(world.call(&object, "s1")).await, broken());
    provider.delete(world.call(&object, "s1")).await.expect("deleted");
    assert_eq!(provider.find(key(7)).await, Ok(vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn creates_of_one_name_at_once_give_one_object() {
    let world = World::new();
    let provider = Arc::new(world.open());
    let tasks = (0..64).map(|n| {
        let (provider, spec) = (provider.clone(), world.spec(7, &format!("s{}", n % 2)));
        tokio::spawn(async move { (n % 2, provider.create(spec).await) })
    });
    let mut made = [None, None];
    for task in join_all(tasks).await {
        let (sandbox, answer) = task.expect("ends");
        match answer {
            Ok(object) => {
                let first = made[sandbox].get_or_insert_with(|| object.clone());
                assert_eq!(*first, object, "everyone is given the same one");
            }
            Err(error) => assert!(matches!(error, ProviderError::Present(_)), "{error}"),
        }
    }
    assert_eq!(made.iter().flatten().count(), 1, "one of the two sandboxes won");
    assert_eq!(world.files().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_unique_names_a_second_create_makes_a_second_object() {
    let world = World::new();
    let provider = world.open_with(false, SimulatedFaults::default());
    assert_eq!(provider.descriptor().uniqueness, Uniqueness::None);
    assert_eq!(world.open().descriptor().uniqueness, Uniqueness::EnforcedNames);
    let one = provider.create(world.spec(7, "s1")).await.expect("is made");
    let two = provider.create(world.spec(7, "s1")).await.expect("is made");
    assert_ne!(one.external_id, two.external_id);
    assert_eq!(provider.find(key(7)).await, Ok(vec![one, two]));
    assert_eq!(world.files().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_stops_starts_and_goes() {
    let world = World::new();
    let provider = world.open();
    let object = provider.create(world.spec(7, "s1")).await.expect("is made");
    let stopped = Object { state: ObjectState::Stopped, ..object.clone() };
    let call = || world.call(&object, "s1");
    for _already in [false, true] {
        assert_eq!(provider.stop(call()).await, Ok(stopped.clone()));
        assert_eq!(world.files()[0]["state"], "stopped");
    }
    assert_eq!(world.files()[0]["createdAt"], "2026-02-02T02:40:00.000Z", "the rest stays");
    for _already in [false, true] {
        assert_eq!(provider.start(call()).await, Ok(object.clone()));
        assert_eq!(world.files()[0]["state"], "running");
    }
    assert_eq!(provider.delete(call()).await, Ok(()));
    assert_eq!(world.files(), [Value::Null; 0]);
    assert_eq!(provider.delete(call()).await, Err(ProviderError::Absent));
    assert_eq!(provider.stop(call()).await, Err(ProviderError::Absent));
    assert_eq!(provider.start(call()).await, Err(ProviderError::Absent));
    assert_eq!(provider.find(key(7)).await, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_call_for_another_sandbox_changes_nothing() {
    let world = World::new();
    let provider = world.open();
    let object = provider.create(world.spec(7, "s2")).await.expect("is made");
    let before = world.files();
    let call = || world.call(&object, "s1");
    assert_eq!(provider.stop(call()).await, Err(present(&object)));
    assert_eq!(provider.start(call()).await, Err(present(&object)));
    assert_eq!(provider.delete(call()).await, Err(present(&object)));
    let exec = ExecRequest {
        command: vec!["true".into()],
        cwd: None,
        env: vec![],
        stdin: bytes::Bytes::new().into(),
        timeout: None,
    };
    let ran = provider.exec(target(&object, "s1"), exec).await;
    assert!(matches!(ran, Err(WorkError::NotRunning)));
    assert_eq!(world.files(), before);
}

#[tokio::test(start_paused = true)]
async fn what_is_found_has_the_name_or_the_homes_label() {
    let world = World::new();
    let provider = world.open();
    let by_name = provider.create(world.spec(7, "s1")).await.expect("is made");
    let renamed = CreateSpec { name: ObjectName::trusted("older"), ..world.spec(7, "s0") };
    let by_home = provider.create(renamed).await.expect("is made");
    let _other_home = provider.create(world.spec(8, "s3")).await.expect("is made");
    let mut elsewhere = CreateSpec { name: ObjectName::trusted("far"), ..world.spec(7, "s4") };
    elsewhere.labels.instance = InstanceId::trusted("there");
    provider.create(elsewhere).await.expect("is made");
    assert_eq!(provider.find(key(7)).await, Ok(vec![by_name.clone(), by_home.clone()]));
    let listed = provider.list(InstanceId::trusted("here")).await.expect("lists");
    assert_eq!(listed.len(), 3, "all of this installation");
}

#[tokio::test(start_paused = true)]
async fn what_others_do_to_the_files_is_noticed() {
    let world = World::new();
    let provider = world.open();
    let object = provider.create(world.spec(7, "s1")).await.expect("is made");
    let id = object.external_id.as_str();
    let mut file = world.files().remove(0);

    file["state"] = "stopped".into();
    file["labels"]["extra"] = "kept".into();
    world.put(id, &file);
    let stopped = Object { state: ObjectState::Stopped, ..object.clone() };
    assert_eq!(provider.find(key(7)).await, Ok(vec![stopped]), "a change");
    assert_eq!(provider.start(world.call(&object, "s1")).await, Ok(object.clone()));
    assert_eq!(world.files()[0]["labels"]["extra"], "kept");

    fs::remove_file(world.path(&format!("{id}.json"))).expect("is there");
    assert_eq!(provider.find(key(7)).await, Ok(vec![]), "a removal");
    assert_eq!(provider.stop(world.call(&object, "s1")).await, Err(ProviderError::Absent));
    let again = provider.create(world.spec(7, "s2")).await.expect("the name is free again");
    fs::remove_file(world.path(&format!("{}.json", again.external_id))).expect("is there");
    let spec = world.spec(7, "s3");
    assert!(provider.create(spec).await.is_ok(), "also a removal right after our own write");

    file["name"] = "claude-issue-8".into();
    world.put("added", &file);
    let added = provider.create(world.spec(8, "s4")).await;
    assert!(matches!(added, Err(ProviderError::Present(_))), "an addition: {added:?}");
    // By rename, as careful writers do it.
    fs::rename(world.path("added.json"), world.path("moved.json")).expect("is there");
    let found = provider.find(key(8)).await.expect("finds");
    let ids: Vec<_> = found.iter().map(|object| object.external_id.as_str()).collect();
    assert_eq!(ids, ["moved"]);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_understood_makes_no_name_free() {
    let world = World::new();
    let provider = world.open();
    let object = provider.create(world.spec(7, "s1")).await.expect("is made");
    let good = world.files().remove(0);
    let path = world.path(&format!("{}.json", object.external_id));
    let unknown_state = r#"{"name": "claude-issue-7", "state": "on fire"}"#;
    for bad in ["", "{\"name\": \"claude", "[]", "{}", unknown_state] {
        fs::write(&path, bad).expect("writes");
        assert!(is_unavailable(provider.create(world.spec(7, "s1")).await), "{bad:?}");
        assert!(is_unavailable(provider.find(key(7)).await), "{bad:?}");
        assert!(is_unavailable(provider.list(InstanceId::trusted("here")).await), "{bad:?}");
        assert!(is_unavailable(provider.delete(world.call(&object, "s1")).await), "{bad:?}");
        assert!(path.exists(), "it is never removed");
    }
    world.put(object.external_id.as_str(), &good);
    assert_eq!(provider.find(key(7)).await, Ok(vec![object]), "mended");
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_taken_away_is_unavailable_and_not_empty() {
    let world = World::new();
    let provider = world.open();
    provider.create(world.spec(7, "s1")).await.expect("is made");
    let away = world.dir.path().join("away");
    fs::rename(world.path(""), &away).expect("is there");
    assert!(is_unavailable(provider.find(key(7)).await));
    assert!(provider.health().await.trouble.is_some());
    fs::rename(&away, world.path("")).expect("is there");
    assert_eq!(provider.find(key(7)).await.map(|found| found.len()), Ok(1), "back again");
    fs::remove_file(
        world
            .path("")
            .join(format!("{}.json", provider.find(key(7)).await.expect("finds")[0].external_id)),
    )
    .expect("is there");
    assert_eq!(provider.find(key(7)).await, Ok(vec![]), "changes are still noticed");
}

#[tokio::test(start_paused = true)]
async fn every_call_is_a_line_of_the_log() {
    let world = World::new();
    let provider = world.open();
    let object = provider.create(world.spec(7, "s1")).await.expect("is made");
    provider.find(key(7)).await.expect("finds");
    provider.list(InstanceId::trusted("here")).await.expect("lists");
    provider.stop(world.call(&object, "s1")).await.expect("is stopped");
    provider.start(world.call(&object, "s1")).await.expect("is started");
    provider.create(world.spec(7, "s2")).await.expect_err("is taken");
    provider.delete(world.call(&object, "s1")).await.expect("is removed");
    provider.delete(world.call(&object, "s1")).await.expect_err("is gone");
    let expected = [
        "create ok",
        "get ok",
        "list ok",
        "stop ok",
        "start ok",
        "create present",
        "delete ok",
        "delete absent",
    ];
    assert_eq!(world.results(), expected);
    let calls = world.calls();
    let labels = json!({
        "issuebox.instance": "here",
        "issuebox.account": "default",
        "issuebox.home": "7",
        "issuebox.issue": "7",
        "issuebox.sandbox": "s1",
        "issuebox.generation": "1",
        "issuebox.mode": "strong",
    });
    let line = |verb, name, labels, result| {
        let at = "2026-02-02T02:40:00.000Z";
        json!({"at": at, "verb": verb, "name": name, "labels": labels, "result": result})
    };
    let name = Some("claude-issue-7");
    assert_eq!(calls[0], line("create", name, labels.clone(), "ok"));
    let of_home = json!({"issuebox.instance": "here", "issuebox.home": "7"});
    assert_eq!(calls[1], line("get", name, of_home, "ok"));
    assert_eq!(calls[2], line("list", None, json!({"issuebox.instance": "here"}), "ok"));
    assert_eq!(calls[6], line("delete", name, labels, "ok"));
    assert_eq!(calls[7], line("delete", None, json!({}), "absent"));
}

#[tokio::test(start_paused = true)]
async fn the_log_goes_on_after_it_was_taken_away() {
    let world = World::new();
    let provider = world.open();
    provider.find(key(1)).await.expect("finds");
    fs::remove_file(world.path("calls.jsonl")).expect("is there");
    provider.find(key(2)).await.expect("finds");
    assert_eq!(world.results(), ["get ok"]);
    fs::rename(world.path("calls.jsonl"), world.path("old.jsonl")).expect("is there");
    provider.find(key(3)).await.expect("finds");
    assert_eq!(world.calls()[0]["name"], "claude-issue-3");
    drop(provider);
    world.open().find(key(4)).await.expect("finds");
    assert_eq!(world.calls().len(), 2, "another server appends");
}

#[tokio::test(start_paused = true)]
async fn exec_writes_its_arguments_back_while_it_runs() {
    let world = World::new();
    let provider = world.open();
    let object = provider.create(world.spec(7, "s1")).await.expect("is made");
    let run = |command: &[&str]| {
        let request = ExecRequest {
            command: command.iter().map(|word| (*word).into()).collect(),
            cwd: None,
            env: vec![],
            stdin: bytes::Bytes::from_static(b"not read").into(),
            timeout: None,
        };
        provider.exec(target(&object, "s1"), request)
    };
    for (command, output) in [(&["echo", "a", "b c"][..], "a b c\n"), (&["true"], "\n")] {
        let mut events = run(command).await.expect("runs").events;
        assert_eq!(events.recv().await, Some(ExecEvent::Stdout(output.into())));
        assert_eq!(events.recv().await, Some(ExecEvent::Exit { code: 0, timed_out: false }));
        assert_eq!(events.recv().await, None);
    }
    provider.stop(world.call(&object, "s1")).await.expect("is stopped");
    assert!(matches!(run(&["true"]).await, Err(WorkError::NotRunning)));
    provider.delete(world.call(&object, "s1")).await.expect("is removed");
    assert!(matches!(run(&["true"]).await, Err(WorkError::NotRunning)));
    provider.set_faults(SimulatedFaults { unavailable: true, ..SimulatedFaults::default() });
    assert!(matches!(run(&["true"]).await, Err(WorkError::Broken(_))));
}

#[tokio::test(start_paused = true)]
async fn it_says_that_no_limit_holds() {
    let world = World::new();
    let provider = world.open();
    let Descriptor { isolation, limits, .. } = provider.descriptor();
    assert_eq!((isolation.kind, isolation.seccomp), ("simulated", Enforcement::None));
    assert!(limits.values().all(|how| *how == Enforcement::None));
    assert_eq!(provider.health().await.limits, limits);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_cannot_be_used_is_named() {
    let world = World::new();
    fs::write(world.dir.path().join("file"), "").expect("writes");
    let config = SimulatedConfig { dir: world.dir.path().join("file/objects"), unique_names: true };
    let (clock, dice) = (world.clock.clone(), world.dice.clone());
    let refusal = SimulatedProvider::open(config, SimulatedFaults::default(), clock, dice);
    let text = refusal.err().expect("must be refused").to_string();
    assert!(text.contains("file/objects") && text.contains("[providers.simulated]"), "{text}");
}

/// Not a check but a measurement: `cargo test --release --test provider creates_a_second -- --ignored
/// --nocapture`.
#[tokio::test]
#[ignore = "measures; meaningful only in a release build on a quiet machine"]
async fn creates_a_second() {
    const OBJECTS: i64 = 20_000;
    let world = World::new();
    let provider = world.open();
    let begun = std::time::Instant::now();
    for home in 0..OBJECTS {
        let spec = world.spec(home, &format!("sandbox-{home}"));
        provider.create(spec).await.expect("is made");
    }
    println!("{:.0} creates a second", OBJECTS as f64 / begun.elapsed().as_secs_f64());
    let begun = std::time::Instant::now();
    for home in 0..OBJECTS {
        assert_eq!(provider.find(key(home)).await.expect("finds").len(), 1);
    }
    println!("{:.0} finds a second", OBJECTS as f64 / begun.elapsed().as_secs_f64());
    drop(provider);
    let begun = std::time::Instant::now();
    let provider = world.open();
    println!("{OBJECTS} objects read at start in {:?}", begun.elapsed());
    let begun = std::time::Instant::now();
    let listed = provider.list(InstanceId::trusted("here")).await.expect("lists").len();
    println!("{listed} objects listed in {:?}", begun.elapsed());
}
