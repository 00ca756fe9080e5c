//! Reads the answer to the verification query.

use serde::{Deserialize, Deserializer};

use crate::types::{IssueNumber, Timestamp};

use super::super::api::{
    GitHubAccount, GitHubError, HeldReason, VerifiedAct, VerifiedComment, VerifiedIssue,
};
use super::answers::shortened;
use super::wire::read;

#[derive(Deserialize)]
struct GraphQlAnswer {
    data: Option<Data>,
    #[serde(default)]
    errors: Vec<GraphQlError>,
}

#[derive(Deserialize)]
struct GraphQlError {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Data {
    repository: Option<RepositoryNode>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepositoryNode {
    database_id: Option<u64>,
    default_branch_ref: Option<RefNode>,
    #[serde(rename = "ref")]
    base: Option<RefNode>,
    issue: Option<IssueNode>,
}

#[derive(Deserialize)]
struct RefNode {
    #[serde(default)]
    name: String,
    target: Option<TargetNode>,
}

#[derive(Deserialize)]
struct TargetNode {
    oid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IssueNode {
    #[serde(deserialize_with = "big_int")]
    full_database_id: u64,
    number: u64,
    title: String,
    body: String,
    state: String,
    locked: bool,
    last_edited_at: Option<String>,
    author: Option<ActorNode>,
    editor: Option<ActorNode>,
    labels: Option<Nodes<LabelNode>>,
    assignees: Nodes<ActorNode>,
    timeline_items: Nodes<ActNode>,
    comments: Comments,
}

#[derive(Deserialize)]
struct Nodes<T> {
    #[serde(default = "Vec::new")]
    nodes: Vec<Option<T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Comments {
    total_count: u64,
    #[serde(default)]
    nodes: Vec<Option<CommentNode>>,
}

#[derive(Deserialize)]
struct LabelNode {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActorNode {
    database_id: Option<u64>,
    #[serde(default)]
    login: String,
}

impl From<ActorNode> for GitHubAccount {
    fn from(node: ActorNode) -> Self {
        Self { id: node.database_id.unwrap_or_default(), login: node.login }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActNode {
    #[serde(rename = "__typename")]
    kind: String,
    created_at: Option<String>,
    label: Option<LabelNode>,
    assignee: Option<ActorNode>,
    actor: Option<ActorNode>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommentNode {
    #[serde(deserialize_with = "big_int")]
    full_database_id: u64,
    body: String,
    created_at: String,
    last_edited_at: Option<String>,
    is_minimized: bool,
    author: Option<ActorNode>,
    editor: Option<ActorNode>,
}

/// GraphQL's `BigInt` is text; GitHub Enterprise Server had numbers.
fn big_int<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum BigInt {
        Number(u64),
        Text(String),
    }
    match BigInt::deserialize(from)? {
        BigInt::Number(number) => Ok(number),
        BigInt::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

/// What GitHub says of an issue, as of this time (`at`, by GitHub's clock).
///
/// # Errors
/// [`GitHubError::NotFound`], [`GitHubError::Held`], [`GitHubError::Limited`] and
/// [`GitHubError::Refused`] by the type of GraphQL's error.
pub(super) fn verified(
    body: &[u8],
    asked_base: &str,
    at: Timestamp,
    rests_until: Timestamp,
) -> Result<VerifiedIssue, GitHubError> {
    let GraphQlAnswer { data, errors } = read(body)?;
    let found = data.and_then(|data| data.repository);
    let Some((repository, issue)) = found.and_then(|mut r| r.issue.take().map(|issue| (r, issue)))
    else {
        return Err(refused(&errors, rests_until));
    };
    let acts = issue.timeline_items.nodes.into_iter().flatten().filter_map(act).collect();
    let labels = issue.labels.into_iter().flat_map(|labels| labels.nodes).flatten();
    let branch = repository.default_branch_ref;
    let default_branch = branch.as_ref().map(|branch| branch.name.clone()).unwrap_or_default();
    let base = if asked_base.is_empty() { branch } else { repository.base };
    Ok(VerifiedIssue {
        at,
        repository_id: repository.database_id.unwrap_or_default(),
        id: issue.full_database_id,
        number: IssueNumber(issue.number),
        is_open: issue.state == "OPEN",
        is_locked: issue.locked,
        title: issue.title,
        body: issue.body,
        author: issue.author.unwrap_or_default().into(),
        edited_at: time(issue.last_edited_at.as_deref()),
        editor: issue.editor.map(Into::into),
        labels: labels.map(|label| label.name).collect(),
        assignees: issue
            .assignees
            .nodes
            .into_iter()
            .flatten()
            .filter_map(|a| a.database_id)
            .collect(),
        acts,
        comments: issue.comments.nodes.into_iter().flatten().map(comment).collect(),
        comments_total: issue.comments.total_count,
        default_branch,
        base_commit: base.and_then(|base| base.target).map(|target| target.oid),
    })
}

fn refused(errors: &[GraphQlError], rests_until: Timestamp) -> GitHubError {
    let words = errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>().join(": ");
    let words = shortened(&words);
    match errors.first().map(|error| error.kind.as_str()) {
        None | Some("NOT_FOUND") => GitHubError::NotFound(words),
        Some("RATE_LIMITED" | "RATE_LIMIT") => GitHubError::Limited { until: rests_until },
        Some("FORBIDDEN" | "INSUFFICIENT_SCOPES") => {
            GitHubError::Held { reason: HeldReason::Permission(None), words }
        }
        Some(_) => GitHubError::Refused { status: 200, words },
    }
}

fn time(text: Option<&str>) -> Option<Timestamp> {
    text.and_then(Timestamp::parse)
}

fn act(node: ActNode) -> Option<VerifiedAct> {
    let action = match node.kind.as_str() {
        "LabeledEvent" => "labeled",
        "UnlabeledEvent" => "unlabeled",
        "AssignedEvent" => "assigned",
        "UnassignedEvent" => "unassigned",
        "ClosedEvent" => "closed",
        "ReopenedEvent" => "reopened",
        _ => return None,
    };
    let actor = GitHubAccount::from(node.actor.unwrap_or_default());
    Some(VerifiedAct {
        action,
        label: node.label.map(|label| label.name),
        assignee: node.assignee.and_then(|assignee| assignee.database_id),
        actor_id: actor.id,
        actor: actor.login,
        at: time(node.created_at.as_deref())?,
    })
}

fn comment(node: CommentNode) -> VerifiedComment {
    VerifiedComment {
        id: node.full_database_id,
        body: node.body,
        author: node.author.unwrap_or_default().into(),
        created_at: time(Some(&node.created_at)).unwrap_or(Timestamp::from_unix_ms(0)),
        edited_at: time(node.last_edited_at.as_deref()),
        editor: node.editor.map(Into::into),
        is_minimized: node.is_minimized,
    }
}
