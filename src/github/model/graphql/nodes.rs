//! The objects of GraphQL: what a field of an object is.

use serde_json::{Value, json};

use super::GraphqlRun;
use crate::github::model::state::{
    CommentRecord, EventRecord, IssueRecord, LabelRecord, ModelState,
};

impl GraphqlRun<'_> {
    /// A field's value; a list for a connection. `None` where the model does not have it.
    pub(super) fn resolve(
        &mut self,
        kind: &str,
        object: &Value,
        name: &str,
        args: &Value,
    ) -> Option<Value> {
        let text = |name: &str| args[name].as_str().unwrap_or_default();
        let repository = object["_repository"].as_u64();
        match (kind, name, repository) {
            ("Query", "repository", _) => {
                self.repository(&format!("{}/{}", text("owner"), text("name")))
            }
            ("Query", "viewer", _) => {
                Some(self.state.actor_node(self.state.actor(self.access.caller)))
            }
            ("Query", "rateLimit", _) => Some(json!({
                "limit": 5000, "cost": 1, "remaining": 4999, "used": 1, "nodeCount": 1,
                "resetAt": (self.state.now() + jiff::SignedDuration::from_hours(1)).to_string(),
            })),
            ("Query", "node", _) => self.node(text("id")),
            ("Repository", "issue", Some(id)) => {
                let number = args["number"].as_u64().unwrap_or(0);
                if self.state.allow(self.access, id, "issues", false).is_err() {
                    return self.refuse(
                        "FORBIDDEN",
                        "issue",
                        "Resource not accessible by integration",
                    );
                }
                match self.state.issue((id, number)).filter(|issue| issue.pull.is_none()) {
                    Some(issue) => Some(self.state.issue_node(id, issue)),
                    None => {
                        let words =
                            format!("Could not resolve to an Issue with the number of {number}.");
                        self.refuse("NOT_FOUND", "issue", &words)
                    }
                }
            }
            ("Repository", "defaultBranchRef", Some(id)) => {
                let branch = self.state.repositories[&id].default_branch.clone();
                self.reference(id, &format!("refs/heads/{branch}"))
            }
            ("Repository", "ref", Some(id)) => {
                let name = text("qualifiedName");
                let is_full = name.starts_with("refs/");
                let name = if is_full { name.to_owned() } else { format!("refs/heads/{name}") };
                self.reference(id, &name)
            }
            ("Repository", "object", Some(id)) => {
                let name = text("expression");
                let full = name.starts_with("refs/") || name == "HEAD";
                let name = if full { name.to_owned() } else { format!("refs/heads/{name}") };
                self.reference(id, &name).map(|found| found["target"].clone())
            }
            ("Issue", "repository", Some(id)) => Some(self.state.repository_node(id)),
            _ => object.get(name).cloned(),
        }
    }

    fn repository(&mut self, name: &str) -> Option<Value> {
        let former = self.state.former_names.get(&name.to_ascii_lowercase()).copied();
        let id = self
            .state
            .repository_named(name)
            .or(former)
            .filter(|id| self.state.allow(self.access, *id, "metadata", false).is_ok());
        match id {
            Some(id) => Some(self.state.repository_node(id)),
            None => {
                let words = format!("Could not resolve to a Repository with the name '{name}'.");
                self.refuse("NOT_FOUND", "repository", &words)
            }
        }
    }

    fn node(&mut self, id: &str) -> Option<Value> {
        let found = self.state.repositories.iter().find_map(|(repository, found)| {
            if format!("R_{repository}") == id {
                return Some((*repository, None));
            }
            let issue = found.issues.values().find(|issue| format!("I_{}", issue.id) == id)?;
            Some((*repository, Some(issue)))
        });
        let may = |repository, what| self.state.allow(self.access, repository, what, false).is_ok();
        match found {
            Some((repository, None)) if may(repository, "metadata") => {
                Some(self.state.repository_node(repository))
            }
            Some((repository, Some(issue))) if may(repository, "issues") => {
                Some(self.state.issue_node(repository, issue))
            }
            Some(_) | None => {
                let words = format!("Could not resolve to a node with the global id of '{id}'");
                self.refuse("NOT_FOUND", "node", &words)
            }
        }
    }

    /// A ref and the commit to which it points; null where there is none.
    fn reference(&mut self, repository: u64, name: &str) -> Option<Value> {
        if self.state.allow(self.access, repository, "contents", false).is_err() {
            return self.refuse("FORBIDDEN", "ref", "Resource not accessible by integration");
        }
        let Some(sha) = self.state.ref_tip(repository, name) else {
            return Some(Value::Null);
        };
        let (prefix, short) = name.rsplit_once("heads/").unwrap_or(("", name));
        let commit = json!({
            "__typename": "Commit", "_repository": repository, "oid": sha,
            "abbreviatedOid": &sha[..7], "id": format!("C_{sha}"),
        });
        Some(json!({
            "id": format!("REF_{name}"), "name": short, "prefix": format!("{prefix}heads/"),
            "target": commit,
        }))
    }
}

impl ModelState {
    /// An account as an actor; a bot's login is the App's slug here.
    pub(super) fn actor_node(&self, id: u64) -> Value {
        let Some(user) = self.users.get(&id) else {
            return Value::Null;
        };
        let login = user.login.trim_end_matches("[bot]");
        json!({
            "__typename": user.kind, "login": login, "databaseId": id, "id": format!("U_{id}"),
            "url": format!("{}/{login}", self.base), "resourcePath": format!("/{login}"),
            "name": null, "isViewer": false,
        })
    }

