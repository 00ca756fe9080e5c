//! Reads single values out of JSON that passes by, in chunks cut anywhere and with bounded memory.
//!
//! A scan knows at which path it is, and gives each number, text and word with its path and place.
//! It does not judge whether the text is JSON: who depends on that checks it besides. Texts are
//! cut, paths are known to a depth, and what is nested too deep ends the scan.

use std::ops::Range;

/// How deep a path is known; what is deeper is passed over.
const PATH_DEPTH_MAX: usize = 10;
/// How deep arrays and objects may be nested, as for every reader of requests here.
const NESTING_MAX: usize = 128;
/// How much is kept of a key, a number or a text, in bytes. Six for each character of the longest
/// word that is looked for, were it written in escapes.
pub const KEPT_MAX: usize = 256;
/// What a path has for the element of an array.
pub const ELEMENT: &str = "[]";

/// A value that is neither an object nor an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedValue<'a> {
    /// The keys that lead to it with `/` between them, and [`ELEMENT`] for an array's element.
    pub path: &'a str,
    /// A text without its escapes, or the number or word as it is written; at most [`KEPT_MAX`]
    /// bytes of it.
    pub value: &'a str,
    /// Whether it is a text.
    pub is_text: bool,
    /// Its place, with its quotes: bytes from the beginning.
    pub place: Range<u64>,
}

/// What is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    /// Between values.
    Between,
    /// In a text.
    Text,
    /// Behind a backslash in a text.
    Escape,
    /// In a number or a word.
    Bare,
    /// Too much was nested: nothing is read any more.
    Ended,
}

/// A scan over one JSON value.
#[derive(Debug)]
pub struct JsonScan {
    state: ScanState,
    /// Of each open value whether it is an object.
    open: Vec<bool>,
    path: String,
    /// The length of the path before each open value's current key.
    lens: Vec<usize>,
    is_key: bool,
    kept: Vec<u8>,
    begun_at: u64,
    at: u64,
}

impl Default for JsonScan {
    fn default() -> Self {
        Self {
            state: ScanState::Between,
            open: Vec::new(),
            path: String::new(),
            lens: Vec::new(),
            is_key: false,
            kept: Vec::new(),
            begun_at: 0,
            at: 0,
        }
    }
}

