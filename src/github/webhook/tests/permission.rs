//! With credentials for GitHub the right of triggers and commands is left open, and the payload's words
//! about people count for nothing.

use super::*;
use crate::github::policy::SAMPLE_REPOSITORY_ID;
use crate::issue::Command;
use crate::types::PermissionLevel;

fn asking() -> TriggerPolicy {
    TriggerPolicy { permission: Some(PermissionLevel::Write), opened: true, ..policy() }
}

/// Who is asked about, what is permitted then, and what otherwise.
fn asked(
    result: Result<Interpreted, Malformed>,
) -> Result<(u64, DeliveryEffect, Option<DeliveryEffect>), String> {
    match result {
        Ok(Interpreted::IfPermitted(delivery)) => {
            let ConditionalDelivery { asker, level: _, permitted, otherwise } = *delivery;
            Ok((asker.id, permitted.effect, otherwise))
        }
        other => Err(effect(other).map_or_else(|reason| reason, |effect| format!("{effect:?}"))),
    }
}

fn is_asked(name: &str, change: impl FnOnce(&mut Value)) -> bool {
    asked(changed(&asking(), name, change)).is_ok()
}

#[test]
fn every_trigger_and_command_is_asked_about_whatever_the_association() {
    for (name, permitted) in [
        ("issues.labeled.map", DeliveryEffect::Trigger(TriggerKind::Label)),
        ("issues.assigned", DeliveryEffect::Trigger(TriggerKind::Assigned)),
        ("issues.reopened.map", DeliveryEffect::Trigger(TriggerKind::Reopened)),
        ("issue_comment.created.command", DeliveryEffect::Trigger(TriggerKind::Command)),
        ("issue_comment.created.stop", DeliveryEffect::Command(Command::Stop)),
    ] {
        for association in ["OWNER", "CONTRIBUTOR", "NONE"] {
            let result = changed(&asking(), name, |payload| {
                payload["issue"]["author_association"] = json!(association);
                if payload.get("comment").is_some() {
                    payload["comment"]["author_association"] = json!(association);
                }
            });
            let sender = payload(name)["sender"]["id"].as_u64().expect("an id");
            assert_eq!(asked(result), Ok((sender, permitted.clone(), None)), "{name}");
        }
    }
}

#[test]
fn an_edit_that_asks_for_work_is_news_without_the_permission() {
    let edited = changed(&asking(), "issues.edited.title", |payload| {
        payload["issue"]["body"] = json!("/issuebox");
        payload["changes"] = json!({"body": {"from": "before"}});
    });
    let (_, permitted, otherwise) = asked(edited).expect("asked");
    assert_eq!(permitted, DeliveryEffect::Trigger(TriggerKind::EditedIssue));
    assert_eq!(otherwise, Some(DeliveryEffect::Update));
}

#[test]
fn facts_are_never_asked_about() {
    for (name, fact) in [
        ("issues.closed.map", DeliveryEffect::Stop("the issue was closed")),
        ("issues.unlabeled.umlauts", DeliveryEffect::Stop("the trigger label was taken off")),
        ("issues.unassigned", DeliveryEffect::Stop("the bot was unassigned")),
        ("issues.deleted.reports", DeliveryEffect::Delete),
        ("issues.edited.title", DeliveryEffect::Update),
        ("issue_comment.created.plain", DeliveryEffect::Activity),
    ] {
        assert_eq!(effect(changed(&asking(), name, |_payload| ())), Ok(fact), "{name}");
    }
}

#[test]
fn who_cannot_have_the_permission_is_not_asked_about() {
    let command = "issue_comment.created.command";
    assert!(is_asked(command, |_payload| ()));
    // A bot by its kind, one that calls itself a user, and a user without a name.
    assert!(!is_asked("issue_comment.created.bot", |_payload| ()));
    for sender in [
        json!({"id": 9, "login": "x[bot]", "type": "User"}),
        json!({"id": 9, "login": "x", "type": "Bot"}),
        json!({"id": 9, "type": "User"}),
        json!({"login": "mona", "type": "User"}),
        Value::Null,
    ] {
        let of_sender = |payload: &mut Value| {
            payload["sender"] = sender.clone();
            payload["comment"]["user"] = sender.clone();
        };
        let refused = effect(changed(&asking(), command, of_sender));
        assert_eq!(refused, ignored(STRANGER), "{sender}");
    }
    // A person who edits or sends the comment of another.
    let forged = |payload: &mut Value| {
        payload["sender"] = json!({"id": 5, "login": "other", "type": "User"});
    };
    assert_eq!(effect(changed(&asking(), command, forged)), ignored(STRANGER));
    let ourselves = |payload: &mut Value| payload["sender"]["id"] = json!(BOX);
    assert_eq!(effect(changed(&asking(), "issues.labeled.map", ourselves)), ignored(OURSELVES));
}

#[test]
fn a_configured_bot_and_the_sample_need_no_question() {
    let ripe = 71_000_177;
    let with_bot = TriggerPolicy { bots: vec![ripe], ..asking() };
    let command = changed(&with_bot, "issue_comment.created.bot", |_payload| ());
    assert_eq!(effect(command), trigger(TriggerKind::Command));
    let sample = |payload: &mut Value| payload["repository"]["id"] = json!(SAMPLE_REPOSITORY_ID);
    let sample = changed(&asking(), "issues.labeled.map", sample);
    assert_eq!(effect(sample), trigger(TriggerKind::Label));
}
