//! The signals that a server listens to: SIGTERM and SIGINT end it, SIGHUP reads the
//! configuration again.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often the caller is let look at other things.
const LOOK_UP: Duration = Duration::from_secs(1);

/// What a signal says.
pub(super) enum SignalEvent {
    /// End; by which signal.
    End(&'static str),
    /// Read the configuration again.
    Reload,
    /// No signal came for a while.
    Nothing,
}

/// The listeners, on a small runtime of their own.
pub(super) struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Begins to listen; from here on the signals no longer end the process by themselves.
    pub fn begin() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let _inside = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hang_up = signal(SignalKind::hangup())?;
        drop(_inside);
        Ok(Self { runtime, terminate, interrupt, hang_up })
    }

    /// Waits for a signal.
    pub fn next(&mut self) -> std::io::Result<SignalEvent> {
        let Self { runtime, terminate, interrupt, hang_up } = self;
        Ok(runtime.block_on(async {
            tokio::select! {
                biased;
                _ = terminate.recv() => SignalEvent::End("SIGTERM"),
                _ = interrupt.recv() => SignalEvent::End("SIGINT"),
                _ = hang_up.recv() => SignalEvent::Reload,
                () = tokio::time::sleep(LOOK_UP) => SignalEvent::Nothing,
            }
        }))
    }
}