impl JsonScan {
    /// Reads on; `see` gets each value that ends in this chunk.
    pub fn push(&mut self, mut bytes: &[u8], see: &mut impl FnMut(ScannedValue<'_>)) {
        while let Some(&byte) = bytes.first() {
            let read = match self.state {
                ScanState::Ended => return,
                ScanState::Text => {
                    let len = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
                    self.keep(&bytes[..len]);
                    match bytes.get(len) {
                        Some(b'"') => {
                            self.at += len as u64 + 1;
                            self.end_text(see);
                            bytes = &bytes[len + 1..];
                            continue;
                        }
                        Some(_) => {
                            self.keep(b"\\");
                            self.state = ScanState::Escape;
                            len + 1
                        }
                        None => len,
                    }
                }
                ScanState::Escape => {
                    self.keep(&[byte]);
                    self.state = ScanState::Text;
                    1
                }
                ScanState::Bare
                    if !matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n') =>
                {
                    self.keep(&[byte]);
                    1
                }
                ScanState::Bare => {
                    self.end_bare(see);
                    0
                }
                ScanState::Between => {
                    self.between(byte);
                    1
                }
            };
            self.at += read as u64;
            bytes = &bytes[read..];
        }
    }

    /// Ends the scan: a number alone ends with its text.
    pub fn finish(&mut self, see: &mut impl FnMut(ScannedValue<'_>)) {
        if self.state == ScanState::Bare {
            self.end_bare(see);
        }
    }

    fn between(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' => self.enter(byte == b'{'),
            b'}' | b']' => self.leave(),
            b',' => self.is_key = self.open.last() == Some(&true),
            b':' | b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => {
                self.kept.clear();
                self.begun_at = self.at;
                self.state = if byte == b'"' { ScanState::Text } else { ScanState::Bare };
                if byte != b'"' {
                    self.keep(&[byte]);
                }
            }
        }
    }

    fn enter(&mut self, is_object: bool) {
        if self.open.len() == NESTING_MAX {
            self.state = ScanState::Ended;
            return;
        }
        self.lens.push(self.path.len());
        self.open.push(is_object);
        self.is_key = is_object;
        if !is_object {
            self.add_to_path(ELEMENT);
        }
    }

    fn leave(&mut self) {
        self.open.pop();
        if let Some(len) = self.lens.pop() {
            self.path.truncate(len);
        }
        self.is_key = false;
    }

    fn add_to_path(&mut self, part: &str) {
        if self.lens.len() > PATH_DEPTH_MAX {
            return;
        }
        if !self.path.is_empty() {
            self.path.push('/');
        }
        self.path.push_str(part);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = KEPT_MAX - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_text(&mut self, see: &mut impl FnMut(ScannedValue<'_>)) {
        self.state = ScanState::Between;
        let text = unescaped(&self.kept);
        if self.is_key {
            self.is_key = false;
            let len = self.lens.last().copied().unwrap_or_default();
            self.path.truncate(len);
            // A key with a slash must not look like two.
            self.add_to_path(&text.replace('/', "\u{1}"));
        } else {
            self.give(&text, true, see);
        }
    }

    fn end_bare(&mut self, see: &mut impl FnMut(ScannedValue<'_>)) {
        self.state = ScanState::Between;
        let text = String::from_utf8_lossy(&self.kept).into_owned();
        self.give(&text, false, see);
    }

    fn give(&self, value: &str, is_text: bool, see: &mut impl FnMut(ScannedValue<'_>)) {
        if self.lens.len() <= PATH_DEPTH_MAX {
            see(ScannedValue { path: &self.path, value, is_text, place: self.begun_at..self.at });
        }
    }
}

/// A text without its escapes. One that was cut in the middle of an escape loses that.
fn unescaped(raw: &[u8]) -> String {
    let raw = String::from_utf8_lossy(raw);
    if !raw.contains('\\') {
        return raw.into_owned();
    }
    let mut text = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('u') => {
                let digits = chars.as_str().get(..4);
                let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                text.push(code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER));
                chars = chars.as_str().get(4..).unwrap_or_default().chars();
            }
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('b') => text.push('\u{8}'),
            Some('f') => text.push('\u{c}'),
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// All values of a text that is pushed in pieces of these lengths, one after the other.
    fn scanned(text: &str, lens: &[usize]) -> Vec<(String, String, bool)> {
        let (mut scan, mut found) = (JsonScan::default(), Vec::new());
        let mut see = |value: ScannedValue<'_>| {
            let written = &text[value.place.start as usize..value.place.end as usize];
            assert_eq!(written.starts_with('"'), value.is_text);
            found.push((value.path.to_owned(), value.value.to_owned(), value.is_text));
        };
        let (mut rest, mut lens) = (text.as_bytes(), lens.iter().cycle());
        while !rest.is_empty() {
            let len = lens.next().map_or(rest.len(), |len| (*len).clamp(1, rest.len()));
            scan.push(&rest[..len], &mut see);
            rest = &rest[len..];
        }
        scan.finish(&mut see);
        found
    }

    /// The same by a reader that has all of it in memory.
    fn known(path: &str, value: &Value, found: &mut Vec<(String, String, bool)>) {
        let below = |key: &str| match path {
            "" => key.to_owned(),
            _ => format!("{path}/{key}"),
        };
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    known(&below(key), value, found);
                }
            }
            Value::Array(all) => all.iter().for_each(|value| known(&below("[]"), value, found)),
            Value::String(text) => found.push((path.to_owned(), text.clone(), true)),
            other => found.push((path.to_owned(), other.to_string(), false)),
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let key = "[a-z\"\\\\\n é]{0,4}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z\"\\\\/\n{}\\[\\]:, é]{0,9}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, move |inner| {
            let object = prop::collection::btree_map(key, inner.clone(), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                object.prop_map(|map| map.into_iter().collect::<Value>()),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_value_is_found_wherever_the_text_is_cut(
            value in json(),
            is_pretty in any::<bool>(),
            lens in prop::collection::vec(1_usize..9, 1..6),
        ) {
            let text = if is_pretty { format!("{value:#}") } else { value.to_string() };
            let mut expected = Vec::new();
            known("", &value, &mut expected);
            prop_assert_eq!(&scanned(&text, &[]), &expected);
            prop_assert_eq!(&scanned(&text, &lens), &expected);
        }

        #[test]
        fn any_bytes_are_read_with_bounded_memory(
            bytes in prop::collection::vec(prop::sample::select(b"{}[]\",:\\u0 a\xff".to_vec()), 0..400),
        ) {
            let mut scan = JsonScan::default();
            for chunk in bytes.chunks(7) {
                scan.push(chunk, &mut |value| assert!(value.value.len() <= 3 * KEPT_MAX));
            }
            prop_assert!(scan.open.len() <= NESTING_MAX && scan.kept.len() <= KEPT_MAX);
        }
    }

    #[test]
    fn escapes_hide_no_key_and_a_slash_makes_none() {
        let text = r#"{"m\u006fdel":"a\u0062","a/b":1,"a":{"b":2}}"#;
        let found = scanned(text, &[3]);
        let paths: Vec<&str> = found.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(paths, ["model", "a\u{1}b", "a/b"]);
        assert_eq!(found[0].1, "ab");
    }

    #[test]
    fn long_texts_are_cut_and_deep_nesting_ends_the_scan() {
        let long = "x".repeat(KEPT_MAX * 3);
        let text = format!("{{\"a\":\"{long}\",\"b\":7}}");
        let found = scanned(&text, &[11]);
        assert_eq!((found[0].1.len(), found[1].1.as_str()), (KEPT_MAX, "7"));
        let deep = format!("{}1{}", "[".repeat(NESTING_MAX + 1), "]".repeat(NESTING_MAX + 1));
        assert_eq!(scanned(&format!("[{deep},2]"), &[]), []);
        let less = format!("[{}1{},2]", "[".repeat(50), "]".repeat(50));
        assert_eq!(
            scanned(&less, &[]),
            [("[]".into(), "2".into(), false)],
            "deeper is passed over"
        );
    }
}
