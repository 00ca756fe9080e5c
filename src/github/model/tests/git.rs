//! Git through the model, with a real git at the other end.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use super::{Garden, ORCHARD};
use crate::github::model::{FaultKind, ModelFault};

/// Runs git; its words, and whether it succeeded.
async fn git(dir: &Path, args: &[&str]) -> (bool, String) {
    let output = Command::new("git")
        .args(["-c", "user.name=Mira", "-c", "user.email=mira@example.org"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()
        .await
        .expect("git runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Commits a file and pushes a branch.
async fn push(dir: &Path, file: &str, branch: &str) -> (bool, String) {
    let path = dir.join(file);
    std::fs::create_dir_all(path.parent().expect("below the clone")).expect("a directory");
    std::fs::write(path, branch).expect("a file");
    for args in [&["add", "."][..], &["commit", "-q", "-m", "Change"]] {
        let (done, words) = git(dir, args).await;
        assert!(done, "{words}");
    }
    git(dir, &["push", "origin", &format!("HEAD:{branch}")]).await
}

fn remote(garden: &Garden, token: &str) -> String {
    let url =
        garden.github.web_url().replace("http://", &format!("http://x-access-token:{token}@"));
    format!("{url}/{ORCHARD}.git")
}

#[tokio::test]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
async fn git_clones_and_pushes_with_what_the_token_allows() {
    let garden = Garden::new().await;
    let github = &garden.github;
    github.set_private(ORCHARD, true);
    let home = TempDir::new().expect("a directory");
    let clone = async |name: &str, token: &str| {
        git(home.path(), &["clone", "-q", &remote(&garden, token), name]).await
    };
    let (done, words) = clone("refused", "ghs_wrong").await;
    assert!(!done && words.contains("Authentication failed"), "{words}");
    let (done, words) = clone("a", &garden.token).await;
    assert!(done, "{words}");
    let dir = home.path().join("a");
    assert!(dir.join("README.md").exists());

    let (done, words) = push(&dir, "a.txt", "issuebox/issue-1").await;
    assert!(done, "{words}");
    let pushed = &github.pushes(ORCHARD)[0];
    assert_eq!(pushed.name, "refs/heads/issuebox/issue-1");
    assert_eq!(pushed.identity, format!("installation {}", garden.installation));
    assert_eq!(github.tip(ORCHARD, "issuebox/issue-1"), Some(pushed.new.clone()));

    github.protect_branch(ORCHARD, "main");
    let (done, words) = push(&dir, "b.txt", "main").await;
    assert!(!done && words.contains("rule violations"), "{words}");

    let read = garden.mint(json!({"permissions": {"contents": "read"}})).await;
    git(&dir, &["remote", "set-url", "origin", &remote(&garden, &read)]).await;
    let (done, words) = push(&dir, "c.txt", "other").await;
    assert!(!done && words.contains("403"), "{words}");
    assert!(git(&dir, &["fetch", "-q"]).await.0);

    let no_workflows = garden.mint(json!({"permissions": {"contents": "write"}})).await;
    git(&dir, &["remote", "set-url", "origin", &remote(&garden, &no_workflows)]).await;
    assert!(push(&dir, "d.txt", "other").await.0);
    let (done, words) = push(&dir, ".github/workflows/ci.yml", "other").await;
    assert!(!done && words.contains("without `workflows` permission"), "{words}");
    git(&dir, &["remote", "set-url", "origin", &remote(&garden, &garden.token)]).await;
    assert!(push(&dir, "e.txt", "other").await.0, "the installation has that permission");

    github.rename_repository(ORCHARD, "pear-garden/meadow");
    assert!(git(&dir, &["fetch", "-q"]).await.0, "the old name leads on");
    garden.assert_clean();
}

#[tokio::test]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
async fn a_push_whose_answer_is_lost_has_happened() {
    let garden = Garden::new().await;
    let github = &garden.github;
    let home = TempDir::new().expect("a directory");
    assert!(git(home.path(), &["clone", "-q", &remote(&garden, &garden.token), "a"]).await.0);
    let dir = home.path().join("a");
    github.order(ModelFault::on("POST", "/*/*/git-receive-pack", FaultKind::LostAfter));
    let (done, words) = push(&dir, "a.txt", "work").await;
    assert!(!done, "{words}");
    assert_eq!(github.pushes(ORCHARD).len(), 1);
    assert!(github.tip(ORCHARD, "work").is_some());
    garden.assert_clean();
}

#[tokio::test]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
async fn lfs_objects_go_by_addresses_that_carry_their_right() {
    let garden = Garden::new().await;
    let url = format!("{}/{ORCHARD}.git/info/lfs/objects/batch", garden.github.web_url());
    let oid = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let batch = async |token: &str, operation: &str| {
        let body = json!({"operation": operation, "objects": [{"oid": oid, "size": 5}]});
        let request = garden.client.post(&url).basic_auth("x", Some(token)).json(&body);
        super::receive(request).await.expect("an answer")
    };
    let address = |body: &serde_json::Value, action: &str| {
        body["objects"][0]["actions"][action]["href"].as_str().unwrap_or_default().to_owned()
    };
    let read = garden.mint(json!({"permissions": {"contents": "read"}})).await;
    batch(&read, "upload").await.expect(403);
    let missing = batch(&read, "download").await.expect(200);
    assert_eq!(missing["objects"][0]["error"]["code"], 404);
    let upload = address(&batch(&garden.token, "upload").await.expect(200), "upload");
    let put = async |body: &'static str| {
        garden.client.put(&upload).body(body).send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(put("jello").await, 400, "the digest counts");
    assert_eq!(put("hello").await, 200);
    let download = address(&batch(&read, "download").await.expect(200), "download");
    let got = garden.client.get(&download).send().await.expect("an answer");
    assert_eq!(got.text().await.expect("a body"), "hello");
    assert_eq!(garden.client.put(&download).send().await.expect("an answer").status(), 403);
    assert_eq!(garden.github.lfs_objects(ORCHARD), [(oid.to_owned(), 5)]);
    garden.assert_clean();
    garden.client.get(&download).bearer_auth("x").send().await.expect("an answer");
    assert_eq!(garden.github.violations().len(), 1, "a token does not belong there");
}
