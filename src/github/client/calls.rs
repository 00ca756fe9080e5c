//! The port's calls, each as GitHub wants it.

use async_trait::async_trait;
use hyper::Method;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::types::{IssueNumber, Timestamp};

use super::super::api::{
    Conditional, DeliveryLogPage, DeliverySource, GitHubApi, GitHubComment, GitHubError,
    GitHubFigures, GitHubFile, GitHubHook, GitHubIdentity, GitHubIssue, GitHubPull,
    GitHubRepository, GitHubWriter, HeldReason, Installation, LoginPermission, NewPull, PageCursor,
    PullEdit, Reaction, ReactionTarget, RepositoryTarget, ReviewComment, StatusEntry,
    StoredDelivery, VERIFICATION_QUERY, VerifiedIssue, WriteTurn, WriteUrgency,
};
use super::GitHubClient;
use super::ask::{Ask, CallClass};
use super::credentials::{CallAuth, GitHubCredentials};
use super::reads::{branch_path, conditional, in_repository, list, query_value, segment};
use super::tokens::TokenKey;
use super::tokens::TokenPurpose::{List, Members, Speak, Status, Verify};
use super::transport::HttpAnswer;
use super::verification::verified;
use super::wire::{
    WireComment, WireDelivery, WireHook, WireInstallation, WireIssue, WirePermission, WirePull,
    WireRef, WireRepositories, WireRepository, WireReviewComment, file, read,
};

/// The pause after a limit that GraphQL names without a time.
const GRAPHQL_PAUSE: std::time::Duration = std::time::Duration::from_secs(60);

impl GitHubClient {
    /// A writing call in a repository.
    async fn write(
        &self,
        kind: &'static str,
        turn: WriteTurn,
        target: &RepositoryTarget,
        method: Method,
        below: &str,
        body: Option<Value>,
    ) -> Result<HttpAnswer, GitHubError> {
        let purpose = if kind == "set_status" { Status } else { Speak };
        let auth = self.auth(target, purpose).await?;
        let path = in_repository(target, below);
        let ask = Ask {
            body,
            target: Some(target),
            class: CallClass::Write,
            ..Ask::new(kind, method, path, auth)
        };
        let asked = self.ask(ask).await;
        drop(turn);
        asked
    }

    /// How the members of an organisation, by its path, are asked for.
    async fn member_auth(&self, organization: &str) -> Result<CallAuth, GitHubError> {
        if let GitHubCredentials::Token(_) = *self.credentials() {
            return Ok(CallAuth::Token);
        }
        let path = format!("{organization}/installation");
        let ask = Ask::new("installation", Method::GET, path, CallAuth::Jwt);
        let installation: Installation = match self.ask(ask).await {
            Ok(answer) => read::<WireInstallation>(&answer.body)?.into(),
            Err(GitHubError::NotFound(words)) => {
                return Err(GitHubError::Held { reason: HeldReason::Uninstalled, words });
            }
            Err(error) => return Err(error),
        };
        let (purpose, repositories) = (Members, Vec::new());
        Ok(CallAuth::Installation(TokenKey {
            installation: installation.id,
            purpose,
            repositories,
        }))
    }

    /// A call in the delivery log.
    async fn log_ask<'a>(
        &self,
        kind: &'static str,
        source: &'a DeliverySource,
        method: Method,
        below: &str,
    ) -> Result<Ask<'a>, GitHubError> {
        let class = CallClass::Background;
        Ok(match source {
            DeliverySource::App => {
                let path = format!("/app/hook/deliveries{below}");
                Ask { class, ..Ask::new(kind, method, path, CallAuth::Jwt) }
            }
            DeliverySource::Hook { target, hook_id } => {
                let path = in_repository(target, &format!("/hooks/{hook_id}/deliveries{below}"));
                let auth = self.auth(target, List).await?;
                Ask { class, target: Some(target), ..Ask::new(kind, method, path, auth) }
            }
        })
    }
}

#[async_trait]
impl GitHubWriter for GitHubClient {
    async fn identity(&self) -> Result<GitHubIdentity, GitHubError> {
        let mut known = self.identity.lock().await;
        if let Some(identity) = known.as_ref() {
            return Ok(identity.clone());
        }
        let identity = self.ask_identity().await?;
        *known = Some(identity.clone());
        Ok(identity)
    }

    fn github_now(&self) -> Timestamp {
        self.transport.clock.now()
    }

    async fn turn(
        &self,
        target: &RepositoryTarget,
        urgency: WriteUrgency,
    ) -> Result<WriteTurn, GitHubError> {
        let writer = self.writer(target).await?;
        self.queues.turn(writer, urgency).await
    }

