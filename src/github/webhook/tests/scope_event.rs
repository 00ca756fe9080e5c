//! What happens around issues: to repositories, labels and installations.

use super::*;
use crate::issue::{Scope, ScopeEvent};

const HERE: u64 = 810_200_301;
const INSTALLATION: u64 = 58_200_017;

/// What a delivery means for which issues, or why for none.
fn scope_event(
    policy: &TriggerPolicy,
    event: &str,
    body: &Value,
) -> Result<(Scope, ScopeEvent), String> {
    match read(policy, event, body.to_string().as_bytes()) {
        Ok(Interpreted::FanOut(fan_out)) => {
            assert_eq!(fan_out.event, event);
            assert_eq!(fan_out.action, body["action"].as_str().unwrap_or_default());
            Ok((fan_out.scope, fan_out.news))
        }
        Ok(Interpreted::Issue(issue_delivery)) => {
            panic!("it concerns one issue only: {issue_delivery:?}")
        }
        Ok(Interpreted::IfPermitted(delivery)) => panic!("GitHub is to be asked: {delivery:?}"),
        Ok(Interpreted::OnPull(delivery)) => panic!("it concerns no issue: {delivery:?}"),
        Ok(Interpreted::Ignored { reason, .. }) => Err(reason),
        Err(malformed) => Err(malformed.to_string()),
    }
}

/// A delivery about the repository `pear-garden/orchard`, without a sender.
fn of_repository(action: &str, changes: Value) -> Value {
    json!({
        "action": action,
        "changes": changes,
        "repository": {
            "id": HERE,
            "full_name": "pear-garden/orchard",
            "updated_at": "2026-03-02T19:00:00Z",
        },
        "sender": null,
    })
}

fn here() -> Scope {
    Scope::Repositories(vec![HERE])
}

fn stop(reason: &str) -> ScopeEvent {
    ScopeEvent::Stop(reason.into())
}

fn noted(what: &str) -> ScopeEvent {
    ScopeEvent::Noted(what.into())
}

fn renamed(formerly: Option<&str>) -> ScopeEvent {
    ScopeEvent::Renamed {
        repository: Repository::parse("pear-garden/orchard").expect("a valid name"),
        formerly: formerly.map(Repository::trusted),
        as_of: Timestamp::parse("2026-03-02T19:00:00Z").expect("RFC 3339"),
    }
}

#[test]
fn a_new_name_without_a_time_counts_from_when_it_arrived() {
    for time in [Value::Null, json!("soon")] {
        let mut body = of_repository("renamed", Value::Null);
        body["repository"]["updated_at"] = time;
        match scope_event(&policy(), "repository", &body) {
            Ok((_, ScopeEvent::Renamed { as_of, .. })) => assert_eq!(as_of, received_at()),
            other => panic!("it was renamed: {other:?}"),
        }
    }
}

#[test]
fn what_happens_to_a_repository_concerns_all_of_its_issues() {
    let renaming = json!({"repository": {"name": {"from": "grove"}}});
    let moving = json!({"owner": {"from": {"user": {"login": "mira-holt"}}}});
    for (action, changes, meant) in [
        ("renamed", renaming.clone(), renamed(Some("pear-garden/grove"))),
        ("renamed", Value::Null, renamed(None)),
        ("transferred", moving.clone(), renamed(Some("mira-holt/orchard"))),
        ("edited", json!({"description": {"from": "x"}}), noted("the repository was edited")),
        ("edited", json!({"topics": {"from": ["x"]}}), noted("the repository was edited")),
        ("edited", renaming, renamed(Some("pear-garden/grove"))),
        ("deleted", Value::Null, stop("the repository was deleted")),
        ("archived", Value::Null, stop("the repository was archived")),
        ("unarchived", Value::Null, noted("the repository was taken out of the archive")),
        ("privatized", Value::Null, noted("the repository was made private")),
        ("publicized", Value::Null, noted("the repository was made public")),
    ] {
        let found = scope_event(&policy(), "repository", &of_repository(action, changes));
        assert_eq!(found, Ok((here(), meant)), "{action}");
    }
    let created = of_repository("created", Value::Null);
    let nothing = Err("repository created has no effect".to_owned());
    assert_eq!(scope_event(&policy(), "repository", &created), nothing);
}

#[test]
fn a_repository_that_leaves_or_joins_the_configured_ones_is_followed() {
    let not_ours = "the repository pear-garden/orchard does not match the configured ones";
    let renaming = json!({"repository": {"name": {"from": "grove"}}});
    let by_user = json!({"owner": {"from": {"user": {"login": "mira-holt"}}}});
    let by_organisation = json!({"owner": {"from": {"organization": {"login": "Plums"}}}});
    for (pattern, action, changes, meant) in [
        (
            "pear-garden/orchard",
            "renamed",
            &renaming,
            Ok((here(), renamed(Some("pear-garden/grove")))),
        ),
        (
            "pear-garden/grove",
            "renamed",
            &renaming,
            Ok((here(), renamed(Some("pear-garden/grove")))),
        ),
        ("mira-holt/*", "transferred", &by_user, Ok((here(), renamed(Some("mira-holt/orchard"))))),
        (
            "plums/orchard",
            "transferred",
            &by_organisation,
            Ok((here(), renamed(Some("Plums/orchard")))),
        ),
        ("plums/grove", "transferred", &by_organisation, Err(not_ours.to_owned())),
        ("pear-garden/press", "renamed", &renaming, Err(not_ours.to_owned())),
        ("pear-garden/press", "archived", &Value::Null, Err(not_ours.to_owned())),
    ] {
        let policy = TriggerPolicy { repositories: patterns(&[pattern]), ..policy() };
        let found = scope_event(&policy, "repository", &of_repository(action, changes.clone()));
        assert_eq!(found, meant, "{pattern} {action}");
    }
}

