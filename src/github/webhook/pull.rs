//! Deliveries about pull requests and their checks: reviews, comments, checks that failed. Each counts for
//! the issue whose sandbox made the pull request or pushed the commit; which one that is, the store says
//! ([`PullDelivery::on`]).

use super::effect::{Decision, IssueAction, PermissionCondition};
use super::payload::{CheckRun, Payload, Review, identified, missing};
use super::sender::{self, Right, SenderRight};
use super::{DeliveryHead, Interpreted, Malformed, effect, instruction, time_of};
use crate::github::policy::TriggerPolicy;
use crate::github::text::cleaned;
use crate::issue::event::{DeliveryEffect, News};
use crate::issue::instruction::{GithubUser, Instruction, InstructionSource, bounded};
use crate::issue::{Facts, IssueDelivery};
use crate::types::{
    CiFailureMode, DeliveryId, IssueNumber, PermissionLevel, Repository, Timestamp, beginning,
};

/// How many of the last lines of a check's output are kept.
const OUTPUT_LINES_MAX: usize = 100;
/// Longest name and title of a check that are kept, in characters.
const CHECK_NAME_LEN_MAX: usize = 200;
/// Longest summary of a check that is kept, in characters.
const CHECK_SUMMARY_LEN_MAX: usize = 4_000;
/// Why nothing of a pull request has an effect.
const NO_CREDENTIALS: &str = "without credentials for GitHub there are no pull requests of ours";

/// What of a repository a [`PullDelivery`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PulledWork {
    /// The pull request with this number.
    Pull(IssueNumber),
    /// This commit.
    Commit(String),
}

/// A delivery that counts for the issue whose sandbox made a pull request or pushed a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullDelivery {
    /// What it is about.
    pub work: PulledWork,
    /// The repository.
    pub repository: Repository,
    /// GitHub's numeric id of the repository.
    pub repository_id: u64,
    /// The delivery's GUID.
    delivery: DeliveryId,
    received_at: Timestamp,
    /// Whether the server read it from GitHub because it had not arrived.
    pub recovered: bool,
    event: String,
    /// Its action.
    pub action: String,
    acted_at: Timestamp,
    comment: Option<u64>,
    installation: Option<u64>,
    effect: DeliveryEffect,
    instruction: Option<Instruction>,
    /// Whose permission GitHub is asked for first, and which.
    asker: Option<(GithubUser, PermissionLevel)>,
}

impl PullDelivery {
    /// The same as a delivery about an issue, of which this is known. It says nothing new of the issue
    /// itself. `None` if it is not known where that is.
    pub fn on(self, facts: &Facts) -> Option<Interpreted> {
        let news = News {
            issue_id: facts.issue_id.clone(),
            repository: facts.repository.clone()?,
            repository_id: facts.repository_id?,
            number: facts.number?,
            title: String::new(),
            url: None,
            open: None,
            labelled: None,
            assigned: None,
            as_of: facts.placed_as_of.unwrap_or(Timestamp::from_unix_ms(0)),
        };
        let delivery = IssueDelivery {
            delivery: self.delivery,
            received_at: self.received_at,
            recovered: self.recovered,
            event: self.event,
            action: self.action,
            news,
            acted_at: self.acted_at,
            formerly: None,
            comment: self.comment,
            installation: self.installation,
            effect: self.effect,
            instruction: self.instruction,
        };
        let condition = self.asker.map(|(asker, level)| {
            let otherwise = None;
            PermissionCondition { asker, level, otherwise }
        });
        Some(super::on_condition(delivery, condition))
    }
}

/// What a delivery about a pull request does.
struct PullAct {
    work: PulledWork,
    acted_at: Timestamp,
    comment: Option<u64>,
    effect: DeliveryEffect,
    instruction: Option<Instruction>,
    asker: Option<(GithubUser, PermissionLevel)>,
}

