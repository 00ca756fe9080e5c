//! Deliveries and their results: `GET /v1/deliveries`.
//!
//! Two lists are merged by time: stored deliveries, and the last refused ones, which are in memory
//! (`refused`). A cursor has a position in each.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, get, web};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Serialize;
use utoipa::ToSchema;

use super::sandboxes::{bounded, parse_issue_id};
use crate::http::Shared;
use crate::http::answers;
use crate::http::caller::Caller;
use crate::http::doc::params;
use crate::http::doc::words::DeliveryWord;
use crate::http::error::ApiError;
use crate::http::instruction::InstructionBody;
use crate::http::query::Query;
use crate::http::refused::Refused;
use crate::http::wire::ListAnswer;
use crate::store::{
    DeliveryFilter, DeliveryListRow, DeliveryRow, DeliveryState, Page, PageAsk, Store, StoreError,
};
use crate::types::{Alias, IssueId};

/// A delivery and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Delivery)]
pub struct DeliveryBody {
    /// Its GUID; for a refused delivery the GUID in its header, or null.
    pub delivery: Option<String>,
    /// GitHub's event, such as `issues`; null if a refused one named none.
    pub event: Option<String>,
    /// Its action, such as `labeled`; null if it has none.
    pub action: Option<String>,
    /// Its status.
    #[schema(value_type = DeliveryWord)]
    pub status: &'static str,
    /// The result in words.
    pub reason: String,
    /// The issue that it affected, if it affected one.
    pub issue_id: Option<String>,
    /// The name of that issue's newest sandbox, if it ever had one.
    pub sandbox_name: Option<String>,
    /// When it arrived.
    #[schema(format = DateTime)]
    pub received_at: String,
    /// Whether it did not arrive and the server read it from GitHub instead.
    pub recovered: bool,
    /// The words for the agent that it brought; null when it was no trigger or was ignored.
    pub instruction: Option<InstructionBody>,
}

/// The status of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It had an effect, at least on stored facts.
    Accepted,
    /// It had no effect.
    Ignored,
    /// It is being applied to each issue that it concerns.
    Pending,
    /// Applying it failed too often.
    SetAside,
    /// Its signature is missing or wrong; nothing was stored.
    BadlySigned,
    /// It was refused for another reason; nothing was stored.
    Refused,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Accepted,
        Self::Ignored,
        Self::Pending,
        Self::SetAside,
        Self::BadlySigned,
        Self::Refused,
    ];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Ignored => "ignored",
            Self::Pending => "pending",
            Self::SetAside => "set_aside",
            Self::BadlySigned => "badly_signed",
            Self::Refused => "refused",
        }
    }

    fn parse(word: &str) -> Result<Self, ApiError> {
        let all = Self::ALL;
        all.into_iter().find(|status| status.as_str() == word).ok_or_else(|| {
            let words = all.map(Self::as_str).join(", ");
            ApiError::field("status", format!("must be one of {words}"))
        })
    }

    const fn of_row(row: &DeliveryRow) -> Self {
        match (row.state, row.applied) {
            (DeliveryState::Pending, _) => Self::Pending,
            (DeliveryState::SetAside, _) => Self::SetAside,
            (DeliveryState::Done, true) => Self::Accepted,
            (DeliveryState::Done, false) => Self::Ignored,
        }
    }

    const fn of_refused(refused: &Refused) -> Self {
        if refused.is_badly_signed { Self::BadlySigned } else { Self::Refused }
    }

    /// The filter for the store; `None` if no stored delivery has this status.
    const fn stored(self) -> Option<(DeliveryState, Option<bool>)> {
        match self {
            Self::Accepted => Some((DeliveryState::Done, Some(true))),
            Self::Ignored => Some((DeliveryState::Done, Some(false))),
            Self::Pending => Some((DeliveryState::Pending, None)),
            Self::SetAside => Some((DeliveryState::SetAside, None)),
            Self::BadlySigned | Self::Refused => None,
        }
    }
}

/// Lists deliveries, newest first. Ignored deliveries are listed, and to admins refused ones until the
/// server restarts. Duplicates are not listed.
#[utoipa::path(
    operation_id = "listDeliveries", tag = "deliveries",
    params(
        ("event" = Option<String>, Query,
         description = "Filter by event, such as `issues`, or with its action: `issues.labeled`"),
        ("status" = Option<DeliveryWord>, Query, description = "Filter by status"),
        ("issueId" = Option<String>, Query, description = "Filter by affected issue"),
        params::PageOf,
    ),
    responses(
        (status = 200, description = "a page of deliveries", body = ListAnswer<DeliveryBody>),
        answers::StoreReadErrors,
    )
)]
#[get("/v1/deliveries")]
pub async fn list(
    shared: web::Data<Shared>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let mut query = Query::parse(request.query_string());
    let page = super::page(&mut query)?;
    let ask = DeliveryAsk::read(&mut query, page)?;
    query.finish()?;
    Ok(HttpResponse::Ok().json(find(&shared, &caller, ask).await?))
}

