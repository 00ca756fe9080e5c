//! The hooks that the lifecycle waits for, carried out by a test: when they run, what ends them, and
//! what a crash makes of them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::watch;

use super::*;
use crate::engine::{HookedSandbox, LifecycleHooks};
use crate::issue::Command;
use crate::issue::commit::Farewell;
use crate::issue::event::{CallError, ColdStartEnd};
use crate::store::Store;
use crate::types::{GitWorkload, HookAction, HookStep, RepositoryFile, Workload};

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn cause() -> Cause {
    Cause::Service("test")
}

/// Hooks that wait until a test lets them end.
struct HeldHooks {
    called: Mutex<Vec<&'static str>>,
    /// How a cold start ends; held while there is none.
    end: watch::Sender<Option<ColdStartEnd>>,
}

impl HeldHooks {
    fn new(end: Option<ColdStartEnd>) -> Arc<Self> {
        Arc::new(Self { called: Mutex::default(), end: watch::Sender::new(end) })
    }

    fn call(&self, name: &'static str) {
        self.called.lock().expect("not poisoned").push(name);
    }

    fn count(&self, name: &str) -> usize {
        self.called.lock().expect("not poisoned").iter().filter(|called| **called == name).count()
    }
}

#[async_trait]
impl LifecycleHooks for HeldHooks {
    async fn cold_start(&self, _: HookedSandbox) -> Result<ColdStartEnd, CallError> {
        self.call("cold_start");
        let mut end = self.end.subscribe();
        let end = end.wait_for(Option::is_some).await.expect("the sender is here").clone();
        Ok(end.expect("it was waited for"))
    }

    async fn before_end(&self, _: HookedSandbox, _: Farewell) {
        self.call("before_end");
        std::future::pending::<()>().await;
    }

    async fn out_of_grace(&self, _: HookedSandbox, _: Farewell) {
        self.call("out_of_grace");
    }
}

fn hooked() -> Template {
    let step = HookStep {
        action: HookAction::Run(vec!["a".into()]),
        cwd: None,
        timeout: Duration::from_secs(60),
        env: BTreeMap::new(),
    };
    let mut workload = Workload::default();
    workload.hooks.on_cold_start = vec![step.clone()];
    workload.hooks.on_terminate = vec![step];
    workload.hooks.grace = Duration::from_millis(300);
    Template { name: TemplateName::trusted("hooked"), workload: workload.into(), ..template() }
}

async fn bench(hooks: &Arc<HeldHooks>) -> EngineBench {
    let bench = EngineBench::new_with(BenchSetup { hooked: Some(hooked()), ..Default::default() });
    let bench = bench.await;
    bench.engine.set_hooks(Arc::clone(hooks) as _);
    bench
}

fn ensure_hooked() -> EnsureIssue {
    EnsureIssue { template: Some(TemplateName::trusted("hooked")), ..ensure("1") }
}

#[actix::test]
async fn a_sandbox_is_not_running_before_its_cold_start_ended() {
    let hooks = HeldHooks::new(None);
    let bench = bench(&hooks).await;
    bench.engine.ensure(&account(), ensure_hooked()).await.expect("it is answered");
    eventually("the cold start runs", async || hooks.count("cold_start") == 1).await;
    let now = bench.engine.sandbox(&account(), &named("1")).await.expect("it is known");
    assert_eq!(now.phase, Some(Phase::Creating));
    hooks.end.send_replace(Some(ColdStartEnd::Succeeded));
    settled(&bench, Phase::Running).await;
    assert_eq!((hooks.count("cold_start"), bench.provider.count("create")), (1, 1));
}

#[actix::test]
async fn what_the_file_of_a_repository_says_is_stored_with_the_sandbox() {
    let file = RepositoryFile {
        commit: Some("c0ffee".into()),
        working_dir: Some("web".into()),
        instructions: "Keep lines short.".into(),
    };
    let hooks = HeldHooks::new(Some(ColdStartEnd::SucceededWith(file.clone())));
    let mut reading = hooked();
    let repository_file = Some(RepositoryFile::default());
    Arc::make_mut(&mut reading.workload).git =
        Some(GitWorkload { repository_file, ..GitWorkload::default() });
    let setup = BenchSetup { hooked: Some(reading), ..Default::default() };
    let bench = EngineBench::new_with(setup).await;
    bench.engine.set_hooks(Arc::clone(&hooks) as _);
    let waits = bench.engine.cold_start_time_max();
    assert!(waits >= Duration::from_secs(60) + RepositoryFile::SETUP_TIME_MAX, "{waits:?}");
    bench.engine.ensure(&account(), ensure_hooked()).await.expect("it is answered");
    settled(&bench, Phase::Running).await;
    let of = named("1");
    let (sandbox, template) = bench.engine.made_from(&account(), &of).await.expect("it is known");
    assert_eq!(template.workload.repository_file(), Some(&file));
    let today = bench.engine.version_today(&template.name, sandbox.repository.as_ref());
    assert_eq!(today, Some(template.version()), "it does not count as changed");
    assert_eq!(today, sandbox.template_version);
}

