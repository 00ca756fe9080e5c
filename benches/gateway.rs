//! git through the gateway against git straight at an in-memory GitHub, on the same machine in turn: a
//! clone of 4,000 commits; and how much memory a push of 500 MB takes. The gateway, its proxy and the
//! GitHub are in this process; GitHub's side is `git http-backend`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use issuebox::clock::SystemClock;
use issuebox::egress::{Proxies, Proxy, SystemResolver};
use issuebox::git::{LateGateway, PushEnd, WorkBranch, Workplace, Workplaces};
use issuebox::github::api::{RepositoryTarget, UnkeptPace};
use issuebox::github::client::{GitHubClient, GitHubCredentials};
use issuebox::github::gateway::GitHubGateway;
use issuebox::github::model::{APP_KEY, GithubModel};
use issuebox::sandbox::EventSender;
use issuebox::types::{Network, Repository, SandboxId, Secret};
use tempfile::TempDir;
use tokio::net::TcpListener;

const REPOSITORY: &str = "octo/hello";
const BRANCH: &str = "issuebox/issue-1";
const COMMITS: usize = 4_000;
const FILES: usize = 400;
const ROUNDS: usize = 7;
const PUSH_MB: usize = 500;

fn main() {
    // `cargo test` runs benches to see that they work; they only measure when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let bench = runtime.block_on(GatewayBench::new());
    let remote = format!("{}/{REPOSITORY}.git", bench.github.web_url());
    bench.git("", &["clone", "-q", &remote, "work"]);
    bench.import();
    bench.git("work", &["push", "-q", "origin", BRANCH]);

    let (mut direct, mut ratios) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let clone = ["clone", "-q", "--branch", BRANCH, &remote];
        let took = |through: bool| {
            let name = format!("clone-{round}-{through}");
            let began = Instant::now();
            bench.run("", &[&clone[..], &[&name]].concat(), through);
            let took = began.elapsed().as_secs_f64();
            std::fs::remove_dir_all(bench.dir.path().join(name)).expect("removed");
            took
        };
        // Each goes first in turn, and the first round warms both up.
        let (straight, through) = match round % 2 {
            0 => (took(false), took(true)),
            _ => {
                let through = took(true);
                (took(false), through)
            }
        };
        if round > 0 {
            direct.push(straight);
            ratios.push(through / straight);
        }
    }
    println!(
        "clone of {COMMITS} commits: {:.2} of a direct one, which takes {:.2} s (median of {ROUNDS}, at \
         most 1.15)",
        median(&mut ratios),
        median(&mut direct)
    );

    bench.write_noise();
    bench.git("work", &["add", "."]);
    bench.git("work", &["commit", "-q", "-m", "Much"]);
    let before = memory_mb("VmRSS");
    std::fs::write("/proc/self/clear_refs", "5").expect("the highest is forgotten");
    let began = Instant::now();
    bench.git("work", &["push", "-q", "origin", BRANCH]);
    println!(
        "push of {PUSH_MB} MB: {:.1} s, {before:.0} MB resident before and {:.0} MB at its highest",
        began.elapsed().as_secs_f64(),
        memory_mb("VmHWM")
    );
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A line of this process's `/proc/self/status` (`proc(5)`), in megabytes.
fn memory_mb(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is there");
    let kb: f64 = line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number");
    kb / 1024.0
}

/// The one sandbox, which may push its branch.
struct OneWorkplace(Mutex<Workplace>);

