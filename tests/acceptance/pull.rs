//! The work of real sandboxes at GitHub: one draft pull request for what was pushed, named by the status,
//! whatever happens to the server in between; and no push where publishing is turned off.

use issuebox::github::model::{FaultKind, GithubModel, ModelFault};
use serde_json::Value;

use crate::button::{Visitor, between};
use crate::checkout::{CheckoutWorld, REPOSITORY, done, sh};
use crate::process::{Server, WAIT};

const COMMIT: &str = "echo work > work && git add work && git commit -qm Work";

impl CheckoutWorld {
    /// The only pull request, once there is one.
    async fn only_pull(&self) -> Value {
        self.until("a pull request", |github| !github.pulls(REPOSITORY).is_empty()).await;
        let mut pulls = self.github.pulls(REPOSITORY);
        assert_eq!(pulls.len(), 1, "{pulls:?}");
        pulls.remove(0)
    }

    /// Waits until the only comment says this.
    async fn until_said(&self, words: &str) {
        self.until(words, |_| self.says(words)).await;
    }

    async fn until(&self, what: &str, met: impl Fn(&GithubModel) -> bool) {
        let waited = tokio::time::timeout(WAIT * 3, self.github.until(met)).await;
        let comments = self.github.comments((REPOSITORY, self.number));
        assert!(waited.is_ok(), "{what} did not come: {comments:?}");
    }
}

