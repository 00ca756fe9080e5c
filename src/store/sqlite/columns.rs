//! Which columns of a row are read, and how they become domain values.

use rusqlite::Row;
use rusqlite::types::{Type, ValueRef};

use super::trouble::{is_damage, text_of};

use crate::issue::Issue;
use crate::store::rows::{self, BadRow, EndedColumns, IssueColumns};
use crate::types::{Phase, Sandbox};

impl From<BadRow> for rusqlite::Error {
    fn from(bad: BadRow) -> Self {
        // It names what it is about by itself.
        Self::FromSqlConversionFailure(NO_COLUMN, Type::Text, Box::new(bad))
    }
}

/// Where the fault is in no column alone.
pub(super) const NO_COLUMN: usize = usize::MAX;

/// A row that cannot be read, with its place.
#[derive(Debug, thiserror::Error)]
#[error("the row of home {home} in the table {table} cannot be read: {why}")]
struct UnreadableRow {
    table: &'static str,
    home: String,
    why: String,
}

/// Says of a failed reading of this row, whose first column is its home, its place.
fn placed<T>(table: &'static str, row: &Row<'_>, read: rusqlite::Result<T>) -> rusqlite::Result<T> {
    read.map_err(|error| {
        if !is_damage(&error) {
            return error;
        }
        let home = row.get::<_, i64>(0).map_or_else(|_| "?".to_owned(), |home| home.to_string());
        let column = match &error {
            rusqlite::Error::FromSqlConversionFailure(column, ..)
            | rusqlite::Error::IntegralValueOutOfRange(column, _)
            | rusqlite::Error::InvalidColumnType(column, ..)
            | rusqlite::Error::Utf8Error(column, _) => *column,
            // No other error is damage of a row.
            _ => NO_COLUMN,
        };
        let why = match row.as_ref().column_name(column) {
            Ok(name) => format!("column {name}: {}", text_of(&error)),
            Err(_) => text_of(&error),
        };
        let row = UnreadableRow { table, home, why };
        rusqlite::Error::FromSqlConversionFailure(NO_COLUMN, Type::Text, Box::new(row))
    })
}

/// The text of a column, whose name an error has.
fn text<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<&'a str> {
    let value = row.get_ref(column)?;
    value.as_str().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, value.data_type(), Box::new(error))
    })
}

/// The same of a column that may be empty.
fn text_or_null<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<Option<&'a str>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => text(row, column).map(Some),
    }
}

/// The columns that [`issue`] reads, in its order, of `issue AS i` joined with `account AS a`.
pub(super) const ISSUE_COLUMNS: &str = "i.home, a.name, i.version, i.phase, i.sandbox_id, \
     i.provider, i.external_id, i.created_at, i.body";

fn issue_columns<'a>(row: &'a Row<'_>) -> rusqlite::Result<IssueColumns<'a>> {
    Ok(IssueColumns {
        home: row.get(0)?,
        account: text(row, 1)?,
        version: row.get(2)?,
        phase: text_or_null(row, 3)?,
        sandbox_id: text_or_null(row, 4)?,
        provider: text_or_null(row, 5)?,
        external_id: text_or_null(row, 6)?,
        created_at: row.get(7)?,
        body: text(row, 8)?,
    })
}

/// Reads a row of [`ISSUE_COLUMNS`].
pub(super) fn issue(row: &Row<'_>) -> rusqlite::Result<Issue> {
    let read = issue_columns(row).and_then(|columns| Ok(columns.decode()?));
    placed("issue", row, read)
}

/// Reads the live sandbox out of a row of [`ISSUE_COLUMNS`] that has one.
pub(super) fn live_sandbox(row: &Row<'_>) -> rusqlite::Result<Sandbox> {
    let read = issue_columns(row).and_then(|columns| Ok(columns.live_sandbox()?));
    placed("issue", row, read)
}

/// The columns that [`ended`] reads, in its order, of `ended AS i` joined with `account AS a`.
pub(super) const ENDED_COLUMNS: &str =
    "i.home, a.name, i.generation, i.sandbox_id, i.provider, i.external_id, i.created_at, i.body";

/// Reads a row of [`ENDED_COLUMNS`].
pub(super) fn ended(row: &Row<'_>) -> rusqlite::Result<Sandbox> {
    let read = ended_columns(row).and_then(|columns| Ok(columns.decode()?));
    placed("ended", row, read)
}

fn ended_columns<'a>(row: &'a Row<'_>) -> rusqlite::Result<EndedColumns<'a>> {
    Ok(EndedColumns {
        home: row.get(0)?,
        account: text(row, 1)?,
        generation: row.get(2)?,
        sandbox_id: text(row, 3)?,
        provider: text(row, 4)?,
        external_id: text_or_null(row, 5)?,
        created_at: row.get(6)?,
        body: text(row, 7)?,
    })
}

/// Reads a phase out of a column.
pub(super) fn phase(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Phase>> {
    Ok(rows::parse_phase(row.get_ref(column)?.as_str_or_null()?)?)
}
