//! The file `address` of a data directory: where its server listens.
//!
//! # Guarantees
//! A server holds the file's lock for as long as it listens. So a reader can tell the address of a
//! server that runs from one that a server left behind, which any program may have taken since.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::net::SocketAddr;

use super::Server;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A server listens there now.
    Current(SocketAddr),
    /// The last one listened there.
    Last(SocketAddr),
    /// No server has listened yet.
    Never,
}

/// Keeps an address current; a drop makes it the last one.
#[derive(Debug)]
pub struct Announced {
    _locked: File,
}

impl Server {
    /// The file in the data directory that holds the server's address.
    pub const ADDRESS_FILE: &'static str = "address";

    /// Where the server on this data directory listens or listened.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn address(&self) -> io::Result<ServerAddress> {
        let mut file = match File::open(self.data.join(Self::ADDRESS_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ServerAddress::Never);
            }
            opened => opened?,
        };
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let Ok(address) = text.trim().parse() else { return Ok(ServerAddress::Never) };
        match file.try_lock_shared() {
            Ok(()) => Ok(ServerAddress::Last(address)),
            Err(TryLockError::WouldBlock) => Ok(ServerAddress::Current(address)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Writes where the server listens from now on.
    ///
    /// # Errors
    /// If the data directory cannot be written to.
    pub fn announce(&self, address: SocketAddr) -> io::Result<Announced> {
        // A file of its own, locked before it gets its name: no reader holds its lock or sees a part.
        let path = self.data.join(Self::ADDRESS_FILE);
        let beside = path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.lock()?;
        writeln!(file, "{address}")?;
        std::fs::rename(&beside, &path)?;
        Ok(Announced { _locked: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_current_while_its_server_listens() {
        let dir = tempfile::tempdir().expect("a directory");
        let listen: SocketAddr = "127.0.0.1:8787".parse().expect("an address");
        let data = dir.path().to_owned();
        let server = Server { listen, data, public_url: None, trusted_proxies: Vec::new() };
        let read = || server.address().expect("readable");
        assert_eq!(read(), ServerAddress::Never);
        let [first, second] = ["127.0.0.1:1", "[::1]:2"].map(|a| a.parse().expect("an address"));
        let announced = server.announce(first).expect("written");
        assert_eq!(read(), ServerAddress::Current(first));
        drop(announced);
        assert_eq!(read(), ServerAddress::Last(first));
        let _announced = server.announce(second).expect("written");
        assert_eq!(read(), ServerAddress::Current(second));
        std::fs::write(dir.path().join("address"), "elsewhere\n").expect("written");
        assert_eq!(read(), ServerAddress::Never, "not an address");
    }
}
