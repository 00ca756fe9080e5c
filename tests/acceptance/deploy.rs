//! What `deploy/` says of the program is true: the metrics that its alerts and its dashboard name are
//! there, with the labels that they ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::process::{Place, issue_event, send, until};
use serde_json::Value;

fn deployed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The names of our metrics in a text, each with the labels that it is asked for by.
fn named(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (at, _) in text.match_indices("issuebox_") {
        let rest = &text[at..];
        let name = rest.split(|c: char| !is_name(c)).next().unwrap_or_default();
        let labels = rest[name.len()..].strip_prefix('{').and_then(|more| more.split('}').next());
        let labels = labels.into_iter().flat_map(|labels| labels.split(','));
        let labels = labels.filter_map(|label| label.split(['=', '!']).next());
        all.entry(name.to_owned())
            .or_default()
            .extend(labels.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()));
    }
    all
}

/// Every label that a text groups by.
fn grouped_by(text: &str) -> BTreeSet<String> {
    let groups = text.split("by (").skip(1).filter_map(|group| group.split(')').next());
    groups.flat_map(|group| group.split(',')).map(|label| label.trim().to_owned()).collect()
}

/// Metrics as a server that has done something of everything tells them.
async fn exposed() -> BTreeMap<String, BTreeSet<String>> {
    let place = Place::simulated("");
    let server = place.serve().await;
    let body = issue_event("opened", 5).to_string();
    assert_eq!(send(server.delivery("issues", "d-1", body)).await.status, 202);
    server.running("5").await;
    let metrics = || async { server.get("/metrics").await.text };
    let swept = "\nissuebox_last_sweep_timestamp_seconds{";
    until("the provider is swept", || async { metrics().await.contains(swept) }).await;
    named(&metrics().await)
}

#[tokio::test]
async fn alerts_and_dashboard_name_only_metrics_that_are_there() {
    let exposed = exposed().await;
    let labels: BTreeSet<&str> = exposed.values().flatten().map(String::as_str).collect();
    for file in ["prometheus/alerts.yml", "grafana/issuebox.json"] {
        // The dashboard's queries are quoted once more.
        let text = deployed(file).replace("\\\"", "\"");
        let asked = named(&text);
        assert!(asked.len() >= 6, "{file}: {asked:?}");
        for (name, by) in asked {
            let Some(known) = exposed.get(&name) else { panic!("{file}: there is no {name}") };
            assert!(by.is_subset(known), "{file}: {name} by {by:?} has {known:?}");
        }
        for label in grouped_by(&text) {
            let known = labels.contains(label.as_str()) || label == "kind";
            assert!(known, "{file}: nothing has the label {label}");
        }
    }
}

#[test]
fn every_metric_is_on_the_dashboard() {
    let dashboard: Value = serde_json::from_str(&deployed("grafana/issuebox.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let queries: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("queries"))
        .map(|target| target["expr"].as_str().expect("a query"))
        .collect();
    let shown = queries.join("\n");
    for name in [
        "issuebox_sandbox_create_seconds",
        "issuebox_deliveries",
        "issuebox_http_requests",
        "issuebox_sandboxes_live",
        "issuebox_http_body_bytes",
        "issuebox_cleanups",
        "issuebox_provider_breaker_open",
        "issuebox_drift",
        "issuebox_sweeps",
        "issuebox_last_sweep_timestamp_seconds",
        "issuebox_egress_requests",
        "issuebox_egress_connections",
        "issuebox_egress_bytes",
    ] {
        assert!(shown.contains(name), "{name} is not shown");
    }
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
}
