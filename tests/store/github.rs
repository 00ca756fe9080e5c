//! The outbox of what is said on issues, and the pace of those who write there.

use std::path::Path;

use issuebox::github::api::{PaceRecord, WritePace, WriterId};
use issuebox::issue::{CommentAnswer, Effect, GithubEffect, ReactTo};
use issuebox::store::github::{GithubEnd, GithubOutbox, GithubRow, GithubState, ShownComment};
use issuebox::store::sqlite::SqliteStore;
use issuebox::store::{NewEffect, Store, Write};
use issuebox::types::{Generation, HomeId};

use crate::store_issues::at;

const HOME: HomeId = HomeId(1);

fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(dir).expect("opens")
}

fn react(comment: u64) -> GithubEffect {
    GithubEffect::React { to: ReactTo::Comment(comment), generation: Generation(1) }
}

fn reply(comment: u64) -> GithubEffect {
    GithubEffect::Reply { comment, answer: CommentAnswer::Refused("why \"'\u{1F600}".into()) }
}

const fn status(version: u64, is_asked: bool) -> GithubEffect {
    GithubEffect::ShowStatus { version, is_asked, can_wait: false }
}

async fn record(store: &SqliteStore, home: HomeId, effect: GithubEffect, due: i64) {
    let effects = vec![NewEffect { home, effect: Effect::Github(effect), due_at: at(due) }];
    assert_eq!(store.commit(Write { effects, ..Write::default() }).await, Ok(()));
}

async fn due(store: &SqliteStore, now: i64) -> Vec<GithubRow> {
    store.github_effects(at(now), 100).await.expect("reads")
}

async fn only(store: &SqliteStore) -> GithubRow {
    let mut rows = store.github_effects_of(HOME).await.expect("reads");
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

fn ended(row: &GithubRow, state: GithubState) -> GithubEnd {
    GithubEnd {
        state,
        due_at: None,
        tries: 0,
        failing_since: None,
        first_begun_at: None,
        reason: None,
        released_by: None,
        shown: row.shown.clone(),
        follow_ups: Vec::new(),
        at: at(50),
    }
}

#[tokio::test]
async fn what_is_said_once_is_recorded_once_and_comes_in_its_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    record(&store, HOME, status(1, false), 1).await;
    record(&store, HOME, reply(5), 2).await;
    record(&store, HOME, react(5), 3).await;
    record(&store, HomeId(2), react(6), 4).await;
    assert_eq!(store.effect_counts().await, Ok(vec![]), "it is not in the providers' outbox");
    for expected in [react(5), reply(5), status(1, false)] {
        let rows = due(&store, 10).await;
        assert_eq!(rows.iter().map(|row| row.home).collect::<Vec<_>>(), [HOME, HomeId(2)]);
        let row = &rows[0];
        assert_eq!((&row.effect, row.state), (&expected, GithubState::Due));
        store.end_github(row.id, ended(row, GithubState::Done)).await.expect("stored");
        record(&store, HOME, react(5), 5).await;
        record(&store, HOME, reply(5), 5).await;
    }
    assert_eq!(due(&store, 10).await.len(), 1, "the other home's is left");
    assert_eq!(due(&store, 3).await, []);
    assert_eq!(store.next_github_effect(at(3)).await, Ok(Some(at(4))));
    assert_eq!(store.next_github_effect(at(4)).await, Ok(None));
}

#[tokio::test]
async fn a_newer_status_is_due_after_the_call_that_is_under_way() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    record(&store, HOME, status(1, false), 9).await;
    record(&store, HOME, status(2, false), 20).await;
    let row = only(&store).await;
    assert_eq!((row.due_at, row.id.revision), (Some(at(9)), 1), "it does not wait longer for that");
    record(&store, HOME, status(3, false), 3).await;
    let row = only(&store).await;
    assert_eq!(row.due_at, Some(at(3)));
    store.begin_github(row.id, at(4)).await.expect("stored");
    record(&store, HOME, status(4, false), 5).await;
    let asked = only(&store).await;
    assert_eq!((asked.state, asked.due_at), (GithubState::Asked, None));
    assert_eq!((asked.begun_at, asked.first_begun_at), (Some(at(4)), Some(at(4))));
    let shown = ShownComment {
        comment: Some(u64::MAX),
        author: Some(7),
        hash: Some("hash".into()),
        phase: Some("1 running".into()),
        at: Some(at(50)),
    };
    let end = GithubEnd { shown: shown.clone(), ..ended(&row, GithubState::Done) };
    store.end_github(row.id, end.clone()).await.expect("stored");
    let again = only(&store).await;
    assert_eq!((again.state, again.due_at), (GithubState::Due, Some(at(50))));
    assert_eq!((again.shown.clone(), again.first_begun_at), (shown, None));
    store.end_github(again.id, end).await.expect("stored");
    assert_eq!(only(&store).await.state, GithubState::Done);
    assert_eq!(store.comments_edited_since(at(50)).await, Ok(1));
    assert_eq!(store.comments_edited_since(at(51)).await, Ok(0));
}

