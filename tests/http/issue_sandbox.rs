//! One issue's sandbox as one value, against a whole server in this process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use issuebox::clock::{Clock, SystemClock};
use issuebox::engine::EngineError;
use issuebox::issue::commit::CommandRefusal;
use issuebox::issue_sandbox::{
    ConversationId, Depth, IssueRef, IssueSandbox, SandboxContext, SandboxError,
};
use issuebox::sandbox::{WorkError, Written};
use issuebox::types::{AccountName, AgentName, HookName, Phase, RunState, SyncDirection};
use serde_json::json;

use crate::common::server::{TestServer, opened};
use crate::process::until;

fn context() -> SandboxContext {
    SandboxContext::new(AccountName::default_account(), "bot")
}

async fn of_issue(server: &TestServer, id: &str) -> Result<IssueSandbox, SandboxError> {
    let issue = IssueRef::id(id)?;
    IssueSandbox::get_or_create(&server.services(), context(), issue, None).await
}

async fn sandbox_phase(server: &TestServer) -> String {
    let found = server.get("/v1/issues/1/sandbox").await.json();
    found["data"]["phase"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_issue_has_one_sandbox_and_what_it_holds_is_the_row() {
    let server = TestServer::start().await;
    let mut made = of_issue(&server, "1").await.expect("it is made");
    let row = server.get("/v1/issues/1/sandbox").await.json();
    assert_eq!(
        (made.sandbox().phase, row["sandboxId"].as_str()),
        (Some(Phase::Running), Some(made.sandbox().id.as_str()))
    );
    let again = of_issue(&server, "1").await.expect("it is there");
    assert_eq!(
        (again.sandbox().id.clone(), server.provider.object_count()),
        (made.sandbox().id.clone(), 1)
    );
    let opened =
        IssueSandbox::open(&server.services(), context(), again.sandbox().id.as_str()).await;
    assert_eq!(opened.expect("it is known").sandbox(), again.sandbox());
    let timeline = server.get("/v1/issues/1/events").await.text;
    assert!(timeline.contains("caller bot ("), "the caller is named: {timeline}");

    made.terminate().await.expect("it is deleted");
    assert_eq!(made.sandbox().phase, None);
    let work = made.exec(["echo", "x"]).await.expect_err("it is gone");
    let deleted = EngineError::Refused(CommandRefusal::SandboxDeleted);
    assert!(matches!(&work, SandboxError::Engine(error) if *error == deleted), "{work}");
    made.terminate().await.expect("gone already");
    let next = of_issue(&server, "1").await.expect("the next one");
    assert_eq!((next.sandbox().generation.0, next.sandbox().id == made.sandbox().id), (2, false));
}

#[tokio::test]
async fn what_is_wrong_is_named_before_anything_happens() {
    let server = TestServer::start().await;
    let services = server.services();
    let of = |wrong: SandboxError| match wrong {
        SandboxError::Invalid { parameter, .. } => parameter,
        other => panic!("{other}"),
    };
    for wrong in [IssueRef::id(""), IssueRef::id("a b")] {
        assert_eq!(of(wrong.expect_err("no id")), "issue id");
    }
    assert_eq!(of(IssueRef::number("octo/hello", 0).expect_err("no number")), "issue number");
    assert_eq!(of(IssueRef::number("octo", 1).expect_err("no repository")), "repository");
    for text in ["", "a\nb", &*"x".repeat(513)] {
        assert_eq!(of(ConversationId::parse(text).expect_err("no id")), "conversation");
    }
    for caller in ["", " ", "a\nb", &*"x".repeat(129)] {
        let context = SandboxContext { caller: caller.to_owned(), ..context() };
        let issue = IssueRef::id("1").expect("an id");
        let refused = IssueSandbox::get_or_create(&services, context.clone(), issue, None).await;
        assert_eq!(of(refused.err().expect("no caller")), "caller");
        let refused = IssueSandbox::open(&services, context, "x").await;
        assert_eq!(of(refused.err().expect("no caller")), "caller");
    }
    let refused = IssueSandbox::open(&services, context(), "").await;
    assert_eq!(of(refused.err().expect("no id")), "sandbox id");
    let issue = IssueRef::id("1").expect("an id");
    let unknown = IssueSandbox::get_or_create(&services, context(), issue, Some("nope")).await;
    let error = unknown.err().expect("there is no such template").to_string();
    assert_eq!(error, "there is no template nope; the configuration has big, default");
    let unknown = IssueSandbox::open(&services, context(), "nope").await.err().expect("unknown");
    assert!(matches!(unknown, SandboxError::Engine(EngineError::SandboxNotFound)), "{unknown}");
    assert_eq!(
        server.get("/v1/sandboxes?deleted=true").await.json()["total"],
        0,
        "nothing was made"
    );

    let mut sandbox = of_issue(&server, "1").await.expect("it is made");
    assert_eq!(of(sandbox.files("../x", Depth::List).await.expect_err("outside")), "path");
    assert_eq!(of(sandbox.file("/etc/passwd").await.expect_err("outside")), "path");
    assert_eq!(of(sandbox.write_file("", "x").await.expect_err("no file")), "path");
    assert_eq!(of(sandbox.exec([""; 0]).await.expect_err("nothing")), "command");
    assert_eq!(of(sandbox.message(" \n").await.err().expect("nothing")), "message");
    // Another account's id is unknown.
    let other = SandboxContext::new(AccountName::trusted("other"), "bot");
    let foreign = IssueSandbox::open(&services, other, sandbox.sandbox().id.as_str()).await;
    let foreign = foreign.err().expect("it is another account's");
    assert!(matches!(foreign, SandboxError::Engine(EngineError::SandboxNotFound)), "{foreign}");
}

#[tokio::test]
async fn files_and_commands_bring_a_stopped_sandbox_up() {
    let server = TestServer::start().await;
    let mut sandbox = of_issue(&server, "1").await.expect("it is made");
    assert_eq!(sandbox.write_file("a/b", "one").await.expect("written"), Written::Created);
    // The issue is closed, which stops the sandbox: not a person's stop.
    let opening = opened(1, "a title");
    assert_eq!(server.deliver("issues", "d-1", &opening).await.status, 202);
    let closed = opening.replace("opened", "closed").replace("\"open\"", "\"closed\"");
    // After the caller's ensure.
    let now = SystemClock.now().after(Duration::from_secs(2)).to_string();
    let closed = closed.replace("2026-01-31T12:00:00Z", &now);
    assert!(server.deliver("issues", "d-2", &closed).await.status < 300);
    until("it is stopped", async || sandbox_phase(&server).await == "stopped").await;
    let mut content = sandbox.file("a/b").await.expect("it is there");
    assert_eq!(content.chunks.recv().await.expect("a chunk").expect("it is read"), "one");
    let listed = sandbox.files("", Depth::Tree).await.expect("listed");
    assert_eq!(listed.entries.iter().map(|entry| &*entry.path).collect::<Vec<_>>(), [b"a/b"]);
    let ran = sandbox.exec(["echo", "x"]).await.expect("it runs");
    assert_eq!((ran.exit_code, &*ran.stdout, ran.truncated), (0, &b"x\n"[..], false));
    let failed = sandbox.exec(["fail", "3"]).await.expect("it runs");
    assert_eq!((failed.exit_code, &*failed.stderr), (3, &b"failing"[..]));
    // The log is written beside the commands, and later ones push its last lines out.
    until("what commands write is in the log", async || {
        let log = server.get("/v1/sandboxes/claude-issue-1/logs?tail=50").await.text;
        log.contains("failing")
    })
    .await;
    let long = sandbox.exec(["many", "1048577"]).await.expect("it runs");
    assert_eq!((long.stdout.len(), long.truncated), (1 << 20, true));
    let gone = sandbox.exec(["vanish"]).await.expect_err("no exit");
    assert!(matches!(gone, SandboxError::Work(WorkError::Broken(_))), "{gone}");
    let unknown = sandbox.exec(["nope"]).await.expect_err("no such program");
    assert!(matches!(unknown, SandboxError::Work(WorkError::CommandNotFound(_))), "{unknown}");

    // A person's stop stays until a start.
    assert_eq!(sandbox.stop().await.expect("it is stopped").phase, Some(Phase::Stopped));
    let refused = sandbox.exec(["echo", "x"]).await.expect_err("a person stopped it");
    let by_person = EngineError::Refused(CommandRefusal::StoppedByPerson);
    assert!(matches!(&refused, SandboxError::Engine(error) if *error == by_person), "{refused}");
    assert_eq!(sandbox.start().await.expect("it is started").phase, Some(Phase::Running));
}

#[tokio::test]
async fn a_hook_is_carried_out_when_a_caller_asks() {
    let server = TestServer::start().await;
    let issue = IssueRef::id("1").expect("an id");
    let made = IssueSandbox::get_or_create(&server.services(), context(), issue, Some("big")).await;
    let mut sandbox = made.expect("it is made");
    sandbox.run_hook(HookName::StreamFinish).await.expect("its one step succeeds");
    sandbox.run_hook(HookName::ColdStart).await.expect("the template has none");
    let failed = sandbox.run_hook(HookName::Message).await.expect_err("its second step fails");
    let words = "on_message step 2 of 2 (fail 3) ended with exit code 3:\nfailing";
    assert!(matches!(&failed, SandboxError::Hook(text) if text == words), "{failed}");
    let timeline = server.get("/v1/issues/1/events").await.text;
    for step in ["on_stream_finish step 1 of 1 (echo built) succeeded", "on_message step 2 of 2"] {
        assert!(timeline.contains(step), "{step} is recorded: {timeline}");
    }
    until("what they print is kept", async || {
        let log = server.get("/v1/sandboxes/claude-issue-1/logs?tail=50").await.text;
        log.contains("built") && log.contains("first")
    })
    .await;
    sandbox.terminate().await.expect("it is deleted");
    let gone = sandbox.run_hook(HookName::StreamFinish).await.expect_err("it is gone");
    let deleted = EngineError::Refused(CommandRefusal::SandboxDeleted);
    assert!(matches!(&gone, SandboxError::Engine(error) if *error == deleted), "{gone}");
}

#[tokio::test]
async fn a_create_that_fails_says_why_and_a_start_retries_it() {
    let server = TestServer::start().await;
    server.provider.refusing.store(true, Ordering::SeqCst);
    let failed = of_issue(&server, "1").await.err().expect("it is refused");
    let text = failed.to_string();
    assert!(text.contains("no room") && text.ends_with("start it to retry"), "{text}");
    let SandboxError::Failed { sandbox: id, .. } = failed else { panic!("{text}") };
    let opened = IssueSandbox::open(&server.services(), context(), id.as_str()).await;
    let mut sandbox = opened.expect("it is there");
    let work = sandbox.exec(["echo", "x"]).await.expect_err("it has failed");
    assert!(matches!(work, SandboxError::Failed { .. }), "{work}");
    let again = sandbox.start().await.expect_err("it is refused again");
    assert!(matches!(again, SandboxError::Failed { .. }), "{again}");
    server.provider.refusing.store(false, Ordering::SeqCst);
    assert_eq!(sandbox.start().await.expect("now it is made").phase, Some(Phase::Running));
}

#[tokio::test]
async fn what_takes_too_long_is_said_and_goes_on() {
    let server = TestServer::start().await;
    server.provider.held.store(true, Ordering::SeqCst);
    let mut services = server.services();
    services.startup_max = Duration::from_millis(50);
    let issue = IssueRef::id("1").expect("an id");
    let slow = IssueSandbox::get_or_create(&services, context(), issue, None).await;
    let slow = slow.err().expect("the provider waits");
    assert!(matches!(slow, SandboxError::TooSlow { phase: "creating", .. }), "{slow}");
    server.provider.open();
    let mut made = of_issue(&server, "1").await.expect("it went on");
    assert_eq!(server.provider.object_count(), 1);
    server.provider.keeping.store(true, Ordering::SeqCst);
    let opened = IssueSandbox::open(&services, context(), made.sandbox().id.as_str()).await;
    let kept = opened.expect("it is there").terminate().await.expect_err("it is kept");
    assert!(matches!(kept, SandboxError::TooSlow { phase: "deleting", .. }), "{kept}");
    server.provider.keeping.store(false, Ordering::SeqCst);
    made.terminate().await.expect("it went on");
}

#[tokio::test]
async fn a_conversation_is_set_changed_and_absent() {
    let server = TestServer::start().await;
    let services = server.services();
    let id = |text: &str| ConversationId::parse(text).expect("an id");
    let issue = || IssueRef::id("1").expect("an id");
    let of = async |context| IssueSandbox::get_or_create(&services, context, issue(), None).await;
    let mut first = of(context().with_conversation(id("c1"))).await.expect("it is made");
    let stored = async || server.get("/v1/issues/1/sandbox").await.json()["data"]["meta"].clone();
    assert_eq!((first.conversation(), stored().await), (Some("c1"), json!({"conversation": "c1"})));
    // A caller without one changes nothing; another one takes the sandbox over.
    assert_eq!(of(context()).await.expect("it is there").conversation(), Some("c1"));
    let second = of(context().with_conversation(id("c2"))).await.expect("it is there");
    assert_eq!(
        (second.conversation(), stored().await),
        (Some("c2"), json!({"conversation": "c2"}))
    );
    assert_eq!(first.conversation(), Some("c1"), "as it was when it last heard of it");
    assert_eq!(first.info().await.expect("it reads").meta.get("conversation"), Some("c2"));
    first.set_conversation(None).await.expect("it is removed");
    assert_eq!((first.conversation(), stored().await), (None, json!({})));
    first.exec(["echo", "x"]).await.expect("everything works without one");
}

#[tokio::test]
async fn the_events_of_a_message_end_with_its_run() {
    let server = TestServer::start().await;
    let mut sandbox = of_issue(&server, "1").await.expect("it is made");
    let none = sandbox.cancel().await.expect_err("nothing was said");
    assert!(matches!(none, SandboxError::NoRun), "{none}");
    let refused = sandbox.message("fix it").await.err().expect("its template has no agent");
    assert!(matches!(refused, SandboxError::Engine(EngineError::RunRefused(_))), "{refused}");
    let id = sandbox.sandbox().id.to_string();
    let open = async |agent: &str| {
        let context = context().with_agent(AgentName::trusted(agent));
        IssueSandbox::open(&server.services(), context, &id).await.expect("it is there")
    };
    let unknown = open("nope").await.message("fix it").await.err().expect("no such agent");
    assert_eq!(unknown.to_string(), "the agent is unknown; there are cat");
    let mut sandbox = open("cat").await;
    let mut answer = sandbox.message("fix it").await.expect("it is said");
    let run = sandbox.cancel().await.expect("it is cancelled");
    assert_eq!((run.id, run.state), (answer.run(), RunState::Cancelled));
    let mut events = Vec::new();
    while let Some(event) = answer.next().await.expect("it reads") {
        events.push(serde_json::from_slice::<serde_json::Value>(&event.json).expect("JSON"));
    }
    assert_eq!(events[0]["id"], answer.message().to_string());
    let last = events.last().expect("the run's end");
    assert_eq!((&last["type"], &last["state"]), (&json!("run"), &json!("cancelled")), "{last}");
}

#[tokio::test]
async fn a_workspace_is_pushed_pulled_and_pushed_only_if_that_is_long_ago() {
    let server = TestServer::start().await;
    let mut sandbox = of_issue(&server, "1").await.expect("it is made");
    let old = Duration::from_secs(3_600);
    let first = sandbox.sync_if_stale(old).await.expect("it is pushed");
    assert!(!first.is_skipped);
    let again = sandbox.sync_if_stale(old).await.expect("nothing to do");
    assert_eq!((again.is_skipped, &again.row), (true, &first.row));
    let second = sandbox.push().await.expect("it is pushed");
    assert!(second.version > first.row.version);
    let pulled = sandbox.pull(Some(first.row.version)).await.expect("it is pulled");
    assert_eq!((pulled.version, pulled.direction), (first.row.version, SyncDirection::Pull));
    let mut services = server.services();
    services.sync = None;
    let id = sandbox.sandbox().id.to_string();
    let mut without = IssueSandbox::open(&services, context(), &id).await.expect("it is there");
    let refused = without.push().await.expect_err("no storage");
    assert!(matches!(refused, SandboxError::SyncNotConfigured), "{refused}");
}
