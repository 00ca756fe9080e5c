//! Which template a sandbox is made from, by the repository of its issue.

use super::issue_deliveries::{issue_delivery, labelled};
use super::pending_starts::denial;
use super::{StepBench, template};
use crate::issue::event::{DeliveryEffect, Done, EnsureAsk, IssueEvent, SandboxAsk, TriggerKind};
use crate::types::{
    AgentName, AgentWorkload, Cause, IssueNumber, PerRepository, Repository, RepositoryPattern,
    RepositorySettings, Template, Workload,
};

/// A template with an agent that has instructions.
fn with_agent(name: &str, instructions: &str) -> Template {
    let agent = AgentWorkload {
        instructions: instructions.to_owned(),
        ..AgentWorkload::usual(AgentName::trusted("codex"))
    };
    let workload = Workload { agent: Some(agent), ..Workload::default() };
    Template { workload: workload.into(), ..template(name) }
}

/// `octo/hello` has a template of its own and adds to the instructions of each.
fn bench() -> StepBench {
    let mut bench = StepBench::new(true);
    let settings = RepositorySettings {
        template: Some(with_agent("own", "First.")),
        instructions: "Then.".to_owned(),
        ..RepositorySettings::default()
    };
    let pattern = RepositoryPattern::parse("octo/hello").expect("a pattern");
    bench.rules.repositories =
        PerRepository::new(RepositorySettings::default(), vec![(pattern, settings)]);
    bench
}

fn ensure(repository: &str, template: Option<Template>) -> IssueEvent {
    IssueEvent::Ensure(EnsureAsk {
        sandbox: SandboxAsk { template, ..SandboxAsk::default() },
        title: None,
        numbered: Some((Repository::trusted(repository), IssueNumber(1))),
        claims: vec![],
        retry: false,
        cause: Cause::Service("test"),
    })
}

/// The name of the template that the sandbox is made from, and the instructions of its agent.
fn made_from(bench: &StepBench) -> (String, String) {
    let record = bench.issue.state.record().expect("a sandbox");
    assert_eq!(record.template_version, record.template.version());
    let agent = record.template.workload.agent.as_ref();
    let instructions = agent.map(|agent| agent.instructions.clone()).unwrap_or_default();
    (record.template.name.to_string(), instructions)
}

fn wanted(name: &str, instructions: &str) -> (String, String) {
    (name.to_owned(), instructions.to_owned())
}

#[test]
fn a_trigger_gives_the_template_of_its_repository() {
    let mut bench = bench();
    bench.apply(labelled(1));
    assert_eq!(made_from(&bench), wanted("own", "First.\n\nThen."));
}

#[test]
fn a_caller_gets_the_template_that_it_names_with_what_the_repository_adds() {
    for (repository, named, expected) in [
        ("octo/hello", None, wanted("own", "First.\n\nThen.")),
        ("Octo/Hello", Some("other"), wanted("other", "Before.\n\nThen.")),
        ("octo/elsewhere", None, wanted("default", "")),
        ("octo/elsewhere", Some("other"), wanted("other", "Before.")),
    ] {
        let mut bench = bench();
        bench.apply(ensure(repository, named.map(|name| with_agent(name, "Before."))));
        assert_eq!(made_from(&bench), expected, "{repository}");
    }
}

#[test]
fn what_a_repository_adds_is_there_once_however_long_the_start_waits() {
    let mut bench = bench();
    bench.apply(ensure("octo/hello", Some(with_agent("first", "Before."))));
    bench.up();
    bench.command(crate::issue::event::Command::Delete);
    bench.apply(ensure("octo/hello", Some(with_agent("second", "Before."))));
    bench.denial = denial();
    bench.answer(Ok(Done::Removing));
    bench.due();
    bench.answer(Ok(Done::Found(vec![])));
    assert!(bench.issue.pending_start.is_some(), "it waits: {:?}", bench.issue.state);
    bench.denial = None;
    bench.apply(IssueEvent::Granted);
    assert_eq!(made_from(&bench), wanted("second", "Before.\n\nThen."));
}

#[test]
fn the_label_in_a_reason_is_that_of_the_repository() {
    let mut bench = bench();
    let pattern = RepositoryPattern::parse("octo/*").expect("a pattern");
    bench.rules.trigger_label =
        PerRepository::new("agent".to_owned(), vec![(pattern, "robot".to_owned())]);
    let trigger = DeliveryEffect::Trigger(TriggerKind::Label);
    let commit = bench.apply(issue_delivery("labeled", trigger, 1, true, true));
    let reason = &commit.timeline[0].reason;
    assert!(reason.starts_with("label robot added"), "{reason}");
}
