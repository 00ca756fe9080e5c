//! The proxy with real servers on this machine: what it allows, what it refuses, and that it leaves
//! nothing behind. Its listener is an ordinary socket here.

mod hostile;
mod long;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::{CONNECTIONS_MAX, Proxies, Proxy, RESERVED, Resolve};
use crate::sandbox::{Egress, EgressResult, EventSender, Notice, ProviderEvent};
use crate::types::{AllowedHost, Network, SandboxId};

/// Time limit for anything that should happen at once.
const WAIT: Duration = Duration::from_secs(20);

fn sandbox() -> SandboxId {
    SandboxId::trusted("0190d2a4-test")
}

/// Names with a list of addresses; each look-up uses the next one, and the last one stays.
#[derive(Debug, Default)]
struct TestNames {
    answers: Mutex<HashMap<String, Vec<IpAddr>>>,
    asked: AtomicUsize,
}

#[async_trait]
impl Resolve for TestNames {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if name.ends_with(".silent.test") {
            std::future::pending::<()>().await;
        }
        let mut answers = self.answers.lock().expect("whole");
        let left = answers.get_mut(name).ok_or_else(|| io::Error::other("no such name"))?;
        Ok(vec![if left.len() > 1 { left.remove(0) } else { left[0] }])
    }
}

/// A running proxy, and a server behind it.
struct ProxyBench {
    proxy: Option<Proxy>,
    at: SocketAddr,
    names: Arc<TestNames>,
    server: SocketAddr,
    proxies: Proxies,
}

/// A server's task for a connection.
type Serving = tokio::task::JoinHandle<()>;

impl ProxyBench {
    /// `site.test` is listed and leads to the server.
    async fn new(serves: impl Fn(TcpStream) -> Serving + Send + 'static) -> Self {
        Self::with(serves, |_| {}).await
    }

    async fn with(
        serves: impl Fn(TcpStream) -> Serving + Send + 'static,
        change: impl FnOnce(&mut Proxies),
    ) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let server_at = server.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((stream, _)) = server.accept().await {
                serves(stream);
            }
        });
        let names = Arc::new(TestNames::default());
        let listed = |host: &str| {
            AllowedHost::parse(&format!("{host}:{}", server_at.port())).expect("an entry")
        };
        let network = Network::Allow {
            hosts: ["site.test", "rebound.test", "metadata.test", "gone.test", "*.silent.test"]
                .map(listed)
                .to_vec(),
            private: vec![server_at],
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("bound");
        let mut proxies = Proxies::new(Arc::clone(&names) as _, None, EventSender::default());
        change(&mut proxies);
        let proxy = proxies.start(Some(listener), &network, &sandbox(), None);
        let bench = Self { proxy, at, names, server: server_at, proxies };
        bench.name("site.test", &["127.0.0.1"]);
        bench
    }

    fn name(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|ip| ip.parse().expect("an address")).collect();
        self.names.answers.lock().expect("whole").insert(name.to_owned(), addresses);
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).await.expect("connected")
    }

    /// Sends a request with the server's port in place of `PORT`, and returns all that comes back.
    async fn ask(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        let request = request.replace("PORT", &self.server.port().to_string());
        stream.write_all(request.as_bytes()).await.expect("sent");
        read_all(&mut stream).await
    }
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(WAIT, stream.read_to_end(&mut answer)).await;
    read.expect("it must end").expect("it must end well");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Answers each request with the request itself.
fn mirror(mut stream: TcpStream) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let answer = if head.starts_with(b"GET /elsewhere") {
            "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest\r\n\
             content-length: 0\r\nconnection: keep-alive\r\n\r\n"
                .to_owned()
        } else {
            let text = String::from_utf8_lossy(&head);
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())
        };
        // The proxy may have gone.
        let _ = stream.write_all(answer.as_bytes()).await;
    })
}

/// Answers with all that was sent, once it has ended.
fn echo(mut stream: TcpStream) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        let _ = stream.write_all(&all).await;
    })
}

/// Never reads, and never stops writing.
fn flood(mut stream: TcpStream) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move { while stream.write_all(&[b'x'; 65_536]).await.is_ok() {} })
}

