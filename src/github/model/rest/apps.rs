//! The App, its installations and tokens, its log of deliveries, accounts, limits.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{ModelResult, RestReply, RestRequest, failure, invalid, reply};
use crate::github::model::auth::{ModelCaller, ModelToken, enough, new_token_value};
use crate::github::model::hooks::HookSource;
use crate::github::model::state::{ModelState, PermissionLevels};

fn missing() -> RestReply {
    failure(404, "Not Found")
}

pub(super) fn app(state: &mut ModelState, _: &RestRequest) -> ModelResult<RestReply> {
    let mut shown = state.show_app();
    shown["installations_count"] = json!(state.installations.len());
    Ok(reply(200, shown))
}

pub(super) fn installations(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let shown = state.installations.keys().map(|id| state.show_installation(*id)).collect();
    Ok(state.page(request, shown))
}

pub(super) fn installation(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let id = request.number(0)?;
    match state.installations.contains_key(&id) {
        true => Ok(reply(200, state.show_installation(id))),
        false => Err(missing()),
    }
}

/// Mints a token, narrowed to the repositories and permissions that are asked for.
pub(super) fn mint(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let id = request.number(0)?;
    let found = state.installations.get(&id).ok_or_else(missing)?;
    if found.suspended.is_some() {
        return Err(failure(403, "This installation has been suspended"));
    }
    let numbers = request.body["repository_ids"].as_array();
    let wanted: Option<BTreeSet<u64>> =
        numbers.map(|ids| ids.iter().filter_map(Value::as_u64).collect());
    if let Some(wanted) = &wanted
        && wanted.iter().any(|wanted| state.installation_of(*wanted) != Some(id))
    {
        return Err(failure(
            422,
            "There is at least one repository that does not exist or is not accessible to the \
             parent installation.",
        ));
    }
    let asked: Option<PermissionLevels> =
        serde_json::from_value(request.body["permissions"].clone()).unwrap_or_default();
    let grants =
        |(name, level): (&String, &String)| enough(found.permissions.get(name), level != "read");
    if asked.as_ref().is_some_and(|asked| !asked.iter().all(grants)) {
        return Err(failure(
            422,
            "The permissions requested are not granted to this installation.",
        ));
    }
    let mut permissions = asked.unwrap_or_else(|| found.permissions.clone());
    permissions.entry("metadata".to_owned()).or_insert_with(|| "read".to_owned());
    let expires = state.now() + SignedDuration::from_hours(1);
    let selection = match (&wanted, &found.repositories) {
        (None, None) => "all",
        (Some(_), _) | (_, Some(_)) => "selected",
    };
    let mut shown = json!({
        "token": new_token_value(state.app.id), "expires_at": expires.to_string(),
        "permissions": permissions, "repository_selection": selection,
    });
    if let Some(wanted) = &wanted {
        shown["repositories"] = wanted.iter().map(|id| state.show_repository(*id, false)).collect();
    }
    let token = ModelToken {
        caller: ModelCaller::Installation(id),
        repositories: wanted,
        permissions: Some(permissions),
        expires: Some(expires),
        revoked: false,
    };
    state.tokens.insert(shown["token"].as_str().unwrap_or_default().to_owned(), token);
    Ok(reply(201, shown))
}

pub(super) fn revoke(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let own = state.tokens.iter_mut().find(|(value, _)| request.access.value == **value);
    if let Some((_, token)) = own {
        token.revoked = true;
    }
    Ok(reply(204, json!(null)))
}

pub(super) fn repositories(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let narrowed = request.access.token.as_ref().and_then(|token| token.repositories.as_ref());
    let own = |id: &u64| {
        let installation = state.installation_of(*id).map(ModelCaller::Installation);
        installation == Some(request.access.caller)
            && narrowed.is_none_or(|narrowed| narrowed.contains(id))
    };
    let ids: Vec<u64> = state.repositories.keys().copied().filter(own).collect();
    let shown: Vec<Value> = ids.iter().map(|id| state.show_repository(*id, false)).collect();
    let mut page = state.page(request, shown);
    page.body = json!({"total_count": ids.len(), "repositories": page.body});
    Ok(page)
}

/// The hook whose deliveries are asked for: the App's, or one of a repository.
fn source(state: &ModelState, request: &RestRequest) -> ModelResult<(HookSource, usize)> {
    if request.path.starts_with("/app/") {
        return Ok((HookSource::App, 0));
    }
    let hook = request.number(0)?;
    match state.repositories[&request.repository].hooks.contains_key(&hook) {
        true => Ok((HookSource::Repository(request.repository, hook), 1)),
        false => Err(missing()),
    }
}

/// A page of the log, newest first, by cursor.
pub(super) fn deliveries(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let (source, _) = source(state, request)?;
    let per_page = request.query("per_page").and_then(|text| text.parse().ok()).unwrap_or(30);
    let per_page = usize::clamp(per_page, 1, 100);
    let before = match request.query("cursor") {
        None => u64::MAX,
        Some(cursor) => cursor
            .strip_prefix("v1_")
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| failure(400, "Invalid cursor"))?,
    };
    let log = state.delivery_log(source);
    let mut found = log.into_iter().rev().filter(|delivery| {
        let status = match request.query("status") {
            Some("failure") => (400..600).contains(&delivery.status_code()),
            Some("success") => (200..400).contains(&delivery.status_code()),
            Some(_) | None => true,
        };
        delivery.id < before && status
    });
    let page: Vec<_> = found.by_ref().take(per_page).collect();
    let last = page.last().map(|delivery| delivery.id);
    let mut answer = reply(200, page.iter().map(|found| found.show(false)).collect());
    if let (Some(last), true) = (last, found.next().is_some()) {
        let url = format!("{}{}?per_page={per_page}&cursor=v1_{last}", state.base, request.path);
        answer.headers.push(("link", format!("<{url}>; rel=\"next\"")));
    }
    Ok(answer)
}

