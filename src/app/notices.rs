//! What providers tell of sandboxes goes into the sandboxes' logs, where people look who wonder why a
//! command there failed.

use std::sync::Arc;

use crate::logs::Logs;
use crate::sandbox::{Notice, SandboxProvider};

/// Writes down what each provider tells, until that is gone.
pub(super) fn write_down(
    providers: impl IntoIterator<Item = Arc<dyn SandboxProvider>>,
    logs: &Logs,
    io: &tokio::runtime::Handle,
) {
    for mut notices in providers.into_iter().filter_map(|provider| provider.notices()) {
        let logs = logs.clone();
        io.spawn(async move {
            while let Some(Notice { sandbox, text }) = notices.recv().await {
                logs.note(&sandbox, text);
            }
        });
    }
}
