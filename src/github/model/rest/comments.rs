//! Comments on issues.

use serde_json::{Value, json};

use super::issues::wanted;
use super::{ModelResult, RestReply, RestRequest, failure, invalid, reply};
use crate::github::model::auth::{ModelCaller, may_write};
use crate::github::model::state::{CommentRecord, ModelState};

/// GitHub's bound of a comment's text, in characters.
const BODY_MAX: usize = 65_536;

/// The issue and place of the comment that a request names.
pub(super) fn place_of(state: &ModelState, request: &RestRequest) -> ModelResult<(u64, usize)> {
    let found = state.find_comment(request.repository, request.number(0)?);
    found.ok_or_else(|| failure(404, "Not Found"))
}

fn shown(state: &ModelState, repository: u64, (number, at): (u64, usize)) -> Value {
    let issue = &state.repositories[&repository].issues[&number];
    state.show_comment(repository, number, &issue.comments[at])
}

/// Whether this caller may comment on a locked issue. An App never may.
pub(super) fn check_lock(
    state: &ModelState,
    request: &RestRequest,
    number: u64,
) -> ModelResult<()> {
    let issue = state.issue((request.repository, number));
    let is_locked = issue.is_some_and(|issue| issue.locked);
    let passes = match request.access.caller {
        ModelCaller::User(user) => state.role(request.repository, user).is_some_and(may_write),
        _ => false,
    };
    match is_locked && !passes {
        true => Err(failure(403, "Unable to create comment because issue is locked.")),
        false => Ok(()),
    }
}

fn checked_body(request: &RestRequest) -> ModelResult<String> {
    let body = request.text("body").filter(|body| !body.trim().is_empty());
    let body = body
        .ok_or_else(|| invalid("IssueComment", "body", "missing_field", "body can't be blank"))?;
    match body.chars().count() > BODY_MAX {
        true => Err(invalid(
            "IssueComment",
            "body",
            "unprocessable",
            "body is too long (maximum is 65536 characters)",
        )),
        false => Ok(body.to_owned()),
    }
}

pub(super) fn list(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let issue = wanted(state, request)?;
    let since = request.query("since").and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let is_recent =
        |comment: &&CommentRecord| since.is_none_or(|since| comment.text.updated >= since);
    let comments = issue.comments.iter().filter(is_recent);
    let comments = comments
        .map(|comment| state.show_comment(request.repository, issue.number, comment))
        .collect();
    Ok(state.page(request, comments))
}

pub(super) fn create(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let number = wanted(state, request)?.number;
    check_lock(state, request, number)?;
    let body = checked_body(request)?;
    let actor = state.actor(request.access.caller);
    let id = state.add_comment((request.repository, number), actor, &body);
    let place = state.find_comment(request.repository, id).expect("it was just added");
    Ok(reply(201, shown(state, request.repository, place)))
}

pub(super) fn get(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let place = place_of(state, request)?;
    Ok(reply(200, shown(state, request.repository, place)))
}

/// A comment is changed by its author, and by people who may write.
fn check_author(
    state: &ModelState,
    request: &RestRequest,
    (number, at): (u64, usize),
) -> ModelResult<()> {
    let actor = state.actor(request.access.caller);
    let author = state.repositories[&request.repository].issues[&number].comments[at].text.author;
    let moderates = match request.access.caller {
        ModelCaller::User(user) => state.role(request.repository, user).is_some_and(may_write),
        _ => true,
    };
    match author == actor || moderates {
        true => Ok(()),
        false => Err(failure(403, "Must have admin rights to Repository.")),
    }
}

pub(super) fn edit(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let place = place_of(state, request)?;
    check_author(state, request, place)?;
    let body = checked_body(request)?;
    let actor = state.actor(request.access.caller);
    state.change_comment(request.repository, place, actor, &body);
    Ok(reply(200, shown(state, request.repository, place)))
}

pub(super) fn delete(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let place = place_of(state, request)?;
    check_author(state, request, place)?;
    let actor = state.actor(request.access.caller);
    state.remove_comment(request.repository, place, actor);
    Ok(reply(204, json!(null)))
}
