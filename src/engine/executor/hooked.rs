//! The calls that run hooks: the cold start, which is a call of its own, and what comes before a stop or
//! a delete. Neither takes a turn at the provider, because it may take minutes.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::sync::Notify;

use super::calls::ProviderCalls;
use crate::engine::hooks::HookedSandbox;
use crate::issue::event::{CallError, ColdStartEnd, Done, NotAsked};
use crate::issue::{ProviderCall, Verb};
use crate::types::{ExternalId, HomeId};

fn hooked(home: HomeId, call: &ProviderCall, external_id: ExternalId) -> HookedSandbox {
    let (account, record) = (call.account.clone(), call.record.clone());
    HookedSandbox { home, account, record, external_id }
}

impl ProviderCalls {
    /// Runs a cold start until it ends, is withdrawn, or its time is over. `None` if the server ends.
    pub(super) async fn cold_start(
        &self,
        home: HomeId,
        call: &ProviderCall,
        withdrawn: &Notify,
    ) -> Option<Result<Done, CallError>> {
        let Verb::ColdStart { external_id } = &call.verb else {
            let message = "it is no cold start".to_owned();
            return Some(Err(CallError::Unavailable { message, retry_after: None }));
        };
        let sandbox = hooked(home, call, external_id.clone());
        let work = async {
            let hooks = self.env.hooks.get().await?;
            let work = AssertUnwindSafe(hooks.cold_start(sandbox)).catch_unwind();
            Some(work.await.unwrap_or_else(|_| {
                tracing::error!(home = home.0, "a cold start panicked, which is a bug");
                Ok(ColdStartEnd::Failed("the cold start panicked; see the server's log".to_owned()))
            }))
        };
        let end = tokio::select! {
            biased;
            () = self.env.hooks.closed() => return None,
            end = work => end?,
            () = withdrawn.notified() => Ok(ColdStartEnd::Withdrawn),
            () = self.env.clock.sleep_until(call.deadline) => {
                Ok(ColdStartEnd::Failed("the cold start took too long".to_owned()))
            }
        };
        Some(end.map(Done::ColdStarted))
    }

    /// Does what is owed before a stop or a delete, for as long as the grace time lasts.
    ///
    /// # Errors
    /// The server ends. It is still owed, and the next server begins with it.
    pub(super) async fn before_end(
        &self,
        home: HomeId,
        call: &ProviderCall,
    ) -> Result<(), NotAsked> {
        let (Some(what), Some(external_id)) = (call.before, &call.external_id) else {
            return Ok(());
        };
        let sandbox = hooked(home, call, external_id.clone());
        let end = self.env.now().after(what.grace);
        let work = async {
            let hooks = self.env.hooks.get().await?;
            let work = AssertUnwindSafe(hooks.before_end(sandbox.clone(), what)).catch_unwind();
            if work.await.is_err() {
                tracing::error!(home = home.0, "a hook before a stop panicked, which is a bug");
            }
            Some(())
        };
        tokio::select! {
            biased;
            () = self.env.hooks.closed() => return Err(NotAsked::NoTurn),
            ended = work => return ended.ok_or(NotAsked::NoTurn),
            () = self.env.clock.sleep_until(end) => {}
        }
        if let Some(hooks) = self.env.hooks.get().await {
            hooks.out_of_grace(sandbox, what).await;
        }
        Ok(())
    }
}
