//! Effects at GitHub, as rows; and the pace of those who write there.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use super::SqliteStore;
use super::apply::{execute, failed};
use super::read::{all, bound, one, readable};
use super::trouble::Troubles;
use crate::github::api::{PaceError, PaceRecord, WritePace, WriterId};
use crate::issue::GithubEffect;
use crate::store::github::{GithubEnd, GithubOutbox, GithubRow, GithubState, ShownComment};
use crate::store::rows::{self, BadRow};
use crate::store::{CommitError, EffectId, StoreError};
use crate::types::{HomeId, Timestamp};

/// What every read of rows selects.
const COLUMNS: &str =
    "id, revision, home, kind, body, state, due_at, tries, failing_since, begun_at,
    first_begun_at, reason, comment, author, shown_hash, shown_phase, shown_at";

/// In a restored backup: what was to be said once may be said by now; a status comment that is not known
/// is looked for among all comments. A pull request is looked for in any case.
pub(super) const AFTER_RESTORE: &str = "
    UPDATE github_effect SET state = 'given_up', due_at = NULL, reason = 'a backup was restored'
    WHERE kind IN ('publish', 'react', 'reply') AND state <> 'done';
    UPDATE github_effect SET state = 'look', due_at = 0, begun_at = 0, first_begun_at = 0
    WHERE kind = 'show_status' AND comment IS NULL;";

/// Records what is to be said. A reaction and a reply are recorded once; a desired state is due again,
/// unless a call is under way or it waits for something: then the newer one follows.
pub(super) fn record(
    conn: &Connection,
    home: HomeId,
    effect: &GithubEffect,
    due_at: Timestamp,
) -> Result<(), CommitError> {
    let is_asked = matches!(effect, GithubEffect::ShowStatus { is_asked: true, .. });
    let kind = effect.kind();
    let conflict = match kind.is_desired_state() {
        true => {
            // What is over begins again; what a person must look at does when a person asked.
            let again = "(state IN ('done', 'given_up') OR (?6 AND (state = 'gone'
                         OR (state = 'held' AND released_by = 'person'))))";
            format!(
                "UPDATE SET
                    revision = revision + 1, body = excluded.body,
                    state = CASE WHEN {again} THEN 'due' ELSE state END,
                    due_at = CASE WHEN {again} THEN excluded.due_at
                                  WHEN state = 'due' AND tries = 0
                                  THEN min(due_at, excluded.due_at)
                                  ELSE due_at END,
                    tries = CASE WHEN {again} THEN 0 ELSE tries END,
                    failing_since = CASE WHEN {again} THEN NULL ELSE failing_since END,
                    comment = CASE WHEN state = 'gone' AND ?6 THEN NULL ELSE comment END"
            )
        }
        false => "NOTHING".to_owned(),
    };
    execute(
        conn,
        &format!(
            "INSERT INTO github_effect (home, kind, key, revision, body, state, due_at, tries)
             SELECT ?1, ?2, ?3, 0, ?4, 'due', ?5, 0 WHERE ?6 OR NOT ?6
             ON CONFLICT (home, kind, key) DO {conflict}"
        ),
        params![
            home.0,
            kind.as_str(),
            effect.key(),
            rows::github_body(effect).map_err(failed)?,
            due_at.unix_ms(),
            is_asked,
        ],
    )
    .map(|_recorded| ())
}

/// The issue's conversation was unlocked: what was held because of that is due.
pub(super) fn unlock(conn: &Connection, home: HomeId) -> Result<(), CommitError> {
    // A call under way may be refused for the lock that is gone by now: its due time says so to its end.
    let sql = "UPDATE github_effect SET
                   state = CASE WHEN state = 'asked' THEN 'asked' ELSE 'due' END,
                   due_at = 0, tries = 0
               WHERE home = ?1
               AND (state = 'asked' OR (state = 'held' AND released_by = 'unlocked'))";
    execute(conn, sql, [home.0]).map(|_released| ())
}

