//! Tables of comments and what they ask for.

use proptest::prelude::*;

use super::*;

fn find_default(text: &str) -> Option<Said> {
    find("/issuebox", text)
}

#[test]
fn a_line_that_begins_with_the_command_asks_for_work() {
    for text in [
        "/issuebox",
        "/issuebox fix the login page",
        "/issuebox\tfix",
        "/ISSUEBOX fix",
        "   /issuebox fix",
        "Hello,\r\n\r\n/issuebox fix it\r\nThanks",
        "> what about it?\n\n/issuebox fix",
        "> what about it?\n/issuebox fix",
        "```\ncode\n```\n/issuebox fix",
        "```foo``` is inline\n/issuebox fix",
        "~~~\n```\n~~~\n/issuebox fix",
        "- ```\n  code\n  ```\n\n/issuebox fix",
        "1. ```sh\n   code\n/issuebox fix",
        "<!-- hidden -->\n/issuebox fix",
        "/issuebox start with the login page",
        "/issuebox stop please",
        "/issuebox stop it",
        "/issuebox delete it now, please.",
        "/issuebox please stop",
        "/issuebox stop !",
        "/issuebox status?",
        "/issuebox stopped",
        "/issuebox delete the old migrations",
    ] {
        assert_eq!(find_default(text), Some(Said::Work), "{text:?}");
    }
}

#[test]
fn the_sandboxs_own_verbs_stand_alone() {
    for (text, verb) in [
        ("/issuebox stop", Management::Stop),
        ("/issuebox  Stop!", Management::Stop),
        ("/issuebox start", Management::Start),
        ("/issuebox retry.", Management::Retry),
        ("/issuebox DELETE  ", Management::Delete),
        ("/issuebox\tstop \t", Management::Stop),
        ("/issuebox stop!!\r\nplease", Management::Stop),
        ("please\n/issuebox status\nthanks", Management::Status),
        ("/issuebox stop\n/issuebox fix it", Management::Stop),
    ] {
        assert_eq!(find_default(text), Some(Said::Manage(verb)), "{text:?}");
    }
}

#[test]
fn quoted_shown_and_hidden_text_never_counts() {
    for text in [
        "",
        "please /issuebox fix",
        "/issueboxes",
        "/issuebox-2 fix",
        "\\/issuebox fix",
        "`/issuebox fix`",
        "> /issuebox fix",
        ">/issuebox fix",
        "   > /issuebox fix",
        "- /issuebox fix",
        "    /issuebox fix",
        "\t/issuebox fix",
        "  \t/issuebox fix",
        "```\n/issuebox fix\n```",
        "```sh\n/issuebox fix\n```",
        "````\n```\n/issuebox fix\n````",
        "~~~\n/issuebox fix\n~~~",
        "~~~\n```\n/issuebox fix",
        "```\n/issuebox fix",
        "   ```\n/issuebox fix\n   ```",
        "- ```\n  /issuebox fix\n  ```",
        "10. ```\n    /issuebox fix\n    ```",
        "```\n    ```\n/issuebox fix\n```",
        "<!--\n/issuebox fix\n-->",
        "<PRE>\n/issuebox fix\n</PRE>",
        "<blockquote>\n\n/issuebox fix\n</blockquote>",
    ] {
        assert_eq!(find_default(text), None, "{text:?}");
    }
}

#[test]
fn all_words_behind_the_command_are_for_the_agent() {
    for (text, words) in [
        ("/issuebox fix this", Some("fix this")),
        ("Hello\r\n\r\n  /ISSUEBOX\tfix\r\n\r\nthat\r\n", Some("fix\r\n\r\nthat")),
        ("/issuebox\nFix these:\n- a\n- b\n", Some("Fix these:\n- a\n- b")),
        ("/issuebox stop please", Some("stop please")),
        ("```\n/issuebox no\n```\n/issuebox ä\n/issuebox ö", Some("ä\n/issuebox ö")),
        ("/issuebox", None),
        ("/issuebox \n \n", None),
        ("/issuebox stop\nplease", None),
        ("fix this", None),
        ("> /issuebox fix this", None),
    ] {
        assert_eq!(text_behind("/issuebox", text), words, "{text:?}");
    }
}

#[test]
fn an_empty_command_word_turns_commands_off() {
    assert_eq!(find("", "anything"), None);
    assert_eq!(text_behind("", "anything"), None);
    assert_eq!(find("/agent", "/issuebox fix"), None);
    assert_eq!(find("/agent", "/agent fix"), Some(Said::Work));
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in "([ >`~\t-]|/issuebox|<!--|-->|1\\.|[a-zä]|\n){0,60}") {
        let said = find("/issuebox", &text);
        let words = text_behind("/issuebox", &text);
        prop_assert!(words.is_none() || said == Some(Said::Work), "{words:?}");
        let _other = find("ä", &text);
    }

    #[test]
    fn a_fence_around_any_lines_hides_them(lines in proptest::collection::vec("[a-z/ >-]{0,20}", 0..6)) {
        let text = format!("```\n/issuebox fix\n{}\n/issuebox fix", lines.join("\n"));
        prop_assert_eq!(find("/issuebox", &text), None);
    }
}
