//! Deliveries that are applied to one issue after the other: durable first, then pending until
//! done or set aside.

use rusqlite::{Connection, params};

use super::apply::{GuidKey, execute, failed, stored_account};
use super::read::{account_of, readable};
use super::trouble::Troubles;
use crate::issue::FanOut;
use crate::store::{CommitError, PENDING_TRIES_MAX, PendingRow, StoreError, rows};
use crate::types::{DeliveryId, HomeId, Timestamp};

/// What a delivery says of itself while it is pending.
const REASON: &str = "is being applied to each issue that it concerns";

pub(super) fn put(conn: &Connection, fan_out: &FanOut) -> Result<usize, CommitError> {
    let inserted = execute(
        conn,
        "INSERT INTO delivery (guid, received_at, event, action, home, applied, reason, state,
                               recovered, account)
         VALUES (?1, ?2, ?3, ?4, NULL, 0, ?5, 'pending', ?6, ?7) ON CONFLICT (guid) DO NOTHING",
        params![
            GuidKey::of(&fan_out.delivery),
            fan_out.received_at.unix_ms(),
            fan_out.event,
            fan_out.action,
            REASON,
            fan_out.recovered,
            stored_account(&fan_out.account),
        ],
    )?;
    if inserted == 0 {
        return Err(CommitError::DuplicateDelivery);
    }
    execute(
        conn,
        "INSERT INTO pending (delivery, tries, done_to, body) VALUES (?1, 0, NULL, ?2)",
        params![conn.last_insert_rowid(), rows::fan_out_body(fan_out).map_err(failed)?],
    )
}

pub(super) fn list(
    conn: &Connection,
    troubles: &Troubles,
    limit: usize,
) -> Result<Vec<PendingRow>, StoreError> {
    readable(
        conn,
        troubles,
        "SELECT d.guid, d.received_at, d.event, d.action, p.tries, p.done_to, p.body, d.recovered,
                d.account
         FROM pending AS p JOIN delivery AS d ON d.id = p.delivery
         ORDER BY p.delivery",
        [],
        limit,
        |row| {
            let (delivery, received_at) =
                (GuidKey::read(row, 0)?, Timestamp::from_unix_ms(row.get(1)?));
            let body = row.get_ref(6)?.as_str()?;
            let (event, action, recovered) = (row.get(2)?, row.get(3)?, row.get(7)?);
            let account = account_of(row, 8)?;
            Ok(PendingRow {
                fan_out: FanOut {
                    account,
                    ..rows::fan_out(body, delivery, received_at, recovered, event, action)?
                },
                tries: row.get(4)?,
                done_to: row.get::<_, Option<i64>>(5)?.map(HomeId),
            })
        },
    )
}

pub(super) fn advance(
    conn: &Connection,
    id: &DeliveryId,
    done_to: HomeId,
) -> Result<usize, CommitError> {
    execute(
        conn,
        "UPDATE pending SET done_to = max(coalesce(done_to, ?2), ?2)
         WHERE delivery = (SELECT id FROM delivery WHERE guid = ?1)",
        params![GuidKey::of(id), done_to.0],
    )
}

pub(super) fn finish(
    conn: &Connection,
    id: &DeliveryId,
    applied: bool,
    reason: &str,
) -> Result<usize, CommitError> {
    let sql = "UPDATE delivery SET state = NULL, applied = ?2, reason = ?3
               WHERE guid = ?1 AND state = 'pending'";
    let finished = execute(conn, sql, params![GuidKey::of(id), applied, reason])?;
    forget(conn, id)?;
    Ok(finished)
}

pub(super) fn fail(conn: &Connection, id: &DeliveryId, error: &str) -> Result<usize, CommitError> {
    let failed = execute(
        conn,
        "UPDATE pending SET tries = tries + 1
         WHERE delivery = (SELECT id FROM delivery WHERE guid = ?1)",
        [GuidKey::of(id)],
    )?;
    let set_aside = execute(
        conn,
        "UPDATE delivery SET state = 'set_aside', reason = ?2
         WHERE guid = ?1 AND id IN (SELECT delivery FROM pending WHERE tries >= ?3)",
        params![GuidKey::of(id), error, PENDING_TRIES_MAX],
    )?;
    if set_aside > 0 {
        forget(conn, id)?;
    }
    Ok(failed)
}

/// It is no longer to be applied.
fn forget(conn: &Connection, id: &DeliveryId) -> Result<(), CommitError> {
    let sql = "DELETE FROM pending WHERE delivery = (SELECT id FROM delivery WHERE guid = ?1)";
    execute(conn, sql, [GuidKey::of(id)]).map(|_removed| ())
}
