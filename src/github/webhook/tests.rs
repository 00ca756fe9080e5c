//! What deliveries mean: the fixtures as one table, and the rules one by one.

mod commands;
mod instructions;
mod permission;
mod properties;
mod pulls;
mod repositories;
mod rules;
mod scope_event;
mod transfers;

use serde_json::{Value, json};

use super::*;
use crate::github::fixtures;
use crate::issue::event::{DeliveryEffect, TriggerKind};
use crate::types::{CiFailureMode, FollowUpMode, RepositoryPattern};

const STRANGER: &str = "the sender may not trigger";
const OURSELVES: &str = "our own account's events never trigger";

/// The bot's account in the fixtures.
const BOX: u64 = 71_000_150;

fn policy() -> TriggerPolicy {
    TriggerPolicy {
        label: "agent".into(),
        command: "/issuebox".into(),
        opened: false,
        permission: None,
        associations: ["OWNER", "MEMBER", "COLLABORATOR"].map(String::from).to_vec(),
        bots: Vec::new(),
        assignee: BOX,
        unlabel_stops: true,
        refuses_hidden: false,
        follow_up: FollowUpMode::Commands,
        on_ci_failure: CiFailureMode::Ignore,
        bot_user_id: BOX.into(),
        repositories: patterns(&["*"]),
    }
}

fn patterns(texts: &[&str]) -> Vec<RepositoryPattern> {
    texts.iter().map(|text| RepositoryPattern::parse(text).expect("a valid pattern")).collect()
}

fn received_at() -> Timestamp {
    Timestamp::parse("2026-03-02T20:00:00Z").expect("RFC 3339")
}

fn read(policy: &TriggerPolicy, event: &str, body: &[u8]) -> Result<Interpreted, Malformed> {
    interpret(&policy.clone().into(), DeliveryId::trusted("guid-1"), received_at(), event, body)
}

fn payload(name: &str) -> Value {
    let fixture = fixtures::named(name).expect("a fixture");
    serde_json::from_str(fixture.body).expect("JSON")
}

/// Interprets a fixture after a change to it.
fn changed(
    policy: &TriggerPolicy,
    name: &str,
    change: impl FnOnce(&mut Value),
) -> Result<Interpreted, Malformed> {
    let mut payload = payload(name);
    change(&mut payload);
    let event = fixtures::named(name).expect("a fixture").event();
    read(policy, event, payload.to_string().as_bytes())
}

/// The effect on an issue, or why there is none.
fn effect(result: Result<Interpreted, Malformed>) -> Result<DeliveryEffect, String> {
    match result {
        Ok(Interpreted::Issue(issue_delivery)) => Ok(issue_delivery.effect),
        Ok(Interpreted::IfPermitted(delivery)) => panic!("GitHub is to be asked: {delivery:?}"),
        Ok(Interpreted::OnPull(delivery)) => panic!("it is about a pull request: {delivery:?}"),
        Ok(Interpreted::FanOut(fan_out)) => panic!("it concerns no single issue: {fan_out:?}"),
        Ok(Interpreted::Ignored { reason, .. }) => Err(reason),
        Err(malformed) => Err(malformed.to_string()),
    }
}

fn trigger(kind: TriggerKind) -> Result<DeliveryEffect, String> {
    Ok(DeliveryEffect::Trigger(kind))
}

fn ignored(reason: &str) -> Result<DeliveryEffect, String> {
    Err(reason.to_owned())
}

fn issue_delivery_of(result: Result<Interpreted, Malformed>) -> IssueDelivery {
    match result {
        Ok(Interpreted::Issue(issue_delivery)) => *issue_delivery,
        other => panic!("it has no effect on an issue: {other:?}"),
    }
}

fn news_of(result: Result<Interpreted, Malformed>) -> News {
    issue_delivery_of(result).news
}

fn meaning(interpreted: &Interpreted) -> String {
    match interpreted {
        Interpreted::Ignored { reason, .. } => format!("- {reason}"),
        Interpreted::Issue(issue_delivery) => {
            let news = &issue_delivery.news;
            let open = news.open.map_or("?", |open| if open { "open" } else { "closed" });
            let labelled = news.labelled.map_or("?", |on| if on { "labelled" } else { "plain" });
            let place = format!("{}#{}", news.repository, news.number);
            let formerly = issue_delivery.formerly.as_ref();
            let formerly = formerly.map(|it| format!(" formerly {}#{}", it.repository, it.number));
            let comment = issue_delivery.comment.map(|id| format!(" by comment {id}"));
            format!(
                "{:?} {place} {} {open} {labelled}{}{}",
                issue_delivery.effect,
                news.issue_id,
                formerly.unwrap_or_default(),
                comment.unwrap_or_default()
            )
        }
        Interpreted::IfPermitted(delivery) => format!("if {} may", delivery.asker.login),
        Interpreted::OnPull(delivery) => format!("on {:?}", delivery.work),
        Interpreted::FanOut(fan_out) => format!("{:?} for {:?}", fan_out.news, fan_out.scope),
    }
}

