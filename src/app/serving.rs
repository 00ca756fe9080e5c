//! `serve`: runs a server until a signal stops it. When a GitHub App was registered on the page, the server
//! ends as at SIGTERM, the configuration is loaded again, and the next one starts on the same listener.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::Notify;

use crate::config::{Config, Loaded, Server};

use super::signals::{SignalEvent, Signals};
use super::{Lasting, RunningServer};

/// Time limit for the start after another server of this process. Its last threads may still hold the data
/// directory.
const NEXT_START_TIME_MAX: Duration = Duration::from_secs(20);
/// The pause between two tries of such a start.
const NEXT_START_PAUSE: Duration = Duration::from_millis(200);

/// Runs a server until a signal stops it. SIGHUP reloads the configuration with `load`: webhook secrets,
/// the admin token and the simulated provider's faults take effect at once. The log names the other
/// changes. With `is_new` it starts a new installation, in a data directory that has no database.
///
/// # Errors
/// As for [`start`](super::start).
pub fn serve(
    mut config: Config,
    is_new: bool,
    load: impl Fn() -> anyhow::Result<Loaded>,
) -> anyhow::Result<()> {
    let restart = Arc::new(Notify::new());
    // Before any thread starts, so that all inherit it.
    let mut signals = Signals::begin()?;
    let lasting = Lasting::begin(&config, Some(Arc::clone(&restart)))?;
    let server = config.server.clone();
    let mut running = lasting.start(config, is_new)?;
    loop {
        announce(&running);
        let supervised = Supervised { running: &running, server: &server, restart: &restart };
        match supervised.until_end(&mut signals, &load)? {
            None => return running.stop(),
            Some(next) => config = next,
        }
        running.stop()?;
        running = start_next(&lasting, &config)?;
    }
}

/// Says what was generated, and where the server is.
fn announce(running: &RunningServer) {
    for made in &running.secrets.made {
        tracing::info!(file = %made.path.display(), "generated a new {}", made.what);
    }
    tracing::info!("ready on http://{}", running.address);
    if std::io::stderr().is_terminal() {
        // A secret, so it goes to the terminal and not to the log.
        eprintln!(
            "\n  Dashboard: {}\n  (this link logs you in once, within 10 minutes)\n",
            running.login_link()
        );
    }
}

/// A server and what it may be asked for.
struct Supervised<'a> {
    running: &'a RunningServer,
    /// The settings that stay while the process lives.
    server: &'a Server,
    restart: &'a Notify,
}

impl Supervised<'_> {
    /// Waits for the server's end; the configuration of the next one, if there is to be one.
    fn until_end(
        &self,
        signals: &mut Signals,
        load: &impl Fn() -> anyhow::Result<Loaded>,
    ) -> anyhow::Result<Option<Config>> {
        while !self.running.has_ended() {
            match signals.next(self.restart)? {
                SignalEvent::End(name) => {
                    tracing::info!("{name}: stopping");
                    break;
                }
                SignalEvent::Reload => self.reload(load),
                SignalEvent::Restart => match self.next_config(load) {
                    Ok(config) => {
                        tracing::info!("restarting with the stored GitHub App");
                        return Ok(Some(config));
                    }
                    Err(error) => tracing::error!(
                        "the stored GitHub App is used from the next start on: {error:#}"
                    ),
                },
                SignalEvent::Nothing => {}
            }
        }
        Ok(None)
    }

    fn reload(&self, load: &impl Fn() -> anyhow::Result<Loaded>) {
        match load() {
            // The channel closes only when the server ends.
            Ok(loaded) => drop(self.running.reload.send(loaded.config)),
            Err(error) => tracing::error!("cannot reload the configuration: {error:#}"),
        }
    }

    /// The configuration of the next server. It is loaded while this one still runs, so that an error ends
    /// nothing.
    fn next_config(&self, load: &impl Fn() -> anyhow::Result<Loaded>) -> anyhow::Result<Config> {
        let Loaded { config, warnings, .. } = load().context("cannot load the configuration")?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        anyhow::ensure!(
            config.server.data == self.server.data,
            "the configuration names another data directory, which only a restart takes over; nothing of it was taken over"
        );
        // The listener stays as it is.
        let listen = self.server.listen;
        Ok(Config { server: Server { listen, ..config.server.clone() }, ..config })
    }
}

/// Starts a server in place of one that ended.
fn start_next(lasting: &Lasting, config: &Config) -> anyhow::Result<RunningServer> {
    let began = Instant::now();
    loop {
        match lasting.start(config.clone(), false) {
            Err(error) if began.elapsed() < NEXT_START_TIME_MAX => {
                tracing::warn!("cannot restart yet: {error:#}");
                std::thread::sleep(NEXT_START_PAUSE);
            }
            started => return started,
        }
    }
}
