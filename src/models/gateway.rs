//! The model gateway over HTTP: judges what a sandbox's agent asks for, and passes it on with the key.
//!
//! # Guarantees
//! - No key enters a sandbox: what passes in both directions is a list of headers, and none of them
//!   carries one. Error messages name the setting of a key, never the key.
//! - Money is reserved before a request goes out, and settled when it ended, whichever side ended it.
//! - Answers are streams: each piece is passed on at once, and memory does not grow with an answer. A
//!   request is canceled at the model when its client goes.
//! - Silence ends: with an answer in the form in which the agent ends, too.
//!
//! # What is accepted
//! A body is read whole before it is judged, at most 32 MiB of it; each sandbox has so much room.
//! After a crash a request that was in flight counts at its worst case for an hour.

mod open;
mod passing;
mod places;
mod route;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, Response};
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::time::{sleep, timeout};

pub use upstream::{GatewayTimes, ModelEndpoint};

use super::budget::{BudgetUsedUp, BudgetVerdict, judge};
use super::figures::ModelFigures;
use super::prices::PriceTable;
use super::refusal::{BODY_LEN_MAX, ModelRefusal};
use super::request::{self, ModelRequest};
use super::usage::UsageReader;
use super::{ModelActivity, ModelApi, ModelGateway, ModelHttpBody, RunOf, RunningRun, refused};
use crate::clock::Clock;
use crate::store::StoreError;
use crate::store::usage::{NewModelRequest, UsageStore};
use crate::types::{
    AccountName, HomeId, ModelBudgets, ModelPattern, Money, PerRepository, Repository, RunId,
    SandboxId, TokenPrice, Tokens,
};
use open::{OpenModelRequest, RequestLedger, SeenAnswer};
use passing::{AnswerTimes, PassingAnswer};
use places::{GatewayPlaces, SandboxPlaces};
use route::{ModelRoute, ModelService};
use upstream::{ModelUpstream, NoModelAnswer};

/// How long a body may take to arrive.
const BODY_WAIT: Duration = Duration::from_secs(60);
/// How much of a body that is too long is read before it is refused, so that its sender reads why.
const DRAIN_LEN_MAX: usize = 3 * BODY_LEN_MAX;
/// How often it is looked whether a budget that is used up has something left.
const BUDGET_PAUSE: Duration = Duration::from_secs(30);
/// Delay of a refusal. Without it a sandbox could retry at once and use more of the server's processor
/// than its limits allow.
const REFUSAL_PAUSE: Duration = Duration::from_millis(20);

/// What can change while the gateway serves.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The endpoints. The names of all differ.
    pub endpoints: Vec<ModelEndpoint>,
    /// The operator's prices, by pattern.
    pub prices: Vec<(ModelPattern, TokenPrice)>,
    /// What may be spent on issues of each repository.
    pub budgets: PerRepository<ModelBudgets>,
    /// Time limits.
    pub times: GatewayTimes,
}

/// The settings in force.
struct GatewayRules {
    endpoints: Vec<ModelEndpoint>,
    prices: PriceTable,
    budgets: PerRepository<ModelBudgets>,
    times: GatewayTimes,
}

impl GatewayRules {
    fn of(settings: GatewaySettings) -> Arc<Self> {
        let GatewaySettings { endpoints, prices, budgets, times } = settings;
        Arc::new(Self { endpoints, prices: PriceTable::new(prices), budgets, times })
    }

    fn endpoint(&self, name: &str) -> Result<&ModelEndpoint, ModelRefusal> {
        match self.endpoints.iter().find(|endpoint| endpoint.name == name) {
            Some(endpoint) => Ok(endpoint),
            None if ["anthropic", "openai"].contains(&name) => {
                Err(ModelRefusal::NotConfigured(name.to_owned()))
            }
            None => Err(ModelRefusal::NoRoute),
        }
    }
}

/// The gateway to all endpoints.
pub struct HttpModelGateway {
    rules: watch::Sender<Arc<GatewayRules>>,
    upstream: ModelUpstream,
    ledger: RequestLedger,
    places: GatewayPlaces,
    clock: Arc<dyn Clock>,
}

/// A request whose body is read, with what it is judged by.
struct Asked<'a> {
    sandbox: &'a SandboxId,
    run: RunningRun,
    route: ModelRoute<'a>,
    endpoint: &'a ModelEndpoint,
    headers: &'a HeaderMap,
    is_beta: bool,
    rules: &'a GatewayRules,
}