#[test]
fn each_fixture_means_what_its_story_says() {
    let table: Vec<String> = fixtures::ALL
        .iter()
        .map(|fixture| {
            let meant = read(&policy(), fixture.event(), fixture.body.as_bytes());
            format!("{}: {}", fixture.name, meaning(&meant.expect("well formed")))
        })
        .collect();
    insta::assert_snapshot!(table.join("\n"), @r#"
    installation.created: Noted("the App was installed") for Installation(58200017)
    issue_comment.created.bot: - the sender may not trigger
    issue_comment.created.command: Trigger(Command) pear-garden/orchard#13 2874100013 open plain by comment 3100000102
    issue_comment.created.ghost: - the sender may not trigger
    issue_comment.created.plain: Activity pear-garden/orchard#13 2874100013 open plain
    issue_comment.created.pull-request: - it concerns a pull request
    issue_comment.created.quoted: Activity pear-garden/orchard#13 2874100013 open plain
    issue_comment.created.stop: Command(Stop) pear-garden/orchard#13 2874100013 open plain by comment 3100000104
    issue_comment.created.stranger: - the sender may not trigger
    issue_comment.edited: Trigger(EditedComment) pear-garden/orchard#13 2874100013 open plain by comment 3100000102
    issues.assigned: Trigger(Assigned) pear-garden/press#6 2874100106 open plain
    issues.closed.map: Stop("the issue was closed") pear-garden/orchard#15 2874100015 closed labelled
    issues.deleted.reports: Delete pear-garden/press#4 2874100104 open labelled
    issues.edited.title: Update pear-garden/orchard#12 2874100012 open labelled
    issues.labeled.agent: Trigger(Label) pear-garden/orchard#12 2874100012 open labelled
    issues.labeled.bug: - another label than the trigger label was put on
    issues.labeled.large-id: Trigger(Label) pear-garden/press#7 9007199254740993 open labelled
    issues.labeled.map: Trigger(Label) pear-garden/orchard#15 2874100015 open labelled
    issues.labeled.reports: Trigger(Label) pear-garden/press#4 2874100104 open labelled
    issues.labeled.umlauts: Trigger(Label) pear-garden/press#5 2874100105 open labelled
    issues.opened.stranger: Update pear-garden/orchard#13 2874100013 open plain
    issues.opened.transferred: Update pear-garden/press#8 2874100108 open labelled formerly pear-garden/orchard#16
    issues.opened.with-label: Update pear-garden/orchard#12 2874100012 open labelled
    issues.pinned: - issues pinned has no effect
    issues.reopened.map: Trigger(Reopened) pear-garden/orchard#15 2874100015 open labelled
    issues.transferred: Update pear-garden/press#8 2874100108 open labelled formerly pear-garden/orchard#16
    issues.unassigned: Stop("the bot was unassigned") pear-garden/press#6 2874100106 open plain
    issues.unlabeled.umlauts: Stop("the trigger label was taken off") pear-garden/press#5 2874100105 open plain
    ping: - pong: the webhook reaches us
    push: - the event push has no effect
    repository.renamed: Renamed { repository: Repository(pear-garden/press), formerly: Some(Repository(pear-garden/cider-press)), as_of: Timestamp { unix_ms: 1772209203000 } } for Repositories([810200302])
    "#);
}

#[test]
fn a_nudge_carries_what_the_payload_says() {
    let fixture = fixtures::named("issues.edited.title").expect("a fixture");
    let meant = read(&policy(), "issues", fixture.body.as_bytes()).expect("well formed");
    insta::assert_debug_snapshot!(meant, @r#"
    Issue(
        IssueDelivery {
            delivery: DeliveryId(guid-1),
            received_at: Timestamp {
                unix_ms: 1772481600000,
            },
            recovered: false,
            event: "issues",
            action: "edited",
            news: News {
                issue_id: IssueId(2874100012),
                repository: Repository(pear-garden/orchard),
                repository_id: 810200301,
                number: IssueNumber(
                    12,
                ),
                title: "Sign-in loops after a password reset (Firefox only)",
                url: Some(
                    "https://github.example.org/pear-garden/orchard/issues/12",
                ),
                open: Some(
                    true,
                ),
                labelled: Some(
                    true,
                ),
                assigned: None,
                as_of: Timestamp {
                    unix_ms: 1772443910000,
                },
            },
            acted_at: Timestamp {
                unix_ms: 1772443910000,
            },
            formerly: None,
            comment: None,
            installation: Some(
                58200017,
            ),
            effect: Update,
            instruction: None,
        },
    )
    "#);
}
