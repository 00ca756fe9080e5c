//! GitHub as the world has it: issues with a truth of their own, and deliveries about them that
//! are repeated, reordered, lost and sent again under the same GUID.

use std::time::Duration;

use super::chance::Chance;
use super::scope_event::SimRepository;
use super::world::WorldState;
use crate::engine::IssueKey;
use crate::issue::acts::{ActKind, Acts, CLOCK_LEAD_MAX, Verdict, plausible};
use crate::issue::event::{DeliveryEffect, News, TriggerKind};
use crate::issue::{Command, FanOut, IssueDelivery};
use crate::types::{DeliveryId, IssueId, IssueNumber, Repository, Timestamp};

/// The ids of the world's issues begin behind this, so that none is also a number.
const FIRST_ID: u64 = 1_000;
/// How far apart the ids and numbers are that one issue has one after the other.
pub const MOVED: u64 = 100;
/// The App installation that all deliveries come from.
pub const INSTALLATION: u64 = 7;

/// All issues, and every delivery that was ever made about them.
pub struct SimGitHub {
    pub repositories: Vec<SimRepository>,
    pub issues: Vec<SimIssue>,
    pub deliveries: Vec<SimDelivery>,
    /// What its clock showed last.
    latest: Timestamp,
}

/// One issue as it truly is.
pub struct SimIssue {
    /// What it was called and, at the end, is called.
    pub names: Vec<SimName>,
    title: u64,
    pub open: bool,
    pub labelled: bool,
    pub deleted: bool,
    /// Whether its conversation is locked.
    pub locked: bool,
}

/// What an issue is called in one repository.
#[derive(Clone, Copy)]
pub struct SimName {
    pub id: u64,
    pub repository: usize,
    pub number: u64,
    /// The server said that it has a delivery by which this issue is also the one before it.
    pub is_reported: bool,
}

/// One delivery.
pub struct SimDelivery {
    pub what: DeliveryContent,
    /// The server said that it has it.
    pub acknowledged: bool,
}

/// What a delivery is about.
#[derive(Clone)]
pub enum DeliveryContent {
    Issue(Box<IssueDelivery>),
    ScopeEvent(Box<FanOut>),
}

impl SimDelivery {
    pub fn guid(&self) -> &DeliveryId {
        match &self.what {
            DeliveryContent::Issue(issue_delivery) => &issue_delivery.delivery,
            DeliveryContent::ScopeEvent(fan_out) => &fan_out.delivery,
        }
    }
}

impl SimGitHub {
    pub fn new(issues: u64) -> Self {
        let issue = |number| SimIssue {
            names: vec![SimName {
                id: FIRST_ID + number,
                repository: 0,
                number,
                is_reported: true,
            }],
            title: 0,
            open: true,
            labelled: false,
            deleted: false,
            locked: false,
        };
        Self {
            repositories: SimRepository::all(),
            issues: (1..=issues).map(issue).collect(),
            deliveries: Vec::new(),
            latest: super::time::BEGIN,
        }
    }

    /// Which issue an id of it means, for all callers.
    pub fn issue_of(&self, id: &IssueId) -> Option<u64> {
        let text = id.as_str();
        match text.strip_prefix("word-") {
            Some(number) => number.parse().ok(),
            None => Some(text.parse::<u64>().ok()?.checked_sub(FIRST_ID)? % MOVED),
        }
    }

