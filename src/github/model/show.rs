//! The forms in which GitHub's REST interface and its deliveries show things.

use serde_json::{Map, Value, json};

use super::rest::REACTIONS;
use super::state::{
    CommentRecord, EventRecord, IssueRecord, LabelRecord, ModelState, ReactionRecord, StatusRecord,
    TextRecord,
};

/// Addresses of an account: field and what follows its own.
const USER_URLS: [(&str, &str); 10] = [
    ("url", ""),
    ("followers_url", "/followers"),
    ("following_url", "/following{/other_user}"),
    ("gists_url", "/gists{/gist_id}"),
    ("starred_url", "/starred{/owner}{/repo}"),
    ("subscriptions_url", "/subscriptions"),
    ("organizations_url", "/orgs"),
    ("repos_url", "/repos"),
    ("events_url", "/events{/privacy}"),
    ("received_events_url", "/received_events"),
];

/// Addresses of a repository.
const REPOSITORY_URLS: [(&str, &str); 38] = [
    ("url", ""),
    ("archive_url", "/{archive_format}{/ref}"),
    ("assignees_url", "/assignees{/user}"),
    ("blobs_url", "/git/blobs{/sha}"),
    ("branches_url", "/branches{/branch}"),
    ("collaborators_url", "/collaborators{/collaborator}"),
    ("comments_url", "/comments{/number}"),
    ("commits_url", "/commits{/sha}"),
    ("compare_url", "/compare/{base}...{head}"),
    ("contents_url", "/contents/{+path}"),
    ("contributors_url", "/contributors"),
    ("deployments_url", "/deployments"),
    ("downloads_url", "/downloads"),
    ("events_url", "/events"),
    ("forks_url", "/forks"),
    ("git_commits_url", "/git/commits{/sha}"),
    ("git_refs_url", "/git/refs{/sha}"),
    ("git_tags_url", "/git/tags{/sha}"),
    ("hooks_url", "/hooks"),
    ("issue_comment_url", "/issues/comments{/number}"),
    ("issue_events_url", "/issues/events{/number}"),
    ("issues_url", "/issues{/number}"),
    ("keys_url", "/keys{/key_id}"),
    ("labels_url", "/labels{/name}"),
    ("languages_url", "/languages"),
    ("merges_url", "/merges"),
    ("milestones_url", "/milestones{/number}"),
    ("notifications_url", "/notifications{?since,all,participating}"),
    ("pulls_url", "/pulls{/number}"),
    ("releases_url", "/releases{/id}"),
    ("stargazers_url", "/stargazers"),
    ("statuses_url", "/statuses/{sha}"),
    ("subscribers_url", "/subscribers"),
    ("subscription_url", "/subscription"),
    ("tags_url", "/tags"),
    ("teams_url", "/teams"),
    ("trees_url", "/git/trees{/sha}"),
    ("svn_url", ""),
];

fn add_urls(shown: &mut Value, base: &str, urls: &[(&str, &str)]) {
    for (field, rest) in urls {
        shown[field] = json!(format!("{base}{rest}"));
    }
}

impl ModelState {
    /// An account, in the short form; null for one that is deleted.
    pub fn show_user(&self, id: u64) -> Value {
        let Some(user) = self.users.get(&id) else {
            return Value::Null;
        };
        let (base, login) = (&self.base, &user.login);
        let mut shown = json!({
            "login": login, "id": id, "node_id": format!("U_{id}"),
            "avatar_url": format!("{base}/avatars/{id}"), "gravatar_id": "",
            "html_url": format!("{base}/{login}"), "type": user.kind,
            "user_view_type": "public", "site_admin": false,
        });
        add_urls(&mut shown, &format!("{base}/users/{login}"), &USER_URLS);
        shown
    }

    /// An account, in the long form.
    pub fn show_profile(&self, id: u64) -> Value {
        let mut shown = self.show_user(id);
        for field in ["name", "company", "blog", "location", "email", "hireable", "bio"] {
            shown[field] = Value::Null;
        }
        for field in ["public_repos", "public_gists", "followers", "following"] {
            shown[field] = json!(0);
        }
        shown["created_at"] = json!(self.app.created.to_string());
        shown["updated_at"] = shown["created_at"].clone();
        shown
    }

    /// The App.
    pub fn show_app(&self) -> Value {
        let app = &self.app;
        json!({
            "id": app.id, "slug": app.slug, "node_id": format!("A_{}", app.id),
            "owner": self.show_user(app.owner), "name": app.slug, "description": "",
            "external_url": "http://127.0.0.1/", "html_url": format!("{}/apps/{}", self.base, app.slug),
            "created_at": app.created.to_string(), "updated_at": app.created.to_string(),
            "permissions": app.permissions, "events": app.events,
        })
    }