/// Which deliveries to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryAsk {
    /// The event, or event and action with a dot between them, as they are shown.
    pub event: Option<String>,
    /// The status.
    pub status: Option<Status>,
    /// The affected issue.
    pub issue: Option<IssueId>,
    /// The page.
    pub page: PageAsk,
}

impl DeliveryAsk {
    /// Reads the filters.
    ///
    /// # Errors
    /// 400 if one is invalid.
    pub fn read(query: &mut Query, page: PageAsk) -> Result<Self, ApiError> {
        Ok(Self {
            event: bounded("event", query.text("event")?)?,
            status: query.text("status")?.as_deref().map(Status::parse).transpose()?,
            issue: query.text("issueId")?.as_deref().map(parse_issue_id).transpose()?,
            page,
        })
    }
}

/// Reads a page of deliveries, stored and refused ones.
///
/// # Errors
/// 400 for a cursor of another list, 503 if the store cannot be read.
pub async fn find(
    shared: &Shared,
    caller: &Caller,
    ask: DeliveryAsk,
) -> Result<ListAnswer<DeliveryBody>, ApiError> {
    let DeliveryAsk { event: of_event, status, issue, page: PageAsk { limit, cursor } } = ask;
    let place = cursor.as_deref().map_or(Ok(DeliveryCursor::default()), DeliveryCursor::parse)?;
    // Refused deliveries affect no issue, and belong to no account: nothing of them was trusted.
    let refused = if issue.is_none() && caller.is_admin() {
        shared.refused.newest_first()
    } else {
        Vec::new()
    };
    // The names of GitHub's events have no dot.
    let (event, action) = match of_event.as_deref().map(|event| event.split_once('.')) {
        Some(Some((event, action))) => (Some(event.to_owned()), Some(action.to_owned())),
        Some(None) => (of_event, None),
        None => (None, None),
    };
    let matching = refused.into_iter().filter(|one| {
        // The action of a refused delivery was not read.
        let is_of_event = event.as_ref().is_none_or(|event| one.event.as_ref() == Some(event));
        action.is_none()
            && is_of_event
            && status.is_none_or(|status| Status::of_refused(one) == status)
    });
    let matching: Vec<Refused> = matching.collect();
    let home = match issue {
        Some(issue) => {
            let alias = Alias::Issue(issue);
            match shared.edge.store.resolve(&caller.account, &alias).await? {
                Some(home) => Some(home),
                None => return Ok(listed(Merged::default(), 0)),
            }
        }
        None => None,
    };
    let stored = match status.map(Status::stored) {
        // No stored delivery has this status.
        Some(None) => Page { items: Vec::new(), next: None, total: 0 },
        None | Some(Some(_)) => {
            let (state, applied) = status.and_then(Status::stored).unzip();
            let applied = applied.flatten();
            let account = Some(caller.account.clone());
            let filter =
                DeliveryFilter { account, home, applied, event, action, state, sample: None };
            let ask = PageAsk { limit, cursor: place.stored.clone() };
            read(shared, filter, ask).await?
        }
    };
    let total = stored.total + matching.len() as u64;
    Ok(listed(merge(place, stored, matching, limit), total))
}

/// Reads a page on a blocking thread, since the total counts every row.
async fn read(
    shared: &Shared,
    filter: DeliveryFilter,
    ask: PageAsk,
) -> Result<Page<DeliveryListRow>, ApiError> {
    let read = async move |store: Arc<dyn Store>| store.deliveries(&filter, &ask).await;
    Ok(shared.read_list(read).await?)
}

fn listed(merged: Merged, total: u64) -> ListAnswer<DeliveryBody> {
    let Merged { data, next_cursor } = merged;
    ListAnswer { success: true, data, next_cursor, total, event_cursor: None }
}

/// The position in both lists.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeliveryCursor {
    /// The number of the last refused delivery; the next ones have smaller numbers.
    refused: i64,
    /// The store's cursor.
    stored: Option<String>,
}

impl Default for DeliveryCursor {
    fn default() -> Self {
        Self { refused: i64::MAX, stored: None }
    }
}

impl DeliveryCursor {
    fn to_cursor(&self) -> String {
        let stored = self.stored.as_deref().unwrap_or_default();
        BASE64.encode(format!("l:{}:{stored}", self.refused))
    }

    fn parse(cursor: &str) -> Result<Self, ApiError> {
        let bytes = BASE64.decode(cursor).unwrap_or_default();
        let text = String::from_utf8(bytes).unwrap_or_default();
        let parts = text.strip_prefix("l:").and_then(|parts| parts.split_once(':'));
        let place = parts.and_then(|(refused, stored)| {
            let stored = Some(stored.to_owned()).filter(|stored| !stored.is_empty());
            Some(Self { refused: refused.parse().ok()?, stored })
        });
        place.ok_or_else(|| StoreError::BadCursor.into())
    }
}

/// A page of both lists.
#[derive(Debug, Default, PartialEq, Eq)]
struct Merged {
    data: Vec<DeliveryBody>,
    next_cursor: Option<String>,
}

