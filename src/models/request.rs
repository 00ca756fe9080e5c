//! Reads of a request's body what must be known before it goes out, and caps its output.
//!
//! # Guarantees
//! - What is judged is what the model reads: a key that is given twice is refused, escapes hide
//!   nothing, and the body is sent as it is except for the number of the cap.
//! - Memory beside the body is bounded, whatever is nested in it.
//! - A request that would spend or read what the gateway cannot see is refused: work that goes on
//!   when its caller is gone, prices above the list, what other conversations stored at the maker.

use std::collections::BTreeSet;
use std::ops::Range;

use bytes::Bytes;
use serde::de::IgnoredAny;

use super::ModelApi;
use super::scan::{JsonScan, ScannedValue};
use crate::types::ModelPattern;

/// Most keys of a request; the forms have some 30.
const KEYS_MAX: usize = 128;
/// Bytes of a request for one token, where they must be estimated: dense text has as few as two.
const BYTES_A_TOKEN: u64 = 2;
/// The same for pictures and documents in base64, behind a part of its own for each.
const DATA_BYTES_A_TOKEN: u64 = 16;
const DATA_TOKENS: u64 = 5_000;
/// Most tokens that any model reads.
const INPUT_MAX: u64 = 1_000_000;

/// Tools that the maker of the model runs, and which reach the network there: beginnings of their
/// types.
const FETCHING_TOOLS: [&str; 7] = [
    "web_search",
    "web_fetch",
    "code_execution",
    "mcp",
    "code_interpreter",
    "file_search",
    "image_generation",
];

/// Keys whose presence (with another value than null) is refused, and why.
const REFUSED_KEYS: [(&str, &str); 4] = [
    ("previous_response_id", "send the conversation as `input`"),
    ("conversation", "send the conversation as `input`"),
    ("prompt", "send the prompt as `input`"),
    ("container", "a container of another request cannot be used"),
];

/// Keys of which only these values may be sent: others go on without their caller, or cost more than
/// the list prices.
const BOUND_KEYS: [(&str, &[&str]); 4] = [
    ("background", &["false"]),
    ("service_tier", &["auto", "default", "standard_only", "flex"]),
    ("speed", &["standard"]),
    ("inference_geo", &["global"]),
];

/// A request that can be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRequest {
    /// The model that it names.
    pub model: String,
    /// Most tokens of output, as it is sent.
    pub output_max: u64,
    /// Whether the answer is streamed.
    pub is_stream: bool,
    /// What it has fetched at the maker of the model: a type of tool, or an address in a message.
    pub fetches: Option<String>,
    /// How many tokens of input it has, estimated from its length.
    pub input_estimate: u64,
    /// What is sent.
    pub body: Bytes,
    /// What came, with no cap.
    pub original: Bytes,
}

/// Why a request cannot be judged, for its caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadModelRequest(pub String);

/// Reads a request and caps its output at `output_cap` tokens.
///
/// # Errors
/// [`BadModelRequest`].
pub fn read(api: ModelApi, body: Bytes, output_cap: u64) -> Result<ModelRequest, BadModelRequest> {
    let bad = |text: String| Err(BadModelRequest(text));
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(&body) {
        return bad(format!("the body is not JSON: {error}"));
    }
    let mut seen = SeenRequest::new(api);
    let mut scan = JsonScan::default();
    let mut see = |value: ScannedValue<'_>| seen.see(&value);
    scan.push(&body, &mut see);
    scan.finish(&mut see);
    if let Some(trouble) = seen.trouble {
        return bad(trouble);
    }
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return bad("the body must be an object".into());
    }
    let Some(model) = seen.model else { return bad("`model` is missing".into()) };
    let input_estimate = estimate(body.len() as u64, seen.data_len, seen.data_count);
    let original = body.clone();
    let (body, output_max) = match &seen.output_max {
        Some((asked, _)) if *asked <= output_cap => (body, *asked),
        Some((_, place)) => (spliced(&body, place, &output_cap.to_string()), output_cap),
        None => {
            let at = body.iter().position(|byte| *byte == b'{').unwrap_or_default() as u64 + 1;
            let capped = format!("\"{}\":{output_cap},", output_key(api));
            (spliced(&body, &(at..at), &capped), output_cap)
        }
    };
    let (is_stream, fetches) = (seen.is_stream, seen.fetches);
    Ok(ModelRequest { model, output_max, is_stream, fetches, input_estimate, body, original })
}

