//! Reviews, comments and checks of the pull request of a sandbox: which issue they count for, and what the
//! agent is given of them.

use tokio::sync::watch;

use super::world::{MAINTAINER, REPOSITORY, RecoveryWorld};
use crate::conversation::MessageOrigin;
use crate::engine::tests::eventually;
use crate::github::model::EndedCheck;
use crate::issue::{GithubEffect, GithubRules};
use crate::store::checkout::{CheckoutRow, CheckoutStore};
use crate::store::conversation::{ConversationStore, MessageRow};
use crate::store::pulls::WorkOwners;
use crate::types::*;

const BRANCH: &str = "issuebox/issue-1";

/// A world with a pull request of the issue's sandbox.
struct PulledWorld {
    world: RecoveryWorld,
    home: HomeId,
    pull: u64,
    tip: String,
    _ended: watch::Sender<bool>,
}

impl PulledWorld {
    async fn new() -> Self {
        let said = GithubRules {
            comments: false,
            reactions: false,
            pull_request: PullRequestMode::Draft,
            statuses: false,
            working_label: false,
        };
        let world = RecoveryWorld::with_agent(said).await;
        let (ended, receiver) = watch::channel(false);
        actix::spawn(world.intake.clone().take_waiting(receiver));
        world.label();
        world.worker().compare().await.expect("it is compared");
        world.until_phase(Phase::Running).await;
        let sandbox = world.sandbox().await.expect("a sandbox").id;
        let tip = world.github.commit(REPOSITORY, BRANCH, &[("a.txt", "one")], "Work");
        let alias = Alias::Numbered(Repository::trusted(REPOSITORY), IssueNumber(world.number));
        let account = AccountName::default_account();
        let home = crate::store::Store::resolve(world.store.as_ref(), &account, &alias).await;
        let home = home.expect("reads").expect("a home");
        let now = Timestamp::from_unix_ms(0);
        let row = CheckoutRow {
            state: CheckoutState::Ready,
            base: Some("main".into()),
            branch: Some(BRANCH.into()),
            tip: Some(tip.clone()),
            ..CheckoutRow::begun(
                sandbox.clone(),
                home,
                (Repository::trusted(REPOSITORY), None),
                now,
            )
        };
        let effects = vec![GithubEffect::ShowPull { sandbox }];
        world.store.put_checkout(row, effects, now).await.expect("it is kept");
        world.say_recorded();
        let number = world.number + 1;
        eventually("a pull request that is known", async || {
            let owner = world.store.home_of_pull(world.repository_id, IssueNumber(number)).await;
            owner == Ok(Some(home))
        })
        .await;
        Self { world, home, pull: number, tip, _ended: ended }
    }

    /// What was said to the agent, once so much was.
    async fn said(&self, count: usize) -> Vec<MessageRow> {
        self.world.worker().compare().await.expect("it is compared");
        let messages = || self.world.store.newest_messages(self.home, 100);
        eventually("messages", async || messages().await.expect("reads").len() >= count).await;
        let said = messages().await.expect("reads");
        assert_eq!(said.len(), count, "{said:?}");
        said
    }

    /// Waits until a delivery of this event has these words for its reason.
    async fn until_reason(&self, event: &str, words: &str) {
        self.world.worker().compare().await.expect("it is compared");
        eventually(words, async || {
            let rows = self.world.rows().await;
            rows.iter().any(|row| row.event == event && row.reason.contains(words))
        })
        .await;
    }
}

#[actix::test]
async fn a_review_of_the_pull_request_is_one_message_with_its_remarks() {
    let it = PulledWorld::new().await;
    let remarks = [
        ("src/a.rs", "@@ -1,2 +1,3 @@\n one\n+two\n+three", "Why three?"),
        ("docs/b.md", "@@ -7 +7,2 @@ # Head\n-old\n+new", "Name it <!-- hush -->well."),
    ];
    let at = (REPOSITORY, it.pull);
    let id = it.world.github.review(at, MAINTAINER, "changes_requested", "Nearly.", &remarks);
    let said = it.said(2).await;
    assert_eq!(said[1].message.source, MessageOrigin::Review(id));
    assert_eq!(said[1].message.author, MAINTAINER);
    let words = said[1].instruction.as_ref().expect("its words are kept");
    insta::assert_snapshot!(words.text, @r"
    The review requests changes.

    Nearly.

    src/a.rs:3
    ```diff
    @@ -1,2 +1,3 @@
     one
    +two
    +three
    ```
    Why three?

    docs/b.md:7
    ```diff
    @@ -7 +7,2 @@ # Head
    -old
    +new
    ```
    Name it <!-- hush -->well.
    ");
    it.world.github.review(at, "stranger", "commented", "Do as I say.", &[]);
    it.until_reason("pull_request_review", "stranger may not trigger").await;
    it.said(2).await;
    it.world.nothing_wrong();
}

#[actix::test]
async fn a_command_on_the_pull_request_counts_for_the_issue_and_on_another_for_none() {
    let it = PulledWorld::new().await;
    let comment = it.world.github.comment((REPOSITORY, it.pull), MAINTAINER, "/issuebox go on");
    let said = it.said(2).await;
    assert_eq!(said[1].message.source, MessageOrigin::Comment(comment));
    let owners = &it.world.store;
    let (ours, elsewhere) = (it.world.repository_id, it.world.repository_id + 1);
    assert_eq!(owners.home_of_pull(elsewhere, IssueNumber(it.pull)).await, Ok(None));
    assert_eq!(owners.home_of_pull(ours, IssueNumber(it.pull + 1)).await, Ok(None));
    // After a transfer of the issue its sandbox's work is where it was.
    let checkouts = owners.checkouts_of(it.home).await.expect("reads");
    let row = CheckoutRow { remote_id: Some(elsewhere), ..checkouts[0].clone() };
    let now = Timestamp::from_unix_ms(0);
    owners.put_checkout(row.clone(), Vec::new(), now).await.expect("it is kept");
    for (repository, expected) in [(elsewhere, Some(it.home)), (ours, None)] {
        let pull = owners.home_of_pull(repository, IssueNumber(it.pull)).await;
        let commit = owners.home_of_commit(repository, &it.tip).await;
        assert_eq!((pull, commit), (Ok(expected), Ok(expected)));
    }
    let row = CheckoutRow { remote_id: Some(ours), ..row };
    owners.put_checkout(row, Vec::new(), now).await.expect("it is kept");
    it.world.github.comment((REPOSITORY, it.pull), MAINTAINER, "/issuebox stop");
    it.world.worker().compare().await.expect("it is compared");
    it.world.until_phase(Phase::Stopped).await;
    it.world.nothing_wrong();
}

#[actix::test]
async fn a_failed_check_of_the_newest_commit_is_a_message() {
    let it = PulledWorld::new().await;
    let check = EndedCheck {
        name: "build",
        conclusion: "failure",
        title: "2 errors",
        summary: "It does not build.",
        text: "error: no such thing",
    };
    it.world.github.end_check(REPOSITORY, &"0".repeat(40), &check);
    it.until_reason("check_run", crate::intake::on_pull::NOT_OURS).await;
    let id = it.world.github.end_check(REPOSITORY, &it.tip, &check);
    let said = it.said(2).await;
    assert_eq!(said[1].message.source, MessageOrigin::Check(id));
    let words = said[1].instruction.as_ref().expect("its words are kept");
    assert_eq!(words.title.as_deref(), Some("build"));
    assert!(words.text.ends_with("It does not build.\n\nerror: no such thing"), "{}", words.text);
    it.world.nothing_wrong();
}
