//! What `issuebox top` draws, as tables.

use std::io;

use super::*;
use crate::cli::top::state::{System, ViewUpdate};
use crate::cli::wire::{AgentNow, Changed, SandboxFailure};

/// A sandbox of this issue, in this phase since so many milliseconds.
pub(in crate::cli::top) fn sandbox(issue: &str, phase: &str, since: usize) -> ApiSandbox {
    let failure = (phase == "failed").then(|| SandboxFailure {
        code: "provider_error".to_owned(),
        step: "create".to_owned(),
        message: "no space left".to_owned(),
    });
    ApiSandbox {
        account: "default".to_owned(),
        mode: None,
        attempt: None,
        id: format!("id-of-{issue}"),
        name: format!("claude-issue-{issue}"),
        issue_id: issue.to_owned(),
        repository: None,
        issue_number: None,
        issue_title: Some("Sign-in loops".to_owned()),
        issue_url: None,
        provider: "simulated".to_owned(),
        external_id: None,
        template: "default".to_owned(),
        template_version: None,
        agent_id: None,
        meta: std::collections::BTreeMap::new(),
        network: None,
        phase: Some(phase.to_owned()),
        wanted: "running".to_owned(),
        generation: 1,
        failure,
        reason: Some("it is so".to_owned()),
        created_at: "2026-03-02T09:00:00.000Z".to_owned(),
        phase_since: format!("2026-03-02T09:00:{:02}.{:03}Z", since / 1_000, since % 1_000),
        last_activity_at: None,
        deleted_at: None,
        agent: None,
    }
}

pub(in crate::cli::top) fn changed(sandbox: ApiSandbox) -> ViewUpdate {
    let (from, to) = (None, sandbox.phase.clone());
    let (reason, cause) = ("it is so".to_owned(), "caller".to_owned());
    let (at, instruction) = (None, None);
    ViewUpdate::Changed(Box::new(Changed { sandbox, at, from, to, reason, cause, instruction }))
}

fn screen(colours: bool) -> Screen {
    Screen { out: io::stdout(), colours, columns: None }
}

fn state(sandboxes: Vec<ApiSandbox>, degraded: &[&str]) -> TopView {
    let mut state = TopView::new("http://box");
    let counts =
        vec![("running".to_owned(), 2), ("failed".to_owned(), 1), ("stopped".to_owned(), 0)];
    let degraded = degraded.iter().map(|text| (*text).to_owned()).collect();
    state.take(ViewUpdate::System(System { version: "0.1.0".to_owned(), degraded, counts }));
    state.take(ViewUpdate::All(sandboxes));
    state.take(ViewUpdate::Live);
    state
}