const fn output_key(api: ModelApi) -> &'static str {
    match api {
        ModelApi::Messages => "max_tokens",
        ModelApi::Responses => "max_output_tokens",
    }
}

fn estimate(len: u64, data_len: u64, data_count: u64) -> u64 {
    let text = len.saturating_sub(data_len).div_ceil(BYTES_A_TOKEN);
    let data = data_len.div_ceil(DATA_BYTES_A_TOKEN) + data_count * DATA_TOKENS;
    (text + data).min(INPUT_MAX)
}

fn spliced(body: &Bytes, place: &Range<u64>, text: &str) -> Bytes {
    let index = |at: u64| usize::try_from(at).expect("a place in a text in memory");
    let (head, tail) = (&body[..index(place.start)], &body[index(place.end)..]);
    [head, text.as_bytes(), tail].concat().into()
}

/// What was seen of a request.
struct SeenRequest {
    api: ModelApi,
    keys: BTreeSet<String>,
    model: Option<String>,
    output_max: Option<(u64, Range<u64>)>,
    is_stream: bool,
    fetches: Option<String>,
    data_len: u64,
    data_count: u64,
    trouble: Option<String>,
}

impl SeenRequest {
    fn new(api: ModelApi) -> Self {
        Self {
            api,
            keys: BTreeSet::new(),
            model: None,
            output_max: None,
            is_stream: false,
            fetches: None,
            data_len: 0,
            data_count: 0,
            trouble: None,
        }
    }

    fn see(&mut self, value: &ScannedValue<'_>) {
        let (key, below) = value.path.split_once('/').unwrap_or((value.path, ""));
        if below.is_empty() {
            self.see_top(key, value);
        } else {
            self.see_below(key, value);
        }
        if is_data(value) {
            self.data_len += value.place.end - value.place.start;
            self.data_count += 1;
        }
    }

    /// A key at the top whose value is no object and no array.
    fn see_top(&mut self, key: &str, value: &ScannedValue<'_>) {
        if !self.keys.insert(key.to_owned()) || self.keys.len() > KEYS_MAX {
            self.refuse(format!("`{}` is given twice, or there are too many keys", shown(key)));
        }
        if let Some((_, why)) = REFUSED_KEYS.iter().find(|(refused, _)| *refused == key)
            && value.value != "null"
        {
            self.refuse(format!("`{key}` cannot be used here: {why}"));
        }
        let bound = BOUND_KEYS.iter().find(|(bound, _)| *bound == key);
        if bound.is_some_and(|(_, may)| value.value != "null" && !may.contains(&value.value)) {
            self.refuse(format!("`{key}` cannot be {} here", shown(value.value)));
        }
        match key {
            "model" if value.is_text && is_name(value.value) => {
                self.model = Some(value.value.to_owned());
            }
            "model" => self.refuse("`model` is not a model's name".into()),
            "stream" => self.is_stream = value.value == "true",
            _ if key == output_key(self.api) => {
                let asked = match value.value {
                    "null" => Some(u64::MAX),
                    count => count.parse().ok(),
                };
                match asked {
                    Some(count) if !value.is_text => {
                        self.output_max = Some((count, value.place.clone()));
                    }
                    Some(_) | None => self.refuse(format!("`{key}` is not a number of tokens")),
                }
            }
            _ => {}
        }
    }

    /// A value that is in an object or array.
    fn see_below(&mut self, key: &str, value: &ScannedValue<'_>) {
        if ["model", "stream", output_key(self.api)].contains(&key) {
            self.refuse(format!("`{key}` has the wrong form"));
        }
        if let Some((refused, why)) = REFUSED_KEYS.iter().find(|(refused, _)| *refused == key) {
            self.refuse(format!("`{refused}` cannot be used here: {why}"));
        }
        let is_tool_type = key == "tools" && value.path == "tools/[]/type";
        let is_fetching_tool =
            is_tool_type && FETCHING_TOOLS.iter().any(|tool| value.value.starts_with(tool));
        if is_fetching_tool || key == "mcp_servers" {
            let what = if is_fetching_tool { shown(value.value) } else { "mcp_servers".into() };
            self.fetches.get_or_insert(format!("the tool `{what}`"));
        } else if is_address(value) {
            self.fetches.get_or_insert("an address in a message".into());
        }
    }

