//! No bytes, no order of lines and no cut makes a reader panic or lose what a known line says.

use proptest::prelude::*;

use super::*;
use crate::agents::bounds::TEXT_MAX;

/// Recorded lines of every kind, of all agents.
fn all_lines() -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for name in [
        "claude-2.1.332/greeting",
        "claude-2.1.332/subagent",
        "claude-2.1.332/asked",
        "claude-2.1.332/cut",
        "claude-2.1.332/refusal",
        "claude-2.1.332/sigint-stream",
        "claude-2.1.197/sigint-tool",
        "codex-0.171.0/fail",
        "codex-0.171.0/budget",
        "codex-0.171.0/cut",
        "opencode-1.18.33/asked",
        "opencode-1.18.33/denied",
        "opencode-1.18.33/resume",
        "opencode-1.18.33/budget",
    ] {
        lines.extend(recorded(name).split(|byte| *byte == b'\n').map(<[u8]>::to_vec));
    }
    lines
}

/// The whole blocks of text that claude's lines have.
fn said(lines: &[&[u8]]) -> Vec<String> {
    let mut said = Vec::new();
    for line in lines {
        let Ok(line) = serde_json::from_slice::<serde_json::Value>(line) else { continue };
        if line["type"] != "assistant" || line["error"].is_string() {
            continue;
        }
        let blocks = line["message"]["content"].as_array().cloned().unwrap_or_default();
        said.extend(blocks.iter().filter_map(|it| Some(it["text"].as_str()?.to_owned())));
        said.extend(blocks.iter().filter_map(|it| Some(it["thinking"].as_str()?.to_owned())));
    }
    said
}

/// No event is larger than its bounds allow, however it is written.
fn check_bounded(events: &[AgentEvent]) {
    for event in events {
        let event = serde_json::to_value(event).expect("plain data");
        let mut pointers = Vec::new();
        collect_pointers(&event, String::new(), &mut pointers);
        let texts = pointers.iter().filter_map(|at| event.pointer(at)?.as_str());
        let lens: Vec<usize> = texts.map(str::len).collect();
        assert!(lens.iter().all(|len| *len < TEXT_MAX + 100), "{lens:?}");
        assert!(lens.iter().sum::<usize>() < 3 * TEXT_MAX, "{lens:?}");
    }
}

proptest! {
    #![proptest_config(crate::fuzz::cases(200))]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for agent in BUILT_IN {
            check_bounded(&events_of(agent, &bytes));
        }
    }

    #[test]
    fn no_bytes_of_a_cut_or_changed_line_make_a_reader_panic(
        at in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        swap in any::<prop::sample::Index>(),
    ) {
        let lines = all_lines();
        let mut line = at.get(&lines).clone();
        if !line.is_empty() {
            let swap = swap.index(line.len());
            line[swap] = byte;
            line.drain(..from.index(line.len()));
        }
        for agent in BUILT_IN {
            check_bounded(&events_of(agent, &line));
        }
    }

    #[test]
    fn no_bytes_of_a_known_text_are_lost_in_any_order_of_lines(
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
    ) {
        let lines = all_lines();
        let chosen: Vec<&[u8]> = order.iter().map(|at| at.get(&lines).as_slice()).collect();
        let events = events_of(&ClaudeCode, &chosen.join(&b'\n'));
        let mut shown = blocks_of(&events);
        for text in said(&chosen) {
            let at = shown.iter().position(|block| *block == text);
            prop_assert!(at.is_some(), "{text:?} is not in {shown:?}");
            shown.remove(at.expect("it was found"));
        }
    }

    #[test]
    fn no_bytes_of_a_field_with_another_type_make_a_reader_panic(
        at in any::<prop::sample::Index>(),
        field in any::<prop::sample::Index>(),
        kind in 0..5_usize,
    ) {
        let lines = all_lines();
        let Ok(mut line) = serde_json::from_slice::<serde_json::Value>(&lines[at.index(lines.len())]) else {
            return Ok(());
        };
        let mut pointers = Vec::new();
        collect_pointers(&line, String::new(), &mut pointers);
        let other = [
            serde_json::json!(null),
            serde_json::json!(-1.5),
            serde_json::json!("x".repeat(40_000)),
            serde_json::json!([[], {}, 1]),
            serde_json::json!({ "type": "text" }),
        ];
        if let Some(place) = line.pointer_mut(&pointers[field.index(pointers.len())]) {
            *place = other[kind].clone();
        }
        for agent in BUILT_IN {
            check_bounded(&events_of(agent, line.to_string().as_bytes()));
        }
    }

    #[test]
    fn no_bytes_are_lost_when_a_reader_begins_at_any_line(skip in any::<prop::sample::Index>()) {
        let lines = all_lines();
        let rest: Vec<&[u8]> = lines[skip.index(lines.len())..].iter().map(Vec::as_slice).collect();
        let shown = blocks_of(&events_of(&ClaudeCode, &rest.join(&b'\n')));
        for text in said(&rest) {
            prop_assert!(shown.contains(&text), "{text:?}");
        }
    }
}

