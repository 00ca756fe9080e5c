//! What the reconciler keeps: objects without a record, who providers are, and which numbers are
//! taken by objects that a restored backup does not know.

use std::collections::HashSet;

use rusqlite::{Connection, params};

use super::apply::{execute, failed};
use super::open::HOMES_AHEAD;
use super::read::{self, all, one};
use crate::store::rows::BadRow;
use crate::store::{CommitError, HOMES_RESERVED_MAX, Orphan, StoreError};
use crate::types::{
    ExternalId, Generation, HomeId, IssueId, Mode, ObjectName, ProviderName, SandboxId, Timestamp,
};

pub(super) fn orphans(conn: &Connection) -> Result<Vec<Orphan>, StoreError> {
    all(
        conn,
        "SELECT provider, external_id, object_name, sandbox_id, home, issue_id, generation, mode,
                first_seen_at
         FROM stray ORDER BY provider, external_id",
        [],
        |row| {
            let mode = row.get_ref(7)?.as_str()?;
            Ok(Orphan {
                provider: ProviderName::trusted(row.get_ref(0)?.as_str()?),
                external_id: ExternalId::trusted(row.get_ref(1)?.as_str()?),
                object_name: ObjectName::trusted(row.get_ref(2)?.as_str()?),
                sandbox: SandboxId::trusted(row.get_ref(3)?.as_str()?),
                home: HomeId(row.get(4)?),
                issue: IssueId::trusted(row.get_ref(5)?.as_str()?),
                generation: Generation(row.get(6)?),
                mode: Mode::parse(mode).ok_or_else(|| BadRow::UnknownWord(mode.into()))?,
                first_seen_at: Timestamp::from_unix_ms(row.get(8)?),
            })
        },
    )
}

pub(super) fn put_orphans(conn: &Connection, orphans: &[Orphan]) -> Result<usize, CommitError> {
    orphans.iter().try_fold(0, |changed, orphan| Ok(changed + put_orphan(conn, orphan)?))
}

fn put_orphan(conn: &Connection, orphan: &Orphan) -> Result<usize, CommitError> {
    let Orphan {
        provider,
        external_id,
        object_name,
        sandbox,
        home,
        issue,
        generation,
        mode,
        first_seen_at,
    } = orphan;
    execute(
        conn,
        "INSERT INTO stray (provider, external_id, object_name, sandbox_id, home, issue_id,
                            generation, mode, first_seen_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT DO UPDATE
         SET object_name = excluded.object_name, sandbox_id = excluded.sandbox_id,
             home = excluded.home, issue_id = excluded.issue_id,
             generation = excluded.generation, mode = excluded.mode",
        params![
            provider.as_str(),
            external_id.as_str(),
            object_name.as_str(),
            sandbox.as_str(),
            home.0,
            issue.as_str(),
            generation.0,
            mode.as_str(),
            first_seen_at.unix_ms(),
        ],
    )
}

pub(super) fn remove_orphans(
    conn: &Connection,
    keys: &[(ProviderName, ExternalId)],
) -> Result<usize, CommitError> {
    let sql = "DELETE FROM stray WHERE provider = ?1 AND external_id = ?2";
    keys.iter().try_fold(0, |changed, (provider, external_id)| {
        Ok(changed + execute(conn, sql, [provider.as_str(), external_id.as_str()])?)
    })
}

pub(super) fn identities(conn: &Connection) -> Result<Vec<(ProviderName, String)>, StoreError> {
    let sql = "SELECT provider, identity FROM provider_identity ORDER BY provider";
    all(conn, sql, [], |row| Ok((ProviderName::trusted(row.get_ref(0)?.as_str()?), row.get(1)?)))
}

pub(super) fn put_identity(
    conn: &Connection,
    provider: &ProviderName,
    identity: &str,
) -> Result<usize, CommitError> {
    execute(
        conn,
        "INSERT INTO provider_identity (provider, identity) VALUES (?1, ?2)
         ON CONFLICT DO UPDATE SET identity = excluded.identity",
        [provider.as_str(), identity],
    )
}

pub(super) fn deleted(
    conn: &Connection,
    ids: &[SandboxId],
) -> Result<HashSet<SandboxId>, StoreError> {
    let moment = conn.unchecked_transaction().map_err(read::failed(conn))?;
    let mut found = HashSet::new();
    for id in ids {
        let sql = "SELECT 1 FROM ended WHERE sandbox_id = ?1";
        if one(&moment, sql, [id.as_str()], |_row| Ok(()))?.is_some() {
            found.insert(id.clone());
        }
    }
    Ok(found)
}

/// Refuses a number that no home can have: counting on from it would come to an end.
pub(super) fn check_reserved(above: HomeId) -> Result<(), CommitError> {
    if above > HOMES_RESERVED_MAX {
        return Err(failed(format!("{above} cannot be the number of a home")));
    }
    Ok(())
}

pub(super) fn reserve_homes(conn: &Connection, above: HomeId) -> Result<usize, CommitError> {
    let ahead = above.0.saturating_add(HOMES_AHEAD);
    execute(conn, "UPDATE meta SET homes_reserved = max(homes_reserved, ?1)", [ahead])
}
