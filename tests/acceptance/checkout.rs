//! The repository in real sandboxes: checked out without a key inside, pushed to its own branch alone,
//! also after the server was killed.

use issuebox::github::model::GithubModel;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::connected::serve_connected;
use crate::process::{Place, Server, until};

pub const REPOSITORY: &str = "octo/hello";
const MAINTAINER: &str = "mona";

/// A GitHub with one issue, and the place of a server with credentials for it and real sandboxes.
pub struct CheckoutWorld {
    pub github: GithubModel,
    pub place: Place,
    pub number: u64,
}

impl CheckoutWorld {
    pub async fn new() -> Option<Self> {
        let place = Place::local(None).await?;
        let github = GithubModel::start().expect("it starts");
        github.repository(REPOSITORY);
        github.set_private(REPOSITORY, true);
        github.set_role(REPOSITORY, MAINTAINER, "admin");
        github.install("octo");
        let number = github.open_issue(REPOSITORY, MAINTAINER, "A title", "A body");
        Some(Self { github, place, number })
    }

    pub async fn serve(&self) -> Server {
        self.serve_with(&[]).await
    }

    /// Serves with these variables as well.
    pub async fn serve_with(&self, more: &[(&str, &str)]) -> Server {
        serve_connected(&self.place, &self.github, more).await
    }

    /// The branch that the issue's sandbox works on.
    pub fn branch(&self) -> String {
        format!("issuebox/issue-{}", self.number)
    }

    /// Whether the issue's only comment says this.
    pub fn says(&self, words: &str) -> bool {
        let comments = self.github.comments((REPOSITORY, self.number));
        matches!(&comments[..], [one] if one["body"].as_str().is_some_and(|body| body.contains(words)))
    }

    pub fn label(&self) {
        self.github.label((REPOSITORY, self.number), MAINTAINER, "agent");
    }

    /// The id of the issue's sandbox, once its checkout is ready.
    pub async fn checked_out(&self, server: &Server) -> String {
        // By its number: the delivery log brings the other issue of the repository in, too.
        let path = format!("/v1/repos/{REPOSITORY}/issues/{}/sandbox", self.number);
        let found = || async { server.get(&path).await.json()["data"]["id"].clone() };
        until("a sandbox", || async { found().await.is_string() }).await;
        let id = found().await.as_str().expect("an id").to_owned();
        until("a checkout", || async {
            succeeds(server, &id, "git rev-parse --verify -q HEAD").await
        })
        .await;
        id
    }
}

pub async fn sh(server: &Server, id: &str, script: &str) -> Value {
    server.sh(id, script).await
}

/// Whether a script runs and succeeds; it may not run yet.
async fn succeeds(server: &Server, id: &str, script: &str) -> bool {
    let call = json!({"command": ["sh", "-c", script]});
    let answer = server.post(&format!("/v1/sandboxes/{id}/exec"), &call).await;
    answer.is_success() && answer.json()["data"]["exitCode"] == 0
}

