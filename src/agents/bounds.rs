//! Bounds of what is kept of an agent's lines: texts are cut at a character, with a mark.

use serde_json::Value;

/// The most bytes of a line that are parsed: 8 MiB. Longer lines are kept as unknown, by their beginning.
pub const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The most bytes of one text of an event, without the mark of a cut: 32 KiB.
pub const TEXT_MAX: usize = 32 * 1024;
/// The most bytes that an event keeps of a line it does not know: 4 KiB.
pub const LINE_MAX: usize = 4 * 1024;
/// The most bytes of an id or a name.
pub const NAME_MAX: usize = 200;
/// The most bytes of a title.
pub const TITLE_MAX: usize = 200;
/// The most bytes of all that a tool is given, and of one text in it.
const INPUT_MAX: usize = 32 * 1024;
const INPUT_TEXT_MAX: usize = 8 * 1024;

/// What stands in place of bytes that were cut off.
pub fn mark(left_out: usize) -> String {
    format!("[… {left_out} bytes cut off]")
}

/// The text, or its first `max` bytes (less, so as not to split a character) and a mark.
pub fn cut(text: &str, max: usize) -> String {
    let head = head(text, max);
    if head.len() == text.len() {
        return text.to_owned();
    }
    format!("{head}{}", mark(text.len() - head.len()))
}

/// The first `max` bytes, less so as not to split a character.
pub fn head(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The first line that is not empty, cut.
pub fn one_line(text: &str, max: usize) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let first_cut = head(first, max);
    let is_all = first_cut.len() == first.len() && lines.next().is_none();
    if is_all { first.to_owned() } else { format!("{first_cut} …") }
}

/// The value with its texts cut, and without what is beyond 32 KiB.
pub fn bounded_value(value: Value) -> Value {
    let mut left = INPUT_MAX;
    bounded_within(value, &mut left)
}

fn bounded_within(value: Value, left: &mut usize) -> Value {
    // What a value takes at least, so that a million empty lists are bounded, too.
    *left = left.saturating_sub(8);
    match value {
        Value::String(text) => {
            let max = INPUT_TEXT_MAX.min(*left);
            let text = cut(&text, max);
            *left = left.saturating_sub(text.len());
            Value::String(text)
        }
        Value::Array(items) => {
            let (all, mut kept) = (items.len(), Vec::new());
            for item in items {
                if *left == 0 {
                    kept.push(Value::String(format!("[… {} more]", all - kept.len())));
                    break;
                }
                kept.push(bounded_within(item, left));
            }
            Value::Array(kept)
        }
        Value::Object(fields) => {
            let (all, mut kept) = (fields.len(), serde_json::Map::new());
            for (key, item) in fields {
                if *left == 0 {
                    kept.insert(
                        "…".to_owned(),
                        Value::String(format!("{} more", all - kept.len())),
                    );
                    break;
                }
                let key = cut(&key, INPUT_TEXT_MAX.min(*left));
                *left = left.saturating_sub(key.len());
                kept.insert(key, bounded_within(item, left));
            }
            Value::Object(kept)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character_and_says_so() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("aäb", 2), "a[… 3 bytes cut off]");
        assert_eq!(one_line("\n  make test \n", 100), "make test");
        assert_eq!(one_line("cd x\nmake", 100), "cd x …");
        assert_eq!(one_line("äää", 3), "ä …");
    }

    #[test]
    fn a_large_input_keeps_its_form() {
        let input = json!({ "path": "a", "content": "x".repeat(100_000), "other": "y" });
        let bounded = bounded_value(input);
        assert_eq!((&bounded["path"], &bounded["other"]), (&json!("a"), &json!("y")));
        let text = bounded["content"].as_str().expect("a text");
        assert!(text.ends_with("bytes cut off]") && text.len() < 9000, "{}", text.len());
        let many = bounded_value(json!(vec![Value::Null; 1_000_000]));
        assert!(many.to_string().len() < 2 * INPUT_MAX);
    }

    proptest! {
        #![proptest_config(crate::fuzz::cases(200))]
        #[test]
        fn no_bytes_make_a_cut_panic(text in ".{0,40}", max in 0_usize..50) {
            let shown = cut(&text, max);
            prop_assert!(shown == text || text.starts_with(head(&text, max)));
            prop_assert!(one_line(&text, max).len() <= max + " …".len());
        }
    }
}
