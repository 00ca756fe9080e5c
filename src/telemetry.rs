//! The log: one line an event, on standard error.
//!
//! `ISSUEBOX_LOG` filters it (`serve` logs `info` when it is unset; the syntax is `tracing-subscriber`'s, such as
//! `issuebox=debug,info`), `ISSUEBOX_LOG_FORMAT=json` makes each line a JSON object.
//!
//! # Guarantees
//! What a value holds stays within its line: control characters in a message or field are written
//! as escapes, so that a title can neither forge a line nor paint a terminal. Colours are used on
//! a terminal only, and not where `NO_COLOR` is set.

use std::io::IsTerminal;

use tracing::field::Field;
use tracing::{Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::types::inert;

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `ISSUEBOX_LOG` is no filter.
    #[error("ISSUEBOX_LOG must be a filter such as info or issuebox=debug, not {0:?}")]
    Filter(String, #[source] ParseError),
    /// `ISSUEBOX_LOG_FORMAT` is no format.
    #[error("ISSUEBOX_LOG_FORMAT must be json or compact, not {0:?}")]
    Format(String),
    /// A log was set up before in this process.
    #[error("the log cannot be set up")]
    Taken(#[from] TryInitError),
}

/// Sets up the log of this process. `filter_default` holds where `ISSUEBOX_LOG` is unset.
///
/// # Errors
/// [`TelemetryError`] when a variable is wrong or a log was set up before.
pub fn init(filter_default: &str) -> Result<(), TelemetryError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|word| !word.is_empty());
    let plain = !std::io::stderr().is_terminal() || variable("NO_COLOR").is_some();
    let format = Format::parse(variable("ISSUEBOX_LOG_FORMAT").as_deref(), !plain)?;
    let filter = variable("ISSUEBOX_LOG").unwrap_or_else(|| filter_default.to_owned());
    subscriber(format, &filter, std::io::stderr)?.try_init()?;
    Ok(())
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

fn subscriber<W>(
    format: Format,
    filter: &str,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter =
        EnvFilter::try_new(filter).map_err(|e| TelemetryError::Filter(filter.to_owned(), e))?;
    let lines = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(writer);
    Ok(match format {
        Format::Compact { colours } => {
            // The stock formatter writes values as they print, line breaks included.
            let fields = debug_fn(write_field).delimited(" ");
            let lines = lines.with_ansi(colours).fmt_fields(fields).compact();
            Box::new(lines.with_env_filter(filter).finish())
        }
        Format::Json => {
            let lines = lines.with_ansi(false).json().flatten_event(true);
            Box::new(lines.with_env_filter(filter).finish())
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
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber =
            subscriber(format, filter, move || writer.clone()).expect("a valid filter");
        tracing::subscriber::with_default(subscriber, log);
        let bytes = lines.0.lock().expect("not poisoned").clone();
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
    fn wrong_variables_are_named() {
        let error = Format::parse(Some("xml"), false).expect_err("no format");
        insta::assert_snapshot!(error, @r#"ISSUEBOX_LOG_FORMAT must be json or compact, not "xml""#);
        let error = subscriber(Format::Json, "a=b=c", io::sink).err().expect("no filter");
        insta::assert_snapshot!(
            error,
            @r#"ISSUEBOX_LOG must be a filter such as info or issuebox=debug, not "a=b=c""#
        );
    }
}