    async fn comments_since(
        &self,
        target: &RepositoryTarget,
        number: IssueNumber,
        since: Timestamp,
        page: &PageCursor,
    ) -> Result<(Vec<GitHubComment>, Option<PageCursor>), GitHubError> {
        let since = query_value(&since.to_string());
        let below = format!("/issues/{number}/comments?since={since}&per_page=100");
        let auth = self.auth(target, List).await?;
        let path = in_repository(target, &below);
        let ask = Ask { target: Some(target), ..Ask::new("comments", Method::GET, path, auth) };
        let (answer, next) = self.page(ask, page).await?;
        Ok((list::<WireComment, _>(&answer.body)?, next))
    }

    async fn comment(
        &self,
        target: &RepositoryTarget,
        id: u64,
        known: Option<&str>,
    ) -> Result<Conditional<GitHubComment>, GitHubError> {
        let below = format!("/issues/comments/{id}");
        let answer = self.read_of("comment", target, List, &below, known).await?;
        conditional(&answer, |wire: WireComment| wire.into())
    }

    async fn pulls_of(
        &self,
        target: &RepositoryTarget,
        branch: &str,
    ) -> Result<Vec<GitHubPull>, GitHubError> {
        let head = query_value(&format!("{}:{branch}", target.owner()));
        let below = format!("/pulls?head={head}&state=all&per_page=100");
        let answer = self.read_of("pulls", target, Speak, &below, None).await?;
        list::<WirePull, _>(&answer.body)
    }

    async fn create_comment(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        body: &str,
    ) -> Result<GitHubComment, GitHubError> {
        let (below, body) = (format!("/issues/{number}/comments"), Some(json!({"body": body})));
        let answer = self.write("create_comment", turn, target, Method::POST, &below, body).await?;
        Ok(read::<WireComment>(&answer.body)?.into())
    }

    async fn edit_comment(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        id: u64,
        body: &str,
    ) -> Result<GitHubComment, GitHubError> {
        let (below, body) = (format!("/issues/comments/{id}"), Some(json!({"body": body})));
        let answer = self.write("edit_comment", turn, target, Method::PATCH, &below, body).await?;
        Ok(read::<WireComment>(&answer.body)?.into())
    }

    async fn react(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        to: ReactionTarget,
        with: Reaction,
    ) -> Result<(), GitHubError> {
        let below = match to {
            ReactionTarget::Issue(number) => format!("/issues/{number}/reactions"),
            ReactionTarget::Comment(id) => format!("/issues/comments/{id}/reactions"),
        };
        let body = Some(json!({"content": with.as_str()}));
        self.write("react", turn, target, Method::POST, &below, body).await.map(|_| ())
    }

    async fn add_label(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        label: &str,
    ) -> Result<(), GitHubError> {
        let (below, body) = (format!("/issues/{number}/labels"), Some(json!({"labels": [label]})));
        self.write("add_label", turn, target, Method::POST, &below, body).await.map(|_| ())
    }

    async fn remove_label(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        label: &str,
    ) -> Result<(), GitHubError> {
        let below = format!("/issues/{number}/labels/{}", segment(label));
        match self.write("remove_label", turn, target, Method::DELETE, &below, None).await {
            Err(GitHubError::NotFound(words)) if words.contains("Label does not exist") => Ok(()),
            asked => asked.map(|_| ()),
        }
    }

    async fn create_pull(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        pull: &NewPull,
    ) -> Result<GitHubPull, GitHubError> {
        let body = json!({
            "title": pull.title, "head": pull.head, "base": pull.base, "body": pull.body,
            "draft": pull.draft, "maintainer_can_modify": true,
        });
        let answer =
            self.write("create_pull", turn, target, Method::POST, "/pulls", Some(body)).await?;
        Ok(read::<WirePull>(&answer.body)?.into())
    }

    async fn edit_pull(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        number: IssueNumber,
        edit: &PullEdit,
    ) -> Result<GitHubPull, GitHubError> {
        let mut body = serde_json::Map::new();
        for (name, text) in [("title", &edit.title), ("body", &edit.body)] {
            if let Some(text) = text {
                body.insert(name.to_owned(), json!(text));
            }
        }
        let (below, body) = (format!("/pulls/{number}"), Some(Value::Object(body)));
        let answer = self.write("edit_pull", turn, target, Method::PATCH, &below, body).await?;
        Ok(read::<WirePull>(&answer.body)?.into())
    }

    async fn set_status(
        &self,
        turn: WriteTurn,
        target: &RepositoryTarget,
        commit: &str,
        status: &StatusEntry,
    ) -> Result<(), GitHubError> {
        let mut body = json!({
            "state": status.state.as_str(), "context": status.context,
            "description": status.description,
        });
        if let Some(url) = &status.target_url {
            body["target_url"] = json!(url);
        }
        let below = format!("/statuses/{}", segment(commit));
        let answer =
            self.write("set_status", turn, target, Method::POST, &below, Some(body)).await?;
        read::<IgnoredAny>(&answer.body).map(|_| ())
    }
}