fn list(
    conn: &Connection,
    troubles: &Troubles,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<GithubRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM github_effect AS e WHERE due_at <= ?1
         AND NOT EXISTS (SELECT 1 FROM github_effect AS f WHERE f.home = e.home AND f.due_at <= ?1
                         AND (f.kind, f.id) < (e.kind, e.id))
         ORDER BY due_at, id"
    );
    readable(conn, troubles, &sql, [now.unix_ms()], limit, read_row)
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<GithubRow> {
    let integer = |at: usize| row.get::<_, Option<i64>>(at);
    let time = |at| integer(at).map(|found| found.map(Timestamp::from_unix_ms));
    let number = |at| integer(at).map(|found| found.map(i64::cast_unsigned));
    let (kind, body) = (row.get_ref(3)?.as_str()?, row.get_ref(4)?.as_str()?);
    Ok(GithubRow {
        id: EffectId { number: row.get(0)?, revision: row.get(1)? },
        home: HomeId(row.get(2)?),
        effect: rows::github_effect(kind, body)?,
        state: state(row.get_ref(5)?.as_str()?)?,
        due_at: time(6)?,
        tries: row.get(7)?,
        failing_since: time(8)?,
        begun_at: time(9)?,
        first_begun_at: time(10)?,
        reason: row.get(11)?,
        shown: ShownComment {
            comment: number(12)?,
            author: number(13)?,
            hash: row.get(14)?,
            phase: row.get(15)?,
            at: time(16)?,
        },
    })
}

fn state(word: &str) -> Result<GithubState, BadRow> {
    GithubState::parse(word).ok_or_else(|| BadRow::UnknownWord(word.into()))
}

fn begin(conn: &Connection, id: EffectId, at: Timestamp) -> Result<usize, CommitError> {
    let sql = "UPDATE github_effect SET state = 'asked', due_at = NULL, begun_at = ?2,
                   first_begun_at = coalesce(first_begun_at, ?2)
               WHERE id = ?1";
    execute(conn, sql, params![id.number, at.unix_ms()])
}

fn end(conn: &Connection, id: EffectId, end: &GithubEnd) -> Result<usize, CommitError> {
    if !end.follow_ups.is_empty() {
        let sql = "SELECT home FROM github_effect WHERE id = ?1";
        let home = one(conn, sql, [id.number], |row| row.get(0).map(HomeId)).map_err(failed)?;
        let home = home.ok_or_else(|| failed("what ended is not in the outbox"))?;
        for effect in &end.follow_ups {
            record(conn, home, effect, end.at)?;
        }
    }
    let ms = |time: Option<Timestamp>| time.map(Timestamp::unix_ms);
    let shown = &end.shown;
    // A newer one was recorded meanwhile, which what was put off without a failure need not wait for; or
    // the issue was unlocked.
    let again = "((?3 = 'done' OR ?3 = 'due' AND ?7 IS NULL) AND revision <> ?2
                  OR (?3 = 'held' AND ?10 = 'unlocked' AND state = 'asked' AND due_at IS NOT NULL))";
    let sql = format!(
        "UPDATE github_effect SET
             state = CASE WHEN {again} THEN 'due' ELSE ?3 END,
             due_at = CASE WHEN {again} THEN ?4 ELSE ?5 END,
             tries = ?6, failing_since = ?7, first_begun_at = ?8, reason = ?9, released_by = ?10,
             comment = ?11, author = ?12, shown_hash = ?13, shown_phase = ?14, shown_at = ?15
         WHERE id = ?1"
    );
    execute(
        conn,
        &sql,
        params![
            id.number,
            id.revision,
            end.state.as_str(),
            end.at.unix_ms(),
            ms(end.due_at),
            end.tries,
            ms(end.failing_since),
            ms(end.first_begun_at),
            end.reason,
            end.released_by,
            shown.comment.map(u64::cast_signed),
            shown.author.map(u64::cast_signed),
            shown.hash,
            shown.phase,
            ms(shown.at),
        ],
    )
}

fn next_due(conn: &Connection, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT due_at FROM github_effect WHERE due_at > ?1 ORDER BY due_at LIMIT 1";
    one(conn, sql, [now.unix_ms()], |row| row.get(0).map(Timestamp::from_unix_ms))
}

