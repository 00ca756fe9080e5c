//! The hooks of a run: `on_message` before it, `on_stream_finish` after it.

use super::process::Bench;
use super::worker::RunWorker;
use crate::hooks::HookPlace;
use crate::issue::Record;
use crate::types::AccountName;

impl RunWorker {
    /// Runs `on_message` for each message that the run answers, when it begins for the first time. A run
    /// that goes on after an interruption answers the same ones.
    pub(super) async fn before_run(&self, account: &AccountName, bench: &Bench) {
        let (Some(hooks), Some(record)) = (&self.parts.hooks, bench.issue.state.record()) else {
            return;
        };
        let workload = &record.template.workload;
        if workload.hooks.on_message.is_empty() || bench.attempt > 1 {
            return;
        }
        let messages = match self.parts.rows.messages_of(bench.run).await {
            Ok(messages) => messages.into_iter().map(|row| row.message.id).collect::<Vec<_>>(),
            Err(error) => {
                tracing::warn!(home = bench.home.0, run = %bench.run, %error,
                    "cannot read the messages of a run; its on_message hook is left out");
                return;
            }
        };
        hooks.before_run(&place(account, bench, record), workload, &messages).await;
    }

    /// Runs `on_stream_finish`. The next run begins after it.
    pub(super) async fn after_run(&self, account: &AccountName, bench: &Bench) {
        let (Some(hooks), Some(record)) = (&self.parts.hooks, bench.issue.state.record()) else {
            return;
        };
        hooks.after_run(&place(account, bench, record), &record.template.workload).await;
    }
}

fn place(account: &AccountName, bench: &Bench, record: &Record) -> HookPlace {
    HookPlace {
        home: bench.home,
        account: account.clone(),
        provider: record.template.provider.clone(),
        target: bench.inside.target.clone(),
        run: Some(bench.run),
        message: None,
    }
}
