//! Reads of single things and of what the engine goes through: states, names, what is due.
//!
//! They run on the caller's thread with a connection of a small pool. Each sees all that was
//! committed when it began, and never waits for the writer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::apply::{self, GuidKey};
use super::trouble::{Troubles, path_of, read_error};
use super::{columns, open};
use crate::issue::{Issue, Scope};
use crate::store::{
    DeliveryRow, DeliveryState, Look, LookAsk, NumberedHome, PendingStartRow, StoreError, rows,
};
use crate::types::{
    AccountName, Alias, DeliveryId, HomeId, IssueId, Phase, ProviderName, Sandbox, SandboxId,
    Timestamp,
};

/// Most idle connections kept open. Readers are threads of the server, so there are
/// never many more at once; those beyond this are closed after use.
const IDLE_READERS_MAX: usize = 8;

/// The pool of connections that read.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    troubles: Arc<Troubles>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, troubles: Arc<Troubles>) -> Self {
        Self { path, troubles, idle: Mutex::new(Vec::new()) }
    }

    /// Reads with a connection of its own. A damage that this finds is noted.
    pub(super) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let result = self.read_plainly(query);
        if let Err(error) = &result {
            self.troubles.note(error);
        }
        result
    }

    fn read_plainly<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = match idle {
            Some(conn) => conn,
            None => open::reader(&self.path).map_err(|error| read_error(&self.path, &error))?,
        };
        let result = query(&conn);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_READERS_MAX {
            idle.push(conn);
        }
        result
    }
}

/// Sorts what SQLite says on this connection.
pub(super) fn failed(conn: &Connection) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| read_error(&path_of(conn), &error)
}

pub(super) fn one<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    conn.prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(params, read).optional())
        .map_err(failed(conn))
}

pub(super) fn all<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    conn.prepare_cached(sql)
        .and_then(|mut statement| statement.query_map(params, read)?.collect())
        .map_err(failed(conn))
}

/// Reads at most `limit` rows, of which the statement itself has no bound. Those that cannot be read
/// are noted and left out, so that they hold up no other.
pub(super) fn readable<T>(
    conn: &Connection,
    troubles: &Troubles,
    sql: &str,
    params: impl Params,
    limit: usize,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = conn.prepare_cached(sql).map_err(failed(conn))?;
    let mut rows = statement.query(params).map_err(failed(conn))?;
    let mut all = Vec::new();
    while all.len() < limit
        && let Some(row) = rows.next().map_err(failed(conn))?
    {
        match read(row).map_err(failed(conn)) {
            Ok(one) => all.push(one),
            Err(damaged @ StoreError::Damaged { .. }) => troubles.note(&damaged),
            Err(other) => return Err(other),
        }
    }
    Ok(all)
}

