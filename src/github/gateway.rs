//! The git gateway to GitHub: judges what a sandbox's git asks for, and passes it on with a token.
//!
//! # Guarantees
//! - No credential enters a sandbox: what is passed on in both directions is a list of headers, and
//!   none of them carries one.
//! - A push reaches GitHub only if each of its commands updates the sandbox's own branch from a
//!   commit that the sandbox has; it is judged by its head, before a byte of it is sent
//!   ([`push`](super::push)).
//! - Bodies are streams in both directions: memory does not grow with a pack.
//! - Every refusal is a sentence that git shows.

mod lfs;
mod pushing;
mod replies;
mod report;
mod route;
mod upstream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::header::HeaderMap;
use hyper::{Method, Response, StatusCode};

use super::api::{GitAccess, GitHubApi, GitHubError, GitTokens, RepositoryTarget};
use crate::git::{GitBody, GitGateway, GitRequest, Workplace, Workplaces};
use crate::types::{Repository, SandboxId, Secret};
use lfs::LfsTickets;
use route::{GitRoute, GitService};
use upstream::{Upstream, authorization, words_for};

/// How many renamed repositories are remembered.
const RENAMED_MAX: usize = 1_000;

/// The gateway to one GitHub.
pub struct GitHubGateway {
    api: Arc<dyn GitHubApi>,
    tokens: Arc<dyn GitTokens>,
    workplaces: Arc<dyn Workplaces>,
    upstream: Upstream,
    /// Where repositories are, such as `https://github.com`.
    web_url: String,
    tickets: LfsTickets,
    /// The names that GitHub's redirects lead to, by the name that led there.
    renamed: Mutex<HashMap<Repository, Repository>>,
}

/// Why a request is not passed on: a status for requests that have one, and the sentence.
#[derive(Debug)]
struct GatewayRefusal {
    status: StatusCode,
    sentence: String,
}

impl GatewayRefusal {
    fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }
}

impl From<GitHubError> for GatewayRefusal {
    fn from(error: GitHubError) -> Self {
        let status = match &error {
            GitHubError::NotFound(_) | GitHubError::Gone(_) | GitHubError::Moved { .. } => {
                StatusCode::NOT_FOUND
            }
            GitHubError::Held { .. } | GitHubError::Refused { .. } => StatusCode::FORBIDDEN,
            GitHubError::Limited { .. }
            | GitHubError::Unauthorized(_)
            | GitHubError::AlreadyExists(_)
            | GitHubError::Unknown(_)
            | GitHubError::Unreachable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self { status, sentence: error.to_string() }
    }
}

/// A request that may be passed on.
struct Granted {
    /// The repository, as it is called now.
    name: Repository,
    token: Option<Secret>,
    /// Whether it is that of the sandbox's issue.
    is_own: bool,
}

impl GitHubGateway {
    /// A gateway to the repositories below `web_url`.
    ///
    /// # Errors
    /// If the system's certificates cannot be used.
    pub fn new(
        web_url: &str,
        api: Arc<dyn GitHubApi>,
        tokens: Arc<dyn GitTokens>,
        workplaces: Arc<dyn Workplaces>,
    ) -> reqwest::Result<Self> {
        Ok(Self {
            api,
            tokens,
            workplaces,
            upstream: Upstream::new()?,
            web_url: web_url.trim_end_matches('/').to_owned(),
            tickets: LfsTickets::default(),
            renamed: Mutex::default(),
        })
    }

    fn renamed(&self) -> MutexGuard<'_, HashMap<Repository, Repository>> {
        self.renamed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a sandbox may have a repository, and with which token.
    async fn grant(
        &self,
        by: &Asked<'_>,
        asked: &Repository,
        access: GitAccess,
    ) -> Result<Granted, GatewayRefusal> {
        let work = by.work;
        let is_own = work.names.iter().any(|name| name.folded() == asked.folded());
        if is_own {
            let token = self.tokens.git_token(&work.repository, &[], access).await?;
            let name = &work.repository.name;
            let name = self.renamed().get(name).unwrap_or(name).clone();
            return Ok(Granted { name, token: Some(token), is_own });
        }
        if access != GitAccess::Read {
            let sentence = format!(
                "a sandbox pushes to the repository of its issue alone, {}",
                work.repository.name
            );
            return Err(GatewayRefusal::new(StatusCode::FORBIDDEN, sentence));
        }
        if work.read.iter().any(|name| name.folded() == asked.folded()) {
            let target = RepositoryTarget::named(asked.clone());
            let token = self.tokens.git_token(&target, &[], access).await?;
            return Ok(Granted { name: asked.clone(), token: Some(token), is_own });
        }
        if by.reaches_upstream {
            // As anybody's: what is not public is not found.
            return Ok(Granted { name: asked.clone(), token: None, is_own });
        }
        let sentence = format!(
            "this sandbox may read {} alone; list {asked} in `git.read` of its template",
            work.repository.name
        );
        Err(GatewayRefusal::new(StatusCode::FORBIDDEN, sentence))
    }

