//! What the benches share: a server on a free port with a data directory of its own, and a lean
//! client that keeps connections open and counts what is answered.

#![allow(dead_code, reason = "each bench uses a part of it")]

pub mod served;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use issuebox::app;
use issuebox::app::providers::load_config;
use issuebox::config::Overrides;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The secret of every bench server.
pub const SECRET: &str = "the-bench-secret";
/// The admin token of every bench server.
pub const TOKEN: &str = "the-bench-token";

/// A server with the simulated provider, and the directories that it lives in.
pub struct Bench {
    pub running: app::RunningServer,
    pub dir: tempfile::TempDir,
    _simulated: tempfile::TempDir,
}

impl Bench {
    /// A fresh server. Its database is on disk. The simulated provider's objects, a file each,
    /// are in memory where the system has a place for that: how fast a file system makes small
    /// files is not what is measured (ext4 was seen to make 1,700 a second for minutes after many
    /// had been deleted). Each takes 10 ms to make, as a local sandbox does: one that is there at
    /// once would have its life so far within the moment that is measured.
    pub fn start() -> Self {
        Self::start_on(|_, _| {})
    }

    /// The same, over what is put into its data directory and the provider's before.
    pub fn start_on(fill: impl FnOnce(&Path, &Path)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let memory = Path::new("/dev/shm");
        let simulated = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
        let simulated = simulated.expect("a directory");
        let file = dir.path().join("issuebox.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\ndata = {data:?}\n\
             [auth]\nadmin_token = {TOKEN:?}\n[github]\nwebhook_secrets = [{SECRET:?}]\n\
             [quota]\nlive = 0\ncreates_in_flight = 0\n\
             [templates.default]\nprovider = \"simulated\"\n[providers.simulated]\ndir = {sim:?}\ncreate_delay_ms = 10\n",
            data = dir.path().join("data"),
            sim = simulated.path(),
        );
        std::fs::write(&file, text).expect("it is written");
        fill(&dir.path().join("data"), simulated.path());
        let loaded = load_config(Some(&file), std::iter::empty(), Overrides::default())
            .expect("the configuration is right");
        let running = app::start(loaded.config).expect("the server starts");
        Self { running, dir, _simulated: simulated }
    }

    /// Returns once every sandbox that was asked for is made.
    pub fn settle(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let url = format!("http://{}/metrics", self.running.address);
            let client = reqwest::Client::builder().no_proxy().build().expect("a client");
            loop {
                let answer = client.get(&url).bearer_auth(TOKEN).send().await.expect("it answers");
                let text = answer.text().await.expect("a body");
                if text.contains("issuebox_sandboxes_live{phase=\"creating\"} 0\n") {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
}

/// Sends every request once over `connections` kept open, on this thread, and returns how long
/// each took, in the order they ended. Every answer must be 2xx.
pub fn load(
    address: SocketAddr,
    connections: usize,
    requests: &[Vec<u8>],
    rate: Option<f64>,
) -> Vec<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let next = std::cell::Cell::new(0);
        let began = Instant::now();
        let clients = (0..connections).map(|_| async {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            stream.set_nodelay(true).expect("a TCP stream");
            let mut buffer = vec![0; 64 * 1024];
            let mut took = Vec::new();
            loop {
                let at = next.get();
                let Some(request) = requests.get(at) else { return took };
                next.set(at + 1);
                let mut sent = Instant::now();
                if let Some(rate) = rate {
                    // Open loop: a request is late from when it was due, not from when there was
                    // a connection for it.
                    sent = began + Duration::from_secs_f64(at as f64 / rate);
                    tokio::time::sleep_until(sent.into()).await;
                }
                stream.write_all(request).await.expect("it is taken");
                read_answer(&mut stream, &mut buffer).await;
                took.push(sent.elapsed());
            }
        });
        futures_util::future::join_all(clients).await.into_iter().flatten().collect()
    })
}

async fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await.expect("it answers");
        assert!(read > 0, "the server hung up");
        filled += read;
        let Some(head) = buffer[..filled].windows(4).position(|w| w == b"\r\n\r\n") else {
            continue;
        };
        let text = std::str::from_utf8(&buffer[..head]).expect("a head is ASCII");
        assert!(text.starts_with("HTTP/1.1 2"), "{text}");
        let length = text
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
            })
            .unwrap_or(0_usize);
        if filled >= head + 4 + length {
            return;
        }
    }
}

/// A GET with the token.
pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {TOKEN}\r\n\r\n")
        .into_bytes()
}

/// How many a second.
pub fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// The middle one.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value below which this share of all lies.
pub fn quantile(values: &mut [Duration], share: f64) -> Duration {
    values.sort();
    values[((values.len() - 1) as f64 * share) as usize]
}

/// Processor time that this process has used so far, all its threads together. (`proc(5)`: fields
/// 14 and 15 of `/proc/self/stat`, in ticks of 10 ms.)
pub fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        behind_name.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
