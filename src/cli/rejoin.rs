//! Reconnects to a broken event stream, because the server may be restarting.

use std::time::Duration;

use super::failure::CliFailure;

/// Most attempts in a row.
const TRIES_MAX: u32 = 30;
/// The pause between attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Counts the attempts to reconnect.
pub(super) struct Rejoins {
    left: u32,
}

impl Rejoins {
    pub const fn new() -> Self {
        Self { left: TRIES_MAX }
    }

    /// The stream is connected; the count starts again.
    pub const fn joined(&mut self) {
        self.left = TRIES_MAX;
    }

    /// Waits until the next attempt is due.
    ///
    /// # Errors
    /// A refusal at once, because only a temporary failure is retried; any other failure after too many
    /// attempts in a row.
    pub async fn wait(&mut self, ended: CliFailure) -> Result<(), CliFailure> {
        if matches!(ended, CliFailure::Api { .. }) || self.left == 0 {
            return Err(ended);
        }
        self.left -= 1;
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

/// The error for a stream that the server closed.
pub(super) fn ended_by_server() -> CliFailure {
    CliFailure::Failed {
        message: "the server ended the stream".to_owned(),
        hint: "check that the server still runs".to_owned(),
    }
}
