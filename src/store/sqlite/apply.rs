//! One write as statements, inside the writer's transaction and savepoint.
//!
//! The tables' keys carry the guarantees: a refusal is what an insert or an update did *not* do,
//! never a look before it. What is refused here may have been applied in part; the savepoint
//! undoes it.

use std::collections::HashMap;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use uuid::Uuid;

use super::trouble::write_error;
use super::{conversations, github, instructions, outbox, usage};
use crate::issue::{Effect, Issue};
use crate::store::rows::{self, IssueRow, ScopeColumns};
use crate::store::{CommitError, DeliveryRow, DeliveryState, Write};
use crate::types::{
    AccountName, Alias, DeliveryId, Epoch, HomeId, Phase, Repository, Sandbox, TimelineEntry,
};

/// Account names and their numbers, as far as they were needed.
///
/// Number and name belong together only once committed: after anything was undone this forgets.
#[derive(Default)]
pub(super) struct AccountNumbers {
    known: HashMap<AccountName, i64>,
}

impl AccountNumbers {
    /// The number of this account, which gets one if it is new.
    fn number(&mut self, conn: &Connection, name: &AccountName) -> rusqlite::Result<i64> {
        if let Some(number) = self.known.get(name) {
            return Ok(*number);
        }
        let number = conn
            .prepare_cached("SELECT id FROM account WHERE name = ?1")?
            .query_row([name.as_str()], |row| row.get(0))
            .optional()?;
        let number = match number {
            Some(number) => number,
            None => {
                conn.prepare_cached("INSERT INTO account (name) VALUES (?1)")?
                    .execute([name.as_str()])?;
                conn.last_insert_rowid()
            }
        };
        self.known.insert(name.clone(), number);
        Ok(number)
    }

    /// Drops what may have been undone.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}

/// The key of a delivery: the 16 bytes of a GUID in the usual form, any other as it is.
pub(super) enum GuidKey<'a> {
    Bytes(Uuid),
    Text(&'a str),
}

impl<'a> GuidKey<'a> {
    pub(super) fn of(id: &'a DeliveryId) -> Self {
        let text = id.as_str();
        match Uuid::try_parse(text) {
            // Only this one spelling: two ids that differ as text must differ as keys.
            Ok(guid) if guid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text => {
                Self::Bytes(guid)
            }
            Ok(_) | Err(_) => Self::Text(text),
        }
    }

    /// Reads the id back out of a column that holds such a key.
    pub(super) fn read(row: &Row<'_>, column: usize) -> rusqlite::Result<DeliveryId> {
        match row.get_ref(column)? {
            ValueRef::Blob(bytes) => {
                let guid = Uuid::from_slice(bytes).map_err(|_| rows::BadRow::Guid)?;
                Ok(DeliveryId::trusted(
                    &*guid.hyphenated().encode_lower(&mut Uuid::encode_buffer()),
                ))
            }
            other => Ok(DeliveryId::trusted(other.as_str()?)),
        }
    }
}

impl rusqlite::ToSql for GuidKey<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Self::Bytes(guid) => guid.as_bytes().as_slice().to_sql(),
            Self::Text(text) => text.to_sql(),
        }
    }
}

pub(super) fn failed(error: impl std::fmt::Display) -> CommitError {
    CommitError::Failed(error.to_string())
}

/// Runs a statement without parameters and without rows.
pub(super) fn run(conn: &Connection, sql: &str) -> Result<(), CommitError> {
    execute(conn, sql, []).map(|_changed| ())
}

/// Runs a statement and says how many rows it changed.
pub(super) fn execute(
    conn: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<usize, CommitError> {
    conn.prepare_cached(sql)
        .and_then(|mut statement| statement.execute(params))
        .map_err(|error| write_error(conn, &error))
}

/// The epoch that is stored now.
pub(super) fn stored_epoch(conn: &Connection) -> Result<Epoch, CommitError> {
    conn.prepare_cached("SELECT epoch FROM meta")
        .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)))
        .map(|epoch| Epoch(epoch.cast_unsigned()))
        .map_err(|error| write_error(conn, &error))
}

