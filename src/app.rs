//! Assembly: builds a running server from a configuration. Only this module names adapters.
//!
//! # Start
//! The listener comes first, so that a port in use is reported before anything changes, and clients
//! wait instead of being refused. Then come secrets, store, providers, the engine (which resumes
//! unfinished work), and last the HTTP server.
//!
//! # Stop
//! Streams and waits end, new connections are refused, requests in flight are answered. Provider calls
//! in flight end or are left to the next start, and commits are flushed. Each step has a time limit.

mod accounts;
mod backup;
mod build;
pub mod doctor;
mod entry;
mod exposure;
mod gate;
mod github;
mod life_log;
mod models;
mod notices;
pub mod open_files;
pub mod providers;
mod reload;
mod serving;
mod signals;
mod verified;
mod work;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{Notify, watch};

pub use backup::{backup, has_records, restore};
pub use serving::serve;

use crate::clock::{Clock, SystemClock, SystemIds};
use crate::config::{Config, Secrets};
use crate::http::LoginLinks;
use crate::http::login_links::{LinkHolder, path_of};
use crate::issue_sandbox::SandboxServices;
use build::ServerParts;

/// Time limit for requests in flight when the server stops.
const REQUESTS_TIME_MAX: Duration = Duration::from_secs(5);
/// Time limit for provider calls in flight when the server stops. The next start checks the outcome of
/// longer ones.
const CALLS_TIME_MAX: Duration = Duration::from_secs(5);
/// Time limit for threads that still hold the store at the end.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
/// The niceness of provider calls, see `nice(2)`. At 19 a busy thread gets a few hundredths of a normal
/// one's time, which is still hundreds of calls a second.
const CALLS_NICENESS: i32 = 19;
/// Most connections that wait to be accepted; the system may bound it lower.
const BACKLOG: i32 = 4096;

/// A running server, on its own threads. Dropping it without [`RunningServer::stop`] leaves it running until
/// the process ends.
pub struct RunningServer {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its secrets.
    pub secrets: Secrets,
    login_links: Arc<LoginLinks>,
    public_url: Option<String>,
    end: watch::Sender<bool>,
    reload: mpsc::Sender<Config>,
    services: SandboxServices,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl RunningServer {
    /// Stops the server within a time limit.
    ///
    /// # Errors
    /// If the server had failed.
    pub fn stop(self) -> anyhow::Result<()> {
        let Self { end, services, thread, .. } = self;
        end.send_replace(true);
        // They keep the store open.
        drop(services);
        thread.join().map_err(|_| anyhow::anyhow!("the server's thread panicked"))?
    }

    /// A link that logs a person in to the dashboard once.
    pub fn login_link(&self) -> String {
        let (key, _) = self.login_links.make(LinkHolder::Admin, &SystemIds, SystemClock.now());
        let base = self.public_url.as_deref().map(|url| url.trim_end_matches('/').to_owned());
        let base = base.unwrap_or_else(|| format!("http://{}", self.address));
        base + &path_of(&key)
    }

    /// What programs work in its sandboxes with, see [`IssueSandbox`](crate::issue_sandbox::IssueSandbox).
    /// A clone keeps the store open: drop it before [`RunningServer::stop`].
    pub fn services(&self) -> SandboxServices {
        self.services.clone()
    }

    /// Whether it has failed and ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Starts a server and returns once it answers.
///
/// # Errors
/// Why it failed, and what to do.
pub fn start(config: Config) -> anyhow::Result<RunningServer> {
    Lasting::begin(&config, None)?.start(config, false)
}

/// What lasts while servers are started one after the other in this process.
struct Lasting {
    /// Open all the time, so that clients wait between two servers instead of being refused.
    listener: TcpListener,
    login_links: Arc<LoginLinks>,
    /// Notified when the next server is to start; `None` if nothing starts one.
    restart: Option<Arc<Notify>>,
}

impl Lasting {
    fn begin(config: &Config, restart: Option<Arc<Notify>>) -> anyhow::Result<Self> {
        open_files::raise();
        let listener = listen(config.server.listen)?;
        Ok(Self { listener, login_links: Arc::default(), restart })
    }

    /// Starts a server; with `is_new` as a new installation, in a data directory that has no database.
    fn start(&self, config: Config, is_new: bool) -> anyhow::Result<RunningServer> {
        let address = self.listener.local_addr()?;
        let exposed = exposure::check(&config)?;
        let secrets = Secrets::ensure(&config)?;
        for warning in exposed {
            tracing::warn!("{warning}");
        }
        exposure::warn_of_short(&secrets);
        let (end, ended) = watch::channel(false);
        let (reload, reloads) = mpsc::channel();
        let (ready, is_ready) = mpsc::sync_channel(1);
        let login_links = Arc::clone(&self.login_links);
        let public_url = config.server.public_url.clone();
        let parts = ServerParts {
            config,
            is_new,
            secrets: secrets.clone(),
            listener: self.listener.try_clone()?,
            ended,
            reloads,
            login_links: Arc::clone(&login_links),
            restart: self.restart.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("issuebox".into())
            .spawn(move || run(parts, ready))
            .context("cannot start the server's thread")?;
        match is_ready.recv() {
            Ok(services) => Ok(RunningServer {
                address,
                secrets,
                login_links,
                public_url,
                end,
                reload,
                services,
                thread,
            }),
            // It ended before it was ready, and its error says why.
            Err(_) => match thread.join() {
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) => anyhow::bail!("the server ended before it was ready"),
                Err(_) => anyhow::bail!("the server's thread panicked"),
            },
        }
    }
}

/// The server's main thread.
fn run(parts: ServerParts, ready: mpsc::SyncSender<SandboxServices>) -> anyhow::Result<()> {
    // One thread for provider calls: they mostly wait, and their computing slows the intake. A second
    // thread cut the deliveries handled per second by 3 in 10.
    let runtime = |name: &str, threads: usize, niceness: Option<i32>| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads).thread_name(name).enable_all();
        if let Some(niceness) = niceness {
            builder.on_thread_start(move || lower_priority(niceness));
        }
        builder.build().context("cannot start a runtime")
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
        tracing::warn!("the store is still in use at the end; it closes with the process");
    }
    tracing::info!("ended");
    Ok(())
}

/// Lowers the calling thread's priority. Deliveries must be answered within milliseconds, so provider
/// calls yield the processor to the intake. Commands in sandboxes and sandboxes themselves run on other
/// threads.
fn lower_priority(niceness: i32) {
    if let Err(error) = rustix::process::nice(niceness) {
        tracing::debug!(%error, "provider calls run at the usual priority");
    }
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| {
        format!(
            "cannot listen on {address}; if another server uses it, stop that one or use another \
             address (--listen)"
        )
    })?;
    // The standard library's backlog is 128, but hundreds of deliveries may arrive together.
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}
