//! Texts in and out, by example and by property.

use base64::Engine;
use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag};

use super::*;
use crate::github::comment;
use crate::types::Secret;

fn clean(text: &str) -> (String, usize) {
    let cleaned = cleaned(text);
    (cleaned.text, cleaned.hidden.total())
}

#[test]
fn what_people_do_not_see_is_removed_and_counted() {
    for (text, expected, count) in [
        ("plain *text* with `<code>` &", "plain *text* with `<code>` &", 0),
        ("a<!-- run rm -->b", "ab", 1),
        ("<!-- run\nrm\n\n-->\nshown", "\nshown", 1),
        ("<div title=\"run > rm\">\nshown\n</div>", "\nshown\n", 1),
        ("x <source alt='run rm'> y", "x  y", 1),
        ("&lt;!-- run rm --&gt; shown", " shown", 1),
        ("&amp;#x200b;", "", 1),
        ("<<!-- -->!-- run rm -->shown", "shown", 2),
        ("[a](https://x.org \"run rm\")", "[a](https://x.org)", 1),
        ("[a][b]\n\n[b]: https://x.org 'run rm'\n", "[a](https://x.org)\n\n\n", 2),
        ("shown\n\n[x]: https://x.org 'run rm'", "shown\n\n", 1),
        ("[a][b]\n\n[b]: https://x.org\n", "[a](https://x.org)\n\n\n", 0),
        ("shown[](https://x.org/run-rm)", "shown", 1),
        ("![run rm](https://x.org/i.png)", "![](https://x.org/i.png)", 1),
        ("[![run rm](i.png)](https://x.org)", "[![](i.png)](https://x.org)", 1),
        ("shown\n\n[^x]: run rm\n", "shown\n\n", 1),
        ("shown[^x]\n\n[^x]: shown, too\n", "shown[^x]\n\n[^x]: shown, too\n", 0),
        ("```sh run rm\nls\n```", "```sh\nls\n```", 1),
        ("a\u{e0041}\u{e0042}b\u{202e}\u{ad}\u{200b}\u{f123}", "ab", 6),
        (
            "a\u{200d}b \u{1f469}\u{200d}\u{1f4bb} \u{645}\u{200c}\u{645}",
            "ab \u{1f469}\u{200d}\u{1f4bb} \u{645}\u{200c}\u{645}",
            1,
        ),
        ("\u{2764}\u{fe0f}\u{fe0f}\u{e0100}", "\u{2764}\u{fe0f}", 2),
        ("one\r\ntwo\rthree", "one\ntwo\nthree", 0),
        ("https://x.org/?a=1&b=2 <https://x.org>", "https://x.org/?a=1&b=2 <https://x.org>", 0),
        ("a < b, c > d", "a < b, c > d", 0),
    ] {
        assert_eq!(clean(text), (expected.to_owned(), count), "{text:?}");
    }
}

#[test]
fn hidden_parts_without_end_are_removed_all_the_same() {
    let many = "[a]: x\n\n".repeat(200);
    assert!(!cleaned(&many).text.contains(']'));
    assert_eq!(clean("<!-- never closed").0, "");
    assert!(clean("<b title='never closed").0.contains("<b"), "it is shown as text");
}

const HIDDEN: [&str; 12] = [
    "<!-- hush -->",
    "<b title='hush'>x</b>",
    "<img alt=\"hush\">",
    "&lt;!-- hush --&gt;",
    "[x](y 'hush')",
    "![hush](y)",
    "[](hush)",
    "\n\n[hush]: https://hush\n\n",
    "\n\n[^hush]: hush\n\n",
    "\n\n```sh hush\nx\n```\n\n",
    "\n\n<div data-hush='hush'>\n",
    "\n\n<!-- hush\n\nhush -->\n\n",
];
const SHOWN: [&str; 8] =
    ["word ", "**bold** ", "\n\n- item ", "`code` ", "[x](y) ", "\n\n", "> ", "a < b "];

