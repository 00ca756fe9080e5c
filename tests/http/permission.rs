//! Who may trigger, with credentials for GitHub: an in-memory GitHub is asked, and deliveries wait for its
//! answer.

use std::sync::Arc;

use issuebox::clock::{Clock, SystemClock};
use issuebox::github::api::{GitHubApi, UnkeptPace};
use issuebox::github::client::{GitHubClient, GitHubCredentials};
use issuebox::github::model::{APP_KEY, FaultKind, GithubModel, ModelFault};
use issuebox::types::Secret;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::server::{Answer, TestServer};
use crate::process::until;

pub const REPOSITORY: &str = "octo/hello";
const PERMISSION: &str = "repos/*/*/collaborators/*/permission";

/// A GitHub with one issue, and a server with credentials for it. A test sends the deliveries.
pub struct PermissionWorld {
    pub github: Arc<GithubModel>,
    pub server: TestServer,
    data: Arc<TempDir>,
    pub number: u64,
    repository_id: u64,
    body: &'static str,
}

/// The server's client for this GitHub, as the App.
pub fn client(github: &GithubModel) -> Arc<dyn GitHubApi> {
    let (app, _, _) = github.app();
    let credentials = GitHubCredentials::app(app, &Secret::new(APP_KEY)).expect("a key");
    let (clock, pace) = (Arc::new(SystemClock), Arc::new(UnkeptPace));
    Arc::new(GitHubClient::new(&github.api_url(), credentials, clock, pace).expect("an address"))
}

/// A sender as a payload has it.
fn user(id: u64, login: &str) -> Value {
    json!({"id": id, "login": login, "type": "User"})
}

async fn serve(github: &Arc<GithubModel>, data: &Arc<TempDir>) -> TestServer {
    let api = client(github);
    TestServer::over(Arc::clone(data), "memory", move |edge| edge.github = Some(api)).await
}

impl PermissionWorld {
    pub async fn new() -> Self {
        Self::with_body("A body").await
    }

    /// A world whose issue has this text.
    pub async fn with_body(body: &'static str) -> Self {
        let github = Arc::new(GithubModel::start().expect("it starts"));
        let repository_id = github.repository(REPOSITORY);
        for (login, role) in [("mona", "admin"), ("wren", "write"), ("remy", "read")] {
            github.set_role(REPOSITORY, login, role);
        }
        github.install("octo");
        let number = github.open_issue(REPOSITORY, "mona", "A title", body);
        let data = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        let server = serve(&github, &data).await;
        Self { github, server, data, number, repository_id, body }
    }

    /// The server ends, whatever waits there, and another one starts on what is stored.
    async fn restart(self) -> Self {
        let Self { github, server, data, number, repository_id, body } = self;
        drop(server);
        let server = serve(&github, &data).await;
        Self { github, server, data, number, repository_id, body }
    }

    pub fn sender(&self, login: &str) -> Value {
        user(self.github.user(login), login)
    }

    pub fn id(&self) -> String {
        self.github.issue((REPOSITORY, self.number))["id"].to_string()
    }

    /// A delivery about the issue, whose author is mona.
    async fn deliver(&self, guid: &str, action: &str, sender: &Value, association: &str) -> Answer {
        let state = if action == "closed" { "closed" } else { "open" };
        let issue = self.github.issue((REPOSITORY, self.number));
        let updated_at = match action {
            "labeled" => issue["updated_at"].clone(),
            _ => json!(SystemClock.now().to_string()),
        };
        let body = json!({
            "action": action,
            "label": {"name": "agent"},
            "issue": {
                "id": issue["id"], "number": self.number,
                "title": "A title", "body": self.body, "state": state,
                "labels": [{"name": "agent"}],
                "user": self.sender("mona"), "author_association": association,
                "updated_at": updated_at,
            },
            "repository": {"id": self.repository_id, "full_name": REPOSITORY},
            "sender": sender,
        });
        self.server.deliver("issues", guid, &body.to_string()).await
    }

    /// The label is put on.
    pub async fn label(&self, guid: &str, sender: &Value, association: &str) -> Answer {
        self.deliver(guid, "labeled", sender, association).await
    }