#[async_trait]
impl GitHubApi for GitHubClient {
    fn figures(&self) -> GitHubFigures {
        GitHubFigures {
            requests: self.counts.all(),
            remaining: self.reads.lowest(),
            queue: u64::try_from(self.queues.len()).unwrap_or(u64::MAX),
        }
    }

    async fn issue(
        &self,
        target: &RepositoryTarget,
        number: IssueNumber,
        known: Option<&str>,
    ) -> Result<Conditional<GitHubIssue>, GitHubError> {
        let below = format!("/issues/{number}");
        let answer = self.read_of("issue", target, List, &below, known).await?;
        conditional(&answer, |wire: WireIssue| wire.into())
    }

    async fn permission(
        &self,
        target: &RepositoryTarget,
        login: &str,
    ) -> Result<LoginPermission, GitHubError> {
        let below = format!("/collaborators/{}/permission", segment(login));
        let answer = self.read_of("permission", target, List, &below, None).await?;
        Ok(read::<WirePermission>(&answer.body)?.into())
    }

    async fn is_member(&self, organization: &str, login: &str) -> Result<bool, GitHubError> {
        let organization = format!("/orgs/{}", segment(organization));
        let auth = self.member_auth(&organization).await?;
        let path = format!("{organization}/members/{}", segment(login));
        match self.ask(Ask::new("member", Method::GET, path, auth)).await {
            Ok(_) => Ok(true),
            Err(GitHubError::NotFound(_)) => Ok(false),
            // GitHub leads who does not see the members to the list of the public ones.
            Err(GitHubError::Refused { status: 302, .. }) => {
                let words = "the members of the organisation are not shown to us".to_owned();
                let reason = HeldReason::Permission(Some("members=read".to_owned()));
                Err(GitHubError::Held { reason, words })
            }
            Err(error) => Err(error),
        }
    }

    async fn review_comments(
        &self,
        target: &RepositoryTarget,
        pull: IssueNumber,
        review: u64,
        page: &PageCursor,
    ) -> Result<(Vec<ReviewComment>, Option<PageCursor>), GitHubError> {
        let below = format!("/pulls/{pull}/reviews/{review}/comments?per_page=100");
        let auth = self.auth(target, Speak).await?;
        let path = in_repository(target, &below);
        let ask = Ask { target: Some(target), ..Ask::new("review", Method::GET, path, auth) };
        let (answer, next) = self.page(ask, page).await?;
        Ok((list::<WireReviewComment, _>(&answer.body)?, next))
    }