/// Whether deliveries of this event and action are read here.
pub(super) fn can_have_effect(event: &str, action: &str) -> bool {
    matches!((event, action), ("pull_request_review", "submitted") | ("check_run", "completed"))
}

impl DeliveryHead<'_> {
    /// A review, or a check.
    pub(super) fn of_pull(
        self,
        policy: &TriggerPolicy,
        payload: &Payload,
    ) -> Result<Interpreted, Malformed> {
        let act = match self.event {
            "check_run" => self.check(policy, payload)?,
            _ => self.review(policy, payload)?,
        };
        self.counting(policy, payload, act)
    }

    /// A comment on a pull request.
    pub(super) fn comment_on_pull(
        self,
        policy: &TriggerPolicy,
        payload: &Payload,
        act: IssueAction,
    ) -> Result<Interpreted, Malformed> {
        let number = payload.issue.as_ref().and_then(|issue| issue.number);
        let number = IssueNumber(number.ok_or_else(|| missing("issue.number"))?);
        let act = match effect::decide_on_pull(policy, act, payload) {
            Decision::Ignore(reason) => Err(reason),
            Decision::Apply { effect, comment, condition } => {
                let written = payload.comment.as_ref().and_then(|comment| match act {
                    IssueAction::CommentEdited => comment.updated_at.as_deref(),
                    _ => comment.created_at.as_deref(),
                });
                Ok(PullAct {
                    work: PulledWork::Pull(number),
                    acted_at: time_of(written, self.received_at),
                    comment,
                    instruction: instruction::on_pull(policy, &effect, payload, self.received_at),
                    effect,
                    asker: condition.map(|it| (it.asker, it.level)),
                })
            }
        };
        self.counting(policy, payload, act)
    }

    fn counting(
        self,
        policy: &TriggerPolicy,
        payload: &Payload,
        act: Result<PullAct, String>,
    ) -> Result<Interpreted, Malformed> {
        let action = payload.action.clone().unwrap_or_default();
        let repository = payload.repository.as_ref().ok_or_else(|| missing("repository"))?;
        let (repository, repository_id) = identified(repository, "repository")?;
        if !policy.covers(repository.as_str()) {
            return super::ignored(&action, super::not_covered(&repository));
        }
        let act = act.and_then(|act| match policy.asked_permission(Some(repository_id)) {
            Some(_) => Ok(act),
            None => Err(NO_CREDENTIALS.to_owned()),
        });
        let PullAct { work, acted_at, comment, effect, instruction, asker } = match act {
            Ok(act) => act,
            Err(reason) => return super::ignored(&action, reason),
        };
        Ok(Interpreted::OnPull(Box::new(PullDelivery {
            work,
            repository,
            repository_id,
            delivery: self.delivery,
            received_at: self.received_at,
            recovered: false,
            event: self.event.to_owned(),
            action,
            acted_at,
            comment,
            installation: payload.installation.as_ref().and_then(|it| it.id),
            effect,
            instruction,
            asker,
        })))
    }

    /// A review; its remarks come from GitHub later.
    fn review(
        &self,
        policy: &TriggerPolicy,
        payload: &Payload,
    ) -> Result<Result<PullAct, String>, Malformed> {
        let review = payload.review.as_ref().ok_or_else(|| missing("review"))?;
        let id = review.id.ok_or_else(|| missing("review.id"))?;
        let pull = payload.pull_request.as_ref().and_then(|pull| pull.number);
        let pull = pull.and_then(|number| u32::try_from(number).ok());
        let pull = pull.ok_or_else(|| missing("pull_request.number"))?;
        let right = Right::Author {
            user: review.user.as_ref(),
            association: review.author_association.as_deref(),
        };
        let asker = match sender::check(policy, payload, right) {
            Ok(SenderRight::Granted) => None,
            Ok(SenderRight::Asked(asker, level)) => Some((asker, level)),
            Err(refusal) => return Ok(Err(refusal.reason().to_owned())),
        };
        let submitted_at = time_of(review.submitted_at.as_deref(), self.received_at);
        Ok(Ok(PullAct {
            work: PulledWork::Pull(IssueNumber(u64::from(pull))),
            acted_at: submitted_at,
            comment: None,
            effect: DeliveryEffect::FollowUp { failed_commit: None },
            instruction: Some(Instruction {
                source: InstructionSource::Review { id, pull },
                author: review.user.as_ref().and_then(instruction::user),
                sender: payload.sender.as_ref().and_then(instruction::user),
                as_of: submitted_at,
                title: None,
                text: bounded(&words_of(review)),
            }),
            asker,
        }))
    }

    /// A check that ended. Those that failed are for the agent, if that is configured.
    fn check(
        &self,
        policy: &TriggerPolicy,
        payload: &Payload,
    ) -> Result<Result<PullAct, String>, Malformed> {
        let check = payload.check_run.as_ref().ok_or_else(|| missing("check_run"))?;
        match (policy.on_ci_failure, check.conclusion.as_deref()) {
            (CiFailureMode::Ignore, _) => {
                return Ok(Err("github.on_ci_failure is \"ignore\"".to_owned()));
            }
            (CiFailureMode::Fix, Some("failure" | "timed_out")) => {}
            (CiFailureMode::Fix, _) => return Ok(Err("the check did not fail".to_owned())),
        }
        let id = check.id.ok_or_else(|| missing("check_run.id"))?;
        let commit = check.head_sha.clone().ok_or_else(|| missing("check_run.head_sha"))?;
        let completed_at = time_of(check.completed_at.as_deref(), self.received_at);
        Ok(Ok(PullAct {
            work: PulledWork::Commit(commit.clone()),
            acted_at: completed_at,
            comment: None,
            instruction: Some(Instruction {
                source: InstructionSource::Check(id),
                author: None,
                sender: None,
                as_of: completed_at,
                title: Some(beginning(
                    check.name.as_deref().unwrap_or("check"),
                    CHECK_NAME_LEN_MAX,
                )),
                text: bounded(&output_of(check, &commit)),
            }),
            effect: DeliveryEffect::FollowUp { failed_commit: Some(commit) },
            asker: None,
        }))
    }
}