    fn refuse(&mut self, trouble: String) {
        self.trouble.get_or_insert(trouble);
    }
}

/// Whether this is a picture or document in base64. The input of a tool may have such keys, too.
fn is_data(value: &ScannedValue<'_>) -> bool {
    let is_place = ["/source/data", "/image_url", "/file_data"]
        .iter()
        .any(|end| value.path.ends_with(end) && !value.path.contains("/input/"));
    value.is_text && is_place && !is_web_address(value.value) && !value.value.contains([' ', '\n'])
}

/// Whether the maker of the model would ask for this address.
fn is_address(value: &ScannedValue<'_>) -> bool {
    let is_source = value.path.ends_with("/source/url") && !value.path.contains("/input/");
    let is_of_item = value.path.starts_with("input/")
        && ["/image_url", "/file_url"].iter().any(|end| value.path.ends_with(end));
    value.is_text && (is_source || is_of_item) && is_web_address(value.value)
}

fn is_web_address(text: &str) -> bool {
    let scheme = text.trim_start().get(..4);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"))
}

fn is_name(text: &str) -> bool {
    ModelPattern::parse(text).is_ok() && !text.contains('*')
}

/// A word of the request, short enough for a message.
fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const CAP: u64 = 1_000;

    fn read_text(api: ModelApi, text: &str) -> Result<ModelRequest, String> {
        read(api, Bytes::copy_from_slice(text.as_bytes()), CAP).map_err(|error| error.0)
    }

    fn messages(body: &Value) -> ModelRequest {
        read_text(ModelApi::Messages, &body.to_string()).expect("a good request")
    }

    fn sent(request: &ModelRequest) -> Value {
        serde_json::from_slice(&request.body).expect("JSON is sent")
    }

    #[test]
    fn the_output_is_capped_and_the_rest_is_sent_as_it_is() {
        let asked = r#"{ "max_tokens" : 32000, "model":"claude-x","stream":true,  "z":[1, 2] }"#;
        let request = read_text(ModelApi::Messages, asked).expect("a good request");
        assert_eq!(request.body, asked.replace("32000", "1000"));
        assert!(request.is_stream);
        assert_eq!((request.model.as_str(), request.output_max), ("claude-x", CAP));
        let less = asked.replace("32000", "999");
        let request = read_text(ModelApi::Messages, &less).expect("a good request");
        assert_eq!((request.output_max, request.body), (999, less.into()));
        let none = r#" {"model":"gpt-5"}"#;
        let request = read_text(ModelApi::Responses, none).expect("a good request");
        assert_eq!(request.body, r#" {"max_output_tokens":1000,"model":"gpt-5"}"#);
        assert!(!request.is_stream);
        let null = r#"{"model":"gpt-5","max_output_tokens":null}"#;
        let request = read_text(ModelApi::Responses, null).expect("a good request");
        assert_eq!(sent(&request)["max_output_tokens"], CAP);
    }

    #[test]
    fn what_another_reader_could_read_otherwise_is_refused() {
        for body in [
            "",
            "[]",
            "{}",
            "null",
            r#""model""#,
            r#"{"model":"a""#,
            r#"{"model":"a"} x"#,
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a","mode\u006c":"b"}"#,
            r#"{"max_tokens":1,"max_tokens":99999,"model":"a"}"#,
            r#"{"model":["a"]}"#,
            r#"{"model":"a","model":["b"]}"#,
            r#"{"model":7}"#,
            r#"{"model":"a*"}"#,
            r#"{"model":"a","max_tokens":"5"}"#,
            r#"{"model":"a","max_tokens":-1}"#,
            r#"{"model":"a","max_tokens":1e9}"#,
            r#"{"model":"a","max_tokens":[5]}"#,
            r#"{"model":"a","speed":"fast"}"#,
            r#"{"model":"a","service_tier":"priority"}"#,
            r#"{"model":"a","background":true}"#,
            r#"{"model":"a","previous_response_id":"resp_1"}"#,
            r#"{"model":"a","conversation":{"id":"c"}}"#,
            r#"{"model":"a","prompt":{"id":"p"}}"#,
        ] {
            assert!(read_text(ModelApi::Messages, body).is_err(), "{body}");
        }
        for body in [
            r#"{"model":"a","previous_response_id":null,"background":false,"service_tier":"auto"}"#,
            r#"{"model":"a","metadata":{"model":"b","max_tokens":"x","prompt":1}}"#,
        ] {
            assert!(read_text(ModelApi::Messages, body).is_ok(), "{body}");
        }
    }

    #[test]
    fn what_is_fetched_at_the_models_maker_is_found() {
        let source = |source: Value| json!([{"type": "image", "source": source}]);
        let said = |content: Value| json!({"model": "a", "messages": [{"content": content}]});
        let fetching = [
            json!({"model": "a", "tools": [{"name": "x"}, {"type": "web_search_20250305"}]}),
            json!({"model": "a", "tools": [{"type": "mcp_toolset"}]}),
            json!({"model": "a", "mcp_servers": [{"url": "https://mcp.example"}]}),
            said(source(json!({"type": "url", "url": "HTTPS://a.example/x"}))),
            said(json!([{"content": source(json!({"url": "http://a.example"}))}])),
            json!({"model": "a", "input": [{"content": [{"image_url": "https://a.example"}]}]}),
            json!({"model": "a", "input": [{"content": [{"file_url": "https://a.example"}]}]}),
        ];
        for body in fetching {
            assert!(messages(&body).fetches.is_some(), "{body}");
        }
        let escaped = r#"{"model":"a","tools":[{"typ\u0065":"w\u0065b_fetch_1"}]}"#;
        let request = read_text(ModelApi::Messages, escaped).expect("a good request");
        assert_eq!(request.fetches.as_deref(), Some("the tool `web_fetch_1`"));
        let plain = [
            json!({"model": "a", "tools": [{"type": "bash_20250124"}, {"name": "web_search"}]}),
            said(json!([{"type": "text", "text": "https://a.example"}])),
            said(json!([{"input": {"source": {"url": "https://a.example"}}}])),
            said(source(json!({"type": "base64", "data": "AAAA"}))),
        ];
        for body in plain {
            assert_eq!(messages(&body).fetches, None, "{body}");
        }
    }

    #[test]
    fn input_is_estimated_by_its_length_and_pictures_cost_less() {
        let text = "x".repeat(100_000);
        let body = json!({"model": "a", "messages": [{"content": text}]});
        let estimate = messages(&body).input_estimate;
        assert!((50_000..50_100).contains(&estimate), "{estimate}");
        let source = json!({"type": "base64", "data": "A".repeat(1_600_000)});
        let body = json!({"model": "a", "messages": [{"content": [{"source": source}]}]});
        let estimate = messages(&body).input_estimate;
        assert!((105_000..105_100).contains(&estimate), "{estimate}");
        let source = json!({"type": "text", "data": "a b ".repeat(100_000)});
        let body = json!({"model": "a", "messages": [{"content": [{"source": source}]}]});
        assert!(messages(&body).input_estimate > 200_000);
        let body = json!({"model": "a", "messages": [{"content": "x".repeat(9_000_000)}]});
        assert_eq!(messages(&body).input_estimate, INPUT_MAX);
    }

    proptest! {
        #[test]
        fn what_is_sent_is_never_above_the_cap(
            asked in prop::option::of(any::<u64>()),
            api in prop::sample::select(vec![ModelApi::Messages, ModelApi::Responses]),
            keys in prop::collection::btree_map("[a-k]{1,6}", any::<i32>(), 0..6),
        ) {
            let mut body = json!({"model": "m"});
            for (key, value) in keys {
                body[key] = value.into();
            }
            if let Some(asked) = asked {
                body[output_key(api)] = asked.into();
            }
            let request = read_text(api, &body.to_string()).expect("a good request");
            prop_assert_eq!(request.output_max, asked.unwrap_or(CAP).min(CAP));
            body[output_key(api)] = request.output_max.into();
            prop_assert_eq!(sent(&request), body);
        }
    }
}
