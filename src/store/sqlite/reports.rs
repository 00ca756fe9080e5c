//! What happened over time, counted from the timeline and the deliveries.
//!
//! Neither table has an index by time, since one would be written for each row to be read now and
//! then. Rows are in the order of their commits, so where a time begins is found by halving.

use std::collections::HashMap;

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use super::read::{self, failed, one};
use super::{SqliteStore, columns};
use crate::store::StoreError;
use crate::store::report::{Activity, ActivityAsk, ROWS_MAX, Reports, SpanActivity};
use crate::types::{AccountName, Phase, Timestamp};

/// Which rows, from their number on, may be of a time.
struct ReportRows {
    from: i64,
    is_cut: bool,
}

#[async_trait]
impl Reports for SqliteStore {
    async fn activity(
        &self,
        account: &AccountName,
        ask: ActivityAsk,
    ) -> Result<Activity, StoreError> {
        self.readers.read(|conn| {
            let moment = conn.unchecked_transaction().map_err(failed(conn))?;
            let mut activity = Activity {
                now: read::counts(&moment, account)?,
                spans: vec![SpanActivity::default(); ask.count],
                is_cut: false,
            };
            steps(&moment, ask, &mut activity)?;
            deliveries(&moment, ask, &mut activity)?;
            Ok(activity)
        })
    }
}

fn steps(conn: &Connection, ask: ActivityAsk, activity: &mut Activity) -> Result<(), StoreError> {
    let rows = rows_since(conn, "timeline", "at", ask.since)?;
    activity.is_cut |= rows.is_cut;
    let sql = "SELECT at, home, generation, phase_from, phase_to FROM timeline
               WHERE id >= ?1 AND phase_from IS NOT phase_to";
    // When the create under way began, by home and generation.
    let mut begun: HashMap<(i64, u32), i64> = HashMap::new();
    each(conn, sql, rows.from, |row| {
        let at: i64 = row.get(0)?;
        let (from, to) = (columns::phase(row, 3)?, columns::phase(row, 4)?);
        let Some(span) = ask.span_of(Timestamp::from_unix_ms(at)) else { return Ok(()) };
        let span = &mut activity.spans[span];
        for (phase, gain) in [(from, -1), (to, 1)] {
            if let Some(phase) = phase {
                span.gains[phase as usize] += gain;
            }
        }
        let of = (row.get(1)?, row.get(2)?);
        if to == Some(Phase::Creating) {
            begun.insert(of, at);
        } else if from == Some(Phase::Creating)
            && let Some(began) = begun.remove(&of)
            && to == Some(Phase::Running)
        {
            let (from, to) = (Timestamp::from_unix_ms(began), Timestamp::from_unix_ms(at));
            span.creates.push(to.since(from));
        }
        Ok(())
    })?;
    for span in &mut activity.spans {
        span.creates.sort_unstable();
    }
    Ok(())
}

fn deliveries(
    conn: &Connection,
    ask: ActivityAsk,
    activity: &mut Activity,
) -> Result<(), StoreError> {
    let rows = rows_since(conn, "delivery", "received_at", ask.since)?;
    activity.is_cut |= rows.is_cut;
    let sql = "SELECT received_at, applied, state IS NOT NULL FROM delivery WHERE id >= ?1";
    each(conn, sql, rows.from, |row| {
        let at = Timestamp::from_unix_ms(row.get(0)?);
        if let Some(span) = ask.span_of(at) {
            let span = &mut activity.spans[span];
            match (row.get(1)?, row.get(2)?) {
                (_, true) => span.unfinished += 1,
                (true, false) => span.accepted += 1,
                (false, false) => span.ignored += 1,
            }
        }
        Ok(())
    })
}

fn each(
    conn: &Connection,
    sql: &str,
    from: i64,
    mut see: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(sql).map_err(failed(conn))?;
    let mut rows = statement.query(params![from]).map_err(failed(conn))?;
    while let Some(row) = rows.next().map_err(failed(conn))? {
        see(row).map_err(failed(conn))?;
    }
    Ok(())
}

/// The first row of a table that may be of this time or later, and at most [`ROWS_MAX`] of them.
fn rows_since(
    conn: &Connection,
    table: &'static str,
    column: &'static str,
    since: Timestamp,
) -> Result<ReportRows, StoreError> {
    let sql = format!("SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM {table}");
    let bounds = one(conn, &sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
    let (first, last) = bounds.unwrap_or((0, 0));
    let sql = format!("SELECT {column} FROM {table} WHERE id >= ?1 ORDER BY id LIMIT 1");
    // The first row that is not before `since`, were they all in the order of their times.
    let (mut low, mut high) = (first, last + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let at = one(conn, &sql, [middle], |row| row.get::<_, i64>(0))?;
        if at.is_some_and(|at| at < since.unix_ms()) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let room = i64::try_from(ROWS_MAX).unwrap_or(i64::MAX);
    let from = low.max(last - room + 1);
    Ok(ReportRows { from, is_cut: from > low })
}
