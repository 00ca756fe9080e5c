//! What the program says on issues, seen by an in-memory GitHub: 👀, and one comment that is edited,
//! whatever happens to the server in between.

use issuebox::github::model::{FaultKind, GithubModel, ModelFault};
use serde_json::Value;

use crate::connected::serve_connected;
use crate::process::{Place, Server, WAIT};

const REPOSITORY: &str = "octo/hello";
const MAINTAINER: &str = "mona";

/// A GitHub with one issue, and the place of a server with credentials for it.
struct SaidWorld {
    github: GithubModel,
    place: Place,
    number: u64,
}

impl SaidWorld {
    fn new(faults: &str) -> Self {
        let github = GithubModel::start().expect("it starts");
        github.repository(REPOSITORY);
        github.set_role(REPOSITORY, MAINTAINER, "admin");
        github.install("octo");
        let number = github.open_issue(REPOSITORY, MAINTAINER, "A title", "A body");
        Self { github, place: Place::simulated(faults), number }
    }

    async fn serve(&self) -> Server {
        serve_connected(&self.place, &self.github, &[("ISSUEBOX__TRIGGERS__OPENED", "false")]).await
    }

    fn label(&self) {
        self.github.label((REPOSITORY, self.number), MAINTAINER, "agent");
    }

    fn comments(&self) -> Vec<Value> {
        self.github.comments((REPOSITORY, self.number))
    }

    /// Waits until the only comment says this.
    async fn until_said(&self, words: &str) {
        let said = |github: &GithubModel| {
            let comments = github.comments((REPOSITORY, self.number));
            matches!(&comments[..], [one] if body(one).contains(words))
        };
        let waited = tokio::time::timeout(WAIT * 3, self.github.until(said)).await;
        assert!(waited.is_ok(), "{words} is not said: {:?}", self.comments());
    }

    fn nothing_wrong(&self) {
        assert_eq!(self.github.violations(), Vec::<String>::new());
    }
}

fn body(comment: &Value) -> &str {
    comment["body"].as_str().expect("a text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_gets_eyes_and_one_comment_to_the_end() {
    let world = SaidWorld::new("");
    let server = world.serve().await;
    world.label();
    world.until_said("**Running**").await;
    let eyes = world.github.reactions((REPOSITORY, world.number), None);
    assert_eq!(eyes.len(), 1);
    assert_eq!(eyes[0]["content"], "eyes");
    world.github.close((REPOSITORY, world.number), MAINTAINER);
    world.until_said("The issue is **closed** and its sandbox stopped").await;
    assert_eq!(world.place.calls("create").len(), 1, "what we said triggered nothing");
    server.stop().await;
    world.nothing_wrong();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_comment_is_not_written_again() {
    let world = SaidWorld::new("");
    let server = world.serve().await;
    world.label();
    world.until_said("**Running**").await;
    let id = world.comments()[0]["id"].as_u64().expect("an id");
    world.github.delete_comment(REPOSITORY, id, MAINTAINER);
    let looks = || world.github.calls_to("GET", "/repos/octo/hello/issues/", "/comments").len();
    let before = looks();
    world.github.close((REPOSITORY, world.number), MAINTAINER);
    // It looks for the comment by its marker, once, and lets it be.
    let waited = tokio::time::timeout(WAIT, world.github.until(|_| looks() > before)).await;
    assert!(waited.is_ok(), "it was not looked for");
    server.stop().await;
    assert_eq!(world.comments(), Vec::<Value>::new());
    world.nothing_wrong();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes more than a minute: a comment is looked for only that long after it was sent"]
async fn a_killed_server_leaves_one_comment() {
    let world = SaidWorld::new("");
    let server = world.serve().await;
    world.github.order(ModelFault::on("POST", "repos/*/*/issues/*/comments", FaultKind::Held));
    world.label();
    let waited = tokio::time::timeout(WAIT, world.github.until(|github| github.held() == 1)).await;
    assert!(waited.is_ok(), "no comment was sent");
    server.kill().await;
    world.github.release();
    let server = world.serve().await;
    world.github.close((REPOSITORY, world.number), MAINTAINER);
    world.until_said("The issue is **closed**").await;
    assert_eq!(world.comments().len(), 1);
    server.stop().await;
    world.nothing_wrong();
}
