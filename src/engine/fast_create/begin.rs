//! Begins a fast create: hands the record in and asks the provider at the same time.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::record::{CommitEnd, PendingRecord, RECORD_TIME_MAX};
use crate::engine::environment::Environment;
use crate::engine::executor::Executor;
use crate::issue::ProviderCall;
use crate::store::Write;
use crate::types::{Alias, HomeId};

/// Hands a create's record in, which claims these names, and asks the provider. The names are held for
/// the home. Returns how the record ends, and what fires once it was too slow and the object is destroyed.
pub(in crate::engine) fn begin(
    env: &Environment,
    executor: &Arc<Executor>,
    home: HomeId,
    write: Write,
    call: ProviderCall,
    names: Vec<Alias>,
) -> (CommitEnd, oneshot::Receiver<()>) {
    let end = env.store.commit(write).shared();
    let by = env.now().after(RECORD_TIME_MAX);
    let account = call.account.clone();
    let (too_slow, is_too_slow) = oneshot::channel();
    let record = PendingRecord { end: end.clone(), by, account, names, too_slow };
    executor.submit_fast_create(home, call, record);
    (end, is_too_slow)
}
