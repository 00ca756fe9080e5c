//! Policies that differ by repository: each delivery is judged by that of its own.

use super::*;
use crate::github::policy::TriggerPolicies;
use crate::types::{PerRepository, PermissionLevel};

/// `press` has another label and command, and work in it is for maintainers. Elsewhere the label is
/// `agent`.
fn policies() -> TriggerPolicies {
    let usual = TriggerPolicy { permission: Some(PermissionLevel::Triage), ..policy() };
    let press = TriggerPolicy {
        label: "robot".into(),
        command: "/press".into(),
        permission: Some(PermissionLevel::Maintain),
        ..usual.clone()
    };
    let pattern = RepositoryPattern::parse("pear-garden/press").expect("a pattern");
    PerRepository::new(usual, vec![(pattern, press)])
}

fn read_by_all(name: &str, change: impl FnOnce(&mut Value)) -> Interpreted {
    let mut payload = payload(name);
    change(&mut payload);
    let event = fixtures::named(name).expect("a fixture").event();
    let (guid, body) = (DeliveryId::trusted("guid-1"), payload.to_string());
    interpret(&policies(), guid, received_at(), event, body.as_bytes()).expect("well formed")
}

/// The permission that a trigger needs, or why it is none.
fn needed(meant: Interpreted) -> Result<PermissionLevel, String> {
    match meant {
        Interpreted::IfPermitted(delivery) => Ok(delivery.level),
        Interpreted::Ignored { reason, .. } => Err(reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_label_and_its_permission_are_those_of_the_repository() {
    let another = || Err("another label than the trigger label was put on".to_owned());
    for (name, label, expected) in [
        ("issues.labeled.agent", "agent", Ok(PermissionLevel::Triage)),
        ("issues.labeled.agent", "robot", another()),
        ("issues.labeled.reports", "agent", another()),
        ("issues.labeled.reports", "Robot", Ok(PermissionLevel::Maintain)),
    ] {
        let meant = read_by_all(name, |payload| payload["label"]["name"] = label.into());
        assert_eq!(needed(meant), expected, "{name} {label}");
    }
}

#[test]
fn a_command_is_the_word_of_the_repository() {
    let in_press = |text: &str| {
        read_by_all("issue_comment.created.command", |payload| {
            payload["repository"]["full_name"] = "Pear-Garden/Press".into();
            payload["comment"]["body"] = text.into();
        })
    };
    assert_eq!(needed(in_press("/press")), Ok(PermissionLevel::Maintain));
    let Interpreted::Issue(plain) = in_press("/issuebox") else { panic!("it is activity") };
    assert_eq!(plain.effect, DeliveryEffect::Activity);
}

#[test]
fn after_a_transfer_the_label_is_that_of_where_the_issue_is_now() {
    for side in ["issues.transferred", "issues.opened.transferred"] {
        for (label, expected) in [("robot", true), ("agent", false)] {
            let Interpreted::Issue(delivery) = read_by_all(side, |payload| {
                let labels = json!([{"name": label}]);
                match side {
                    "issues.transferred" => payload["changes"]["new_issue"]["labels"] = labels,
                    _ => payload["issue"]["labels"] = labels,
                }
            }) else {
                panic!("it is followed")
            };
            assert_eq!(delivery.news.labelled, Some(expected), "{side} {label}");
        }
    }
}

#[test]
fn the_new_name_of_a_label_counts_where_it_is_the_trigger_label() {
    let renamed = |repository: &str, from: &str| {
        let body = json!({
            "action": "edited",
            "label": {"name": "other"},
            "changes": {"name": {"from": from}},
            "repository": {"id": 5, "full_name": repository},
        });
        let (guid, body) = (DeliveryId::trusted("guid-1"), body.to_string());
        interpret(&policies(), guid, received_at(), "label", body.as_bytes()).expect("well formed")
    };
    for (repository, from, counts) in [
        ("pear-garden/press", "robot", true),
        ("pear-garden/press", "agent", false),
        ("pear-garden/orchard", "agent", true),
        ("pear-garden/orchard", "robot", false),
    ] {
        let meant = renamed(repository, from);
        assert_eq!(matches!(meant, Interpreted::FanOut(_)), counts, "{repository}: {meant:?}");
    }
}
