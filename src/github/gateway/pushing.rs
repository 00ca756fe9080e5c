//! A push: its head is read and judged, its outcome recorded.

use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, Stream, StreamExt};
use http_body_util::BodyExt;
use hyper::body::Frame;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use hyper::{Method, Response, StatusCode};

use super::super::api::GitAccess;
use super::super::push::{HeadRead, PushHead, PushRefusal, PushRules, check_headers, read_head};
use super::report::{ReportReader, Reported};
use super::route::GitService;
use super::{Asked, GatewayRefusal, GitHubGateway, replies};
use crate::git::{BodyError, GitBody, PushEnd, Workplaces};
use crate::sabotage::{Bug, on};
use crate::types::{Repository, SandboxId};

type DataStream = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

impl GitHubGateway {
    /// Answers `POST …/git-receive-pack`.
    pub(super) async fn push(
        &self,
        asked: &Asked<'_>,
        name: &Repository,
        body: GitBody,
    ) -> Response<GitBody> {
        let text = |name: HeaderName| asked.headers.get(name).and_then(|value| value.to_str().ok());
        let declared = text(CONTENT_LENGTH).and_then(|len| len.parse().ok());
        let checked = check_headers(
            text(CONTENT_TYPE),
            text(CONTENT_ENCODING),
            declared,
            asked.work.push_max_mb,
        );
        if let Err(refusal) = checked {
            return replies::plain(StatusCode::FORBIDDEN, &refusal.to_string());
        }
        let (read, body) = match head_of(body).await {
            Ok(whole) => whole,
            Err(refusal) => return replies::plain(StatusCode::FORBIDDEN, &refusal.to_string()),
        };
        let head = match read {
            HeadRead::Whole(head) => head,
            // `head_of` reads on until it is whole.
            HeadRead::Probe | HeadRead::Incomplete => {
                let passed = self.send_push(asked, name, body).await;
                return passed
                    .unwrap_or_else(|refused| replies::plain(refused.status, &refused.sentence));
            }
        };
        let sent = self.judged_push(asked, name, &head, body).await;
        sent.unwrap_or_else(|refused| replies::push_refused(&head, &refused.sentence))
    }

    async fn judged_push(
        &self,
        asked: &Asked<'_>,
        name: &Repository,
        head: &PushHead,
        body: DataStream,
    ) -> Result<Response<GitBody>, GatewayRefusal> {
        let (sandbox, work) = (asked.sandbox, asked.work);
        let refused = |sentence: String| GatewayRefusal::new(StatusCode::FORBIDDEN, sentence);
        let Some(branch) = &work.branch else {
            let sentence = "the sandbox has no branch yet; wait until its checkout is ready";
            return Err(refused(sentence.to_owned()));
        };
        let foreign = branch.foreign.as_ref().filter(|foreign| foreign.is_fetched);
        let rules = PushRules {
            branch: branch.name.clone(),
            tip: branch.tip.clone(),
            fetched: foreign.map(|foreign| foreign.oid.clone()).into_iter().collect(),
            denied: work.push_refusal.clone(),
        };
        if !on(Bug::PushJudgedLate) {
            self.judge(sandbox, &rules, head).await?;
        }
        // All commands are of one ref, and git makes one of them.
        let [command] = head.commands.as_slice() else {
            return Err(refused("a push may update its branch once".to_owned()));
        };
        let begun = self.workplaces.begin_push(sandbox, &command.old, &command.new).await;
        begun.map_err(refused)?;
        let body = bounded(body, work.push_max_mb);
        let answered = self.send_push(asked, name, body).await;
        if on(Bug::PushJudgedLate) {
            self.judge(sandbox, &rules, head).await?;
        }
        let follow_up = PushFollowUp {
            workplaces: Arc::clone(&self.workplaces),
            sandbox: sandbox.clone(),
            reference: format!("refs/heads/{}", branch.name),
            new: command.new.clone(),
        };
        match answered {
            Ok(answer) => {
                let side_band = head.can("side-band-64k") || head.can("side-band");
                Ok(follow_up.watch(answer, side_band))
            }
            Err(refused) if refused.status == StatusCode::SERVICE_UNAVAILABLE => {
                // GitHub may have it all the same.
                follow_up.ask_later();
                Err(refused)
            }
            Err(refused) => {
                follow_up.end(PushEnd::Refused { reason: refused.sentence.clone() }).await;
                Err(refused)
            }
        }
    }

