//! Makes a create while its record is being written, and undoes it if the record is refused.
//!
//! No caller learns of it before the record is durable. If the record is refused, or is not durable
//! within [`RECORD_TIME_MAX`](super::record::RECORD_TIME_MAX), the object is destroyed, and only then
//! the home's slot is free: the next create of the home never meets it. An object that cannot be
//! destroyed carries its mode and generation on its labels, by which a sweep finds and removes it.
//!
//! # An accepted race
//! If both go wrong at once, the record is refused and the create's answer is lost, the object may land
//! after the look that found nothing. To keep the slot until it must have landed would let the issue
//! wait for minutes. Instead the next create of the home removes it, whose name it has (only providers
//! that enforce names are asked in fast mode), or a sweep does.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use crate::issue::ProviderCall;
use crate::issue::event::{CallError, Done};
use crate::sabotage::{Bug, on};
use crate::sandbox::{Lifecycle, Object, ObjectKey, ProviderError, Target, TargetCall};
use crate::types::{HomeId, Timestamp};

use super::record::PendingRecord;
use crate::engine::directory::Directory;
use crate::engine::executor::calls::{ProviderCalls, guarded_call};

/// How often the removal of an object without a record is tried before it is left to a sweep.
const UNMAKE_TRIES: u32 = 5;
/// The pause between two of these tries.
const UNMAKE_PAUSE: Duration = Duration::from_secs(1);

/// Makes a create while its record is being written. Returns the answer; `None` if
/// there is no record that it could be about.
pub(in crate::engine) async fn fast_create(
    calls: &ProviderCalls,
    directory: &Directory,
    home: HomeId,
    call: ProviderCall,
    record: PendingRecord,
    withdrawn: &Notify,
) -> Option<Result<Done, CallError>> {
    let PendingRecord { end, by, account, names, too_slow } = record;
    let result = calls.perform(home, call.clone(), Some(&end), withdrawn).await;
    let ended = tokio::select! {
        biased;
        ended = end.clone() => Some(ended),
        () = calls.env.clock.sleep_until(by) => None,
    };
    if let Some(Ok(())) = ended {
        directory.confirm(&account, home, &names);
        return Some(result);
    }
    let was_asked = match &result {
        Err(CallError::NotAsked(_) | CallError::Unknown(_)) => false,
        Ok(_)
        | Err(
            CallError::Absent
            | CallError::Present(_)
            | CallError::Refused(_)
            | CallError::Unavailable { .. }
            | CallError::Exhausted { .. }
            | CallError::Broken(_),
        ) => true,
    };
    if was_asked && !on(Bug::FastNotUndone) {
        unmake(calls, home, &call).await;
    }
    directory.let_go(&account, home, &names);
    // A late record may have been decided meanwhile.
    if let Some(Ok(())) = end.now_or_never() {
        directory.confirm(&account, home, &names);
    }
    match ended {
        Some(_) => {
            directory.abandon(calls.env.now(), &account, home, &names);
            None
        }
        None => {
            // The caller may have gone away.
            let _ = too_slow.send(());
            Some(answer_if_too_slow(result, was_asked))
        }
    }
}

/// The answer to its actor of a create whose record was not durable in time.
fn answer_if_too_slow(result: Result<Done, CallError>, was_asked: bool) -> Result<Done, CallError> {
    match result {
        // What may still land is answered as such: it must be waited for.
        Err(CallError::Unavailable { .. }) => result,
        Ok(_) | Err(_) if was_asked => Err(CallError::Broken(
            "the record could not be written in 30 s; its object was deleted".into(),
        )),
        Ok(_) | Err(_) => result,
    }
}

/// Removes what a create made, until a look shows that it is gone.
async fn unmake(calls: &ProviderCalls, home: HomeId, call: &ProviderCall) {
    let Some(provider) = calls.provider(&call.provider) else { return };
    for tries in 0..UNMAKE_TRIES {
        if tries > 0 {
            calls.env.clock.sleep_until(calls.env.now().after(UNMAKE_PAUSE)).await;
        }
        let deadline = calls.env.now().after(calls.env.rules().delete.timeout);
        let work = unmake_once(calls, provider.as_ref(), home, call, deadline);
        match guarded_call(&calls.env, deadline, work).await {
            Ok(()) => {
                tracing::warn!(
                    home = home.0, sandbox = %call.record.id,
                    "the record of a fast create was refused or took too long; the object that it had made is deleted"
                );
                return;
            }
            Err(error) => {
                tracing::debug!(home = home.0, %error, "failed to undo a fast create; retrying");
            }
        }
    }
    tracing::error!(
        home = home.0, sandbox = %call.record.id, name = %call.record.object_name,
        "the record of a fast create could not be written, and deleting its object failed; a sweep deletes it"
    );
}

/// Removes the sandbox's objects. An error says that one is, or may be, left.
async fn unmake_once(
    calls: &ProviderCalls,
    provider: &dyn Lifecycle,
    home: HomeId,
    call: &ProviderCall,
    deadline: Timestamp,
) -> Result<(), ProviderError> {
    let instance = &calls.instance;
    let key = ObjectKey { name: call.record.object_name.clone(), instance: instance.clone(), home };
    // Before each call: another provider may have answered since the last one.
    let confirm = async || {
        let name = &call.provider;
        let is_same = calls.identities.confirm(name).await;
        is_same.map_err(|why| ProviderError::unavailable(why.describe(name)))
    };
    let look = async || {
        confirm().await?;
        provider.find(key.clone()).await
    };
    let is_ours = |object: &Object| {
        object
            .labels
            .as_ref()
            .is_some_and(|labels| labels.instance == *instance && labels.sandbox == call.record.id)
    };
    for object in look().await?.into_iter().filter(is_ours) {
        confirm().await?;
        let expected = call.record.id.clone();
        let target = Target { external_id: object.external_id, expected };
        match provider.delete(TargetCall { target, force: true, deadline }).await {
            Ok(()) | Err(ProviderError::Absent) => {}
            Err(error) => return Err(error),
        }
    }
    // Only the provider's not having it is its absence.
    match look().await?.into_iter().find(is_ours) {
        Some(object) => {
            Err(ProviderError::Broken(format!("{} is still there", object.external_id)))
        }
        None => Ok(()),
    }
}
