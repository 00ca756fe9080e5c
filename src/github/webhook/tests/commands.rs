//! Commands in comments and in edited texts.

use super::*;
use crate::issue::Command;

const WORK: DeliveryEffect = DeliveryEffect::Trigger(TriggerKind::Command);
const EDITED_COMMENT: DeliveryEffect = DeliveryEffect::Trigger(TriggerKind::EditedComment);
const EDITED_ISSUE: DeliveryEffect = DeliveryEffect::Trigger(TriggerKind::EditedIssue);
const NO_COMMAND: &str = "the edit adds no command to the comment";

/// A comment with this text, by the collaborator who wrote the fixture's.
fn comment(policy: &TriggerPolicy, text: &str) -> Result<Interpreted, Malformed> {
    changed(policy, "issue_comment.created.command", |payload| {
        payload["comment"]["body"] = json!(text);
    })
}

/// The same comment, edited from one text to another.
fn comment_edit(from: Value, to: &str, change: fn(&mut Value)) -> Result<Interpreted, Malformed> {
    changed(&policy(), "issue_comment.edited", |payload| {
        payload["comment"]["body"] = json!(to);
        payload["changes"] = json!({"body": {"from": from}});
        change(payload);
    })
}

/// The text of an issue, edited from one to another.
fn issue_edit(from: Value, to: &str, change: fn(&mut Value)) -> Result<Interpreted, Malformed> {
    changed(&policy(), "issues.edited.title", |payload| {
        payload["issue"]["body"] = json!(to);
        payload["changes"] = json!({"body": {"from": from}});
        change(payload);
    })
}

#[test]
fn each_command_has_its_effect_and_counts_by_its_comment() {
    for (text, meant) in [
        ("/issuebox", WORK),
        ("/issuebox go on", WORK),
        ("/issuebox stop please", WORK),
        ("/issuebox stop", DeliveryEffect::Command(Command::Stop)),
        ("/issuebox start", DeliveryEffect::Command(Command::Start)),
        ("/issuebox retry", DeliveryEffect::Command(Command::Retry)),
        ("/issuebox delete", DeliveryEffect::Command(Command::Delete)),
        ("/issuebox status", DeliveryEffect::Status),
    ] {
        let issue_delivery = issue_delivery_of(comment(&policy(), text));
        assert_eq!(issue_delivery.effect, meant, "{text}");
        assert!(issue_delivery.comment.is_some(), "{text}");
    }
    let issue_delivery = issue_delivery_of(comment(&policy(), "I agree"));
    assert_eq!((issue_delivery.effect, issue_delivery.comment), (DeliveryEffect::Activity, None));
}

#[test]
fn only_who_may_trigger_commands() {
    for word in ["stop", "start", "retry", "delete", "status"] {
        let by = |change: fn(&mut Value)| {
            effect(changed(&policy(), "issue_comment.created.command", |payload| {
                payload["comment"]["body"] = json!(format!("/issuebox {word}"));
                change(payload);
            }))
        };
        assert!(by(|_payload| ()).is_ok(), "{word}");
        let stranger = by(|payload| payload["comment"]["author_association"] = json!("NONE"));
        assert_eq!(stranger, ignored(STRANGER), "{word}");
        let other = by(|payload| payload["sender"] = json!({"id": 5, "type": "User"}));
        assert_eq!(other, ignored(STRANGER), "{word}");
        let ourselves = by(|payload| {
            payload["sender"] = json!({"id": BOX, "type": "User"});
            payload["comment"]["user"] = payload["sender"].clone();
        });
        assert_eq!(ourselves, ignored(OURSELVES), "{word}");
    }
}

#[test]
fn an_edit_that_brings_a_command_counts_as_writing_it() {
    let edit = |from: Value, to: &str| effect(comment_edit(from, to, |_payload| ()));
    assert_eq!(edit(json!("Please"), "/issuebox go"), Ok(EDITED_COMMENT));
    assert_eq!(edit(Value::Null, "/issuebox go"), Ok(EDITED_COMMENT));
    assert_eq!(
        edit(json!("> /issuebox stop"), "/issuebox stop"),
        Ok(DeliveryEffect::Command(Command::Stop))
    );
    for (from, to) in [
        (json!("/issuebox go"), "/issuebox go on"),
        (json!("/issuebox go"), "/issuebox stop"),
        (json!("/issuebox go"), "never mind"),
        (json!("a"), "b"),
    ] {
        assert_eq!(edit(from.clone(), to), ignored(NO_COMMAND), "{from} {to}");
    }
    let as_created = issue_delivery_of(comment_edit(json!(""), "/issuebox go", |_payload| ()));
    assert_eq!(as_created.comment, Some(3_100_000_102), "so that it counts once, however it comes");
    let unsaid = comment_edit(json!(""), "/issuebox go", |payload| payload["changes"] = json!({}));
    assert_eq!(effect(unsaid), ignored(NO_COMMAND));
    let by_another = comment_edit(json!(""), "/issuebox go", |payload| {
        payload["sender"] = json!({"id": 5, "type": "User"});
    });
    assert_eq!(
        effect(by_another),
        ignored(STRANGER),
        "no one gives commands in another person's name"
    );
}

