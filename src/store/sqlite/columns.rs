//! Which columns of a row are read, and how they become domain values.

use rusqlite::Row;
use rusqlite::types::Type;

use crate::issue::Issue;
use crate::store::rows::{self, BadRow, EndedColumns, IssueColumns};
use crate::types::{Phase, Sandbox};

impl From<BadRow> for rusqlite::Error {
    fn from(bad: BadRow) -> Self {
        Self::FromSqlConversionFailure(0, Type::Text, Box::new(bad))
    }
}

/// The columns that [`issue`] reads, in its order, of `issue AS i` joined with `account AS a`.
pub(super) const ISSUE_COLUMNS: &str = "i.home, a.name, i.version, i.phase, i.sandbox_id, \
     i.provider, i.external_id, i.created_at, i.body";

fn issue_columns<'a>(row: &'a Row<'_>) -> rusqlite::Result<IssueColumns<'a>> {
    Ok(IssueColumns {
        home: row.get(0)?,
        account: row.get_ref(1)?.as_str()?,
        version: row.get(2)?,
        phase: row.get_ref(3)?.as_str_or_null()?,
        sandbox_id: row.get_ref(4)?.as_str_or_null()?,
        provider: row.get_ref(5)?.as_str_or_null()?,
        external_id: row.get_ref(6)?.as_str_or_null()?,
        created_at: row.get(7)?,
        body: row.get_ref(8)?.as_str()?,
    })
}

/// Reads a row of [`ISSUE_COLUMNS`].
pub(super) fn issue(row: &Row<'_>) -> rusqlite::Result<Issue> {
    Ok(issue_columns(row)?.decode()?)
}

/// Reads the live sandbox out of a row of [`ISSUE_COLUMNS`] that has one.
pub(super) fn live_sandbox(row: &Row<'_>) -> rusqlite::Result<Sandbox> {
    Ok(issue_columns(row)?.live_sandbox()?)
}

/// The columns that [`ended`] reads, in its order, of `ended AS i` joined with `account AS a`.
pub(super) const ENDED_COLUMNS: &str =
    "i.home, a.name, i.generation, i.sandbox_id, i.provider, i.external_id, i.created_at, i.body";

/// Reads a row of [`ENDED_COLUMNS`].
pub(super) fn ended(row: &Row<'_>) -> rusqlite::Result<Sandbox> {
    let columns = EndedColumns {
        home: row.get(0)?,
        account: row.get_ref(1)?.as_str()?,
        generation: row.get(2)?,
        sandbox_id: row.get_ref(3)?.as_str()?,
        provider: row.get_ref(4)?.as_str()?,
        external_id: row.get_ref(5)?.as_str_or_null()?,
        created_at: row.get(6)?,
        body: row.get_ref(7)?.as_str()?,
    };
    Ok(columns.decode()?)
}

/// Reads a phase out of a column.
pub(super) fn phase(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Phase>> {
    Ok(rows::parse_phase(row.get_ref(column)?.as_str_or_null()?)?)
}
