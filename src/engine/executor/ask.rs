//! One call in the provider's words, and its answer in the lifecycle's.

use crate::issue::event::{Done, Owner, Seen, Trouble};
use crate::issue::{ProviderCall, Record, Verb};
use crate::sandbox::{
    CreateSpec, Labels, Object, ObjectKey, ProviderError, SandboxProvider, Target, TargetCall,
};
use crate::types::{AccountName, ExternalId, HomeId, InstanceId, IssueId};

/// Speaks one call to the provider, and translates its answer.
pub(super) async fn ask(
    provider: &dyn SandboxProvider,
    instance: &InstanceId,
    home: HomeId,
    call: ProviderCall,
) -> Result<Done, Trouble> {
    let ProviderCall { verb, record, external_id, force, deadline, account, issue, .. } = call;
    let see = |object: Object| seen(instance, home, object);
    let ours = |external_id: Option<ExternalId>| {
        let external_id = external_id.expect("start and stop are asked of a known object");
        let target = Target { external_id, expected: record.id.clone() };
        TargetCall { target, force, deadline }
    };
    let result = match verb {
        Verb::Look => {
            let name = record.object_name.clone();
            let key = ObjectKey { name, instance: instance.clone(), home };
            provider.find(key).await.map(|found| Done::Seen(found.into_iter().map(see).collect()))
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
        Verb::Stop => provider.stop(ours(external_id)).await.map(|_| Done::Down),
        Verb::Delete { external_id, expected } => {
            let target = Target { external_id, expected };
            provider.delete(TargetCall { target, force, deadline }).await.map(|()| Done::Removing)
        }
    };
    result.map_err(|error| match error {
        ProviderError::Absent => Trouble::Absent,
        ProviderError::Present(object) => Trouble::Present(seen(instance, home, *object)),
        ProviderError::Refused(message) => Trouble::Refused(message),
        ProviderError::Unavailable { message, retry_after } => {
            Trouble::Unavailable { message, retry_after }
        }
        ProviderError::Broken(message) => Trouble::Broken(message),
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

/// The lifecycle's view of an object: whose it is, as far as this home is concerned.
fn seen(instance: &InstanceId, home: HomeId, object: Object) -> Seen {
    let owner = object
        .labels
        .filter(|labels| labels.instance == *instance && labels.home == home)
        .map(|labels| Owner {
            sandbox: labels.sandbox,
            generation: labels.generation,
            mode: labels.mode,
        });
    Seen { external_id: object.external_id, owner, state: object.state }
}