    fn repository_node(&self, id: u64) -> Value {
        let (found, name) = (&self.repositories[&id], self.full_name(id));
        json!({
            "__typename": "Repository", "_repository": id, "id": format!("R_{id}"),
            "databaseId": id, "name": found.name, "nameWithOwner": name,
            "owner": self.actor_node(found.owner), "isArchived": found.archived,
            "isPrivate": found.private, "isDisabled": false, "isLocked": false, "isFork": false,
            "isEmpty": false, "diskUsage": found.size_kib, "url": format!("{}/{name}", self.base),
            "visibility": if found.private { "PRIVATE" } else { "PUBLIC" },
        })
    }

    /// What issues and comments have in common.
    fn text_node(&self, repository: u64, text: &super::super::state::TextRecord) -> Value {
        json!({
            "_repository": repository, "author": self.actor_node(text.author),
            "authorAssociation": self.association(repository, text.author),
            "body": text.body, "bodyText": text.body, "createdAt": text.created.to_string(),
            "publishedAt": text.created.to_string(), "updatedAt": text.updated.to_string(),
            "lastEditedAt": text.edited.map(|(at, _)| at.to_string()),
            "editor": text.edited.map(|(_, editor)| self.actor_node(editor)),
            "includesCreatedEdit": text.edited.is_some(),
        })
    }

    fn label_node(&self, label: &LabelRecord) -> Value {
        json!({
            "__typename": "Label", "id": format!("LA_{}", label.id), "name": label.name,
            "color": "5319e7", "description": null, "isDefault": false,
        })
    }

    fn issue_node(&self, repository: u64, issue: &IssueRecord) -> Value {
        let mut shown = self.text_node(repository, &issue.text);
        let path = format!("/{}/issues/{}", self.full_name(repository), issue.number);
        let own = json!({
            "__typename": "Issue", "id": format!("I_{}", issue.id), "databaseId": issue.id,
            "fullDatabaseId": issue.id.to_string(), "number": issue.number, "title": issue.title,
            "state": if issue.closed.is_some() { "CLOSED" } else { "OPEN" },
            "stateReason": issue.reason.map(str::to_uppercase), "closed": issue.closed.is_some(),
            "closedAt": issue.closed.map(|(at, _)| at.to_string()), "locked": issue.locked,
            "activeLockReason": null, "url": format!("{}{path}", self.base), "resourcePath": path,
            "labels": issue.labels.iter().map(|label| self.label_node(label)).collect::<Vec<_>>(),
            "assignees": issue.assignees.iter().map(|id| self.actor_node(*id)).collect::<Vec<_>>(),
            "comments": self.comment_nodes(repository, issue),
            "timelineItems": self.timeline(repository, issue),
        });
        extend(&mut shown, own);
        shown
    }

    fn comment_nodes(&self, repository: u64, issue: &IssueRecord) -> Vec<Value> {
        issue.comments.iter().map(|comment| self.comment_node(repository, issue, comment)).collect()
    }

    fn comment_node(&self, repository: u64, issue: &IssueRecord, comment: &CommentRecord) -> Value {
        let mut shown = self.text_node(repository, &comment.text);
        let name = self.full_name(repository);
        let url =
            format!("{}/{name}/issues/{}#issuecomment-{}", self.base, issue.number, comment.id);
        let own = json!({
            "__typename": "IssueComment", "id": format!("IC_{}", comment.id),
            "databaseId": comment.id, "fullDatabaseId": comment.id.to_string(), "url": url,
            "isMinimized": comment.minimized,
            "minimizedReason": comment.minimized.then_some("outdated"),
        });
        extend(&mut shown, own);
        shown
    }

    /// Events and comments in the order in which they happened.
    fn timeline(&self, repository: u64, issue: &IssueRecord) -> Vec<Value> {
        let comments = issue.comments.iter().map(|comment| {
            let node = self.comment_node(repository, issue, comment);
            ((comment.text.created, comment.id), node)
        });
        let events = issue.events.iter().filter_map(|event| {
            Some(((event.at, event.id), self.event_node(repository, issue, event)?))
        });
        let mut items: Vec<_> = comments.chain(events).collect();
        items.sort_by_key(|(order, _)| *order);
        items.into_iter().map(|(_, node)| node).collect()
    }

    fn event_node(
        &self,
        repository: u64,
        issue: &IssueRecord,
        event: &EventRecord,
    ) -> Option<Value> {
        let kind = match event.kind {
            "labeled" => "LabeledEvent",
            "unlabeled" => "UnlabeledEvent",
            "assigned" => "AssignedEvent",
            "unassigned" => "UnassignedEvent",
            "closed" => "ClosedEvent",
            "reopened" => "ReopenedEvent",
            "locked" => "LockedEvent",
            "unlocked" => "UnlockedEvent",
            "renamed" => "RenamedTitleEvent",
            _ => return None,
        };
        let assignee = event.assignee.map(|id| self.actor_node(id));
        Some(json!({
            "__typename": kind, "_repository": repository, "id": format!("EV_{}", event.id),
            "actor": self.actor_node(event.actor), "createdAt": event.at.to_string(),
            "label": event.label.as_ref().map(|label| self.label_node(label)),
            "assignee": assignee, "user": assignee, "stateReason": null, "lockReason": null,
            "currentTitle": issue.title, "previousTitle": issue.title,
        }))
    }
}

fn extend(shown: &mut Value, own: Value) {
    if let (Some(shown), Value::Object(own)) = (shown.as_object_mut(), own) {
        shown.extend(own);
    }
}
