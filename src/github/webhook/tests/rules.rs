//! Rules of triggers and tolerance, one by one, each on a changed fixture.

use super::*;

#[test]
fn an_author_triggers_by_association() {
    let policy = TriggerPolicy { opened: true, ..policy() };
    let opened_as = |association: Value| {
        effect(changed(&policy, "issues.opened.with-label", |payload| {
            payload["issue"]["author_association"] = association;
        }))
    };
    for word in ["OWNER", "MEMBER", "COLLABORATOR"] {
        assert_eq!(opened_as(json!(word)), trigger(TriggerKind::Opened));
    }
    for word in ["CONTRIBUTOR", "FIRST_TIME_CONTRIBUTOR", "NONE", "owner", ""] {
        assert_eq!(opened_as(json!(word)), ignored(STRANGER), "{word:?}");
    }
    assert_eq!(opened_as(Value::Null), ignored(STRANGER));
}

#[test]
fn a_label_by_the_author_needs_the_association_too() {
    // An issue template puts labels on for authors who could not.
    let labelled = changed(&policy(), "issues.labeled.agent", |payload| {
        payload["issue"]["author_association"] = json!("NONE");
    });
    assert_eq!(effect(labelled), ignored(STRANGER));
}

#[test]
fn somebody_else_needed_triage_rights_to_label() {
    let by = |sender: Value| {
        effect(changed(&policy(), "issues.labeled.reports", |payload| payload["sender"] = sender))
    };
    assert_eq!(by(json!({"id": 5, "type": "User"})), trigger(TriggerKind::Label));
    for sender in [
        json!(null),
        json!({"login": "ghost"}),
        json!({"id": 5}),
        json!({"id": 5, "type": "Bot", "login": "mira-holt"}),
        json!({"id": 5, "type": "Organization"}),
    ] {
        assert_eq!(by(sender.clone()), ignored(STRANGER), "{sender}");
    }
}

#[test]
fn opening_is_no_act_of_triage() {
    let policy = TriggerPolicy { opened: true, ..policy() };
    let opened = changed(&policy, "issues.opened.with-label", |payload| {
        payload["sender"] = json!({"id": 5, "type": "User"});
    });
    assert_eq!(effect(opened), ignored(STRANGER));
}

#[test]
fn bots_trigger_by_configured_id_alone() {
    let ripe = 71_000_177;
    let command = |policy: &TriggerPolicy| {
        effect(changed(policy, "issue_comment.created.bot", |_payload| ()))
    };
    assert_eq!(command(&policy()), ignored(STRANGER));
    let with_bot = TriggerPolicy { bots: vec![ripe], ..policy() };
    assert_eq!(command(&with_bot), trigger(TriggerKind::Command));
}

#[test]
fn our_own_account_never_triggers_but_its_facts_apply() {
    let as_us = |payload: &mut Value| {
        payload["sender"] = json!({"id": BOX, "type": "User"});
        if payload.get("comment").is_some() {
            payload["comment"]["user"] = payload["sender"].clone();
        }
    };
    // Not even when it is listed among the bots.
    let policy = TriggerPolicy { bots: vec![BOX], ..policy() };
    for name in ["issues.labeled.map", "issues.reopened.map", "issue_comment.created.command"] {
        assert_eq!(effect(changed(&policy, name, as_us)), ignored(OURSELVES), "{name}");
    }
    assert_eq!(
        effect(changed(&policy, "issues.closed.map", as_us)),
        Ok(DeliveryEffect::Stop("the issue was closed"))
    );
}

#[test]
fn facts_apply_whoever_made_them() {
    for (name, fact) in [
        ("issues.closed.map", DeliveryEffect::Stop("the issue was closed")),
        ("issues.unlabeled.umlauts", DeliveryEffect::Stop("the trigger label was taken off")),
        ("issues.unassigned", DeliveryEffect::Stop("the bot was unassigned")),
        ("issues.deleted.reports", DeliveryEffect::Delete),
        ("issues.edited.title", DeliveryEffect::Update),
    ] {
        let by_nobody = changed(&policy(), name, |payload| payload["sender"] = Value::Null);
        assert_eq!(effect(by_nobody), Ok(fact), "{name}");
    }
}

#[test]
fn a_comments_author_must_be_the_sender() {
    let forged = changed(&policy(), "issue_comment.created.command", |payload| {
        payload["sender"] = json!({"id": 5, "type": "User"});
    });
    assert_eq!(effect(forged), ignored(STRANGER));
}

