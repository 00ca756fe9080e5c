//! Reviews of pull requests and checks of commits, as they are made, shown and delivered.

use serde_json::{Value, json};

use super::GithubModel;
use super::acts::IssueAt;
use super::changes::IssuePlace;
use super::state::{ModelState, RemarkRecord, ReviewRecord};

/// A check of a commit that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedCheck<'a> {
    /// Its name.
    pub name: &'a str,
    /// `success`, `failure`, `timed_out`, ….
    pub conclusion: &'a str,
    /// The title of its output.
    pub title: &'a str,
    /// The summary of its output.
    pub summary: &'a str,
    /// The text of its output.
    pub text: &'a str,
}

impl GithubModel {
    /// Reviews a pull request; gives the review's id. `state` is `commented`, `changes_requested` or
    /// `approved`; each remark has its file, the hunk that ends
    /// at its line, and text.
    pub fn review(
        &self,
        (repository, number): IssueAt<'_>,
        login: &str,
        state: &str,
        body: &str,
        remarks: &[(&str, &str, &str)],
    ) -> u64 {
        let author = self.user(login);
        let mut model = self.state();
        let place = (model.repository_named(repository).expect("the repository is there"), number);
        let remarks = remarks
            .iter()
            .map(|(path, hunk, body)| RemarkRecord {
                id: model.next_id(),
                path: (*path).to_owned(),
                hunk: (*hunk).to_owned(),
                body: (*body).to_owned(),
            })
            .collect();
        let review = ReviewRecord {
            id: model.next_id(),
            author,
            state: state.to_owned(),
            body: body.to_owned(),
            commit: String::new(),
            at: model.now(),
            remarks,
        };
        model.submit_review(place, review)
    }

    /// A check of a commit ends; gives the check's id.
    pub fn end_check(&self, repository: &str, commit: &str, check: &EndedCheck<'_>) -> u64 {
        let mut model = self.state();
        let repository = model.repository_named(repository).expect("the repository is there");
        let (id, now, actor) = (model.next_id(), model.now().to_string(), model.app.owner);
        let EndedCheck { name, conclusion, title, summary, text } = check;
        let check_run = json!({
            "id": id, "node_id": format!("CR_{id}"), "name": name, "head_sha": commit,
            "status": "completed", "conclusion": conclusion, "started_at": now, "completed_at": now,
            "output": {
                "title": title, "summary": summary, "text": text, "annotations_count": 0,
            },
            "pull_requests": [],
        });
        model.deliver("check_run", "completed", repository, actor, json!({"check_run": check_run}));
        id
    }
}

impl ModelState {
    fn submit_review(&mut self, place: IssuePlace, mut review: ReviewRecord) -> u64 {
        let pull = self.show_pull(place.0, place.1, false);
        review.commit = pull["head"]["sha"].as_str().unwrap_or_default().to_owned();
        let (id, author) = (review.id, review.author);
        let issue = self.issue_mut(place).expect("the pull request is there");
        issue.pull.as_mut().expect("it is a pull request").reviews.push(review.clone());
        let shown = self.show_review(place, &review);
        let payload = json!({"review": shown, "pull_request": pull});
        // As at GitHub, a remark may come before its review.
        for remark in &review.remarks {
            let comment = self.show_remark(place, &review, remark);
            let payload = json!({"comment": comment, "pull_request": pull});
            self.deliver("pull_request_review_comment", "created", place.0, author, payload);
        }
        self.deliver("pull_request_review", "submitted", place.0, author, payload);
        id
    }

    fn show_review(&self, (repository, number): IssuePlace, review: &ReviewRecord) -> Value {
        let html = format!("{}/{}/pull/{number}", self.base, self.full_name(repository));
        json!({
            "id": review.id, "node_id": format!("PRR_{}", review.id),
            "user": self.show_user(review.author), "body": review.body,
            "commit_id": review.commit, "submitted_at": review.at.to_string(),
            "state": review.state, "html_url": format!("{html}#pullrequestreview-{}", review.id),
            "author_association": self.association(repository, review.author),
        })
    }

    /// A remark as REST shows it. As at GitHub, it has no line here.
    pub fn show_remark(
        &self,
        (repository, number): IssuePlace,
        review: &ReviewRecord,
        remark: &RemarkRecord,
    ) -> Value {
        let name = self.full_name(repository);
        let api = format!("{}/repos/{name}/pulls", self.base);
        let (url, pull) = (format!("{api}/comments/{}", remark.id), format!("{api}/{number}"));
        let html = format!("{}/{name}/pull/{number}#discussion_r{}", self.base, remark.id);
        json!({
            "id": remark.id, "node_id": format!("PRRC_{}", remark.id), "url": url,
            "pull_request_review_id": review.id, "diff_hunk": remark.hunk, "path": remark.path,
            "position": 1, "original_position": 1, "commit_id": review.commit,
            "original_commit_id": review.commit, "user": self.show_user(review.author),
            "body": remark.body, "created_at": review.at.to_string(),
            "updated_at": review.at.to_string(), "html_url": html, "pull_request_url": pull,
            "author_association": self.association(repository, review.author),
            "_links": {
                "self": {"href": url}, "html": {"href": html}, "pull_request": {"href": pull},
            },
        })
    }
}