#[tokio::test]
async fn plain_requests_are_forwarded_to_their_target() {
    let bench = ProxyBench::new(mirror).await;
    let answer = bench
        .ask(
            "GET http://site.test:PORT/a?b=c HTTP/1.1\r\nHost: other.test\r\nX-Own: 1\r\n\
             Proxy-Authorization: Basic eDp5\r\nX-Hop: 2\r\nConnection: close, x-hop\r\n\r\n",
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("GET /a?b=c HTTP/1.1\r\n"), "{answer}");
    assert!(answer.contains(&format!("host: site.test:{}\r\n", bench.server.port())), "{answer}");
    assert!(answer.contains("x-own: 1"), "{answer}");
    for gone in ["other.test", "roxy-", "x-hop: 2"] {
        assert!(!answer.contains(gone), "{gone} in {answer}");
    }
    // A request in the form of HTTP/1.0, and a body with chunks only.
    let answer = bench.ask("GET http://site.test:PORT HTTP/1.0\r\n\r\n").await;
    assert!(answer.contains("GET / HTTP/1.1\r\n"), "{answer}");
}

#[tokio::test]
async fn each_request_is_checked_whatever_came_before_it() {
    let bench = ProxyBench::new(mirror).await;
    let first = "GET http://site.test:PORT/1 HTTP/1.1\r\nHost: site.test\r\n\r\n";
    let second = "GET http://evil.test/2 HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n";
    let answer = bench.ask(&format!("{first}{second}")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let behind = answer.split("HTTP/1.1 403").nth(1).expect("the second must be refused");
    assert!(behind.contains("add \"evil.test\" to `allow`"), "{answer}");
    assert!(!answer.contains("GET /2"), "it must not have reached the server: {answer}");
}

#[tokio::test]
async fn a_refusal_names_its_reason() {
    let bench = ProxyBench::new(mirror).await;
    bench.name("metadata.test", &["169.254.169.254"]);
    bench.name("evil.test", &["127.0.0.1"]);
    for (target, status, why) in [
        ("CONNECT evil.test:PORT", 403, "evil.test:PORT is not in the allow list"),
        ("CONNECT site.test:443", 403, "site.test:443 is not in the allow list"),
        (
            "CONNECT metadata.test:PORT",
            403,
            "metadata.test:PORT was not found, or leads to an address",
        ),
        ("CONNECT 169.254.169.254:80", 403, "leads to an address that is not public"),
        ("CONNECT gone.test:PORT", 403, "gone.test:PORT was not found, or leads to an address"),
        ("CONNECT 2130706433:PORT", 400, "four decimal numbers"),
        ("CONNECT site.test", 400, ""),
        ("CONNECT user@site.test:PORT", 400, ""),
        (
            "CONNECT [::ffff:127.0.0.1]:443",
            403,
            "127.0.0.1:443 leads to an address that is not public",
        ),
        ("GET http://evil.test:PORT/", 403, "is not in the allow list"),
        ("GET http://site.test@evil.test:PORT/", 400, "name or address"),
        ("GET http://[::1]:PORT/", 403, "leads to an address that is not public"),
        ("GET https://site.test:PORT/", 400, "CONNECT"),
        ("GET ftp://site.test:PORT/", 400, ""),
        ("GET /", 400, "this is a proxy"),
    ] {
        let request = format!("{target} HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n");
        let answer = bench.ask(&request).await;
        let why = why.replace("PORT", &bench.server.port().to_string());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {answer}");
        assert!(answer.contains(&why), "{target} must say {why:?}: {answer}");
    }
}

#[tokio::test]
async fn each_result_is_counted_and_failures_are_reported_to_people() {
    let bench = ProxyBench::new(mirror).await;
    bench.name("metadata.test", &["169.254.169.254"]);
    let mut events = bench.proxies.events.subscribe();
    let port = bench.server.port();
    let closing = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    for target in [
        "GET http://site.test:PORT/",
        "CONNECT evil.test:443",
        "CONNECT evil.test:443",
        "CONNECT metadata.test:PORT",
        "CONNECT gone.test:PORT",
        "GET /",
    ] {
        bench.ask(&format!("{target} {closing}")).await;
    }
    let mut texts = Vec::new();
    while let Some(event) = events.try_next() {
        let ProviderEvent::Notice(Notice { sandbox: of, text }) = event else {
            panic!("{event:?}")
        };
        assert_eq!(of, sandbox());
        texts.push(text);
    }
    assert_eq!(
        texts,
        [
            "refused evil.test:443: it is not in the allow list. To allow it, add \"evil.test\" to \
             `allow` of the sandbox's template"
                .to_owned(),
            format!(
                "refused metadata.test:{port}: it leads to 169.254.169.254:{port} (a link-local \
                 address), which no sandbox may reach"
            ),
            format!("gone.test:{port} was not found: no such name"),
        ]
    );
    let of = |egress: Egress, result: EgressResult| egress.results[result as usize];
    let egress = bench.proxies.egress();
    for (result, count) in [
        (EgressResult::Connected, 1),
        (EgressResult::NotListed, 2),
        (EgressResult::Never, 1),
        (EgressResult::NameNotFound, 1),
        (EgressResult::Malformed, 1),
        (EgressResult::NotPublic, 0),
    ] {
        assert_eq!(of(egress, result), count, "{}", result.as_str());
    }
    let sent = format!("GET / HTTP/1.1\r\nhost: site.test:{port}\r\n\r\n").len() as u64;
    assert_eq!(egress.sent, sent);
    assert!(egress.received > sent, "{egress:?}");
    let mut open = bench.connect().await;
    open.write_all(b"GET http://site").await.expect("sent");
    let is_open = |count| {
        let proxies = &bench.proxies;
        tokio::time::timeout(WAIT, async move {
            while proxies.egress().open != count {
                tokio::task::yield_now().await;
            }
        })
    };
    is_open(1).await.expect("it is open");
    drop(open);
    is_open(0).await.expect("it is closed");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let bench = ProxyBench::new(mirror).await;
    let request =
        "GET http://site.test:PORT/elsewhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = bench.ask(request).await;
    assert!(answer.starts_with("HTTP/1.1 302"), "{answer}");
    assert!(answer.contains("location: http://169.254.169.254/latest"), "{answer}");
    assert!(!answer.contains("keep-alive"), "{answer}");
    let request =
        "GET http://169.254.169.254/latest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert!(bench.ask(request).await.starts_with("HTTP/1.1 403"));
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_checked_address_is_reached() {
    let bench = ProxyBench::new(mirror).await;
    let request = "GET http://rebound.test:PORT/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    // The first answer passes and the second would not; then the other way round.
    bench.name("rebound.test", &["127.0.0.1", "169.254.169.254"]);
    assert!(bench.ask(request).await.starts_with("HTTP/1.1 200"));
    assert_eq!(bench.names.asked.load(Ordering::Relaxed), 1);
    bench.name("rebound.test", &["10.1.2.3", "127.0.0.1"]);
    assert!(bench.ask(request).await.starts_with("HTTP/1.1 403"));
    assert_eq!(bench.names.asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_tunnel_forwards_early_bytes_and_each_direction_ends_separately() {
    let bench = ProxyBench::new(echo).await;
    let mut stream = bench.connect().await;
    let port = bench.server.port();
    let early = format!("CONNECT site.test:{port} HTTP/1.1\r\nHost: site.test\r\n\r\nearly, ");
    stream.write_all(early.as_bytes()).await.expect("sent");
    let mut head = vec![0; b"HTTP/1.1 200 OK\r\n".len()];
    stream.read_exact(&mut head).await.expect("an answer");
    assert_eq!(head, b"HTTP/1.1 200 OK\r\n");
    let long = "x".repeat(1 << 20);
    stream.write_all(long.as_bytes()).await.expect("sent");
    // The server answers only now.
    stream.shutdown().await.expect("half closed");
    let answer = read_all(&mut stream).await;
    let body = answer.split_once("\r\n\r\n").expect("a head's end").1;
    assert!(body == format!("early, {long}"), "{} bytes came back", body.len());
}

#[tokio::test]
async fn a_body_without_a_length_arrives_whole() {
    let bench = ProxyBench::new(|mut stream| {
        tokio::spawn(async move {
            let mut all = Vec::new();
            while !all.ends_with(b"0\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => all.push(byte),
                    Err(_) => return,
                }
            }
            let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(&[answer.as_bytes(), &all].concat()).await;
        })
    })
    .await;
    let answer = bench
        .ask(
            "POST http://site.test:PORT/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\
             Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        )
        .await;
    assert!(answer.contains("transfer-encoding: chunked"), "{answer}");
    assert!(answer.contains("abc") && answer.contains("de"), "{answer}");
    assert!(!answer.contains("expect:"), "{answer}");
}

#[tokio::test]
async fn heads_are_bounded() {
    let bench = ProxyBench::new(mirror).await;
    let long = "a".repeat(20 * 1024);
    let request = format!("GET http://site.test:PORT/ HTTP/1.1\r\nX-Long: {long}\r\n\r\n");
    let answer = bench.ask(&request).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_read_blocks_no_other_and_ends_with_the_proxy() {
    let mut bench = ProxyBench::new(flood).await;
    let port = bench.server.port();
    let connect = format!("CONNECT site.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut unread = Vec::new();
    for _ in 0..CONNECTIONS_MAX - 1 {
        let mut stream = bench.connect().await;
        stream.write_all(connect.as_bytes()).await.expect("sent");
        stream.read_exact(&mut [0; 64]).await.expect("it began");
        unread.push(stream);
    }
    // One connection is left, and others use it one after the other.
    for _ in 0..3 {
        let refused = "CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        assert!(bench.ask(refused).await.starts_with("HTTP/1.1 403"));
    }
    // Beyond the bound a connection waits until another has ended.
    let mut last = bench.connect().await;
    last.write_all(connect.as_bytes()).await.expect("sent");
    last.read_exact(&mut [0; 64]).await.expect("the last connection");
    let mut waiting = bench.connect().await;
    waiting.write_all(connect.as_bytes()).await.expect("sent");
    tokio::task::yield_now().await;
    assert_eq!(
        waiting.try_read(&mut [0; 1]).map_err(|e| e.kind()).err(),
        Some(io::ErrorKind::WouldBlock)
    );
    drop(unread.pop());
    let begun = tokio::time::timeout(WAIT, waiting.read_exact(&mut [0; 64])).await;
    begun.expect("its turn must come").expect("it began");

    drop(bench.proxy.take());
    let mut streams = unread;
    streams.extend([last, waiting]);
    for mut stream in streams {
        let ended = tokio::time::timeout(WAIT, async {
            // Bytes that were written before may still be read.
            while matches!(stream.read(&mut [0; 65_536]).await, Ok(1..)) {}
        });
        ended.await.expect("each must end with the proxy");
    }
    let refused = async {
        // The listener closes with its task, now or a moment later.
        while TcpStream::connect(bench.at).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, refused).await.expect("it listens no more");
}

#[tokio::test]
async fn a_sandbox_has_reserved_connections_if_others_use_all_shared_ones() {
    let bench =
        ProxyBench::with(mirror, |proxies| proxies.permits = Arc::new(Semaphore::new(0))).await;
    let mut held = Vec::new();
    for _ in 0..RESERVED - 1 {
        held.push(bench.connect().await);
    }
    let request = "GET http://site.test:PORT/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    for _ in 0..3 {
        assert!(bench.ask(request).await.starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn a_sandbox_without_a_network_has_no_proxy() {
    let proxies = Proxies::new(Arc::new(TestNames::default()), None, EventSender::default());
    let listener =
        || async { Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound")) };
    for network in [Network::None, Network::Host] {
        assert!(proxies.start(listener().await, &network, &sandbox(), None).is_none());
    }
    assert!(
        proxies
            .start(None::<TcpListener>, &Network::Full { private: Vec::new() }, &sandbox(), None)
            .is_none()
    );
}
