//! Lists in pages: sandboxes, timelines and deliveries, with cursors and totals.
//!
//! A cursor names the last thing of a page by its place in the order, so what is added or removed
//! meanwhile neither repeats nor hides anything else. A page and its total are of one moment.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params, params_from_iter};

use super::apply::{GuidKey, stored_account};
use super::read::{all, bound, failed, one, readable};
use super::trouble::Troubles;
use super::{columns, instructions, read};
use crate::store::{
    DeliveryFilter, DeliveryListRow, DeliveryState, Page, PageAsk, SandboxFilter, StoreError,
    TimelineListRow,
};
use crate::types::{
    AccountName, DeliveryId, Generation, HomeId, IssueId, Sandbox, TimelineEntry, Timestamp,
};

/// The place of a sandbox in the order of its list.
struct SandboxPlace {
    created_at: i64,
    id: String,
}

impl SandboxPlace {
    fn of(sandbox: &Sandbox) -> Self {
        Self { created_at: sandbox.created_at.unix_ms(), id: sandbox.id.to_string() }
    }

    fn to_cursor(&self) -> String {
        BASE64.encode(format!("s:{}:{}", self.created_at, self.id))
    }

    fn from_cursor(cursor: &str) -> Result<Self, StoreError> {
        let text = decode(cursor)?;
        let (created_at, id) = text
            .strip_prefix("s:")
            .and_then(|place| place.split_once(':'))
            .ok_or(StoreError::BadCursor)?;
        let created_at = created_at.parse().map_err(|_| StoreError::BadCursor)?;
        Ok(Self { created_at, id: id.to_owned() })
    }
}

fn decode(cursor: &str) -> Result<String, StoreError> {
    let bytes = BASE64.decode(cursor).map_err(|_| StoreError::BadCursor)?;
    String::from_utf8(bytes).map_err(|_| StoreError::BadCursor)
}

/// Conditions that all must hold, and what is bound to their question marks, in order.
struct Conditions {
    sql: String,
    values: Vec<Value>,
}

impl Conditions {
    fn of_account(account: i64) -> Self {
        Self { sql: "i.account = ?".into(), values: vec![Value::Integer(account)] }
    }

    /// Of deliveries.
    fn of_deliveries(filter: &DeliveryFilter) -> Self {
        let mut all = Self { sql: "TRUE".into(), values: Vec::new() };
        let DeliveryFilter { account, home, applied, event, action, state, sample } = filter;
        if let Some(account) = account {
            let account = stored_account(account).map(str::to_owned);
            all.and("d.account IS ?", [Value::from(account)]);
        }
        if let Some(home) = home {
            all.and("d.home = ?", [Value::Integer(home.0)]);
        }
        if let Some(applied) = applied {
            all.and("d.applied = ?", [Value::from(*applied)]);
        }
        if let Some(event) = event {
            all.and("d.event = ?", [Value::Text(event.clone())]);
        }
        if let Some(action) = action {
            all.and("d.action = ?", [Value::Text(action.clone())]);
        }
        match state {
            None => {}
            Some(DeliveryState::Done) => all.and("d.state IS NULL", []),
            Some(DeliveryState::Pending) => all.and("d.state = 'pending'", []),
            Some(DeliveryState::SetAside) => all.and("d.state = 'set_aside'", []),
        }
        if let Some(sample) = sample {
            let prefix = Value::Text(DeliveryId::SAMPLE_PREFIX.to_owned());
            // Bytes, as a GUID is stored, do not begin with a text.
            let is_sample = "iif(typeof(d.guid) = 'text', instr(d.guid, ?) = 1, FALSE) = ?";
            all.and(is_sample, [prefix, Value::from(*sample)]);
        }
        all
    }

    fn and(&mut self, sql: &'static str, values: impl IntoIterator<Item = Value>) {
        self.sql.push_str(" AND ");
        self.sql.push_str(sql);
        self.values.extend(values);
    }

    /// What a filter asks of every sandbox, live or ended.
    fn filter(&mut self, filter: &SandboxFilter) {
        // Phase and deleted decide between the two tables.
        let SandboxFilter {
            phase: _,
            provider,
            repository,
            home,
            // Where it stands depends on the table.
            template: _,
            external_id,
            text,
            include_deleted: _,
            only_deleted: _,
        } = filter;
        if let Some(provider) = provider {
            self.and("i.provider = ?", [Value::Text(provider.to_string())]);
        }
        if let Some(repository) = repository {
            self.and("i.repository = ?", [Value::Text(repository.folded())]);
        }
        if let Some(home) = home {
            self.and("i.home = ?", [Value::Integer(home.0)]);
        }
        if let Some(external_id) = external_id {
            self.and("i.external_id = ?", [Value::Text(external_id.to_string())]);
        }
        if let Some(text) = text {
            // Not LIKE: it knows no case but ASCII's, and would need its wildcards escaped.
            self.and("instr(i.search, ?) > 0", [Value::Text(text.to_lowercase())]);
        }
    }
}

