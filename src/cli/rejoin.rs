//! Joining a broken event stream again: the server may be restarting.

use std::time::Duration;

use super::failure::CliFailure;

/// How often in a row a broken stream is joined again before giving up.
const TRIES_MAX: u32 = 30;
/// The pace of that.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a stream may still be joined again.
pub(super) struct Rejoins {
    left: u32,
}

impl Rejoins {
    pub const fn new() -> Self {
        Self { left: TRIES_MAX }
    }

    /// The stream works: what broke before counts no more.
    pub const fn joined(&mut self) {
        self.left = TRIES_MAX;
    }

    /// Returns when it is time to join again.
    ///
    /// # Errors
    /// Why the stream ended: a refusal at once, since only what may pass is tried again; anything
    /// else once it has happened too often in a row.
    pub async fn wait(&mut self, ended: CliFailure) -> Result<(), CliFailure> {
        if matches!(ended, CliFailure::Api { .. }) || self.left == 0 {
            return Err(ended);
        }
        self.left -= 1;
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

/// Why a stream ended that the server ended.
pub(super) fn ended_by_server() -> CliFailure {
    CliFailure::Failed {
        message: "the server ended the stream".to_owned(),
        hint: "look whether it still runs".to_owned(),
    }
}
