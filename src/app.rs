//! Assembly: from a configuration to a running server. The only place that names adapters.
//!
//! # Order of a start
//! The listener first, so that a taken port is told before anything is touched, and connections
//! wait instead of being refused; then secrets, store, providers, engine (which takes up what is
//! unfinished), and at last the edge.
//!
//! # Order of an end
//! Streams and waits end, nothing new is accepted, requests in flight are answered, provider
//! calls in flight end or are left for the next start, commits are flushed. Each has a bound.

mod backup;
mod build;
pub mod doctor;
mod notices;
pub mod providers;
mod reload;
mod signals;

use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;

pub use backup::{backup, has_records, restore};

use crate::clock::{Clock, SystemClock, SystemIds};
use crate::config::{Config, Loaded, Secrets};
use crate::http::LoginLinks;
use crate::http::login_links::path_of;
use build::Parts;

/// How long requests in flight may take once the server is to end.
const REQUESTS_TIME_MAX: Duration = Duration::from_secs(5);
/// How long provider calls in flight may take once the server is to end. What takes longer is
/// looked for at the next start.
const CALLS_TIME_MAX: Duration = Duration::from_secs(5);
/// How long the last threads may hold the store once everything has ended.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
/// How far provider calls stand back for everything else, see `nice(2)`. At 19 busy threads get a
/// few hundredths of what usual ones get, which is still hundreds of calls a second.
const CALLS_NICENESS: i32 = 19;
/// Connections that may wait to be accepted; the system's own bound may be lower.
const BACKLOG: i32 = 4096;

/// A server that is up, on threads of its own. Dropping it without [`Running::stop`] leaves it to
/// the end of the process.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it runs with.
    pub secrets: Secrets,
    login_links: Arc<LoginLinks>,
    public_url: Option<String>,
    end: watch::Sender<bool>,
    reload: mpsc::Sender<Config>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Ends it in bounded time and waits for that.
    ///
    /// # Errors
    /// Where the server had failed.
    pub fn stop(self) -> anyhow::Result<()> {
        self.end.send_replace(true);
        self.thread.join().map_err(|_| anyhow::anyhow!("the server's thread panicked"))?
    }

    /// A link that logs a person in to the dashboard, once.
    pub fn login_link(&self) -> String {
        let (key, _) = self.login_links.make(&SystemIds, SystemClock.now());
        let base = self.public_url.as_deref().map(|url| url.trim_end_matches('/').to_owned());
        let base = base.unwrap_or_else(|| format!("http://{}", self.address));
        base + &path_of(&key)
    }

    /// Whether it has ended by itself, because it failed.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Starts a server and returns once it answers.
///
/// # Errors
/// What is in the way, and what to do about it.
pub fn start(config: Config) -> anyhow::Result<Running> {
    let listener = listen(config.server.listen)?;
    let address = listener.local_addr()?;
    let secrets = Secrets::ensure(&config)?;
    let (end, ended) = watch::channel(false);
    let (reload, reloads) = mpsc::channel();
    let (ready, is_ready) = mpsc::sync_channel(1);
    let login_links = Arc::new(LoginLinks::default());
    let public_url = config.server.public_url.clone();
    let parts = Parts {
        config,
        secrets: secrets.clone(),
        listener,
        ended,
        reloads,
        login_links: Arc::clone(&login_links),
    };
    let thread = std::thread::Builder::new()
        .name("issuebox".into())
        .spawn(move || run(parts, ready))
        .context("the server's thread could not be started")?;
    match is_ready.recv() {
        Ok(()) => Ok(Running { address, secrets, login_links, public_url, end, reload, thread }),
        // It ended before it was ready: its error says why.
        Err(_) => match thread.join() {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => anyhow::bail!("the server ended before it was ready"),
            Err(_) => anyhow::bail!("the server's thread panicked"),
        },
    }
}

/// Runs a server until a signal ends it. SIGHUP reads the configuration again by `load`: what can
/// change while it runs does (the webhook secrets, the admin token, the simulated provider's faults),
/// and what cannot is named in the log.
///
/// # Errors
/// As for [`start`].
pub fn serve(config: Config, load: impl Fn() -> anyhow::Result<Loaded>) -> anyhow::Result<()> {
    // Before any thread, so that every thread inherits it.
    let mut signals = signals::Signals::begin()?;
    let running = start(config)?;
    for made in &running.secrets.made {
        tracing::info!(file = %made.path.display(), "a new {} was made and is kept there", made.what);
    }
    tracing::info!("ready on http://{}", running.address);
    if std::io::stderr().is_terminal() {
        // For the person at the terminal alone: it is a key, so it stays out of logs.
        eprintln!(
            "\n  Dashboard: {}\n  (logs you in, once, within 10 minutes)\n",
            running.login_link()
        );
    }
    while !running.has_ended() {
        match signals.next()? {
            signals::SignalEvent::End(name) => {
                tracing::info!("{name}: ending");
                break;
            }
            signals::SignalEvent::Reload => reload(&running, &load),
            signals::SignalEvent::Nothing => {}
        }
    }
    running.stop()
}

fn reload(running: &Running, load: &impl Fn() -> anyhow::Result<Loaded>) {
    match load() {
        // Closed only while it ends anyway.
        Ok(loaded) => drop(running.reload.send(loaded.config)),
        Err(error) => tracing::error!("the configuration was not taken over: {error:#}"),
    }
}

/// The server's own thread: it lives as long as the server.
fn run(parts: Parts, ready: mpsc::SyncSender<()>) -> anyhow::Result<()> {
    // One thread for calls: they mostly wait, and what they compute comes out of the intake's
    // time. With two, 3 deliveries in 10 fewer were taken in a second.
    let runtime = |name: &str, threads: usize, niceness: Option<i32>| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads).thread_name(name).enable_all();
        if let Some(niceness) = niceness {
            builder.on_thread_start(move || stand_back(niceness));
        }
        builder.build().context("a runtime could not be started")
    };
    let io = runtime("issuebox-io", 2, None)?;
    let calls = runtime("issuebox-calls", 1, Some(CALLS_NICENESS))?;
    let (on_io, on_calls) = (io.handle().clone(), calls.handle().clone());
    let closed = actix::System::new().block_on(build::serve(parts, on_io, on_calls, ready));
    calls.shutdown_timeout(Duration::from_secs(1));
    io.shutdown_timeout(Duration::from_secs(1));
    if let Some(closed) = closed?
        && closed.recv_timeout(CLOSE_TIME_MAX) == Err(mpsc::RecvTimeoutError::Timeout)
    {
        tracing::warn!("the store is still held by a thread; it closes with the process");
    }
    tracing::info!("ended");
    Ok(())
}

/// Deliveries must be answered within milliseconds, whatever there is to do for providers: where
/// the processor is short, lifecycle calls wait and the intake does not. (Work in sandboxes runs
/// elsewhere, and sandboxes themselves are started from a thread that does not stand back.)
fn stand_back(niceness: i32) {
    if let Err(error) = rustix::process::nice(niceness) {
        tracing::debug!(%error, "provider calls run at the usual priority");
    }
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| {
        format!(
            "cannot listen on {address}; if another server has it, end that one or choose another \
             address (--listen)"
        )
    })?;
    // The standard library asks for 128; hundreds of deliveries may come at once.
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}