/// One of the two tables that a list of sandboxes is made of.
struct Source {
    table: &'static str,
    columns: &'static str,
    read: fn(&rusqlite::Row<'_>) -> rusqlite::Result<Sandbox>,
    conditions: Conditions,
}

impl Source {
    /// `None` if the filter lets no live sandbox through.
    fn live(account: i64, filter: &SandboxFilter) -> Option<Self> {
        if filter.only_deleted {
            return None;
        }
        let mut conditions = Conditions::of_account(account);
        match filter.phase {
            Some(phase) => conditions.and("i.phase = ?", [Value::Text(phase.to_string())]),
            None => conditions.and("i.phase IS NOT NULL", []),
        }
        conditions.filter(filter);
        if let Some(template) = &filter.template {
            let name = Value::Text(template.to_string());
            conditions.and("i.body ->> '$.record.template.name' = ?", [name]);
        }
        let (columns, read) = (columns::ISSUE_COLUMNS, columns::live_sandbox);
        Some(Self { table: "issue", columns, read, conditions })
    }

    /// `None` if the filter lets no ended sandbox through.
    fn ended(account: i64, filter: &SandboxFilter) -> Option<Self> {
        if !(filter.include_deleted || filter.only_deleted) || filter.phase.is_some() {
            return None;
        }
        let mut conditions = Conditions::of_account(account);
        conditions.filter(filter);
        if let Some(template) = &filter.template {
            conditions.and("i.body ->> '$.template' = ?", [Value::Text(template.to_string())]);
        }
        let (columns, read) = (columns::ENDED_COLUMNS, columns::ended);
        Some(Self { table: "ended", columns, read, conditions })
    }

    fn count(&self, conn: &Connection) -> Result<u64, StoreError> {
        let Conditions { sql, values } = &self.conditions;
        let sql = format!("SELECT count(*) FROM {} AS i WHERE {sql}", self.table);
        let count = one(conn, &sql, params_from_iter(values), |row| row.get::<_, i64>(0))?;
        Ok(count.unwrap_or(0).cast_unsigned())
    }

    /// At most `limit` sandboxes behind this place, newest first.
    fn page(
        mut self,
        conn: &Connection,
        troubles: &Troubles,
        behind: Option<&SandboxPlace>,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError> {
        if let Some(place) = behind {
            self.conditions.and(
                "(i.created_at, i.sandbox_id) < (?, ?)",
                [Value::Integer(place.created_at), Value::Text(place.id.clone())],
            );
        }
        let Conditions { sql, values } = self.conditions;
        let sql = format!(
            "SELECT {} FROM {} AS i JOIN account AS a ON a.id = i.account WHERE {sql}
             ORDER BY i.created_at DESC, i.sandbox_id DESC",
            self.columns, self.table
        );
        readable(conn, troubles, &sql, params_from_iter(values), limit, self.read)
    }
}

pub(super) fn sandboxes(
    conn: &Connection,
    troubles: &Troubles,
    account: &AccountName,
    filter: &SandboxFilter,
    ask: &PageAsk,
) -> Result<Page<Sandbox>, StoreError> {
    let behind = ask.cursor.as_deref().map(SandboxPlace::from_cursor).transpose()?;
    let moment = conn.unchecked_transaction().map_err(failed(conn))?;
    let Some(account) = read::account(&moment, account)? else {
        return Ok(Page { items: Vec::new(), next: None, total: 0 });
    };
    let (mut total, mut items) = (0, Vec::new());
    let live = Source::live(account, filter);
    for source in live.into_iter().chain(Source::ended(account, filter)) {
        total += source.count(&moment)?;
        let limit = ask.limit.saturating_add(1);
        items.extend(source.page(&moment, troubles, behind.as_ref(), limit)?);
    }
    items.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
    let more = items.len() > ask.limit;
    items.truncate(ask.limit);
    let next = items.last().filter(|_| more).map(|last| SandboxPlace::of(last).to_cursor());
    Ok(Page { items, next, total })
}

/// The place behind which a page of rows with numbers begins.
pub(super) fn behind(cursor: Option<&str>, prefix: &str) -> Result<i64, StoreError> {
    let Some(cursor) = cursor else { return Ok(i64::MAX) };
    let text = decode(cursor)?;
    let place = text.strip_prefix(prefix).and_then(|place| place.parse().ok());
    place.ok_or(StoreError::BadCursor)
}

/// The cursor that leads behind the row of this number.
fn place(prefix: &str, id: i64) -> String {
    BASE64.encode(format!("{prefix}{id}"))
}

/// The page that these rows, one more than asked for, make; each with its number.
pub(super) fn page_of<T>(
    mut rows: Vec<(i64, T)>,
    limit: usize,
    prefix: &str,
    total: i64,
) -> Page<T> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(id, _row)| place(prefix, *id));
    let items = rows.into_iter().map(|(_id, row)| row).collect();
    Page { items, next, total: total.cast_unsigned() }
}