#[actix::test]
async fn a_failed_cold_start_is_cleaned_up_and_retried() {
    let hooks = HeldHooks::new(Some(ColdStartEnd::Failed("step 1:\nno such package".into())));
    let bench = bench(&hooks).await;
    bench.engine.ensure(&account(), ensure_hooked()).await.expect("it is answered");
    settled(&bench, Phase::Failed).await;
    let failed = bench.engine.sandbox(&account(), &named("1")).await.expect("it is known");
    let failure = failed.failure.expect("it failed");
    assert_eq!(failure.code.as_str(), "hook_failed");
    assert!(failure.message.ends_with("no such package"), "{}", failure.message);
    assert_eq!(bench.provider.count("delete"), 1, "nothing is left");
    hooks.end.send_replace(Some(ColdStartEnd::Succeeded));
    let retried = bench.engine.command(&account(), &named("1"), Command::Retry, cause()).await;
    retried.expect("it is accepted");
    settled(&bench, Phase::Running).await;
    assert_eq!((hooks.count("cold_start"), bench.provider.count("create")), (2, 2));
}

#[actix::test]
async fn a_delete_ends_a_cold_start() {
    let hooks = HeldHooks::new(None);
    let bench = bench(&hooks).await;
    bench.engine.ensure(&account(), ensure_hooked()).await.expect("it is answered");
    eventually("the cold start runs", async || hooks.count("cold_start") == 1).await;
    let deleted = bench.engine.command(&account(), &named("1"), Command::Delete, cause()).await;
    deleted.expect("it is accepted");
    let waited = bench.engine.wait(&account(), &named("1"), WaitFor::Absent, TEN_SECONDS).await;
    assert!(waited.expect("it is known").settled, "the cold start would go on for ever");
    assert_eq!(hooks.count("before_end"), 0, "it never ran");
}

#[actix::test]
async fn a_stop_and_a_delete_wait_for_the_grace_time_and_no_longer() {
    let hooks = HeldHooks::new(Some(ColdStartEnd::Succeeded));
    let bench = bench(&hooks).await;
    let began = Instant::now();
    for round in 1..=2 {
        bench.engine.ensure(&account(), ensure_hooked()).await.expect("it is answered");
        settled(&bench, Phase::Running).await;
        match round {
            1 => {
                let (account, of) = (account(), named("1"));
                let stopped = bench.engine.command(&account, &of, Command::Stop, cause());
                stopped.await.expect("it is accepted");
                settled(&bench, Phase::Stopped).await;
            }
            _ => {
                let (of_account, of) = (account(), named("1"));
                let ended = bench.engine.command(&of_account, &of, Command::Delete, cause());
                ended.await.expect("it is accepted");
                let absent = WaitFor::Absent;
                let waited = bench.engine.wait(&account(), &named("1"), absent, TEN_SECONDS).await;
                assert!(waited.expect("it is known").settled);
            }
        }
        assert_eq!((hooks.count("before_end"), hooks.count("out_of_grace")), (round, round));
    }
    assert!(began.elapsed() >= Duration::from_millis(600), "each had its time");
}

#[actix::test]
async fn a_crash_in_a_cold_start_makes_no_second_object_and_runs_it_again() {
    let hooks = HeldHooks::new(None);
    let bench = bench(&hooks).await;
    bench.engine.ensure(&account(), ensure_hooked()).await.expect("it is answered");
    eventually("the cold start runs", async || hooks.count("cold_start") == 1).await;
    let (store, provider) = bench.crash();
    let bench = EngineBench::on(store, provider).await;
    let hooks = HeldHooks::new(Some(ColdStartEnd::Succeeded));
    // The home looks before these are set, and its cold start waits for them.
    bench.engine.set_hooks(Arc::clone(&hooks) as _);
    settled(&bench, Phase::Running).await;
    assert_eq!((hooks.count("cold_start"), bench.provider.count("create")), (1, 1));
}

#[actix::test]
async fn the_end_of_the_server_does_not_wait_for_a_cold_start() {
    let hooks = HeldHooks::new(None);
    let bench = bench(&hooks).await;
    bench.engine.ensure(&account(), ensure_hooked()).await.expect("it is answered");
    eventually("the cold start runs", async || hooks.count("cold_start") == 1).await;
    let left = bench.engine.stop(TEN_SECONDS).await;
    assert_eq!(left, 0);
    let issue = bench.store.load(crate::types::HomeId(1)).await.expect("it is read");
    let issue = issue.expect("it is stored");
    let is_asked = matches!(issue.state.step(), Some(crate::issue::Step::Asked { .. }));
    assert!(is_asked, "the next server looks: {:?}", issue.state);
}
