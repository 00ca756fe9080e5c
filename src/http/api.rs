//! The API for programs below `/v1`, one file for each resource.

pub mod accounts;
pub mod checkouts;
mod command_socket;
pub mod commands;
pub mod configuration;
pub mod conversations;
pub mod deliveries;
pub mod drift;
pub mod ensure;
pub mod events;
pub mod exec;
pub mod files;
pub mod github;
pub mod holds;
pub mod issues;
pub mod limits;
pub mod login;
pub mod logs;
pub mod meta;
pub mod ports;
pub mod publish;
pub mod runs;
pub mod sandboxes;
pub mod syncs;
pub mod system;
pub mod templates;
pub mod terminal;
pub mod tokens;
pub mod usage;

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use serde::Serialize;

use crate::store::{PageAsk, StoreError};

use super::error::ApiError;
use super::query::Query;
use super::wire::ListAnswer;

/// Longest `?wait=`, in seconds.
const WAIT_SECS_MAX: u64 = 300;
/// Default of `?wait=` for work in a sandbox, in seconds.
pub const WORK_WAIT_SECS: u64 = 30;
/// Default of `?limit=`.
const LIMIT_DEFAULT: u64 = 50;
/// Most entries of a page.
const LIMIT_MAX: u64 = 200;

/// Reads `?wait=`.
fn wait(query: &mut Query, default_secs: u64) -> Result<Duration, ApiError> {
    let secs = query.number("wait", 0..=WAIT_SECS_MAX)?.unwrap_or(default_secs);
    Ok(Duration::from_secs(secs))
}

/// Reads `?limit=` and `?cursor=`.
fn page(query: &mut Query) -> Result<PageAsk, ApiError> {
    let limit = query.number("limit", 1..=LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let limit = usize::try_from(limit).expect("at most 200");
    Ok(PageAsk { limit, cursor: query.text("cursor")? })
}

/// One page of a list that is in memory.
pub struct ListedPage<'a, T> {
    /// Its items.
    pub items: &'a [T],
    /// The cursor of the next page; `None` on the last.
    pub next_cursor: Option<String>,
    /// The number of items on all pages.
    pub total: u64,
}

impl<'a, T> ListedPage<'a, T> {
    /// The page that a request asks for. It may have no other parameters.
    fn of(request: &HttpRequest, all: &'a [T]) -> Result<Self, ApiError> {
        let mut query = Query::parse(request.query_string());
        let page = page(&mut query)?;
        query.finish()?;
        Self::of_ask(all, &page)
    }

    /// The page with this limit and cursor.
    ///
    /// # Errors
    /// 400 if the cursor is of no page.
    pub fn of_ask(all: &'a [T], page: &PageAsk) -> Result<Self, ApiError> {
        let from: usize = match &page.cursor {
            None => 0,
            Some(cursor) => cursor.parse().map_err(|_| StoreError::BadCursor)?,
        };
        let upto = from.saturating_add(page.limit).min(all.len());
        let next_cursor = (upto < all.len()).then(|| upto.to_string());
        let items = all.get(from..upto).unwrap_or_default();
        Ok(Self { items, next_cursor, total: all.len() as u64 })
    }

    /// Answers with the body of each item.
    fn answer<B: Serialize>(self, body: impl FnMut(&'a T) -> B) -> HttpResponse {
        let data = self.items.iter().map(body).collect();
        self.answer_with(data)
    }

    /// Answers with the bodies of its items.
    fn answer_with<B: Serialize>(self, data: Vec<B>) -> HttpResponse {
        let Self { next_cursor, total, .. } = self;
        let list = ListAnswer { success: true, data, next_cursor, total, event_cursor: None };
        HttpResponse::Ok().json(list)
    }
}

/// Answers with JSON text.
fn ready(json: Bytes) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "application/json")).body(json)
}