pub(super) fn timeline(
    conn: &Connection,
    home: HomeId,
    ask: &PageAsk,
) -> Result<Page<TimelineListRow>, StoreError> {
    let behind = behind(ask.cursor.as_deref(), "t:")?;
    let moment = conn.unchecked_transaction().map_err(failed(conn))?;
    let sql = "SELECT count(*) FROM timeline WHERE home = ?1";
    let total = one(&moment, sql, [home.0], |row| row.get::<_, i64>(0))?.unwrap_or(0);
    let entries = all(
        &moment,
        "SELECT id, at, generation, phase_from, phase_to, reason, cause FROM timeline
         WHERE home = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
        params![home.0, behind, bound(ask.limit.saturating_add(1))],
        |row| {
            let entry = TimelineEntry {
                at: Timestamp::from_unix_ms(row.get(1)?),
                generation: Generation(row.get(2)?),
                from: columns::phase(row, 3)?,
                to: columns::phase(row, 4)?,
                reason: row.get(5)?,
                cause: row.get(6)?,
            };
            Ok((row.get::<_, i64>(0)?, entry))
        },
    )?;
    let page = page_of(entries, ask.limit, "t:", total);
    let deliveries = page.items.iter().filter_map(TimelineEntry::delivery).collect();
    let excerpts = instructions::excerpts(&moment, home, &deliveries)?;
    let row = |entry: TimelineEntry| {
        let instruction = entry.delivery().and_then(|delivery| excerpts.get(&delivery).cloned());
        TimelineListRow { entry, instruction }
    };
    let Page { items, next, total } = page;
    Ok(Page { items: items.into_iter().map(row).collect(), next, total })
}

/// Of deliveries only the state has an index: one more by home, event or effect would be written
/// for each of them, to be asked for by a person now and then. A total reads the whole table, some
/// 150 ms for a million rows.
pub(super) fn deliveries(
    conn: &Connection,
    filter: &DeliveryFilter,
    ask: &PageAsk,
) -> Result<Page<DeliveryListRow>, StoreError> {
    let behind = behind(ask.cursor.as_deref(), "d:")?;
    let mut conditions = Conditions::of_deliveries(filter);
    let moment = conn.unchecked_transaction().map_err(failed(conn))?;
    let sql = format!("SELECT count(*) FROM delivery AS d WHERE {}", conditions.sql);
    let total = one(&moment, &sql, params_from_iter(&conditions.values), |row| row.get(0))?;
    conditions.and("d.id < ?", [Value::Integer(behind)]);
    conditions.values.push(Value::Integer(bound(ask.limit.saturating_add(1))));
    let sql = format!(
        "SELECT d.received_at, d.event, d.action, d.home, d.applied, d.reason, d.state,
                d.recovered, d.account, d.id, d.guid, i.body ->> '$.facts.issue_id',
                coalesce(i.body ->> '$.record.name',
                         (SELECT e.body ->> '$.name' FROM ended AS e
                          WHERE e.home = d.home ORDER BY e.generation DESC LIMIT 1)),
                n.body, n.text
         FROM delivery AS d
         LEFT JOIN issue AS i ON i.home = d.home
         LEFT JOIN instruction AS n
                ON n.home = coalesce(i.body ->> '$.merged_into', d.home) AND n.guid = d.guid
         WHERE {} ORDER BY d.id DESC LIMIT ?",
        conditions.sql
    );
    let rows = all(&moment, &sql, params_from_iter(&conditions.values), |row| {
        let (number, id) = (row.get(9)?, GuidKey::read(row, 10)?);
        let listed = DeliveryListRow {
            row: read::delivery_row(row, &id)?,
            issue_id: row.get_ref(11)?.as_str_or_null()?.map(IssueId::trusted),
            sandbox_name: row.get(12)?,
            instruction: match row.get_ref(13)? {
                ValueRef::Null => None,
                _ => Some(instructions::instruction(row, 13)?),
            },
            cursor: place("d:", number),
        };
        Ok((number, listed))
    })?;
    Ok(page_of(rows, ask.limit, "d:", total.unwrap_or(0)))
}
