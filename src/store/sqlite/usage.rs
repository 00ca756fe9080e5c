//! What models cost, as rows: each request, and sums that are kept beside them.
//!
//! The sums are written in the transaction that settles a request, so that a reservation reads a few
//! rows however many requests there were.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::SqliteStore;
use super::apply::{execute, failed, stored_epoch};
use super::log_sync::LogSync;
use super::prune::BITE_ROWS_MAX;
use super::read::{all, bound, one};
use crate::models::budget::{self, BudgetUse, BudgetUses, BudgetVerdict};
use crate::store::usage::{
    ModelRequestId, NewModelRequest, Reserved, SettledRequest, UsageAsk, UsageBy, UsageKey,
    UsageStore, UsageSum,
};
use crate::store::{CommitError, StoreError};
use crate::types::{
    AccountName, Epoch, HomeId, ModelBudgets, Money, Repository, RunId, Timestamp, Tokens,
};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// How much longer what this server itself began is waited for.
const OWN_MS: i64 = 60 * 60 * 1_000;

#[async_trait]
impl UsageStore for SqliteStore {
    async fn reserve_request(
        &self,
        request: NewModelRequest,
        budgets: ModelBudgets,
    ) -> Result<Reserved, CommitError> {
        // The last run of the chore counts: an earlier one was undone.
        let verdict = Arc::new(Mutex::new(Reserved::Waits));
        let given = Arc::clone(&verdict);
        // An agent waits for it. Where the machine loses its power before the sync, the request is
        // forgotten that went out in the last milliseconds; the model has hardly read it by then.
        let reserving = self.writer.chore_synced(LogSync::AfterAnswer, move |conn| {
            let reserved = reserve(conn, &request, &budgets)?;
            *given.lock().unwrap_or_else(PoisonError::into_inner) = reserved;
            Ok(usize::from(matches!(reserved, Reserved::Granted(_))))
        });
        reserving.await?;
        let reserved = *verdict.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(reserved)
    }

    fn settle_request(
        &self,
        id: ModelRequestId,
        settled: SettledRequest,
    ) -> BoxFuture<'static, Result<(), CommitError>> {
        let settling = self.writer.chore(move |conn| settle(conn, id, Some(&settled)));
        Box::pin(async move { settling.await.map(|_changed| ()) })
    }

    async fn settle_abandoned(&self, before: Timestamp) -> Result<u64, CommitError> {
        let settled = self.writer.chore(move |conn| settle_abandoned(conn, before)).await?;
        Ok(settled as u64)
    }

    async fn budget_uses(
        &self,
        run: RunId,
        home: HomeId,
        account: &AccountName,
        now: Timestamp,
    ) -> Result<BudgetUses, StoreError> {
        self.readers.read(|conn| uses(conn, self.epoch, run, home, account, now))
    }

    async fn usage(&self, ask: UsageAsk) -> Result<Vec<(UsageKey, UsageSum)>, StoreError> {
        self.readers.read(|conn| sums(conn, &ask))
    }

    async fn prune_requests(&self, before: Timestamp, limit: usize) -> Result<u64, CommitError> {
        Ok(self.prune_with(prune, before, limit.min(BITE_ROWS_MAX * 100)).await? as u64)
    }
}

fn day_of(at: Timestamp) -> i64 {
    at.unix_ms().div_euclid(DAY_MS)
}

/// An amount as a column has it. No sum comes near the bound: it is nine billion dollars.
fn column(money: Money) -> i64 {
    i64::try_from(money.nano_dollars()).unwrap_or(i64::MAX)
}

fn money(row: &Row<'_>, index: usize) -> rusqlite::Result<Money> {
    Ok(Money::from_nano_dollars(count(row, index)?))
}

fn count(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    let value: Option<i64> = row.get(index)?;
    Ok(value.and_then(|value| u64::try_from(value).ok()).unwrap_or_default())
}

fn reserve(
    conn: &Connection,
    request: &NewModelRequest,
    budgets: &ModelBudgets,
) -> Result<Reserved, CommitError> {
    let NewModelRequest { run, home, account, begun_at, worst, .. } = request;
    let epoch = stored_epoch(conn)?;
    let uses = uses(conn, epoch, *run, *home, account, *begun_at).map_err(failed)?;
    match budget::judge(budgets, &uses, *worst) {
        BudgetVerdict::Granted => {}
        BudgetVerdict::Waits => return Ok(Reserved::Waits),
        BudgetVerdict::UsedUp(used_up) => return Ok(Reserved::UsedUp(used_up)),
    }
    execute(
        conn,
        "INSERT INTO model_request (run, home, sandbox, account, repository, model, begun_at,
                                    epoch, worst, input_cost)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            run.0.as_bytes(),
            home.0,
            request.sandbox.as_str(),
            account.as_str(),
            request.repository.as_ref().map(Repository::as_str),
            request.model,
            begun_at.unix_ms(),
            epoch.0.cast_signed(),
            column(*worst),
            column(request.input_cost),
        ],
    )?;
    Ok(Reserved::Granted(ModelRequestId(conn.last_insert_rowid())))
}