#[tokio::test]
async fn what_is_put_off_without_a_failure_keeps_no_newer_status_waiting() {
    for (failing_since, due_at) in [(None, at(50)), (Some(at(40)), at(90))] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(dir.path());
        record(&store, HOME, status(1, false), 3).await;
        let row = only(&store).await;
        record(&store, HOME, status(2, false), 5).await;
        let put_off =
            GithubEnd { due_at: Some(at(90)), failing_since, ..ended(&row, GithubState::Due) };
        store.end_github(row.id, put_off.clone()).await.expect("stored");
        let newer = only(&store).await;
        assert_eq!((newer.state, newer.due_at), (GithubState::Due, Some(due_at)));
        store.end_github(newer.id, put_off).await.expect("stored");
        assert_eq!(only(&store).await.due_at, Some(at(90)), "nothing newer was recorded");
    }
}

#[tokio::test]
async fn what_was_asked_before_a_crash_is_looked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    record(&store, HOME, reply(5), 1).await;
    let id = only(&store).await.id;
    store.begin_github(id, at(4)).await.expect("stored");
    drop(store);
    let store = open(dir.path());
    assert_eq!(due(&store, 100).await, []);
    store.resume_github(at(6)).await.expect("stored");
    let row = only(&store).await;
    assert_eq!((row.state, row.due_at), (GithubState::Look, Some(at(6))));
    assert_eq!(store.github_counts().await, Ok(vec![(GithubState::Look, 1)]));
    store.begin_github(id, at(80)).await.expect("stored");
    let row = only(&store).await;
    assert_eq!((row.begun_at, row.first_begun_at), (Some(at(80)), Some(at(4))));
}

#[tokio::test]
async fn what_is_held_or_gone_waits_for_what_releases_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let unlock = || store.commit(Write { unlocked: Some(HOME), ..Write::default() });
    record(&store, HOME, status(1, false), 1).await;
    let row = only(&store).await;
    let held = |by| GithubEnd { released_by: Some(by), ..ended(&row, GithubState::Held) };
    store.end_github(row.id, held("person")).await.expect("stored");
    unlock().await.expect("stored");
    record(&store, HOME, status(2, false), 1).await;
    assert_eq!(only(&store).await.state, GithubState::Held, "a person releases it");
    record(&store, HOME, status(2, true), 1).await;
    assert_eq!(only(&store).await.state, GithubState::Due, "a person asked again");
    store.end_github(row.id, held("unlocked")).await.expect("stored");
    record(&store, HOME, status(2, true), 1).await;
    assert_eq!(only(&store).await.state, GithubState::Held, "a newer status is held, too");
    unlock().await.expect("stored");
    assert_eq!(only(&store).await.state, GithubState::Due);
    // The lock is gone before its refusal arrives.
    store.begin_github(row.id, at(5)).await.expect("stored");
    unlock().await.expect("stored");
    assert_eq!(only(&store).await.state, GithubState::Asked);
    store.end_github(row.id, held("unlocked")).await.expect("stored");
    assert_eq!(only(&store).await.state, GithubState::Due, "nothing else would release it");

    let id = only(&store).await.id;
    store.end_github(id, ended(&row, GithubState::Gone)).await.expect("stored");
    record(&store, HOME, status(3, false), 1).await;
    assert_eq!(only(&store).await.state, GithubState::Gone, "it is not written again by itself");
    record(&store, HOME, status(4, true), 1).await;
    assert_eq!(only(&store).await.state, GithubState::Due, "a person asked");
    store.give_up_github(HOME, "deleted".into()).await.expect("stored");
    let row = only(&store).await;
    assert_eq!((row.state, row.reason.as_deref()), (GithubState::GivenUp, Some("deleted")));
}

#[tokio::test]
async fn the_pace_of_a_writer_outlives_the_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    assert_eq!(store.load_pace().await, vec![]);
    let token = PaceRecord {
        writer: WriterId::TokenUser,
        rests_until: Some(at(9)),
        strikes: 2,
        writes: vec![(1, 2), (3, 4)],
    };
    let app = PaceRecord {
        writer: WriterId::Installation(u64::MAX),
        rests_until: None,
        strikes: 0,
        writes: vec![],
    };
    store.save(PaceRecord { strikes: 1, ..token.clone() }).await.expect("stored");
    for record in [&token, &app] {
        store.save(record.clone()).await.expect("stored");
    }
    drop(store);
    assert_eq!(open(dir.path()).load_pace().await, vec![app, token]);
}

/// Both traits have a method `load`.
trait LoadPace {
    async fn load_pace(&self) -> Vec<PaceRecord>;
}

impl LoadPace for SqliteStore {
    async fn load_pace(&self) -> Vec<PaceRecord> {
        WritePace::load(self).await.expect("reads")
    }
}
