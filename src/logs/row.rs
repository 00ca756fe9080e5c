//! Log entries as lines of JSON.

use serde::{Deserialize, Serialize};

use super::{LogEntry, LogStream};
use crate::types::Timestamp;

/// One line: JSON.
#[derive(Serialize, Deserialize)]
struct Row<'a> {
    n: u64,
    at: i64,
    exec: std::borrow::Cow<'a, str>,
    stream: std::borrow::Cow<'a, str>,
    text: std::borrow::Cow<'a, str>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

/// A line with its end.
pub(super) fn write(entry: &LogEntry) -> String {
    let row = Row {
        n: entry.n,
        at: entry.at.unix_ms(),
        exec: entry.exec.as_str().into(),
        stream: entry.stream.as_str().into(),
        text: entry.text.as_str().into(),
        partial: entry.is_partial,
    };
    let mut line = serde_json::to_string(&row).expect("texts and numbers are JSON");
    line.push('\n');
    line
}

/// `None` if the line was cut off or is of a later version.
pub(super) fn read(line: &[u8]) -> Option<LogEntry> {
    let row: Row<'_> = serde_json::from_slice(line).ok()?;
    let stream = LogStream::ALL.into_iter().find(|stream| stream.as_str() == row.stream)?;
    Some(LogEntry {
        n: row.n,
        at: Timestamp::from_unix_ms(row.at),
        exec: row.exec.into_owned(),
        stream,
        text: row.text.into_owned(),
        is_partial: row.partial,
    })
}
