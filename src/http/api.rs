//! The API for programs below `/v1`, one file for each resource.

pub mod checkouts;
mod command_socket;
pub mod commands;
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
pub mod ports;
pub mod publish;
pub mod runs;
pub mod sandboxes;
pub mod system;
pub mod terminal;
pub mod usage;

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header;
use bytes::Bytes;

use crate::store::{PageAsk, StoreError};

use super::error::ApiError;
use super::query::Query;

/// Longest `?wait=`, in seconds.
const WAIT_SECS_MAX: u64 = 300;
/// Default of `?wait=` for work in a sandbox, in seconds.
const WORK_WAIT_SECS: u64 = 30;
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

/// One page of a list in memory, and the cursor of the next page.
fn page_of<'a, T>(all: &'a [T], page: &PageAsk) -> Result<(&'a [T], Option<String>), ApiError> {
    let from: usize = match &page.cursor {
        None => 0,
        Some(cursor) => cursor.parse().map_err(|_| StoreError::BadCursor)?,
    };
    let upto = from.saturating_add(page.limit).min(all.len());
    let next = (upto < all.len()).then(|| upto.to_string());
    Ok((all.get(from..upto).unwrap_or_default(), next))
}

/// Answers with JSON text.
fn ready(json: Bytes) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "application/json")).body(json)
}
