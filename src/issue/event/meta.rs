//! What the engine must know of an event beside what the lifecycle does with it, in one place.

use super::{IssueDelivery, IssueEvent};
use crate::types::{Alias, DeliveryId, HomeId, Repository, Template};

/// The properties of one [`IssueEvent`] that do not depend on the issue.
#[derive(Clone, Debug)]
pub struct EventMeta<'a> {
    /// What kind of event it is, in one word for logs and traces.
    pub name: &'static str,
    /// The GitHub delivery that it comes from, if any.
    pub delivery: Option<&'a DeliveryId>,
    /// That delivery, if it is about this issue alone: the event's commit records it.
    pub issue_delivery: Option<&'a IssueDelivery>,
    /// The repository that the event says the issue is in.
    pub repository: Option<&'a Repository>,
    /// Another home that is the same issue, as the event says: what holds that one holds this one, too.
    pub other_home: Option<HomeId>,
    /// The template that the event asks for.
    pub template: Option<&'a Template>,
    /// Names that belong to no home yet and are to become aliases of this one.
    pub claims: &'a [Alias],
    /// Whether the event is for the home that has the issue's names. If not, it is for one home
    /// for its own sake, also after that home was merged into another.
    pub follows_names: bool,
}

impl IssueEvent {
    /// What the engine must know of this event.
    pub fn meta(&self) -> EventMeta<'_> {
        let of_home = |name| EventMeta {
            name,
            delivery: None,
            issue_delivery: None,
            repository: None,
            other_home: None,
            template: None,
            claims: &[],
            follows_names: false,
        };
        let of_issue = |name| EventMeta { follows_names: true, ..of_home(name) };
        match self {
            Self::Ensure(ask) => EventMeta {
                repository: ask.numbered.as_ref().map(|(repository, _)| repository),
                template: ask.sandbox.template.as_ref(),
                claims: &ask.claims,
                ..of_issue("ensure")
            },
            Self::Delivery { issue_delivery, claims, .. } => EventMeta {
                delivery: Some(&issue_delivery.delivery),
                issue_delivery: Some(issue_delivery),
                repository: Some(&issue_delivery.news.repository),
                claims,
                ..of_issue("delivery")
            },
            Self::ScopeEvent { delivery, .. } => {
                EventMeta { delivery: Some(delivery), ..of_issue("scope_event") }
            }
            Self::Adopt(ask) => EventMeta { claims: &ask.claims, ..of_issue("adopt") },
            Self::Command(_) => of_home("command"),
            Self::Worked { .. } => of_home("worked"),
            Self::SetMeta { .. } => of_home("set_meta"),
            Self::LimitStruck { .. } => of_home("limit_struck"),
            Self::Noted { .. } => of_home("noted"),
            Self::Answered(_) => of_home("answered"),
            Self::Due { .. } => of_home("due"),
            Self::Learned { from, facts, .. } => EventMeta {
                repository: facts.repository.as_ref(),
                other_home: Some(*from),
                ..of_home("learned")
            },
            Self::Merged { .. } => of_home("merged"),
            Self::Observed(_) => of_home("observed"),
            Self::Discard { .. } => of_home("discard"),
            Self::Say(ask) => EventMeta {
                repository: ask.numbered.as_ref().map(|(repository, _)| repository),
                claims: &ask.claims,
                ..of_issue("say")
            },
            Self::Run(_) => of_home("run"),
            Self::Granted => of_home("granted"),
            Self::ProviderBack(_) => of_home("provider_back"),
            Self::Activated { .. } => of_home("activated"),
        }
    }
}