#[test]
fn an_issues_text_that_now_asks_for_work_triggers() {
    let edit = |from: Value, to: &str| {
        let issue_delivery = issue_delivery_of(issue_edit(from, to, |_payload| ()));
        assert_eq!(issue_delivery.comment, None);
        issue_delivery.effect
    };
    assert_eq!(edit(json!("It loops."), "It loops.\n/issuebox fix it"), EDITED_ISSUE);
    assert_eq!(edit(Value::Null, "/issuebox"), EDITED_ISSUE);
    assert_eq!(edit(json!("/issuebox stop"), "/issuebox fix it"), EDITED_ISSUE);
    assert_eq!(edit(json!("/issuebox fix it"), "/issuebox fix it soon"), DeliveryEffect::Update);
    assert_eq!(
        edit(json!("It loops."), "/issuebox stop"),
        DeliveryEffect::Update,
        "no comment, no command"
    );
    assert_eq!(edit(json!("/issuebox fix it"), "It loops."), DeliveryEffect::Update);
    let title_only = issue_edit(json!(""), "/issuebox fix it", |payload| {
        payload["changes"] = json!({"title": {"from": "x"}});
    });
    assert_eq!(effect(title_only), Ok(DeliveryEffect::Update));
}

#[test]
fn who_edits_an_issue_must_be_allowed_to_trigger() {
    let edited_by = |change| effect(issue_edit(json!(""), "/issuebox fix it", change));
    let author_as = |payload: &mut Value, association: &str| {
        payload["sender"] = payload["issue"]["user"].clone();
        payload["issue"]["author_association"] = json!(association);
    };
    assert_eq!(
        edited_by(|payload| payload["sender"] = json!({"id": 5, "type": "User"})),
        Ok(EDITED_ISSUE)
    );
    let unwelcome: [fn(&mut Value); 3] = [
        |payload| payload["sender"] = json!({"id": 5, "type": "Bot"}),
        |payload| payload["sender"] = json!({"id": BOX, "type": "User"}),
        |payload| payload["sender"] = Value::Null,
    ];
    for change in unwelcome {
        assert_eq!(
            edited_by(change),
            Ok(DeliveryEffect::Update),
            "what it says is a fact all the same"
        );
    }
    for (association, meant) in [("MEMBER", EDITED_ISSUE), ("NONE", DeliveryEffect::Update)] {
        let edited = changed(&policy(), "issues.edited.title", |payload| {
            payload["issue"]["body"] = json!("/issuebox fix it");
            payload["changes"] = json!({"body": {"from": ""}});
            author_as(payload, association);
        });
        assert_eq!(effect(edited), Ok(meant), "{association}");
    }
}

#[test]
fn a_nudge_names_the_installation_that_sent_it() {
    let issue_delivery = issue_delivery_of(comment(&policy(), "/issuebox"));
    assert_eq!(issue_delivery.installation, Some(58_200_017));
}

#[test]
fn a_comment_counts_as_of_when_it_said_so() {
    let at = |text| Timestamp::parse(text).expect("RFC 3339");
    let times = |payload: &mut Value| {
        payload["comment"]["created_at"] = json!("2026-03-02T10:00:00Z");
        payload["comment"]["updated_at"] = json!("2026-03-02T11:00:00Z");
        payload["issue"]["updated_at"] = json!("2026-03-02T12:00:00Z");
    };
    let created = issue_delivery_of(changed(&policy(), "issue_comment.created.stop", times));
    assert_eq!(created.acted_at, at("2026-03-02T10:00:00Z"));
    assert_eq!(created.news.as_of, at("2026-03-02T12:00:00Z"), "what it shows of the issue");
    let edited = comment_edit(json!(""), "/issuebox stop", |payload| {
        payload["comment"]["created_at"] = json!("2026-03-02T10:00:00Z");
        payload["comment"]["updated_at"] = json!("2026-03-02T11:00:00Z");
    });
    assert_eq!(issue_delivery_of(edited).acted_at, at("2026-03-02T11:00:00Z"));
    let without = changed(&policy(), "issue_comment.created.stop", |payload| {
        payload["issue"]["updated_at"] = json!("2026-03-02T12:00:00Z");
        payload["comment"]["created_at"] = Value::Null;
    });
    assert_eq!(issue_delivery_of(without).acted_at, at("2026-03-02T12:00:00Z"));
}

#[test]
fn a_time_more_than_five_minutes_ahead_counts_as_of_the_receipt() {
    for (claimed, counts) in [
        ("2026-03-02T20:05:00Z", "2026-03-02T20:05:00Z"),
        ("2026-03-02T20:05:01Z", "2026-03-02T20:00:00Z"),
        ("9999-12-31T23:59:59Z", "2026-03-02T20:00:00Z"),
        ("1999-12-31T23:59:59Z", "1999-12-31T23:59:59Z"),
    ] {
        let counts = Timestamp::parse(counts).expect("RFC 3339");
        let read =
            issue_delivery_of(changed(&policy(), "issue_comment.created.command", |payload| {
                payload["comment"]["created_at"] = json!(claimed);
                payload["comment"]["updated_at"] = json!(claimed);
                payload["issue"]["updated_at"] = json!(claimed);
            }));
        assert_eq!((read.acted_at, read.news.as_of), (counts, counts), "{claimed}");
        let words = read.instruction.expect("it is a trigger");
        assert_eq!(words.as_of, counts, "{claimed}");
    }
}
