//! Many issues at once, by the real client over the in-memory GitHub, which counts what it allows.

use std::time::Duration;

use jiff::SignedDuration;

use super::world::{MAINTAINER, REPOSITORY, RecoveryWorld};
use crate::engine::tests::eventually;
use crate::github::model::ModelCall;
use crate::issue::GithubRules;
use crate::types::{Phase, PullRequestMode};

const ISSUES: usize = 200;
const STOPPED: usize = 60;
const CLOSED: usize = 5;

/// The texts of all comments that were written or edited, oldest first.
fn comments_written(world: &RecoveryWorld) -> Vec<String> {
    let is_write = |method: &str, path: &str| match method {
        "POST" => path.ends_with("/comments"),
        "PATCH" => path.contains("/issues/comments/"),
        _ => false,
    };
    let calls = world.github.calls();
    let written = calls.iter().filter(|call| is_write(&call.method, &call.path));
    written.map(|call| call.request["body"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Lets GitHub's time pass until this is so, in steps that no pause is shorter than.
async fn hours_pass(world: &RecoveryWorld, what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..30_000 {
        if is_so() {
            return;
        }
        world.github.move_clock(SignedDuration::from_secs(1));
        world.clock.set_forward(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what}: it did not come true within eight hours");
}

#[actix::test]
#[ignore = "takes half a minute"]
async fn two_hundred_issues_at_once_stay_within_githubs_limits_and_ends_come_before_progress() {
    let world = RecoveryWorld::with_effects(GithubRules {
        comments: true,
        reactions: true,
        pull_request: PullRequestMode::None,
        statuses: false,
        working_label: false,
    })
    .await;
    let mut numbers = vec![world.number];
    for n in 1..ISSUES {
        numbers.push(world.github.open_issue(REPOSITORY, MAINTAINER, &format!("Issue {n}"), ""));
    }
    for number in &numbers {
        world.github.label((REPOSITORY, *number), MAINTAINER, "agent");
    }
    let worker = world.worker();
    worker.compare().await.expect("it is compared");
    eventually("all run", async || world.count(Phase::Running).await == ISSUES).await;
    let says = |number: &u64, words: &str| {
        let comments = world.github.comments((REPOSITORY, *number));
        let ours = comments.iter().filter(|one| one["user"]["type"] == "Bot");
        let texts: Vec<&str> = ours.filter_map(|one| one["body"].as_str()).collect();
        matches!(texts[..], [one] if one.contains(words))
    };
    hours_pass(&world, "each issue has one comment and one reaction", || {
        numbers.iter().all(|number| {
            let reactions = world.github.reactions((REPOSITORY, *number), None);
            says(number, "**Running**") && reactions.len() == 1
        })
    })
    .await;

    let written_before = comments_written(&world).len();
    let (stopped, closed) = (&numbers[..STOPPED], &numbers[ISSUES - CLOSED..]);
    for number in stopped {
        world.github.comment((REPOSITORY, *number), MAINTAINER, "/issuebox stop");
    }
    for number in closed {
        world.github.close((REPOSITORY, *number), MAINTAINER);
    }
    worker.compare().await.expect("it is compared");
    let down = STOPPED + CLOSED;
    eventually("they stop", async || world.count(Phase::Stopped).await == down).await;
    hours_pass(&world, "the comments say it", || {
        stopped.iter().all(|number| says(number, "**Stopped**"))
            && closed.iter().all(|number| says(number, "**closed**"))
    })
    .await;

    let refused = |call: &&ModelCall| matches!(call.status, 403 | 429);
    assert_eq!(world.github.calls().iter().filter(refused).count(), 0);
    world.nothing_wrong();
    let written = comments_written(&world).split_off(written_before);
    let ends = written.iter().enumerate().filter(|(_, text)| text.contains("**closed**"));
    let (last_end, _) = ends.take(CLOSED).last().expect("an end");
    let behind = written.len() - last_end;
    assert!(behind > STOPPED / 2, "{behind} of {} came behind the ends", written.len());
}