#[test]
fn only_the_trigger_labels_new_name_counts() {
    let unchanged = || Err("the trigger label's name did not change".to_owned());
    let edited = |from: Value, to: Value| {
        let mut body = of_repository("edited", json!({"name": {"from": from}}));
        body["label"] = json!({"name": to});
        body
    };
    for (from, to, meant) in [
        (json!("agent"), json!("robot"), Ok((here(), ScopeEvent::LabelGone))),
        (json!("AGENT"), Value::Null, Ok((here(), ScopeEvent::LabelGone))),
        (json!("agent"), json!("Agent"), unchanged()),
        (json!("bug"), json!("robot"), unchanged()),
        (json!("bug"), json!("agent"), unchanged()),
        (Value::Null, json!("agent"), unchanged()),
    ] {
        let body = edited(from, to);
        assert_eq!(scope_event(&policy(), "label", &body), meant, "{body}");
    }
    let recoloured = of_repository("edited", json!({"color": {"from": "fff"}}));
    assert_eq!(scope_event(&policy(), "label", &recoloured), unchanged());
    let without = TriggerPolicy { label: String::new(), ..policy() };
    assert_eq!(scope_event(&without, "label", &edited(json!(""), json!("x"))), unchanged());
    let elsewhere = TriggerPolicy { repositories: patterns(&["x/*"]), ..policy() };
    assert!(scope_event(&elsewhere, "label", &edited(json!("agent"), json!("x"))).is_err());
    for action in ["created", "deleted"] {
        let body = of_repository(action, Value::Null);
        assert_eq!(
            scope_event(&policy(), "label", &body),
            Err(format!("label {action} has no effect"))
        );
    }
}

#[test]
fn an_installation_that_ends_stops_what_it_lists_or_what_it_scope_of() {
    let scope_of = Scope::Installation(INSTALLATION);
    let list = json!([{"id": 5, "full_name": "a/b"}, {"id": 6}, null, {"full_name": "a/c"}]);
    let listed = Scope::Repositories(vec![5, 6]);
    let stopped = stop("the App was uninstalled");
    for (action, repositories, meant) in [
        ("deleted", list.clone(), (listed.clone(), stopped.clone())),
        ("deleted", Value::Null, (scope_of.clone(), stopped.clone())),
        ("deleted", json!([]), (scope_of.clone(), stopped)),
        ("suspend", list.clone(), (listed, stop("the App was suspended"))),
        ("unsuspend", list.clone(), (scope_of.clone(), noted("the App is no longer suspended"))),
        ("created", list.clone(), (scope_of.clone(), noted("the App was installed"))),
        (
            "new_permissions_accepted",
            Value::Null,
            (scope_of, noted("the App was given new permissions")),
        ),
    ] {
        let body = json!({
            "action": action,
            "installation": {"id": INSTALLATION},
            "repositories": repositories,
        });
        assert_eq!(scope_event(&policy(), "installation", &body), Ok(meant), "{body}");
    }
    let nameless = json!({"action": "deleted", "installation": null});
    let nothing = Err("it names no installation".to_owned());
    assert_eq!(scope_event(&policy(), "installation", &nameless), nothing);
}

#[test]
fn repositories_taken_from_an_installation_are_stopped() {
    let lists = |action: &str, list: Value| {
        json!({
            "action": action,
            "installation": {"id": INSTALLATION},
            format!("repositories_{action}"): list,
        })
    };
    let two = json!([{"id": 5, "full_name": "pear-garden/press"}, {"id": 6, "full_name": "a/b"}]);
    let found = |policy: &TriggerPolicy, body: &Value| {
        scope_event(policy, "installation_repositories", body)
    };
    let both = Scope::Repositories(vec![5, 6]);
    let lost = stop("the App lost its access to the repository");
    assert_eq!(found(&policy(), &lists("removed", two.clone())), Ok((both.clone(), lost.clone())));
    let got = noted("the App was given access to the repository");
    assert_eq!(found(&policy(), &lists("added", two.clone())), Ok((both, got)));
    let ours = TriggerPolicy { repositories: patterns(&["pear-garden/*"]), ..policy() };
    let one = Scope::Repositories(vec![5]);
    assert_eq!(found(&ours, &lists("removed", two.clone())), Ok((one, lost)));
    let theirs = TriggerPolicy { repositories: patterns(&["x/*"]), ..policy() };
    let no_match = Err("none of the repositories matches the configured ones".to_owned());
    assert_eq!(found(&theirs, &lists("removed", two)), no_match);
    for list in [Value::Null, json!([]), json!([null, {"full_name": "a/b"}])] {
        let nothing = Err("it names no repository".to_owned());
        assert_eq!(found(&policy(), &lists("removed", list)), nothing);
    }
}

#[test]
fn what_identifies_the_repository_must_be_there() {
    for (field, missing) in [
        ("/repository", "repository is missing"),
        ("/repository/id", "repository.id is missing"),
        ("/repository/full_name", "repository.full_name is missing"),
    ] {
        let mut body = of_repository("archived", Value::Null);
        *body.pointer_mut(field).expect("a field") = Value::Null;
        let malformed = format!("the payload cannot be read: {missing}");
        assert_eq!(scope_event(&policy(), "repository", &body), Err(malformed));
    }
}
