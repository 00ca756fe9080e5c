//! Writes the notices of providers into the sandboxes' logs, where people look for the reason why a
//! command failed.

use crate::logs::Logs;
use crate::sandbox::{Notice, Provider, ProviderEvent};

/// Follows the notices of each provider until that is gone.
pub(super) fn write_down<'a>(
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
