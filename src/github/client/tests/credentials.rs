//! Who we are, and which token a call gets.

use futures_util::future::join_all;
use jiff::SignedDuration;

use super::*;
use crate::github::api::{GitAccess, GitTokens, HeldReason, IdentityKind};
use crate::github::model::{APP_KEY_PKCS8, OTHER_KEY};

#[tokio::test]
async fn an_app_and_a_token_know_who_they_are() {
    let fixture = TestRepository::new();
    let (app, slug, _) = fixture.model.app();
    let (bot, login) = fixture.model.bot();
    for key in [APP_KEY, APP_KEY_PKCS8] {
        let credentials = GitHubCredentials::app(app, &Secret::new(key)).expect("a key");
        let client = client(&fixture.model.api_url(), credentials);
        let ours = client.identity().await.expect("known");
        assert_eq!((ours.kind, ours.user_id), (IdentityKind::App(app), bot));
        assert_eq!((&ours.login, &ours.slug), (&login, &slug));
        assert!(ours.is_ours(bot, None) && ours.is_ours(1, Some(app)) && !ours.is_ours(1, None));
    }
    let token = fixture.model.user_token("machine", None);
    fixture.model.expire_token(&token, "2030-01-02T03:04:05Z".parse().expect("a time"));
    let client =
        client(&fixture.model.enterprise_api_url(), GitHubCredentials::Token(Secret::new(token)));
    let ours = client.identity().await.expect("known");
    assert_eq!((ours.kind, ours.user_id), (IdentityKind::Token, fixture.model.user("machine")));
    let ends = ours.token_expires_at.map(|at| at.to_string());
    assert_eq!(ends.as_deref(), Some("2030-01-02T03:04:05.000Z"));
    client.issue(&TestRepository::named(), ONE, None).await.expect("a token needs no installation");
    assert_eq!(fixture.model.violations(), [""; 0]);
}

#[tokio::test]
async fn a_token_is_narrowed_minted_once_and_kept() {
    let fixture = TestRepository::new();
    let all = join_all((0..20).map(|_| fixture.issue())).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let mints = fixture.mints();
    assert_eq!(mints.len(), 1, "single flight");
    let narrow = serde_json::json!({"permissions": {"issues": "read", "metadata": "read"}});
    assert_eq!(mints[0].request, narrow);
    fixture.comment("hello").await.expect("written");
    let permissions = &fixture.mints()[1].request["permissions"];
    assert_eq!(permissions["issues"], "write");
    assert!(permissions.get("contents").is_none(), "{permissions}");
    fixture.comment("again").await.expect("written");
    assert_eq!(fixture.mints().len(), 2);
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_minted_once_more() {
    let fixture = TestRepository::new();
    fixture.comment("one").await.expect("written");
    for token in fixture.model.tokens() {
        fixture.model.revoke_token(&token);
    }
    fixture.comment("two").await.expect("written with a new token");
    assert_eq!(fixture.mints().len(), 2);
    assert_eq!(fixture.model.comments((REPOSITORY, 1)).len(), 2);
    // A key that GitHub does not know any more.
    fixture.model.replace_key(OTHER_KEY);
    for token in fixture.model.tokens() {
        fixture.model.revoke_token(&token);
    }
    let error = fixture.comment("three").await.expect_err("the key is another");
    assert!(matches!(error, GitHubError::Unauthorized(_)), "{error:?}");
    // And the new one, without a restart.
    let (app, _, _) = fixture.model.app();
    let credentials = GitHubCredentials::app(app, &Secret::new(OTHER_KEY)).expect("a key");
    fixture.client.replace_credentials(credentials).await;
    fixture.comment("four").await.expect("written");
}

#[tokio::test]
async fn tokens_for_git_are_narrowed_to_repositories_and_revoked() {
    let fixture = TestRepository::new();
    let more = fixture.model.repository("octo/library");
    let target = fixture.target();
    let read = fixture.client.git_token(&target, &[more], GitAccess::Read).await.expect("a token");
    let push = GitAccess::Push { workflows: false };
    let push = fixture.client.git_token(&target, &[more], push).await.expect("a token");
    assert_ne!(read, push);
    let mints = fixture.mints();
    let mut both = vec![fixture.repository_id, more];
    both.sort_unstable();
    assert_eq!(mints[0].request["repository_ids"], serde_json::json!(both));
    assert_eq!(mints[1].request["repository_ids"], serde_json::json!([fixture.repository_id]));
    assert_eq!(mints[1].request["permissions"]["contents"], "write");
    assert!(mints[1].request["permissions"].get("workflows").is_none());
    fixture.client.revoke(fixture.repository_id).await;
    assert_eq!(fixture.model.calls_to("DELETE", "/installation/token", "").len(), 1);
    let push = GitAccess::Push { workflows: false };
    fixture.client.git_token(&target, &[], push).await.expect("a new one");
    assert_eq!(fixture.mints().len(), 3);
}

#[tokio::test]
async fn a_wrong_clock_is_found_out_and_made_up_for() {
    for hours in [-1, 1] {
        let fixture = TestRepository::new();
        fixture.model.move_clock(SignedDuration::from_hours(hours));
        fixture.issue().await.expect("with GitHub's clock");
        assert_eq!(fixture.client.clock_ahead_secs().signum(), hours.signum());
        assert_eq!(fixture.model.calls_to("POST", "/app/installations/", "").len(), 2, "once more");
    }
}

#[tokio::test]
async fn what_the_app_may_not_do_is_held_with_the_reason() {
    let fixture = TestRepository::new();
    let held = |error: GitHubError| match error {
        GitHubError::Held { reason, .. } => reason,
        other => panic!("{other:?} is not held"),
    };
    let only_reads = [("issues", "read"), ("metadata", "read")];
    fixture.model.set_permissions(fixture.installation, &only_reads);
    let lacking = fixture.comment("no").await.expect_err("it may not write");
    assert!(matches!(held(lacking), HeldReason::Permission(_)));
    fixture.model.uninstall(fixture.installation);
    let gone = fixture.comment("no").await.expect_err("it is not installed");
    assert_eq!(held(gone), HeldReason::Uninstalled);
    let unknown = fixture.client.issue(&TestRepository::named(), ONE, None).await;
    assert_eq!(held(unknown.expect_err("it is not installed")), HeldReason::Uninstalled);
}

#[test]
fn no_secret_is_printed() {
    let credentials = GitHubCredentials::app(7, &Secret::new(APP_KEY)).expect("a key");
    let GitHubCredentials::App(app) = &credentials else { panic!("it is an App's") };
    let printed = format!("{credentials:?} {app:?}");
    assert!(!printed.contains("BEGIN") && printed.contains("***"), "{printed}");
    let token = GitHubCredentials::Token(Secret::new("ghp_hush"));
    assert!(!format!("{token:?}").contains("hush"));
    let wrong = GitHubCredentials::app(7, &Secret::new("-----BEGIN PRIVATE KEY-----\nhush"));
    let error = wrong.expect_err("no key").to_string();
    assert!(error.starts_with("the key of the GitHub App ") && !error.contains("hush"), "{error}");
}