fn counts(conn: &Connection) -> Result<Vec<(GithubState, u64)>, StoreError> {
    let sql = "SELECT state, count(*) FROM github_effect GROUP BY state ORDER BY state";
    all(conn, sql, [], |row| {
        let count: i64 = row.get(1)?;
        Ok((state(row.get_ref(0)?.as_str()?)?, count.cast_unsigned()))
    })
}

fn edited_since(conn: &Connection, since: Timestamp) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM github_effect WHERE kind = 'show_status' AND shown_at >= ?1";
    let count = one(conn, sql, [since.unix_ms()], |row| row.get::<_, i64>(0))?;
    Ok(count.map(i64::cast_unsigned).unwrap_or_default())
}

fn of_home(conn: &Connection, home: HomeId) -> Result<Vec<GithubRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM github_effect WHERE home = ?1 ORDER BY kind, id");
    all(conn, &sql, [home.0], read_row)
}

fn unfinished(conn: &Connection, limit: usize) -> Result<Vec<GithubRow>, StoreError> {
    let sql =
        format!("SELECT {COLUMNS} FROM github_effect WHERE state <> 'done' ORDER BY id LIMIT ?1");
    all(conn, &sql, [bound(limit)], read_row)
}

fn give_up(conn: &Connection, home: HomeId, reason: &str) -> Result<usize, CommitError> {
    let sql = "UPDATE github_effect SET state = 'given_up', due_at = NULL, reason = ?2
               WHERE home = ?1 AND state <> 'done'";
    execute(conn, sql, params![home.0, reason])
}

fn retry(conn: &Connection, number: i64, now: Timestamp) -> Result<usize, CommitError> {
    // What a call may have done is looked for first, and a comment that a person deleted is
    // written again.
    let sql = "UPDATE github_effect SET
                   state = CASE WHEN first_begun_at IS NULL THEN 'due' ELSE 'look' END,
                   due_at = ?2, tries = 0, failing_since = NULL,
                   comment = CASE WHEN state = 'gone' THEN NULL ELSE comment END
               WHERE id = ?1 AND state NOT IN ('done', 'asked')";
    execute(conn, sql, params![number, now.unix_ms()])
}

fn resume(conn: &Connection, now: Timestamp) -> Result<usize, CommitError> {
    let sql = "UPDATE github_effect SET state = 'look', due_at = ?1 WHERE state = 'asked'";
    execute(conn, sql, [now.unix_ms()])
}

#[async_trait]
impl GithubOutbox for SqliteStore {
    async fn github_effects(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<GithubRow>, StoreError> {
        self.readers.read(|conn| list(conn, &self.troubles, now, limit))
    }

    async fn next_github_effect(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        self.readers.read(|conn| next_due(conn, now))
    }

    async fn github_counts(&self) -> Result<Vec<(GithubState, u64)>, StoreError> {
        self.readers.read(counts)
    }

    async fn comments_edited_since(&self, since: Timestamp) -> Result<u64, StoreError> {
        self.readers.read(|conn| edited_since(conn, since))
    }

    async fn github_effects_of(&self, home: HomeId) -> Result<Vec<GithubRow>, StoreError> {
        self.readers.read(|conn| of_home(conn, home))
    }

    async fn begin_github(&self, id: EffectId, at: Timestamp) -> Result<(), CommitError> {
        self.change(move |conn| begin(conn, id, at)).await
    }

    async fn end_github(&self, id: EffectId, ended: GithubEnd) -> Result<(), CommitError> {
        self.change(move |conn| end(conn, id, &ended)).await
    }

    async fn give_up_github(&self, home: HomeId, reason: String) -> Result<(), CommitError> {
        self.change(move |conn| give_up(conn, home, &reason)).await
    }

    async fn unfinished_github(&self, limit: usize) -> Result<Vec<GithubRow>, StoreError> {
        self.readers.read(|conn| unfinished(conn, limit))
    }

    async fn retry_github(&self, number: i64, now: Timestamp) -> Result<(), CommitError> {
        self.change(move |conn| retry(conn, number, now)).await
    }

    async fn resume_github(&self, now: Timestamp) -> Result<(), CommitError> {
        self.change(move |conn| resume(conn, now)).await
    }
}

#[async_trait]
impl WritePace for SqliteStore {
    async fn load(&self) -> Result<Vec<PaceRecord>, PaceError> {
        let sql = "SELECT writer, rests_until, strikes, writes FROM github_pace ORDER BY writer";
        let read = |row: &Row<'_>| {
            let (writer, writes) = (row.get_ref(0)?.as_str()?, row.get_ref(3)?.as_str()?);
            let unknown = || BadRow::UnknownWord(writer.into());
            Ok(PaceRecord {
                writer: WriterId::parse(writer).ok_or_else(unknown)?,
                rests_until: row.get::<_, Option<i64>>(1)?.map(Timestamp::from_unix_ms),
                strikes: row.get(2)?,
                writes: serde_json::from_str(writes).map_err(BadRow::from)?,
            })
        };
        let records = self.readers.read(|conn| all(conn, sql, [], read));
        records.map_err(|error| PaceError(error.to_string()))
    }

