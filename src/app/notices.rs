//! Copies the providers' notices about sandboxes into the sandboxes' logs, where a person looks for
//! the reason of a failed command.

use crate::logs::Logs;
use crate::sandbox::{Notice, Provider, ProviderEvent};

/// Records each provider's notices until the provider is gone.
pub(super) fn record<'a>(
    providers: impl IntoIterator<Item = &'a Provider>,
    logs: &Logs,
    io: &tokio::runtime::Handle,
) {
    for provider in providers {
        let (mut events, logs) = (provider.lifecycle.subscribe(), logs.clone());
        io.spawn(async move {
            while let Some(event) = events.next().await {
                // The engine reports events that were missed.
                if let ProviderEvent::Notice(Notice { sandbox, text }) = event {
                    logs.note(&sandbox, text);
                }
            }
        });
    }
}