impl HttpModelGateway {
    /// A gateway that asks `runs` for the run in each sandbox and records in `store` what is spent.
    ///
    /// # Errors
    /// If the system's certificates cannot be used.
    pub fn new(
        settings: GatewaySettings,
        store: Arc<dyn UsageStore>,
        runs: Arc<dyn RunOf>,
        clock: Arc<dyn Clock>,
    ) -> reqwest::Result<Self> {
        let (figures, settled) = (Arc::default(), Arc::new(Notify::new()));
        Ok(Self {
            rules: watch::Sender::new(GatewayRules::of(settings)),
            upstream: ModelUpstream::new()?,
            ledger: RequestLedger { store, runs, figures, settled },
            places: GatewayPlaces::default(),
            clock,
        })
    }

    /// Replaces the settings for requests that come from now on.
    pub fn replace(&self, settings: GatewaySettings) {
        self.rules.send_replace(GatewayRules::of(settings));
    }

    /// Waits while a budget that a run must be paid from is used up: for a raise, or for the next day.
    /// `waits` is called with each one that it waits for.
    ///
    /// # Errors
    /// If the store does not say what was spent.
    pub async fn budget_left(
        &self,
        run: RunId,
        home: HomeId,
        (account, repository): (&AccountName, Option<&Repository>),
        waits: &(dyn Fn(BudgetUsedUp) + Send + Sync),
    ) -> Result<(), StoreError> {
        let mut rules = self.rules.subscribe();
        let mut said = None;
        loop {
            let budgets = *rules.borrow_and_update().budgets.of(repository);
            let uses = self.ledger.store.budget_uses(run, home, account, self.clock.now()).await?;
            let BudgetVerdict::UsedUp(used_up) = judge(&budgets, &uses, Money::ZERO) else {
                return Ok(());
            };
            if said.replace(used_up) != Some(used_up) {
                waits(used_up);
            }
            // Woken or not, it looks again: a day ends without a word, and a request is settled by time.
            drop(timeout(BUDGET_PAUSE, rules.changed()).await);
        }
    }

    /// What it counts.
    pub fn figures(&self) -> Arc<ModelFigures> {
        Arc::clone(&self.ledger.figures)
    }

    /// Answers a request, or says why not.
    async fn serve(
        &self,
        sandbox: &SandboxId,
        request: Request<ModelHttpBody>,
    ) -> Result<Response<ModelHttpBody>, ModelRefusal> {
        let (head, body) = request.into_parts();
        let route = ModelRoute::parse(head.uri.path()).ok_or(ModelRefusal::NoRoute)?;
        if head.method != Method::POST {
            return Err(ModelRefusal::Method);
        }
        let rules = Arc::clone(&self.rules.borrow());
        let endpoint = rules.endpoint(route.endpoint)?;
        let run = self.ledger.runs.run_of(sandbox).await.ok_or(ModelRefusal::NoRun)?;
        let places = self.places.of(sandbox);
        let place = places.request().ok_or(ModelRefusal::TooMany)?;
        let (headers, is_beta) = (&head.headers, head.uri.query() == Some("beta=true"));
        let asked = Asked { sandbox, run, route, endpoint, headers, is_beta, rules: &rules };
        let room = places.body(body.size_hint().exact()).await;
        let body = read_body(body).await?;
        let request = request::read(route.api, body, endpoint.output_max)
            .map_err(|error| ModelRefusal::Malformed(error.0))?;
        if !endpoint.allows(&request.model) {
            return Err(ModelRefusal::Model(request.model, endpoint.name.clone()));
        }
        if let Some(what) = &request.fetches
            && !asked.run.may_fetch
        {
            return Err(ModelRefusal::Fetch(what.clone()));
        }
        let (answer, open) = match route.service {
            ModelService::Answer if places.repeats_silence() => {
                let refusal = ModelRefusal::Away("it fell silent, and is asked later".to_owned());
                self.ledger.runs.activity(&asked.run, ModelActivity::Refused(refusal.clone()));
                return Err(refusal);
            }
            ModelService::Answer => self.ask(&asked, request).await?,
            ModelService::Count => (self.count(&asked, request, &places).await?, None),
        };
        // The model has the body now.
        drop(room);
        let times = AnswerTimes { idle: endpoint.silence_max, whole: rules.times.request };
        Ok(passing(answer, open, route.api, times, (places, place)))
    }

    /// Asks a model for how many tokens a request has.
    async fn count(
        &self,
        asked: &Asked<'_>,
        request: ModelRequest,
        places: &SandboxPlaces,
    ) -> Result<reqwest::Response, ModelRefusal> {
        let _turn = places.count().await;
        // What only counts has no output to cap.
        let sent = self.send(asked, request.original, asked.endpoint.silence_max).await;
        sent.map_err(|error| error.refusal)
    }

