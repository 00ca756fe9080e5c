//! A gateway with a store, a sandbox's socket in front of it and a double behind it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use issuebox::clock::SystemClock;
use issuebox::models::double::{DoubleScript, DoubleTurn, ModelDouble};
use issuebox::models::gateway::{GatewaySettings, GatewayTimes, HttpModelGateway, ModelEndpoint};
use issuebox::models::serve::ModelServer;
use issuebox::models::{LateModelGateway, ModelActivity, RunOf, RunningRun};
use issuebox::store::sqlite::SqliteStore;
use issuebox::store::usage::{UsageAsk, UsageBy, UsageStore, UsageSum};
use issuebox::types::{
    AccountName, HomeId, ModelBudgets, ModelPattern, Money, Repository, RunId, SandboxId, Secret,
    TokenPrice,
};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The key that the gateway holds.
pub const KEY: &str = "sk-ours-0123456789";
/// Longest wait for anything here.
const WAIT: Duration = Duration::from_secs(30);

/// The engine's side: one run in every sandbox, or none.
pub struct OneRun {
    run: Mutex<Option<RunningRun>>,
    heard: watch::Sender<Vec<ModelActivity>>,
}

impl OneRun {
    /// Changes the run, or takes it away.
    pub fn change(&self, change: impl FnOnce(&mut Option<RunningRun>)) {
        change(&mut self.run.lock().expect("no panic"));
    }

    /// What was reported.
    pub fn heard(&self) -> Vec<ModelActivity> {
        self.heard.borrow().clone()
    }
}

#[async_trait]
impl RunOf for OneRun {
    async fn run_of(&self, _sandbox: &SandboxId) -> Option<RunningRun> {
        self.run.lock().expect("no panic").clone()
    }

    fn activity(&self, _run: &RunningRun, activity: ModelActivity) {
        self.heard.send_modify(|heard| heard.push(activity));
    }
}

/// All of it.
pub struct World {
    pub double: ModelDouble,
    pub runs: Arc<OneRun>,
    pub store: Arc<SqliteStore>,
    pub gateway: Arc<HttpModelGateway>,
    pub http: Client,
    url: String,
    _server: ModelServer,
    _dir: TempDir,
}

/// A price of a dollar for a million tokens of input, and ten for output.
pub fn price() -> TokenPrice {
    TokenPrice::per_million([1.0, 10.0, 0.1, 2.0]).expect("amounts")
}

pub fn dollars(amount: f64) -> Money {
    Money::from_dollars(amount).expect("an amount")
}

pub fn settings(base_url: &str) -> GatewaySettings {
    let endpoint = |name: &str, models: &str| ModelEndpoint {
        name: name.to_owned(),
        base_url: base_url.to_owned(),
        key: Secret::new(KEY),
        models: vec![ModelPattern::parse(models).expect("a pattern")],
        output_max: 1_000,
        silence_max: Duration::from_secs(120),
    };
    let any = ModelPattern::parse("*").expect("a pattern");
    GatewaySettings {
        endpoints: vec![endpoint("anthropic", "claude-*"), endpoint("openai", "gpt-*")],
        prices: vec![(any, price())],
        budgets: ModelBudgets::default().into(),
        times: GatewayTimes::default(),
    }
}

impl World {
    /// A world whose double plays these turns, and which has these budgets for its run and its issue.
    pub async fn new(turns: Vec<DoubleTurn>, run: Money, issue: Money) -> Self {
        let double = ModelDouble::start(DoubleScript { turns, side: None }).await;
        let double = double.expect("a free port");
        let dir = tempfile::tempdir().expect("a directory");
        let store = Arc::new(SqliteStore::open(dir.path()).expect("opens"));
        let budgets = ModelBudgets { run, issue, account_per_day: Money::ZERO };
        let run = RunningRun {
            run: RunId::parse("019392f0-5b7e-7a3c-8c55-3c1a0b6a1f2e").expect("an id"),
            home: HomeId(1),
            account: AccountName::default_account(),
            repository: Some(Repository::trusted("octo/hello")),
            may_fetch: false,
        };
        let (run, heard) = (Mutex::new(Some(run)), watch::Sender::default());
        let runs = Arc::new(OneRun { run, heard });
        let settings = GatewaySettings { budgets: budgets.into(), ..settings(&double.base_url()) };
        let gateway =
            HttpModelGateway::new(settings, store.clone(), runs.clone(), Arc::new(SystemClock));
        let gateway = Arc::new(gateway.expect("a client"));
        let late = LateModelGateway::default();
        late.set(Some(gateway.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let server = ModelServer::start(listener, SandboxId::trusted("s1"), late);
        let http = Client::builder().timeout(WAIT).no_proxy().build().expect("a client");
        Self { double, runs, store, gateway, http, url, _server: server, _dir: dir }
    }

    /// A world without limits.
    pub async fn free(turns: Vec<DoubleTurn>) -> Self {
        Self::new(turns, Money::ZERO, Money::ZERO).await
    }

    /// A request with a sandbox's own credentials.
    pub fn request(&self, path: &str, body: String) -> reqwest::RequestBuilder {
        let request = self.http.post(format!("{}{path}", self.url)).body(body);
        request
            .header("content-type", "application/json")
            .header("x-api-key", "sk-theirs")
            .header("authorization", "Bearer theirs")
            .header("cookie", "theirs=1")
            .header("accept-encoding", "gzip")
            .header("anthropic-version", "2023-06-01")
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(path, body.to_string()).send().await.expect("an answer")
    }

    /// Asks for a message.
    pub async fn ask(&self, is_stream: bool) -> Response {
        self.post("/anthropic/v1/messages?beta=true", &message(is_stream)).await
    }

    /// What was spent in all, once no request is open.
    pub async fn spent(&self) -> UsageSum {
        let asked = |it: &&ModelActivity| matches!(it, ModelActivity::Asked);
        let settled = |it: &&ModelActivity| matches!(it, ModelActivity::Settled { .. });
        let mut heard = self.runs.heard.subscribe();
        let all = heard
            .wait_for(|all| all.iter().filter(asked).count() == all.iter().filter(settled).count());
        drop(tokio::time::timeout(WAIT, all).await.expect("all are settled"));
        let sums = self.store.usage(UsageAsk::all(UsageBy::Account)).await.expect("reads");
        sums.first().map(|(_, sum)| *sum).unwrap_or_default()
    }
}

/// A request for a message.
pub fn message(is_stream: bool) -> Value {
    json!({
        "model": "claude-x", "max_tokens": 500, "stream": is_stream,
        "messages": [{"role": "user", "content": "Hello"}],
    })
}

/// The message of an error, and its type.
pub async fn error(answer: Response) -> (u16, String, String) {
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.expect("JSON");
    let text = |key: &str| body["error"][key].as_str().unwrap_or_default().to_owned();
    (status, text("type"), text("message"))
}