fn plain(state: &TopView, columns: usize, rows: usize) -> Vec<String> {
    let now = Timestamp::parse("2026-03-02T09:01:00.000Z").expect("a time");
    let lines = frame(state, Size { columns, rows }, &screen(false), now);
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn what_needs_attention_stands_first_and_then_the_latest_change() {
    let all = vec![
        sandbox("1", "running", 0),
        sandbox("2", "failed", 5_000),
        sandbox("3", "running", 9_000),
    ];
    let lines = plain(&state(all, &["local cannot work now"]), 66, 12);
    assert_eq!(
        lines,
        [
            "issuebox 0.1.0 at http://box: live",
            "3 sandboxes: 2 running, 1 failed",
            "! local cannot work now",
            "! 2: no space left",
            "",
            "PHASE     SINCE ISSUE           TITLE            WHY",
            "running   51s   3               Sign-in loops    it is so",
            "failed    55s   2               Sign-in loops    no space left",
            "running   1m    1               Sign-in loops    it is so",
            "",
            "",
            "q quit  j/k move  / filter",
        ]
    );
}

#[test]
fn a_wide_terminal_shows_what_agents_do() {
    let mut busy = sandbox("2", "running", 0);
    let (state_word, run) = ("queued".to_owned(), Some("r".to_owned()));
    let (since, reason, cost) = (None, String::new(), None);
    busy.agent = Some(AgentNow { state: state_word, since, reason, run, cost });
    let state = state(vec![busy, sandbox("1", "running", 1_000)], &[]);
    let of = |columns| plain(&state, columns, 8)[3..6].join("\n");
    let wide = of(AGENT_FROM);
    assert!(wide.contains("SINCE AGENT      ISSUE"), "{wide}");
    assert!(wide.contains("59s   -          1") && wide.contains("1m    queued     2"), "{wide}");
    assert!(!of(AGENT_FROM - 1).contains("AGENT"));
}

#[test]
fn it_says_when_it_is_not_live_and_what_it_leaves_out() {
    let mut state = state(vec![sandbox("1", "running", 0)], &["one", "two", "three"]);
    state.take(ViewUpdate::Lost("the connection broke".to_owned()));
    state.filter = "nothing such".to_owned();
    let lines = plain(&state, 80, 8);
    assert!(lines[0].starts_with("NOT LIVE (the connection broke), retrying."), "{lines:?}");
    assert_eq!(lines[1], "3 sandboxes: 2 running, 1 failed", "counts may be older");
    assert_eq!(lines[2..4], ["! one", "! 2 more need attention"]);
    assert_eq!(lines[6], "no sandbox matches the filter; Esc clears it");
    assert_eq!(lines[7], "q quit  j/k move  Esc clears the filter nothing such");
    let all = (0..KEPT_MAX).map(|n| sandbox(&n.to_string(), "running", n)).collect();
    state.take(ViewUpdate::All(all));
    state.system.counts = vec![("running".to_owned(), 2_001)];
    assert_eq!(plain(&state, 80, 8)[1], "2001 sandboxes: 2001 running; showing the latest 2000");
}

#[test]
fn the_row_that_the_person_is_at_can_be_seen() {
    let mut state = state((0..50).map(|n| sandbox(&n.to_string(), "running", n)).collect(), &[]);
    for at in [0, 1, 10, 49] {
        state.selected = Some(format!("id-of-{at}"));
        let now = Timestamp::parse("2026-03-02T09:01:00.000Z").expect("a time");
        let lines = frame(&state, Size { columns: 60, rows: 10 }, &screen(false), now);
        let marked: Vec<_> = lines.iter().filter(|line| line.contains("\u{1b}[7m")).collect();
        assert_eq!(marked.len(), 1, "{lines:?}");
        assert!(marked[0].contains(&format!(" {at} ")), "{marked:?}");
    }
}

#[test]
fn no_size_and_no_title_breaks_a_line() {
    let mut hostile = sandbox("1", "failed", 0);
    let text = "\u{1b}[2J\u{202e}宽字\u{1F468}\u{200d}\u{1F469}e\u{301}\r\n\u{9b}31m".repeat(9);
    hostile.issue_title = Some(text.clone());
    hostile.repository = Some(text.clone());
    hostile.issue_number = Some(1);
    hostile.reason = Some(text.clone());
    if let Some(failure) = &mut hostile.failure {
        failure.message.clone_from(&text);
    }
    let mut state = state(vec![hostile], &[&text]);
    state.filter = String::new();
    for columns in 0..90 {
        for rows in 0..20 {
            let lines = plain(&state, columns, rows);
            assert_eq!(lines.len(), rows, "{columns} columns");
            for line in lines {
                assert!(width_of(&line) <= columns, "{columns} columns: {line:?}");
                assert!(!line.contains(char::is_control), "{line:?}");
                assert!(!line.contains('\u{202e}'), "{line:?}");
            }
        }
    }
}

#[test]
fn phases_have_their_colours() {
    let state = state(vec![sandbox("1", "running", 0)], &[]);
    let now = Timestamp::parse("2026-03-02T09:01:00.000Z").expect("a time");
    let lines = frame(&state, Size { columns: 60, rows: 8 }, &screen(true), now);
    assert!(lines.iter().any(|line| line.starts_with("\u{1b}[32mrunning")), "{lines:?}");
}