    /// Passes a request without a push on. A repository that was renamed is asked for once more
    /// under its new name, if the body can be sent again.
    async fn pass_on(
        &self,
        asked: &Asked<'_>,
        granted: &Granted,
        method: Method,
        path: &str,
        mut body: Option<GitBody>,
    ) -> Result<Response<GitBody>, GatewayRefusal> {
        let own = authorization(granted.token.as_ref());
        let mut name = granted.name.clone();
        let may_repeat = body.is_none();
        for is_last in [!may_repeat, true] {
            let url = format!("{}/{name}.git/{path}", self.web_url);
            let sent = body.take().map_or_else(reqwest::Body::default, stream);
            let answer = self.upstream.send(method.clone(), &url, asked.headers, &own, sent).await;
            let answer = answer.map_err(|error| {
                tracing::warn!(error = %error.without_url(), "GitHub was not reached for git");
                let sentence = "cannot reach GitHub; nothing changed, try again in a moment";
                GatewayRefusal::new(StatusCode::SERVICE_UNAVAILABLE, sentence)
            })?;
            let status = answer.status();
            if status.is_success() {
                return Ok(answer);
            }
            if status.is_redirection() && granted.is_own && !is_last {
                name = self.api.repository(&asked.work.repository).await?.name;
                let mut renamed = self.renamed();
                // A delivery brings the new name soon: this need not be remembered for long.
                if renamed.len() >= RENAMED_MAX {
                    renamed.clear();
                }
                renamed.insert(asked.work.repository.name.clone(), name.clone());
                continue;
            }
            let status = match status.as_u16() {
                // Asked as anybody.
                401 if granted.token.is_none() => StatusCode::NOT_FOUND,
                // git would ask for a name and password.
                401 | 429 | 500.. => StatusCode::SERVICE_UNAVAILABLE,
                404 => StatusCode::NOT_FOUND,
                _ => StatusCode::FORBIDDEN,
            };
            let shown = if granted.token.is_none() { status } else { answer.status() };
            return Err(GatewayRefusal::new(status, words_for(shown)));
        }
        unreachable!("the last round returns")
    }

    async fn serve(&self, ask: GitRequest) -> Response<GitBody> {
        let GitRequest { sandbox, reaches_upstream, request } = ask;
        let (head, body) = request.into_parts();
        let Some(route) = GitRoute::parse(&head.method, &head.uri) else {
            let sentence = "the gateway serves git over smart HTTP and Git LFS, and nothing else";
            return replies::plain(StatusCode::NOT_FOUND, sentence);
        };
        if let GitRoute::LfsObject(ticket) = &route {
            return self.lfs_object(&sandbox, ticket, head, body).await;
        }
        let Some(work) = self.workplaces.workplace(&sandbox).await else {
            let sentence = "the server does not know the repository of this sandbox's issue";
            return replies::plain(StatusCode::NOT_FOUND, sentence);
        };
        let asked =
            Asked { sandbox: &sandbox, work: &work, headers: &head.headers, reaches_upstream };
        match route {
            GitRoute::Refs(name, service) => {
                let answered = self.refs(&asked, &name, service).await;
                answered.unwrap_or_else(|refused| replies::plain(refused.status, &refused.sentence))
            }
            GitRoute::Exchange(name, GitService::UploadPack) => {
                let fetched = self.fetch(&asked, &name, body).await;
                fetched.unwrap_or_else(|refused| replies::fetch_failed(&refused.sentence))
            }
            GitRoute::Exchange(name, GitService::ReceivePack) => {
                self.push(&asked, &name, body).await
            }
            GitRoute::LfsBatch(name) => {
                let answered = self.lfs_batch(&asked, &name, body).await;
                answered.unwrap_or_else(|refused| {
                    replies::lfs_refused(refused.status, &refused.sentence)
                })
            }
            GitRoute::LfsObject(_) => unreachable!("it was answered above"),
        }
    }

    async fn refs(
        &self,
        asked: &Asked<'_>,
        name: &Repository,
        service: GitService,
    ) -> Result<Response<GitBody>, GatewayRefusal> {
        let access = match service {
            GitService::UploadPack => GitAccess::Read,
            GitService::ReceivePack => GitAccess::Push { workflows: asked.work.workflows },
        };
        let granted = self.grant(asked, name, access).await?;
        let path = format!("info/refs?service={}", service.as_str());
        self.pass_on(asked, &granted, Method::GET, &path, None).await
    }

    async fn fetch(
        &self,
        asked: &Asked<'_>,
        name: &Repository,
        body: GitBody,
    ) -> Result<Response<GitBody>, GatewayRefusal> {
        let granted = self.grant(asked, name, GitAccess::Read).await?;
        let path = GitService::UploadPack.as_str();
        let answer = self.pass_on(asked, &granted, Method::POST, path, Some(body)).await?;
        let is_awaited = asked.work.branch.as_ref().and_then(|branch| branch.foreign.as_ref());
        if granted.is_own && is_awaited.is_some_and(|foreign| !foreign.is_fetched) {
            self.workplaces.fetched(asked.sandbox).await;
        }
        Ok(answer)
    }
}

/// Who asks, and what is passed on of the request.
struct Asked<'a> {
    sandbox: &'a SandboxId,
    work: &'a Workplace,
    headers: &'a HeaderMap,
    /// Whether the sandbox's network reaches GitHub's host without the gateway.
    reaches_upstream: bool,
}

/// A body that is sent as it arrives.
fn stream(body: GitBody) -> reqwest::Body {
    reqwest::Body::wrap_stream(body.into_data_stream())
}

#[async_trait]
impl GitGateway for GitHubGateway {
    async fn answer(&self, request: GitRequest) -> Response<GitBody> {
        self.serve(request).await
    }
}

#[cfg(test)]
mod tests;
