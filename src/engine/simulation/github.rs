//! GitHub as the world has it: issues with a truth of their own, and deliveries about them that
//! are repeated, reordered, lost and sent again under the same GUID.

use std::time::Duration;

use super::chance::Chance;
use super::world::Inner;
use crate::engine::IssueKey;
use crate::issue::Nudge;
use crate::issue::event::{Effect, News, TriggerKind};
use crate::types::{DeliveryId, IssueId, IssueNumber, Repository, Timestamp};

/// The ids of the world's issues begin behind this, so that none is also a number.
const FIRST_ID: u64 = 1_000;

/// All issues, and every delivery that was ever made about them.
pub struct GitHub {
    pub issues: Vec<SimIssue>,
    pub deliveries: Vec<SimDelivery>,
}

/// One issue as it truly is.
pub struct SimIssue {
    number: u64,
    title: u64,
    pub open: bool,
    pub labelled: bool,
    pub deleted: bool,
    updated_at: Timestamp,
}

/// One delivery.
pub struct SimDelivery {
    pub nudge: Nudge,
    /// The server said that it has it.
    pub acknowledged: bool,
}

pub fn repository() -> Repository {
    Repository::trusted("octo/hello")
}

impl GitHub {
    pub fn new(issues: u64) -> Self {
        let issue = |number| SimIssue {
            number,
            title: 0,
            open: true,
            labelled: false,
            deleted: false,
            updated_at: super::time::BEGIN,
        };
        Self { issues: (1..=issues).map(issue).collect(), deliveries: Vec::new() }
    }

    /// Which issue an id of it means, whoever uses it.
    pub fn issue_of(&self, id: &IssueId) -> Option<u64> {
        let text = id.as_str();
        match text.strip_prefix("word-") {
            Some(number) => number.parse().ok(),
            None => text.parse::<u64>().ok()?.checked_sub(FIRST_ID),
        }
    }

    /// The id that GitHub gave an issue.
    pub fn id_of(&self, number: u64) -> IssueId {
        IssueId::from_github(FIRST_ID + number)
    }

    /// The ways in which a program may name an issue. All of them come with the repository and
    /// number, since without those nobody could know that a word means this issue.
    pub fn key(&self, chance: &mut Chance, number: u64) -> IssueKey {
        let id = match chance.below(10) {
            0..5 => Some(IssueId::from_github(FIRST_ID + number)),
            5..9 => Some(IssueId::parse(&format!("word-{number}")).expect("a valid id")),
            _ => None,
        };
        let repository = match chance.below(2) {
            0 => repository(),
            _ => Repository::trusted("Octo/Hello"),
        };
        IssueKey { id, numbered: Some((repository, IssueNumber(number))) }
    }
}

impl Inner {
    /// Something happens on GitHub; the numbers of the deliveries that tell of it.
    pub fn github_acts(&mut self) -> Vec<usize> {
        let now = self.now();
        let count = self.github.issues.len() as u64;
        let at = usize::try_from(self.chance.below(count)).expect("an index");
        let issue = &mut self.github.issues[at];
        // GitHub's clock is not ours, has seconds, and never shows the same one twice here.
        let shown = Timestamp::from_unix_ms(now.unix_ms() / 1000 * 1000);
        issue.updated_at = shown.max(issue.updated_at.after(Duration::from_secs(1)));
        let acts: &[(&str, Effect)] = match self.chance.below(12) {
            0..4 if !issue.labelled => {
                issue.labelled = true;
                &[("labeled", Effect::Trigger(TriggerKind::Label))]
            }
            0..4 => {
                issue.labelled = false;
                &[("unlabeled", Effect::Stop("the trigger label was taken off"))]
            }
            4..6 if issue.open => {
                issue.open = false;
                &[("closed", Effect::Stop("the issue was closed"))]
            }
            4..6 => {
                issue.open = true;
                &[("reopened", Effect::Trigger(TriggerKind::Reopened))]
            }
            6 => {
                // One act, several deliveries.
                issue.labelled = true;
                &[
                    ("opened", Effect::Trigger(TriggerKind::Opened)),
                    ("labeled", Effect::Trigger(TriggerKind::Label)),
                    ("labeled", Effect::Update),
                ]
            }
            7 | 8 => &[("created", Effect::Trigger(TriggerKind::Command))],
            9 => {
                issue.title += 1;
                &[("edited", Effect::Update)]
            }
            10 => &[("created", Effect::Activity)],
            _ if self.chance.permille(200) => {
                issue.deleted = true;
                &[("deleted", Effect::Delete)]
            }
            _ => &[("pinned", Effect::Update)],
        };
        let news = News {
            issue_id: IssueId::from_github(FIRST_ID + issue.number),
            repository: repository(),
            repository_id: 1,
            number: IssueNumber(issue.number),
            title: format!("title {}", issue.title),
            url: None,
            open: Some(issue.open),
            labelled: Some(issue.labelled),
            assigned: None,
            as_of: issue.updated_at,
        };
        let mut sent = Vec::new();
        for (action, effect) in acts {
            let guid = format!("guid-{}", self.fresh());
            sent.push(self.github.deliveries.len());
            let nudge = Nudge {
                delivery: DeliveryId::parse(&guid).expect("a valid id"),
                received_at: now,
                event: "issues".into(),
                action: (*action).to_owned(),
                news: news.clone(),
                formerly: None,
                comment: None,
                installation: None,
                effect: effect.clone(),
            };
            self.note(None, || {
                format!("GitHub: issue {} {action} ({guid}, as of {})", news.number, news.as_of)
            });
            self.github.deliveries.push(SimDelivery { nudge, acknowledged: false });
        }
        sent
    }

    /// Deliveries that the server never said it has.
    pub fn missing(&self) -> Vec<usize> {
        let deliveries = self.github.deliveries.iter().enumerate();
        deliveries.filter(|(_, delivery)| !delivery.acknowledged).map(|(at, _)| at).collect()
    }
}