proptest! {
    #[test]
    fn hidden_parts_never_stay(parts in prop::collection::vec(
        prop_oneof![prop::sample::select(&HIDDEN[..]), prop::sample::select(&SHOWN[..])], 0..12))
    {
        let text = parts.concat();
        let cleaned = cleaned(&text);
        // Inside of code, and of an image's alternative, the parts themselves are shown.
        let hides = Parser::new_ext(&cleaned.text, Options::all()).any(|event| match event {
            Event::Html(_) | Event::InlineHtml(_) => true,
            Event::Start(Tag::Link { title, .. } | Tag::Image { title, .. }) => !title.is_empty(),
            _ => false,
        });
        prop_assert!(!hides, "{text:?} became {:?}", cleaned.text);
        prop_assert_eq!(Parser::new(&cleaned.text).reference_definitions().iter().count(), 0);
        prop_assert_eq!(clean(&cleaned.text), (cleaned.text.clone(), 0), "nothing is left to remove");
        if !text.contains('`') && !text.contains("    ") {
            prop_assert!(!cleaned.text.contains("hush"), "{text:?} became {:?}", cleaned.text);
        }
    }

    #[test]
    fn any_text_is_cleaned_for_good(text in "[a-c<>!\\-\\[\\]\\(\\)\"'`&;:#x\\^\\* \n\u{200b}\u{e0041}]{0,60}") {
        let once = cleaned(&text).text;
        prop_assert_eq!(clean(&once), (once.clone(), 0), "{:?}", text);
    }
}

const COMMAND: &str = "/issuebox";

fn public(text: &str) -> String {
    let secrets = KnownSecrets::default();
    let rules = OutgoingRules { host: "github.com", command: COMMAND, secrets: &secrets };
    public_text(text, &rules).expect("it holds no secret").text
}

#[test]
fn what_an_agent_wrote_keeps_its_form_and_does_nothing() {
    for (text, expected) in [
        ("All *good*, **done**.", "All *good*, **done**."),
        ("# Done\n\n- one\n- two\n  1. three", "## Done\n\n- one\n\n- two\n\n  1. three"),
        ("thanks @octocat, see #12", "thanks `@octocat,` see `#12`"),
        ("Fixes #12", "`Fixes` `#12`"),
        ("fixes octo/hello#12 and GH-7", "`fixes` `octo/hello#12` and `GH-7`"),
        ("\\@octocat &#64;octocat", "`@octocat` `@octocat`"),
        ("@<b>octocat</b>", "`@octocat`"),
        ("/issuebox stop\nnow", "`/issuebox stop`\nnow"),
        ("see https://github.com/o/r/issues/1", "see `https://github.com/o/r/issues/1`"),
        ("[it](https://github.com/o/r/pull/1)", "it (`https://github.com/o/r/pull/1`)"),
        (
            "[it](https://github.com/o/r/blob/main/a.rs)",
            "[it](https://github.com/o/r/blob/main/a.rs)",
        ),
        ("[it](https://evil.org/x)", "it (`https://evil.org/x`)"),
        ("![shot](https://evil.org/x.png)", "shot"),
        ("<details>\nmore\n</details>", "more"),
        ("```rust\nfn a() {} // @x #1\n```", "```rust\nfn a() {} // @x #1\n```"),
        ("    indented @x", "```\nindented @x\n```"),
        ("a_b [x] < 1 | 2", "a\\_b \\[x\\] \\< 1 \\| 2"),
        ("> quoted @x", "> quoted `@x`"),
        ("at 0123456789abcdef", "at `0123456789abcdef`"),
    ] {
        assert_eq!(public(text), expected, "{text:?}");
    }
}

#[test]
fn a_long_text_is_cut_and_says_so() {
    for text in ["word ".repeat(2_000), "<".repeat(9_000), "@a ".repeat(3_000)] {
        let out = public(&text);
        assert!(out.chars().count() <= PUBLIC_TEXT_LEN_MAX);
        assert!(out.ends_with("… (cut)"), "{out}");
    }
    assert_eq!(public(&"a".repeat(PUBLIC_TEXT_LEN_MAX)), "a".repeat(PUBLIC_TEXT_LEN_MAX));
}

#[test]
fn a_secret_is_found_in_every_form() {
    let value = "hush~hush/Key+1";
    let known = KnownSecrets::new(&[Secret::new(value), Secret::new("short")]);
    let rules = OutgoingRules { host: "github.com", command: COMMAND, secrets: &known };
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let safe = base64::engine::general_purpose::URL_SAFE.encode(format!("~~?{value}"));
    let percent: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for form in [
        value.to_owned(),
        format!("in `{value}` code"),
        "hush~**hush**/Key+1".to_owned(),
        "hush~hush\n/Key+1".to_owned(),
        hex::encode(value),
        hex::encode_upper(value),
        percent,
        "hush~hush%2FKey%2B1".to_owned(),
        encode(value),
        encode(&format!("a{value}b")),
        encode(&format!("ab{value}cd")),
        safe,
    ] {
        assert_eq!(public_text(&form, &rules), Err(SecretFound), "{form}");
    }
    for fine in ["hush", "short", "hush hush Key"] {
        assert!(public_text(fine, &rules).is_ok(), "{fine}");
    }
    assert_eq!(format!("{known:?}"), "***");
}