    async fn branch_tip(
        &self,
        target: &RepositoryTarget,
        branch: &str,
    ) -> Result<Option<String>, GitHubError> {
        let below = format!("/git/ref/heads/{}", branch_path(branch));
        match self.read_of("branch_tip", target, Verify, &below, None).await {
            Ok(answer) => Ok(Some(read::<WireRef>(&answer.body)?.commit())),
            // 409: the repository has no commits yet.
            Err(GitHubError::NotFound(_) | GitHubError::Refused { status: 409, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn file(
        &self,
        target: &RepositoryTarget,
        path: &str,
        commit: &str,
    ) -> Result<Option<GitHubFile>, GitHubError> {
        let below = format!("/contents/{}?ref={}", branch_path(path), query_value(commit));
        match self.read_of("file", target, Verify, &below, None).await {
            Ok(answer) => file(&answer.body).map(Some),
            Err(GitHubError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn verify(
        &self,
        target: &RepositoryTarget,
        number: IssueNumber,
        base: &str,
    ) -> Result<VerifiedIssue, GitHubError> {
        let name = target.name.as_str().split_once('/').map_or("", |(_, name)| name);
        let variables = json!({
            "owner": target.owner(), "name": name, "number": number.0,
            "base": format!("refs/heads/{base}"), "hasBase": !base.is_empty(),
        });
        let auth = self.auth(target, Verify).await?;
        let body = json!({"query": VERIFICATION_QUERY, "variables": variables});
        let path = self.transport.graphql_path();
        let ask = Ask { body: Some(body), ..Ask::new("verify", Method::POST, path, auth) };
        let answer = self.ask_path(ask).await?;
        let clock = &self.transport.clock;
        let at = answer.header("date").and_then(super::github_clock::http_date);
        let rests_until = clock.ours().after(GRAPHQL_PAUSE);
        match verified(&answer.body, base, at.unwrap_or_else(|| clock.now()), rests_until) {
            // GraphQL does not say whether it was transferred or deleted; REST does.
            Err(GitHubError::NotFound(words)) => {
                self.issue(target, number, None).await?;
                Err(GitHubError::NotFound(words))
            }
            found => found,
        }
    }

    async fn repository(&self, target: &RepositoryTarget) -> Result<GitHubRepository, GitHubError> {
        let answer = self.read_of("repository", target, List, "", None).await?;
        read::<WireRepository>(&answer.body)?.read()
    }

    async fn repository_by_id(
        &self,
        near: &RepositoryTarget,
        id: u64,
    ) -> Result<GitHubRepository, GitHubError> {
        let auth = self.auth(near, List).await?;
        let path = format!("/repositories/{id}");
        let answer = self.ask(Ask::new("repository", Method::GET, path, auth)).await?;
        read::<WireRepository>(&answer.body)?.read()
    }

    async fn installation_of(
        &self,
        target: &RepositoryTarget,
    ) -> Result<Installation, GitHubError> {
        match *self.credentials() {
            GitHubCredentials::App(_) => self.look_up_installation(target).await,
            GitHubCredentials::Token(_) => {
                Err(GitHubError::NotFound("a token has no installations".to_owned()))
            }
        }
    }

    async fn installations(
        &self,
        page: &PageCursor,
    ) -> Result<(Vec<Installation>, Option<PageCursor>), GitHubError> {
        if let GitHubCredentials::Token(_) = *self.credentials() {
            return Ok((Vec::new(), None));
        }
        let path = "/app/installations?per_page=100".to_owned();
        let ask = Ask::new("installations", Method::GET, path, self.own_auth());
        let (answer, next) = self.page(ask, page).await?;
        Ok((list::<WireInstallation, _>(&answer.body)?, next))
    }

    async fn installation_repositories(
        &self,
        installation: u64,
        page: &PageCursor,
    ) -> Result<(Vec<GitHubRepository>, Option<PageCursor>), GitHubError> {
        let key = TokenKey { installation, purpose: List, repositories: Vec::new() };
        let path = "/installation/repositories?per_page=100".to_owned();
        let auth = CallAuth::Installation(key);
        let ask = Ask {
            class: CallClass::Background,
            ..Ask::new("installation_repositories", Method::GET, path, auth)
        };
        let (answer, next) = self.page(ask, page).await?;
        let wire: WireRepositories = read(&answer.body)?;
        let read = wire.repositories.into_iter().map(WireRepository::read);
        Ok((read.filter_map(Result::ok).collect(), next))
    }

    async fn labelled_issues(
        &self,
        target: &RepositoryTarget,
        label: &str,
        page: &PageCursor,
        known: Option<&str>,
    ) -> Result<Conditional<(Vec<GitHubIssue>, Option<PageCursor>)>, GitHubError> {
        let auth = self.auth(target, List).await?;
        let below = format!("/issues?labels={}&state=open&per_page=100", query_value(label));
        let ask = Ask {
            etag: known,
            target: Some(target),
            class: CallClass::Background,
            ..Ask::new("labelled_issues", Method::GET, in_repository(target, &below), auth)
        };
        let (answer, next) = self.page(ask, page).await?;
        conditional(&answer, |wire: Vec<WireIssue>| {
            (wire.into_iter().map(GitHubIssue::from).collect(), next)
        })
    }

    async fn delivery_log(
        &self,
        source: &DeliverySource,
        page: &PageCursor,
    ) -> Result<DeliveryLogPage, GitHubError> {
        let ask = self.log_ask("delivery_log", source, Method::GET, "?per_page=100").await?;
        let (answer, next) = self.page(ask, page).await?;
        let wire: Vec<WireDelivery> = read(&answer.body)?;
        let deliveries = wire.into_iter().filter_map(WireDelivery::logged).collect();
        Ok(DeliveryLogPage { deliveries, next })
    }

    async fn delivery(
        &self,
        source: &DeliverySource,
        id: u64,
    ) -> Result<StoredDelivery, GitHubError> {
        let ask = self.log_ask("delivery", source, Method::GET, &format!("/{id}")).await?;
        read::<WireDelivery>(&self.ask(ask).await?.body)?.stored()
    }

    async fn redeliver(&self, source: &DeliverySource, id: u64) -> Result<(), GitHubError> {
        let below = format!("/{id}/attempts");
        let ask = self.log_ask("redeliver", source, Method::POST, &below).await?;
        self.ask(ask).await.map(|_| ())
    }

    async fn hooks(&self, target: &RepositoryTarget) -> Result<Vec<GitHubHook>, GitHubError> {
        let answer = self.read_of("hooks", target, List, "/hooks?per_page=100", None).await?;
        list::<WireHook, _>(&answer.body)
    }
}
