//! Traces, as a collector gets them: what a call led to is one trace, each step below its cause.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use crate::process::{Place, Server};
use actix_web::{App, HttpResponse, HttpServer, web};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;

type Collected = Arc<Mutex<Vec<ExportTraceServiceRequest>>>;

async fn take(collected: web::Data<Collected>, body: web::Bytes) -> HttpResponse {
    let request = ExportTraceServiceRequest::decode(body).expect("an export request");
    collected.lock().expect("not poisoned").push(request);
    HttpResponse::Ok().finish()
}

/// What a span says of itself under this name, as text.
fn said(span: &Span, key: &str) -> Option<String> {
    let value = span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?;
    match value.value? {
        Attribute::StringValue(text) => Some(text),
        Attribute::IntValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

#[actix_web::test]
async fn a_call_and_its_effects_are_one_trace_down_to_the_providers_answer() {
    let collected = Collected::default();
    let data = web::Data::new(Arc::clone(&collected));
    let collector = HttpServer::new(move || {
        App::new().app_data(data.clone()).route("/v1/traces", web::post().to(take))
    });
    let collector = collector.workers(1).bind(("127.0.0.1", 0)).expect("a port");
    let url = format!("http://{}", collector.addrs()[0]);
    let collector = collector.run();
    let handle = collector.handle();
    actix_web::rt::spawn(collector);

    let place = Place::simulated("");
    let mut command = place.serve_command("127.0.0.1:0");
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", url).stdout(Stdio::null());
    let server = Server::start(&mut command).await;
    let made = server.post("/v1/sandboxes?wait=30", &json!({"issueId": "traced-1"})).await;
    assert_eq!(made.status, 201, "{made:?}");
    // What is left is sent at the end.
    let (status, _, log) = server.stop().await;
    assert!(status.success(), "{log}");
    handle.stop(true).await;

    let collected = collected.lock().expect("not poisoned");
    let resources = collected.iter().flat_map(|request| &request.resource_spans);
    let spans: Vec<&Span> =
        resources.clone().flat_map(|r| &r.scope_spans).flat_map(|s| &s.spans).collect();
    let service = resources
        .filter_map(|r| r.resource.as_ref())
        .flat_map(|r| &r.attributes)
        .find(|attribute| attribute.key == "service.name");
    assert!(format!("{service:?}").contains("issuebox"), "{service:?}");

    let find = |name: &str, key: &str, value: &str| {
        let fits = |span: &&&Span| span.name == name && said(span, key).as_deref() == Some(value);
        *spans.iter().find(fits).unwrap_or_else(|| panic!("no {name} with {key} {value}"))
    };
    let request = find("request", "http.route", "/v1/sandboxes");
    let ensure = find("event", "kind", "ensure");
    let call = find("call", "step", "create");
    let answered = find("event", "kind", "answered");
    for (above, below) in [(request, ensure), (ensure, call), (call, answered)] {
        assert_eq!(below.parent_span_id, above.span_id, "{} below {}", below.name, above.name);
        assert_eq!(below.trace_id, above.trace_id);
    }
    assert_eq!(said(call, "provider").as_deref(), Some("simulated"));
}
