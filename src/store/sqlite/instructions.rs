//! What people asked for in words, as rows.
//!
//! A row stays until its issue is deleted on GitHub. It moves to the other home when two homes turn
//! out to be one issue.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, Row, params};

use super::apply::{GuidKey, execute, failed};
use super::read::{all, bound, one};
use crate::issue::{Instruction, InstructionExcerpt};
use crate::store::{CommitError, InstructionRow, StoreError, rows};
use crate::types::{DeliveryId, HomeId};

pub(super) fn insert(
    conn: &Connection,
    home: HomeId,
    delivery: &DeliveryId,
    instruction: &Instruction,
) -> Result<(), CommitError> {
    execute(
        conn,
        "INSERT INTO instruction (home, guid, body, text) VALUES (?1, ?2, ?3, ?4)",
        params![
            home.0,
            GuidKey::of(delivery),
            rows::instruction_body(instruction).map_err(failed)?,
            instruction.text,
        ],
    )
    .map(|_inserted| ())
}

/// What these deliveries brought, as far as a timeline shows it. Those of a home that gave way are
/// kept by the other.
pub(super) fn excerpts(
    conn: &Connection,
    home: HomeId,
    deliveries: &HashSet<DeliveryId>,
) -> Result<HashMap<DeliveryId, InstructionExcerpt>, StoreError> {
    if deliveries.is_empty() {
        return Ok(HashMap::new());
    }
    let keeper = "SELECT coalesce(body ->> '$.merged_into', home) FROM issue WHERE home = ?1";
    let keeper = one(conn, keeper, [home.0], |row| row.get::<_, i64>(0))?.unwrap_or(home.0);
    // The keys alone first, since texts can be long.
    let sql = "SELECT id, guid FROM instruction WHERE home = ?1";
    let keys = all(conn, sql, [keeper], |row| Ok((row.get::<_, i64>(0)?, GuidKey::read(row, 1)?)))?;
    let mut excerpts = HashMap::new();
    for (id, delivery) in keys.into_iter().filter(|(_, guid)| deliveries.contains(guid)) {
        let sql = "SELECT body, text FROM instruction WHERE id = ?1";
        let excerpt =
            one(conn, sql, [id], |row| Ok(InstructionExcerpt::of(&instruction(row, 0)?)))?;
        excerpts.extend(excerpt.map(|excerpt| (delivery, excerpt)));
    }
    Ok(excerpts)
}

/// Reads an instruction out of a row's body and text, which begin at this column.
pub(super) fn instruction(row: &Row<'_>, at: usize) -> rusqlite::Result<Instruction> {
    let text = row.get_ref(at + 1)?.as_str_or_null()?;
    Ok(rows::instruction(row.get_ref(at)?.as_str()?, text)?)
}

/// Gives every instruction of a home to another, behind those that it has.
pub(super) fn hand_over(conn: &Connection, from: HomeId, to: HomeId) -> Result<(), CommitError> {
    let moved = execute(
        conn,
        "INSERT INTO instruction (home, guid, body, text)
         SELECT ?2, guid, body, text FROM instruction WHERE home = ?1 ORDER BY id",
        params![from.0, to.0],
    )?;
    if moved > 0 { remove(conn, from) } else { Ok(()) }
}

/// Removes every instruction of a home.
pub(super) fn remove(conn: &Connection, home: HomeId) -> Result<(), CommitError> {
    execute(conn, "DELETE FROM instruction WHERE home = ?1", [home.0]).map(|_removed| ())
}

pub(super) fn list(
    conn: &Connection,
    home: HomeId,
    after: i64,
    limit: usize,
) -> Result<Vec<InstructionRow>, StoreError> {
    all(
        conn,
        "SELECT id, guid, body, text FROM instruction WHERE home = ?1 AND id > ?2
         ORDER BY id LIMIT ?3",
        params![home.0, after, bound(limit)],
        |row| {
            Ok(InstructionRow {
                number: row.get(0)?,
                delivery: GuidKey::read(row, 1)?,
                instruction: instruction(row, 2)?,
            })
        },
    )
}
