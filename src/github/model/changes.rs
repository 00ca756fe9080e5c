//! Changes of issues and repositories: each leaves its event in the timeline and is delivered. Both
//! people's acts and the REST interface go through here.

use serde_json::{Value, json};

use super::state::{CommentRecord, EventRecord, LabelRecord, ModelState};

/// A repository and the number of an issue in it.
pub(super) type IssuePlace = (u64, u64);

impl ModelState {
    /// Delivers an event of an issue, with the issue as it is now.
    fn deliver_issue(&mut self, place: IssuePlace, actor: u64, action: &str, more: Value) {
        let Some(issue) = self.issue(place) else {
            return;
        };
        let mut payload = more;
        payload["issue"] = self.show_issue(place.0, issue);
        // The App does not subscribe to pull requests.
        if issue.pull.is_none() {
            self.deliver("issues", action, place.0, actor, payload);
        }
    }

    fn add_event(
        &mut self,
        place: IssuePlace,
        actor: u64,
        kind: &'static str,
        label: Option<LabelRecord>,
        assignee: Option<u64>,
    ) {
        let event =
            EventRecord { id: self.next_id(), kind, actor, at: self.now(), label, assignee };
        if let Some(issue) = self.issue_mut(place) {
            issue.events.push(event);
        }
    }

    /// The issue changed in a way that moves `updated_at`.
    fn touch(&mut self, place: IssuePlace) {
        let now = self.now();
        if let Some(issue) = self.issue_mut(place) {
            issue.text.updated = now;
        }
    }

    /// Opens an issue.
    pub fn open_issue(&mut self, repository: u64, author: u64, title: &str, body: &str) -> u64 {
        let number = self.new_issue(repository, author, title, body, None);
        self.deliver_issue((repository, number), author, "opened", json!({}));
        number
    }

    /// Puts a label on, or takes it off. `false` when one to be taken off is not there.
    pub fn set_label(&mut self, place: IssuePlace, actor: u64, name: &str, on: bool) -> bool {
        let label = self.label(place.0, name);
        let Some(issue) = self.issue_mut(place) else {
            return false;
        };
        let at = issue.labels.iter().position(|own| own.id == label.id);
        match (at, on) {
            (Some(_), true) => return true,
            (None, false) => return false,
            (None, true) => issue.labels.push(label.clone()),
            (Some(at), false) => drop(issue.labels.remove(at)),
        }
        let action = if on { "labeled" } else { "unlabeled" };
        let shown = self.show_label(place.0, &label);
        self.add_event(place, actor, action, Some(label), None);
        self.deliver_issue(place, actor, action, json!({"label": shown}));
        true
    }

    /// Assigns an account, or takes the assignment back.
    pub fn set_assigned(&mut self, place: IssuePlace, actor: u64, assignee: u64, on: bool) {
        let Some(issue) = self.issue_mut(place) else {
            return;
        };
        if issue.assignees.contains(&assignee) == on {
            return;
        }
        match on {
            true => issue.assignees.push(assignee),
            false => issue.assignees.retain(|own| *own != assignee),
        }
        let action = if on { "assigned" } else { "unassigned" };
        self.add_event(place, actor, action, None, Some(assignee));
        self.touch(place);
        let shown = self.show_user(assignee);
        self.deliver_issue(place, actor, action, json!({"assignee": shown}));
    }

    /// Closes or reopens.
    pub fn set_closed(&mut self, place: IssuePlace, actor: u64, closed: bool) {
        let now = self.now();
        let Some(issue) = self.issue_mut(place) else {
            return;
        };
        if issue.closed.is_some() == closed {
            return;
        }
        issue.closed = closed.then_some((now, actor));
        issue.reason = Some(if closed { "completed" } else { "reopened" });
        let action = if closed { "closed" } else { "reopened" };
        self.add_event(place, actor, action, None, None);
        self.touch(place);
        self.deliver_issue(place, actor, action, json!({}));
    }

    /// Locks or unlocks the conversation.
    pub fn set_locked(&mut self, place: IssuePlace, actor: u64, locked: bool) {
        let Some(issue) = self.issue_mut(place) else {
            return;
        };
        issue.locked = locked;
        let action = if locked { "locked" } else { "unlocked" };
        self.add_event(place, actor, action, None, None);
        self.deliver_issue(place, actor, action, json!({}));
    }