    /// An installation. It must exist.
    pub fn show_installation(&self, id: u64) -> Value {
        let found = &self.installations[&id];
        let selection = if found.repositories.is_some() { "selected" } else { "all" };
        json!({
            "id": id, "account": self.show_user(found.account), "repository_selection": selection,
            "access_tokens_url": format!("{}/app/installations/{id}/access_tokens", self.base),
            "repositories_url": format!("{}/installation/repositories", self.base),
            "html_url": format!("{}/settings/installations/{id}", self.base),
            "app_id": self.app.id, "app_slug": self.app.slug, "target_id": found.account,
            "target_type": self.users[&found.account].kind, "permissions": found.permissions,
            "events": self.app.events, "created_at": found.created.to_string(),
            "updated_at": found.created.to_string(), "single_file_name": null,
            "has_multiple_single_files": false, "single_file_paths": [],
            "suspended_by": found.suspended.map(|_| self.show_user(found.account)),
            "suspended_at": found.suspended.map(|at| at.to_string()),
        })
    }

    /// A repository; `full` adds what only a request for it shows.
    pub fn show_repository(&self, id: u64, full: bool) -> Value {
        let (found, name) = (&self.repositories[&id], self.full_name(id));
        let web = format!("{}/{name}", self.base);
        let open = found.issues.values().filter(|issue| issue.closed.is_none()).count();
        let created = found.created.to_string();
        let mut shown = json!({
            "id": id, "node_id": format!("R_{id}"), "name": found.name, "full_name": name,
            "private": found.private, "owner": self.show_user(found.owner), "html_url": web,
            "description": null, "fork": false, "clone_url": format!("{web}.git"),
            "git_url": format!("git://127.0.0.1/{name}.git"), "ssh_url": format!("git@127.0.0.1:{name}.git"),
            "mirror_url": null, "homepage": null, "language": null, "license": null,
            "default_branch": found.default_branch, "archived": found.archived, "disabled": false,
            "visibility": if found.private { "private" } else { "public" },
            "size": found.size_kib, "open_issues": open, "open_issues_count": open,
            "created_at": created, "updated_at": created, "pushed_at": created,
        });
        for field in ["forks", "forks_count", "stargazers_count", "watchers", "watchers_count"] {
            shown[field] = json!(0);
        }
        for field in ["issues", "projects", "wiki", "downloads"] {
            shown[format!("has_{field}")] = json!(true);
        }
        shown["has_pages"] = json!(false);
        shown["has_discussions"] = json!(false);
        add_urls(&mut shown, &format!("{}/repos/{name}", self.base), &REPOSITORY_URLS);
        if full {
            shown["network_count"] = json!(0);
            shown["subscribers_count"] = json!(0);
        }
        shown
    }

    pub fn show_label(&self, repository: u64, label: &LabelRecord) -> Value {
        let url =
            format!("{}/repos/{}/labels/{}", self.base, self.full_name(repository), label.name);
        json!({
            "id": label.id, "node_id": format!("LA_{}", label.id), "url": url.replace(' ', "%20"),
            "name": label.name, "description": null, "color": "5319e7", "default": false,
        })
    }

    pub fn show_reaction(&self, reaction: &ReactionRecord) -> Value {
        json!({
            "id": reaction.id, "node_id": format!("REA_{}", reaction.id),
            "user": self.show_user(reaction.user), "content": reaction.content,
            "created_at": reaction.at.to_string(),
        })
    }

    fn rollup(text: &TextRecord, url: &str) -> Value {
        let mut counts = Map::new();
        for content in REACTIONS {
            let count = text.reactions.iter().filter(|found| found.content == content).count();
            counts.insert(content.to_owned(), json!(count));
        }
        counts.insert("total_count".to_owned(), json!(text.reactions.len()));
        counts.insert("url".to_owned(), json!(format!("{url}/reactions")));
        Value::Object(counts)
    }

    /// The App, for what was written through it.
    fn via_app(&self, text: &TextRecord) -> Value {
        if text.via_app { self.show_app() } else { Value::Null }
    }