    pub fn issue(&self, number: u64) -> Option<&SimIssue> {
        self.issues.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// The id that GitHub gives an issue now.
    pub fn id_of(&self, number: u64) -> IssueId {
        let name = self.issue(number).and_then(|issue| issue.names.last());
        IssueId::from_github(name.expect("it is an issue").id)
    }

    /// Whether the server said of everything that an issue was called that it is this issue.
    pub fn is_reported(&self, number: u64) -> bool {
        self.issue(number).is_some_and(|issue| issue.names.iter().all(|name| name.is_reported))
    }

    /// The ways in which a program may name an issue. All of them come with the repository and
    /// number, since without those it is unknown that a word means this issue. If
    /// repositories are renamed, no caller uses words: one that comes with a name which the server does
    /// not know yet would be another issue to it.
    pub fn key(&self, chance: &mut Chance, number: u64, words: bool) -> IssueKey {
        let names = &self.issue(number).expect("it is an issue").names;
        let name = if names.len() > 1 && chance.permille(400) {
            chance.pick(names)
        } else {
            names.last().expect("it has a name")
        };
        let id = match chance.below(10) {
            0..5 => Some(IssueId::from_github(name.id)),
            _ if !words => Some(IssueId::from_github(name.id)),
            5..9 => Some(IssueId::parse(&format!("word-{number}")).expect("a valid id")),
            _ => None,
        };
        let repository = self.repositories[name.repository].name();
        let repository = match chance.below(2) {
            0 => repository,
            _ => Repository::trusted(repository.as_str().replace("octo/h", "Octo/H")),
        };
        IssueKey { id, numbered: Some((repository, IssueNumber(name.number))) }
    }

    /// What an issue comes to by all that happened to it, in GitHub's order.
    pub fn verdict(&self, number: u64) -> Verdict {
        let mut acts = Acts::default();
        for delivery in &self.deliveries {
            let DeliveryContent::Issue(issue_delivery) = &delivery.what else { continue };
            let IssueDelivery { news, effect, action, acted_at, .. } = issue_delivery.as_ref();
            if self.issue_of(&news.issue_id) != Some(number) {
                continue;
            }
            let kind = match effect {
                DeliveryEffect::Trigger(_) if news.open == Some(false) => continue,
                DeliveryEffect::Trigger(TriggerKind::Reopened) if news.labelled != Some(true) => {
                    ActKind::Reopened
                }
                DeliveryEffect::Trigger(_) => ActKind::Asked,
                DeliveryEffect::Stop(_) if action == "closed" => ActKind::Closed,
                DeliveryEffect::Stop(_) => ActKind::TakenAway,
                DeliveryEffect::Command(Command::Stop) => ActKind::Stopped,
                DeliveryEffect::Delete
                | DeliveryEffect::Update
                | DeliveryEffect::Activity
                | DeliveryEffect::FollowUp { .. }
                | DeliveryEffect::Command(_)
                | DeliveryEffect::Status
                | DeliveryEffect::Publish { .. }
                | DeliveryEffect::Note(_) => continue,
            };
            acts.on_github(kind, *acted_at);
        }
        acts.verdict()
    }

    /// GitHub's clock is not ours, has seconds, and never shows the same one twice here.
    pub fn clock(&mut self, elapsed_ms: u64) -> Timestamp {
        let elapsed = Duration::from_secs(elapsed_ms / 1000);
        let shown = super::time::BEGIN.after(elapsed);
        self.latest = shown.max(self.latest.after(Duration::from_secs(1)));
        self.latest
    }
}

impl WorldState {
    /// Something happens on GitHub; the numbers of its deliveries.
    pub fn github_acts(&mut self) -> Vec<usize> {
        if self.weather.scope_events && self.chance.permille(150) {
            return self.happens_in_scope();
        }
        let count = self.github.issues.len() as u64;
        let at = usize::try_from(self.chance.below(count)).expect("an index");
        if self.weather.transfers && self.chance.permille(150) {
            return self.transfer(at);
        }
        let issue = &mut self.github.issues[at];
        let acts: &[(&str, DeliveryEffect)] = match self.chance.below(12) {
            0..4 if !issue.labelled => {
                issue.labelled = true;
                &[("labeled", DeliveryEffect::Trigger(TriggerKind::Label))]
            }
            0..4 => {
                issue.labelled = false;
                &[("unlabeled", DeliveryEffect::Stop("the trigger label was taken off"))]
            }
            4..6 if issue.open => {
                issue.open = false;
                &[("closed", DeliveryEffect::Stop("the issue was closed"))]
            }
            4..6 => {
                issue.open = true;
                &[("reopened", DeliveryEffect::Trigger(TriggerKind::Reopened))]
            }
            6 => {
                // One act, several deliveries.
                issue.labelled = true;
                &[
                    ("opened", DeliveryEffect::Trigger(TriggerKind::Opened)),
                    ("labeled", DeliveryEffect::Trigger(TriggerKind::Label)),
                    ("labeled", DeliveryEffect::Update),
                ]
            }
            7 | 8 => &[("created", DeliveryEffect::Trigger(TriggerKind::Command))],
            9 => {
                issue.title += 1;
                &[("edited", DeliveryEffect::Update)]
            }
            10 => &[("created", DeliveryEffect::Activity)],
            _ if self.chance.permille(200) => {
                issue.deleted = true;
                &[("deleted", DeliveryEffect::Delete)]
            }
            _ => &[("pinned", DeliveryEffect::Update)],
        };
        let news = self.news(at);
        let report = |(action, effect): &(&str, DeliveryEffect)| {
            self.report(&news, action, effect.clone(), None)
        };
        acts.iter().map(report).collect()
    }

