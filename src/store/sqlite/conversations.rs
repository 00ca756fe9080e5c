//! Messages and runs, as rows.

use async_trait::async_trait;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};
use uuid::Uuid;

use super::SqliteStore;
use super::apply::{GuidKey, execute, failed};
use super::instructions;
use super::pages::{behind, page_of};
use super::read::{all, bound, one};
use crate::conversation::{ConversationRows, MessageText, SaidMessage};
use crate::store::conversation::{ConversationStore, LastAnswers, MessageRow, RunFilter, RunRow};
use crate::store::{CommitError, Page, PageAsk, StoreError, rows};
use crate::types::{AccountName, HomeId, MessageId, RunId, Timestamp};

const MESSAGES: &str =
    "SELECT message.number, message.id, message.run, message.source, message.author, message.at,
            message.guid, message.text, instruction.body, instruction.text
     FROM message LEFT JOIN instruction
          ON instruction.home = message.home AND instruction.guid = message.guid";

#[async_trait]
impl LastAnswers for SqliteStore {
    async fn last_answer(&self, home: HomeId) -> Result<Option<RunRow>, StoreError> {
        // A summary is trimmed when it is recorded, and an empty one is left out.
        let sql = "SELECT home, body FROM run
                   WHERE home = ?1 AND state = 'succeeded' AND body ->> '$.summary' <> ''
                   ORDER BY number DESC LIMIT 1";
        self.readers.read(|conn| one(conn, sql, [home.0], run))
    }
}

#[async_trait]
impl ConversationStore for SqliteStore {
    async fn messages(
        &self,
        home: HomeId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<MessageRow>, StoreError> {
        let sql = format!(
            "{MESSAGES} WHERE message.home = ?1 AND message.number > ?2
             ORDER BY message.number LIMIT ?3"
        );
        self.readers.read(|conn| all(conn, &sql, params![home.0, after, bound(limit)], message))
    }

    async fn newest_messages(
        &self,
        home: HomeId,
        limit: usize,
    ) -> Result<Vec<MessageRow>, StoreError> {
        let sql =
            format!("{MESSAGES} WHERE message.home = ?1 ORDER BY message.number DESC LIMIT ?2");
        let newest_first =
            self.readers.read(|conn| all(conn, &sql, params![home.0, bound(limit)], message))?;
        Ok(newest_first.into_iter().rev().collect())
    }

    async fn messages_of(&self, run: RunId) -> Result<Vec<MessageRow>, StoreError> {
        let sql = format!("{MESSAGES} WHERE message.run = ?1 ORDER BY message.number");
        self.readers.read(|conn| all(conn, &sql, params![run.0.as_bytes().as_slice()], message))
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError> {
        let sql = format!("{MESSAGES} WHERE message.id = ?1");
        self.readers.read(|conn| one(conn, &sql, params![id.0.as_bytes().as_slice()], message))
    }

    async fn run(&self, account: &AccountName, id: RunId) -> Result<Option<RunRow>, StoreError> {
        let sql = "SELECT run.home, run.body FROM run JOIN issue ON issue.home = run.home
                   JOIN account ON account.id = issue.account
                   WHERE run.id = ?1 AND account.name = ?2";
        let by = params![id.0.as_bytes().as_slice(), account.as_str()];
        self.readers.read(|conn| one(conn, sql, by, run))
    }

    async fn runs_of(&self, home: HomeId, limit: usize) -> Result<Vec<RunRow>, StoreError> {
        let sql = "SELECT home, body FROM (SELECT number, home, body FROM run WHERE home = ?1
                   ORDER BY number DESC LIMIT ?2) ORDER BY number";
        self.readers.read(|conn| all(conn, sql, params![home.0, bound(limit)], run))
    }

    async fn runs(
        &self,
        account: &AccountName,
        filter: &RunFilter,
        page: &PageAsk,
    ) -> Result<Page<RunRow>, StoreError> {
        let behind = behind(page.cursor.as_deref(), "r:")?;
        let RunFilter { home, states } = filter;
        let marks = vec!["?"; states.len()].join(", ");
        let of_state =
            if states.is_empty() { String::new() } else { format!("AND run.state IN ({marks})") };
        let of_home = if home.is_some() { "AND run.home = ?" } else { "" };
        let from = format!(
            "FROM run JOIN issue ON issue.home = run.home
             JOIN account ON account.id = issue.account WHERE account.name = ? {of_state} {of_home}"
        );
        let mut values = vec![Value::from(account.as_str().to_owned())];
        values.extend(states.iter().map(|state| Value::from(state.as_str().to_owned())));
        values.extend(home.map(|home| Value::from(home.0)));
        self.readers.read(|conn| {
            let moment = conn
                .unchecked_transaction()
                .map_err(|error| StoreError::Failed(error.to_string()))?;
            let sql = format!("SELECT count(*) {from}");
            let total = one(&moment, &sql, params_from_iter(&values), |row| row.get(0))?;
            values.extend([Value::from(behind), Value::from(bound(page.limit + 1))]);
            let sql = format!(
                "SELECT run.home, run.body, run.number {from} AND run.number < ?
                 ORDER BY run.number DESC LIMIT ?"
            );
            let found = all(&moment, &sql, params_from_iter(&values), |row| {
                Ok((row.get::<_, i64>(2)?, run(row)?))
            })?;
            Ok(page_of(found, page.limit, "r:", total.unwrap_or(0)))
        })
    }
}

/// Writes what a step changed.
pub(super) fn put(
    conn: &Connection,
    home: HomeId,
    changed: &ConversationRows,
) -> Result<(), CommitError> {
    for message in &changed.messages {
        let (guid, text) = match &message.text {
            MessageText::Own(text) => (None, Some(text.as_str())),
            MessageText::OfDelivery(delivery) => (Some(GuidKey::of(delivery)), None),
        };
        execute(
            conn,
            "INSERT INTO message (id, home, run, source, author, at, guid, text)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                message.id.0.as_bytes().as_slice(),
                home.0,
                message.run.0.as_bytes().as_slice(),
                rows::source_word(message.source),
                message.author,
                message.at.unix_ms(),
                guid,
                text,
            ],
        )?;
    }
    for run in &changed.runs {
        execute(
            conn,
            "INSERT INTO run (id, home, state, body) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (id) DO UPDATE SET home = excluded.home, state = excluded.state,
                                            body = excluded.body",
            params![
                run.id.0.as_bytes().as_slice(),
                home.0,
                run.state.as_str(),
                rows::run_body(run).map_err(failed)?,
            ],
        )?;
    }
    Ok(())
}

