//! Reactions to issues and comments.

use serde_json::{Value, json};

use super::comments::{check_lock, place_of};
use super::issues::wanted;
use super::{ModelResult, RestReply, RestRequest, failure, invalid, reply};
use crate::github::model::state::{ModelState, ReactionRecord, TextRecord};

/// What can be reacted with.
pub(in crate::github::model) const REACTIONS: [&str; 8] =
    ["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"];

/// The issue that a request reacts to, and the comment's place for one on a comment.
type ReactedText = (u64, Option<usize>);

fn text(state: &mut ModelState, repository: u64, (number, at): ReactedText) -> &mut TextRecord {
    let issue = state.issue_mut((repository, number)).expect("it was just found");
    match at {
        Some(at) => &mut issue.comments[at].text,
        None => &mut issue.text,
    }
}

fn list(state: &mut ModelState, request: &RestRequest, target: ReactedText) -> RestReply {
    let reactions = text(state, request.repository, target).reactions.clone();
    let fits = |found: &&ReactionRecord| {
        request.query("content").is_none_or(|content| content == found.content)
    };
    let shown: Vec<Value> =
        reactions.iter().filter(fits).map(|found| state.show_reaction(found)).collect();
    state.page(request, shown)
}

/// 201 for a new one, 200 where this caller already reacted so.
fn create(
    state: &mut ModelState,
    request: &RestRequest,
    target: ReactedText,
) -> ModelResult<RestReply> {
    check_lock(state, request, target.0)?;
    let content = request.text("content").filter(|content| REACTIONS.contains(content));
    let content = content
        .ok_or_else(|| invalid("Reaction", "content", "invalid", "content is not known"))?
        .to_owned();
    let (id, user, at) = (state.next_id(), state.actor(request.access.caller), state.now());
    let reactions = &mut text(state, request.repository, target).reactions;
    let known = reactions.iter().find(|found| found.user == user && found.content == content);
    let (status, found) = match known {
        Some(known) => (200, known.clone()),
        None => {
            let fresh = ReactionRecord { id, user, content, at };
            reactions.push(fresh.clone());
            (201, fresh)
        }
    };
    Ok(reply(status, state.show_reaction(&found)))
}

fn delete(
    state: &mut ModelState,
    request: &RestRequest,
    target: ReactedText,
) -> ModelResult<RestReply> {
    let id = request.number(1)?;
    let reactions = &mut text(state, request.repository, target).reactions;
    let at = reactions.iter().position(|found| found.id == id);
    reactions.remove(at.ok_or_else(|| failure(404, "Not Found"))?);
    Ok(reply(204, json!(null)))
}

fn issue(state: &ModelState, request: &RestRequest) -> ModelResult<ReactedText> {
    Ok((wanted(state, request)?.number, None))
}

fn comment(state: &ModelState, request: &RestRequest) -> ModelResult<ReactedText> {
    let (number, at) = place_of(state, request)?;
    Ok((number, Some(at)))
}

pub(super) fn list_of_issue(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let target = issue(state, request)?;
    Ok(list(state, request, target))
}

pub(super) fn create_on_issue(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let target = issue(state, request)?;
    create(state, request, target)
}

pub(super) fn delete_of_issue(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let target = issue(state, request)?;
    delete(state, request, target)
}

pub(super) fn list_of_comment(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let target = comment(state, request)?;
    Ok(list(state, request, target))
}

pub(super) fn create_on_comment(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let target = comment(state, request)?;
    create(state, request, target)
}

pub(super) fn delete_of_comment(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let target = comment(state, request)?;
    delete(state, request, target)
}