/// Presses the page's button, which is there no more then.
async fn publish_on_the_page(server: &Server, id: &str) {
    let visitor = Visitor::log_in(server, &server.url).await;
    let (at, action) = (format!("/sandboxes/{id}"), format!("/sandboxes/{id}/publish"));
    let page = visitor.see(&at).await.text;
    assert!(page.contains(&format!("action=\"{action}\"")), "{page}");
    let token = between(&page, "name=\"formToken\" value=\"");
    let answer = visitor.submit(&action, &[("formToken", &token)]).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    let to = answer.headers["location"].to_str().expect("text");
    let page = visitor.see(to).await.text;
    assert!(!page.contains(&action) && page.contains("Its branch is pushed."), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and needs git; run by .ci/run"]
async fn a_push_leads_to_one_draft_pull_request_that_the_status_names_to_the_end() {
    let Some(world) = CheckoutWorld::new().await else { return };
    let server = world.serve().await;
    world.label();
    let id = world.checked_out(&server).await;
    world.until_said(&format!("Branch `{}`; nothing is pushed yet.", world.branch())).await;
    done(&server, &id, COMMIT).await;
    done(&server, &id, "git push -q origin HEAD").await;
    let pull = world.only_pull().await;
    assert_eq!((&pull["draft"], &pull["title"]), (&true.into(), &"A title".into()), "{pull}");
    assert_eq!(
        (&pull["head"]["ref"], &pull["base"]["ref"]),
        (&world.branch().into(), &"main".into())
    );
    let body = pull["body"].as_str().expect("a text");
    let fixes = format!("\n<!-- begin -->\nFixes #{}\n", world.number);
    assert!(body.contains(&fixes) && body.contains("It was asked for by mona."), "{body}");
    let named = format!("Branch `{}`, pull request #{}.", world.branch(), pull["number"]);
    world.until_said(&named).await;
    done(&server, &id, "git commit -q --allow-empty -m More && git push -q origin HEAD").await;
    world.github.close((REPOSITORY, world.number), "mona");
    world.until_said("The issue is **closed** and its sandbox stopped").await;
    world.until_said(&named).await;
    assert_eq!(world.github.pulls(REPOSITORY).len(), 1);
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and needs git; run by .ci/run"]
async fn a_killed_server_leaves_one_pull_request() {
    let Some(world) = CheckoutWorld::new().await else { return };
    let server = world.serve().await;
    world.label();
    let id = world.checked_out(&server).await;
    world.github.order(ModelFault::on("POST", "repos/*/*/pulls", FaultKind::Held));
    done(&server, &id, COMMIT).await;
    done(&server, &id, "git push -q origin HEAD").await;
    world.until("the call", |github| github.held() == 1).await;
    server.kill().await;
    world.github.release();
    let server = world.serve().await;
    let pull = world.only_pull().await;
    world.until_said(&format!("pull request #{}.", pull["number"])).await;
    assert_eq!(world.github.pulls(REPOSITORY).len(), 1);
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and needs git; run by .ci/run"]
async fn pushes_wait_until_a_person_publishes_the_work() {
    let Some(world) = CheckoutWorld::new().await else { return };
    let server = world.serve_with(&[("ISSUEBOX__GITHUB__PUBLISH", "ask")]).await;
    world.label();
    let id = world.checked_out(&server).await;
    world.until_said("**Pushes wait** for a person").await;
    done(&server, &id, COMMIT).await;
    let refused = sh(&server, &id, "git push -q origin HEAD").await;
    let words = refused["stderr"].as_str().expect("text");
    assert!(refused["exitCode"] != 0 && words.contains("your work is kept"), "{words}");
    assert_eq!(world.github.tip(REPOSITORY, &world.branch()), None);
    world.github.comment((REPOSITORY, world.number), "mona", "/issuebox publish");
    let pull = world.only_pull().await;
    let named = format!("pull request #{}. Published by mona.", pull["number"]);
    world
        .until("the status", |github| {
            let comments = github.comments((REPOSITORY, world.number));
            comments
                .iter()
                .any(|one| one["body"].as_str().is_some_and(|body| body.contains(&named)))
        })
        .await;
    // From now on it pushes as it likes.
    done(&server, &id, "git commit -q --allow-empty -m More && git push -q origin HEAD").await;
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and needs git; run by .ci/run"]
async fn a_strangers_text_makes_pushes_wait_and_never_turns_them_off() {
    let Some(world) = CheckoutWorld::new().await else { return };
    let theirs = world.github.open_issue(REPOSITORY, "stranger", "Do this", "and that");
    let world = CheckoutWorld { number: theirs, ..world };
    let server = world.serve().await;
    world.label();
    let id = world.checked_out(&server).await;
    world.until_said("stranger, who wrote a text, may not write here").await;
    done(&server, &id, COMMIT).await;
    let push = "git push -q origin HEAD";
    let refused = sh(&server, &id, push).await;
    assert!(refused["stderr"].as_str().expect("text").contains("your work is kept"), "{refused}");
    publish_on_the_page(&server, &id).await;
    assert!(world.github.tip(REPOSITORY, &world.branch()).is_some());
    world.only_pull().await;
    let answer = server.post(&format!("/v1/sandboxes/{id}/publish"), &Value::Null).await;
    assert_eq!(answer.json()["data"]["branch"], world.branch().as_str(), "{:?}", answer.json());
    server.stop().await;
    let server = world.serve_with(&[("ISSUEBOX__GITHUB__PUBLISH", "never")]).await;
    done(&server, &id, "git commit -q --allow-empty -m More").await;
    let refused = sh(&server, &id, push).await;
    assert!(refused["stderr"].as_str().expect("text").contains("your work is kept"), "{refused}");
    let answer = server.post(&format!("/v1/sandboxes/{id}/publish"), &Value::Null).await;
    assert_eq!(answer.refusal().1, "not_published");
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and needs git; run by .ci/run"]
async fn a_server_killed_before_it_knows_of_a_push_opens_the_pull_request_later() {
    let Some(world) = CheckoutWorld::new().await else { return };
    let server = world.serve().await;
    world.label();
    let id = world.checked_out(&server).await;
    done(&server, &id, COMMIT).await;
    let tip_of = "repos/*/*/git/ref/heads/*/*";
    world.github.order(ModelFault::on("GET", tip_of, FaultKind::Status(502)));
    world.github.order(ModelFault::on("POST", "*/*/git-receive-pack", FaultKind::LostAfter));
    sh(&server, &id, "git push -q origin HEAD").await;
    assert!(world.github.tip(REPOSITORY, &world.branch()).is_some(), "GitHub has it");
    server.kill().await;
    assert_eq!(world.github.pulls(REPOSITORY), Vec::<Value>::new());
    let server = world.serve().await;
    world.only_pull().await;
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}