#[test]
fn only_configured_repositories_count() {
    let policy = TriggerPolicy { repositories: patterns(&["Pear-Garden/press"]), ..policy() };
    assert_eq!(
        effect(changed(&policy, "issues.labeled.reports", |_payload| ())),
        trigger(TriggerKind::Label)
    );
    for name in ["issues.labeled.map", "issues.closed.map", "issue_comment.created.command"] {
        assert_eq!(
            effect(changed(&policy, name, |_payload| ())),
            ignored("the repository pear-garden/orchard does not match the configured ones"),
            "{name}"
        );
    }
}

#[test]
fn each_trigger_can_be_turned_off() {
    let off = TriggerPolicy {
        label: String::new(),
        command: String::new(),
        assignee: 0,
        bot_user_id: 0.into(),
        ..policy()
    };
    for (name, meant) in [
        ("issues.labeled.map", ignored("another label than the trigger label was put on")),
        ("issues.unlabeled.umlauts", ignored("another label than the trigger label was taken off")),
        ("issues.assigned", ignored("the assignee is not the configured bot")),
        ("issues.opened.with-label", Ok(DeliveryEffect::Update)),
        ("issue_comment.created.command", Ok(DeliveryEffect::Activity)),
    ] {
        assert_eq!(effect(changed(&off, name, |_payload| ())), meant, "{name}");
    }
    let nameless =
        changed(&off, "issues.labeled.map", |payload| payload["label"]["name"] = json!(""));
    assert!(effect(nameless).is_err(), "an empty label is not the trigger that is off");
    assert_eq!(news_of(changed(&off, "issues.closed.map", |_payload| ())).labelled, None);
}

#[test]
fn unlabelling_that_does_not_stop_is_still_known() {
    let policy = TriggerPolicy { unlabel_stops: false, ..policy() };
    let unlabelled = || changed(&policy, "issues.unlabeled.umlauts", |_payload| ());
    assert_eq!(effect(unlabelled()), Ok(DeliveryEffect::Update));
    assert_eq!(news_of(unlabelled()).labelled, Some(false));
}

#[test]
fn the_events_own_label_counts_more_than_the_list() {
    let on = changed(&policy(), "issues.labeled.map", |payload| {
        payload["issue"]["labels"] = json!([]);
    });
    assert_eq!(news_of(on).labelled, Some(true));
    let off = changed(&policy(), "issues.unlabeled.umlauts", |payload| {
        payload["issue"]["labels"] = json!([{"name": "agent"}]);
    });
    assert_eq!(news_of(off).labelled, Some(false));
    let unknown = changed(&policy(), "issues.closed.map", |payload| {
        payload["issue"]["labels"] = Value::Null;
    });
    assert_eq!(news_of(unknown).labelled, None);
}

#[test]
fn the_action_says_what_the_state_does_not() {
    for (name, open) in [("issues.closed.map", false), ("issues.reopened.map", true)] {
        let news = news_of(changed(&policy(), name, |payload| {
            payload["issue"]["state"] = Value::Null;
            payload["issue"]["updated_at"] = json!("soon");
        }));
        assert_eq!(news.open, Some(open), "{name}");
        assert_eq!(news.as_of, received_at(), "{name}");
    }
}

#[test]
fn a_link_that_is_no_web_address_is_left_out() {
    let news = news_of(changed(&policy(), "issues.closed.map", |payload| {
        payload["issue"]["html_url"] = json!("javascript:alert(1)");
    }));
    assert_eq!(news.url, None);
}

#[test]
fn whatever_may_be_null_or_absent_may_be() {
    let nullable = [
        "/issue/body",
        "/issue/user",
        "/issue/assignee",
        "/issue/assignees/0",
        "/issue/performed_via_github_app",
        "/issue/labels",
        "/issue/labels/0",
        "/issue/locked",
        "/issue/state",
        "/issue/state_reason",
        "/issue/title",
        "/issue/html_url",
        "/issue/updated_at",
        "/installation",
        "/installation/id",
        "/organization",
        "/repositories",
        "/repositories/0",
        "/repositories/0/full_name",
        "/label",
        "/comment/user",
        "/comment/body",
        "/comment/id",
        "/assignee",
        "/changes",
        "/changes/body",
        "/changes/body/from",
        "/changes/repository",
        "/changes/repository/name",
        "/changes/repository/name/from",
        "/changes/old_issue",
        "/changes/old_issue/id",
        "/changes/old_repository",
        "/changes/old_repository/full_name",
        "/changes/new_issue",
        "/changes/new_issue/number",
        "/changes/new_issue/labels",
        "/changes/new_repository",
        "/changes/new_repository/id",
        "/sender",
    ];
    for fixture in fixtures::ALL {
        for pointer in nullable {
            let mut payload = payload(fixture.name);
            let Some(value) = payload.pointer_mut(pointer) else { continue };
            *value = Value::Null;
            let with_null = read(&policy(), fixture.event(), payload.to_string().as_bytes());
            assert!(with_null.is_ok(), "{} with null at {pointer}: {with_null:?}", fixture.name);
            let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
            let Some(Value::Object(fields)) = payload.pointer_mut(parent) else { continue };
            fields.remove(field);
            let without = read(&policy(), fixture.event(), payload.to_string().as_bytes());
            assert!(without.is_ok(), "{} without {pointer}: {without:?}", fixture.name);
        }
    }
}

