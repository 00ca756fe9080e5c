//! The words for the agent: what a trigger brings, from whom, and what brings none.

use super::*;
use crate::issue::instruction::{
    GithubUser, Instruction, InstructionSource, TEXT_BYTES_MAX, TRUNCATED,
};

fn instruction_of(result: Result<Interpreted, Malformed>) -> Option<Instruction> {
    issue_delivery_of(result).instruction
}

/// The words of a comment with this text.
fn commented(text: &str) -> Option<Instruction> {
    instruction_of(changed(&policy(), "issue_comment.created.command", |payload| {
        payload["comment"]["body"] = json!(text);
    }))
}

fn person(id: u64, login: &str) -> Option<GithubUser> {
    Some(GithubUser { id, login: login.into() })
}

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).expect("RFC 3339")
}

#[test]
fn a_command_brings_the_words_behind_it_with_author_and_time() {
    let brought = instruction_of(changed(&policy(), "issue_comment.created.command", |payload| {
        payload["comment"]["body"] = json!("Thanks!\r\n/issuebox fix this\r\n\r\nand that\r\n");
        payload["comment"]["updated_at"] = json!("2026-03-02T10:00:00Z");
    }));
    let expected = Instruction {
        source: InstructionSource::Comment(3_100_000_102),
        author: person(71_000_102, "tomas-grell"),
        sender: person(71_000_102, "tomas-grell"),
        as_of: at("2026-03-02T10:00:00Z"),
        title: None,
        text: "fix this\r\n\r\nand that".into(),
    };
    assert_eq!(brought, Some(expected));
}

#[test]
fn a_label_brings_the_issues_title_and_body_with_its_author_and_who_labelled() {
    let brought = instruction_of(changed(&policy(), "issues.labeled.agent", |payload| {
        payload["issue"]["user"] = json!({"id": 7, "login": "reporter"});
        payload["issue"]["body"] = json!("Steps: none");
    }));
    let expected = Instruction {
        source: InstructionSource::Issue,
        author: person(7, "reporter"),
        sender: person(71_000_101, "mira-holt"),
        as_of: at("2026-03-02T09:14:05Z"),
        title: Some("Sign-in loops after a password reset".into()),
        text: "Steps: none".into(),
    };
    assert_eq!(brought, Some(expected));
}

#[test]
fn a_command_without_words_brings_the_issue_itself() {
    for text in ["/issuebox", "/issuebox \r\n\r\n"] {
        let brought = commented(text).expect("it is a trigger");
        assert_eq!(brought.source, InstructionSource::Issue, "{text:?}");
        assert_eq!(brought.title.as_deref(), Some("Export the harvest as CSV"), "{text:?}");
    }
}

#[test]
fn what_is_no_trigger_brings_no_words() {
    for text in ["/issuebox stop", "/issuebox status", "I agree"] {
        assert_eq!(commented(text), None, "{text:?}");
    }
    for name in ["issues.closed.map", "issues.edited.title", "issues.opened.transferred"] {
        assert_eq!(instruction_of(changed(&policy(), name, |_payload| ())), None, "{name}");
    }
}

#[test]
fn what_github_leaves_out_is_left_out() {
    let brought = instruction_of(changed(&policy(), "issues.labeled.agent", |payload| {
        payload["issue"]["user"] = Value::Null;
        payload["issue"]["body"] = Value::Null;
        payload["issue"]["title"] = Value::Null;
        payload["issue"]["updated_at"] = Value::Null;
        payload["sender"]["login"] = json!(format!("a\u{7}{}", "b".repeat(1_000)));
    }));
    let brought = brought.expect("it is a trigger");
    assert_eq!((brought.author, brought.text.as_str()), (None, ""));
    assert_eq!((brought.title.as_deref(), brought.as_of), (Some(""), received_at()));
    let login = brought.sender.expect("it has an id").login;
    assert_eq!(login, format!("a{}", "b".repeat(99)), "bounded, without control characters");
}

#[test]
fn a_long_text_is_bounded() {
    let long = "ä".repeat(TEXT_BYTES_MAX);
    for brought in [
        commented(&format!("/issuebox {long}")),
        instruction_of(changed(&policy(), "issues.labeled.agent", |payload| {
            payload["issue"]["body"] = json!(long);
        })),
    ] {
        let text = brought.expect("it is a trigger").text;
        assert!(text.len() <= TEXT_BYTES_MAX && text.ends_with(TRUNCATED), "{}", text.len());
    }
}
