//! The whole story with a real sandbox: a label leads to a checkout, a commit inside to a push, a draft
//! pull request and a comment that follows it all, and closing the issue to the end of the workspace. Also
//! with a server that is killed again and again; and with nothing of GitHub's tokens left anywhere.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::checkout::{CheckoutWorld, REPOSITORY, sh};
use crate::process::{Server, until};

/// The workspace goes a second after the issue was closed.
const SETTINGS: [(&str, &str); 2] =
    [("ISSUEBOX__LIFECYCLE__DELETE_AFTER_CLOSE_SECONDS", "1"), ("ISSUEBOX_LOG", "debug")];

/// What the comment says when all is over.
const LAST_WORDS: &str = "The issue is **closed** and its sandbox is deleted.";

/// Safe to run again: what was done before stays. The checkout may hold git's lock meanwhile, so that the
/// commit fails although the file is there.
const WORK: &str = "test \"$(git log -1 --format=%s)\" = Work \\
                        || (echo work > work && git add work && git commit -qm Work) \\
                        && git push -q origin HEAD";

struct Story {
    world: CheckoutWorld,
    is_closed: AtomicBool,
}

impl Story {
    async fn new() -> Option<Self> {
        let world = CheckoutWorld::new().await?;
        Some(Self { world, is_closed: AtomicBool::new(false) })
    }

    async fn serve(&self) -> Server {
        self.world.serve_with(&SETTINGS).await
    }

    /// Until the status comment names the pull request. Goes on where an earlier call was given up.
    async fn to_the_pull_request(&self, server: &Server) {
        let (github, branch) = (&self.world.github, self.world.branch());
        if !self.is_closed.load(Ordering::Relaxed) {
            let id = self.world.checked_out(server).await;
            until("a push", || async {
                github.tip(REPOSITORY, &branch).is_some()
                    || sh(server, &id, WORK).await["exitCode"] == 0
            })
            .await;
        }
        until("a pull request", || async { github.pulls(REPOSITORY).len() == 1 }).await;
        let number = github.pulls(REPOSITORY)[0]["number"].clone();
        let named = format!("Branch `{branch}`, pull request #{number}.");
        until("a comment that names it", || async { self.world.says(&named) }).await;
    }

    /// Until the workspace of the closed issue is gone and the comment says so.
    async fn to_the_end(&self, server: &Server) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            self.world.github.close((REPOSITORY, self.world.number), "mona");
        }
        let path = format!("/v1/repos/{REPOSITORY}/issues/{}/sandbox", self.world.number);
        until("the sandbox is deleted", || async {
            server.get(&path).await.json()["data"].is_null()
        })
        .await;
        until("the last word", || async { self.world.says(LAST_WORDS) }).await;
    }

    /// What GitHub shows of the story, for a test that fails.
    fn so_far(&self) -> String {
        let (github, at) = (&self.world.github, (REPOSITORY, self.world.number));
        format!(
            "tip: {:?}\npulls: {:?}\ncomments: {:?}",
            github.tip(REPOSITORY, &self.world.branch()),
            github.pulls(REPOSITORY),
            github.comments(at),
        )
    }

    fn ends_well(&self) {
        let (github, at) = (&self.world.github, (REPOSITORY, self.world.number));
        let pulls = github.pulls(REPOSITORY);
        assert_eq!(pulls.len(), 1, "{pulls:?}");
        assert_eq!(pulls[0]["draft"], true);
        let reactions = github.reactions(at, None);
        assert!(matches!(&reactions[..], [one] if one["content"] == "eyes"), "{reactions:?}");
        assert!(self.world.says(LAST_WORDS), "{:?}", github.comments(at));
        assert_eq!(github.violations(), Vec::<String>::new());
    }

    /// Looks for every token of GitHub's in what the server keeps, says and logged.
    async fn assert_no_token(&self, server: &Server) {
        let tokens = self.world.github.tokens();
        assert!(!tokens.is_empty());
        let dir = tempfile::tempdir().expect("a directory");
        let patterns = dir.path().join("patterns");
        let forms: Vec<String> = tokens.iter().flat_map(|token| forms_of(token)).collect();
        std::fs::write(&patterns, forms.join("\n")).expect("written");
        let mut said = server.log();
        let at = format!("/v1/repos/{REPOSITORY}/issues/{}/sandbox", self.world.number);
        let id = server.get(&at).await.json()["data"]["issueId"].clone();
        let events = format!("/v1/issues/{}/events", id.as_str().unwrap_or_default());
        for path in [&at, &events, "/v1/deliveries", "/v1/github", "/v1/system", "/metrics"] {
            said.push_str(&server.get(path).await.text);
        }
        for comment in self.world.github.comments((REPOSITORY, self.world.number)) {
            said.push_str(&comment.to_string());
        }
        std::fs::write(dir.path().join("said"), said).expect("written");
        assert_eq!(found(&patterns, &dir.path().join("said")), "");
        assert_eq!(found(&patterns, &self.world.place.data()), "");
        // The search finds what is there.
        std::fs::write(dir.path().join("said"), format!("x{}x", forms[0])).expect("written");
        assert_ne!(found(&patterns, &dir.path().join("said")), "");
    }
}

/// A token as it is, and in the encodings in which it may be written down. Of base64 it is the part that
/// does not depend on what stands before and behind.
fn forms_of(token: &str) -> Vec<String> {
    let mut forms = vec![token.to_owned(), hex::encode(token), hex::encode_upper(token)];
    for before in ["", "x", "xx", "x-access-token:"] {
        let encoded = STANDARD.encode(format!("{before}{token}"));
        let start = (before.len() * 4).div_ceil(3);
        forms.push(encoded[start..start + 32].to_owned());
    }
    forms
}

/// The names of files within `place` that have one of the patterns.
fn found(patterns: &Path, place: &Path) -> String {
    let output =
        Command::new("grep").args(["-r", "-a", "-l", "-F", "-f"]).arg(patterns).arg(place).output();
    String::from_utf8_lossy(&output.expect("grep runs").stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and needs git; run by .ci/run"]
async fn a_label_leads_to_one_pull_request_and_closing_to_the_end_and_no_token_is_left() {
    let Some(story) = Story::new().await else { return };
    let server = story.serve().await;
    story.world.label();
    story.to_the_pull_request(&server).await;
    story.assert_no_token(&server).await;
    story.to_the_end(&server).await;
    story.assert_no_token(&server).await;
    server.stop().await;
    story.ends_well();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes and needs git; run by .ci/run"]
async fn the_story_is_the_same_with_a_server_that_is_killed_about_every_second() {
    let Some(story) = Story::new().await else { return };
    story.world.label();
    let mut kills = 0;
    // Each lives a little longer than the one before, so that a slow machine gets there, too.
    let mut lives_for = Duration::from_millis(700);
    loop {
        let server = story.serve().await;
        let through = async {
            story.to_the_pull_request(&server).await;
            story.to_the_end(&server).await;
        };
        let is_through = tokio::time::timeout(lives_for, through).await.is_ok();
        let log = server.log();
        server.kill().await;
        if is_through {
            break;
        }
        kills += 1;
        lives_for += Duration::from_millis(100);
        assert!(kills < 60, "it does not get there: {}\n{log}", story.so_far());
    }
    assert!(kills > 2, "{kills} kills");
    // What was under way at the last one is done by the next.
    let server = story.serve().await;
    story.to_the_end(&server).await;
    server.stop().await;
    story.ends_well();
}