    async fn save(&self, record: PaceRecord) -> Result<(), PaceError> {
        let PaceRecord { writer, rests_until, strikes, writes } = record;
        let writes =
            serde_json::to_string(&writes).map_err(|error| PaceError(error.to_string()))?;
        let saved = self.change(move |conn| {
            let sql = "INSERT OR REPLACE INTO github_pace (writer, rests_until, strikes, writes)
                       VALUES (?1, ?2, ?3, ?4)";
            let rests = rests_until.map(Timestamp::unix_ms);
            execute(conn, sql, params![writer.to_string(), rests, strikes, writes])
        });
        saved.await.map_err(|error| PaceError(error.to_string()))
    }
}

/// The outbox alone, in memory, for tests that decide themselves when a write is durable.
#[cfg(test)]
pub(crate) struct OutboxInMemory {
    conn: Connection,
    troubles: Troubles,
}

#[cfg(test)]
impl OutboxInMemory {
    pub(crate) fn new() -> Self {
        let conn = Connection::open_in_memory().expect("a database");
        // The outbox has no part in the tables of the other migrations.
        conn.execute_batch(include_str!("../../../migrations/sqlite/0008_github.sql"))
            .expect("its tables");
        Self { conn, troubles: Troubles::default() }
    }

    pub(crate) fn record(
        &self,
        home: HomeId,
        effect: &GithubEffect,
        due_at: Timestamp,
    ) -> Result<(), CommitError> {
        record(&self.conn, home, effect, due_at)
    }

    pub(crate) fn unlock(&self, home: HomeId) -> Result<(), CommitError> {
        unlock(&self.conn, home)
    }

    pub(crate) fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<GithubRow>, StoreError> {
        list(&self.conn, &self.troubles, now, limit)
    }

    pub(crate) fn next_due(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        next_due(&self.conn, now)
    }

    pub(crate) fn counts(&self) -> Result<Vec<(GithubState, u64)>, StoreError> {
        counts(&self.conn)
    }

    pub(crate) fn edited_since(&self, since: Timestamp) -> Result<u64, StoreError> {
        edited_since(&self.conn, since)
    }

    pub(crate) fn of_home(&self, home: HomeId) -> Result<Vec<GithubRow>, StoreError> {
        of_home(&self.conn, home)
    }

    pub(crate) fn unfinished(&self, limit: usize) -> Result<Vec<GithubRow>, StoreError> {
        unfinished(&self.conn, limit)
    }

    pub(crate) fn begin(&self, id: EffectId, at: Timestamp) -> Result<(), CommitError> {
        begin(&self.conn, id, at).map(|_begun| ())
    }

    pub(crate) fn end(&self, id: EffectId, ended: &GithubEnd) -> Result<(), CommitError> {
        end(&self.conn, id, ended).map(|_ended| ())
    }

    pub(crate) fn give_up(&self, home: HomeId, reason: &str) -> Result<(), CommitError> {
        give_up(&self.conn, home, reason).map(|_given_up| ())
    }

    pub(crate) fn retry(&self, number: i64, now: Timestamp) -> Result<(), CommitError> {
        retry(&self.conn, number, now).map(|_due| ())
    }

    pub(crate) fn resume(&self, now: Timestamp) -> Result<(), CommitError> {
        resume(&self.conn, now).map(|_resumed| ())
    }
}
