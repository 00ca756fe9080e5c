//! What a provider does not declare is refused before anything is asked of it.

use std::sync::Arc;

use issuebox::http::Edge;
use issuebox::sandbox::Descriptor;
use reqwest::Method;
use serde_json::json;

use crate::common::server::{TestServer, opening, send};

/// A server whose provider declares nothing.
async fn plain() -> TestServer {
    TestServer::with(|edge: &mut Edge| {
        for provider in edge.providers.values_mut() {
            provider.descriptor = Arc::new(Descriptor::plain());
        }
    })
    .await
}

#[tokio::test]
async fn what_is_not_declared_is_refused_and_starts_no_sandbox() {
    let server = plain().await;
    let id = server.running("1").await;
    let stop = server.request(Method::POST, &format!("/v1/sandboxes/{id}/stop?wait=10"));
    assert!(send(stop).await.status < 300);
    let files = format!("/v1/sandboxes/{id}/files/archive?path=a");
    for (method, path) in [
        (Method::GET, files.clone()),
        (Method::PUT, files),
        (Method::GET, format!("/v1/sandboxes/{id}/ports/3000/")),
    ] {
        let answer = send(server.request(method, &path)).await;
        assert_eq!((answer.status, answer.code().as_str()), (501, "not_supported"), "{path}");
    }
    for path in ["ports/3000", "terminal"] {
        let request = server.request(Method::GET, &format!("/v1/sandboxes/{id}/{path}"));
        let answer = send(opening(request)).await;
        assert_eq!((answer.status, answer.code().as_str()), (501, "not_supported"), "{path}");
    }
    let sandbox = send(server.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await.json();
    assert_eq!(sandbox["data"]["phase"], "stopped", "{sandbox}");
    let ports = send(server.request(Method::GET, &format!("/v1/sandboxes/{id}/ports"))).await;
    assert_eq!(ports.json()["data"][0]["state"], json!("closed"), "it does not run");
}
