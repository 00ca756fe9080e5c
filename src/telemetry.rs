//! The log, one line an event, on standard error; and `traces`, if a collector is configured.
//!
//! `ISSUEBOX_LOG` filters it (`serve` logs `info` when it is unset; the syntax is `tracing-subscriber`'s, such as
//! `issuebox=debug,info`), `ISSUEBOX_LOG_FORMAT=json` makes each line a JSON object.
//!
//! # Guarantees
//! A value stays within its line: control characters are escaped, so that an issue's title can neither
//! forge a line nor send commands to a terminal. Colours are used on a terminal only, and not if
//! `NO_COLOR` is set.
//!
//! # Spans
//! While an issue's actor handles an event, log lines are in a span `event` with the home, the kind of
//! event and its delivery. The outer spans (delivery, request, provider call) are costly, so they exist
//! for traces only.

mod flood;
mod traces;

use std::io::IsTerminal;

use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::types::inert;

use flood::{FloodGate, Gated};
use traces::Traces;

pub use flood::LIFE;
pub use traces::TracesError;

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `ISSUEBOX_LOG` is no filter.
    #[error("ISSUEBOX_LOG must be a filter such as info or issuebox=debug, not {0:?}")]
    Filter(String, #[source] ParseError),
    /// `ISSUEBOX_LOG_FORMAT` is no format.
    #[error("ISSUEBOX_LOG_FORMAT must be json or compact, not {0:?}")]
    Format(String),
    /// Traces cannot be exported.
    #[error(transparent)]
    Traces(#[from] traces::TracesError),
    /// Logging was already set up in this process.
    #[error("logging is already set up in this process")]
    Taken(#[from] TryInitError),
}

/// The result of [`init`]. A drop at the end of the process sends the last spans.
#[must_use]
pub struct Telemetry {
    _traces: Option<Traces>,
    flood: FloodGate,
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.flood.write_counts();
    }
}

/// Sets up the process's log, and traces if a collector is configured. `filter_default` applies if
/// `ISSUEBOX_LOG` is unset.
///
/// # Errors
/// [`TelemetryError`] if a variable is wrong or logging was already set up.
pub fn init(filter_default: &str) -> Result<Telemetry, TelemetryError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|word| !word.is_empty());
    let plain = !std::io::stderr().is_terminal() || variable("NO_COLOR").is_some();
    let format = Format::parse(variable("ISSUEBOX_LOG_FORMAT").as_deref(), !plain)?;
    let filter = variable("ISSUEBOX_LOG").unwrap_or_else(|| filter_default.to_owned());
    let traces = Traces::begin(variable)?;
    let flood = FloodGate::default();
    let lines = lines(format, &filter, flood.clone(), std::io::stderr)?;
    let spans = traces.as_ref().map(|traces| {
        let ours = tracing_subscriber::filter::Targets::new()
            .with_target(env!("CARGO_CRATE_NAME"), LevelFilter::DEBUG);
        tracing_opentelemetry::layer().with_tracer(traces.tracer()).with_filter(ours)
    });
    tracing_subscriber::registry().with(lines).with(spans).try_init()?;
    Ok(Telemetry { _traces: traces, flood })
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// For people.
    Compact { colours: bool },
    /// For programs.
    Json,
}

impl Format {
    fn parse(word: Option<&str>, colours: bool) -> Result<Self, TelemetryError> {
        match word {
            Some("json") => Ok(Self::Json),
            Some("compact") | None => Ok(Self::Compact { colours }),
            Some(other) => Err(TelemetryError::Format(other.to_owned())),
        }
    }
}

/// The target that has an ERROR line for every connection with bytes that are no request, so that
/// any client could fill the log. The metric `issuebox_http_cut_offs` counts them; a filter that
/// names the target shows them.
const CONNECTIONS: &str = "actix_http::h1::dispatcher";

/// The subscriber that formats and writes lines.
fn lines<W>(
    format: Format,
    filter: &str,
    gate: FloodGate,
    writer: W,
) -> Result<Box<dyn Layer<Registry> + Send + Sync>, TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let mut parsed =
        EnvFilter::try_new(filter).map_err(|e| TelemetryError::Filter(filter.to_owned(), e))?;
    if !filter.contains(CONNECTIONS) {
        parsed = parsed.add_directive(format!("{CONNECTIONS}=off").parse().expect("it is one"));
    }
    let filter = parsed;
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    Ok(match format {
        Format::Compact { colours } => {
            // The default formatter prints line breaks in values unescaped.
            let fields = debug_fn(write_field).delimited(" ");
            let lines = lines.with_ansi(colours).fmt_fields(fields).compact();
            let lines = lines.map_event_format(|format| Gated { format, gate });
            lines.with_filter(filter).boxed()
        }
        Format::Json => {
            let lines = lines.with_ansi(false).json().flatten_event(true);
            let lines = lines.map_event_format(|format| Gated { format, gate });
            lines.with_filter(filter).boxed()
        }
    })
}

