//! Limits: counted as GitHub counts, and what passes them is a violation.

use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Garden, ORCHARD};
use crate::github::model::{FaultKind, ModelFault, WRITES_PER_MINUTE};

#[tokio::test]
async fn calls_above_the_hour_are_refused_until_it_is_over() {
    let garden = Garden::new().await;
    let github = &garden.github;
    github.leave_calls(&format!("installation {}", garden.installation), 1);
    let last = garden.get("/meta").await;
    assert_eq!((last.status.as_u16(), last.header("x-ratelimit-remaining")), (200, "0"));
    let refused = garden.get("/meta").await;
    assert_eq!((refused.status.as_u16(), refused.header("x-ratelimit-remaining")), (403, "0"));
    garden.get("/rate_limit").await.expect(200);
    assert_eq!(github.take_violations().len(), 1);
    garden.call_as("", Method::GET, "/meta", Value::Null).await.expect(200);
    github.move_clock(SignedDuration::from_mins(61));
    garden
        .call_as(&garden.mint(json!({})).await, Method::GET, "/meta", Value::Null)
        .await
        .expect(200);
    garden.assert_clean();
}

#[tokio::test]
async fn content_above_the_minute_is_refused_and_a_violation() {
    let garden = Garden::new().await;
    let github = &garden.github;
    github.open_issue(ORCHARD, "mira-holt", "One", "");
    let comments = format!("/repos/{ORCHARD}/issues/1/comments");
    for _ in 0..WRITES_PER_MINUTE {
        garden.post(&comments, json!({"body": "Hello"})).await.expect(201);
    }
    garden.assert_clean();
    let refused = garden.post(&comments, json!({"body": "Hello"})).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (403, "60"));
    assert_eq!(github.take_violations().len(), 1);
    github.move_clock(SignedDuration::from_secs(61));
    garden.post(&comments, json!({"body": "Hello"})).await.expect(201);
    assert_eq!(github.comments((ORCHARD, 1)).len(), WRITES_PER_MINUTE + 1);
    garden.assert_clean();
}

#[tokio::test]
async fn two_writing_calls_at_once_are_a_violation() {
    let garden = Garden::new().await;
    let github = &garden.github;
    github.open_issue(ORCHARD, "mira-holt", "One", "");
    let comments = format!("/repos/{ORCHARD}/issues/1/comments");
    let write = || garden.post(&comments, json!({"body": "Hello"}));
    github.order(ModelFault::on("POST", "/repos/*/*/issues/*/comments", FaultKind::Held));
    let second = async {
        github.until(|github| github.held() == 1).await;
        garden.get("/meta").await.expect(200);
        garden.assert_clean();
        write().await.expect(201);
        github.release();
    };
    tokio::join!(async { drop(write().await.expect(201)) }, second);
    assert_eq!(github.take_violations().len(), 1);
    write().await.expect(201);
    garden.assert_clean();
}
