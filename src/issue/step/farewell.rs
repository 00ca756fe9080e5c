//! What is done in a running sandbox before it is stopped or deleted: its template's `on_terminate`, and
//! a push of its workspace. It belongs to the call that stops or deletes, takes no longer than the
//! template's grace time, and is owed until such a call was answered: one that was not made, or whose
//! server ended, is followed by one that does it.

use std::time::Duration;

use crate::issue::commit::Farewell;
use crate::issue::state::{Record, Verb};
use crate::types::SyncMoments;

/// What a template has done before this call; `None` if nothing is owed.
pub(super) fn farewell(record: &Record, verb: &Verb) -> Option<Farewell> {
    if !record.owes_farewell {
        return None;
    }
    let workload = &record.template.workload;
    let SyncMoments { on_stop, before_delete } = workload.sync;
    let pushes = match verb {
        Verb::Stop => on_stop,
        Verb::Delete { .. } => before_delete,
        Verb::Look | Verb::Create | Verb::Start | Verb::ColdStart { .. } => return None,
    };
    let has_hook = !workload.hooks.on_terminate.is_empty();
    let grace = workload.hooks.grace;
    (has_hook || pushes).then_some(Farewell { grace, has_hook, pushes })
}

/// How much longer a phase may take that begins with a farewell.
pub(super) fn grace(record: &Record) -> Duration {
    let workload = &record.template.workload;
    let SyncMoments { on_stop, before_delete } = workload.sync;
    match workload.hooks.on_terminate.is_empty() && !on_stop && !before_delete {
        true => Duration::ZERO,
        false => workload.hooks.grace,
    }
}
