//! A model through the gateway against the same one straight, on the same machine in turn: when the
//! first byte of a streamed answer of 200 KB comes, and when all of it did. The model is a double in
//! this process; the gateway records in a database on disk, as a server does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use issuebox::clock::SystemClock;
use issuebox::models::double::{DoubleScript, DoubleTurn, ModelDouble};
use issuebox::models::gateway::{GatewaySettings, GatewayTimes, HttpModelGateway, ModelEndpoint};
use issuebox::models::serve::ModelServer;
use issuebox::models::{LateModelGateway, ModelActivity, RunOf, RunningRun};
use issuebox::store::sqlite::SqliteStore;
use issuebox::types::{
    AccountName, HomeId, ModelBudgets, ModelPattern, Money, RunId, SandboxId, Secret,
};
use tokio::net::TcpListener;

const ROUNDS: usize = 60;
/// The length of the answer's text, so that the stream with its events has some 200 KB.
const TEXT_LEN: usize = 48_000;
/// A model writes; the pause before each of some 1,200 events.
const PAUSE: Duration = Duration::from_millis(1);

fn main() {
    // `cargo test` runs benches to see that they work; they only measure when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measure());
}

/// Every sandbox has this run.
struct OneRun;

#[async_trait]
impl RunOf for OneRun {
    async fn run_of(&self, _sandbox: &SandboxId) -> Option<RunningRun> {
        Some(RunningRun {
            run: RunId::parse("019392f0-5b7e-7a3c-8c55-3c1a0b6a1f2e")?,
            home: HomeId(1),
            account: AccountName::default_account(),
            repository: None,
            may_fetch: false,
        })
    }

    fn activity(&self, _run: &RunningRun, _activity: ModelActivity) {}
}

async fn measure() {
    for (what, pause) in [("at once", Duration::ZERO), ("as a model writes", PAUSE)] {
        let turn = DoubleTurn { pause, ..DoubleTurn::says(&"a word of it ".repeat(TEXT_LEN / 13)) };
        let double = ModelDouble::start(DoubleScript { turns: vec![turn], side: None });
        let double = double.await.expect("a free port");
        let dir = tempfile::tempdir_in(".").expect("a directory on disk");
        let store = Arc::new(SqliteStore::open(dir.path()).expect("opens"));
        let endpoint = ModelEndpoint {
            name: "anthropic".into(),
            base_url: double.base_url(),
            key: Secret::new("key"),
            models: vec![ModelPattern::parse("*").expect("a pattern")],
            output_max: 32_000,
            silence_max: Duration::from_secs(120),
        };
        let (endpoints, times) = (vec![endpoint], GatewayTimes::default());
        let much = Money::from_dollars(1e6).expect("an amount");
        let budgets = ModelBudgets { run: much, issue: much, account_per_day: much };
        let settings =
            GatewaySettings { endpoints, prices: Vec::new(), budgets: budgets.into(), times };
        let gateway =
            HttpModelGateway::new(settings, store, Arc::new(OneRun), Arc::new(SystemClock));
        let late = LateModelGateway::default();
        late.set(Some(Arc::new(gateway.expect("a client"))));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let _server = ModelServer::start(listener, SandboxId::trusted("s1"), late);

        let straight = format!("{}/v1/messages", double.base_url());
        let through = format!("http://{address}/anthropic/v1/messages");
        compare(what, &straight, &through, if pause.is_zero() { ROUNDS } else { 7 }).await;
    }
}

/// Asks both in turn, each first in every other round.
async fn compare(what: &str, straight: &str, through: &str, rounds: usize) {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let (mut first_bytes, mut firsts, mut direct, mut ratios) = (vec![], vec![], vec![], vec![]);
    for round in 0..=rounds {
        let order = if round % 2 == 0 { [straight, through] } else { [through, straight] };
        let mut took = [ask(&http, order[0]).await, ask(&http, order[1]).await];
        if round % 2 == 1 {
            took.reverse();
        }
        let [near, far] = took;
        // The first round warms both up.
        if round > 0 {
            first_bytes.push((far.0 - near.0) * 1e3);
            firsts.push(near.0 * 1e3);
            direct.push(near.1 * 1e3);
            ratios.push(far.1 / near.1);
        }
    }
    println!(
        "{what}: first byte {:+.2} ms beside a direct one, which takes {:.2} ms (at most +2 ms); all \
         of it {:.3} of a direct one, which takes {:.1} ms (at most 1.03; medians of {rounds})",
        median(&mut first_bytes),
        median(&mut firsts),
        median(&mut ratios),
        median(&mut direct)
    );
}

/// When the first byte and the last one came, in seconds.
async fn ask(http: &reqwest::Client, url: &str) -> (f64, f64) {
    // As long as what claude begins with.
    let text = "x".repeat(49_000);
    let body = format!(
        "{{\"model\":\"claude-opus-5-5\",\"max_tokens\":32000,\"stream\":true,\"messages\":\
         [{{\"role\":\"user\",\"content\":\"{text}\"}}]}}"
    );
    let began = Instant::now();
    let answer = http.post(url).body(body).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let mut pieces = answer.bytes_stream();
    let (mut first, mut len) = (None, 0);
    while let Some(piece) = pieces.next().await {
        first.get_or_insert_with(|| began.elapsed().as_secs_f64());
        len += piece.expect("a piece").len();
    }
    assert!(len > 150_000, "{len}");
    (first.expect("a piece"), began.elapsed().as_secs_f64())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
