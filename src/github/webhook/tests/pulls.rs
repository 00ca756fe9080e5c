//! Reviews, comments on pull requests, and checks.

use super::*;
use crate::issue::Command;
use crate::issue::instruction::InstructionSource;
use crate::types::PermissionLevel;

const SHA: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b";

fn connected() -> TriggerPolicy {
    TriggerPolicy {
        permission: Some(PermissionLevel::Write),
        on_ci_failure: CiFailureMode::Fix,
        ..policy()
    }
}

fn mona() -> Value {
    json!({"id": 7, "login": "mona", "type": "User"})
}

fn with(mut payload: Value, action: &str) -> Value {
    payload["action"] = json!(action);
    payload["repository"] = json!({"id": 5, "full_name": "octo/hello"});
    payload["installation"] = json!({"id": 9});
    if payload["sender"].is_null() {
        payload["sender"] = mona();
    }
    payload
}

fn review(state: &str, body: &str) -> Value {
    with(
        json!({
            "review": {"id": 31, "user": mona(), "body": body, "state": state,
                "submitted_at": "2026-03-02T10:00:00Z", "author_association": "NONE"},
            "pull_request": {"number": 14},
        }),
        "submitted",
    )
}

fn check(conclusion: &str, output: &Value) -> Value {
    with(
        json!({"check_run": {"id": 51, "name": "build", "head_sha": SHA, "conclusion": conclusion,
            "completed_at": "2026-03-02T10:00:00Z", "output": output}}),
        "completed",
    )
}

fn comment(body: &str) -> Value {
    with(
        json!({
            "issue": {"id": 77, "number": 14, "state": "open", "body": "Fixes #12",
                "pull_request": {}},
            "comment": {"id": 41, "user": mona(), "body": body,
                "created_at": "2026-03-02T10:00:00Z", "author_association": "NONE"},
        }),
        "created",
    )
}

fn of(policy: &TriggerPolicy, event: &str, payload: &Value) -> Result<Interpreted, Malformed> {
    read(policy, event, payload.to_string().as_bytes())
}

/// The delivery on the issue, where the pull request is one of ours, and who must have the permission.
fn on_issue(meant: Result<Interpreted, Malformed>) -> Result<(IssueDelivery, Option<u64>), String> {
    let mut facts = crate::issue::Facts::new(crate::types::IssueId::from_github(120));
    (facts.repository, facts.repository_id) = (Some(Repository::trusted("octo/hello")), Some(5));
    facts.number = Some(crate::types::IssueNumber(12));
    match meant {
        Ok(Interpreted::OnPull(delivery)) => match delivery.on(&facts) {
            Some(Interpreted::Issue(delivery)) => Ok((*delivery, None)),
            Some(Interpreted::IfPermitted(it)) => Ok((it.permitted, Some(it.asker.id))),
            other => panic!("{other:?}"),
        },
        Ok(Interpreted::Ignored { reason, .. }) => Err(reason),
        other => panic!("{other:?}"),
    }
}

fn said() -> DeliveryEffect {
    DeliveryEffect::FollowUp { failed_commit: None }
}

#[test]
fn a_review_is_for_the_agent_if_its_author_may() {
    for (state, body, text) in [
        ("commented", "A word.", "A word."),
        ("changes_requested", "", "The review requests changes."),
        ("CHANGES_REQUESTED", "No.", "The review requests changes.\n\nNo."),
        ("approved", "Fine.", "The review approves.\n\nFine."),
        ("approved", "", ""),
    ] {
        let meant = of(&connected(), "pull_request_review", &review(state, body));
        let (delivery, asked) = on_issue(meant).expect("it is for the agent");
        assert_eq!((delivery.effect, asked), (said(), Some(7)));
        let words = delivery.instruction.expect("words");
        assert_eq!(words.source, InstructionSource::Review { id: 31, pull: 14 });
        assert_eq!(words.text, text);
        assert_eq!(delivery.news.number.0, 12, "it counts for the issue");
        assert_eq!((delivery.news.open, delivery.news.title.as_str()), (None, ""));
    }
}

#[test]
fn who_cannot_have_the_permission_says_nothing() {
    for sender in [
        json!({"id": 9, "login": "x[bot]", "type": "Bot"}),
        json!({"id": 8, "login": "other", "type": "User"}),
    ] {
        let mut forged = review("commented", "A word.");
        forged["sender"] = sender;
        let meant = on_issue(of(&connected(), "pull_request_review", &forged));
        assert_eq!(meant.expect_err("refused"), STRANGER);
    }
    let mut own = review("commented", "A word.");
    own["sender"] = json!({"id": BOX, "login": "box[bot]", "type": "Bot"});
    own["review"]["user"] = own["sender"].clone();
    let meant = on_issue(of(&connected(), "pull_request_review", &own));
    assert_eq!(meant.expect_err("refused"), OURSELVES);
}