/// How often a text is in the lines that a dialogue wrote.
fn count(lines: &[String], what: &str) -> usize {
    lines.iter().filter(|line| line.contains(what)).count()
}

proptest! {
    #![proptest_config(crate::fuzz::cases(200))]

    #[test]
    fn no_bytes_make_a_dialogue_panic_or_write_without_a_bound(
        order in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..8_u8), 0..60),
        asks in any::<bool>(),
    ) {
        let lines = all_lines();
        let mut talk = super::acp::for_fuzz(asks);
        let (mut written, mut requests) = (Vec::new(), 0);
        for (at, byte, act) in order {
            let mut line = at.get(&lines).clone();
            match act {
                0 if !line.is_empty() => {
                    let place = at.index(line.len());
                    line[place] = byte;
                }
                1 => talk.cancel(),
                2 => if let Some(question) = talk.question().cloned() {
                    let option = question.options[usize::from(byte) % question.options.len()].id.clone();
                    talk.answer(&question.id, &option);
                    prop_assert!(talk.question() != Some(&question));
                },
                _ => {}
            }
            requests += usize::from(serde_json::from_slice::<serde_json::Value>(&line)
                .is_ok_and(|it| it["method"].is_string() && !it["id"].is_null()));
            check_bounded(&talk.line(&line));
            written.extend(talk.take_lines());
        }
        // At most one answer to each request, and three requests of ours.
        prop_assert!(count(&written, "\"result\":") + count(&written, "\"error\":") <= requests);
        prop_assert!(count(&written, "\"method\":\"session/prompt\"") <= 1);
        prop_assert!(count(&written, "\"method\":\"session/new\"") <= 1);
    }
}

fn collect_pointers(value: &serde_json::Value, at: String, pointers: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, field) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                collect_pointers(field, format!("{at}/{key}"), pointers);
            }
        }
        serde_json::Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_pointers(item, format!("{at}/{index}"), pointers);
            }
        }
        _ => {}
    }
    pointers.push(at);
}

#[test]
fn long_texts_are_cut_in_every_field() {
    let words = ["type", "subtype", "status", "terminal_reason", "is_error"];
    let mut checked = 0;
    let mut lines = all_lines();
    // Those of one kind alike are of one length, nearly.
    lines.sort_by_key(Vec::len);
    lines.dedup_by_key(|line| line.len() / 8);
    for line in lines {
        let Ok(mut line) = serde_json::from_slice::<serde_json::Value>(&line) else { continue };
        let mut pointers = Vec::new();
        collect_pointers(&line, String::new(), &mut pointers);
        for at in pointers {
            let is_word = words.iter().any(|word| at.ends_with(&format!("/{word}")));
            let place = line.pointer_mut(&at).expect("it was collected");
            if place.is_string() && !is_word {
                *place = serde_json::json!("ä".repeat(TEXT_MAX / 2 + 100));
            }
        }
        for agent in [BUILT_IN[0], BUILT_IN[1], BUILT_IN[3]] {
            let events = events_of(agent, line.to_string().as_bytes());
            check_bounded(&events);
            checked += events.len();
        }
    }
    assert!(checked > 50, "{checked}");
}

#[test]
fn binary_and_half_lines_are_kept_as_unknown() {
    let events =
        events_of(&ClaudeCode, b"\x00\xff\xfe\n{\"type\":\"assist\n\n[1]\n{\"type\":\"new\"}");
    let lines: Vec<String> = events
        .into_iter()
        .map(|event| match event {
            AgentEvent::Unknown { line } => line,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lines, ["\0\u{fffd}\u{fffd}", "{\"type\":\"assist", "[1]", "{\"type\":\"new\"}"]);
}

#[test]
fn a_line_that_is_too_long_is_kept_by_its_beginning() {
    let mut line = b"{\"type\":\"assistant\",\"x\":\"".to_vec();
    line.resize(LINE_BYTES_MAX + 100, b'y');
    let AgentEvent::Unknown { line } = &events_of(&ClaudeCode, &line)[0] else { panic!() };
    assert!(line.starts_with("{\"type\":\"assistant\"") && line.len() < 10_000);
    assert!(line.ends_with("bytes cut off]"), "{}", &line[line.len() - 100..]);
}

#[test]
fn a_deeply_nested_line_is_unknown() {
    let line = format!("{{\"type\":\"assistant\",\"x\":{}", "[".repeat(100_000));
    assert!(matches!(events_of(&ClaudeCode, line.as_bytes())[0], AgentEvent::Unknown { .. }));
}
