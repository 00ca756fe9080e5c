//! A dashboard that is open on many screens: 1,000 streams of events of which a tenth never read,
//! and the first page of 20,000 live sandboxes, at rest and while 50 things change each second. The
//! page is fetched in turn with a route that does nothing, so that both meet the same machine.

mod common;
#[path = "../tests/common/crowd.rs"]
mod crowd;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::served::{Home, Served};
use common::{TOKEN, get, load, quantile};
use reqwest::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LIVE: usize = 20_000;
const STREAMS: usize = 1_000;
/// Of which so many are never read.
const UNREAD: usize = STREAMS / 10;
/// Stops of a sandbox each second: two changes each.
const STOPS_A_SECOND: f64 = 25.0;
const SECONDS: usize = 20;
const FETCHES: usize = 40;
/// How much all streams together may cost, in MB.
const STREAMS_MB_MAX: f64 = 100.0;

fn main() {
    // `cargo test` runs benches to see that they work; they only measure when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let home = Home::new();
    let data = home.dir.path().join("data");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    std::fs::create_dir(&data).expect("made");
    runtime.block_on(crowd::live(&data, home.simulated.path(), LIVE));

    let server = Served::start(&home.config);
    server.until(&format!("issuebox_sandboxes_live{{phase=\"running\"}} {LIVE}\n"));
    let person = runtime.block_on(Person::log_in(server.address));
    runtime.block_on(person.look("at rest"));

    let before = server.resident_mb("VmRSS");
    let seen = Arc::new(AtomicU64::new(0));
    let _unread = runtime.block_on(open_streams(server.address, &seen));
    println!("{STREAMS} streams opened: {:+.1} MB", server.resident_mb("VmRSS") - before);
    let address = server.address;
    let changes = std::thread::spawn(move || {
        let count = STOPS_A_SECOND as usize * SECONDS;
        let stops: Vec<_> = (0..count).map(stop).collect();
        load(address, 8, &stops, Some(STOPS_A_SECOND)).len() * 2
    });
    let began = Instant::now();
    runtime.block_on(person.look("while 50 things change each second"));
    let changes = changes.join().expect("all are answered") as u64;
    let took = began.elapsed();
    let expected = changes * (STREAMS - UNREAD) as u64;
    while seen.load(Ordering::Relaxed) < expected {
        assert!(began.elapsed() < took + Duration::from_secs(30), "{seen:?} of {expected} events");
        std::thread::yield_now();
    }
    let streams = server.resident_mb("VmHWM") - before;
    println!(
        "{changes} changes in {took:.1?}, all seen by each of {} readers; at its highest \
         {streams:+.1} MB (at most {STREAMS_MB_MAX})",
        STREAMS - UNREAD
    );
    assert!(streams < STREAMS_MB_MAX, "{streams} MB");
    drop(runtime);
    server.end();
}

/// A client with a session.
struct Person {
    client: Client,
    url: String,
    cookie: String,
}

impl Person {
    async fn log_in(address: SocketAddr) -> Self {
        let none = reqwest::redirect::Policy::none();
        let client = Client::builder().no_proxy().redirect(none).build().expect("a client");
        let url = format!("http://{address}");
        let form = client.post(format!("{url}/login")).header("origin", &url);
        let answer = form.body(format!("token={TOKEN}")).send().await.expect("it answers");
        let cookie = answer.headers()["set-cookie"].to_str().expect("text");
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Self { client, url, cookie }
    }

    /// Fetches the first page and, in turn, what costs nothing.
    async fn look(&self, when: &str) {
        let (mut page, mut nothing, mut len) = (Vec::new(), Vec::new(), 0);
        for _ in 0..FETCHES {
            nothing.push(self.fetch("/healthz").await.0);
            let (took, text) = self.fetch("/").await;
            assert!(text.contains("claude-issue-"), "it is the list");
            page.push(took);
            len = text.len();
        }
        println!(
            "first page {when}: {:.1?}, p95 {:.1?} (at most 200 ms), {} KB (at most 200); \
             a route that does nothing {:.1?}",
            quantile(&mut page, 0.5),
            quantile(&mut page, 0.95),
            len / 1000,
            quantile(&mut nothing, 0.5)
        );
    }

    async fn fetch(&self, path: &str) -> (Duration, String) {
        let began = Instant::now();
        let request = self.client.get(format!("{}{path}", self.url)).header("cookie", &self.cookie);
        let answer = request.send().await.expect("it answers");
        assert_eq!(answer.status(), 200, "{path}");
        let text = answer.text().await.expect("a body");
        (began.elapsed(), text)
    }
}

/// Opens all streams; counts the events that those which are read see. Returns the others.
async fn open_streams(address: SocketAddr, seen: &Arc<AtomicU64>) -> Vec<TcpStream> {
    let mut unread = Vec::new();
    for n in 0..STREAMS {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(&get("/v1/events")).await.expect("it is taken");
        if n % (STREAMS / UNREAD) == 0 {
            unread.push(stream);
            continue;
        }
        // Its head is there, so it is subscribed.
        let mut buffer = vec![0; 16 * 1024];
        let read = stream.read(&mut buffer).await.expect("it answers");
        assert!(buffer[..read].starts_with(b"HTTP/1.1 200"));
        let seen = Arc::clone(seen);
        tokio::spawn(async move {
            let mut rest = Vec::new();
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                rest.extend_from_slice(&buffer[..read]);
                let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                let lines = rest[..whole].split(|byte| *byte == b'\n');
                let events = lines.filter(|line| line.starts_with(b"event: sandbox.changed"));
                seen.fetch_add(events.count() as u64, Ordering::Relaxed);
                rest.drain(..whole);
            }
        });
    }
    unread
}

/// A call that stops a sandbox of the crowd.
fn stop(n: usize) -> Vec<u8> {
    let issue = crowd::FIRST + n as u64;
    format!(
        "POST /v1/sandboxes/claude-issue-{issue}/stop HTTP/1.1\r\nhost: bench\r\n\
         authorization: Bearer {TOKEN}\r\ncontent-length: 0\r\n\r\n"
    )
    .into_bytes()
}
