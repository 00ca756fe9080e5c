//! Faults that were ordered strike once, where they were ordered.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::{Garden, ORCHARD, receive};
use crate::github::model::{FaultKind, ModelFault};

#[tokio::test]
async fn each_fault_strikes_as_ordered() {
    let garden = Garden::new().await;
    let github = &garden.github;
    github.open_issue(ORCHARD, "mira-holt", "One", "");
    let path = format!("/repos/{ORCHARD}/issues/1/comments");
    let limited = |status, after| FaultKind::SecondaryLimit(status, after);
    // The fault, the status (0: no answer), Retry-After, whether the comment is there.
    let cases = [
        (FaultKind::LostBefore, 0, "", false),
        (FaultKind::LostAfter, 0, "", true),
        (FaultKind::CutOff, 0, "", true),
        (FaultKind::Status(502), 502, "", false),
        (FaultKind::StatusAfter(504), 504, "", true),
        (limited(403, Some(7)), 403, "7", false),
        (limited(429, None), 429, "", false),
        (FaultKind::Refused("A reason of its own".to_owned()), 403, "", false),
        (FaultKind::Slow(Duration::from_millis(1)), 201, "", true),
    ];
    for (kind, status, after, has_effect) in cases {
        let before = github.comments((ORCHARD, 1)).len();
        github.order(ModelFault::on("POST", "/repos/*/*/issues/1/**", kind.clone()));
        garden.get(&path).await.expect(200);
        let request = garden.request(&garden.token, Method::POST, &path);
        let got = receive(request.json(&json!({"body": "Hello"}))).await.ok();
        let header = got.as_ref().map_or("", |got| got.header("retry-after"));
        let code = got.as_ref().map_or(0, |got| got.status.as_u16());
        assert_eq!((code, header), (status, after), "{kind:?}");
        let made = github.comments((ORCHARD, 1)).len() - before;
        assert_eq!(made, usize::from(has_effect), "{kind:?}");
    }
    let order = ModelFault::on("GET", "/meta", FaultKind::HourlyLimit).skip(1).times(2);
    github.order(order);
    garden.get("/meta").await.expect(200);
    assert_eq!(garden.get("/meta").await.header("x-ratelimit-remaining"), "0");
    garden.get("/meta").await.expect(403);
    github.cancel_faults();
    github.order(ModelFault::on("*", "/app", FaultKind::DateAhead(7200)));
    let ahead = garden.call_as(&garden.jwt(), Method::GET, "/app", json!(null)).await;
    let date = jiff::fmt::rfc2822::parse(ahead.header("date")).expect("a date").timestamp();
    assert!(date.as_second() - github.now().as_second() >= 7190);
    garden.assert_clean();
}
