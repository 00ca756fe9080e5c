//! Reads what an answer used while it passes: streamed or whole, in the Messages or Responses form.
//!
//! # Guarantees
//! - Chunks may be cut anywhere, and memory does not grow with the answer.
//! - Unknown events, fields and broken lines are passed over.
//! - UsageCounts only grow within an answer: the last report of a stream is the sum of it.
//!
//! An answer that ends before its usage is known is estimated by the length of what came.

use super::ModelApi;
use super::scan::{JsonScan, ScannedValue};
use crate::types::{Money, TokenPrice, Tokens};

/// Bytes of an answer's text for one token, where they must be estimated. Texts have three to four,
/// so this counts too many rather than too few.
const BYTES_A_TOKEN: u64 = 3;

/// What an answer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerUsage {
    /// How many tokens.
    pub tokens: Tokens,
    /// How many of `tokens.cache_write` were written for an hour.
    pub long_write: u64,
    /// How that is known.
    pub source: UsageSource,
}

impl AnswerUsage {
    /// What it costs. What is written to a cache for an hour costs 1.6 times what is written for
    /// five minutes, whose price is known.
    pub fn cost(&self, price: &TokenPrice) -> Money {
        let longer = self.long_write.saturating_mul(3).div_ceil(5);
        price.cost(&self.tokens) + price.cache_write.times(longer)
    }
}

/// How an answer's usage is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageSource {
    /// The answer says it.
    Reported,
    /// It ended too early: its output is estimated, and maybe its input.
    Estimated,
    /// It came, but said nothing that can be read.
    Unreadable,
}

/// Reads the usage out of one answer.
#[derive(Debug)]
pub struct UsageReader {
    lines: Option<SseLines>,
    scan: JsonScan,
    counts: UsageCounts,
}

/// Where the reader of a stream of events is.
#[derive(Debug, Default)]
struct SseLines {
    /// The beginning of the line, as far as it can be that of a field's name.
    head: Vec<u8>,
    is_data: bool,
}

/// What was seen so far.
#[derive(Debug)]
struct UsageCounts {
    api: ModelApi,
    seen_bytes: bool,
    input: Option<u64>,
    output: Option<u64>,
    cache_read: u64,
    cache_write: u64,
    /// Of those, written for an hour.
    long_write: u64,
    /// Whether the last report was seen: what it says is the sum.
    is_final: bool,
    /// The length of the texts that came in pieces, in bytes.
    pieces_len: u64,
}

impl UsageReader {
    /// A reader for an answer; `is_stream` is whether it comes as server-sent events.
    pub fn new(api: ModelApi, is_stream: bool) -> Self {
        let counts = UsageCounts {
            api,
            seen_bytes: false,
            input: None,
            output: None,
            cache_read: 0,
            cache_write: 0,
            long_write: 0,
            is_final: false,
            pieces_len: 0,
        };
        let lines = is_stream.then(SseLines::default);
        Self { lines, scan: JsonScan::default(), counts }
    }

    /// Reads on.
    pub fn push(&mut self, chunk: &[u8]) {
        self.counts.seen_bytes |= !chunk.is_empty();
        if self.lines.is_none() {
            let counts = &mut self.counts;
            return self.scan.push(chunk, &mut |value| counts.see(&value));
        }
        for part in chunk.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, ends) = match part.split_last() {
                Some((b'\n' | b'\r', text)) => (text, true),
                Some(_) | None => (part, false),
            };
            self.push_line(text);
            if ends {
                self.end_line();
            }
        }
    }

    fn push_line(&mut self, mut text: &[u8]) {
        const DATA: &[u8] = b"data:";
        let Some(lines) = &mut self.lines else { return };
        if !lines.is_data {
            let missing = (DATA.len() - lines.head.len().min(DATA.len())).min(text.len());
            lines.head.extend_from_slice(&text[..missing]);
            text = &text[missing..];
            lines.is_data = lines.head == DATA;
        }
        if lines.is_data {
            let counts = &mut self.counts;
            self.scan.push(text, &mut |value| counts.see(&value));
        }
    }

    /// An event's data is one line for all that speak these forms.
    fn end_line(&mut self) {
        if let Some(lines) = &mut self.lines {
            lines.head.clear();
            lines.is_data = false;
            self.scan = JsonScan::default();
        }
    }

    /// What the answer used. `input_estimate` is the request's, for an answer that did not say.
    pub fn finish(&self, input_estimate: u64) -> AnswerUsage {
        let counts = &self.counts;
        let pieces = counts.pieces_len.div_ceil(BYTES_A_TOKEN);
        let source = if counts.is_final {
            UsageSource::Reported
        } else if counts.input.is_some() || pieces > 0 || !counts.seen_bytes {
            UsageSource::Estimated
        } else {
            UsageSource::Unreadable
        };
        let reported = counts.output.unwrap_or_default();
        let output = if counts.is_final { reported } else { reported.max(pieces) };
        let Some(input) = counts.input else {
            let tokens = Tokens { input: input_estimate, output, ..Tokens::default() };
            return AnswerUsage { tokens, long_write: 0, source };
        };
        let cached_within = match counts.api {
            ModelApi::Messages => 0,
            ModelApi::Responses => counts.cache_read,
        };
        let tokens = Tokens {
            input: input.saturating_sub(cached_within),
            output,
            cache_read: counts.cache_read,
            cache_write: counts.cache_write,
        };
        let long_write = counts.long_write.min(counts.cache_write);
        AnswerUsage { tokens, long_write, source }
    }
}

