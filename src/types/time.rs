//! Points in time, as milliseconds since 1970 in UTC, printed as RFC 3339.

use std::fmt;
use std::time::Duration;

/// A point in time with a resolution of one millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    unix_ms: i64,
}

impl Timestamp {
    /// From milliseconds since 1970-01-01T00:00:00Z.
    pub const fn from_unix_ms(unix_ms: i64) -> Self {
        Self { unix_ms }
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn unix_ms(self) -> i64 {
        self.unix_ms
    }

    /// Parses RFC 3339, such as GitHub's `2026-01-31T12:00:00Z`. `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let parsed: jiff::Timestamp = text.parse().ok()?;
        Some(Self { unix_ms: parsed.as_millisecond() })
    }

    /// This much later; saturates at the end of time.
    pub fn after(self, span: Duration) -> Self {
        let ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self { unix_ms: self.unix_ms.saturating_add(ms) }
    }

    /// This much earlier; saturates at the beginning of time.
    pub fn before(self, span: Duration) -> Self {
        let ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self { unix_ms: self.unix_ms.saturating_sub(ms) }
    }

    /// The time from `earlier` until this; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.unix_ms - earlier.unix_ms).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds, such as `2026-01-31T12:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.unix_ms) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{}ms", self.unix_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses_rfc_3339() {
        let time = Timestamp::parse("2026-01-31T12:00:00Z").expect("RFC 3339");
        assert_eq!(time.to_string(), "2026-01-31T12:00:00.000Z");
        assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
        assert_eq!(Timestamp::parse("yesterday"), None);
    }

    #[test]
    fn spans_never_go_below_zero() {
        let early = Timestamp::from_unix_ms(1_000);
        let late = early.after(Duration::from_secs(2));
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.before(Duration::from_secs(2)), early);
    }
}
