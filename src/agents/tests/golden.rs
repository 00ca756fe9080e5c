//! What recorded runs of real agents give: events, and how each was judged.

use super::*;

/// Recorded runs of one agent: the agent, its folder, and name and exit code of each.
type RecordedRuns = (&'static dyn Agent, &'static str, &'static [(&'static str, i32)]);

const RUNS: [RecordedRuns; 3] = [
    (
        &ClaudeCode,
        "claude-2.1.332",
        &[
            ("asked", 0),
            ("budget", 1),
            ("cut", 0),
            ("edit", 0),
            ("forbidden", 1),
            ("greeting", 0),
            ("max-turns", 1),
            ("no-session", 1),
            ("overloaded", 1),
            ("refusal", 1),
            ("refused", 1),
            ("resume", 0),
            ("sigint-stream", 0),
            ("sigint-tool", 0),
            ("sigterm", 143),
            ("subagent", 0),
        ],
    ),
    (
        &ClaudeCode,
        "claude-2.1.197",
        &[
            ("asked", 0),
            ("budget", 1),
            ("cut", 0),
            ("cut-text", 0),
            ("greeting", 0),
            ("max-turns", 1),
            ("no-session", 1),
            ("overloaded", 1),
            ("refused", 1),
            ("resume", 0),
            ("sigint-stream", 0),
            ("sigint-tool", 1),
            ("sigterm", 143),
            ("subagent", 0),
        ],
    ),
    (
        &Codex,
        "codex-0.171.0",
        &[
            ("budget", 1),
            ("cut", 0),
            ("fail", 0),
            ("failed", 1),
            ("forbidden", 1),
            ("greeting", 0),
            ("refused", 1),
            ("resume", 0),
            ("server-error", 1),
            ("sigint", 1),
            ("sigterm", 143),
        ],
    ),
];

fn report_of(events: &[AgentEvent]) -> RunReport {
    let mut report = RunReport::default();
    events.iter().for_each(|event| report.read(event));
    report
}

/// The snapshots lie beside the recorded lines. `INSTA_UPDATE=always` writes them again.
#[test]
fn recorded_runs_give_these_events_and_outcomes() {
    for (agent, folder, runs) in RUNS {
        for (name, code) in runs {
            let events = events_of(agent, &recorded(&format!("{folder}/{name}")));
            let outcome = agent.outcome(AgentExit::Code(*code), &report_of(&events));
            let lines = events.iter().map(|it| serde_json::to_string(it).expect("plain data"));
            let text = lines.collect::<Vec<_>>().join("\n");
            insta::with_settings!({
                snapshot_path => format!("../../../fixtures/agents/{folder}"),
                prepend_module_to_snapshot => false,
                omit_expression => true,
            }, {
                insta::assert_snapshot!(*name, format!("{text}\nexit {code}: {outcome:?}"));
            });
        }
    }
}

#[test]
fn every_recorded_line_is_of_a_known_kind_and_every_event_survives_json() {
    for (agent, folder, runs) in RUNS {
        for (name, _) in runs {
            for event in events_of(agent, &recorded(&format!("{folder}/{name}"))) {
                assert!(!matches!(event, AgentEvent::Unknown { .. }), "{folder}/{name}: {event:?}");
                let json = serde_json::to_string(&event).expect("plain data");
                assert_eq!(serde_json::from_str::<AgentEvent>(&json).ok(), Some(event), "{json}");
            }
        }
    }
}

#[test]
fn every_recorded_run_is_listed() {
    let mut found = 0;
    for (_, folder, runs) in RUNS {
        let dir = format!("{}/fixtures/agents/{folder}", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(dir).expect("a folder of fixtures");
        let names = files.filter_map(|file| {
            let name = file.ok()?.file_name().into_string().ok()?;
            name.strip_suffix(".jsonl").map(str::to_owned)
        });
        for name in names {
            assert!(runs.iter().any(|(listed, _)| *listed == name), "{folder}/{name}");
            found += 1;
        }
    }
    assert_eq!(found, RUNS.iter().map(|(_, _, runs)| runs.len()).sum::<usize>());
}

#[test]
fn a_start_that_says_nothing_on_standard_output_is_judged_by_its_complaint() {
    let judged = |agent: &dyn Agent, code, stderr: &str| {
        let mut report = RunReport::default();
        report.read_stderr(stderr.as_bytes());
        agent.outcome(AgentExit::Code(code), &report)
    };
    let id = "5d6e1c1e-0b5e-4f3c-9a53-8d5f2a6b7c01";
    let taken = format!("Error: Session ID {id} is already in use.\n");
    assert_eq!(judged(&ClaudeCode, 1, &taken), RunOutcome::SessionTaken);
    let gone = format!("Error: thread/resume failed: no rollout found for thread id {id}");
    assert_eq!(judged(&Codex, 1, &gone), RunOutcome::SessionMissing);
    let reason = "the agent ended with code 1: Error: Invalid session ID. Must be a valid UUID.";
    assert_eq!(
        judged(&ClaudeCode, 1, "Error: Invalid session ID. Must be a valid UUID.\n"),
        RunOutcome::Failed { reason: reason.into(), is_transient: false }
    );
}

#[test]
fn a_command_may_write_text_or_events() {
    let output = b"looking\n{\"type\":\"note\",\"text\":\"halfway\"}\n{\"type\":\"other\"}\ndone";
    let events = events_of(&CommandAgent, output);
    assert_eq!(events[1], AgentEvent::note("halfway"));
    let report = report_of(&events);
    let summary = "looking\n{\"type\":\"other\"}\ndone".to_owned();
    assert_eq!(
        CommandAgent.outcome(AgentExit::Code(0), &report),
        RunOutcome::Succeeded { summary }
    );
    assert_eq!(
        CommandAgent.outcome(AgentExit::Code(3), &report),
        RunOutcome::Failed {
            reason: "the agent ended with code 3 and without a result".into(),
            is_transient: false
        }
    );
    assert_eq!(CommandAgent.outcome(AgentExit::Code(143), &report), RunOutcome::Interrupted);
    let long = serde_json::to_vec(&AgentEvent::Note { text: "x".repeat(100_000) }).expect("JSON");
    let AgentEvent::Note { text } = &events_of(&CommandAgent, &long)[0] else { panic!() };
    assert!(text.len() < 40_000);
}
