//! Small readings of an agent's JSON, which never fail: what is missing is empty.

use serde_json::Value;

/// The text of a field; empty if there is none.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The number of a field, rounded down; 0 if there is none, or it does not fit.
pub fn number<N: TryFrom<u64> + Default>(value: &Value, key: &str) -> N {
    let number = value.get(key);
    let whole = number.and_then(|it| it.as_u64().or_else(|| it.as_f64().map(|it| it as u64)));
    whole.and_then(|number| N::try_from(number).ok()).unwrap_or_default()
}

/// The items of a list; none for anything else.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The texts of content that is one text or a list of blocks; other blocks show as their type.
pub fn join_texts(content: &Value) -> String {
    if let Some(words) = content.as_str() {
        return words.to_owned();
    }
    let blocks = list(content).iter().map(|block| match text(block, "type") {
        "text" => text(block, "text").to_owned(),
        kind => format!("[{kind}]"),
    });
    blocks.collect::<Vec<_>>().join("\n")
}

/// What a tool is given, in words: the first field that says it best. Paths are relative to `cwd`.
pub fn title_of(input: &Value, cwd: &str) -> String {
    const KEYS: [&str; 11] = [
        "command",
        "file_path",
        "notebook_path",
        "path",
        "pattern",
        "url",
        "query",
        "description",
        "skill",
        "prompt",
        "name",
    ];
    let found = KEYS.iter().map(|key| text(input, key)).find(|words| !words.is_empty());
    let title = found.unwrap_or_default();
    let inside = (!cwd.is_empty()).then(|| title.strip_prefix(cwd)).flatten();
    inside.and_then(|path| path.strip_prefix('/')).unwrap_or(title).to_owned()
}