fn write_field(
    writer: &mut Writer<'_>,
    field: &Field,
    value: &dyn std::fmt::Debug,
) -> std::fmt::Result {
    let value = format!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{}", inert(&value)),
        name => write!(writer, "{name}={}", inert(&value)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(format: Format, filter: &str, log: impl FnOnce()) -> String {
        let kept = Lines::default();
        let writer = kept.clone();
        let lines = super::lines(format, filter, FloodGate::default(), move || writer.clone())
            .expect("a valid filter");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log);
        let bytes = kept.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    fn log_a_forgery() {
        let title = "x\n2026-01-01T00:00:00Z  INFO all is well\x1b[2J";
        let span = tracing::info_span!("delivery", issue.title = %title);
        let _in_span = span.enter();
        tracing::info!(issue.title = %title, "title is {title}");
    }

    #[test]
    fn values_cannot_forge_lines() {
        for colours in [false, true] {
            let text = written(Format::Compact { colours }, "info", log_a_forgery);
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(!text.contains("\x1b[2J"), "{text}");
            assert_eq!(text.matches("\\n2026-01-01").count(), 3, "{text}");
        }
        let text = written(Format::Json, "info", log_a_forgery);
        assert_eq!(text.lines().count(), 1, "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["level"], "INFO");
    }

    #[test]
    fn without_colours_there_is_no_escape_at_all() {
        let text = written(Format::Compact { colours: false }, "info", log_a_forgery);
        assert!(!text.contains('\x1b'), "{text}");
    }

    #[test]
    fn the_filter_decides_what_is_logged() {
        let log = || {
            tracing::debug!("quiet");
            tracing::error!("loud");
        };
        let text = written(Format::Compact { colours: false }, "info", log);
        assert!(text.contains("loud") && !text.contains("quiet"), "{text}");
        let text = written(Format::Compact { colours: false }, "issuebox=debug", log);
        assert!(text.contains("quiet"), "{text}");
    }

    #[test]
    fn a_flood_of_one_error_is_a_few_lines_and_a_count() {
        let flood = FloodGate::default();
        let kept = Lines::default();
        let writer = kept.clone();
        let format = Format::Compact { colours: false };
        let lines = super::lines(format, "info", flood.clone(), move || writer.clone());
        let lines = lines.expect("a valid filter");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            for home in 0..500 {
                tracing::error!(home, error = "the disk is full", "failed to store a step");
                tracing::info!("all others are written");
                tracing::warn!(target: LIFE, home, "sandbox failed");
            }
            flood.write_counts();
        });
        let text = String::from_utf8(kept.0.lock().expect("not poisoned").clone()).expect("UTF-8");
        let count = |line: &str| text.matches(line).count();
        assert_eq!(count("failed to store a step home="), 10, "{text}");
        assert_eq!((count("all others are written"), count("sandbox failed")), (500, 500));
        assert!(text.contains("count=490 line=\"failed to store a step\""), "{text}");
    }

    #[test]
    fn connections_without_a_request_do_not_fill_the_log() {
        let log = || tracing::error!(target: "actix_http::h1::dispatcher", "stream error");
        let of = |filter: &str| written(Format::Compact { colours: false }, filter, log);
        assert_eq!(of("info"), "");
        assert!(of("info,actix_http::h1::dispatcher=error").contains("stream error"));
    }

    #[test]
    fn wrong_variables_are_named() {
        let error = Format::parse(Some("xml"), false).expect_err("no format");
        insta::assert_snapshot!(error, @r#"ISSUEBOX_LOG_FORMAT must be json or compact, not "xml""#);
        let error =
            lines(Format::Json, "a=b=c", FloodGate::default(), io::sink).err().expect("no filter");
        insta::assert_snapshot!(
            error,
            @r#"ISSUEBOX_LOG must be a filter such as info or issuebox=debug, not "a=b=c""#
        );
    }
}