/// Removes what was said in a home.
pub(super) fn remove(conn: &Connection, home: HomeId) -> Result<(), CommitError> {
    execute(conn, "DELETE FROM message WHERE home = ?1", [home.0])?;
    execute(conn, "DELETE FROM run WHERE home = ?1", [home.0]).map(|_removed| ())
}

/// Gives what was said in a home to another.
pub(super) fn hand_over(conn: &Connection, from: HomeId, to: HomeId) -> Result<(), CommitError> {
    execute(conn, "UPDATE message SET home = ?2 WHERE home = ?1", [from.0, to.0])?;
    execute(conn, "UPDATE run SET home = ?2 WHERE home = ?1", [from.0, to.0]).map(|_moved| ())
}

fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    let bytes = row.get_ref(column)?.as_blob()?;
    Uuid::from_slice(bytes).map_err(|_| rows::BadRow::Guid.into())
}

fn message(row: &Row<'_>) -> rusqlite::Result<MessageRow> {
    let guid: Option<()> = row.get_ref(6)?.as_bytes_or_null()?.map(|_| ());
    let own: Option<String> = row.get(7)?;
    let has_instruction = row.get_ref(8)?.as_str_or_null()?.is_some();
    let instruction = has_instruction.then(|| instructions::instruction(row, 8)).transpose()?;
    let text = match (own, guid) {
        (Some(text), _) => MessageText::Own(text),
        (None, Some(())) => MessageText::OfDelivery(GuidKey::read(row, 6)?),
        (None, None) => return Err(rows::BadRow::NoText.into()),
    };
    Ok(MessageRow {
        number: row.get(0)?,
        message: SaidMessage {
            id: MessageId(id(row, 1)?),
            run: RunId(id(row, 2)?),
            source: rows::source(row.get_ref(3)?.as_str()?)?,
            author: row.get(4)?,
            at: Timestamp::from_unix_ms(row.get(5)?),
            text,
        },
        instruction,
    })
}

fn run(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let run = rows::run(row.get_ref(1)?.as_str()?)?;
    Ok(RunRow { home: HomeId(row.get(0)?), run })
}
