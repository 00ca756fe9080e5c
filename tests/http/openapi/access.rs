//! What tokens and accounts refuse, on every route.

use issuebox::types::{AccountName, AccountRules};
use serde_json::json;

use super::expect;
use crate::common::document::{listed, operations};
use crate::common::server::{TOKEN, TestServer, send};

#[tokio::test]
async fn a_disabled_account_is_refused_everywhere_under_v1() {
    let server = TestServer::start().await;
    let token = server.token("acme", "operator").await;
    server.account("acme", json!({"disabled": true})).await;
    for operation in operations(&server).await {
        let answer = send(operation.bare(&server, "x", "1").bearer_auth(&token)).await;
        if operation.is_v1() {
            assert_eq!(listed(&operation, &answer).1, "forbidden", "{}", operation.name());
        }
    }
}

#[tokio::test]
async fn an_account_that_is_not_there_is_not_found_everywhere_under_v1() {
    let server = TestServer::start().await;
    for operation in operations(&server).await {
        let request = operation.bare(&server, "x", "1").bearer_auth(TOKEN);
        let answer = send(request.header("x-issuebox-account", "nowhere")).await;
        if operation.is_v1() {
            assert_eq!(listed(&operation, &answer).1, "account_not_found", "{}", operation.name());
        }
    }
}

#[tokio::test]
async fn tokens_are_bounded_and_configured_accounts_are_not_changed() {
    let server = TestServer::with(|edge| {
        edge.limits.tokens_max = 0;
        let configured = (AccountName::trusted("nope"), AccountRules::default());
        edge.access.configure([configured].into());
    });
    let server = server.await;
    expect(&server, "too_many_tokens", "x", |_| true).await;
    expect(&server, "account_configured", "x", |_| true).await;
    expect(&server, "token_not_found", "x", |_| true).await;
}