pub(super) fn delivery(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let (source, at) = source(state, request)?;
    let id = request.number(at)?;
    let log = state.delivery_log(source);
    let found = log.into_iter().find(|found| found.id == id).ok_or_else(missing)?;
    Ok(reply(200, found.show(true)))
}

pub(super) fn redeliver(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let (source, at) = source(state, request)?;
    let id = request.number(at)?;
    let log = state.delivery_log(source);
    let found = log.into_iter().find(|found| found.id == id).cloned();
    state.send_again(found.ok_or_else(missing)?);
    Ok(reply(202, json!({})))
}

/// The name of an App in addresses.
pub(in crate::github::model) fn slug_of(name: &str) -> String {
    name.to_lowercase().replace(|c: char| !c.is_alphanumeric(), "-")
}

/// Exchanges the code of a manifest for the App. The code is spent then.
pub(super) fn convert(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let (owner, manifest) = state.manifests.remove(&request.parts[0]).ok_or_else(missing)?;
    let Some(name) = manifest["name"].as_str() else {
        return Err(invalid("Integration", "name", "missing_field", "name is missing"));
    };
    let slug = slug_of(name);
    state.app.owner = owner;
    state.app.id = state.next_id();
    state.app.bot = state.next_id();
    state.insert_user(state.app.bot, &format!("{slug}[bot]"), "Bot");
    state.app.slug = slug;
    state.app.secret = format!("secret-of-{}", state.app.id);
    state.app.permissions =
        serde_json::from_value(manifest["default_permissions"].clone()).unwrap_or_default();
    state.app.events =
        serde_json::from_value(manifest["default_events"].clone()).unwrap_or_default();
    state.installations.clear();
    let mut shown = state.show_app();
    // Without an address the App has no webhook.
    let secret = manifest.get("hook_attributes").map(|_| state.app.secret.clone());
    let more = json!({
        "client_id": state.client.0, "client_secret": state.client.1,
        "webhook_secret": secret, "pem": state.app.key,
    });
    shown.as_object_mut().into_iter().zip(more.as_object()).for_each(|(shown, more)| {
        shown.extend(more.clone());
    });
    Ok(reply(201, shown))
}

pub(super) fn meta(_: &mut ModelState, _: &RestRequest) -> ModelResult<RestReply> {
    Ok(reply(200, json!({"verifiable_password_authentication": false, "hooks": ["127.0.0.1/32"]})))
}

pub(super) fn rate_limit(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let (limit, used, resets) = state.limit_of(request.access.caller);
    let rate = json!({
        "limit": limit, "used": used, "remaining": limit.saturating_sub(used), "reset": resets,
    });
    let resources = json!({"core": rate, "search": rate, "graphql": rate});
    Ok(reply(200, json!({"resources": resources, "rate": rate})))
}

/// The App's installation on an organisation.
pub(super) fn organization_installation(
    state: &mut ModelState,
    request: &RestRequest,
) -> ModelResult<RestReply> {
    let organization = state.user_id(&request.parts[0]).ok_or_else(missing)?;
    let mut all = state.installations.iter();
    let found = all.find(|(_, found)| found.account == organization).map(|(id, _)| *id);
    Ok(reply(200, state.show_installation(found.ok_or_else(missing)?)))
}

/// Whether an account is a member of an organisation: 204 or 404, without a body.
pub(super) fn member(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let organization = state.user_id(&request.parts[0]).ok_or_else(missing)?;
    let held = request.access.token.as_ref().and_then(|token| token.permissions.as_ref());
    if held.is_some_and(|held| !enough(held.get("members"), false)) {
        return Err(failure(403, "Resource not accessible by integration"));
    }
    let is_member = |user: u64| state.members.contains(&(organization, user));
    if let ModelCaller::User(asker) = request.access.caller
        && !is_member(asker)
    {
        let elsewhere = request.path.replace("/members/", "/public_members/");
        let location = format!("{}{elsewhere}", state.base);
        return Ok(RestReply {
            status: 302,
            body: json!(null),
            headers: vec![("location", location)],
        });
    }
    let user = state.user_id(&request.parts[1]);
    Ok(reply(if user.is_some_and(is_member) { 204 } else { 404 }, json!(null)))
}

pub(super) fn own_user(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    match request.access.caller {
        ModelCaller::User(id) => Ok(reply(200, state.show_profile(id))),
        ModelCaller::Installation(_) => Err(failure(403, "Resource not accessible by integration")),
        _ => Err(failure(401, "Requires authentication")),
    }
}

pub(super) fn user(state: &mut ModelState, request: &RestRequest) -> ModelResult<RestReply> {
    let id = state.user_id(&request.parts[0]).ok_or_else(missing)?;
    Ok(reply(200, state.show_profile(id)))
}