#[async_trait]
impl Workplaces for OneWorkplace {
    async fn workplace(&self, _sandbox: &SandboxId) -> Option<Workplace> {
        Some(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn fetched(&self, _sandbox: &SandboxId) {}

    async fn foreign_tip(&self, _sandbox: &SandboxId, _oid: &str) {}

    async fn begin_push(&self, _sandbox: &SandboxId, _old: &str, _new: &str) -> Result<(), String> {
        Ok(())
    }

    async fn end_push(&self, _sandbox: &SandboxId, end: PushEnd) {
        let PushEnd::Pushed { tip } = end else { return };
        let mut work = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work.branch =
            Some(WorkBranch { name: BRANCH.to_owned(), tip: Some(tip), ..WorkBranch::default() });
    }
}

/// A GitHub with a public repository, a gateway behind a sandbox's proxy, and a directory for git.
struct GatewayBench {
    github: GithubModel,
    settings: PathBuf,
    dir: TempDir,
    _proxy: Proxy,
}

impl GatewayBench {
    async fn new() -> Self {
        let github = GithubModel::start().expect("a free port");
        let id = github.repository(REPOSITORY);
        let installation = github.install("octo");
        let credentials = GitHubCredentials::app(github.app().0, &Secret::new(APP_KEY));
        let (clock, pace) = (Arc::new(SystemClock), Arc::new(UnkeptPace));
        let credentials = credentials.expect("a key");
        let client = GitHubClient::new(&github.api_url(), credentials, clock, pace);
        let client = Arc::new(client.expect("a client"));
        let name = Repository::parse(REPOSITORY).expect("a name");
        let work = Workplace {
            repository: RepositoryTarget {
                name: name.clone(),
                id: Some(id),
                installation: Some(installation),
            },
            names: vec![name],
            branch: Some(WorkBranch { name: BRANCH.to_owned(), ..WorkBranch::default() }),
            read: Vec::new(),
            push_max_mb: 1_024,
            workflows: false,
            push_refusal: None,
        };
        let (web_url, works) = (github.web_url(), Arc::new(OneWorkplace(Mutex::new(work))));
        let gateway = GitHubGateway::new(&web_url, client.clone(), client, works);
        let late = LateGateway::new(&web_url).expect("an address");
        late.set(Some(Arc::new(gateway.expect("a gateway"))));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("bound");
        let settings = String::from_utf8_lossy(&late.git_config(false))
            .replace("http://127.0.0.1:3128", &format!("http://{at}"));
        let proxies =
            Proxies::new(Arc::new(SystemResolver::default()), None, EventSender::default());
        let sandbox = SandboxId::trusted("s1");
        let proxy = proxies.start(Some(listener), &Network::None, &sandbox, Some(late));
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("gitconfig");
        std::fs::write(&file, settings).expect("written");
        Self { github, settings: file, dir, _proxy: proxy.expect("it has a proxy") }
    }

    /// Runs git through the gateway.
    fn git(&self, dir: &str, args: &[&str]) {
        self.run(dir, args, true);
    }

    fn run(&self, dir: &str, args: &[&str], through: bool) {
        let status = self.command(dir, args, through).status().expect("git runs");
        assert!(status.success(), "{args:?}");
    }

    fn command(&self, dir: &str, args: &[&str], through: bool) -> Command {
        let mut git = Command::new("git");
        let system = if through { self.settings.as_os_str() } else { "/dev/null".as_ref() };
        git.args(["-c", "user.name=Mira", "-c", "user.email=mira@example.org"])
            .args(["-c", "core.compression=0", "-c", "gc.auto=0"])
            .args(args)
            .current_dir(self.dir.path().join(dir))
            .env("GIT_CONFIG_SYSTEM", system)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0");
        git
    }

    /// Makes the branch's commits, each of which changes one file.
    fn import(&self) {
        let mut stream = String::new();
        for n in 1..=COMMITS {
            let text: String = (0..60).map(|line| format!("{n} {line} {}\n", n * line)).collect();
            let _ = write!(
                stream,
                "commit refs/heads/{BRANCH}\ncommitter Mira <mira@example.org> {} +0000\ndata 5\nWork\n",
                1_700_000_000 + n
            );
            if n == 1 {
                stream.push_str("from refs/heads/main^0\n");
            }
            let _ = write!(stream, "M 644 inline src/{}\ndata {}\n{text}\n", n % FILES, text.len());
        }
        let mut git = self.command("work", &["fast-import", "--quiet"], true);
        let mut child = git.stdin(Stdio::piped()).spawn().expect("git runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut stdin, stream.as_bytes()).expect("git reads");
        drop(stdin);
        assert!(child.wait().expect("it ends").success());
        self.git("work", &["switch", "-q", BRANCH]);
    }

    /// Writes a file of bytes that do not compress.
    fn write_noise(&self) {
        let mut state = 1_u64;
        let mut piece = vec![0_u8; 1 << 20];
        let path = self.dir.path().join("work/noise");
        let mut file = std::fs::File::create(path).expect("made");
        for _ in 0..PUSH_MB {
            for byte in &mut piece {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 33) as u8;
            }
            std::io::Write::write_all(&mut file, &piece).expect("written");
        }
    }
}