/// A review's own words, with what it decided. Without words an approval says nothing.
fn words_of(review: &Review) -> String {
    let words = review.body.as_deref().unwrap_or_default().trim();
    let decided = match review.state.as_deref().map(str::to_lowercase).as_deref() {
        Some("changes_requested") => "The review requests changes.",
        Some("approved") if !words.is_empty() => "The review approves.",
        _ => "",
    };
    [decided, words].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// What a check says of its failure. The hidden parts of its output are removed before lines are, so that
/// no beginning of one is cut off.
fn output_of(check: &CheckRun, commit: &str) -> String {
    let word = match check.conclusion.as_deref() {
        Some("timed_out") => "timed out",
        _ => "failed",
    };
    let mut parts = vec![format!("The check {word} on commit {commit}.")];
    let output = check.output.as_ref();
    let clean = |text: Option<&String>| text.map(|text| cleaned(text).text).unwrap_or_default();
    let title = clean(output.and_then(|output| output.title.as_ref()));
    parts.push(beginning(title.trim(), CHECK_NAME_LEN_MAX));
    let summary = clean(output.and_then(|output| output.summary.as_ref()));
    parts.push(beginning(summary.trim(), CHECK_SUMMARY_LEN_MAX));
    let text = clean(output.and_then(|output| output.text.as_ref()));
    let lines: Vec<&str> = text.trim().lines().collect();
    let left_out = lines.len().saturating_sub(OUTPUT_LINES_MAX);
    if left_out > 0 {
        parts.push(format!("The last {OUTPUT_LINES_MAX} of {} lines of its output:", lines.len()));
    }
    parts.push(lines[left_out..].join("\n"));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}
