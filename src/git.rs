//! The port of the git gateway: what git asks for inside of a sandbox is answered outside of it.
//!
//! A sandbox holds no credential. Its git sends every request for the host of the issues to
//! [`GATEWAY_HOST`], which has no address: the egress proxy takes such a request by its name and
//! gives it to a [`GitGateway`], together with the sandbox that it came from. The gateway asks
//! [`Workplaces`] what this sandbox works on, and adds the token outside. Where pushes wait for a
//! person, a [`WorkPublisher`] lets them pass.

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::{Request, Response};

use crate::github::api::RepositoryTarget;
use crate::types::{HostName, Repository, SandboxId};

/// The name of the gateway inside of every sandbox. It is never resolved.
pub const GATEWAY_HOST: &str = "git.issuebox";

/// Why a body ended early.
pub type BodyError = std::io::Error;

/// The body of a request to the gateway, or of its answer.
pub type GitBody = UnsyncBoxBody<Bytes, BodyError>;

/// A request that git sent inside of a sandbox.
#[derive(Debug)]
pub struct GitRequest {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Whether its network reaches [`LateGateway::upstream`] without the gateway. Then it
    /// may read public repositories there.
    pub reaches_upstream: bool,
    /// The request as it was sent; its path is that of the repository.
    pub request: Request<GitBody>,
}

/// Answers git's requests.
#[async_trait]
pub trait GitGateway: Send + Sync + 'static {
    /// Answers a request. What fails is said in a form that git shows to people.
    async fn answer(&self, request: GitRequest) -> Response<GitBody>;
}

/// A gateway that is set while everything that it needs is there: providers are opened before.
#[derive(Clone)]
pub struct LateGateway {
    web_url: Arc<str>,
    host: (HostName, u16),
    gateway: Arc<RwLock<Option<Arc<dyn GitGateway>>>>,
}

impl LateGateway {
    /// A gateway to the repositories below `web_url` that answers 503 until it is set.
    ///
    /// # Errors
    /// If `web_url` has no host.
    pub fn new(web_url: &str) -> Result<Self, String> {
        let url = reqwest::Url::parse(web_url).map_err(|error| error.to_string())?;
        let host = HostName::parse(url.host_str().ok_or("it has no host")?)?;
        let host = (host, url.port_or_known_default().unwrap_or(443));
        let web_url = web_url.trim_end_matches('/').into();
        Ok(Self { web_url, host, gateway: Arc::default() })
    }

    /// The host and port that the gateway stands for.
    pub fn upstream(&self) -> (HostName, u16) {
        self.host.clone()
    }

    /// Sets the gateway, or takes it away: it holds what holds the providers, which hold this.
    pub fn set(&self, gateway: Option<Arc<dyn GitGateway>>) {
        *self.gateway.write().unwrap_or_else(PoisonError::into_inner) = gateway;
    }

    /// git's settings inside of a sandbox: all forms of a repository's address lead to the gateway,
    /// and the gateway to the proxy. Empty with the host's network, where no gateway is.
    pub fn git_config(&self, has_host_network: bool) -> Bytes {
        if has_host_network {
            return Bytes::new();
        }
        let web = &self.web_url;
        let host = &self.host.0;
        format!(
            "[http \"http://{GATEWAY_HOST}/\"]\n\tproxy = http://127.0.0.1:3128\n\
             [url \"http://{GATEWAY_HOST}/\"]\n\tinsteadOf = {web}/\n\
             \tinsteadOf = git@{host}:\n\tinsteadOf = ssh://git@{host}/\n"
        )
        .into()
    }
}

impl fmt::Debug for LateGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateGateway").field("web_url", &self.web_url).finish_non_exhaustive()
    }
}

#[async_trait]
impl GitGateway for LateGateway {
    async fn answer(&self, request: GitRequest) -> Response<GitBody> {
        let gateway = self.gateway.read().unwrap_or_else(PoisonError::into_inner).clone();
        match gateway {
            Some(gateway) => gateway.answer(request).await,
            None => {
                let text = "issuebox: the server starts or ends; try again in a moment\n";
                let body = http_body_util::Full::from(text).map_err(|never| match never {});
                let mut response = Response::new(body.boxed_unsync());
                *response.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
                response
            }
        }
    }
}

