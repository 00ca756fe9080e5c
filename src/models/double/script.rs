//! A turn of the double as the bytes of each API.

use serde_json::{Value, json};

use super::{DoubleBlock, DoubleScript, DoubleTurn};

/// Characters in one piece of a text.
const PIECE_LEN: usize = 40;

/// The turn that answers a request.
pub fn turn_for(script: &DoubleScript, body: &Value) -> DoubleTurn {
    let offers_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    if let (Some(side), false) = (&script.side, offers_tools) {
        return side.clone();
    }
    let said = body["messages"].as_array().or(body["input"].as_array());
    let said = said.map_or(0, |all| all.iter().filter(|it| it["role"] == "assistant").count());
    let last = script.turns.len().saturating_sub(1);
    script.turns.get(said.min(last)).cloned().unwrap_or_default()
}

fn usage(turn: &DoubleTurn) -> Value {
    json!({
        "input_tokens": turn.usage.input,
        "cache_creation_input_tokens": turn.usage.cache_write,
        "cache_read_input_tokens": turn.usage.cache_read,
        "output_tokens": turn.usage.output,
    })
}

fn stop_reason(turn: &DoubleTurn) -> &'static str {
    let calls = turn.blocks.iter().any(|block| matches!(block, DoubleBlock::Tool { .. }));
    if calls { "tool_use" } else { "end_turn" }
}

fn tool_id(request: usize, index: usize) -> String {
    format!("toolu_double_{request}_{index}")
}

/// A message that is not streamed.
pub fn message(turn: &DoubleTurn, model: &Value, request: usize) -> Value {
    let content: Vec<Value> = turn
        .blocks
        .iter()
        .enumerate()
        .map(|(index, block)| match block {
            DoubleBlock::Text(text) => json!({"type": "text", "text": text}),
            DoubleBlock::Thinking(text) => {
                json!({"type": "thinking", "thinking": text, "signature": "double"})
            }
            DoubleBlock::Tool { name, input } => {
                let id = tool_id(request, index);
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
        })
        .collect();
    json!({
        "id": format!("msg_double_{request}"), "type": "message", "role": "assistant",
        "model": model, "content": content, "stop_reason": stop_reason(turn),
        "stop_sequence": null, "usage": usage(turn),
    })
}

/// The events of a streamed message.
pub fn message_events(turn: &DoubleTurn, model: &Value, request: usize) -> Vec<String> {
    let mut start = message(turn, model, request);
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = 1.into();
    let mut events = vec![json!({"type": "message_start", "message": start})];
    for (index, block) in turn.blocks.iter().enumerate() {
        let (start, kind, key, text) = match block {
            DoubleBlock::Text(text) => {
                (json!({"type": "text", "text": ""}), "text_delta", "text", text.clone())
            }
            DoubleBlock::Thinking(text) => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                "thinking_delta",
                "thinking",
                text.clone(),
            ),
            DoubleBlock::Tool { name, input } => (
                json!({"type": "tool_use", "id": tool_id(request, index), "name": name, "input": {}}),
                "input_json_delta",
                "partial_json",
                input.to_string(),
            ),
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(PIECE_LEN) {
            let piece: String = piece.iter().collect();
            let delta = json!({"type": kind, key: piece});
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": stop_reason(turn), "stop_sequence": null});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": usage(turn)}));
    events.push(json!({"type": "message_stop"}));
    events.iter().map(event).collect()
}

/// A response that is not streamed, with the turn's text alone.
pub fn response(turn: &DoubleTurn, model: &Value, request: usize) -> Value {
    let used = turn.usage;
    let content = json!([{"type": "output_text", "text": text_of(turn), "annotations": []}]);
    let item = json!({
        "id": format!("msg_double_{request}"), "type": "message", "role": "assistant",
        "status": "completed", "content": content,
    });
    json!({
        "id": format!("resp_double_{request}"), "object": "response", "status": "completed",
        "model": model, "output": [item],
        "usage": {
            "input_tokens": used.all_input(),
            "input_tokens_details": {"cached_tokens": used.cache_read},
            "output_tokens": used.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used.all_input() + used.output,
        },
    })
}

/// The events of a streamed response.
pub fn response_events(turn: &DoubleTurn, model: &Value, request: usize) -> Vec<String> {
    let whole = response(turn, model, request);
    let mut begun = whole.clone();
    (begun["status"], begun["output"], begun["usage"]) =
        (json!("in_progress"), json!([]), Value::Null);
    let mut events = vec![json!({"type": "response.created", "response": begun})];
    let chars: Vec<char> = text_of(turn).chars().collect();
    for piece in chars.chunks(PIECE_LEN) {
        let piece: String = piece.iter().collect();
        events
            .push(json!({"type": "response.output_text.delta", "output_index": 0, "delta": piece}));
    }
    let item = whole["output"][0].clone();
    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
    events.push(json!({"type": "response.completed", "response": whole}));
    events.iter().map(event).collect()
}

fn text_of(turn: &DoubleTurn) -> String {
    let texts = turn.blocks.iter().filter_map(|block| match block {
        DoubleBlock::Text(text) => Some(text.as_str()),
        DoubleBlock::Thinking(_) | DoubleBlock::Tool { .. } => None,
    });
    texts.collect()
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::super::ModelApi;
    use super::super::super::usage::{UsageReader, UsageSource};
    use super::*;
    use crate::types::Tokens;

    #[test]
    fn a_turn_is_read_as_it_is_meant() {
        let tool = DoubleBlock::Tool { name: "Bash".into(), input: json!({"command": "ls"}) };
        let text = DoubleBlock::Text("Let me look. ".repeat(20));
        let usage = Tokens { input: 5, output: 70, cache_read: 3, cache_write: 0 };
        let turn = DoubleTurn { usage, ..DoubleTurn::of(vec![text, tool]) };
        let events = message_events(&turn, &json!("m"), 1);
        assert!(events.len() > 10 && events.iter().all(|event| event.ends_with("}\n\n")));
        for (api, events, whole) in [
            (ModelApi::Messages, events, message(&turn, &json!("m"), 1)),
            (
                ModelApi::Responses,
                response_events(&turn, &json!("m"), 1),
                response(&turn, &json!("m"), 1),
            ),
        ] {
            for (is_stream, text) in [(true, events.concat()), (false, whole.to_string())] {
                let mut reader = UsageReader::new(api, is_stream);
                reader.push(text.as_bytes());
                let found = reader.finish(0);
                assert_eq!((found.source, found.tokens), (UsageSource::Reported, usage), "{api:?}");
            }
        }
        assert_eq!(message(&turn, &json!("m"), 1)["stop_reason"], "tool_use");
    }

    #[test]
    fn a_request_gets_the_turn_that_its_history_says() {
        let turns = vec![DoubleTurn::says("one"), DoubleTurn::says("two")];
        let script = DoubleScript { turns, side: Some(DoubleTurn::says("side")) };
        let said = |assistant: usize, tools: &[&str]| {
            let messages: Vec<_> = (0..assistant).map(|_| json!({"role": "assistant"})).collect();
            text_of(&turn_for(&script, &json!({"messages": messages, "tools": tools})))
        };
        assert_eq!([said(0, &["a"]), said(1, &["a"]), said(9, &["a"])], ["one", "two", "two"]);
        assert_eq!(said(1, &[]), "side");
    }
}
