//! Git LFS through the gateway: where objects are is answered as addresses of the gateway itself.
//!
//! GitHub's answer to a batch request names signed addresses of an object store, and headers with
//! credentials for minutes. A sandbox gets a ticket for each instead: the address and its headers
//! stay here, so that no object store needs to be in an allow list. A ticket is good for the sandbox
//! that asked, and for nothing else.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::super::api::GitAccess;
use super::route::LFS_PREFIX;
use super::{Asked, GatewayRefusal, GitHubGateway, replies, stream};
use crate::git::{GATEWAY_HOST, GitBody};
use crate::types::{Repository, SandboxId};

/// The media type of the batch API.
pub const MEDIA_TYPE: &str = "application/vnd.git-lfs+json";

/// Longest batch request or answer, in bytes. git-lfs asks for 100 objects at a time.
const BATCH_LEN_MAX: usize = 1 << 20;
/// Most tickets at a time; the oldest goes first.
const TICKETS_MAX: usize = 10_000;
/// How long a ticket is kept. GitHub's addresses are good for less.
const TICKET_AGE_MAX: Duration = Duration::from_secs(3_600);

/// The addresses behind tickets.
#[derive(Debug, Default)]
pub struct LfsTickets(Mutex<HashMap<String, LfsTicket>>);

#[derive(Clone, Debug)]
struct LfsTicket {
    sandbox: SandboxId,
    href: String,
    headers: HeaderMap,
    since: Instant,
}

impl LfsTickets {
    fn all(&self) -> MutexGuard<'_, HashMap<String, LfsTicket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, ticket: LfsTicket) -> String {
        let mut name = Sha256::new();
        name.update(ticket.sandbox.as_str());
        name.update([0]);
        name.update(&ticket.href);
        let name = hex::encode(name.finalize());
        let mut all = self.all();
        all.retain(|_, ticket| ticket.since.elapsed() < TICKET_AGE_MAX);
        if all.len() >= TICKETS_MAX
            && let Some(oldest) = all.iter().min_by_key(|(_, ticket)| ticket.since)
        {
            let oldest = oldest.0.clone();
            all.remove(&oldest);
        }
        all.insert(name.clone(), ticket);
        name
    }

    fn get(&self, name: &str, sandbox: &SandboxId) -> Option<LfsTicket> {
        let all = self.all();
        let ticket = all.get(name).filter(|ticket| ticket.since.elapsed() < TICKET_AGE_MAX);
        ticket.filter(|ticket| ticket.sandbox == *sandbox).cloned()
    }
}

/// What is read of a batch request.
#[derive(Deserialize)]
struct BatchRequest {
    operation: String,
}

/// What is changed in the answer; the rest is passed on.
#[derive(Deserialize, Serialize)]
struct BatchAnswer {
    #[serde(default)]
    objects: Vec<BatchObject>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize, Serialize)]
struct BatchObject {
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    actions: HashMap<String, BatchAction>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize, Serialize)]
struct BatchAction {
    href: String,
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    header: HashMap<String, String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl GitHubGateway {
    /// Answers a batch request.
    pub(super) async fn lfs_batch(
        &self,
        by: &Asked<'_>,
        name: &Repository,
        body: GitBody,
    ) -> Result<Response<GitBody>, GatewayRefusal> {
        let bad = |what| GatewayRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, what);
        let asked = Limited::new(body, BATCH_LEN_MAX).collect().await;
        let asked = asked.map_err(|_| bad("the batch request is too long"))?.to_bytes();
        let batch: BatchRequest = serde_json::from_slice(&asked)
            .map_err(|_| bad("this is no batch request of Git LFS"))?;
        let access = match batch.operation.as_str() {
            "download" => GitAccess::Read,
            "upload" => GitAccess::Push { workflows: false },
            _ => return Err(bad("the operation is neither download nor upload")),
        };
        let granted = self.grant(by, name, access).await?;
        let path = "info/lfs/objects/batch";
        let body = http_body_util::Full::new(asked).map_err(|never| match never {}).boxed_unsync();
        let answer = self.pass_on(by, &granted, Method::POST, path, Some(body)).await?;
        let strange = || {
            let sentence = "GitHub's answer about Git LFS was not understood";
            GatewayRefusal::new(StatusCode::BAD_GATEWAY, sentence)
        };
        let answer = Limited::new(answer.into_body(), BATCH_LEN_MAX).collect().await;
        let answer = answer.map_err(|_| strange())?.to_bytes();
        let mut answer: BatchAnswer = serde_json::from_slice(&answer).map_err(|_| strange())?;
        for action in answer.objects.iter_mut().flat_map(|object| object.actions.values_mut()) {
            self.replace(by.sandbox, action).ok_or_else(strange)?;
        }
        let body = serde_json::to_vec(&answer).map_err(|_| strange())?;
        Ok(replies::reply(StatusCode::OK, MEDIA_TYPE, body.into()))
    }

    /// Puts a ticket in place of an address and its headers; `None` for what is no web address.
    fn replace(&self, sandbox: &SandboxId, action: &mut BatchAction) -> Option<()> {
        // Unencrypted only where the repositories are, too.
        let is_web = action.href.starts_with("https://")
            || (action.href.starts_with("http://") && self.web_url.starts_with("http://"));
        let mut headers = HeaderMap::new();
        for (name, value) in std::mem::take(&mut action.header) {
            let name = HeaderName::try_from(name).ok()?;
            headers.insert(name, HeaderValue::try_from(value).ok()?);
        }
        let href = std::mem::take(&mut action.href);
        let since = Instant::now();
        let ticket = LfsTicket { sandbox: sandbox.clone(), href, headers, since };
        action.href = format!("http://{GATEWAY_HOST}{LFS_PREFIX}{}", self.tickets.add(ticket));
        is_web.then_some(())
    }

    /// Passes an object on.
    pub(super) async fn lfs_object(
        &self,
        sandbox: &SandboxId,
        ticket: &str,
        head: Parts,
        body: GitBody,
    ) -> Response<GitBody> {
        let Some(ticket) = self.tickets.get(ticket, sandbox) else {
            let sentence = "this address of a Git LFS object is not valid any more; ask again";
            return replies::lfs_refused(StatusCode::NOT_FOUND, sentence);
        };
        let sent = match head.method {
            Method::GET => reqwest::Body::default(),
            _ => stream(body),
        };
        let url = &ticket.href;
        let sent = self.upstream.send(head.method, url, &head.headers, &ticket.headers, sent);
        match sent.await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(error = %error.without_url(), "an object store was not reached");
                let sentence = "cannot reach the store of Git LFS objects; try again in a moment";
                replies::lfs_refused(StatusCode::BAD_GATEWAY, sentence)
            }
        }
    }
}
