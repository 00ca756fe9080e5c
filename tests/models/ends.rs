//! However a request ends, what was seen of it is settled, and no side waits for ever.

use std::time::Duration;

use futures_util::StreamExt;
use issuebox::models::ModelActivity;
use issuebox::models::double::{DoubleFault, DoubleTurn};
use issuebox::models::refusal::ModelRefusal;
use issuebox::types::Tokens;

use crate::world::{World, error, message, settings};

fn turn(fault: DoubleFault) -> DoubleTurn {
    let usage = Tokens { input: 1_000, output: 900, ..Tokens::default() };
    let text = "0123456789".repeat(30);
    DoubleTurn { usage, fault: Some(fault), ..DoubleTurn::says(&text) }
}

fn fails(status: u16, headers: &[(&'static str, &str)]) -> DoubleTurn {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    turn(DoubleFault::Status(status, headers))
}

#[tokio::test]
async fn a_cut_stream_is_cut_and_settled_by_what_came() {
    // The start of the message and of its block, and three pieces of 40 characters.
    let world = World::free(vec![turn(DoubleFault::Cut(5))]).await;
    let answer = world.ask(true).await;
    assert_eq!(answer.status(), 200);
    let mut pieces = answer.bytes_stream();
    let mut text = String::new();
    let cut = loop {
        match pieces.next().await {
            Some(Ok(piece)) => text += &String::from_utf8_lossy(&piece),
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(cut, "the agent sees that it is cut");
    assert_eq!(text.matches("\n\n").count(), 5, "and all that came before: {text}");
    let sum = world.spent().await;
    assert_eq!(sum.tokens, Tokens { input: 1_000, output: 40, ..Tokens::default() });
}

#[tokio::test]
async fn a_client_that_goes_cancels_the_request_and_pays_what_came() {
    let world = World::free(vec![turn(DoubleFault::Stall(4))]).await;
    let mut pieces = world.ask(true).await.bytes_stream();
    let mut text = String::new();
    while text.matches("content_block_delta").count() < 2 * 2 {
        let piece = pieces.next().await.expect("more").expect("a piece");
        text += &String::from_utf8_lossy(&piece);
    }
    assert_eq!(world.double.counts().open, 1);
    drop(pieces);
    world.double.wait_for(|counts| counts.open == 0 && counts.canceled == 1).await;
    let sum = world.spent().await;
    assert_eq!(sum.tokens, Tokens { input: 1_000, output: 27, ..Tokens::default() });
}

#[tokio::test]
async fn a_client_that_goes_before_the_answer_pays_for_all_that_the_model_may_do() {
    let slow = DoubleTurn { pause: Duration::from_secs(3_600), ..DoubleTurn::says("Done.") };
    let world = World::free(vec![slow]).await;
    let mut asking = Box::pin(world.ask(false));
    tokio::select! {
        _ = &mut asking => panic!("the double waits"),
        () = world.double.wait_for(|counts| counts.open == 1) => {}
    }
    drop(asking);
    world.double.wait_for(|counts| counts.canceled == 1).await;
    let cost = world.spent().await.cost.dollars();
    assert!((0.005..0.006).contains(&cost), "500 tokens of output may have been written: {cost}");
}

#[tokio::test]
async fn silence_ends_in_the_form_in_which_the_agent_ends() {
    let world = World::free(vec![turn(DoubleFault::Stall(4))]).await;
    let mut settings = settings(&world.double.base_url());
    settings.endpoints[0].silence_max = Duration::from_millis(50);
    world.gateway.replace(settings.clone());
    let text = world.ask(true).await.text().await.expect("it ends well");
    let last = text.trim_end().rsplit("\n\n").next().expect("an event");
    assert!(last.starts_with("event: error\ndata: {"), "{last}");
    assert!(last.contains("overloaded_error"), "{last}");
    assert_eq!(world.spent().await.tokens.output, 27);

    // An agent that repeats the request does not wait as long again; the one after that is asked.
    let answer = world.ask(true).await;
    assert_eq!(answer.headers().get("x-should-retry").expect("one"), "false");
    assert_eq!(
        error(answer).await.2,
        "The model does not answer: it fell silent, and is asked later"
    );
    assert_eq!(world.double.counts().requests, 1);
    assert_eq!(world.ask(true).await.status(), 200);
    assert_eq!(world.double.counts().requests, 2);

    // And before the first byte.
    let slow = DoubleTurn { pause: Duration::from_secs(3_600), ..DoubleTurn::says("Done.") };
    world.double.play(issuebox::models::double::DoubleScript { turns: vec![slow], side: None });
    settings.times.whole_answer = Duration::from_millis(50);
    world.gateway.replace(settings);
    let answer = world.ask(false).await;
    assert_eq!(answer.headers().get("x-should-retry").expect("one"), "false");
    let (status, kind, text) = error(answer).await;
    assert_eq!((status, kind.as_str()), (529, "overloaded_error"));
    assert!(text.starts_with("The model does not answer: "), "{text}");
    world.double.wait_for(|counts| counts.open == 0).await;
}

#[tokio::test]
async fn a_model_that_cannot_be_reached_is_said_and_costs_nothing() {
    let world = World::free(vec![DoubleTurn::says("Done.")]).await;
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = unused.local_addr().expect("bound");
    drop(unused);
    world.gateway.replace(settings(&format!("http://{address}")));
    let (status, _, text) = error(world.ask(true).await).await;
    assert_eq!(status, 529);
    assert!(text.contains("cannot be reached") && !text.contains("127.0.0.1"), "{text}");
    assert_eq!(world.spent().await.cost.nano_dollars(), 0);
}

#[tokio::test]
async fn a_short_wait_is_the_agents_and_a_long_one_ends_the_run() {
    let world = World::free(vec![fails(429, &[("retry-after", "5")])]).await;
    let answer = world.ask(true).await;
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers().get("retry-after").expect("one"), "5");
    let world = World::free(vec![fails(429, &[("retry-after", "3600")])]).await;
    let answer = world.ask(true).await;
    assert_eq!(answer.headers().get("x-should-retry").expect("one"), "false");
    assert!(answer.headers().get("retry-after").is_none());
    let (status, _, text) = error(answer).await;
    assert_eq!(status, 429);
    assert!(text.starts_with("The model asks to wait until "), "{text}");
    let waits = |it: &ModelActivity| matches!(it, ModelActivity::Refused(ModelRefusal::Wait(_)));
    assert!(world.runs.heard().iter().any(waits));
    let codex = serde_json::json!({"model": "gpt-y", "input": [], "stream": true});
    assert_eq!(world.post("/openai/v1/responses", &codex).await.status(), 400);
    assert_eq!(world.spent().await.cost.nano_dollars(), 0);
}

#[tokio::test]
async fn other_errors_of_the_model_pass_as_they_are() {
    for status in [400, 404, 500, 529] {
        let world = World::free(vec![fails(status, &[("x-should-retry", "true")])]).await;
        let answer = world.post("/anthropic/v1/messages", &message(true)).await;
        assert_eq!(answer.status(), status);
        assert_eq!(answer.headers().get("x-should-retry").expect("one"), "true");
        assert!(answer.text().await.expect("a text").contains("made to fail"));
        assert_eq!(world.spent().await.cost.nano_dollars(), 0);
    }
}