#[test]
fn commands_on_a_pull_request_count_for_its_issue() {
    let all = TriggerPolicy { follow_up: FollowUpMode::All, ..connected() };
    for (policy, text, expected) in [
        (
            connected(),
            "/issuebox fix it",
            Ok((trigger(TriggerKind::Command).expect("one"), Some("fix it"))),
        ),
        (connected(), "/issuebox", Ok((trigger(TriggerKind::Command).expect("one"), None))),
        (connected(), "/issuebox stop", Ok((DeliveryEffect::Command(Command::Stop), None))),
        (connected(), "/issuebox status", Ok((DeliveryEffect::Status, None))),
        (connected(), "Well done.", Err("it concerns a pull request")),
        (all.clone(), "Well done.", Ok((said(), Some("Well done.")))),
        (all, "/issuebox stop", Ok((DeliveryEffect::Command(Command::Stop), None))),
    ] {
        let meant = on_issue(of(&policy, "issue_comment", &comment(text)));
        let meant = meant.map(|(delivery, asked)| {
            assert_eq!(asked, Some(7), "{text}: the permission is asked");
            (delivery.effect, delivery.instruction.map(|words| words.text))
        });
        let expected = expected
            .map(|(effect, words)| (effect, words.map(str::to_owned)))
            .map_err(str::to_owned);
        assert_eq!(meant, expected, "{text}");
    }
    let without = TriggerPolicy { permission: None, ..connected() };
    let meant = effect(of(&without, "issue_comment", &comment("/issuebox fix it")));
    assert_eq!(meant, ignored("it concerns a pull request"));
}

#[test]
fn comments_on_the_issue_are_for_the_agent_if_all_are() {
    let all = TriggerPolicy { follow_up: FollowUpMode::All, ..connected() };
    let mut plain = comment("Well done.");
    plain["issue"]["pull_request"] = Value::Null;
    let asked = |payload: &Value| match of(&all, "issue_comment", payload) {
        Ok(Interpreted::IfPermitted(it)) => (it.permitted.effect, it.otherwise),
        other => panic!("{other:?}"),
    };
    assert_eq!(asked(&plain), (said(), None));
    plain["comment"]["author_association"] = json!("MEMBER");
    assert_eq!(asked(&plain), (said(), Some(DeliveryEffect::Activity)));
    let only_commands = of(&connected(), "issue_comment", &plain);
    assert_eq!(effect(only_commands), Ok(DeliveryEffect::Activity));
}

#[test]
fn failed_checks_are_for_the_agent_if_that_is_wanted() {
    let lines: Vec<String> = (1..=120).map(|line| format!("line {line}")).collect();
    let output = json!({"title": "2 errors<!-- hush -->", "summary": "It does not build.",
        "text": format!("<!--\n{}\n-->\n{}", lines.join("\n"), lines.join("\n"))});
    let meant = of(&connected(), "check_run", &check("failure", &output));
    let (delivery, asked) = on_issue(meant).expect("it is for the agent");
    assert_eq!(asked, None);
    let failed = DeliveryEffect::FollowUp { failed_commit: Some(SHA.to_owned()) };
    assert_eq!(delivery.effect, failed);
    let words = delivery.instruction.expect("words");
    assert_eq!(
        (words.source, words.title.as_deref()),
        (InstructionSource::Check(51), Some("build"))
    );
    let begin = format!(
        "The check failed on commit {SHA}.\n\n2 errors\n\nIt does not build.\n\nThe last 100 of 120 \
         lines of its output:\n\nline 21\nline 22\n"
    );
    assert!(words.text.starts_with(&begin) && words.text.ends_with("\nline 120"), "{}", words.text);
    let timed_out = of(&connected(), "check_run", &check("timed_out", &Value::Null));
    let (delivery, _) = on_issue(timed_out).expect("it is for the agent");
    let text = delivery.instruction.expect("words").text;
    assert_eq!(text, format!("The check timed out on commit {SHA}."));
    for conclusion in ["success", "neutral", "cancelled", "skipped", "action_required", "stale"] {
        let meant = on_issue(of(&connected(), "check_run", &check(conclusion, &output)));
        assert_eq!(meant.expect_err(conclusion), "the check did not fail");
    }
    let unwanted = TriggerPolicy { on_ci_failure: CiFailureMode::Ignore, ..connected() };
    let meant = on_issue(of(&unwanted, "check_run", &check("failure", &output)));
    assert_eq!(meant.expect_err("ignored"), "github.on_ci_failure is \"ignore\"");
}

#[test]
fn what_is_no_submitted_review_and_no_completed_check_has_no_effect() {
    for (event, action, reason) in [
        ("pull_request_review", "dismissed", "pull_request_review dismissed has no effect"),
        ("pull_request_review", "edited", "pull_request_review edited has no effect"),
        ("pull_request_review_comment", "created", "the review that it belongs to brings it"),
        ("check_run", "created", "check_run created has no effect"),
    ] {
        let meant = effect(of(&connected(), event, &with(json!({}), action)));
        assert_eq!(meant, ignored(reason));
    }
    let meant = of(&connected(), "pull_request_review", &with(json!({}), "submitted"));
    assert_eq!(
        meant.expect_err("malformed").to_string(),
        "the payload cannot be read: review is missing"
    );
    assert_eq!(can_have_effect("pull_request_review", "submitted"), Ok(()));
    assert!(can_have_effect("pull_request_review", "edited").is_err());
}