/// Changes something that means nothing. It must differ each time: SQLite skips a page that
/// would stay as it is.
pub(super) fn probe(conn: &Connection) -> Result<(), CommitError> {
    run(conn, "UPDATE meta SET probe = probe + 1")
}

/// Applies a write, or says why not.
pub(super) fn apply(
    conn: &Connection,
    accounts: &mut AccountNumbers,
    write: &Write,
) -> Result<(), CommitError> {
    let Write { issue, aliases, taken_over, names_go_to, ended, timeline, .. } = write;
    let Write { delivery, instruction, said, effects, .. } = write;
    let sorted = |error| write_error(conn, &error);
    // First, since repeated deliveries are the refusal that is common.
    if let Some(delivery) = delivery {
        insert_delivery(conn, delivery)?;
    }
    match issue {
        Some(issue) => {
            let account = accounts.number(conn, &issue.account).map_err(sorted)?;
            put_issue(conn, account, issue)?;
            for alias in aliases {
                claim_alias(conn, account, issue, alias)?;
            }
            for alias in taken_over {
                take_alias_over(conn, account, issue, alias)?;
            }
            if let Some(other) = names_go_to {
                hand_over(conn, account, issue.home, *other)?;
            }
            match (instruction, delivery) {
                (Some(instruction), Some(delivery)) => {
                    instructions::insert(conn, issue.home, &delivery.id, instruction)?;
                }
                (Some(_), None) => return Err(failed("an instruction has no delivery")),
                (None, _) => {}
            }
            conversations::put(conn, issue.home, said)?;
            if issue.facts.deleted {
                instructions::remove(conn, issue.home)?;
                conversations::remove(conn, issue.home)?;
            }
            for entry in timeline {
                insert_timeline(conn, issue.home, entry)?;
            }
        }
        None if aliases.is_empty()
            && taken_over.is_empty()
            && names_go_to.is_none()
            && instruction.is_none()
            && said.is_empty()
            && timeline.is_empty() => {}
        None => {
            return Err(failed("a write without an issue has names, a timeline or an instruction"));
        }
    }
    for effect in effects {
        match &effect.effect {
            Effect::CleanUp(_) => outbox::record(conn, effect)?,
            Effect::Github(said) => github::record(conn, effect.home, said, effect.due_at)?,
        }
    }
    for home in write.unlocks() {
        github::unlock(conn, home)?;
    }
    if let Some(sandbox) = ended {
        let account = accounts.number(conn, &sandbox.account).map_err(sorted)?;
        insert_ended(conn, account, sandbox)?;
    }
    Ok(())
}

/// Gives what belongs to a home to the one that it gives way to.
fn hand_over(
    conn: &Connection,
    account: i64,
    home: HomeId,
    other: HomeId,
) -> Result<(), CommitError> {
    hand_names_over(conn, account, home, other)?;
    instructions::hand_over(conn, home, other)?;
    conversations::hand_over(conn, home, other)?;
    usage::hand_over(conn, home, other)
}

/// How the account of a delivery or a hold is stored: NULL for `default`, as in rows from before there
/// were others.
pub(super) fn stored_account(account: &AccountName) -> Option<&str> {
    (*account != AccountName::default_account()).then(|| account.as_str())
}

fn insert_delivery(conn: &Connection, delivery: &DeliveryRow) -> Result<(), CommitError> {
    match delivery.state {
        DeliveryState::Done => {}
        DeliveryState::Pending | DeliveryState::SetAside => {
            return Err(failed("a delivery of a step is always done"));
        }
    }
    let inserted = execute(
        conn,
        "INSERT INTO delivery (guid, received_at, event, action, home, applied, reason, recovered,
                               account)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (guid) DO NOTHING",
        params![
            GuidKey::of(&delivery.id),
            delivery.received_at.unix_ms(),
            delivery.event,
            delivery.action,
            delivery.home.map(|home| home.0),
            delivery.applied,
            delivery.reason,
            delivery.recovered,
            stored_account(&delivery.account),
        ],
    )?;
    if inserted == 0 { Err(CommitError::DuplicateDelivery) } else { Ok(()) }
}

