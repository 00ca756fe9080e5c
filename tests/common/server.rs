//! A whole server on a free port: SQLite in a directory of its own, the engine, the edge.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use issuebox::access::Access;
use issuebox::clock::{Clock, SystemClock, SystemIds};
use issuebox::config::{AgentProgram, StorageLocation};
use issuebox::engine::{Engine, EngineParts, Quotas, Retention, Threads};
use issuebox::git::{LatePublisher, PublishRefusal, WorkPublisher};
use issuebox::github::api::GitHubApi;
use issuebox::github::permissions::RepositoryPermissions;
use issuebox::github::policy::TriggerPolicy;
use issuebox::github::webhook::sign;
use issuebox::http::{Edge, Feed, Limits, LiveToken, TokenHash};
use issuebox::intake::{Intake, PermissionParts};
use issuebox::issue_sandbox::SandboxServices;
use issuebox::logs::{LogBounds, Logs};
use issuebox::runs::{AgentPrograms, GoingRuns, RunShare};
use issuebox::sandbox::{Lifecycle, Provider};
use issuebox::store::Store;
use issuebox::store::sqlite::{OpenError, SqliteStore};
use issuebox::store::usage::{NewModelRequest, Reserved, SettledRequest, UsageStore};
use issuebox::sync::{OpenStorage, SyncWorker};
use issuebox::types::RepositoryPattern;
use issuebox::types::*;
use issuebox::verification::IssueVerifier;
use reqwest::Method;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;

use super::provider::MemoryProvider;
use super::server_rules::{hooks, rules, templates};
use super::store::{MoodyAccess, MoodyStore};

/// The admin token of every test server.
pub const TOKEN: &str = "the-admin-token";
/// The webhook secret of every test server.
pub const SECRET: &str = "the-webhook-secret";

/// How long the end of a test's server may wait for requests.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// A running server. Dropping it ends it.
pub struct TestServer {
    pub address: SocketAddr,
    pub data: Arc<TempDir>,
    pub provider: Arc<MemoryProvider>,
    pub store: Arc<MoodyStore>,
    pub engine: Engine,
    pub feed: Arc<Feed>,
    services: Option<SandboxServices>,
    usage: Arc<dyn UsageStore>,
    pub closing: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    pub client: reqwest::Client,
    thread: Option<JoinHandle<()>>,
}

/// What the server's thread is given.
struct Parts {
    data: Arc<TempDir>,
    provider_name: &'static str,
    provider: Arc<MemoryProvider>,
    quotas: Quotas,
    closed: watch::Receiver<bool>,
    stopped: watch::Receiver<bool>,
    change: Box<dyn FnOnce(&mut Edge) + Send>,
}

/// What the server's thread says once it serves.
struct Started {
    address: SocketAddr,
    store: Arc<MoodyStore>,
    engine: Engine,
    feed: Arc<Feed>,
    services: SandboxServices,
    usage: Arc<dyn UsageStore>,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The error's code.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }

    /// A header as text; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl TestServer {
    /// A server with everything as it is by default.
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// A server whose edge a test changes before it starts.
    pub async fn with(change: impl FnOnce(&mut Edge) + Send + 'static) -> Self {
        let data = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        Self::over(data, "memory", change).await
    }

    /// A server with so many live sandboxes at most.
    pub async fn limited(quotas: Quotas) -> Self {
        let data = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        Self::build(data, "memory", quotas, |_| {}).await
    }

    /// A server over a data directory, whose one provider has this name.
    pub async fn over(
        data: Arc<TempDir>,
        provider_name: &'static str,
        change: impl FnOnce(&mut Edge) + Send + 'static,
    ) -> Self {
        Self::build(data, provider_name, Quotas::default(), change).await
    }

    async fn build(
        data: Arc<TempDir>,
        provider_name: &'static str,
        quotas: Quotas,
        change: impl FnOnce(&mut Edge) + Send + 'static,
    ) -> Self {
        let provider = Arc::new(MemoryProvider::default());
        let (closing, closed) = watch::channel(false);
        let (stop, stopped) = watch::channel(false);
        let (tx, started) = std::sync::mpsc::channel();
        let parts = Parts {
            data: Arc::clone(&data),
            provider_name,
            provider: Arc::clone(&provider),
            quotas,
            closed,
            stopped,
            change: Box::new(change),
        };
        // On a thread of its own: the server must not depend on the test's runtime.
        let thread = std::thread::spawn(move || {
            let io = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            actix::System::new().block_on(serve(parts, io.handle().clone(), tx));
            io.shutdown_timeout(Duration::from_secs(5));
        });
        let Started { address, store, engine, feed, services, usage } =
            started.recv().expect("the server starts");
        let services = Some(services);
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(Duration::from_secs(20))
            .build()
            .expect("a client");
        let thread = Some(thread);
        Self {
            address,
            data,
            provider,
            store,
            engine,
            feed,
            services,
            usage,
            closing,
            stop,
            client,
            thread,
        }
    }