#[test]
fn what_identifies_the_issue_must_be_there() {
    for field in [
        "/issue",
        "/issue/id",
        "/issue/number",
        "/repository",
        "/repository/id",
        "/repository/full_name",
    ] {
        let broken = changed(&policy(), "issues.labeled.map", |payload| {
            *payload.pointer_mut(field).expect("a field") = Value::Null;
        });
        let name = field[1..].replace('/', ".");
        let expected = format!("the payload cannot be read: {name} is missing");
        assert_eq!(effect(broken), Err(expected));
    }
    let broken = changed(&policy(), "issues.labeled.map", |payload| {
        payload["repository"]["full_name"] = json!("../etc");
    });
    assert!(broken.is_err());
}

#[test]
fn new_events_and_actions_are_acknowledged_whatever_their_shape() {
    for (event, body) in [
        ("issues", r#"{"action":"typed","issue":"none of what we know"}"#),
        ("issues", r#"{"action":null}"#),
        ("issues", "{}"),
        ("issue_comment", r#"{"action":"hidden","comment":7}"#),
        ("sub_issues", r#"{"action":"sub_issue_added","issue":7}"#),
        ("repository", r#"{"action":"created","repository":7}"#),
        ("label", r#"{"action":"deleted","changes":7}"#),
        ("installation", r#"{"action":"archived","repositories":7}"#),
        ("installation_repositories", "{}"),
        ("never_heard_of_v2", r#" {"a":[1]}"#),
        ("ping", r#"{"zen":"x"}"#),
    ] {
        let meant = read(&policy(), event, body.as_bytes());
        assert!(matches!(meant, Ok(Interpreted::Ignored { .. })), "{event} {body}: {meant:?}");
    }
}

#[test]
fn an_unknown_action_is_shown_bounded_and_inert() {
    let body = json!({"action": format!("\u{1b}[2J\n{}", "x".repeat(1000))}).to_string();
    let Ok(Interpreted::Ignored { action, reason }) = read(&policy(), "issues", body.as_bytes())
    else {
        panic!("it must be ignored");
    };
    assert!(action.len() == 64 && action.starts_with("[2Jx"), "{action}");
    assert!(reason.len() < 100, "{reason}");
}

#[test]
fn what_is_no_json_object_is_malformed() {
    for (event, body) in [
        ("issues", ""),
        ("issues", "[]"),
        ("issues", "null"),
        ("issues", "{"),
        ("ping", "{]"),
        ("issues", r#"{"action":"closed","issue":{"id":-1}}"#),
        ("issues", "{\"action\":\"\u{1}\"}"),
        ("ISSUES", "{}"),
        ("", "{}"),
    ] {
        let meant = read(&policy(), event, body.as_bytes());
        assert!(meant.is_err(), "{event:?} {body:?}: {meant:?}");
    }
    let meant = read(&policy(), "issues", b"{\"action\":\"\xff\"}");
    assert!(meant.is_err(), "{meant:?}");
}

#[test]
fn deep_nesting_is_a_clear_error_or_skipped() {
    let deep = |len: usize| format!("{}{}", "[".repeat(len), "]".repeat(len));
    // In a part that is read, the parser's own bound ends it.
    let body = format!(r#"{{"action":{}}}"#, deep(200));
    assert!(read(&policy(), "issues", body.as_bytes()).is_err());
    // In a part that is skipped, depth costs no stack.
    for len in [200, 1_000_000] {
        let body = format!(r#"{{"action":"pinned","x":{}}}"#, deep(len));
        let meant = read(&policy(), "issues", body.as_bytes());
        assert!(matches!(meant, Ok(Interpreted::Ignored { .. })), "{len}");
    }
}

#[test]
fn a_label_is_compared_without_regard_to_case() {
    let policy = TriggerPolicy { label: "Ägent".into(), ..policy() };
    let labelled = changed(&policy, "issues.labeled.map", |payload| {
        payload["label"]["name"] = json!("äGENT");
    });
    assert_eq!(effect(labelled), trigger(TriggerKind::Label));
}