/// A count of things as a bound of a statement.
pub(super) fn bound(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The number of an account; `None` if nothing was ever stored for it.
pub(super) fn account(conn: &Connection, name: &AccountName) -> Result<Option<i64>, StoreError> {
    one(conn, "SELECT id FROM account WHERE name = ?1", [name.as_str()], |row| row.get(0))
}

pub(super) fn load(conn: &Connection, home: HomeId) -> Result<Option<Issue>, StoreError> {
    let sql = format!(
        "SELECT {} FROM issue AS i JOIN account AS a ON a.id = i.account WHERE i.home = ?1",
        columns::ISSUE_COLUMNS
    );
    one(conn, &sql, [home.0], columns::issue)
}

pub(super) fn resolve(
    conn: &Connection,
    name: &AccountName,
    alias: &Alias,
) -> Result<Option<HomeId>, StoreError> {
    match account(conn, name)? {
        Some(account) => apply::alias_home(conn, account, alias).map_err(failed(conn)),
        None => Ok(None),
    }
}

/// One statement for all, so that it is one read transaction: beginning and ending one costs more
/// than a seek. What is not asked for is NULL, which equals nothing.
pub(super) fn look(
    conn: &Connection,
    account: &AccountName,
    ask: &LookAsk<'_>,
) -> Result<Look, StoreError> {
    let found = one(
        conn,
        "SELECT received_at, event, action, d.home, applied, reason, state, recovered, d.account,
                (SELECT i.home FROM issue_alias AS i
                 WHERE i.account = a.id AND i.issue_id = ?3),
                n.home, n.repository_id
         FROM (SELECT (SELECT id FROM account WHERE name = ?1) AS id) AS a
         LEFT JOIN delivery AS d ON d.guid = ?2
         LEFT JOIN numbered_alias AS n
                ON n.account = a.id AND n.repository = ?4 AND n.number = ?5",
        params![
            account.as_str(),
            ask.delivery.map(GuidKey::of),
            ask.issue.map(IssueId::as_str),
            ask.numbered.map(|(repository, _)| repository.folded()),
            ask.numbered.map(|(_, number)| number.0.cast_signed()),
        ],
        |row| {
            let is_stored = row.get_ref(0)? != ValueRef::Null;
            let delivery = ask.delivery.filter(|_| is_stored).map(|id| delivery_row(row, id));
            Ok(Look {
                delivery: delivery.transpose()?,
                by_issue: row.get::<_, Option<i64>>(9)?.map(HomeId),
                by_number: match row.get::<_, Option<i64>>(10)? {
                    Some(home) => Some(NumberedHome {
                        home: HomeId(home),
                        repository_id: row.get::<_, Option<i64>>(11)?.map(i64::cast_unsigned),
                    }),
                    None => None,
                },
            })
        },
    )?;
    Ok(found.unwrap_or_default())
}

pub(super) fn delivery(
    conn: &Connection,
    id: &DeliveryId,
) -> Result<Option<DeliveryRow>, StoreError> {
    one(
        conn,
        "SELECT received_at, event, action, home, applied, reason, state, recovered, account
         FROM delivery WHERE guid = ?1",
        [GuidKey::of(id)],
        |row| delivery_row(row, id),
    )
}

/// Reads the first nine columns of a row of `delivery`, as they are selected above.
pub(super) fn delivery_row(row: &Row<'_>, id: &DeliveryId) -> rusqlite::Result<DeliveryRow> {
    Ok(DeliveryRow {
        account: account_of(row, 8)?,
        id: id.clone(),
        received_at: Timestamp::from_unix_ms(row.get(0)?),
        event: row.get(1)?,
        action: row.get(2)?,
        home: row.get::<_, Option<i64>>(3)?.map(HomeId),
        applied: row.get(4)?,
        reason: row.get(5)?,
        state: match row.get_ref(6)?.as_str_or_null()? {
            None => DeliveryState::Done,
            Some("pending") => DeliveryState::Pending,
            Some("set_aside") => DeliveryState::SetAside,
            Some(word) => return Err(rows::BadRow::UnknownWord(word.into()).into()),
        },
        recovered: row.get(7)?,
    })
}

/// Reads what [`stored_account`](super::apply::stored_account) wrote.
pub(super) fn account_of(row: &Row<'_>, column: usize) -> rusqlite::Result<AccountName> {
    let name = row.get_ref(column)?.as_str_or_null()?;
    Ok(name.map_or_else(AccountName::default_account, AccountName::trusted))
}

pub(super) fn due(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<HomeId>, StoreError> {
    all(
        conn,
        "SELECT home FROM issue WHERE due_at <= ?1 ORDER BY due_at, home LIMIT ?2",
        params![now.unix_ms(), bound(limit)],
        |row| row.get(0).map(HomeId),
    )
}

pub(super) fn next_due(conn: &Connection) -> Result<Option<Timestamp>, StoreError> {
    one(
        conn,
        "SELECT due_at FROM issue WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1",
        [],
        |row| row.get(0).map(Timestamp::from_unix_ms),
    )
}

pub(super) fn live(
    conn: &Connection,
    troubles: &Troubles,
    after: Option<HomeId>,
    limit: usize,
) -> Result<Vec<Issue>, StoreError> {
    // By its own index: past homes stay in the table, and there come to be many more of them.
    let sql = format!(
        "SELECT {} FROM issue AS i INDEXED BY issue_live JOIN account AS a ON a.id = i.account
         WHERE i.phase IS NOT NULL AND i.home > ?1 ORDER BY i.home",
        columns::ISSUE_COLUMNS
    );
    let after = after.map_or(i64::MIN, |home| home.0);
    readable(conn, troubles, &sql, [after], limit, columns::issue)
}

pub(super) fn sandbox(
    conn: &Connection,
    name: &AccountName,
    id: &SandboxId,
) -> Result<Option<Sandbox>, StoreError> {
    let sql = format!(
        "SELECT {} FROM issue AS i JOIN account AS a ON a.id = i.account
         WHERE i.sandbox_id = ?1 AND a.name = ?2",
        columns::ISSUE_COLUMNS
    );
    let issue = one(conn, &sql, [id.as_str(), name.as_str()], columns::issue)?;
    if let Some(sandbox) = issue.and_then(|issue| issue.sandbox()) {
        return Ok(Some(sandbox));
    }
    let sql = format!(
        "SELECT {} FROM ended AS i JOIN account AS a ON a.id = i.account
         WHERE i.sandbox_id = ?1 AND a.name = ?2",
        columns::ENDED_COLUMNS
    );
    one(conn, &sql, [id.as_str(), name.as_str()], columns::ended)
}

pub(super) fn newest_sandbox(
    conn: &Connection,
    home: HomeId,
) -> Result<Option<Sandbox>, StoreError> {
    let issue = load(conn, home)?;
    if let Some(sandbox) = issue.and_then(|issue| issue.sandbox()) {
        return Ok(Some(sandbox));
    }
    let sql = format!(
        "SELECT {} FROM ended AS i JOIN account AS a ON a.id = i.account
         WHERE i.home = ?1 ORDER BY i.generation DESC LIMIT 1",
        columns::ENDED_COLUMNS
    );
    one(conn, &sql, [home.0], columns::ended)
}

pub(super) fn homes(
    conn: &Connection,
    scope: &Scope,
    after: Option<HomeId>,
    limit: usize,
) -> Result<Vec<HomeId>, StoreError> {
    let after = after.map_or(i64::MIN, |home| home.0);
    let of = |sql: &str, id: u64| {
        let params = params![id.cast_signed(), after, bound(limit)];
        all(conn, sql, params, |row| row.get(0).map(HomeId))
    };
    match scope {
        Scope::Installation(id) => of(
            "SELECT home FROM issue WHERE installation_id = ?1 AND home > ?2
             ORDER BY home LIMIT ?3",
            *id,
        ),
        Scope::Repositories(ids) => {
            let mut homes = Vec::new();
            for id in ids {
                homes.extend(of(
                    "SELECT home FROM issue WHERE repository_id = ?1 AND home > ?2
                     ORDER BY home LIMIT ?3",
                    *id,
                )?);
            }
            homes.sort_unstable();
            homes.dedup();
            homes.truncate(limit);
            Ok(homes)
        }
    }
}

/// The turn of a pending start is how many of its repository wait longer. All of it comes out of one index.
pub(super) fn unsettled_at(
    conn: &Connection,
    provider: &ProviderName,
    after: Option<HomeId>,
    limit: usize,
) -> Result<Vec<HomeId>, StoreError> {
    all(
        conn,
        "SELECT home FROM issue INDEXED BY issue_live
         WHERE phase IS NOT NULL AND phase NOT IN ('running', 'stopped')
           AND provider = ?1 AND home > ?2 ORDER BY home LIMIT ?3",
        params![provider.as_str(), after.map_or(0, |home| home.0), bound(limit)],
        |row| Ok(HomeId(row.get(0)?)),
    )
}

pub(super) fn pending_starts(
    conn: &Connection,
    skip: usize,
    limit: usize,
) -> Result<Vec<PendingStartRow>, StoreError> {
    all(
        conn,
        "SELECT w.home, a.name, w.wish_repository, w.wish_at
         FROM (SELECT home, account, wish_repository, wish_at,
                      row_number() OVER (PARTITION BY account, wish_repository
                                         ORDER BY wish_at, home) AS turn
               FROM issue INDEXED BY issue_wish WHERE wish_at IS NOT NULL) AS w
         JOIN account AS a ON a.id = w.account
         ORDER BY w.turn, w.wish_at, w.home LIMIT ?1 OFFSET ?2",
        [bound(limit), bound(skip)],
        |row| {
            Ok(PendingStartRow {
                home: HomeId(row.get(0)?),
                account: AccountName::trusted(row.get_ref(1)?.as_str()?),
                repository: row.get(2)?,
                since: Timestamp::from_unix_ms(row.get(3)?),
            })
        },
    )
}

pub(super) fn counts(
    conn: &Connection,
    name: &AccountName,
) -> Result<Vec<(Phase, u64)>, StoreError> {
    let Some(account) = account(conn, name)? else { return Ok(Vec::new()) };
    all(
        conn,
        "SELECT phase, count(*) FROM issue INDEXED BY issue_newest
         WHERE account = ?1 AND phase IS NOT NULL GROUP BY phase",
        [account],
        |row| Ok((columns::phase(row, 0)?, row.get::<_, i64>(1)?.cast_unsigned())),
    )
    .map(|counts| counts.into_iter().filter_map(|(phase, n)| Some((phase?, n))).collect())
}