    pub async fn sandbox(&self) -> Value {
        let path = format!("/v1/issues/{}/sandbox", self.id());
        self.server.get(&path).await.json()["data"].clone()
    }

    pub async fn until_sandbox(&self) {
        until("a sandbox", || async { self.sandbox().await.is_object() }).await;
    }

    /// The delivery, once it is taken in.
    async fn taken_in(&self, guid: &str) -> Value {
        let find = || async {
            let listed = self.server.get("/v1/deliveries").await.json();
            let rows = listed["data"].as_array().expect("a list").clone();
            rows.into_iter().find(|row| row["delivery"] == guid)
        };
        until("the delivery to be taken in", || async { find().await.is_some() }).await;
        find().await.expect("it was there")
    }

    /// The label of this sender, who may not put it on, has no effect, for this reason.
    async fn is_refused(&self, sender: &Value, association: &str, reason: &str) {
        let answer = self.label("d-refused", sender, association).await;
        assert_eq!((answer.status, &answer.json()["status"]), (202, &json!("accepted")));
        let row = self.taken_in("d-refused").await;
        assert_eq!(row["reason"], reason, "{row}");
        assert_eq!(self.sandbox().await, Value::Null);
        self.nothing_wrong();
    }

    fn questions(&self) -> usize {
        self.github.calls_to("GET", "/repos/octo/hello/collaborators/", "/permission").len()
    }