/// What a sandbox works on, and what it may push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workplace {
    /// The repository of its issue.
    pub repository: RepositoryTarget,
    /// What it is called now, and what it was called when it was checked out.
    pub names: Vec<Repository>,
    /// Its branch there, once there is one.
    pub branch: Option<WorkBranch>,
    /// Further repositories that it may read.
    pub read: Vec<Repository>,
    /// The largest push, in MiB.
    pub push_max_mb: u64,
    /// Whether it may change the files of workflows.
    pub workflows: bool,
    /// Why nothing may be pushed now, as a sentence for who pushes.
    pub push_refusal: Option<String>,
}

/// The branch of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkBranch {
    /// Its name, without `refs/heads/`.
    pub name: String,
    /// The last commit that was pushed to it from here.
    pub tip: Option<String>,
    /// The commit of others that a refusal named.
    pub foreign: Option<ForeignTip>,
}

/// A commit on a sandbox's branch that was not pushed from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignTip {
    /// The commit.
    pub oid: String,
    /// Whether the sandbox fetched since the refusal named it, and so may build on it.
    pub is_fetched: bool,
}

/// What becomes of a push, for the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushEnd {
    /// The branch is there now.
    Pushed {
        /// Its tip.
        tip: String,
    },
    /// It did not change.
    Refused {
        /// GitHub's words, or ours.
        reason: String,
    },
    /// There was no answer: GitHub is to be asked where the branch is.
    Unknown,
}

/// What sandboxes work on: the engine's side of the gateway.
#[async_trait]
pub trait Workplaces: Send + Sync + 'static {
    /// What a sandbox works on; `None` if it has no repository, or is gone.
    async fn workplace(&self, sandbox: &SandboxId) -> Option<Workplace>;

    /// Records that the sandbox fetched from its repository.
    async fn fetched(&self, sandbox: &SandboxId);

    /// Records that its branch has a commit of others.
    async fn foreign_tip(&self, sandbox: &SandboxId, oid: &str);

    /// Records durably that it is about to push.
    ///
    /// # Errors
    /// Why it may not, or why that cannot be recorded, as a sentence for who pushes.
    async fn begin_push(&self, sandbox: &SandboxId, old: &str, new: &str) -> Result<(), String>;

    /// Records what became of the push.
    async fn end_push(&self, sandbox: &SandboxId, end: PushEnd);
}

/// Publishes the work of sandboxes whose pushes wait for a person.
#[async_trait]
pub trait WorkPublisher: Send + Sync + 'static {
    /// Lets a sandbox push from now on, and has it push its branch. The permission is durable before
    /// that, and stays if the push fails. `by` says who published, for people. Returns the branch.
    ///
    /// # Errors
    /// [`PublishRefusal`].
    async fn publish(&self, sandbox: &SandboxId, by: &str) -> Result<String, PublishRefusal>;
}

/// Why work is not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefusal {
    /// There is nothing to publish.
    #[error("the sandbox has no checkout to publish; wait until it is ready")]
    NoCheckout,
    /// The configuration forbids it.
    #[error("pushes are turned off here: set github.publish to \"ask\" or \"auto\" to allow them")]
    TurnedOff,
    /// The issue is closed.
    #[error("the issue is closed; reopen it to publish its work")]
    Closed,
    /// The permission is recorded, but the push failed.
    #[error("the sandbox may push now, but its push failed: {0}")]
    NotPushed(String),
    /// The permission cannot be recorded. The text is for the log.
    #[error("it cannot be recorded now; try again in a moment")]
    NotRecorded(String),
}

/// A publisher that is set once there is one. It does not keep it alive: the publisher holds the
/// engine, which holds this.
#[derive(Clone, Default)]
pub struct LatePublisher(Arc<OnceLock<Weak<dyn WorkPublisher>>>);

impl LatePublisher {
    /// Sets the publisher. Only the first one counts.
    pub fn set(&self, publisher: Weak<dyn WorkPublisher>) {
        // There is one for each server.
        drop(self.0.set(publisher));
    }

    /// The publisher; `None` while the server starts or ends, and without credentials for GitHub.
    pub fn get(&self) -> Option<Arc<dyn WorkPublisher>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

impl fmt::Debug for LatePublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LatePublisher")
    }
}