impl UsageCounts {
    fn see(&mut self, value: &ScannedValue<'_>) {
        match self.api {
            ModelApi::Messages => self.see_messages(value),
            ModelApi::Responses => self.see_responses(value),
        }
    }

    fn see_messages(&mut self, value: &ScannedValue<'_>) {
        // `message_start` has the message, whose usage is the first report; `message_delta` has the
        // sum, as a message that is not streamed does.
        let (field, is_sum) = match value.path.strip_prefix("usage/") {
            Some(field) => (field, true),
            None => match value.path.strip_prefix("message/usage/") {
                Some(field) => (field, false),
                None => return self.see_piece(value),
            },
        };
        let Some(count) = count_of(value) else { return };
        match field {
            "input_tokens" => self.input = self.input.max(Some(count)),
            "output_tokens" => {
                self.output = self.output.max(Some(count));
                self.is_final |= is_sum;
            }
            "cache_read_input_tokens" => self.cache_read = self.cache_read.max(count),
            "cache_creation_input_tokens" => self.cache_write = self.cache_write.max(count),
            "cache_creation/ephemeral_1h_input_tokens" => {
                self.long_write = self.long_write.max(count);
            }
            _ => {}
        }
    }

    fn see_responses(&mut self, value: &ScannedValue<'_>) {
        // The last event has the response, whose usage is the sum; one that is not streamed is it.
        let of_response = value.path.strip_prefix("response/usage/");
        let Some(field) = of_response.or_else(|| value.path.strip_prefix("usage/")) else {
            return self.see_piece(value);
        };
        let Some(count) = count_of(value) else { return };
        match field {
            "input_tokens" => self.input = self.input.max(Some(count)),
            "output_tokens" => {
                self.output = self.output.max(Some(count));
                self.is_final = true;
            }
            "input_tokens_details/cached_tokens" => self.cache_read = self.cache_read.max(count),
            _ => {}
        }
    }

    /// A piece of an answer: its text, its thoughts, the input of a tool.
    fn see_piece(&mut self, value: &ScannedValue<'_>) {
        let is_piece = value.path == "delta"
            || value
                .path
                .strip_prefix("delta/")
                .is_some_and(|key| key != "type" && key != "stop_reason")
            || value.path == "item/encrypted_content";
        if is_piece && value.is_text {
            let len = value.place.end - value.place.start;
            self.pieces_len = self.pieces_len.saturating_add(len.saturating_sub(2));
        }
    }
}

