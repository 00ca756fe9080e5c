//! Repositories: permissions of people, refs, rules of branches, commit statuses, hooks.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::{ModelResult, RestReply, RestRequest, failure, invalid, reply};
use crate::github::model::auth::ModelCaller;
use crate::github::model::git::ModelFile;
use crate::github::model::state::{ModelState, StatusRecord};

fn missing() -> RestReply {
    failure(404, "Not Found")
}

pub(super) fn get(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    Ok(reply(200, state.show_repository(request.repository, true)))
}

pub(super) fn installation(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let id = state.installation_of(request.repository).ok_or_else(missing)?;
    match request.access.caller {
        ModelCaller::App => Ok(reply(200, state.show_installation(id))),
        _ => Err(failure(401, "A JSON web token could not be decoded")),
    }
}

/// The permission of an account by GitHub's older names, and its role.
pub(super) fn permission(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let login = &request.parts[0];
    let user = state.user_id(login).filter(|id| state.users[id].kind == "User");
    let user = user.ok_or_else(|| failure(404, &format!("{login} is not a user")))?;
    let is_public = !state.repositories[&request.repository].private;
    let role =
        state.role(request.repository, user).unwrap_or(if is_public { "read" } else { "none" });
    let role = role.to_owned();
    let permission = match role.as_str() {
        "admin" => "admin",
        "maintain" | "write" => "write",
        "triage" | "read" => "read",
        _ => "none",
    };
    let at_least = |roles: &[&str]| roles.contains(&role.as_str());
    let mut shown = state.show_user(user);
    shown["role_name"] = json!(role);
    shown["permissions"] = json!({
        "pull": role != "none", "triage": at_least(&["triage", "write", "maintain", "admin"]),
        "push": at_least(&["write", "maintain", "admin"]),
        "maintain": at_least(&["maintain", "admin"]), "admin": role == "admin",
    });
    Ok(reply(200, json!({"permission": permission, "role_name": role, "user": shown})))
}

pub(super) fn git_ref(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let name = &request.parts[0];
    let sha = state.ref_tip(request.repository, &format!("refs/{name}")).ok_or_else(missing)?;
    let base = format!("{}/repos/{}/git", state.base, state.full_name(request.repository));
    Ok(reply(
        200,
        json!({
            "ref": format!("refs/{name}"), "node_id": format!("REF_{name}"),
            "url": format!("{base}/refs/{name}"),
            "object": {"type": "commit", "sha": sha, "url": format!("{base}/commits/{sha}")},
        }),
    ))
}

/// A file, or a directory as a list. Links and submodules are not modelled.
pub(super) fn contents(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let path = &request.parts[0];
    let branch = &state.repositories[&request.repository].default_branch;
    let at = request.query("ref").unwrap_or(branch);
    let found = state.file(request.repository, at, path).ok_or_else(missing)?;
    let base = format!("{}/repos/{}", state.base, state.full_name(request.repository));
    let show = |path: &str, sha: &str, kind: &str, size: usize| {
        let url = format!("{base}/contents/{path}?ref={at}");
        json!({
            "type": kind, "name": path.rsplit('/').next(), "path": path, "sha": sha, "size": size,
            "url": url, "git_url": null, "html_url": null, "download_url": null,
            "_links": {"self": url, "git": null, "html": null},
        })
    };
    match found {
        ModelFile::Directory(entries) => {
            let entry = |(name, sha, kind): &(String, String, &str)| {
                show(&format!("{path}/{name}"), sha, kind, 0)
            };
            Ok(reply(200, entries.iter().map(entry).collect()))
        }
        ModelFile::Content(sha, content) => {
            let mut shown = show(path, &sha, "file", content.len());
            let is_small = content.len() <= 1 << 20;
            let encoded = if is_small { BASE64_STANDARD.encode(content) } else { String::new() };
            // GitHub breaks its lines.
            let lines: Vec<_> =
                encoded.as_bytes().chunks(60).map(String::from_utf8_lossy).collect();
            shown["content"] = json!(lines.join("\n"));
            shown["encoding"] = json!(if is_small { "base64" } else { "none" });
            Ok(reply(200, shown))
        }
    }
}

pub(super) fn rules(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let found = &state.repositories[&request.repository];
    let rules = found.rules.get(&request.parts[0]);
    let name = state.full_name(request.repository);
    let shown = rules.into_iter().flatten().map(|kind| {
        json!({
            "type": kind, "ruleset_source_type": "Repository", "ruleset_source": name,
            "ruleset_id": 1,
        })
    });
    Ok(state.page(request, shown.collect()))
}

pub(super) fn set_status(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let sha = request.parts[0].clone();
    let kind = request
        .text("state")
        .filter(|kind| ["error", "failure", "pending", "success"].contains(kind));
    let kind = kind.ok_or_else(|| invalid("Status", "state", "invalid", "state is not known"))?;
    if !state.has_commit(request.repository, &sha) {
        return Err(failure(422, &format!("No commit found for SHA: {sha}")));
    }
    let text = |field| request.text(field).map(str::to_owned);
    let status = StatusRecord {
        id: state.next_id(),
        sha,
        creator: state.actor(request.access.caller),
        state: kind.to_owned(),
        context: text("context").unwrap_or_else(|| "default".to_owned()),
        description: text("description"),
        target_url: text("target_url"),
        at: state.now(),
    };
    let shown = state.show_status(request.repository, &status);
    state.repository_mut(request.repository).statuses.push(status);
    Ok(reply(201, shown))
}

pub(super) fn statuses(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let name = request.parts[0].clone();
    let tip = state.ref_tip(request.repository, &format!("refs/heads/{name}"));
    let sha = tip.unwrap_or(name);
    let statuses = state.repositories[&request.repository].statuses.iter().rev();
    let shown: Vec<Value> = statuses
        .filter(|status| status.sha == sha)
        .map(|status| state.show_status(request.repository, status))
        .collect();
    Ok(state.page(request, shown))
}

pub(super) fn hooks(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let hooks = state.repositories[&request.repository].hooks.keys();
    let shown: Vec<Value> = hooks.map(|id| state.show_hook(request.repository, *id)).collect();
    Ok(state.page(request, shown))
}