fn uses(
    conn: &Connection,
    epoch: Epoch,
    run: RunId,
    home: HomeId,
    account: &AccountName,
    at: Timestamp,
) -> Result<BudgetUses, StoreError> {
    let run = run.0.as_bytes().as_slice();
    let spent = |sql: &str, params: &[&dyn rusqlite::ToSql]| {
        let cost = one(conn, sql, params, |row| money(row, 0))?;
        let spent = cost.unwrap_or_default();
        Ok::<_, StoreError>(BudgetUse { spent, reserved: Money::ZERO })
    };
    let of_run = "SELECT sum(cost) FROM model_usage WHERE home = ?1 AND run = ?2";
    let of_issue = "SELECT sum(cost) FROM model_usage WHERE home = ?1";
    let of_day = "SELECT cost FROM model_day WHERE account = ?1 AND day = ?2";
    let day = day_of(at);
    let mut uses = BudgetUses {
        run: spent(of_run, &[&home.0, &run])?,
        issue: spent(of_issue, &[&home.0])?,
        account_day: spent(of_day, &[&account.as_str(), &day])?,
    };
    let open = "SELECT worst, epoch, home = ?2, run = ?3, begun_at FROM model_request
                WHERE account = ?1 AND cost IS NULL";
    let open = all(conn, open, params![account.as_str(), home.0, run], |row| {
        let is_ours = row.get::<_, i64>(1)? == epoch.0.cast_signed();
        let is_today = day_of(Timestamp::from_unix_ms(row.get(4)?)) == day;
        Ok((money(row, 0)?, is_ours, [row.get::<_, bool>(2)?, row.get(3)?, is_today]))
    })?;
    for (worst, is_ours, [of_home, of_run, of_day]) in open {
        for (use_, counts) in [
            (&mut uses.issue, of_home),
            (&mut uses.run, of_home && of_run),
            (&mut uses.account_day, of_day),
        ] {
            match (counts, is_ours) {
                (true, true) => use_.reserved += worst,
                (true, false) => use_.spent += worst,
                (false, _) => {}
            }
        }
    }
    Ok(uses)
}

/// Settles a request that is open, at the cost of its input if nothing else is known.
fn settle(
    conn: &Connection,
    id: ModelRequestId,
    settled: Option<&SettledRequest>,
) -> Result<usize, CommitError> {
    let tokens = settled.map(|settled| settled.tokens);
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let of = |kind: fn(&Tokens) -> u64| tokens.as_ref().map(|tokens| signed(kind(tokens)));
    let changed = execute(
        conn,
        "UPDATE model_request
         SET cost = coalesce(?2, input_cost), status = ?3, duration_ms = ?4, input = ?5,
             output = ?6, cache_read = ?7, cache_write = ?8
         WHERE id = ?1 AND cost IS NULL",
        params![
            id.0,
            settled.map(|settled| column(settled.cost)),
            settled.map(|settled| settled.status),
            settled.map(|settled| i64::try_from(settled.duration.as_millis()).unwrap_or(i64::MAX)),
            of(|tokens| tokens.input),
            of(|tokens| tokens.output),
            of(|tokens| tokens.cache_read),
            of(|tokens| tokens.cache_write),
        ],
    )?;
    if changed == 0 {
        return Ok(0);
    }
    execute(
        conn,
        "INSERT INTO model_usage (home, run, day, model, account, repository, requests, input,
                                  output, cache_read, cache_write, cost)
         SELECT home, run, begun_at / ?2, model, account, repository, 1, coalesce(input, 0),
                coalesce(output, 0), coalesce(cache_read, 0), coalesce(cache_write, 0), cost
         FROM model_request WHERE id = ?1
         ON CONFLICT DO UPDATE
         SET requests = requests + 1, input = input + excluded.input,
             output = output + excluded.output, cache_read = cache_read + excluded.cache_read,
             cache_write = cache_write + excluded.cache_write, cost = cost + excluded.cost",
        [id.0, DAY_MS],
    )?;
    execute(
        conn,
        "INSERT INTO model_day (account, day, cost)
         SELECT account, begun_at / ?2, cost FROM model_request WHERE id = ?1
         ON CONFLICT DO UPDATE SET cost = cost + excluded.cost",
        [id.0, DAY_MS],
    )?;
    Ok(changed)
}

