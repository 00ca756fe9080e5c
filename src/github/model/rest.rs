//! The REST interface: which operation a request means, whether its caller may use it, and the forms
//! that all answers share.

mod apps;
mod comments;
mod issues;
mod pulls;
mod reactions;
mod repositories;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

pub(super) use apps::slug_of;
pub(super) use reactions::REACTIONS;

use super::auth::{ModelAccess, ModelCaller};
use super::state::ModelState;

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct RestReply {
    pub status: u16,
    /// `Null` for an answer without a body.
    pub body: Value,
    pub headers: Vec<(&'static str, String)>,
}

/// A result or the answer that says why there is none.
pub(super) type ModelResult<T> = Result<T, RestReply>;

/// An answer with a body.
pub(super) fn reply(status: u16, body: Value) -> RestReply {
    RestReply { status, body, headers: Vec::new() }
}

/// An error in GitHub's form.
pub(super) fn failure(status: u16, words: &str) -> RestReply {
    let docs = "https://docs.github.com/rest";
    let status_text = status.to_string();
    reply(status, json!({"message": words, "documentation_url": docs, "status": status_text}))
}

/// 422 with the field that is wrong.
pub(super) fn invalid(resource: &str, field: &str, code: &str, words: &str) -> RestReply {
    let mut wrong = failure(422, "Validation Failed");
    wrong.body["errors"] =
        json!([{"resource": resource, "field": field, "code": code, "message": words}]);
    wrong
}

/// A request whose operation is known.
pub(super) struct RestRequest {
    pub method: String,
    /// Without the prefix `/api/v3`.
    pub path: String,
    pub query: Vec<(String, String)>,
    pub body: Value,
    pub access: ModelAccess,
    /// The parts of the path that stand for something, decoded.
    pub parts: Vec<String>,
    /// The repository, for operations on one.
    pub repository: u64,
}

impl RestRequest {
    /// A parameter of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A part of the path that is a number. What is no number is not found.
    pub fn number(&self, at: usize) -> ModelResult<u64> {
        self.parts[at].parse().map_err(|_| failure(404, "Not Found"))
    }

    /// A text of the body.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.body[field].as_str()
    }
}