    /// What programs of its process work in sandboxes with.
    pub fn services(&self) -> SandboxServices {
        let services = self.services.clone().expect("until it ends");
        SandboxServices { startup_max: Duration::from_secs(10), ..services }
    }

    /// Where a path is.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request with the token.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, self.url(path)).bearer_auth(TOKEN)
    }

    /// Puts an account.
    pub async fn account(&self, name: &str, rules: Value) {
        let put = self.request(Method::PUT, &format!("/v1/accounts/{name}")).json(&rules);
        let answer = send(put).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// A token of an account with a role; the account is made if it is not there.
    pub async fn token(&self, account: &str, role: &str) -> String {
        if !self.get("/v1/accounts").await.text.contains(&format!("\"{account}\"")) {
            self.account(account, serde_json::json!({})).await;
        }
        let body = serde_json::json!({"name": "t", "role": role, "account": account});
        let answer = self.post("/v1/tokens", body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["data"]["token"].as_str().expect("the token").to_owned()
    }

    /// GET with the token.
    pub async fn get(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path)).await
    }

    /// POST with the token.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        send(self.request(Method::POST, path).json(&body)).await
    }

    /// Ensures an issue and waits until its sandbox runs; its id.
    pub async fn running(&self, issue: &str) -> String {
        let answer =
            self.post("/v1/sandboxes?wait=10", serde_json::json!({"issueId": issue})).await;
        let answer = answer.json();
        assert_eq!(answer["data"]["phase"], "running", "{answer}");
        answer["sandboxId"].as_str().expect("an id").to_owned()
    }

    /// Has a run of an issue ask a model once, for so many dollars.
    pub async fn spend(&self, issue: &str, model: &str, dollars: f64) {
        let account = AccountName::default_account();
        let alias = Alias::Issue(IssueId::parse(issue).expect("an id"));
        let home = self.store.resolve(&account, &alias).await.expect("it reads");
        let cost = Money::from_dollars(dollars).expect("an amount");
        let request = NewModelRequest {
            run: RunId::parse("019392f0-5b7e-7a3c-8c55-3c1a0b6a1f2e").expect("an id"),
            home: home.expect("the issue is known"),
            sandbox: SandboxId::trusted("s"),
            account,
            repository: None,
            model: model.to_owned(),
            begun_at: SystemClock.now(),
            worst: cost,
            input_cost: cost,
        };
        let none = Money::ZERO;
        let budgets = ModelBudgets { run: none, issue: none, account_per_day: none };
        let reserved = self.usage.reserve_request(request, budgets).await.expect("it writes");
        let Reserved::Granted(id) = reserved else { panic!("{reserved:?}") };
        let (duration, tokens) =
            (Duration::from_secs(1), Tokens { input: 10, ..Tokens::default() });
        let settled = SettledRequest { status: 200, duration, tokens, cost };
        self.usage.settle_request(id, settled).await.expect("it writes");
    }

    /// Logs in on the page; its cookie.
    pub async fn log_in(&self) -> String {
        let request = self.client.post(self.url("/login")).header("origin", self.url(""));
        let answer = send(request.body(format!("token={TOKEN}"))).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = answer.header("set-cookie").split(';').next().unwrap_or_default();
        cookie.to_owned()
    }

    /// A signed delivery.
    pub async fn deliver(&self, event: &str, delivery: &str, body: &str) -> Answer {
        self.try_deliver(&self.client, event, delivery, body).await.expect("an answer")
    }

    /// Begins its end, as SIGTERM does.
    pub fn end(&self) {
        self.closing.send_replace(true);
        self.stop.send_replace(true);
    }

    /// A signed delivery by a client of its own.
    pub async fn try_deliver(
        &self,
        client: &reqwest::Client,
        event: &str,
        delivery: &str,
        body: &str,
    ) -> reqwest::Result<Answer> {
        let signature = sign(&Secret::new(SECRET), body.as_bytes());
        let request = client
            .post(self.url("/webhooks/github"))
            .header("content-type", "application/json")
            .header("x-github-event", event)
            .header("x-github-delivery", delivery)
            .header("x-hub-signature-256", signature)
            .body(body.to_owned());
        try_send(request).await
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end();
        self.services = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server's thread ends well");
        }
    }
}

/// Sends a request and reads the answer.
pub async fn send(request: reqwest::RequestBuilder) -> Answer {
    try_send(request).await.expect("an answer")
}

async fn try_send(request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
    let answer = request.send().await?;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    Ok(Answer { status, headers, text: answer.text().await? })
}