fn put_issue(conn: &Connection, account: i64, issue: &Issue) -> Result<(), CommitError> {
    // Version 0 is the state of a home that is not stored: nothing comes before it.
    let Some(before) = issue.version.checked_sub(1) else { return Err(CommitError::Fenced) };
    let row = IssueRow::encode(issue).map_err(failed)?;
    let changed = if before == 0 {
        execute(
            conn,
            "INSERT INTO issue (home, account, version, due_at, phase, sandbox_id, provider,
                                external_id, created_at, repository, search, body,
                                repository_id, installation_id, wish_at, wish_repository)
             VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
             ON CONFLICT (home) DO NOTHING",
            params![
                issue.home.0,
                account,
                row.due_at,
                row.phase,
                row.sandbox_id,
                row.provider,
                row.external_id,
                row.created_at,
                row.repository,
                row.search,
                row.body,
                row.scope_event.repository_id,
                row.scope_event.installation_id,
                row.scope_event.wish_at,
                row.scope_event.wish_repository,
            ],
        )?
    } else {
        let changed = execute(
            conn,
            "UPDATE issue
             SET version = ?4, due_at = ?5, phase = ?6, sandbox_id = ?7, provider = ?8,
                 external_id = ?9, created_at = ?10, repository = ?11, search = ?12, body = ?13
             WHERE home = ?1 AND account = ?2 AND version = ?3",
            params![
                issue.home.0,
                account,
                before.cast_signed(),
                issue.version.cast_signed(),
                row.due_at,
                row.phase,
                row.sandbox_id,
                row.provider,
                row.external_id,
                row.created_at,
                row.repository,
                row.search,
                row.body,
            ],
        )?;
        if changed > 0 {
            update_scope(conn, issue.home, &row.scope_event)?;
        }
        changed
    };
    if changed == 0 { Err(CommitError::Fenced) } else { Ok(()) }
}

/// A statement of its own: in the one above, SQLite would rewrite the indexes of these columns
/// in each step, although they nearly never change.
fn update_scope(
    conn: &Connection,
    home: HomeId,
    scope_event: &ScopeColumns,
) -> Result<(), CommitError> {
    execute(
        conn,
        "UPDATE issue
         SET repository_id = ?2, installation_id = ?3, wish_at = ?4, wish_repository = ?5
         WHERE home = ?1 AND (repository_id IS NOT ?2 OR installation_id IS NOT ?3
                              OR wish_at IS NOT ?4 OR wish_repository IS NOT ?5)",
        params![
            home.0,
            scope_event.repository_id,
            scope_event.installation_id,
            scope_event.wish_at,
            scope_event.wish_repository,
        ],
    )
    .map(|_changed| ())
}

fn claim_alias(
    conn: &Connection,
    account: i64,
    issue: &Issue,
    alias: &Alias,
) -> Result<(), CommitError> {
    let claimed = match alias {
        Alias::Issue(id) => {
            let inserted = execute(
                conn,
                "INSERT INTO issue_alias (account, issue_id, home) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO NOTHING",
                params![account, id.as_str(), issue.home.0],
            )?;
            inserted == 1 || is_alias_of(conn, account, alias, issue.home)?
        }
        Alias::Numbered(repository, number) => {
            execute(
                conn,
                "INSERT INTO numbered_alias (account, repository, number, home, repository_id)
                 VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE
                 SET repository_id = coalesce(excluded.repository_id, repository_id)
                 WHERE home = excluded.home",
                params![
                    account,
                    repository.folded(),
                    number.0.cast_signed(),
                    issue.home.0,
                    id_of(repository, issue),
                ],
            )? == 1
        }
    };
    if claimed { Ok(()) } else { Err(CommitError::AliasTaken) }
}

