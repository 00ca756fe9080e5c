//! Resolves names to addresses.
//!
//! Names are absolute. The `search` domains of `/etc/resolv.conf` do not apply, otherwise a listed
//! `example.org` could lead to `example.org.corp.example`. A trailing dot makes a name absolute for the
//! resolver, but most resolvers then skip `/etc/hosts`. So this module reads that file first.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use async_trait::async_trait;

/// Resolves names.
#[async_trait]
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of an absolute name without its trailing dot; best first.
    ///
    /// # Errors
    /// The resolver's error.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver.
#[derive(Debug)]
pub struct SystemResolver {
    hosts: PathBuf,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { hosts: PathBuf::from("/etc/hosts") }
    }
}

#[async_trait]
impl Resolve for SystemResolver {
    /// Blocks a thread until the system's resolver answers, even if the caller stops waiting.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let (hosts, name) = (self.hosts.clone(), name.to_owned());
        let look_up = move || {
            let listed = listed_in(&hosts, &name);
            if !listed.is_empty() {
                return Ok(listed);
            }
            // The port is required but not used.
            let addresses = (format!("{name}.").as_str(), 0).to_socket_addrs();
            let addresses = addresses.map_err(as_unanswered)?;
            Ok(addresses.map(|address| address.ip()).collect())
        };
        tokio::task::spawn_blocking(look_up).await.map_err(io::Error::other)?
    }
}

/// Recognises a timeout of all name servers (`EAI_AGAIN`, `getaddrinfo(3)`). The standard library only
/// passes on the message of the C library, glibc or musl.
fn as_unanswered(error: io::Error) -> io::Error {
    let text = error.to_string();
    match ["Temporary failure in name resolution", "Try again"]
        .iter()
        .any(|words| text.ends_with(words))
    {
        true => io::Error::new(io::ErrorKind::TimedOut, error),
        false => error,
    }
}

/// A name's addresses in a file like `/etc/hosts`; none if it cannot be read.
fn listed_in(hosts: &Path, name: &str) -> Vec<IpAddr> {
    let Ok(file) = File::open(hosts) else { return Vec::new() };
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    lines.filter_map(|line| address_of(&String::from_utf8_lossy(&line), name)).collect()
}

/// The address in a line of that file, if the line has the name.
fn address_of(line: &str, name: &str) -> Option<IpAddr> {
    let mut words = line.split('#').next()?.split_ascii_whitespace();
    let address = words.next()?.parse().ok()?;
    let is_named = |word: &str| word.strip_suffix('.').unwrap_or(word).eq_ignore_ascii_case(name);
    words.any(is_named).then_some(address)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::process::Command;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn the_hosts_file_takes_precedence() {
        let dir = tempfile::tempdir().expect("a directory");
        let hosts = dir.path().join("hosts");
        let text = b"127.0.0.1\tlocalhost\n# 10.0.0.1 site.test\n10.0.0.2 Site.Test other # site\n\
            10.0.0.3 site.test.corp.test\n10.0.0.4 fine.test # site.test\nfe80::1%lo zone.test\n\xff site.test\nfd00::5   site.test.\n";
        std::fs::write(&hosts, text).expect("written");
        let resolver = SystemResolver { hosts };
        let found = async |name| {
            let found = resolver.resolve(name).await.expect("found");
            found.iter().map(IpAddr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found("site.test").await, ["10.0.0.2", "fd00::5"]);
        assert_eq!(found("other").await, ["10.0.0.2"]);
        assert_eq!(found("localhost").await, ["127.0.0.1"]);
    }

    /// Set when the test below runs in the namespaces that it created.
    const INSIDE: &str = "ISSUEBOX_TEST_RESOLVER_INSIDE";

    #[tokio::test]
    #[ignore = "needs unshare(1) and user namespaces; run by .ci/run"]
    async fn search_domains_do_not_count() {
        if std::env::var_os(INSIDE).is_none() {
            return again_inside("egress::resolve::tests::search_domains_do_not_count");
        }
        crate::sandbox::local::raise_loopback().expect("it is ours");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let socket = UdpSocket::bind("127.0.0.1:53").expect("the name server's port");
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || serve_names(&socket, &seen));
        let resolver = SystemResolver::default();
        let found = resolver.resolve("site.test").await.expect("it is known");
        assert_eq!(found, ["10.1.2.3".parse::<IpAddr>().expect("an address")]);
        for name in ["site", "gone.test"] {
            resolver.resolve(name).await.expect_err("only a search domain has it");
        }
        let asked = asked.lock().expect("whole");
        assert!(asked.iter().any(|name| name == "gone.test"), "{asked:?}");
        assert!(!asked.iter().any(|name| name.ends_with("corp.test")), "{asked:?}");
        assert!(!asked.iter().any(|name| name == "site.test.test"), "{asked:?}");
    }

    /// Runs a test of this file again in a namespace, in which `/etc/resolv.conf` has a name server on
    /// loopback and search domains.
    fn again_inside(test: &str) {
        let dir = tempfile::tempdir().expect("a directory");
        let settings = dir.path().join("resolv.conf");
        std::fs::write(&settings, "nameserver 127.0.0.1\nsearch corp.test test\n")
            .expect("written");
        let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
        let own = std::env::current_exe().expect("known");
        let out = Command::new("unshare")
            .args(["-Urmn", "sh", "-c", script])
            .args([settings.as_os_str(), own.as_os_str()])
            .args(["--include-ignored", "--exact", test])
            .env(INSIDE, "1")
            .output()
            .expect("unshare is there");
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains("1 passed"), "{text} {out:?}");
    }

    /// Answers 10.1.2.3 for `site.test` and for all below `corp.test`, and nothing for others.
    fn serve_names(socket: &UdpSocket, asked: &Mutex<Vec<String>>) {
        let mut packet = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut packet) {
            let question = &packet[12..len];
            let (mut labels, mut at) = (Vec::new(), 0);
            while question[at] != 0 {
                let end = at + 1 + usize::from(question[at]);
                labels.push(String::from_utf8_lossy(&question[at + 1..end]).into_owned());
                at = end;
            }
            let question = &question[..at + 5];
            let (name, is_v4) = (labels.join("."), question[at + 2] == 1);
            let is_known = name == "site.test" || name.ends_with("corp.test");
            asked.lock().expect("whole").push(name);
            let (code, answers) = (if is_known { 0 } else { 3 }, u8::from(is_known && is_v4));
            let mut answer = packet[..2].to_vec();
            answer.extend([0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0]);
            answer.extend(question);
            if answers == 1 {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 1, 2, 3]);
            }
            socket.send_to(&answer, from).expect("answered");
        }
    }
}
