//! One call in the provider's words, and its answer in the lifecycle's.

use crate::issue::event::{CallError, Done, ObservedObject, Owner};
use crate::issue::{ProviderCall, Record, Verb};
use crate::sabotage::{Bug, on};
use crate::sandbox::{
    CreateSpec, Labels, Lifecycle, Object, ObjectKey, ProviderError, Target, TargetCall,
};
use crate::types::{AccountName, ExternalId, Generation, HomeId, InstanceId, IssueId, Mode};

/// Makes one call to the provider, and translates its answer.
pub(super) async fn ask(
    provider: &dyn Lifecycle,
    instance: &InstanceId,
    home: HomeId,
    call: ProviderCall,
) -> Result<Done, CallError> {
    let ProviderCall { verb, record, external_id, force, deadline, account, issue, .. } = call;
    let asking = Asking { instance, home, account: account.clone(), issue: issue.clone() };
    let see = |object: Object| asking.seen(object);
    let ours = |external_id: Option<ExternalId>| {
        let external_id = external_id.expect("start and stop are asked of a known object");
        let target = Target { external_id, expected: record.id.clone() };
        TargetCall { target, force, deadline }
    };
    let is_look = verb == Verb::Look;
    let result = match verb {
        Verb::Look => {
            let name = record.object_name.clone();
            let key = ObjectKey { name, instance: instance.clone(), home };
            provider.find(key).await.map(|found| Done::Found(found.into_iter().map(see).collect()))
        }
        Verb::Create => {
            let spec = CreateSpec {
                name: record.object_name.clone(),
                labels: labels(instance, home, &record, account, issue),
                template: record.template.clone(),
                deadline,
            };
            provider.create(spec).await.map(|object| Done::Up(see(object)))
        }
        Verb::Start => provider.start(ours(external_id)).await.map(|object| Done::Up(see(object))),
        // The executor runs it by way of the hooks.
        Verb::ColdStart { .. } => {
            Err(ProviderError::Broken("no provider runs a cold start".into()))
        }
        Verb::Stop => provider.stop(ours(external_id)).await.map(|_| Done::Down),
        Verb::Delete { external_id, expected } => {
            let target = Target { external_id, expected };
            provider.delete(TargetCall { target, force, deadline }).await.map(|()| Done::Removing)
        }
    };
    if is_look && result.is_err() && on(Bug::ErrorForAbsence) {
        return Ok(Done::Found(Vec::new()));
    }
    result.map_err(|error| match error {
        ProviderError::Absent => CallError::Absent,
        ProviderError::Present(object) => CallError::Present(asking.seen(*object)),
        ProviderError::Refused(message) => CallError::Refused(message),
        ProviderError::Unavailable { message, retry_after } => {
            CallError::Unavailable { message, retry_after }
        }
        ProviderError::Exhausted { what, retry_after } => {
            CallError::Exhausted { what, retry_after }
        }
        ProviderError::Broken(message) => CallError::Broken(message),
    })
}

fn labels(
    instance: &InstanceId,
    home: HomeId,
    record: &Record,
    account: AccountName,
    issue: IssueId,
) -> Labels {
    Labels {
        instance: instance.clone(),
        account,
        home,
        issue,
        sandbox: record.id.clone(),
        generation: record.generation,
        mode: record.mode,
    }
}

/// The home that asks, as the labels of objects name it.
struct Asking<'a> {
    instance: &'a InstanceId,
    home: HomeId,
    account: AccountName,
    issue: IssueId,
}

impl Asking<'_> {
    /// The lifecycle's view of an object, with its owner if that is this home.
    fn seen(&self, object: Object) -> ObservedObject {
        let is_ours = |labels: &Labels| labels.home == self.home || self.is_lost(labels);
        let owner = object
            .labels
            .filter(|labels| {
                (labels.instance == *self.instance && is_ours(labels)) || on(Bug::DeleteByName)
            })
            .map(|labels| Owner {
                sandbox: labels.sandbox,
                generation: labels.generation,
                mode: labels.mode,
            });
        ObservedObject { external_id: object.external_id, owner, state: object.state }
    }

    /// Whether it is of a fast create for this very issue whose record was lost together with its
    /// home's number. The first commit of a home claims the id that its objects are
    /// labelled with, so no other home that was ever stored has it.
    fn is_lost(&self, labels: &Labels) -> bool {
        labels.mode == Mode::Fast
            && labels.generation == Generation(1)
            && labels.account == self.account
            && labels.issue == self.issue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ObjectName, ObjectState, SandboxId};

    #[test]
    fn an_object_is_this_homes_by_its_home_or_as_a_lost_fast_create_of_its_issue() {
        let ours = Labels {
            instance: InstanceId::trusted("here"),
            account: AccountName::default_account(),
            home: HomeId(7),
            issue: IssueId::from_github(5),
            sandbox: SandboxId::trusted("s"),
            generation: Generation(1),
            mode: Mode::Fast,
        };
        let asking = Asking {
            instance: &ours.instance,
            home: ours.home,
            account: ours.account.clone(),
            issue: ours.issue.clone(),
        };
        let lost = Labels { home: HomeId(3), ..ours.clone() };
        for (labels, is_ours) in [
            (ours.clone(), true),
            (Labels { issue: IssueId::from_github(6), ..ours.clone() }, true),
            (lost.clone(), true),
            (Labels { mode: Mode::Strong, ..lost.clone() }, false),
            (Labels { generation: Generation(2), ..lost.clone() }, false),
            (Labels { issue: IssueId::from_github(6), ..lost.clone() }, false),
            (Labels { account: AccountName::trusted("other"), ..lost.clone() }, false),
            (Labels { instance: InstanceId::trusted("there"), ..lost }, false),
            (Labels { instance: InstanceId::trusted("there"), ..ours.clone() }, false),
        ] {
            let object = Object {
                external_id: ExternalId::trusted("o"),
                name: ObjectName::trusted("claude-issue-5"),
                labels: Some(labels.clone()),
                state: ObjectState::Running,
            };
            assert_eq!(asking.seen(object).owner.is_some(), is_ours, "{labels:?}");
        }
    }
}
