//! What is spent is counted, and stops at the budgets.

use std::time::Duration;

use futures_util::future::join_all;
use issuebox::models::ModelActivity;
use issuebox::models::double::DoubleTurn;
use issuebox::models::gateway::GatewaySettings;
use issuebox::types::{ModelBudgets, Money, PerRepository, RepositoryPattern, Tokens};

use crate::world::{World, dollars, error, price, settings};

fn turn(output: u64) -> DoubleTurn {
    let usage = Tokens { input: 1_000, output, cache_read: 500, cache_write: 100 };
    DoubleTurn { usage, ..DoubleTurn::says(&"word ".repeat(50)) }
}

#[tokio::test]
async fn streams_and_whole_answers_cost_the_same() {
    let world = World::free(vec![turn(300)]).await;
    for is_stream in [true, false] {
        world.ask(is_stream).await.bytes().await.expect("an answer");
    }
    let sum = world.spent().await;
    let once = turn(300).usage;
    let mut twice = once;
    twice += once;
    assert_eq!((sum.requests, sum.tokens), (2, twice));
    assert_eq!(sum.cost, price().cost(&once).times(2));
    let counts = world.gateway.figures().counts();
    assert_eq!(counts.requests[&("claude-x".to_owned(), 200)], 2);
    assert_eq!(counts.usage["claude-x"].cost, sum.cost);
}

#[tokio::test]
async fn a_spent_budget_is_402_in_words_until_it_is_raised() {
    // Each answer costs $0.0043.
    let world = World::new(vec![turn(300)], dollars(0.01), Money::ZERO).await;
    for expected in [200, 200, 200, 402, 402] {
        let answer = world.ask(true).await;
        assert_eq!(answer.status(), expected);
        if expected == 402 {
            let (_, kind, text) = error(answer).await;
            assert_eq!(kind, "billing_error");
            let words = "Budget of this run is used up: $0.01 of $0.01; an operator can raise it";
            assert_eq!(text, words);
        } else {
            answer.bytes().await.expect("all of it");
        }
    }
    assert_eq!(world.double.counts().requests, 3);
    let refused = |it: &ModelActivity| matches!(it, ModelActivity::Refused(_));
    assert!(world.runs.heard().iter().any(refused));
    let budgets = ModelBudgets { run: dollars(1.0), ..ModelBudgets::default() };
    world
        .gateway
        .replace(GatewaySettings { budgets: budgets.into(), ..settings(&world.double.base_url()) });
    assert_eq!(world.ask(true).await.status(), 200);
}

#[tokio::test]
async fn the_budget_of_the_runs_repository_counts() {
    // Each answer costs $0.0043, and the run is of octo/hello.
    let world = World::new(vec![turn(300)], Money::ZERO, Money::ZERO).await;
    world.ask(true).await.bytes().await.expect("an answer");
    let small = ModelBudgets { run: dollars(0.001), ..ModelBudgets::default() };
    let pattern = |text: &str| RepositoryPattern::parse(text).expect("a pattern");
    for (own, expected) in [("octo/hello", 402), ("octo/tools", 200)] {
        let budgets = PerRepository::new(ModelBudgets::default(), vec![(pattern(own), small)]);
        world.gateway.replace(GatewaySettings { budgets, ..settings(&world.double.base_url()) });
        assert_eq!(world.ask(true).await.status(), expected, "{own}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_at_once_never_spend_more_than_the_budget_and_one_request() {
    let slow = DoubleTurn { pause: Duration::from_millis(2), ..turn(500) };
    let budget = dollars(0.02);
    let world = World::new(vec![slow.clone()], Money::ZERO, budget).await;
    let asks = (0..20).map(async |number| {
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let answer = world.ask(number % 2 == 0).await;
            statuses.push(answer.status().as_u16());
            answer.bytes().await.expect("all of it");
        }
        statuses
    });
    let statuses = join_all(asks).await.concat();
    assert!(statuses.iter().all(|status| [200, 402].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200) && statuses.contains(&402));
    let (spent, counts) = (world.spent().await.cost, world.double.counts());
    assert_eq!(spent, price().cost(&counts.used), "all that the model did is counted");
    let one = price().cost(&slow.usage);
    assert!(spent >= budget && spent <= budget + one, "{spent:?} of {budget:?}");
    assert!(counts.open_max >= 2, "they went at one time while the budget allowed it");
}
