//! People who lay hands on objects behind our back, and make some under our names.

use super::counts::Happening;
use super::objects::SimObject;
use super::provider::is_ours;
use super::store::instance;
use super::world::WorldState;
use crate::sandbox::{Labels, Object};
use crate::types::{
    AccountName, ExternalId, Generation, HomeId, InstanceId, IssueId, Mode, ObjectName,
    ObjectState, SandboxId,
};

impl WorldState {
    /// An outsider changes objects, or makes some.
    pub fn outsider(&mut self) {
        self.count(Happening::Outsider);
        let cloud = usize::try_from(self.chance.below(self.clouds.len() as u64)).expect("an index");
        let count = self.clouds[cloud].objects.len() as u64;
        let any = usize::try_from(self.chance.below(count)).expect("an index");
        match self.chance.below(6) {
            0 if count > 0 => {
                let object = self.clouds[cloud].objects.remove(any).object;
                self.ledger.handled.insert(object.external_id.clone());
                self.note(None, || format!("an outsider removes {}", object.external_id));
            }
            1 if count > 0 => {
                let object = &mut self.clouds[cloud].objects[any].object;
                if object.state == ObjectState::Running {
                    object.state = ObjectState::Stopped;
                }
                let id = object.external_id.clone();
                self.ledger.handled.insert(id.clone());
                self.note(None, || format!("an outsider stops {id}"));
            }
            2 if count > 0 => self.clouds[cloud].objects.retain(|object| object.ours),
            _ => self.outsider_makes(cloud),
        }
        self.end_agents_of_what_is_down();
    }

    /// An outsider makes an object under a name of ours: without labels, with another installation's,
    /// or with labels of ours that a copy brought back.
    fn outsider_makes(&mut self, cloud: usize) {
        let homes: Vec<(HomeId, AccountName, IssueId, u32)> = self
            .rows
            .issues
            .values()
            .map(|issue| {
                let id = issue.facts.issue_id.clone();
                (issue.home, issue.account.clone(), id, issue.generation.0)
            })
            .collect();
        if homes.is_empty() {
            return;
        }
        let (home, account, issue, generation) = self.chance.pick(&homes).clone();
        let number = self.fresh();
        let labels = |inner: &mut Self, instance: InstanceId| Labels {
            instance,
            account: account.clone(),
            home,
            issue: issue.clone(),
            sandbox: SandboxId::trusted(format!("theirs-{number}")),
            generation: Generation(
                u32::try_from(inner.chance.below(u64::from(generation) + 2)).expect("it is small"),
            ),
            mode: Mode::Strong,
        };
        let labels = match self.chance.below(3) {
            0 => None,
            1 => Some(labels(self, InstanceId::trusted("another"))),
            _ => Some(labels(self, instance())),
        };
        let name = ObjectName::for_home(&account, home, &issue.sandbox_name());
        let objects = &self.clouds[cloud].objects;
        if self.clouds[cloud].rules.names_enforced && objects.iter().any(|o| o.object.name == name)
        {
            return;
        }
        let external_id = ExternalId::trusted(format!("theirs-{number}"));
        let state = ObjectState::Running;
        let object = Object { external_id, name, labels, state };
        if is_ours(&object)
            && let Some(labels) = &object.labels
        {
            self.ledger.belongs(labels.sandbox.clone(), home);
            self.ledger.crowded.insert(home);
        }
        self.note(Some(home), || {
            format!("an outsider makes {} {:?}", object.external_id, object.labels)
        });
        self.clouds[cloud].objects.push(SimObject { object, ours: false });
    }
}
