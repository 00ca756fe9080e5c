//! From a name to its addresses.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

/// Most look-ups at once. Each takes a thread for as long as the system's resolver takes, whether
/// or not somebody still waits; past this, look-ups wait for each other.
const LOOKUPS_MAX: usize = 32;

/// Finds the addresses of names.
#[async_trait]
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of a name, best first.
    ///
    /// # Errors
    /// What the resolver answers.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the system that the server runs on.
#[derive(Debug)]
pub struct SystemResolver(Arc<Semaphore>);

impl Default for SystemResolver {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LOOKUPS_MAX)))
    }
}

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let place = Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)?;
        let name = name.to_owned();
        let look_up = move || {
            // Kept by the thread: it goes on where nobody waits any more.
            let _place = place;
            // A port is asked for and not needed.
            let addresses = (name.as_str(), 0).to_socket_addrs()?;
            Ok(addresses.map(|address| address.ip()).collect())
        };
        tokio::task::spawn_blocking(look_up).await.map_err(io::Error::other)?
    }
}
