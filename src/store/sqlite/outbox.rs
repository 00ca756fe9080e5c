//! The outbox, as rows: effects that are still to be carried out.

use rusqlite::{Connection, params};

use super::apply::{execute, failed};
use super::read::{all, readable};
use super::trouble::Troubles;
use crate::issue::EffectKind;
use crate::store::rows::{self, BadRow};
use crate::store::{CommitError, EffectDelay, EffectId, EffectRow, NewEffect, StoreError};
use crate::types::{HomeId, Timestamp};

/// Only the first effect of each home and kind, which those behind it wait for.
const IS_FIRST: &str = "NOT EXISTS (SELECT 1 FROM effect AS f
                                    WHERE f.home = e.home AND f.kind = e.kind AND f.id < e.id)";

pub(super) fn record(conn: &Connection, new: &NewEffect) -> Result<(), CommitError> {
    let NewEffect { home, effect, due_at } = new;
    // An equal effect keeps its tries and its due time; a different one replaces it and starts at zero.
    execute(
        conn,
        "INSERT INTO effect (home, kind, key, revision, due_at, tries, error, body)
         VALUES (?1, ?2, ?3, 0, ?4, 0, NULL, ?5)
         ON CONFLICT (home, kind, key) DO UPDATE
         SET revision = revision + 1, due_at = excluded.due_at, tries = 0, error = NULL,
             body = excluded.body
         WHERE body IS NOT excluded.body",
        params![
            home.0,
            effect.kind().as_str(),
            effect.key(),
            due_at.unix_ms(),
            rows::effect_body(effect).map_err(failed)?,
        ],
    )
    .map(|_recorded| ())
}

pub(super) fn list(
    conn: &Connection,
    troubles: &Troubles,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<EffectRow>, StoreError> {
    let sql = format!(
        "SELECT e.id, e.revision, e.home, e.kind, e.due_at, e.tries, e.body FROM effect AS e
         WHERE e.due_at <= ?1 AND {IS_FIRST} ORDER BY e.due_at, e.id"
    );
    readable(conn, troubles, &sql, [now.unix_ms()], limit, |row| {
        let (kind, body) = (row.get_ref(3)?.as_str()?, row.get_ref(6)?.as_str()?);
        Ok(EffectRow {
            id: EffectId { number: row.get(0)?, revision: row.get(1)? },
            home: HomeId(row.get(2)?),
            effect: rows::effect(kind, body)?,
            due_at: Timestamp::from_unix_ms(row.get(4)?),
            tries: row.get(5)?,
        })
    })
}

pub(super) fn next_due(conn: &Connection, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let sql = format!(
        "SELECT e.due_at FROM effect AS e WHERE e.due_at > ?1 AND {IS_FIRST}
         ORDER BY e.due_at, e.id LIMIT 1"
    );
    super::read::one(conn, &sql, [now.unix_ms()], |row| row.get(0).map(Timestamp::from_unix_ms))
}

pub(super) fn finish(conn: &Connection, id: EffectId) -> Result<usize, CommitError> {
    let sql = "DELETE FROM effect WHERE id = ?1 AND revision = ?2";
    execute(conn, sql, params![id.number, id.revision])
}

pub(super) fn delay(
    conn: &Connection,
    id: EffectId,
    delay: &EffectDelay,
) -> Result<usize, CommitError> {
    execute(
        conn,
        "UPDATE effect SET due_at = ?3, tries = ?4, error = ?5 WHERE id = ?1 AND revision = ?2",
        params![id.number, id.revision, delay.due_at.unix_ms(), delay.tries, delay.reason],
    )
}

pub(super) fn counts(conn: &Connection) -> Result<Vec<(EffectKind, u64)>, StoreError> {
    let sql = "SELECT kind, count(*) FROM effect GROUP BY kind ORDER BY kind";
    all(conn, sql, [], |row| {
        let word = row.get_ref(0)?.as_str()?;
        let kind = EffectKind::parse(word).ok_or_else(|| BadRow::UnknownWord(word.into()))?;
        Ok((kind, row.get::<_, i64>(1)?.cast_unsigned()))
    })
}