fn count_of(value: &ScannedValue<'_>) -> Option<u64> {
    if value.is_text { None } else { value.value.parse().ok() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str = concat!(
        "event: message_start\n",
        r#"data: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":7,"cache_creation_input_tokens":20,"cache_read_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":0},"output_tokens":1}}}"#,
        "\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n: a comment\nretry: 5\n\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello {\"usage\":{\"output_tokens\":999}} \n"}}"#,
        "\n\n",
        r#"data: {"type":"something_new","usage_of":{"output_tokens":5000}}"#,
        "\n\ndata: {broken\n\ndata: [DONE]\n\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":7,"output_tokens":42}}"#,
        "\n\ndata: {\"type\":\"message_stop\"}\n\n",
    );

    const RESPONSES: &str = concat!(
        "event: response.created\r\n",
        r#"data: {"type":"response.created","response":{"id":"r","usage":null}}"#,
        "\r\n\r\n",
        r#"data: {"type":"response.output_text.delta","delta":"abcdef"}"#,
        "\r\n\r\n",
        r#"data: {"type":"response.completed","response":{"output":[{"usage":{"output_tokens":1}}],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":8,"output_tokens_details":{"reasoning_tokens":900},"total_tokens":108}}}"#,
        "\r\n\r\n",
    );

    fn read(api: ModelApi, is_stream: bool, text: &str, lens: &[usize]) -> AnswerUsage {
        let mut reader = UsageReader::new(api, is_stream);
        let (mut rest, mut lens) = (text.as_bytes(), lens.iter().cycle());
        while !rest.is_empty() {
            let len = lens.next().map_or(rest.len(), |len| (*len).clamp(1, rest.len()));
            reader.push(&rest[..len]);
            rest = &rest[len..];
        }
        reader.finish(1_000)
    }

    const fn tokens(input: u64, output: u64, cache_read: u64, cache_write: u64) -> Tokens {
        Tokens { input, output, cache_read, cache_write }
    }

    proptest! {
        #[test]
        fn a_stream_gives_its_sums_wherever_it_is_cut(lens in prop::collection::vec(1_usize..60, 1..8)) {
            let source = UsageSource::Reported;
            let expected = AnswerUsage { tokens: tokens(7, 42, 300, 20), long_write: 0, source };
            prop_assert_eq!(read(ModelApi::Messages, true, STREAM, &lens), expected);
            let with_returns = STREAM.replace('\n', "\r\n");
            prop_assert_eq!(read(ModelApi::Messages, true, &with_returns, &lens), expected);
            let expected = AnswerUsage { tokens: tokens(40, 8, 60, 0), long_write: 0, source };
            prop_assert_eq!(read(ModelApi::Responses, true, RESPONSES, &lens), expected);
        }

        #[test]
        fn a_stream_that_ends_early_is_estimated_and_never_below_what_it_said(at in 0..STREAM.len()) {
            let text = STREAM.get(..at).unwrap_or_default();
            let found = read(ModelApi::Messages, true, text, &[17]);
            let is_begun = text.contains("\"output_tokens\":1}");
            let is_summed = text.contains("\"output_tokens\":42}");
            match found.source {
                UsageSource::Reported => prop_assert!(is_summed),
                UsageSource::Estimated => prop_assert!(!is_summed),
                UsageSource::Unreadable => prop_assert!(!is_begun && !text.is_empty()),
            }
            if is_begun {
                prop_assert_eq!(found.tokens.all_input(), 327);
            }
            if text.contains("} \\n\"") && !is_summed {
                prop_assert_eq!(found.tokens.output, 15, "45 bytes of text came");
            }
        }

        #[test]
        fn a_cut_stream_counts_what_came(pieces in prop::collection::vec("[a-z]{0,40}", 0..20)) {
            let mut text = STREAM.split_inclusive("\n\n").next().unwrap_or_default().to_owned();
            for piece in &pieces {
                text += &format!("data: {{\"delta\":{{\"type\":\"text_delta\",\"text\":\"{piece}\"}}}}\n\n");
            }
            let len: usize = pieces.iter().map(String::len).sum();
            let found = read(ModelApi::Messages, true, &text, &[13]);
            prop_assert_eq!(found.source, UsageSource::Estimated);
            prop_assert_eq!(found.tokens, tokens(7, (len as u64).div_ceil(3).max(1), 300, 20));
        }
    }

    #[test]
    fn answers_that_are_not_streamed_are_counted() {
        let message = r#"{"content":[{"type":"tool_use","input":{"usage":{"output_tokens":77}}}],
            "usage":{"input_tokens":5,"cache_creation_input_tokens":100,"output_tokens":9,
            "cache_creation":{"ephemeral_1h_input_tokens":100}}}"#;
        let found = read(ModelApi::Messages, false, message, &[5]);
        assert_eq!(found.source, UsageSource::Reported);
        assert_eq!((found.tokens, found.long_write), (tokens(5, 9, 0, 100), 100));
        let price = TokenPrice::per_million([0.0, 0.0, 0.0, 10.0]).expect("amounts");
        assert_eq!(found.cost(&price), price.cache_write.times(160));
        let response = r#"{"output":[],"usage":{"input_tokens":10,"output_tokens":3,
            "input_tokens_details":{"cached_tokens":4}}}"#;
        assert_eq!(read(ModelApi::Responses, false, response, &[]).tokens, tokens(6, 3, 4, 0));
    }

    #[test]
    fn an_answer_that_says_nothing_is_distinguished() {
        let nothing = read(ModelApi::Messages, true, "", &[]);
        assert_eq!(
            (nothing.source, nothing.tokens),
            (UsageSource::Estimated, tokens(1_000, 0, 0, 0))
        );
        let unreadable = read(ModelApi::Messages, false, "\u{1f}\u{8b} compressed", &[]);
        assert_eq!(unreadable.source, UsageSource::Unreadable);
        let deltas = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"123456789\"}\n\n";
        let cut = read(ModelApi::Responses, true, deltas, &[]);
        assert_eq!((cut.source, cut.tokens), (UsageSource::Estimated, tokens(1_000, 3, 0, 0)));
    }
}