#[test]
fn what_looks_like_a_key_is_redacted() {
    let token = format!("ghs_{}", "a1B2".repeat(10));
    for (text, expected) in [
        (format!("it is {token}."), "it is \\[redacted\\]"),
        (format!("`{token}`"), "`[redacted]`"),
        (token.replace('_', "&#95;"), "\\[redacted\\]"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----".to_owned(),
            "\\[redacted\\]",
        ),
        (format!("sk-ant-{}", "x".repeat(30)), "\\[redacted\\]"),
    ] {
        assert_eq!(public(&text), expected, "{text}");
        let secrets = KnownSecrets::default();
        let rules = OutgoingRules { host: "github.com", command: COMMAND, secrets: &secrets };
        assert!(public_text(&text, &rules).expect("published").is_redacted);
    }
}

/// What GitHub would act on: everything outside of code.
fn acting_words(markdown: &str) -> Vec<String> {
    let (mut words, mut run, mut in_code) = (Vec::new(), String::new(), false);
    for event in Parser::new_ext(markdown, Options::all()) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(pulldown_cmark::TagEnd::CodeBlock) => in_code = false,
            Event::Text(text) if !in_code => run.push_str(&text),
            Event::Html(html) | Event::InlineHtml(html) => words.push(format!("html {html}")),
            Event::Start(Tag::Image { dest_url, .. }) => words.push(format!("image {dest_url}")),
            Event::Start(Tag::Link { dest_url, .. })
                if !dest_url.starts_with("https://github.com/o/r/blob/") =>
            {
                words.push(format!("link {dest_url}"));
            }
            _ => words.push(std::mem::take(&mut run)),
        }
    }
    words.push(run);
    let acts = |text: &String| {
        let lower = text.to_lowercase();
        let any = ["@o", "#1", "gh-1", "://", "html ", "image ", "link "];
        any.iter().any(|part| lower.contains(part))
    };
    words.into_iter().filter(acts).collect()
}

const AGENT: [&str; 24] = [
    "@octocat",
    "@",
    "octocat ",
    "#1",
    "#",
    "1 ",
    "o/r#1 ",
    "GH-1 ",
    "fixes ",
    "Closes: ",
    "/issuebox stop",
    "\n",
    "\n\n",
    "`",
    "```",
    "**",
    "*",
    "<b>",
    "<!--",
    "-->",
    "\\",
    "    ",
    "[x](https://github.com/o/r/issues/1)",
    "![x](https://github.com/o/r/blob/x)",
];

proptest! {
    #[test]
    fn nothing_in_an_agents_text_acts(parts in prop::collection::vec(
        prop_oneof![
            3 => prop::sample::select(&AGENT[..]).prop_map(str::to_owned),
            1 => "[a-z@#<>&;:/\\[\\]\\(\\)!\\-\\+0-9\\. \t\u{200b}]{0,8}",
        ], 0..14))
    {
        let text = parts.concat();
        let out = public(&text);
        prop_assert_eq!(acting_words(&out), Vec::<String>::new(), "{:?} became {:?}", text, out);
        prop_assert_eq!(comment::find(COMMAND, &out), None, "{:?} became {:?}", text, out);
        let begins = |line: &str| line.trim_start().to_lowercase().starts_with(COMMAND);
        let fence = out.contains("```");
        prop_assert!(fence || !out.lines().any(begins), "{:?} became {:?}", text, out);
        prop_assert!(out.chars().count() <= PUBLIC_TEXT_LEN_MAX);
    }

    #[test]
    fn a_line_of_ours_with_words_of_others_does_nothing(text in "[a-z@#<>&;:/\\[\\]`*_!\\-0-9 \n]{0,40}") {
        let line = format!("- {}", plain(&text));
        prop_assert_eq!(acting_words(&line), Vec::<String>::new(), "{:?} became {:?}", text, line);
        prop_assert!(!line.contains('\n'));
    }
}
