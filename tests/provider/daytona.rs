//! The provider `daytona` over a model of Daytona: what it does beside the contract, and what it makes
//! of conflicts, faults and states that others bring about.

mod archives;
pub mod model;
mod pty;
mod scenarios;
mod server;
mod specs;
mod terminals;
mod toolbox;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use issuebox::clock::{Clock, SystemClock, SystemIds};
use issuebox::sandbox::daytona::{DaytonaConfig, DaytonaProvider};
use issuebox::sandbox::{
    CreateSpec, FilePart, HttpAccess, Object, PortAccess, Provider, ProviderError, TargetCall,
    WorkError,
};
use issuebox::types::{
    AllowedHost, NamedSecrets, Network, ObjectState, Secret, SecretName, Workload,
};
use model::{Fault, KEY, Model, model_in};

use crate::detached::spec;
use crate::subject::{Subject, WAIT, call, path, target};

/// A configuration for the model in a directory, with short waits.
pub fn config(dir: &Path) -> DaytonaConfig {
    DaytonaConfig {
        api_url: model_in(dir).url(),
        key: Secret::new(KEY),
        region: Some("eu".into()),
        workspace: "workspace".into(),
        archive_minutes: Some(60),
        secrets: NamedSecrets::new([(SecretName::trusted("npm"), Secret::new("hush"))].into()),
        late_effect_window: Duration::from_millis(300),
        look_again: Duration::from_millis(5),
    }
}

/// A provider for the model in a directory.
pub fn open(dir: &Path) -> Provider {
    let provider = DaytonaProvider::open(config(dir), Arc::new(SystemClock), Arc::new(SystemIds));
    Provider::from(Arc::new(provider.expect("it opens")))
}

/// The subject with its model.
async fn subject() -> (Subject, Arc<Model>) {
    let subject = Subject::daytona().await.expect("it needs nothing of the machine");
    let model = model_in(subject.dir());
    (subject, model)
}