/// Who may use an operation.
#[derive(Clone, Copy)]
enum Need {
    /// Anyone.
    Open,
    /// The App, by its JSON web token.
    App,
    /// The App or a token of an installation.
    AppOrRepository,
    /// A token of an installation.
    Installation,
    /// A token with this permission of the repository; whether to write.
    Repository(&'static str, bool),
}

type Operation = fn(&mut ModelState, &RestRequest) -> ModelResult<RestReply>;

const READ_ISSUES: Need = Need::Repository("issues", false);
const WRITE_ISSUES: Need = Need::Repository("issues", true);
const READ_HOOKS: Need = Need::Repository("repository_hooks", false);
const WRITE_HOOKS: Need = Need::Repository("repository_hooks", true);
const READ_PULLS: Need = Need::Repository("pull_requests", false);
const WRITE_PULLS: Need = Need::Repository("pull_requests", true);
const READ_STATUS: Need = Need::Repository("statuses", false);
const WRITE_STATUS: Need = Need::Repository("statuses", true);
const METADATA: Need = Need::Repository("metadata", false);
const CONTENTS: Need = Need::Repository("contents", false);

/// The operations: method, path as GitHub's description writes it with `~` for a repository's,
/// who may use it.
#[rustfmt::skip]
const OPERATIONS: [(&str, &str, Need, Operation); 50] = [
    ("GET", "/app", Need::App, apps::app),
    ("GET", "/app/installations", Need::App, apps::installations),
    ("GET", "/app/installations/{installation_id}", Need::App, apps::installation),
    ("POST", "/app/installations/{installation_id}/access_tokens", Need::App, apps::mint),
    ("GET", "/app/hook/deliveries", Need::App, apps::deliveries),
    ("GET", "/app/hook/deliveries/{delivery_id}", Need::App, apps::delivery),
    ("POST", "/app/hook/deliveries/{delivery_id}/attempts", Need::App, apps::redeliver),
    ("POST", "/app-manifests/{code}/conversions", Need::Open, apps::convert),
    ("GET", "/installation/repositories", Need::Installation, apps::repositories),
    ("DELETE", "/installation/token", Need::Installation, apps::revoke),
    ("GET", "/meta", Need::Open, apps::meta),
    ("GET", "/rate_limit", Need::Open, apps::rate_limit),
    ("GET", "/user", Need::Open, apps::own_user),
    ("GET", "/users/{username}", Need::Open, apps::user),
    ("GET", "/orgs/{org}/installation", Need::App, apps::organization_installation),
    ("GET", "/orgs/{org}/members/{username}", Need::Open, apps::member),
    ("GET", "~", METADATA, repositories::get),
    ("GET", "~/installation", Need::AppOrRepository, repositories::installation),
    ("GET", "~/collaborators/{username}/permission", METADATA, repositories::permission),
    ("GET", "~/git/ref/{ref}", CONTENTS, repositories::git_ref),
    ("GET", "~/contents/{path}", CONTENTS, repositories::contents),
    ("GET", "~/rules/branches/{branch}", METADATA, repositories::rules),
    ("POST", "~/statuses/{sha}", WRITE_STATUS, repositories::set_status),
    ("GET", "~/commits/{ref}/statuses", READ_STATUS, repositories::statuses),
    ("GET", "~/hooks", READ_HOOKS, repositories::hooks),
    ("GET", "~/hooks/{hook_id}/deliveries", READ_HOOKS, apps::deliveries),
    ("GET", "~/hooks/{hook_id}/deliveries/{delivery_id}", READ_HOOKS, apps::delivery),
    ("POST", "~/hooks/{hook_id}/deliveries/{delivery_id}/attempts", WRITE_HOOKS, apps::redeliver),
    ("GET", "~/issues", READ_ISSUES, issues::list),
    ("GET", "~/issues/{issue_number}", READ_ISSUES, issues::get),
    ("GET", "~/issues/{issue_number}/events", READ_ISSUES, issues::events),
    ("GET", "~/issues/{issue_number}/labels", READ_ISSUES, issues::labels),
    ("POST", "~/issues/{issue_number}/labels", WRITE_ISSUES, issues::add),
    ("DELETE", "~/issues/{issue_number}/labels/{name}", WRITE_ISSUES, issues::remove),
    ("GET", "~/issues/{issue_number}/comments", READ_ISSUES, comments::list),
    ("POST", "~/issues/{issue_number}/comments", WRITE_ISSUES, comments::create),
    ("GET", "~/issues/comments/{comment_id}", READ_ISSUES, comments::get),
    ("PATCH", "~/issues/comments/{comment_id}", WRITE_ISSUES, comments::edit),
    ("DELETE", "~/issues/comments/{comment_id}", WRITE_ISSUES, comments::delete),
    ("GET", "~/issues/comments/{comment_id}/reactions", READ_ISSUES, reactions::list_of_comment),
    ("POST", "~/issues/comments/{comment_id}/reactions", WRITE_ISSUES, reactions::create_on_comment),
    ("DELETE", "~/issues/comments/{comment_id}/reactions/{reaction_id}", WRITE_ISSUES, reactions::delete_of_comment),
    ("GET", "~/issues/{issue_number}/reactions", READ_ISSUES, reactions::list_of_issue),
    ("POST", "~/issues/{issue_number}/reactions", WRITE_ISSUES, reactions::create_on_issue),
    ("DELETE", "~/issues/{issue_number}/reactions/{reaction_id}", WRITE_ISSUES, reactions::delete_of_issue),
    ("GET", "~/pulls", READ_PULLS, pulls::list),
    ("POST", "~/pulls", WRITE_PULLS, pulls::create),
    ("GET", "~/pulls/{pull_number}", READ_PULLS, pulls::get),
    ("PATCH", "~/pulls/{pull_number}", WRITE_PULLS, pulls::edit),
    ("GET", "~/pulls/{pull_number}/reviews/{review_id}/comments", READ_PULLS, pulls::review_comments),
];

/// A path of the table in full.
fn full(path: &str) -> String {
    path.replacen('~', "/repos/{owner}/{repo}", 1)
}

/// All operations as GitHub's description names them: `GET /app`.
#[cfg(test)]
pub(super) fn operation_names() -> impl Iterator<Item = String> {
    OPERATIONS.iter().map(|(method, path, ..)| format!("{method} {}", full(path)))
}

/// The parts of a path that a pattern names. A branch or a file may contain slashes.
fn matched(pattern: &str, path: &str) -> Option<Vec<String>> {
    let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    let mut rest = path.strip_prefix('/')?;
    let mut parts = Vec::new();
    let names: Vec<&str> = pattern.trim_start_matches('/').split('/').collect();
    for (at, name) in names.iter().enumerate() {
        let is_last = at + 1 == names.len();
        let takes_rest = is_last && matches!(*name, "{ref}" | "{branch}" | "{path}");
        let (part, behind) = match rest.split_once('/') {
            Some((part, behind)) if !takes_rest => (part, Some(behind)),
            Some(_) | None => (rest, None),
        };
        if behind.is_some() == is_last || part.is_empty() {
            return None;
        }
        match name.starts_with('{') {
            true => parts.push(decoded(part)),
            false if *name == part => {}
            false => return None,
        }
        rest = behind.unwrap_or_default();
    }
    Some(parts)
}

/// The operation that a request means, as GitHub's description names it.
fn find(method: &str, path: &str) -> Option<(usize, Vec<String>)> {
    // `/issues/comments` is no issue: paths without a name at a place win.
    let score = |pattern: &str| pattern.matches('{').count();
    let found = OPERATIONS.iter().enumerate().filter(|(_, found)| found.0 == method);
    let found = found.filter_map(|(at, found)| Some((at, matched(&full(found.1), path)?)));
    found.min_by_key(|(at, _)| score(OPERATIONS[*at].1))
}

impl ModelState {
    /// Answers a request and names its operation. Paths by a repository's id are those by its name.
    pub fn answer_rest(&mut self, mut request: RestRequest) -> (Option<String>, RestReply) {
        if let Some(by_id) = request.path.strip_prefix("/repositories/") {
            let (id, rest) = by_id.split_at(by_id.find('/').unwrap_or(by_id.len()));
            let id = id.parse().ok().filter(|id| self.repositories.contains_key(id));
            let Some(id) = id else {
                return (None, failure(404, "Not Found"));
            };
            request.path = format!("/repos/{}{rest}", self.full_name(id));
        }
        let Some((at, parts)) = find(&request.method, &request.path) else {
            let line = format!("{} {}", request.method, request.path);
            self.violations.push(format!("no such operation: {line}"));
            return (None, failure(404, "Not Found"));
        };
        let (_, name, need, operation) = OPERATIONS[at];
        request.parts = parts;
        let result = self.admit(need, &mut request).and_then(|()| operation(self, &request));
        let name = format!("{} {}", request.method, full(name));
        (Some(name), result.unwrap_or_else(|refused| refused))
    }