    /// Edits title or body.
    pub fn edit_text(
        &mut self,
        place: IssuePlace,
        actor: u64,
        title: Option<&str>,
        body: Option<&str>,
    ) {
        let now = self.now();
        let Some(issue) = self.issue_mut(place) else {
            return;
        };
        let mut changes = json!({});
        if let Some(title) = title {
            changes["title"] = json!({"from": issue.title});
            issue.title = title.to_owned();
        }
        if let Some(body) = body {
            changes["body"] = json!({"from": issue.text.body});
            issue.text.body = body.to_owned();
            issue.text.edited = Some((now, actor));
        }
        issue.text.updated = now;
        if title.is_some() {
            self.add_event(place, actor, "renamed", None, None);
        }
        self.deliver_issue(place, actor, "edited", json!({"changes": changes}));
    }

    fn deliver_comment(
        &mut self,
        repository: u64,
        (number, at): (u64, usize),
        actor: u64,
        action: &str,
    ) {
        let issue = &self.repositories[&repository].issues[&number];
        let comment = self.show_comment(repository, number, &issue.comments[at]);
        let payload = json!({"issue": self.show_issue(repository, issue), "comment": comment});
        self.deliver("issue_comment", action, repository, actor, payload);
    }

    /// Comments; gives the comment's id.
    pub fn add_comment(&mut self, place: IssuePlace, actor: u64, body: &str) -> u64 {
        let text = self.new_text(actor, body, actor == self.app.bot);
        let comment = CommentRecord { id: self.next_id(), text, minimized: false };
        let id = comment.id;
        let issue = self.issue_mut(place).expect("the issue was just found");
        issue.comments.push(comment);
        let at = issue.comments.len() - 1;
        self.touch(place);
        self.deliver_comment(place.0, (place.1, at), actor, "created");
        id
    }

    /// Edits a comment.
    pub fn change_comment(&mut self, repository: u64, place: (u64, usize), actor: u64, body: &str) {
        let now = self.now();
        let issue = self.issue_mut((repository, place.0)).expect("the comment was just found");
        let text = &mut issue.comments[place.1].text;
        let was = std::mem::replace(&mut text.body, body.to_owned());
        text.updated = now;
        text.edited = (was != body).then_some((now, actor)).or(text.edited);
        self.deliver_comment(repository, place, actor, "edited");
    }

    /// Deletes a comment.
    pub fn remove_comment(&mut self, repository: u64, place: (u64, usize), actor: u64) {
        self.deliver_comment(repository, place, actor, "deleted");
        if let Some(issue) = self.issue_mut((repository, place.0)) {
            issue.comments.remove(place.1);
        }
    }

    /// Deletes an issue: 410 from now on.
    pub fn delete_issue(&mut self, place: IssuePlace, actor: u64) {
        self.deliver_issue(place, actor, "deleted", json!({}));
        self.repository_mut(place.0).issues.remove(&place.1);
        self.deleted_issues.insert(place);
    }

    /// Moves an issue to another repository; gives its number there. Comments keep their ids.
    pub fn transfer_issue(&mut self, place: IssuePlace, to: u64, actor: u64) -> Option<u64> {
        let mut issue = self.issue(place)?.clone();
        let old = self.show_issue(place.0, &issue);
        issue.id = self.next_id();
        let target = self.repository_mut(to);
        target.last_number += 1;
        issue.number = target.last_number;
        let number = issue.number;
        target.issues.insert(number, issue.clone());
        let mut labels = Vec::new();
        for label in &issue.labels {
            labels.push(self.label(to, &label.name));
        }
        issue.labels = labels;
        let new = self.show_issue(to, &issue);
        self.repository_mut(to).issues.insert(number, issue);
        let changes = json!({"new_issue": new, "new_repository": self.show_repository(to, false)});
        self.deliver_issue(place, actor, "transferred", json!({"changes": changes}));
        self.repository_mut(place.0).issues.remove(&place.1);
        self.moved_issues.insert(place, (to, number));
        let changes =
            json!({"old_issue": old, "old_repository": self.show_repository(place.0, false)});
        self.deliver_issue((to, number), actor, "opened", json!({"changes": changes}));
        Some(number)
    }

    /// Renames a repository, or gives it to another account: both are a new full name.
    pub fn rename_repository(&mut self, id: u64, full_name: &str) {
        let old_name = self.full_name(id);
        let (owner, name) = full_name.split_once('/').expect("a full name has a slash");
        let (owner, old_owner) =
            (self.user_or_new(owner, "Organization"), self.repositories[&id].owner);
        self.former_names.insert(old_name.to_ascii_lowercase(), id);
        let found = self.repository_mut(id);
        found.owner = owner;
        let from = std::mem::replace(&mut found.name, name.to_owned());
        let (action, changes) = match owner == old_owner {
            true => ("renamed", json!({"repository": {"name": {"from": from}}})),
            false => {
                let from = self.show_user(old_owner);
                ("transferred", json!({"owner": {"from": {"organization": from}}}))
            }
        };
        self.deliver("repository", action, id, owner, json!({"changes": changes}));
    }
}
