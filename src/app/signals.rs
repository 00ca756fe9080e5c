//! The server's signals: SIGTERM and SIGINT stop it, SIGHUP reloads the configuration; and the request to
//! restart.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// How often [`Signals::next`] returns without a signal.
const LOOK_UP: Duration = Duration::from_secs(1);

/// What a signal asks for.
pub(super) enum SignalEvent {
    /// Stop; the signal's name.
    End(&'static str),
    /// Reload the configuration.
    Reload,
    /// Restart: no signal, but what the server itself asks for.
    Restart,
    /// No signal came for a while.
    Nothing,
}

/// The signal handlers, on a small runtime of their own.
pub(super) struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Installs the handlers; from now on the signals no longer end the process by themselves.
    pub fn begin() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let _inside = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hang_up = signal(SignalKind::hangup())?;
        drop(_inside);
        Ok(Self { runtime, terminate, interrupt, hang_up })
    }

    /// Waits for a signal, or for the server's wish to restart.
    pub fn next(&mut self, restart: &Notify) -> std::io::Result<SignalEvent> {
        let Self { runtime, terminate, interrupt, hang_up } = self;
        Ok(runtime.block_on(async {
            tokio::select! {
                biased;
                _ = terminate.recv() => SignalEvent::End("SIGTERM"),
                _ = interrupt.recv() => SignalEvent::End("SIGINT"),
                _ = hang_up.recv() => SignalEvent::Reload,
                () = restart.notified() => SignalEvent::Restart,
                () = tokio::time::sleep(LOOK_UP) => SignalEvent::Nothing,
            }
        }))
    }
}