fn settle_abandoned(conn: &Connection, before: Timestamp) -> Result<usize, CommitError> {
    let epoch = stored_epoch(conn)?.0.cast_signed();
    let before = before.unix_ms();
    let sql = "SELECT id FROM model_request
               WHERE cost IS NULL AND begun_at < iif(epoch < ?1, ?2, ?3)";
    let left = all(conn, sql, [epoch, before, before.saturating_sub(OWN_MS)], |row| row.get(0));
    let left: Vec<i64> = left.map_err(failed)?;
    for id in &left {
        settle(conn, ModelRequestId(*id), None)?;
    }
    Ok(left.len())
}

/// Gives what a home used to another: the two are the same issue.
pub(super) fn hand_over(conn: &Connection, from: HomeId, to: HomeId) -> Result<(), CommitError> {
    // The key has the run, and a run belongs to one home.
    execute(conn, "UPDATE model_usage SET home = ?2 WHERE home = ?1", [from.0, to.0])?;
    let open = "UPDATE model_request SET home = ?2 WHERE cost IS NULL AND home = ?1";
    execute(conn, open, [from.0, to.0]).map(|_changed| ())
}

fn prune(conn: &Connection, before: Timestamp, rows: usize) -> Result<usize, CommitError> {
    execute(
        conn,
        "DELETE FROM model_request WHERE id IN (
            SELECT id FROM model_request WHERE begun_at < ?1 AND cost IS NOT NULL
            ORDER BY id LIMIT ?2)",
        params![before.unix_ms(), bound(rows)],
    )
}

fn sums(conn: &Connection, ask: &UsageAsk) -> Result<Vec<(UsageKey, UsageSum)>, StoreError> {
    let (key, order) = match ask.by {
        UsageBy::Run => ("run", "cost DESC"),
        UsageBy::Issue => ("home", "cost DESC"),
        UsageBy::Repository => ("repository", "cost DESC"),
        UsageBy::Account => ("account", "cost DESC"),
        UsageBy::Model => ("model", "cost DESC"),
        UsageBy::Day => ("day", "key"),
    };
    // What is not asked for is not in the query, so that a run's or an issue's rows are found by the key.
    let of_run = if ask.run.is_some() { "run = ?1" } else { "?1 IS NULL" };
    let of_home = if ask.home.is_some() { "home = ?2" } else { "?2 IS NULL" };
    let sql = format!(
        "SELECT {key} AS key, sum(requests), sum(input), sum(output), sum(cache_read),
                sum(cache_write), sum(cost) AS cost
         FROM model_usage
         WHERE {of_run} AND {of_home} AND (?3 IS NULL OR account = ?3) AND day >= ?4
         GROUP BY key ORDER BY {order}, key LIMIT ?5"
    );
    let params = params![
        ask.run.map(|run| run.0.as_bytes().to_vec()),
        ask.home.map(|home| home.0),
        ask.account.as_ref().map(AccountName::as_str),
        ask.since.map_or(i64::MIN, day_of),
        bound(ask.limit),
    ];
    all(conn, &sql, params, |row| {
        let tokens = Tokens {
            input: count(row, 2)?,
            output: count(row, 3)?,
            cache_read: count(row, 4)?,
            cache_write: count(row, 5)?,
        };
        let sum = UsageSum { requests: count(row, 1)?, tokens, cost: money(row, 6)? };
        Ok((usage_key(ask.by, row)?, sum))
    })
}

fn usage_key(by: UsageBy, row: &Row<'_>) -> rusqlite::Result<UsageKey> {
    let wrong = |kind, what: &str| rusqlite::Error::FromSqlConversionFailure(0, kind, what.into());
    Ok(match by {
        UsageBy::Run => {
            let bytes: Vec<u8> = row.get(0)?;
            let id = Uuid::from_slice(&bytes).map_err(|_| wrong(Type::Blob, "no run's id"))?;
            UsageKey::Run(RunId(id))
        }
        UsageBy::Issue => UsageKey::Issue(HomeId(row.get(0)?)),
        UsageBy::Repository => {
            let name: Option<String> = row.get(0)?;
            UsageKey::Repository(name.map(Repository::trusted))
        }
        UsageBy::Account => UsageKey::Account(AccountName::trusted(row.get::<_, String>(0)?)),
        UsageBy::Model => UsageKey::Model(row.get(0)?),
        UsageBy::Day => UsageKey::Day(Timestamp::from_unix_ms(row.get::<_, i64>(0)? * DAY_MS)),
    })
}