/// A request that opens a terminal's WebSocket.
pub fn opening(request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
    request
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header(
            "sec-websocket-protocol",
            "other, issuebox.terminal.v1, issuebox.exec.v1, issuebox.tunnel.v1",
        )
}

/// A signed `issues` delivery in the shape of GitHub's.
pub fn opened(id: u64, title: &str) -> String {
    serde_json::json!({
        "action": "opened",
        "issue": {
            "id": id, "number": 1, "title": title, "state": "open", "labels": [],
            "html_url": "https://github.com/octo/hello/issues/1",
            "user": {"id": 7, "login": "octocat", "type": "User"},
            "author_association": "OWNER",
            "updated_at": "2026-01-31T12:00:00Z", "created_at": "2026-01-31T12:00:00Z"
        },
        "repository": {"id": 9, "name": "hello", "full_name": "octo/hello",
            "owner": {"id": 7, "login": "octocat"}},
        "sender": {"id": 7, "login": "octocat", "type": "User"}
    })
    .to_string()
}

/// Conversations with one agent, `cat`. No worker carries out its runs.
fn runs(data: &Path, store: &Arc<SqliteStore>) -> RunShare {
    let agent = AgentProgram::new("command", Some("/bin/cat".into()));
    let agents = BTreeMap::from([(AgentName::trusted("cat"), agent)]);
    let going = Arc::new(GoingRuns::new(Arc::new(SystemClock)));
    let programs = AgentPrograms::find(&agents, "");
    RunShare::new(data, programs, Arc::clone(store), going, Arc::new(SystemClock))
}

/// Has the edge ask its GitHub what people may do, and how issues are.
fn connect(edge: &mut Edge, api: Arc<dyn GitHubApi>, rows: &Arc<SqliteStore>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let permissions = Arc::new(RepositoryPermissions::new(api, Arc::clone(&clock)));
    let (engine, store) = (edge.engine.clone(), Arc::clone(&edge.store));
    let asked = PermissionParts {
        permissions: Arc::clone(&permissions),
        waiting: Arc::clone(rows) as _,
        owners: Arc::clone(rows) as _,
        store: Arc::clone(&store),
        clock: Arc::clone(&clock),
    };
    let access = Arc::clone(&edge.access);
    edge.intake = Intake::new(engine.clone(), asking_policy()).by_account(access).asking(asked);
    let verifier = IssueVerifier::new(engine, store, permissions, clock, asking_policy());
    edge.verifier = Some(Arc::new(verifier.by_account(Arc::clone(&edge.access))));
}

/// No tokens, and no account but `default`.
async fn access(mood: &Arc<MoodyStore>, rows: &Arc<SqliteStore>) -> Arc<Access> {
    let store = MoodyAccess { mood: Arc::clone(mood), inner: Arc::clone(rows) as _ };
    Arc::new(Access::open(Arc::new(store), BTreeMap::new()).await.expect("it is read"))
}

/// The engine with one provider.
async fn start_engine(
    (name, provider): (ProviderName, Arc<dyn Lifecycle>),
    store: &Arc<MoodyStore>,
    feed: &Arc<Feed>,
    spawner: Threads,
    quotas: Quotas,
) -> Engine {
    let rules = rules(&name);
    let engine = Engine::start(EngineParts {
        github: None,
        retention: Retention::default(),
        store: Arc::clone(store) as _,
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        templates: templates(&rules.default_template),
        rules,
        providers: [(name, provider)].into(),
        creates_in_flight: 0,
        quotas,
        publisher: Arc::clone(feed) as _,
        spawner: Arc::new(spawner),
        reconcile: None,
    });
    engine.await.expect("the engine starts")
}

