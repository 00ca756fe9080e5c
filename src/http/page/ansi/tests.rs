//! Output of programs, tame and hostile.

use proptest::prelude::*;

use super::*;

fn painted(text: &str) -> String {
    let mut painter = Painter::default();
    let mut html = painter.paint(text.as_bytes());
    html.push_str(&painter.end());
    html
}

#[test]
fn colours_and_weight_become_classes() {
    for (output, html) in [
        ("\x1b[31mred\x1b[0m plain", "<span class=\"f1\">red</span> plain"),
        (
            "\x1b[1;92;44mx\x1b[22my",
            "<span class=\"bo f10 b4\">x</span><span class=\"f10 b4\">y</span>",
        ),
        ("\x1b[38;5;196mx\x1b[39my", "<span class=\"f9\">x</span>y"),
        ("\x1b[38;2;0;0;200mx", "<span class=\"f12\">x</span>"),
        ("\x1b[48:5:4mx\x1b[m", "<span class=\"b4\">x</span>"),
        ("\x1b[3;4;7;9mx\x1b[23;24;27;29my", "<span class=\"it un st in\">x</span>y"),
        ("\u{9b}32mx", "<span class=\"f2\">x</span>"),
    ] {
        assert_eq!(painted(output), html, "{output:?}");
    }
}

#[test]
fn whatever_else_a_terminal_obeys_is_dropped() {
    for (output, html) in [
        ("a\x1b[2J\x1b[1;1Hb", "ab"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;https://elsewhere.example\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1b]52;c;cm0gLXJmIC8K\x07b", "ab"),
        ("a\x1bPq#0;2;0;0;0\x1b\\b", "ab"),
        ("a\x1b(0b\x1b=c\x1b[?25ld\x1bce", "abcde"),
        ("a\x08\x07\x0b\x0c\x00b\x7f", "ab"),
        ("a\x1b]8;;never ends", "a"),
        ("a\x1b[31;1", "a"),
        ("\x1b[31;31;31;31;31;31;31;31;31;31;31;31;31;31;31;31;31;31;31;31;31;31;31;31;31mx", "x"),
    ] {
        assert_eq!(painted(output), html, "{output:?}");
    }
}

#[test]
fn html_and_direction_marks_are_only_text() {
    assert_eq!(
        painted("<img src=x onerror=alert(1)>&\"'"),
        "&lt;img src=x onerror=alert(1)&gt;&amp;&quot;&#39;"
    );
    assert_eq!(painted("a\u{202e}b"), "a\\u{202e}b");
}

#[test]
fn lines_end_once_and_a_progress_bar_is_a_line_each_time() {
    assert_eq!(painted("a\r\nb\nc"), "a\nb\nc");
    assert_eq!(painted("10%\r20%\r\r\n"), "10%\n20%\n");
}

#[test]
fn a_line_takes_bounded_room() {
    let html = painted(&format!("\x1b[31m{}\x1b[0m\nnext", "x".repeat(1_000_000)));
    assert!(html.len() < LINE_LEN_MAX + 200, "{} bytes", html.len());
    assert!(html.contains("… 996000 more characters</span>\nnext"), "{}", &html[LINE_LEN_MAX..]);
}

#[test]
fn bytes_that_are_no_text_are_shown_as_such() {
    let mut painter = Painter::default();
    let html = painter.paint(b"a\xffb\xe2\x82") + &painter.end();
    assert_eq!(html, "a\u{fffd}b\u{fffd}");
}

/// Text with what is worth mixing in.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\x1b[31m".to_vec()),
        Just(b"\x1b[0m".to_vec()),
        Just(b"\x1b]8;;x\x1b\\".to_vec()),
        Just(b"\x1b".to_vec()),
        Just(b"<b>&\"".to_vec()),
        Just("ä漢\u{202e}".as_bytes().to_vec()),
        Just(b"\r\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// The text of HTML: without our own spans, which are all that may be in it.
fn text_of(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        let is_ours = tag == "/span" || tag.starts_with("span class=\"");
        assert!(is_ours, "{tag:?} in {html:?}");
        rest = &rest[end + 1..];
    }
    text + rest
}

proptest! {
    #[test]
    fn wherever_output_is_cut_it_reads_the_same(output in output(), at in 0..80_usize) {
        let whole = {
            let mut painter = Painter::default();
            painter.paint(&output) + &painter.end()
        };
        let at = at.min(output.len());
        let mut painter = Painter::default();
        let first = painter.paint(&output[..at]);
        prop_assert_eq!(first.matches("<span").count(), first.matches("</span").count());
        let cut = first + &painter.paint(&output[at..]) + &painter.end();
        prop_assert_eq!(text_of(&cut), text_of(&whole));
        prop_assert!(!whole.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
    }
}
