//! What is written, and that it is written once and in turn.

use futures_util::future::join_all;

use super::*;
use crate::github::api::{
    CommitState, NewPull, PullEdit, PullState, Reaction, ReactionTarget, StatusEntry,
};

#[tokio::test]
async fn each_writing_call_does_what_it_says() {
    let fixture = TestRepository::new();
    let (target, client) = (fixture.target(), &fixture.client);
    let (bot, _) = fixture.model.bot();
    let free = WriteTurn::unlimited;
    let made = client.create_comment(free(), &target, ONE, "one").await.expect("written");
    assert_eq!((made.author.id, made.body.as_str()), (bot, "one"));
    let edited = client.edit_comment(free(), &target, made.id, "two").await.expect("edited");
    assert_eq!((edited.id, edited.body.as_str()), (made.id, "two"));
    let read = client.comment(&target, made.id, None).await.expect("read").changed();
    assert_eq!(read.map(|comment| comment.body), Some("two".to_owned()));
    for to in [ReactionTarget::Issue(ONE), ReactionTarget::Comment(made.id)] {
        for _ in 0..2 {
            client.react(free(), &target, to, Reaction::Eyes).await.expect("harmless twice");
        }
    }
    assert_eq!(fixture.model.reactions((REPOSITORY, 1), None).len(), 1);
    assert_eq!(fixture.model.reactions((REPOSITORY, 1), Some(made.id)).len(), 1);
    client.add_label(free(), &target, ONE, "at work: x/y").await.expect("added");
    let labels = &fixture.model.issue((REPOSITORY, 1))["labels"];
    assert_eq!(labels[0]["name"], "at work: x/y");
    for _ in 0..2 {
        client.remove_label(free(), &target, ONE, "at work: x/y").await.expect("harmless twice");
    }
    let tip = fixture.model.commit(REPOSITORY, "issuebox/issue-1", &[("a", "b")], "Change");
    let status = StatusEntry {
        state: CommitState::Pending,
        context: "issuebox".to_owned(),
        description: "at work".to_owned(),
        target_url: None,
    };
    client.set_status(free(), &target, &tip, &status).await.expect("set");
    let pull = NewPull {
        head: "issuebox/issue-1".to_owned(),
        base: "main".to_owned(),
        title: "It breaks".to_owned(),
        body: "Fixes #1".to_owned(),
        draft: true,
    };
    let pull = client.create_pull(free(), &target, &pull).await.expect("made");
    assert_eq!((pull.state, pull.is_draft, &pull.head_commit), (PullState::Open, true, &tip));
    let edit = PullEdit { title: None, body: Some("New".to_owned()) };
    let edited = client.edit_pull(free(), &target, pull.number, &edit).await.expect("edited");
    assert_eq!((edited.title.as_str(), edited.body.as_str()), ("It breaks", "New"));
    assert_eq!(fixture.model.violations(), [""; 0]);
}

#[tokio::test]
async fn writing_calls_of_one_identity_never_overlap() {
    let fixture = TestRepository::new();
    let written = join_all((0..3).map(|number| {
        let fixture = &fixture;
        async move {
            let (turn, body) = (fixture.turn().await, format!("comment {number}"));
            fixture.client.create_comment(turn, &fixture.target(), ONE, &body).await
        }
    }))
    .await;
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    assert_eq!(fixture.model.comments((REPOSITORY, 1)).len(), 3);
    assert_eq!(fixture.model.violations(), [""; 0], "two at once");
    assert_eq!(fixture.client.figures().queue, 0);
}