/// Merges both lists after `place` by time, newest first.
fn merge(
    mut place: DeliveryCursor,
    stored: Page<DeliveryListRow>,
    refused: Vec<Refused>,
    limit: usize,
) -> Merged {
    let from = place.refused;
    let mut refused = refused.into_iter().filter(|one| one.number < from).peekable();
    let more_stored = stored.next.is_some();
    let mut stored = stored.items.into_iter().peekable();
    let mut data = Vec::with_capacity(limit.min(stored.len() + 8));
    while data.len() < limit {
        let is_refused = match (refused.peek(), stored.peek()) {
            (Some(refused), Some(stored)) => refused.received_at >= stored.row.received_at,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_refused && let Some(one) = refused.next() {
            place.refused = one.number;
            data.push(of_refused(one));
        } else if let Some(one) = stored.next() {
            place.stored = Some(one.cursor.clone());
            data.push(of_row(one));
        } else {
            break;
        }
    }
    let more = more_stored || refused.peek().is_some() || stored.peek().is_some();
    Merged { data, next_cursor: more.then(|| place.to_cursor()) }
}

fn of_row(listed: DeliveryListRow) -> DeliveryBody {
    let DeliveryListRow { row, issue_id, sandbox_name, instruction, cursor: _ } = listed;
    DeliveryBody {
        status: Status::of_row(&row).as_str(),
        delivery: Some(row.id.to_string()),
        event: Some(row.event),
        action: Some(row.action).filter(|action| !action.is_empty()),
        reason: row.reason,
        issue_id: issue_id.map(|id| id.to_string()),
        sandbox_name,
        received_at: row.received_at.to_string(),
        recovered: row.recovered,
        instruction: instruction.map(Into::into),
    }
}

fn of_refused(refused: Refused) -> DeliveryBody {
    DeliveryBody {
        status: Status::of_refused(&refused).as_str(),
        delivery: refused.delivery,
        event: refused.event,
        action: None,
        reason: refused.reason,
        issue_id: None,
        sandbox_name: None,
        received_at: refused.received_at.to_string(),
        recovered: false,
        instruction: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{AccountName, DeliveryId, Timestamp};

    fn row(number: i64, ms: i64) -> DeliveryListRow {
        let row = DeliveryRow {
            account: AccountName::default_account(),
            id: DeliveryId::trusted(format!("row-{number}")),
            received_at: Timestamp::from_unix_ms(ms),
            recovered: false,
            event: "issues".into(),
            action: String::new(),
            home: None,
            applied: true,
            reason: String::new(),
            state: DeliveryState::Done,
        };
        let cursor = number.to_string();
        DeliveryListRow { row, issue_id: None, sandbox_name: None, instruction: None, cursor }
    }

    fn refused(number: i64, ms: i64) -> Refused {
        Refused {
            number,
            received_at: Timestamp::from_unix_ms(ms),
            delivery: Some(format!("refused-{number}")),
            event: None,
            is_badly_signed: true,
            reason: String::new(),
        }
    }

    /// A store's page out of rows, newest first, as the store would give it.
    fn page(rows: &[DeliveryListRow], cursor: Option<&str>, limit: usize) -> Page<DeliveryListRow> {
        let behind = cursor.map_or(0, |cursor| {
            1 + rows.iter().position(|row| row.cursor == cursor).expect("a known row")
        });
        let items: Vec<_> = rows[behind..].iter().take(limit).cloned().collect();
        let more = behind + items.len() < rows.len();
        let next = items.last().filter(|_| more).map(|row| row.cursor.clone());
        Page { items, next, total: rows.len() as u64 }
    }

    #[test]
    fn both_lists_are_merged_by_time_whatever_the_length_of_a_page() {
        // The third row came while the clock was set back.
        let rows = [row(5, 90), row(4, 60), row(3, 80), row(2, 20), row(1, 10)];
        let ring = [refused(13, 95), refused(12, 60), refused(11, 15), refused(10, 5)];
        let expected = [
            "refused-13",
            "row-5",
            "refused-12",
            "row-4",
            "row-3",
            "row-2",
            "refused-11",
            "row-1",
            "refused-10",
        ];
        for limit in 1..=10 {
            let (mut place, mut seen) = (DeliveryCursor::default(), Vec::new());
            loop {
                let stored = page(&rows, place.stored.as_deref(), limit);
                let merged = merge(place, stored, ring.to_vec(), limit);
                assert!(merged.data.len() == limit || merged.next_cursor.is_none());
                seen.extend(merged.data.into_iter().filter_map(|one| one.delivery));
                let Some(next) = merged.next_cursor else { break };
                place = DeliveryCursor::parse(&next).expect("its own cursor");
            }
            assert_eq!(seen, expected, "pages of {limit}");
        }
    }

    #[test]
    fn a_cursor_of_another_list_is_refused() {
        for bad in ["", "x", "bDp4Og", "ZDox"] {
            assert!(DeliveryCursor::parse(bad).is_err(), "{bad:?}");
        }
    }
}