pub async fn done(server: &Server, id: &str, script: &str) -> String {
    let ended = sh(server, id, script).await;
    assert_eq!(ended["exitCode"], 0, "{script}: {ended}");
    ended["stdout"].as_str().expect("text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_checks_out_and_what_is_committed_inside_is_pushed_without_a_key() {
    let Some(world) = CheckoutWorld::new().await else { return };
    let server = world.serve().await;
    world.label();
    let id = world.checked_out(&server).await;
    let branch = world.branch();
    assert_eq!(
        done(&server, &id, "git branch --show-current; pwd").await,
        format!("{branch}\n/workspace\n")
    );
    let remote = format!("{}/{REPOSITORY}.git\n", world.github.web_url());
    assert_eq!(done(&server, &id, "git config remote.origin.url").await, remote);
    done(&server, &id, "echo work > work && git add work && git commit -qm Work").await;
    done(&server, &id, "git push -q origin HEAD").await;
    let tip = done(&server, &id, "git rev-parse HEAD").await.trim().to_owned();
    assert_eq!(world.github.tip(REPOSITORY, &branch), Some(tip.clone()));
    let refused = sh(&server, &id, "git push origin HEAD:main").await;
    let words = refused["stderr"].as_str().expect("text");
    assert!(refused["exitCode"] != 0 && words.contains("is not this sandbox's branch"), "{words}");
    // No token is anywhere inside.
    let seen = done(
        &server,
        &id,
        "env; cat ~/.gitconfig .git/config /etc/gitconfig /proc/*/environ \
                                   /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; true",
    )
    .await;
    let tokens = world.github.tokens();
    assert!(!tokens.is_empty() && !tokens.iter().any(|token| seen.contains(token)), "{seen}");
    assert!(!seen.contains("PRIVATE KEY"), "{seen}");
    // Killed and started again, the sandbox has its work, and pushes on.
    server.kill().await;
    let server = world.serve().await;
    until("the sandbox to be up", || async { sh(&server, &id, "true").await["exitCode"] == 0 })
        .await;
    assert_eq!(done(&server, &id, "git rev-parse HEAD").await.trim(), tip);
    done(&server, &id, "git commit -q --amend -m More && git push -q --force origin HEAD").await;
    let tip = done(&server, &id, "git rev-parse HEAD").await.trim().to_owned();
    assert_eq!(world.github.tip(REPOSITORY, &branch), Some(tip));
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

impl CheckoutWorld {
    /// Kills the server as if that had been before it recorded that the checkout is ready. Returns the next one,
    /// once it has made the checkout of this sandbox again on its branch.
    async fn check_out_again(&self, server: Server, id: &str) -> Server {
        server.kill().await;
        let database = Connection::open(self.place.data().join("issuebox.db")).expect("a database");
        let changed = database.execute("UPDATE checkout SET state = 'fetching'", []);
        assert_eq!(changed.expect("written"), 1);
        drop(database);
        let server = self.serve().await;
        until("the sandbox to be up", || async { sh(&server, id, "true").await["exitCode"] == 0 })
            .await;
        let path = format!("/v1/sandboxes/{id}/checkout");
        let checkout = || async { server.get(&path).await.json()["data"].clone() };
        until("the checkout", || async { checkout().await["state"] == "ready" }).await;
        assert_eq!(checkout().await["branch"], self.branch().as_str());
        assert_eq!(done(&server, id, "git branch --show-current").await.trim(), self.branch());
        server
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes a real sandbox and needs git; run by .ci/run"]
async fn a_checkout_that_begins_again_keeps_its_branch_and_what_is_not_pushed_yet() {
    let Some(world) = CheckoutWorld::new().await else { return };
    let server = world.serve().await;
    world.label();
    let id = world.checked_out(&server).await;
    let branch = world.branch();
    done(&server, &id, "echo work > work && git add work && git commit -qm Work").await;
    done(&server, &id, "git push -q origin HEAD").await;
    done(&server, &id, "git commit -q --allow-empty -m More && echo draft > draft").await;
    let unpushed = done(&server, &id, "git rev-parse HEAD").await;
    let server = world.check_out_again(server, &id).await;
    assert_eq!(
        done(&server, &id, "git rev-parse HEAD; cat draft").await,
        format!("{unpushed}draft\n")
    );
    done(&server, &id, "git push -q origin HEAD").await;
    assert_eq!(world.github.tip(REPOSITORY, &branch).as_deref(), Some(unpushed.trim()));
    assert_eq!(world.github.tip(REPOSITORY, &format!("{branch}-2")), None);
    // What was pushed elsewhere meanwhile is followed, as long as there is nothing else here.
    done(&server, &id, "git reset -q --hard HEAD^").await;
    let server = world.check_out_again(server, &id).await;
    assert_eq!(done(&server, &id, "git rev-parse HEAD").await, unpushed);
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes a real sandbox and needs git; run by .ci/run"]
async fn a_first_checkout_that_was_killed_between_its_files_is_made_whole() {
    let Some(world) = CheckoutWorld::new().await else { return };
    let server = world.serve().await;
    world.label();
    let id = world.checked_out(&server).await;
    let before = done(&server, &id, "git ls-files -s; git rev-parse HEAD").await;
    // Half of the files are there, one of them in part; neither the index nor the branch was written.
    let killed = "for file in $(git ls-files); do printf half > $file; break; done
                  git symbolic-ref HEAD refs/heads/none
                  rm -rf .git/refs/heads .git/index && mkdir .git/refs/heads && touch .git/index.lock";
    done(&server, &id, killed).await;
    let server = world.check_out_again(server, &id).await;
    assert_eq!(done(&server, &id, "git ls-files -s; git rev-parse HEAD").await, before);
    assert_eq!(done(&server, &id, "git status --porcelain").await, "");
    server.stop().await;
}