/// A call with little time.
fn soon(object: &Object, ms: u64) -> TargetCall {
    let deadline = SystemClock.now().after(Duration::from_millis(ms));
    TargetCall { deadline, ..call(&target(object)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_sandbox_is_a_stopped_one_that_a_start_brings_back() {
    let (subject, model) = subject().await;
    let object = subject.make("archived", "s1").await;
    subject.write(&target(&object), b"file", "kept".into()).await.expect("written");
    subject.stop(&target(&object)).await;
    let id = object.external_id.as_str();
    model.with(id, |sandbox| (sandbox.state, sandbox.desired) = ("archived", "archived"));
    assert_eq!(subject.find("archived").await[0].state, ObjectState::Stopped);
    subject.stop(&target(&object)).await;
    subject.start(&target(&object)).await;
    assert_eq!(subject.read(&target(&object), b"file").await, Ok(b"kept".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_can_be_recovered_is_and_any_other_is_shown() {
    let (subject, model) = subject().await;
    let object = subject.make("error", "s1").await;
    let lifecycle = &subject.provider.lifecycle;
    let id = object.external_id.as_str();
    model.with(id, |sandbox| (sandbox.state, sandbox.is_recoverable) = ("error", true));
    assert_eq!(subject.find("error").await[0].state, ObjectState::Stopped);
    subject.start(&target(&object)).await;
    assert_eq!(model.count("POST /sandbox/"), 1, "it is recovered, which starts it");
    model.with(id, |sandbox| (sandbox.state, sandbox.is_recoverable) = ("error", false));
    let message = "its runner lost it".to_owned();
    let state = ObjectState::Error { message: message.clone() };
    assert_eq!(subject.find("error").await[0].state, state);
    let broken = Err(ProviderError::Broken(message));
    assert_eq!(lifecycle.start(call(&target(&object))).await, broken);
    assert_eq!(lifecycle.stop(call(&target(&object))).await, broken);
    model.with(id, |sandbox| sandbox.state = "build_failed");
    assert!(matches!(subject.find("error").await[0].state, ObjectState::Error { .. }));
    subject.remove(&object, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_waits_while_daytona_creates_and_says_so_when_its_time_is_up() {
    let (subject, model) = subject().await;
    model.paces.lock().expect("not poisoned").create = Duration::from_millis(400);
    let spec = CreateSpec {
        deadline: SystemClock.now().after(Duration::from_millis(100)),
        ..subject.spec("creating", "s1")
    };
    let lifecycle = &subject.provider.lifecycle;
    let late = lifecycle.create(spec).await.expect_err("it takes longer");
    assert!(matches!(late, ProviderError::Unavailable { .. }), "{late:?}");
    let [object] = &subject.find("creating").await[..] else { panic!("it is there") };
    assert_eq!(object.state, ObjectState::Partial);
    let late = lifecycle.delete(soon(object, 50)).await.expect_err("Daytona refuses it");
    assert!(matches!(late, ProviderError::Unavailable { .. }), "{late:?}");
    // With time it waits for its turn.
    assert_eq!(lifecycle.delete(call(&target(object))).await, Ok(()));
    assert_eq!(subject.find("creating").await[0].state, ObjectState::Destroying);
    subject.remove(object, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_free_while_its_old_sandbox_is_still_being_destroyed() {
    let (subject, model) = subject().await;
    let old = subject.make("name", "s1").await;
    model.paces.lock().expect("not poisoned").destroy = Duration::from_millis(500);
    let lifecycle = &subject.provider.lifecycle;
    assert_eq!(lifecycle.delete(call(&target(&old))).await, Ok(()));
    let new = subject.make("name", "s2").await;
    let found = subject.find("name").await;
    let states: Vec<_> = found.iter().map(|one| (&one.external_id, &one.state)).collect();
    let expected =
        [(&new.external_id, &ObjectState::Running), (&old.external_id, &ObjectState::Destroying)];
    assert_eq!(states, expected, "both carry the home's label");
    assert_eq!(lifecycle.delete(call(&target(&old))).await, Ok(()), "it is still under way");
    subject.remove(&old, false).await;
    assert_eq!(subject.find("name").await, [new]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_that_is_no_duplicate_is_asked_for_again() {
    let (subject, model) = subject().await;
    let conflict = Fault::Status(409, None, "Sandbox state change in progress");
    model.fail("POST /sandbox", 2, conflict);
    let object = subject.make("conflict", "s1").await;
    assert_eq!(subject.find("conflict").await, std::slice::from_ref(&object));
    model.fail("DELETE /sandbox/", 2, Fault::Status(409, None, "Sandbox state change in progress"));
    subject.remove(&object, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_refusals_and_outages_are_told_apart() {
    let (subject, model) = subject().await;
    let lifecycle = &subject.provider.lifecycle;
    let create = async |status, retry_after, message| {
        model.fail("POST /sandbox", 1, Fault::Status(status, retry_after, message));
        lifecycle.create(subject.spec("faults", "s1")).await.expect_err("it fails")
    };
    let limited = create(429, Some("7"), "ThrottlerException: Too Many Requests").await;
    let ProviderError::Exhausted { retry_after, .. } = &limited else { panic!("{limited:?}") };
    assert_eq!(*retry_after, Some(Duration::from_secs(7)));
    let quota = create(403, None, "Total CPU quota exceeded. Maximum allowed: 10.").await;
    assert!(matches!(&quota, ProviderError::Exhausted { what, .. } if what.contains("10")));
    let refused = create(400, None, "cpu must not be greater than 4").await;
    assert!(matches!(&refused, ProviderError::Refused(why) if why.contains("greater than 4")));
    let missing = create(404, None, "Snapshot nowhere not found").await;
    assert!(matches!(&missing, ProviderError::Refused(why) if why.contains("nowhere")));
    for status in [500, 502, 503] {
        let away = create(status, Some("3"), "upstream").await;
        let ProviderError::Unavailable { retry_after, .. } = away else { panic!("{away:?}") };
        assert_eq!(retry_after, Some(Duration::from_secs(3)));
    }
    assert_eq!(subject.find("faults").await, [], "nothing was made");
    model.fail("GET /sandbox", 1, Fault::Status(403, None, "Forbidden"));
    let key = subject.spec("faults", "s1");
    let key = issuebox::sandbox::ObjectKey {
        name: key.name,
        instance: key.labels.instance,
        home: key.labels.home,
    };
    let look = lifecycle.find(key).await.expect_err("it fails");
    assert!(matches!(look, ProviderError::Unavailable { .. }), "a look that fails is no absence");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_answer_daytona_loses_makes_one_sandbox() {
    let (subject, model) = subject().await;
    model.fail("POST /sandbox", 1, Fault::LoseAnswer);
    let lifecycle = &subject.provider.lifecycle;
    let lost = lifecycle.create(subject.spec("lost", "s1")).await.expect_err("no answer");
    assert!(matches!(lost, ProviderError::Unavailable { .. }), "{lost:?}");
    assert_eq!(model.count("POST /sandbox"), 1, "it is not sent again by itself");
    let object = subject.make("lost", "s1").await;
    assert_eq!(subject.find("lost").await, [object]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daytona_that_cannot_be_reached_is_unavailable_and_no_text_holds_the_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let _model = model::start(dir.path());
    let mut config = config(dir.path());
    assert!(!format!("{config:?}").contains(KEY), "{config:?}");
    // A port on which nothing listens: it was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    config.api_url = format!("http://{}/api", free.local_addr().expect("bound"));
    drop(free);
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let provider = DaytonaProvider::open(config.clone(), clock.clone(), ids.clone());
    let provider = Provider::from(Arc::new(provider.expect("it opens")));
    let health = provider.lifecycle.health().await;
    let trouble = health.trouble.expect("there is some");
    assert!(trouble.contains("cannot be reached") && !trouble.contains(KEY), "{trouble}");
    assert_eq!(health.identity, None);
    config.api_url = model_in(dir.path()).url();
    config.key = Secret::new("dtn_another");
    let provider = DaytonaProvider::open(config, clock, ids).expect("it opens");
    let trouble = Provider::from(Arc::new(provider)).lifecycle.health().await.trouble;
    let trouble = trouble.expect("there is some");
    assert!(trouble.contains("providers.daytona.key_file"), "{trouble}");
    assert!(!trouble.contains("dtn_another"), "{trouble}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_template_says_reaches_the_sandbox_and_what_it_cannot_is_refused() {
    let (subject, model) = subject().await;
    let mut spec = subject.spec("template", "s1");
    spec.template.workload = Workload {
        env: [("PLAIN".to_owned(), "seen".to_owned())].into(),
        secrets: [("NPM_TOKEN".to_owned(), SecretName::trusted("npm"))].into(),
        working_dir: Some("deep/er".into()),
        ..Workload::default()
    }
    .into();
    let lifecycle = &subject.provider.lifecycle;
    let object = lifecycle.create(spec.clone()).await.expect("made");
    let ran = subject.run(&target(&object), &["sh", "-c", "echo $PLAIN $NPM_TOKEN; pwd"]).await;
    let text = String::from_utf8(ran.stdout).expect("text");
    assert!(text.starts_with("seen hush\n/") && text.ends_with("/workspace/deep/er\n"), "{text}");
    model.with(object.external_id.as_str(), |sandbox| {
        let asked = sandbox.asked.to_string();
        assert!(!asked.contains("hush"), "Daytona is not given the secret: {asked}");
        assert_eq!(sandbox.asked["autoStopInterval"], 0, "our rule decides");
        assert_eq!(sandbox.asked["autoArchiveInterval"], 60);
        assert_eq!(sandbox.asked["networkBlockAll"], true);
    });
    let entry = AllowedHost::parse("example.org:8443").expect("an entry");
    spec.template.network = Network::Allow { hosts: vec![entry], private: Vec::new() };
    let refused = lifecycle.create(spec).await.expect_err("it cannot be expressed");
    assert!(matches!(&refused, ProviderError::Refused(why) if why.contains("example.org:8443")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_is_reached_by_its_preview_address_and_token() {
    let (subject, _model) = subject().await;
    let object = subject.make("ports", "s1").await;
    let port = subject.provider.processes.port(target(&object), 3000).await.expect("an address");
    let PortAccess::Http(HttpAccess { base_url, headers }) = &port else { panic!("{port:?}") };
    assert_eq!(*base_url, format!("https://3000-{}.proxy.example", object.external_id));
    let token = ("x-daytona-preview-token".to_owned(), "hush-hush".to_owned());
    assert!(headers.contains(&token));
    assert!(!format!("{port:?}").contains("hush-hush"), "{port:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_link_leads_out_of_the_workspace() {
    let (subject, _model) = subject().await;
    let target = subject.target().await;
    subject.write(&target, b"dir/file", "inside".into()).await.expect("written");
    let script = "ln -s dir within; ln -s /etc out; ln -s ../.. up; ln -s round round; \
                  ln -s /etc/passwd leaf; ln -s dir/file near";
    let linked = subject.run(&target, &["sh", "-c", script]).await;
    assert_eq!(linked.exit, Some((0, false)));
    for at in [&b"within/file"[..], b"near"] {
        assert_eq!(subject.read(&target, at).await, Ok(b"inside".to_vec()));
    }
    let workspace = &subject.provider.workspace;
    let not_allowed = |answer: &WorkError| matches!(answer, WorkError::PathNotAllowed(_));
    for at in [&b"out/passwd"[..], b"up/etc/passwd", b"round/x", b"out/new/file"] {
        let read = subject.read_part(&target, at, FilePart::Whole).await.expect_err("refused");
        let written = subject.write(&target, at, "x".into()).await.expect_err("refused");
        let deleted = workspace.delete_file(target.clone(), path(at)).await.expect_err("refused");
        let made = workspace.make_directory(target.clone(), path(at)).await.expect_err("refused");
        for error in [read, written, deleted, made] {
            assert!(not_allowed(&error), "{}: {error:?}", String::from_utf8_lossy(at));
        }
    }
    let read = subject.read(&target, b"leaf").await.expect_err("refused");
    let moded = workspace.set_file_mode(target.clone(), path(b"leaf"), 0o777).await;
    for error in [read, moded.expect_err("refused")] {
        assert!(not_allowed(&error), "{error:?}");
    }
    // A delete takes the link and not what is behind it.
    workspace.delete_file(target.clone(), path(b"within")).await.expect("deleted");
    assert_eq!(subject.read(&target, b"dir/file").await, Ok(b"inside".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_supervisor_was_killed_is_forgotten() {
    let (subject, _model) = subject().await;
    let target = subject.target().await;
    let processes = &subject.provider.processes;
    let spawned = processes.spawn(target.clone(), spec(&["sleep", "1000"])).await;
    let id = spawned.expect("started");
    let kill = "cd ~/.issuebox/p/$1; read -r supervisor _ <sup; kill -9 $supervisor $(cat pid)";
    let killed = subject.run(&target, &["sh", "-c", kill, "sh", &id.number.to_string()]).await;
    assert_eq!(killed.exit, Some((0, false)));
    let waited = tokio::time::timeout(WAIT, processes.wait(target, id)).await;
    assert_eq!(waited.expect("in time"), Err(WorkError::NoSuchProcess));
}
