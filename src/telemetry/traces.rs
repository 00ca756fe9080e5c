//! OpenTelemetry traces: what a delivery or an API call caused, step by step.
//!
//! Off unless `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) names a
//! collector that accepts OTLP over HTTP, such as `http://127.0.0.1:4318`. The other `OTEL_` variables
//! of the specification apply too: `OTEL_SERVICE_NAME` (default `issuebox`),
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_…`.
//!
//! A trace has one cause and its effects: the delivery or the request, each *event* that an issue's
//! actor handled, each *call* of a provider, and its answer.
//!
//! # Guarantees
//! A thread of its own sends the spans. If the collector is slow or gone, spans are dropped and
//! nothing waits, except the end of the process for at most [`FLUSH_TIME_MAX`].

use std::time::Duration;

use bytes::Bytes;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Runtime;

/// Longest time that the end of the process waits for the last spans.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(3);

/// The name of the instrumentation, and the default name of the service.
const NAME: &str = "issuebox";

/// Exports spans; a drop sends the rest.
#[derive(Debug)]
pub(super) struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts the export if the environment names a collector.
    ///
    /// # Errors
    /// If the configured collector cannot be used.
    pub fn begin(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, TracesError> {
        let names = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        if names.iter().all(|name| variable(name).is_none()) {
            return Ok(None);
        }
        let exporter = SpanExporter::builder().with_http().with_http_client(Client::new()?);
        let resource = match variable("OTEL_SERVICE_NAME") {
            Some(_) => Resource::builder().build(),
            None => Resource::builder().with_service_name(NAME).build(),
        };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter.build()?)
            .with_resource(resource)
            .build();
        Ok(Some(Self(provider)))
    }

    /// The tracer that creates spans.
    pub fn tracer(&self) -> SdkTracer {
        self.0.tracer(NAME)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(FLUSH_TIME_MAX) {
            tracing::warn!(%error, "cannot send the last spans");
        }
    }
}

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The `OTEL_` variables.
    #[error("cannot use the OTEL_EXPORTER_OTLP_… variables: {0}")]
    Variables(#[from] ExporterBuildError),
    /// The HTTP client.
    #[error("cannot send spans over HTTP: {0}")]
    Client(#[from] reqwest::Error),
    /// Its runtime.
    #[error("cannot send spans: {0}")]
    Runtime(#[from] std::io::Error),
}

/// The exporter's HTTP client, which shares the process's TLS library. It runs on the exporter's
/// thread.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: Runtime,
}

impl Client {
    fn new() -> Result<Self, TracesError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let http = reqwest::Client::builder().build()?;
        Ok(Self { http, runtime })
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        self.runtime.block_on(async {
            let answer = self.http.execute(request).await?;
            let status = answer.status();
            let body = answer.bytes().await?;
            Ok(Response::builder().status(status).body(body)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Instant;

    use opentelemetry_otlp::WithExportConfig;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Accepts one request, answers it and returns it.
    fn collect(listener: &TcpListener) -> Vec<u8> {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let read = stream.read(&mut piece).expect("a request");
            bytes.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
            let Some(head_len) = text.find("\r\n\r\n") else { continue };
            let (_, length) = text.split_once("content-length: ").expect("a length");
            let length: usize = length.lines().next().expect("a line").parse().expect("a number");
            if read == 0 || bytes.len() >= head_len + 4 + length {
                break;
            }
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("an answer");
        bytes
    }

    fn sending_to(listener: &TcpListener) -> Traces {
        let url = format!("http://{}/v1/traces", listener.local_addr().expect("an address"));
        let exporter =
            SpanExporter::builder().with_http().with_http_client(Client::new().expect("a client"));
        let exporter = exporter.with_endpoint(url).build().expect("an exporter");
        Traces(SdkTracerProvider::builder().with_batch_exporter(exporter).build())
    }

    fn has(bytes: &[u8], text: &str) -> bool {
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    }

    #[test]
    fn spans_reach_a_collector_and_there_is_no_export_without_one() {
        assert!(Traces::begin(|_| None).expect("nothing to use").is_none());

        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let traces = sending_to(&listener);
        let collector = std::thread::spawn(move || collect(&listener));
        let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info_span!("an-event", home = 7).in_scope(|| {});
        });
        drop(traces);
        let request = collector.join().expect("no panic");
        assert!(request.starts_with(b"POST /v1/traces "), "{request:?}");
        assert!(has(&request, "an-event") && has(&request, "home"), "{request:?}");
    }

    #[test]
    fn a_collector_that_never_answers_delays_the_end_for_a_bounded_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let traces = sending_to(&listener);
        opentelemetry::trace::Tracer::start(&traces.tracer(), "an-event");
        let (ended, has_ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(traces);
            ended.send(Instant::now()).expect("the test waits");
        });
        has_ended.recv_timeout(Duration::from_secs(60)).expect("the end does not wait for ever");
    }
}