    /// Holds a push against the rules of its branch.
    async fn judge(
        &self,
        sandbox: &SandboxId,
        rules: &PushRules,
        head: &PushHead,
    ) -> Result<(), GatewayRefusal> {
        let Err(refusal) = rules.check(head) else { return Ok(()) };
        if let PushRefusal::NotFetched { tip, .. } = &refusal {
            self.workplaces.foreign_tip(sandbox, tip).await;
        }
        Err(GatewayRefusal::new(StatusCode::FORBIDDEN, refusal.to_string()))
    }

    async fn send_push(
        &self,
        asked: &Asked<'_>,
        name: &Repository,
        body: DataStream,
    ) -> Result<Response<GitBody>, GatewayRefusal> {
        let access = GitAccess::Push { workflows: asked.work.workflows };
        let granted = self.grant(asked, name, access).await?;
        let path = GitService::ReceivePack.as_str();
        let body = http_body_util::StreamBody::new(body.map(|chunk| chunk.map(Frame::data)));
        self.pass_on(asked, &granted, Method::POST, path, Some(body.boxed_unsync())).await
    }
}

/// Reads the head of a push, and gives the whole body back.
async fn head_of(body: GitBody) -> Result<(HeadRead, DataStream), PushRefusal> {
    let mut rest = body.into_data_stream();
    let mut begun = BytesMut::new();
    loop {
        let chunk = rest.next().await;
        let is_end = chunk.is_none();
        match chunk {
            Some(Ok(chunk)) => begun.extend_from_slice(&chunk),
            Some(Err(_)) => return Err(PushRefusal::Malformed("it broke off")),
            None => {}
        }
        let read = read_head(&begun, is_end)?;
        if is_end || read != HeadRead::Incomplete {
            let begun = stream::once(std::future::ready(Ok(begun.freeze())));
            return Ok((read, Box::pin(begun.chain(rest))));
        }
    }
}

/// Breaks a body off that is longer than so many MiB.
fn bounded(body: DataStream, max_mb: u64) -> DataStream {
    let mut left = max_mb.saturating_mul(1 << 20);
    Box::pin(body.map(move |chunk| {
        let chunk = chunk?;
        match left.checked_sub(chunk.len() as u64) {
            Some(rest) => left = rest,
            None => return Err(BodyError::other(PushRefusal::TooLarge(max_mb))),
        }
        Ok(chunk)
    }))
}

/// Records what became of a push once GitHub has said it.
struct PushFollowUp {
    workplaces: Arc<dyn Workplaces>,
    sandbox: SandboxId,
    reference: String,
    new: String,
}

impl PushFollowUp {
    async fn end(&self, end: PushEnd) {
        self.workplaces.end_push(&self.sandbox, end).await;
    }

    /// GitHub's answer is unknown.
    fn ask_later(self) {
        // Without a runtime the server has ended: what was begun is asked for at its next start.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { self.end(PushEnd::Unknown).await });
        }
    }

    /// Reads the report in GitHub's answer as it passes, and records the outcome before the end of the
    /// report is passed on: what git pushes next is judged by it. A report that does not come whole
    /// leaves the outcome unknown, also when the sandbox goes away meanwhile.
    fn watch(self, answer: Response<GitBody>, side_band: bool) -> Response<GitBody> {
        answer.map(|body| {
            let watched = WatchedReport {
                body: Box::pin(body.into_data_stream()),
                report: ReportReader::new(side_band),
                follow_up: Some(self),
            };
            let body = stream::unfold(watched, |mut watched| async {
                let chunk = watched.next().await?;
                Some((chunk.map(Frame::data), watched))
            });
            http_body_util::StreamBody::new(body).boxed_unsync()
        })
    }
}

/// An answer to a push that is being passed on.
struct WatchedReport {
    body: DataStream,
    report: ReportReader,
    follow_up: Option<PushFollowUp>,
}

impl WatchedReport {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        let chunk = self.body.next().await?;
        if let Ok(bytes) = &chunk {
            self.report.read(bytes);
        }
        if let Some(follow_up) = &self.follow_up
            && let Some(reported) = self.report.of(&follow_up.reference)
        {
            let end = match reported {
                Reported::Ok => PushEnd::Pushed { tip: follow_up.new.clone() },
                Reported::Refused(reason) => PushEnd::Refused { reason },
            };
            follow_up.end(end).await;
            self.follow_up = None;
        }
        Some(chunk)
    }
}

impl Drop for WatchedReport {
    fn drop(&mut self) {
        if let Some(follow_up) = self.follow_up.take() {
            follow_up.ask_later();
        }
    }
}
