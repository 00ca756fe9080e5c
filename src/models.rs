//! The gateway for models: the only way from a sandbox to a model. It holds the keys, counts, refuses.
//!
//! A sandbox holds no key. Its agent sends every request to a socket of its own, and the server knows the
//! sandbox by that socket, whatever the request says. A [`ModelGateway`] asks [`RunOf`] which run is in
//! progress there, reserves what the request may cost, passes it on with the key, and settles what
//! it cost. What can be decided without IO is in modules of its own: prices, budgets, what a request
//! asks for and what an answer used.

pub mod budget;
pub mod double;
pub mod figures;
pub mod gateway;
pub mod prices;
pub mod refusal;
pub mod request;
mod scan;
pub mod serve;
pub mod usage;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode};

use crate::types::{AccountName, HomeId, Money, Repository, RunId, SandboxId, Tokens};
use refusal::ModelRefusal;

/// The form of a model's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelApi {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Responses API.
    Responses,
}

/// The body of a request to a model, or of its answer.
pub type ModelHttpBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// Answers requests to models.
#[async_trait]
pub trait ModelGateway: Send + Sync + 'static {
    /// Answers a request that came through the socket of this sandbox. What is refused is refused in
    /// the form in which agents end and show why.
    async fn answer(
        &self,
        sandbox: &SandboxId,
        request: Request<ModelHttpBody>,
    ) -> Response<ModelHttpBody>;
}

/// A gateway that is set while everything that it needs is there: providers are opened before. Clones
/// share it.
#[derive(Clone, Default)]
pub struct LateModelGateway(Arc<RwLock<Option<Arc<dyn ModelGateway>>>>);

impl LateModelGateway {
    /// Sets the gateway, or takes it away: it holds what holds the providers, which hold this.
    pub fn set(&self, gateway: Option<Arc<dyn ModelGateway>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = gateway;
    }
}

impl fmt::Debug for LateModelGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateModelGateway")
    }
}

#[async_trait]
impl ModelGateway for LateModelGateway {
    async fn answer(
        &self,
        sandbox: &SandboxId,
        request: Request<ModelHttpBody>,
    ) -> Response<ModelHttpBody> {
        let gateway = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        match gateway {
            Some(gateway) => gateway.answer(sandbox, request).await,
            // What the agent repeats: the server starts or ends.
            None => refused(ModelApi::Messages, &ModelRefusal::NotRecorded),
        }
    }
}

/// A refusal as an answer.
fn refused(api: ModelApi, refusal: &ModelRefusal) -> Response<ModelHttpBody> {
    let answer = refusal.answer(api);
    let body = Full::from(answer.body).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.headers.iter().chain(&[("content-type", "application/json")]) {
        response.headers_mut().insert(*name, hyper::header::HeaderValue::from_static(value));
    }
    response
}

/// The run in progress in a sandbox, as far as the gateway must know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningRun {
    /// The run.
    pub run: RunId,
    /// The home of its issue.
    pub home: HomeId,
    /// Who pays.
    pub account: AccountName,
    /// The repository, if known.
    pub repository: Option<Repository>,
    /// Whether the maker of the model may fetch what a request names: the sandbox's network allows it.
    pub may_fetch: bool,
}

/// What the gateway reports of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelActivity {
    /// A request went out.
    Asked,
    /// A request was settled.
    Settled {
        /// What it used.
        tokens: Tokens,
        /// What it cost.
        cost: Money,
    },
    /// A request was refused, so that the agent ends: a budget, our key, a long wait, no answer.
    Refused(ModelRefusal),
}

/// Which run is in progress in each sandbox: the engine's side of the gateway.
#[async_trait]
pub trait RunOf: Send + Sync + 'static {
    /// The run in progress in this sandbox; `None` if there is none, so that no model is asked.
    async fn run_of(&self, sandbox: &SandboxId) -> Option<RunningRun>;

    /// Hears what happens at the gateway. Called often, and also while an answer is dropped: it must
    /// not wait.
    fn activity(&self, run: &RunningRun, activity: ModelActivity);
}