    /// How an author relates to a repository, worked out without a viewer as GitHub does: a private
    /// member is a contributor.
    pub fn association(&self, repository: u64, author: u64) -> &'static str {
        let hides = self.users.get(&author).is_some_and(|user| user.hides_membership);
        let is_owner = self.repositories[&repository].owner == author;
        match self.role(repository, author) {
            Some(_) if is_owner => "OWNER",
            Some(_) if hides => "CONTRIBUTOR",
            Some(_) => "MEMBER",
            None => "NONE",
        }
    }

    pub fn show_issue(&self, repository: u64, issue: &IssueRecord) -> Value {
        let name = self.full_name(repository);
        let api = format!("{}/repos/{name}", self.base);
        let url = format!("{api}/issues/{}", issue.number);
        let kind = if issue.pull.is_some() { "pull" } else { "issues" };
        let html = format!("{}/{name}/{kind}/{}", self.base, issue.number);
        let labels: Vec<Value> =
            issue.labels.iter().map(|label| self.show_label(repository, label)).collect();
        let assignees: Vec<Value> = issue.assignees.iter().map(|id| self.show_user(*id)).collect();
        let mut shown = json!({
            "id": issue.id, "node_id": format!("I_{}", issue.id), "url": url, "repository_url": api,
            "labels_url": format!("{url}/labels{{/name}}"), "comments_url": format!("{url}/comments"),
            "events_url": format!("{url}/events"), "timeline_url": format!("{url}/timeline"),
            "html_url": html, "number": issue.number,
            "state": if issue.closed.is_some() { "closed" } else { "open" },
            "state_reason": issue.reason, "title": issue.title, "body": issue.text.body,
            "user": self.show_user(issue.text.author), "labels": labels,
            "assignee": assignees.first(), "assignees": assignees, "milestone": null,
            "locked": issue.locked, "active_lock_reason": null, "comments": issue.comments.len(),
            "closed_at": issue.closed.map(|(at, _)| at.to_string()),
            "created_at": issue.text.created.to_string(),
            "updated_at": issue.text.updated.to_string(),
            "author_association": self.association(repository, issue.text.author),
            "performed_via_github_app": self.via_app(&issue.text),
            "reactions": Self::rollup(&issue.text, &url),
        });
        if let Some(pull) = &issue.pull {
            shown["draft"] = json!(pull.draft);
            shown["pull_request"] = json!({
                "url": format!("{api}/pulls/{}", issue.number), "html_url": html,
                "diff_url": format!("{html}.diff"), "patch_url": format!("{html}.patch"),
                "merged_at": pull.merged.map(|at| at.to_string()),
            });
        }
        shown
    }

    pub fn show_comment(&self, repository: u64, number: u64, comment: &CommentRecord) -> Value {
        let name = self.full_name(repository);
        let url = format!("{}/repos/{name}/issues/comments/{}", self.base, comment.id);
        let html = format!("{}/{name}/issues/{number}#issuecomment-{}", self.base, comment.id);
        json!({
            "id": comment.id, "node_id": format!("IC_{}", comment.id), "url": url, "html_url": html,
            "issue_url": format!("{}/repos/{name}/issues/{number}", self.base),
            "body": comment.text.body, "user": self.show_user(comment.text.author),
            "created_at": comment.text.created.to_string(),
            "updated_at": comment.text.updated.to_string(),
            "author_association": self.association(repository, comment.text.author),
            "performed_via_github_app": self.via_app(&comment.text),
            "reactions": Self::rollup(&comment.text, &url),
        })
    }

    pub fn show_event(&self, repository: u64, event: &EventRecord) -> Value {
        let url = format!(
            "{}/repos/{}/issues/events/{}",
            self.base,
            self.full_name(repository),
            event.id
        );
        let mut shown = json!({
            "id": event.id, "node_id": format!("EV_{}", event.id), "url": url,
            "actor": self.show_user(event.actor), "event": event.kind, "commit_id": null,
            "commit_url": null, "created_at": event.at.to_string(),
            "performed_via_github_app": null,
        });
        if let Some(label) = &event.label {
            shown["label"] = json!({"name": label.name, "color": "5319e7"});
        }
        if let Some(assignee) = event.assignee {
            shown["assignee"] = self.show_user(assignee);
            shown["assigner"] = self.show_user(event.actor);
        }
        match event.kind {
            "locked" => shown["lock_reason"] = Value::Null,
            "closed" | "reopened" => shown["state_reason"] = Value::Null,
            _ => {}
        }
        shown
    }

    pub fn show_status(&self, repository: u64, status: &StatusRecord) -> Value {
        let api = format!("{}/repos/{}", self.base, self.full_name(repository));
        json!({
            "url": format!("{api}/statuses/{}", status.sha), "avatar_url": null, "id": status.id,
            "node_id": format!("SC_{}", status.id), "state": status.state,
            "description": status.description, "target_url": status.target_url,
            "context": status.context, "created_at": status.at.to_string(),
            "updated_at": status.at.to_string(), "creator": self.show_user(status.creator),
        })
    }

    pub fn show_hook(&self, repository: u64, id: u64) -> Value {
        let hook = &self.repositories[&repository].hooks[&id];
        let url = format!("{}/repos/{}/hooks/{id}", self.base, self.full_name(repository));
        json!({
            "type": "Repository", "id": id, "name": "web", "active": true, "events": hook.events,
            "config": {"url": hook.url, "content_type": "json", "secret": "********", "insecure_ssl": "0"},
            "updated_at": hook.created.to_string(), "created_at": hook.created.to_string(),
            "url": url, "test_url": format!("{url}/test"), "ping_url": format!("{url}/pings"),
            "deliveries_url": format!("{url}/deliveries"),
            "last_response": {"code": null, "status": "unused", "message": null},
        })
    }

    /// A pull request; `full` adds what only a request for it shows. It must exist.
    pub fn show_pull(&mut self, repository: u64, number: u64, full: bool) -> Value {
        let place = (repository, number);
        let issue = self.issue(place).cloned().expect("a pull request has an issue");
        let mut pull = issue.pull.clone().expect("it is a pull request");
        if let Some(tip) = self.ref_tip(repository, &format!("refs/heads/{}", pull.head)) {
            pull.head_sha = tip;
            if let Some(issue) = self.issue_mut(place) {
                issue.pull = Some(pull.clone());
            }
        }
        let name = self.full_name(repository);
        let api = format!("{}/repos/{name}", self.base);
        let url = format!("{api}/pulls/{number}");
        let owner = self.repositories[&repository].owner;
        let side = |branch: &str, sha: &str| {
            json!({
                "label": format!("{}:{branch}", self.login(owner)), "ref": branch, "sha": sha,
                "user": self.show_user(owner), "repo": self.show_repository(repository, false),
            })
        };
        let base_sha = self.ref_tip(repository, &format!("refs/heads/{}", pull.base));
        let base_sha = base_sha.unwrap_or_else(|| "0".repeat(40));
        // Most of it is what the issue shows.
        let mut shown = self.show_issue(repository, &issue);
        let html = shown["html_url"].as_str().unwrap_or_default().to_owned();
        let issue_url = shown["url"].clone();
        let own = shown.as_object_mut().expect("an issue is an object");
        for field in [
            "pull_request",
            "reactions",
            "repository_url",
            "labels_url",
            "events_url",
            "timeline_url",
            "performed_via_github_app",
            "state_reason",
            "comments",
        ] {
            own.remove(field);
        }
        let statuses = format!("{api}/statuses/{}", pull.head_sha);
        let more = json!({
            "node_id": format!("PR_{}", issue.id), "url": url, "issue_url": issue_url,
            "diff_url": format!("{html}.diff"), "patch_url": format!("{html}.patch"),
            "commits_url": format!("{url}/commits"), "statuses_url": statuses,
            "review_comments_url": format!("{url}/comments"),
            "review_comment_url": format!("{api}/pulls/comments{{/number}}"),
            "merged_at": pull.merged.map(|at| at.to_string()), "merge_commit_sha": null,
            "head": side(&pull.head, &pull.head_sha), "base": side(&pull.base, &base_sha),
            "auto_merge": null, "requested_reviewers": [], "requested_teams": [],
            "_links": {
                "self": {"href": url}, "html": {"href": html}, "issue": {"href": issue_url},
                "comments": {"href": format!("{api}/issues/{number}/comments")},
                "review_comments": {"href": format!("{url}/comments")},
                "review_comment": {"href": format!("{api}/pulls/comments{{/number}}")},
                "commits": {"href": format!("{url}/commits")}, "statuses": {"href": statuses},
            },
        });
        own.extend(more.as_object().cloned().unwrap_or_default());
        if full {
            let more = json!({
                "additions": 1, "deletions": 0, "changed_files": 1, "commits": 1,
                "comments": issue.comments.len(), "review_comments": 0, "mergeable": true,
                "mergeable_state": "clean", "merged": pull.merged.is_some(), "merged_by": null,
                "maintainer_can_modify": false, "rebaseable": true,
            });
            own.extend(more.as_object().cloned().unwrap_or_default());
        }
        shown
    }
}
