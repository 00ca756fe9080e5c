//! How long ago something happened, in one unit. The script uses the same words.

use std::time::Duration;

use maud::{Markup, html};

use crate::types::Timestamp;

/// Such as `12 s`, `3 min`, `2 h` or `5 d`.
pub fn ago(span: Duration) -> String {
    match span.as_secs() {
        0..=4 => "now".into(),
        secs @ 5..60 => format!("{secs} s"),
        secs @ 60..3_600 => format!("{} min", secs / 60),
        secs @ 3_600..86_400 => format!("{} h", secs / 3_600),
        secs => format!("{} d", secs / 86_400),
    }
}

/// How long ago a time was, with the time as a tooltip.
pub fn since(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) title=(at) { (ago(now.since(at))) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_down_to_one_unit() {
        let ago = |secs| ago(Duration::from_secs(secs));
        assert_eq!([ago(0), ago(59), ago(60)], ["now", "59 s", "1 min"]);
        assert_eq!([ago(3_599), ago(86_399), ago(86_400 * 9)], ["59 min", "23 h", "9 d"]);
    }
}