    /// Finds the repository and checks the permission.
    fn admit(&self, need: Need, request: &mut RestRequest) -> ModelResult<()> {
        let caller = request.access.caller;
        match need {
            Need::Open => return Ok(()),
            Need::App if caller == ModelCaller::App => return Ok(()),
            Need::Installation if matches!(caller, ModelCaller::Installation(_)) => return Ok(()),
            Need::App => return Err(failure(401, "A JSON web token could not be decoded")),
            Need::Installation => {
                let words = "You must authenticate with an installation access token";
                return Err(failure(403, words));
            }
            Need::AppOrRepository | Need::Repository(..) => {}
        }
        let name: Vec<String> = request.parts.drain(..2).collect();
        let name = name.join("/");
        let missing = || failure(404, "Not Found");
        let former = || self.former_names.get(&name.to_ascii_lowercase()).copied();
        let (id, is_former) = match self.repository_named(&name) {
            Some(id) => (id, false),
            None => (former().ok_or_else(missing)?, true),
        };
        request.repository = id;
        if let Need::Repository(permission, write) = need {
            self.allow(&request.access, id, permission, write)?;
        }
        if is_former {
            let rest = &request.path["/repos/".len() + name.len()..];
            return Err(self.moved(&format!("/repositories/{id}{rest}"), request));
        }
        Ok(())
    }

    /// 301 to another path of this interface, with the request's query.
    pub fn moved(&self, path: &str, request: &RestRequest) -> RestReply {
        let mut moved = failure(301, "Moved Permanently");
        let encoded: Vec<String> = request.query.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let query =
            if encoded.is_empty() { String::new() } else { format!("?{}", encoded.join("&")) };
        let url = format!("{}{path}{query}", self.base);
        moved.body["url"] = json!(url);
        moved.headers.push(("location", url));
        moved
    }

    /// One page of a list, with the links to others.
    pub fn page(&self, request: &RestRequest, items: Vec<Value>) -> RestReply {
        let number = |name| request.query(name).and_then(|text| text.parse::<usize>().ok());
        let per_page = number("per_page").unwrap_or(30).clamp(1, 100);
        let page = number("page").unwrap_or(1).max(1);
        let last = items.len().div_ceil(per_page).max(1);
        let link = |page: usize, rel: &str| {
            let others = request.query.iter().filter(|(key, _)| key != "page");
            let others: String = others.map(|(key, value)| format!("{key}={value}&")).collect();
            format!("<{}{}?{others}page={page}>; rel=\"{rel}\"", self.base, request.path)
        };
        let mut links = Vec::new();
        if page > 1 {
            links.extend([link(page - 1, "prev"), link(1, "first")]);
        }
        if page < last {
            links.extend([link(page + 1, "next"), link(last, "last")]);
        }
        let shown = items.into_iter().skip((page - 1) * per_page).take(per_page);
        let mut answer = reply(200, Value::Array(shown.collect()));
        if !links.is_empty() {
            answer.headers.push(("link", links.join(", ")));
        }
        answer
    }
}
