//! Deliveries are signed, logged with their GUIDs, and lost where they are ordered to be lost.

use hmac::{Hmac, Mac};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{Garden, ORCHARD};
use crate::github::model::HookDoor;
use crate::github::model::hooks::HookSource;
use crate::github::policy::TriggerPolicy;
use crate::github::webhook::{Interpreted, interpret};
use crate::types::{DeliveryId, RepositoryPattern, Timestamp};

/// A receiver that answers each delivery with this status: header lines and body of each.
async fn receive(listener: TcpListener, status: u16, count: usize) -> Vec<(String, String)> {
    let mut got = Vec::new();
    while got.len() < count {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut bytes = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let head = head.to_ascii_lowercase();
                let length = head.split("content-length: ").nth(1).expect("a length");
                let length = length.lines().next().and_then(|text| text.parse::<usize>().ok());
                if Some(body.len()) == length {
                    got.push((head, body.to_owned()));
                    break;
                }
            }
            stream.read_buf(&mut bytes).await.expect("bytes");
        }
        let answer =
            format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.expect("an answer");
    }
    got
}

#[tokio::test]
async fn deliveries_are_signed_sent_in_order_and_logged() {
    let garden = Garden::new().await;
    let github = &garden.github;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    github.open_issue(ORCHARD, "mira-holt", "Missed", "");
    github.set_door(HookDoor::Swallows(200));
    github.label((ORCHARD, 1), "mira-holt", "agent");
    github.set_door(HookDoor::Open(url));
    github.comment((ORCHARD, 1), "mira-holt", "Hello");
    github.close((ORCHARD, 1), "mira-holt");
    let got = receive(listener, 503, 2).await;
    github.until(|github| github.pending_deliveries() == 0).await;
    let secret = github.app().2;
    for ((head, body), event) in got.iter().zip(["issue_comment", "issues"]) {
        assert!(head.contains(&format!("x-github-event: {event}\r\n")), "{head}");
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
        mac.update(body.as_bytes());
        let signature = hex::encode(mac.finalize().into_bytes());
        assert!(head.contains(&format!("x-hub-signature-256: sha256={signature}")), "{head}");
    }
    let jwt = garden.jwt();
    let get = async |path: String| garden.call_as(&jwt, Method::GET, &path, Value::Null).await;
    let mut log = Vec::new();
    let mut path = "/app/hook/deliveries?per_page=2".to_owned();
    loop {
        let page = get(path.clone()).await;
        let next = page.header("link").split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        log.extend(page.expect(200).as_array().cloned().unwrap_or_default());
        if next.is_empty() {
            break;
        }
        path = next.replace(&github.api_url(), "");
    }
    let shown: Vec<_> = log
        .iter()
        .rev()
        .map(|entry| (entry["action"].clone(), entry["status_code"].clone()))
        .collect();
    // The first is that of the installation.
    let expected =
        [("created", 502), ("opened", 502), ("labeled", 200), ("created", 503), ("closed", 503)];
    assert_eq!(shown, expected.map(|(action, status)| (json!(action), json!(status))));
    assert_eq!(
        get("/app/hook/deliveries?status=failure".to_owned())
            .await
            .expect(200)
            .as_array()
            .map(Vec::len),
        Some(4)
    );
    let guids: Vec<_> =
        log.iter().rev().map(|entry| entry["guid"].as_str().unwrap_or_default()).collect();
    assert_eq!(github.delivered_guids(), guids);
    github.move_clock(jiff::SignedDuration::from_hours(73));
    let later = garden.jwt();
    let empty = garden.call_as(&later, Method::GET, "/app/hook/deliveries", Value::Null).await;
    assert_eq!(empty.expect(200), json!([]), "three days are over");
    garden.assert_clean();
}

/// A policy under which a label and a command of a member trigger. `bot` is our own account.
fn policy(bot: u64) -> TriggerPolicy {
    TriggerPolicy {
        label: "agent".into(),
        command: "/issuebox".into(),
        opened: false,
        permission: None,
        associations: vec!["MEMBER".into()],
        bots: Vec::new(),
        assignee: bot,
        unlabel_stops: true,
        refuses_hidden: false,
        follow_up: crate::types::FollowUpMode::default(),
        on_ci_failure: crate::types::CiFailureMode::default(),
        bot_user_id: bot.into(),
        repositories: vec![RepositoryPattern::parse("*").expect("a pattern")],
    }
}

#[tokio::test]
async fn what_people_do_is_a_delivery_that_the_server_understands() {
    let garden = Garden::new().await;
    let github = &garden.github;
    let at = (ORCHARD, 1);
    github.repository("pear-garden/press");
    github.open_issue(ORCHARD, "mira-holt", "Leaves fall", "Early.");
    github.label(at, "mira-holt", "agent");
    github.label(at, "stranger", "agent 2");
    github.assign(at, "mira-holt", "issuebox-model[bot]");
    github.comment(at, "mira-holt", "/issuebox");
    github.comment(at, "issuebox-model[bot]", "/issuebox");
    github.unlabel(at, "mira-holt", "agent");
    github.close(at, "mira-holt");
    github.set_locked(at, "mira-holt", true);
    github.transfer_issue(at, "mira-holt", "pear-garden/press");
    github.delete_issue(("pear-garden/press", 1), "mira-holt");
    github.rename_repository(ORCHARD, "pear-garden/meadow");
    github.set_suspended(garden.installation, true);
    let policy = policy(github.bot().0).into();
    let state = github.state();
    let log = state.delivery_log(HookSource::App);
    let meanings: Vec<String> = log
        .into_iter()
        .map(|delivery| {
            let shown = delivery.show(true);
            let event = shown["event"].as_str().unwrap_or_default();
            let body = shown["request"]["payload"].to_string();
            let guid = DeliveryId::trusted(delivery.guid.as_str());
            let received = Timestamp::parse(shown["delivered_at"].as_str().unwrap_or_default());
            let received = received.expect("a time");
            match interpret(&policy, guid, received, event, body.as_bytes()).expect("well formed") {
                Interpreted::Issue(issue) => format!("{:?}", issue.effect),
                Interpreted::IfPermitted(delivery) => delivery.permitted.action,
                Interpreted::OnPull(delivery) => delivery.action,
                Interpreted::FanOut(fan_out) => fan_out.action,
                Interpreted::Ignored { action, .. } => format!("ignored {action}"),
            }
        })
        .collect();
    let expected = [
        "created",
        "Update",
        "Trigger(Label)",
        "ignored labeled",
        "Trigger(Assigned)",
        "Trigger(Command)",
        "ignored created",
        "Stop(\"the trigger label was taken off\")",
        "Stop(\"the issue was closed\")",
        "ignored locked",
        "Update",
        "Update",
        "Delete",
        "renamed",
        "suspend",
    ];
    assert_eq!(meanings, expected);
}
