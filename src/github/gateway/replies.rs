//! The gateway's own answers, each in the form that git shows to people.
//!
//! git shows the body of a refused `info/refs` if it is `text/plain`. Of a refused `POST` it shows
//! nothing, so those are answered within git's protocol. A 401 would have git ask for a name and
//! password, and is never sent.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use super::super::push::{self, PushHead, git_error};
use crate::git::GitBody;

/// A sentence with a status.
pub fn plain(status: StatusCode, sentence: &str) -> Response<GitBody> {
    let text = format!("issuebox: {sentence}\n");
    reply(status, "text/plain; charset=utf-8", text.into())
}

/// A fetch that fails.
pub fn fetch_failed(sentence: &str) -> Response<GitBody> {
    let body = git_error(&format!("issuebox: {sentence}"));
    reply(StatusCode::OK, "application/x-git-upload-pack-result", body.into())
}

/// A push that is refused as a whole: every one of its refs is reported as not changed.
pub fn push_refused(head: &PushHead, sentence: &str) -> Response<GitBody> {
    let body = push::push_refused(head, &format!("issuebox: {sentence}"));
    reply(StatusCode::OK, "application/x-git-receive-pack-result", body.into())
}

/// A refusal to Git LFS (the batch API of git-lfs).
pub fn lfs_refused(status: StatusCode, sentence: &str) -> Response<GitBody> {
    let body = serde_json::json!({ "message": format!("issuebox: {sentence}") });
    reply(status, super::lfs::MEDIA_TYPE, body.to_string().into())
}

/// An answer of these bytes.
pub fn reply(status: StatusCode, media_type: &'static str, body: Bytes) -> Response<GitBody> {
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
