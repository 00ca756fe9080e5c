//! Pull requests.

use serde_json::{Value, json};

use super::{ModelResult, RestReply, RestRequest, failure, invalid, reply};
use crate::github::model::state::{IssueRecord, ModelState, PullRecord};

/// 422 with GitHub's words.
fn refused(words: &str) -> RestReply {
    let mut refused = failure(422, "Validation Failed");
    refused.body["errors"] =
        json!([{"resource": "PullRequest", "code": "custom", "message": words}]);
    refused
}

fn wanted(state: &ModelState, request: &RestRequest) -> ModelResult<u64> {
    let number = request.number(0)?;
    let issue = state.issue((request.repository, number));
    let is_pull = issue.is_some_and(|issue| issue.pull.is_some());
    is_pull.then_some(number).ok_or_else(|| failure(404, "Not Found"))
}

pub(super) fn list(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let owner = state.login(state.repositories[&request.repository].owner).to_owned();
    let head = request.query("head").and_then(|head| head.split_once(':'));
    let fits = |issue: &&IssueRecord| {
        let Some(pull) = &issue.pull else {
            return false;
        };
        let head_fits = head.is_none_or(|(account, branch)| {
            account.eq_ignore_ascii_case(&owner) && branch == pull.head
        });
        let state_fits = match request.query("state").unwrap_or("open") {
            "all" => true,
            "closed" => issue.closed.is_some(),
            _ => issue.closed.is_none(),
        };
        head_fits && state_fits && request.query("base").is_none_or(|base| base == pull.base)
    };
    let issues = &state.repositories[&request.repository].issues;
    let numbers: Vec<u64> = issues.values().rev().filter(fits).map(|issue| issue.number).collect();
    let shown: Vec<Value> =
        numbers.iter().map(|number| state.show_pull(request.repository, *number, false)).collect();
    Ok(state.page(request, shown))
}

pub(super) fn get(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let number = wanted(state, request)?;
    Ok(reply(200, state.show_pull(request.repository, number, true)))
}

/// The remarks of a review.
pub(super) fn review_comments(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let (number, id) = (wanted(state, request)?, request.number(1)?);
    let place = (request.repository, number);
    let pull = state.issue(place).and_then(|issue| issue.pull.as_ref());
    let review = pull.and_then(|pull| pull.reviews.iter().find(|review| review.id == id));
    let review = review.ok_or_else(|| failure(404, "Not Found"))?;
    let remarks = review.remarks.iter();
    let shown: Vec<Value> =
        remarks.map(|remark| state.show_remark(place, review, remark)).collect();
    Ok(state.page(request, shown))
}

pub(super) fn create(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let repository = request.repository;
    let owner = state.login(state.repositories[&repository].owner).to_owned();
    let field = |name: &'static str| {
        let missing = || invalid("PullRequest", name, "missing_field", "a field is missing");
        request.text(name).filter(|text| !text.is_empty()).map(str::to_owned).ok_or_else(missing)
    };
    let (title, base, head) = (field("title")?, field("base")?, field("head")?);
    let head = match head.split_once(':') {
        Some((account, branch)) if account.eq_ignore_ascii_case(&owner) => branch.to_owned(),
        Some(_) => return Err(invalid("PullRequest", "head", "invalid", "head is invalid")),
        None => head,
    };
    let tip = |branch: &str| state.ref_tip(repository, &format!("refs/heads/{branch}"));
    if tip(&base).is_none() {
        return Err(invalid("PullRequest", "base", "invalid", "base is invalid"));
    }
    let Some(head_sha) = tip(&head) else {
        return Err(invalid("PullRequest", "head", "invalid", "head is invalid"));
    };
    let mut issues = state.repositories[&repository].issues.values();
    let is_there = issues.any(|issue| {
        let pull = issue.pull.as_ref().filter(|_| issue.closed.is_none());
        pull.is_some_and(|pull| pull.head == head && pull.base == base)
    });
    if is_there {
        return Err(refused(&format!("A pull request already exists for {owner}:{head}.")));
    }
    if state.commits_between(repository, &base, &head) == 0 {
        return Err(refused(&format!("No commits between {base} and {head}")));
    }
    let draft = request.body["draft"] == true;
    if draft && state.repositories[&repository].refuses_drafts {
        let words = "Draft pull requests are not supported in this repository.";
        let mut unsupported = refused(words);
        unsupported.body["message"] = json!(words);
        return Err(unsupported);
    }
    let pull = PullRecord { head, head_sha, base, draft, merged: None, reviews: Vec::new() };
    let author = state.actor(request.access.caller);
    let body = request.text("body").unwrap_or_default();
    let number = state.new_issue(repository, author, &title, body, Some(pull));
    Ok(reply(201, state.show_pull(repository, number, true)))
}

pub(super) fn edit(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let number = wanted(state, request)?;
    let actor = state.actor(request.access.caller);
    let place = (request.repository, number);
    let (title, body) = (request.text("title"), request.text("body"));
    if title.is_some() || body.is_some() {
        state.edit_text(place, actor, title, body);
    }
    match request.text("state") {
        Some("closed") => state.set_closed(place, actor, true),
        Some("open") => state.set_closed(place, actor, false),
        Some(_) | None => {}
    }
    Ok(reply(200, state.show_pull(request.repository, number, true)))
}
