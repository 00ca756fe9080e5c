//! A double of the models' APIs for demos and tests: it plays a script and records what it was asked.
//!
//! Which turn answers depends on the request alone: the number of the assistant's messages in it.
//! So a request that is repeated gets the same turn, and a conversation that is resumed goes on.
//! Requests that offer no tools (for titles, summaries) get a turn of their own, unless the script
//! has but one. The last turn repeats.

mod script;
mod server;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::types::Tokens;

/// What the double plays.
#[derive(Clone, Debug, Default)]
pub struct DoubleScript {
    /// The answers, one after the other.
    pub turns: Vec<DoubleTurn>,
    /// The answer to what offers no tools; `None` for a turn like all others.
    pub side: Option<DoubleTurn>,
}

/// One answer.
#[derive(Clone, Debug, Default)]
pub struct DoubleTurn {
    /// What it says and does.
    pub blocks: Vec<DoubleBlock>,
    /// What it says it used.
    pub usage: Tokens,
    /// The pause before each piece.
    pub pause: Duration,
    /// What goes wrong, once the turn began.
    pub fault: Option<DoubleFault>,
}

impl DoubleTurn {
    /// A turn that says this and used 100 tokens of input and 20 of output.
    pub fn says(text: &str) -> Self {
        Self::of(vec![DoubleBlock::Text(text.to_owned())])
    }

    /// A turn with these blocks that used 100 tokens of input and 20 of output.
    pub fn of(blocks: Vec<DoubleBlock>) -> Self {
        let usage = Tokens { input: 100, output: 20, ..Tokens::default() };
        Self { blocks, usage, ..Self::default() }
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum DoubleBlock {
    /// Text.
    Text(String),
    /// Thoughts.
    Thinking(String),
    /// A call of a tool.
    Tool {
        /// The tool.
        name: String,
        /// Its input.
        input: Value,
    },
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoubleFault {
    /// The answer is this error, with these headers.
    Status(u16, Vec<(&'static str, String)>),
    /// The connection ends after so many events.
    Cut(usize),
    /// Nothing comes after so many events, and the connection stays.
    Stall(usize),
}

/// A request that the double got.
#[derive(Clone, Debug)]
pub struct DoubleRequest {
    /// Its path with its query.
    pub path: String,
    /// Its headers, in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Value,
}

impl DoubleRequest {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The key that it came with.
    pub fn key(&self) -> Option<&str> {
        let bearer = self.header("authorization").and_then(|it| it.strip_prefix("Bearer "));
        self.header("x-api-key").or(bearer)
    }
}

/// What the double counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoubleCounts {
    /// Requests that came, but for those that count tokens.
    pub requests: usize,
    /// Requests that count tokens.
    pub counts: usize,
    /// Answers that are being written.
    pub open: usize,
    /// Most answers that were being written at one time.
    pub open_max: usize,
    /// Answers whose client went before their end.
    pub canceled: usize,
    /// What the answers that were begun used, in all.
    pub used: Tokens,
}

/// What the server and its owner share.
struct DoubleShared {
    script: Mutex<DoubleScript>,
    requests: Mutex<Vec<DoubleRequest>>,
    counts: watch::Sender<DoubleCounts>,
}

/// A double that listens on the loopback. Dropping it ends it.
pub struct ModelDouble {
    address: SocketAddr,
    shared: Arc<DoubleShared>,
    server: JoinHandle<()>,
}

impl ModelDouble {
    /// Starts a double on a free port. Call it within a tokio runtime.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn start(script: DoubleScript) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(DoubleShared {
            script: Mutex::new(script),
            requests: Mutex::default(),
            counts: watch::Sender::default(),
        });
        let server = tokio::spawn(server::serve(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, server })
    }

    /// Its address, as `base_url` of an endpoint.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Plays another script from now on.
    pub fn play(&self, script: DoubleScript) {
        *self.shared.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
    }

    /// The requests that came, in their order.
    pub fn requests(&self) -> Vec<DoubleRequest> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys that the requests came with.
    pub fn keys(&self) -> BTreeSet<String> {
        let requests = self.requests();
        requests.iter().filter_map(|request| Some(request.key()?.to_owned())).collect()
    }

    /// What it counted.
    pub fn counts(&self) -> DoubleCounts {
        *self.shared.counts.borrow()
    }

    /// Waits until its counts are so.
    pub async fn wait_for(&self, is_so: impl FnMut(&DoubleCounts) -> bool) {
        // The sender lives as long as this.
        drop(self.shared.counts.subscribe().wait_for(is_so).await);
    }
}

impl Drop for ModelDouble {
    fn drop(&mut self) {
        self.server.abort();
    }
}
