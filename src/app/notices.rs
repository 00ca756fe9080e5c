//! Copies the providers' notices about sandboxes into the sandboxes' logs, where a person looks for
//! the reason of a failed command.

use std::sync::Arc;

use crate::logs::Logs;
use crate::sandbox::{Notice, SandboxProvider};

/// Records each provider's notices until the provider is gone.
pub(super) fn record(
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