fn take_alias_over(
    conn: &Connection,
    account: i64,
    issue: &Issue,
    alias: &Alias,
) -> Result<(), CommitError> {
    match alias {
        Alias::Issue(id) => execute(
            conn,
            "INSERT INTO issue_alias (account, issue_id, home) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET home = excluded.home",
            params![account, id.as_str(), issue.home.0],
        ),
        // What another home knew of the name's repository is not this one's.
        Alias::Numbered(repository, number) => execute(
            conn,
            "INSERT INTO numbered_alias (account, repository, number, home, repository_id)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE
             SET home = excluded.home,
                 repository_id = CASE WHEN home = excluded.home
                                      THEN coalesce(excluded.repository_id, repository_id)
                                      ELSE excluded.repository_id END",
            params![
                account,
                repository.folded(),
                number.0.cast_signed(),
                issue.home.0,
                id_of(repository, issue),
            ],
        ),
    }
    .map(|_changed| ())
}

/// Gives every name of a home to another. There is no index by home, which each new issue would
/// have to pay for: this reads all names, and two issues that are one are found rarely.
fn hand_names_over(
    conn: &Connection,
    account: i64,
    from: HomeId,
    to: HomeId,
) -> Result<(), CommitError> {
    for sql in [
        "UPDATE issue_alias SET home = ?3 WHERE account = ?1 AND home = ?2",
        "UPDATE numbered_alias SET home = ?3 WHERE account = ?1 AND home = ?2",
    ] {
        execute(conn, sql, params![account, from.0, to.0])?;
    }
    Ok(())
}

/// The numeric id of this repository, if the issue is known to be in it.
fn id_of(repository: &Repository, issue: &Issue) -> Option<i64> {
    let own = issue.facts.repository.as_ref()?;
    let id = issue.facts.repository_id.filter(|_| own.folded() == repository.folded())?;
    Some(id.cast_signed())
}

fn is_alias_of(
    conn: &Connection,
    account: i64,
    alias: &Alias,
    home: HomeId,
) -> Result<bool, CommitError> {
    let found = alias_home(conn, account, alias).map_err(|error| write_error(conn, &error))?;
    Ok(found == Some(home))
}

/// The home that a name belongs to in an account.
pub(super) fn alias_home(
    conn: &Connection,
    account: i64,
    alias: &Alias,
) -> rusqlite::Result<Option<HomeId>> {
    let home = |row: &rusqlite::Row<'_>| row.get(0).map(HomeId);
    match alias {
        Alias::Issue(id) => conn
            .prepare_cached("SELECT home FROM issue_alias WHERE account = ?1 AND issue_id = ?2")?
            .query_row(params![account, id.as_str()], home)
            .optional(),
        Alias::Numbered(repository, number) => conn
            .prepare_cached(
                "SELECT home FROM numbered_alias
                 WHERE account = ?1 AND repository = ?2 AND number = ?3",
            )?
            .query_row(params![account, repository.folded(), number.0.cast_signed()], home)
            .optional(),
    }
}

fn insert_timeline(
    conn: &Connection,
    home: HomeId,
    entry: &TimelineEntry,
) -> Result<(), CommitError> {
    execute(
        conn,
        "INSERT INTO timeline (home, at, generation, phase_from, phase_to, reason, cause)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            home.0,
            entry.at.unix_ms(),
            entry.generation.0,
            entry.from.map(Phase::as_str),
            entry.to.map(Phase::as_str),
            entry.reason,
            entry.cause,
        ],
    )
    .map(|_inserted| ())
}

fn insert_ended(conn: &Connection, account: i64, sandbox: &Sandbox) -> Result<(), CommitError> {
    let search = rows::search_text(
        &sandbox.name,
        sandbox.issue_title.as_deref(),
        sandbox.repository.as_ref(),
        &sandbox.id,
    );
    execute(
        conn,
        "INSERT INTO ended (account, home, generation, sandbox_id, provider, external_id,
                            created_at, repository, search, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            account,
            sandbox.home.0,
            sandbox.generation.0,
            sandbox.id.as_str(),
            sandbox.provider.as_str(),
            sandbox.external_id.as_ref().map(|id| id.as_str()),
            sandbox.created_at.unix_ms(),
            sandbox.repository.as_ref().map(Repository::folded),
            search,
            rows::ended_body(sandbox).map_err(failed)?,
        ],
    )
    .map(|_inserted| ())
}
