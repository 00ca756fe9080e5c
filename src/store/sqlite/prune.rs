//! What is too old goes, in bites that the writer takes between other writes.
//!
//! Rows are in the order of their commits, so the old ones are at the beginning. An index by time
//! would be one more to write for every delivery; instead a bite looks at the first rows alone,
//! and at some more than it may remove, so that a few that stay (pending, or with a wrong time of
//! the clock) do not hide those behind them.

use rusqlite::{Connection, params};

use super::apply::execute;
use super::read::bound;
use crate::store::CommitError;
use crate::types::Timestamp;

/// Most rows of one bite. With random GUIDs each is a page of its own in their index: a bite must
/// not take longer than a few milliseconds.
pub(super) const BITE_ROWS_MAX: usize = 256;

/// How many rows that stay a bite looks past.
const STAYING_ROWS_MAX: usize = 4_096;

pub(super) fn deliveries(
    conn: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<usize, CommitError> {
    execute(
        conn,
        "DELETE FROM delivery WHERE id IN (
             SELECT id FROM (SELECT id, received_at, state FROM delivery ORDER BY id LIMIT ?3)
             WHERE received_at < ?1 AND state IS NOT 'pending' LIMIT ?2)",
        params![before.unix_ms(), bound(limit), bound(limit + STAYING_ROWS_MAX)],
    )
}

pub(super) fn timeline(
    conn: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<usize, CommitError> {
    execute(
        conn,
        "DELETE FROM timeline WHERE id IN (
             SELECT id FROM (SELECT id, at FROM timeline ORDER BY id LIMIT ?3)
             WHERE at < ?1 LIMIT ?2)",
        params![before.unix_ms(), bound(limit), bound(limit + STAYING_ROWS_MAX)],
    )
}

/// Those with a synced workspace stay: by them its versions are found.
pub(super) fn deleted(
    conn: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<usize, CommitError> {
    execute(
        conn,
        "DELETE FROM ended WHERE id IN (
             SELECT id FROM (SELECT id, sandbox_id, body ->> '$.deleted_at' AS at FROM ended
                             ORDER BY id LIMIT ?3)
             WHERE at < ?1 AND sandbox_id NOT IN (SELECT sandbox FROM sync) LIMIT ?2)",
        params![before.unix_ms(), bound(limit), bound(limit + STAYING_ROWS_MAX)],
    )
}