    /// What GitHub says of an issue now.
    pub fn news(&mut self, at: usize) -> News {
        let as_of = self.github.clock(self.elapsed_ms());
        let issue = &self.github.issues[at];
        let name = issue.names.last().expect("it has a name");
        let repository = &self.github.repositories[name.repository];
        News {
            issue_id: IssueId::from_github(name.id),
            repository: repository.name(),
            repository_id: repository.id,
            number: IssueNumber(name.number),
            title: format!("title {}", issue.title),
            url: None,
            open: Some(issue.open),
            labelled: Some(issue.labelled),
            assigned: None,
            as_of,
        }
    }

    pub fn report(
        &mut self,
        news: &News,
        action: &str,
        effect: DeliveryEffect,
        comment: Option<u64>,
    ) -> usize {
        let instruction = self.words_of(&effect, comment);
        let issue_delivery = IssueDelivery {
            delivery: self.fresh_guid(),
            received_at: self.now(),
            recovered: false,
            event: "issues".into(),
            action: action.to_owned(),
            news: news.clone(),
            acted_at: news.as_of,
            formerly: None,
            comment,
            installation: self.weather.scope_events.then_some(INSTALLATION),
            effect,
            instruction,
        };
        self.sends(DeliveryContent::Issue(Box::new(issue_delivery)))
    }

    pub fn fresh_guid(&mut self) -> DeliveryId {
        DeliveryId::parse(&format!("guid-{}", self.fresh())).expect("a valid id")
    }

    /// A delivery is on its way; its number.
    pub fn sends(&mut self, what: DeliveryContent) -> usize {
        self.note(None, || match &what {
            DeliveryContent::Issue(issue_delivery) => {
                let IssueDelivery { delivery, action, news, formerly, .. } =
                    issue_delivery.as_ref();
                let formerly = formerly.as_ref().map_or_else(String::new, |name| {
                    format!(", formerly {}#{}", name.repository, name.number)
                });
                let News { repository, number, as_of, .. } = news;
                format!(
                    "GitHub: {repository}#{number} {action} ({delivery}, as of {as_of}){formerly}"
                )
            }
            DeliveryContent::ScopeEvent(fan_out) => {
                format!("GitHub: {:?}: {:?} ({})", fan_out.scope, fan_out.news, fan_out.delivery)
            }
        });
        self.github.deliveries.push(SimDelivery { what, acknowledged: false });
        self.github.deliveries.len() - 1
    }

    /// What the server reads of a delivery that arrives now, as the webhook endpoint does.
    pub fn arrives(&mut self, delivery: usize) -> DeliveryContent {
        let now = self.now();
        self.compare_clocks();
        match self.github.deliveries[delivery].what.clone() {
            DeliveryContent::Issue(mut issue_delivery) => {
                issue_delivery.received_at = now;
                issue_delivery.news.as_of = plausible(issue_delivery.news.as_of, now);
                issue_delivery.acted_at = plausible(issue_delivery.acted_at, now);
                DeliveryContent::Issue(issue_delivery)
            }
            scope_event @ DeliveryContent::ScopeEvent(_) => scope_event,
        }
    }

    /// Where our clock is too far behind GitHub's, deliveries count in the order of their receipt.
    pub fn compare_clocks(&mut self) {
        if self.github.latest > self.now().after(CLOCK_LEAD_MAX) {
            self.ledger.is_clock_behind = true;
        }
    }

    /// The server said that it has this delivery.
    pub fn acknowledged(&mut self, delivery: usize) {
        let it = &mut self.github.deliveries[delivery];
        it.acknowledged = true;
        let (guid, what) = (it.guid().clone(), it.what.clone());
        self.check_acknowledged(&guid);
        if let DeliveryContent::Issue(issue_delivery) = what {
            self.transfer_is_delivered(&issue_delivery);
        }
    }

    /// Deliveries that the server never said it has.
    pub fn missing(&self) -> Vec<usize> {
        let deliveries = self.github.deliveries.iter().enumerate();
        deliveries.filter(|(_, delivery)| !delivery.acknowledged).map(|(at, _)| at).collect()
    }
}
