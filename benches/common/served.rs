//! The real program as a server in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{SECRET, TOKEN, get};

/// How long anything that is waited for may take.
const WAIT: Duration = Duration::from_secs(120);

/// Where a server lives: its configuration, data and provider's objects. The objects are in memory
/// where the system has a place for that: how fast a file system makes small files is not what is
/// measured.
pub struct Home {
    pub dir: TempDir,
    pub simulated: TempDir,
    pub config: PathBuf,
}

impl Home {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let simulated = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let simulated = simulated.expect("a directory");
        let config = configure(dir.path(), simulated.path());
        Self { dir, simulated, config }
    }
}

/// Writes a configuration of the simulated provider, without quotas, and says where.
fn configure(dir: &Path, simulated: &Path) -> PathBuf {
    let file = dir.join("issuebox.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {data:?}\n\
         [auth]\nadmin_token = {TOKEN:?}\n[github]\nwebhook_secrets = [{SECRET:?}]\n\
         [quota]\nlive = 0\ncreates_in_flight = 0\n\
         [templates.default]\nprovider = \"simulated\"\n\
         [providers.simulated]\ndir = {simulated:?}\n",
        data = dir.join("data"),
    );
    std::fs::write(&file, text).expect("it is written");
    file
}

/// A call that gives an issue its sandbox, with what is known of a real one.
pub fn ensure(n: usize) -> Vec<u8> {
    let body = format!(
        "{{\"issueId\":\"{}\",\"repository\":\"octo/hello\",\"issueNumber\":{},\
          \"issueTitle\":\"An issue with a title of the usual length, number {n}\"}}",
        4_000_000_000_usize + n,
        n + 1
    );
    let head = format!(
        "POST /v1/sandboxes HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

/// A server's process. Killed when dropped.
pub struct Served {
    child: Child,
    pub address: SocketAddr,
    pub ready_after: Duration,
}

impl Served {
    /// Starts the program and waits until it is ready.
    pub fn start(file: &Path) -> Self {
        let began = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_issuebox"))
            .args(["serve", "--config"])
            .arg(file)
            .env_clear()
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let address = log.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, address) = line.split_once("ready on http://")?;
            address.trim().parse().ok()
        });
        let ready_after = began.elapsed();
        // Its later lines are read away, so that it never waits for a reader.
        std::thread::spawn(move || log.for_each(drop));
        Self { child, address: address.expect("it is ready"), ready_after }
    }

    /// What a GET answers, head and all.
    pub fn fetch(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let request = String::from_utf8(get(path)).expect("a request is text");
        let request = request.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        stream.write_all(request.as_bytes()).expect("it is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answer
    }

    /// Waits until the metrics say this.
    pub fn until(&self, line: &str) {
        self.until_answered("/metrics", line);
    }

    /// Waits until a GET answers with this.
    pub fn until_answered(&self, path: &str, part: &str) {
        let began = Instant::now();
        while !self.fetch(path).contains(part) {
            assert!(began.elapsed() < WAIT, "{part} never came");
            std::thread::yield_now();
        }
    }

    /// A line of its memory's accounts, in MB of a million bytes.
    pub fn resident_mb(&self, key: &str) -> f64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("it is listed");
        let kib: f64 = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number");
        kib * 1024.0 / 1e6
    }

    /// Ends it as a service manager does, and waits.
    pub fn end(mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::TERM).expect("it has not been waited for");
        assert!(self.child.wait().expect("waited for").success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Where it has ended there is nothing to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