    /// Asks a model.
    async fn ask(
        &self,
        asked: &Asked<'_>,
        request: ModelRequest,
    ) -> Result<(reqwest::Response, Option<OpenModelRequest>), ModelRefusal> {
        let mut open = self.reserve(asked, &request).await?;
        let silence_max = asked.endpoint.silence_max;
        let wait = if request.is_stream { silence_max } else { asked.rules.times.whole_answer };
        open.seen = SeenAnswer::Sent;
        let answer = match self.send(asked, request.body, wait).await {
            Ok(answer) => answer,
            Err(NoModelAnswer { refusal, is_sent, status }) => {
                open.seen = match (is_sent, status) {
                    (_, Some(status)) => SeenAnswer::Failed(status),
                    (true, None) => SeenAnswer::Sent,
                    (false, None) => SeenAnswer::NotSent,
                };
                open.report(&refusal);
                return Err(refusal);
            }
        };
        let status = answer.status().as_u16();
        open.seen = if answer.status().is_success() {
            let reader = UsageReader::new(asked.route.api, is_event_stream(answer.headers()));
            SeenAnswer::Answered(status, Box::new(reader))
        } else {
            SeenAnswer::Failed(status)
        };
        Ok((answer, Some(open)))
    }

    async fn reserve(
        &self,
        asked: &Asked<'_>,
        request: &ModelRequest,
    ) -> Result<OpenModelRequest, ModelRefusal> {
        let run = &asked.run;
        let found = asked.rules.prices.of(&request.model);
        if !found.is_known {
            tracing::warn!(
                model = request.model,
                "no price is known for a model, so it counts as the dearest; set `prices` for it"
            );
        }
        let price = found.price;
        let input = price.dearest_input().times(request.input_estimate);
        let new = NewModelRequest {
            run: run.run,
            home: run.home,
            sandbox: asked.sandbox.clone(),
            account: run.account.clone(),
            repository: run.repository.clone(),
            model: request.model.clone(),
            begun_at: self.clock.now(),
            worst: input + price.output.times(request.output_max),
            input_cost: price.cost(&Tokens { input: request.input_estimate, ..Tokens::default() }),
        };
        let (estimate, is_stream) = (request.input_estimate, request.is_stream);
        let budgets = *asked.rules.budgets.of(run.repository.as_ref());
        self.ledger.open(run.clone(), new, budgets, price, estimate, is_stream).await
    }

    async fn send(
        &self,
        asked: &Asked<'_>,
        body: Bytes,
        wait: Duration,
    ) -> Result<reqwest::Response, NoModelAnswer> {
        let Asked { endpoint, route, headers, is_beta, .. } = asked;
        let sent = (*headers, *is_beta, body);
        self.upstream.send(endpoint, route, sent, wait, self.clock.now()).await
    }
}

#[async_trait]
impl ModelGateway for HttpModelGateway {
    async fn answer(
        &self,
        sandbox: &SandboxId,
        request: Request<ModelHttpBody>,
    ) -> Response<ModelHttpBody> {
        let api = route::form_of(request.uri().path());
        match self.serve(sandbox, request).await {
            Ok(answer) => answer,
            Err(refusal) => {
                sleep(REFUSAL_PAUSE).await;
                refused(api, &refusal)
            }
        }
    }
}

/// The answer of a model, as it passes.
fn passing(
    answer: reqwest::Response,
    open: Option<OpenModelRequest>,
    api: ModelApi,
    times: AnswerTimes,
    place: (Arc<SandboxPlaces>, OwnedSemaphorePermit),
) -> Response<ModelHttpBody> {
    let (status, headers) = (answer.status(), route::answered(answer.headers()));
    let is_stream = is_event_stream(&headers);
    let body = PassingAnswer::new(answer.into(), open, api, is_stream, times, place);
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"))
}

/// Reads a whole body.
async fn read_body(mut body: ModelHttpBody) -> Result<Bytes, ModelRefusal> {
    let reading = async {
        let (mut read, mut len) = (BytesMut::new(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| ModelRefusal::Malformed("the body was cut".into()))?;
            let Ok(data) = frame.into_data() else { continue };
            len += data.len();
            if len <= BODY_LEN_MAX {
                read.extend_from_slice(&data);
            } else if len > DRAIN_LEN_MAX {
                break;
            } else {
                read = BytesMut::new();
            }
        }
        if len > BODY_LEN_MAX { Err(ModelRefusal::TooLarge) } else { Ok(read.freeze()) }
    };
    let late = || ModelRefusal::Malformed("the body did not arrive in time".into());
    timeout(BODY_WAIT, reading).await.unwrap_or_else(|_| Err(late()))
}
