//! Every code that is described is provoked by a test here.

use std::collections::BTreeSet;

use crate::common::document::operations;
use crate::common::server::TestServer;

/// The codes that the tests beside this file provoke.
const PROVOKED: [&str; 55] = [
    "invalid_request",
    "path_not_allowed",
    "unauthorized",
    "bad_signature",
    "forbidden",
    "held",
    "quota_exceeded",
    "no_room",
    "account_not_found",
    "token_not_found",
    "account_configured",
    "too_many_tokens",
    "route_not_found",
    "sandbox_not_found",
    "file_not_found",
    "file_exists",
    "bad_archive",
    "range_not_satisfiable",
    "request_timeout",
    "sandbox_deleted",
    "deleting",
    "not_failed",
    "run_not_found",
    "run_refused",
    "agent_unknown",
    "queue_full",
    "not_published",
    "sync_failed",
    "sync_not_configured",
    "version_not_found",
    "stopped",
    "not_running",
    "issue_id_conflict",
    "issue_closed",
    "github_unavailable",
    "drift_over",
    "provider_unknown",
    "body_too_large",
    "unsupported_media_type",
    "issue_unknown",
    "template_unknown",
    "template_only",
    "wrong_kind",
    "command_not_found",
    "cannot_start",
    "refused_inside",
    "upgrade_required",
    "too_many_attempts",
    "not_supported",
    "port_closed",
    "port_not_listed",
    "provider_failed",
    "overloaded",
    "store_failed",
    "shutting_down",
];

#[tokio::test]
async fn a_test_here_provokes_every_described_code() {
    let server = TestServer::start().await;
    let document = server.get("/openapi.json").await.json();
    let listed = &document["components"]["schemas"]["ErrorCode"]["enum"];
    for code in PROVOKED {
        let is_listed = listed.as_array().is_some_and(|all| all.contains(&code.into()));
        assert!(is_listed, "{code} is not among the codes of the schema");
    }
    let described: BTreeSet<String> = operations(&server)
        .await
        .into_iter()
        .flat_map(|operation| operation.answers)
        .map(|(_, code)| code)
        .filter(|code| !code.is_empty())
        .collect();
    assert_eq!(described, PROVOKED.iter().map(|code| (*code).to_owned()).collect());
}
