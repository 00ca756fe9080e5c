//! Issues, their events and labels.

use serde_json::{Value, json};

use super::{ModelResult, RestReply, RestRequest, failure, invalid, reply};
use crate::github::model::state::{IssueRecord, ModelState};

/// The issue that a request names. Errors are GitHub's answers to a transferred, a deleted and an
/// unknown one.
pub(super) fn wanted<'a>(
    state: &'a ModelState,
    request: &RestRequest,
) -> ModelResult<&'a IssueRecord> {
    let place = (request.repository, request.number(0)?);
    if let Some(issue) = state.issue(place) {
        return Ok(issue);
    }
    if let Some((repository, number)) = state.moved_issues.get(&place) {
        let name = state.full_name(place.0);
        let behind = format!("/repos/{name}/issues/{}", place.1);
        let rest = request.path.get(behind.len()..).unwrap_or_default();
        let path = format!("/repositories/{repository}/issues/{number}{rest}");
        return Err(state.moved(&path, request));
    }
    match state.deleted_issues.contains(&place) {
        true => Err(failure(410, "This issue was deleted")),
        false => Err(failure(404, "Not Found")),
    }
}

pub(super) fn get(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let issue = wanted(state, request)?;
    Ok(reply(200, state.show_issue(request.repository, issue)))
}

pub(super) fn list(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let wanted_state = request.query("state").unwrap_or("open");
    let labels = request.query("labels").unwrap_or_default();
    let labels: Vec<&str> = labels.split(',').filter(|label| !label.is_empty()).collect();
    let assignee = request.query("assignee").map(|login| (login, state.user_id(login)));
    if let Some((login, None)) = assignee
        && login != "*"
        && login != "none"
    {
        return Err(invalid("Issue", "assignee", "invalid", "assignee does not exist"));
    }
    let since = request.query("since").and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let fits = |issue: &&IssueRecord| {
        let state_fits = match wanted_state {
            "all" => true,
            "closed" => issue.closed.is_some(),
            _ => issue.closed.is_none(),
        };
        let has = |name: &str| issue.labels.iter().any(|own| own.name.eq_ignore_ascii_case(name));
        let assignee_fits = match assignee {
            None => true,
            Some(("none", _)) => issue.assignees.is_empty(),
            Some(("*", _)) => !issue.assignees.is_empty(),
            Some((_, id)) => id.is_some_and(|id| issue.assignees.contains(&id)),
        };
        let is_recent = since.is_none_or(|since| issue.text.updated >= since);
        state_fits && assignee_fits && is_recent && labels.iter().all(|label| has(label))
    };
    let mut found: Vec<&IssueRecord> =
        state.repositories[&request.repository].issues.values().filter(fits).collect();
    match request.query("sort") {
        Some("updated") => found.sort_by_key(|issue| (issue.text.updated, issue.number)),
        Some(_) | None => found.sort_by_key(|issue| (issue.text.created, issue.number)),
    }
    if request.query("direction") != Some("asc") {
        found.reverse();
    }
    let shown: Vec<Value> =
        found.into_iter().map(|issue| state.show_issue(request.repository, issue)).collect();
    Ok(state.page(request, shown))
}

pub(super) fn events(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let issue = wanted(state, request)?;
    let shown: Vec<Value> =
        issue.events.iter().map(|event| state.show_event(request.repository, event)).collect();
    Ok(state.page(request, shown))
}

fn shown_labels(state: &ModelState, repository: u64, issue: &IssueRecord) -> Vec<Value> {
    issue.labels.iter().map(|label| state.show_label(repository, label)).collect()
}

pub(super) fn labels(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let issue = wanted(state, request)?;
    Ok(state.page(request, shown_labels(state, request.repository, issue)))
}

pub(super) fn add(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let place = (request.repository, wanted(state, request)?.number);
    let names = request.body["labels"].as_array().or_else(|| request.body.as_array());
    let names: Vec<String> = names
        .into_iter()
        .flatten()
        .filter_map(|name| Some(name.as_str().or_else(|| name["name"].as_str())?.to_owned()))
        .collect();
    if names.is_empty() {
        return Err(invalid("Label", "labels", "missing_field", "labels is missing"));
    }
    let actor = state.actor(request.access.caller);
    for name in names {
        state.set_label(place, actor, &name, true);
    }
    let issue = wanted(state, request)?;
    Ok(reply(200, json!(shown_labels(state, request.repository, issue))))
}

pub(super) fn remove(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let place = (request.repository, wanted(state, request)?.number);
    let actor = state.actor(request.access.caller);
    if !state.set_label(place, actor, &request.parts[1], false) {
        return Err(failure(404, "Label does not exist"));
    }
    let issue = wanted(state, request)?;
    Ok(reply(200, json!(shown_labels(state, request.repository, issue))))
}