    pub fn nothing_wrong(&self) {
        assert_eq!(self.github.violations(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_writer_whose_membership_is_private_makes_a_sandbox() {
    let world = PermissionWorld::new().await;
    world.github.hide_membership("wren");
    let answer = world.label("d-1", &world.sender("wren"), "CONTRIBUTOR").await;
    let said = answer.json();
    assert_eq!((answer.status, &said["status"]), (202, &json!("accepted")), "{said}");
    assert_eq!(said["reason"], "the permission of wren is being asked");
    world.until_sandbox().await;
    let row = world.taken_in("d-1").await;
    assert_eq!(row["status"], "accepted", "{row}");
    assert!(row["reason"].as_str().is_some_and(|reason| reason.contains("label agent added")));
    // The answer is remembered: the next delivery is taken in at once.
    let again = world.label("d-2", &world.sender("wren"), "CONTRIBUTOR").await.json();
    assert_eq!((&again["status"], &again["issueId"]), (&json!("accepted"), &json!(world.id())));
    assert_ne!(again["reason"], said["reason"]);
    assert_eq!(world.questions(), 1);
    world.nothing_wrong();
}

#[tokio::test]
async fn a_collaborator_who_may_read_makes_none() {
    let world = PermissionWorld::new().await;
    let why = "remy may not trigger: the role is read, and write is needed";
    world.is_refused(&world.sender("remy"), "COLLABORATOR", why).await;
    // A refusal is remembered, too.
    let again = world.label("d-2", &world.sender("remy"), "COLLABORATOR").await;
    let said = again.json();
    assert_eq!((again.status, &said["status"]), (200, &json!("ignored")));
    assert_eq!((&said["reason"], world.questions()), (&json!(why), 1));
}

#[tokio::test]
async fn a_stranger_makes_none_also_as_the_author_of_the_issue() {
    let world = PermissionWorld::new().await;
    let stranger = world.sender("stella");
    let why = "stella may not trigger: the role is read, and write is needed";
    world.is_refused(&stranger, "OWNER", why).await;
}

#[tokio::test]
async fn a_login_that_another_account_has_by_now_makes_none() {
    let world = PermissionWorld::new().await;
    let before = world.sender("remy");
    world.github.rename_user("remy", "rob");
    world.github.set_role(REPOSITORY, "remy", "admin");
    let why = "remy may not trigger: the name belongs to another account now";
    world.is_refused(&before, "OWNER", why).await;
}

#[tokio::test]
async fn a_name_of_no_user_makes_none() {
    let world = PermissionWorld::new().await;
    let why = "nobody may not trigger: GitHub knows no such user with a permission";
    world.is_refused(&user(999_999, "nobody"), "MEMBER", why).await;
}

#[tokio::test]
async fn what_calls_itself_a_bot_is_not_asked_about() {
    let world = PermissionWorld::new().await;
    for (guid, sender) in [
        ("d-1", user(world.github.user("mona"), "x[bot]")),
        ("d-2", json!({"id": world.github.user("mona"), "login": "mona", "type": "Bot"})),
    ] {
        let answer = world.label(guid, &sender, "OWNER").await;
        assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("ignored")));
    }
    assert_eq!((world.sandbox().await, world.questions()), (Value::Null, 0));
}

#[tokio::test]
async fn a_delivery_that_waits_is_one_delivery() {
    let world = PermissionWorld::new().await;
    world.github.order(ModelFault::on("GET", PERMISSION, FaultKind::Held));
    let mona = world.sender("mona");
    let first = world.label("d-1", &mona, "OWNER").await;
    assert_eq!((first.status, &first.json()["status"]), (202, &json!("accepted")));
    world.github.until(|github| github.held() == 1).await;
    let second = world.label("d-1", &mona, "OWNER").await;
    assert_eq!((second.status, &second.json()["status"]), (200, &json!("duplicate")));
    assert_eq!(world.sandbox().await, Value::Null);
    world.github.release();
    world.until_sandbox().await;
    let third = world.label("d-1", &mona, "OWNER").await;
    assert_eq!((third.status, &third.json()["status"]), (200, &json!("duplicate")));
    until("one object", || async { world.server.provider.object_count() == 1 }).await;
}

#[tokio::test]
async fn a_processed_delivery_stays_processed_when_the_answer_is_forgotten() {
    let world = PermissionWorld::new().await;
    let mona = world.sender("mona");
    world.label("d-1", &mona, "OWNER").await;
    world.until_sandbox().await;
    let world = world.restart().await;
    let again = world.label("d-1", &mona, "OWNER").await;
    assert_eq!((again.status, &again.json()["status"]), (200, &json!("duplicate")));
}

#[tokio::test]
async fn a_delivery_waits_until_github_answers() {
    let world = PermissionWorld::new().await;
    world.github.order(ModelFault::on("GET", PERMISSION, FaultKind::Status(502)));
    let answer = world.label("d-1", &world.sender("mona"), "OWNER").await;
    assert_eq!(answer.status, 202);
    world.until_sandbox().await;
    assert_eq!(world.questions(), 2);
    assert_eq!(world.taken_in("d-1").await["status"], "accepted");
}

#[tokio::test]
async fn a_server_that_ends_while_it_asks_loses_nothing() {
    let world = PermissionWorld::new().await;
    world.github.order(ModelFault::on("GET", PERMISSION, FaultKind::Held));
    let answer = world.label("d-1", &world.sender("mona"), "OWNER").await;
    assert_eq!(answer.status, 202);
    world.github.until(|github| github.held() == 1).await;
    let world = world.restart().await;
    world.until_sandbox().await;
    world.github.release();
    until("one object", || async { world.server.provider.object_count() == 1 }).await;
}

#[tokio::test]
async fn facts_are_not_held_up_by_a_silent_github() {
    let world = PermissionWorld::new().await;
    let mona = world.sender("mona");
    world.label("d-1", &mona, "OWNER").await;
    world.until_sandbox().await;
    world.github.order(ModelFault::on("GET", "**", FaultKind::Status(502)).times(100));
    let closed = world.deliver("d-2", "closed", &world.sender("stella"), "NONE").await;
    assert_eq!((closed.status, &closed.json()["status"]), (202, &json!("accepted")));
    assert_eq!(closed.json()["reason"], "the issue was closed; its sandbox is stopped");
    until("the stop", || async { world.sandbox().await["phase"] == "stopped" }).await;
}

#[tokio::test]
async fn what_was_taken_back_before_the_answer_makes_no_sandbox() {
    let world = PermissionWorld::new().await;
    world.github.order(ModelFault::on("GET", PERMISSION, FaultKind::Held));
    world.label("d-1", &world.sender("mona"), "OWNER").await;
    world.github.until(|github| github.held() == 1).await;
    let closed = world.deliver("d-2", "closed", &world.sender("mona"), "OWNER").await;
    assert_eq!(closed.status, 202, "{closed:?}");
    world.github.release();
    let row = world.taken_in("d-1").await;
    assert_eq!(row["status"], "ignored", "{row}");
    assert_eq!(world.sandbox().await, Value::Null);
}