async fn serve(mut parts: Parts, io: tokio::runtime::Handle, started: Sender<Started>) {
    let store = Arc::new(open_store(parts.data.path()));
    let (rows, runs) = (Arc::clone(&store), runs(parts.data.path(), &store));
    let (usage, store) = (Arc::clone(&runs.usage), Arc::new(MoodyStore::new(store)));
    let access = access(&store, &rows).await;
    let (feed, arbiter) = (Arc::new(Feed::new("testrun")), actix::Arbiter::new());
    let name = ProviderName::trusted(parts.provider_name);
    let lifecycle = (name.clone(), Arc::clone(&parts.provider) as Arc<dyn Lifecycle>);
    let spawner = threads(&arbiter, &io);
    let engine = start_engine(lifecycle, &store, &feed, spawner, parts.quotas).await;
    let providers = BTreeMap::from([(name, Provider::from(parts.provider))]);
    let logs = open_logs(parts.data.path());
    let sync = sync_worker(&parts.data, &rows, &io);
    let hooks = hooks(&engine, Arc::clone(&store) as _, (&providers, &logs, &sync));
    let mut edge = Edge {
        engine: engine.clone(),
        providers,
        store: Arc::clone(&store) as _,
        sessions: Arc::clone(&rows) as _,
        reports: Arc::clone(&rows) as _,
        access: Arc::clone(&access),
        login_links: Arc::default(),
        feed: Arc::clone(&feed),
        logs,
        runs,
        hooks,
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        webhook_secrets: LiveSecrets::new(vec![Secret::new(SECRET)]),
        intake: Intake::new(engine.clone(), policy()).by_account(access),
        checkouts: None,
        sync: Some(sync),
        github: None,
        verifier: None,
        app_setup: None,
        people: None,
        publisher: publisher(None),
        models: Arc::default(),
        admin_token: LiveToken::new(TokenHash::of(&Secret::new(TOKEN))),
        public_url: None,
        trusted_proxies: Vec::new(),
        limits: Limits { workers: 2, drain_time_max: DRAIN_TIME_MAX, ..Limits::default() },
        started_at: SystemClock.now(),
        closing: parts.closed,
    };
    (parts.change)(&mut edge);
    if let Some(api) = edge.github.clone() {
        connect(&mut edge, api, &rows);
        io.spawn(edge.intake.clone().take_waiting(parts.stopped.clone()));
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (services, server) = (edge.services(), issuebox::http::build(edge, listener));
    let of_test = Started { address, store, feed, engine: engine.clone(), services, usage };
    started.send(of_test).expect("the test waits");
    let stop = async { drop(parts.stopped.wait_for(|stopped| *stopped).await) };
    server.expect("a usable listener").run(stop).await.expect("the server ends well");
    engine.stop(Duration::from_secs(1)).await;
    arbiter.stop();
    arbiter.join().expect("the arbiter ends well");
}

/// Keeps workspaces beside the server's data.
fn sync_worker(data: &TempDir, rows: &Arc<SqliteStore>, io: &tokio::runtime::Handle) -> SyncWorker {
    let location = StorageLocation::Directory(data.path().join("synced"));
    let storage = OpenStorage::open(&location).expect("it can be made");
    SyncWorker::new(storage, Arc::clone(rows) as _, Arc::new(SystemClock), io.clone())
}

fn threads(arbiter: &actix::Arbiter, io: &tokio::runtime::Handle) -> Threads {
    Threads { arbiter: arbiter.handle(), calls: io.clone(), io: io.clone() }
}

fn open_logs(data: &Path) -> Logs {
    let bounds = LogBounds { sandbox_len_max: 1 << 20, total_len_max: 1 << 24, age_max: None };
    Logs::open(&data.join("logs"), bounds, Arc::new(SystemClock)).expect("logs")
}

/// Opens the store; the worker threads of a server that just ended may still hold it.
fn open_store(dir: &Path) -> SqliteStore {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match SqliteStore::open(dir) {
            Err(OpenError::InUse { .. }) if Instant::now() < deadline => std::thread::yield_now(),
            opened => return opened.expect("a store"),
        }
    }
}

/// The policy without credentials for GitHub.
pub fn policy() -> TriggerPolicy {
    TriggerPolicy {
        label: "agent".into(),
        command: "/issuebox".into(),
        opened: true,
        permission: None,
        associations: vec!["OWNER".into()],
        bots: Vec::new(),
        assignee: 0,
        unlabel_stops: true,
        refuses_hidden: false,
        follow_up: issuebox::types::FollowUpMode::default(),
        on_ci_failure: issuebox::types::CiFailureMode::default(),
        bot_user_id: 0.into(),
        repositories: vec![RepositoryPattern::parse("*").expect("a valid pattern")],
    }
}

/// The policy with credentials for GitHub.
fn asking_policy() -> TriggerPolicy {
    TriggerPolicy { permission: Some(PermissionLevel::Write), ..policy() }
}

/// A publisher of work that always succeeds, or always refuses.
struct StubPublisher(Option<PublishRefusal>);

#[async_trait::async_trait]
impl WorkPublisher for StubPublisher {
    async fn publish(&self, _sandbox: &SandboxId, _by: &str) -> Result<String, PublishRefusal> {
        self.0.clone().map_or_else(|| Ok("issuebox/issue-1".to_owned()), Err)
    }
}

/// A publisher of work that always succeeds, or always refuses.
pub fn publisher(refusal: Option<PublishRefusal>) -> LatePublisher {
    let (publisher, late) = (Arc::new(StubPublisher(refusal)), LatePublisher::default());
    late.set(Arc::downgrade(&publisher) as _);
    // It has no other owner, and the test's process ends soon.
    std::mem::forget(publisher);
    late
}
