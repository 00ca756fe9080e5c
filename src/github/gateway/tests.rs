//! The gateway between a real git, as in a sandbox, and the in-memory GitHub.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;

use super::*;
use crate::clock::SystemClock;
use crate::egress::{Proxies, Proxy, SystemResolver};
use crate::git::{ForeignTip, LateGateway, PushEnd, WorkBranch};
use crate::github::api::UnkeptPace;
use crate::github::client::{GitHubClient, GitHubCredentials};
use crate::github::model::{APP_KEY, GithubModel};
use crate::sabotage::{Bug, with};
use crate::sandbox::EventSender;
use crate::types::Network;

const ORCHARD: &str = "pear-garden/orchard";
const BRANCH: &str = "issuebox/issue-12";

/// What is known of the one sandbox, in memory.
#[derive(Default)]
struct OneWorkplace {
    work: Mutex<Option<Workplace>>,
    ends: Mutex<Vec<PushEnd>>,
}

impl OneWorkplace {
    fn work(&self) -> MutexGuard<'_, Option<Workplace>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Workplace, &mut WorkBranch)) {
        let mut work = self.work();
        let work = work.as_mut().expect("there is one");
        let mut branch = work.branch.take().expect("it has a branch");
        change(work, &mut branch);
        work.branch = Some(branch);
    }
}

#[async_trait]
impl Workplaces for OneWorkplace {
    async fn workplace(&self, sandbox: &SandboxId) -> Option<Workplace> {
        self.work().clone().filter(|_| sandbox.as_str() == "s1")
    }

    async fn fetched(&self, _sandbox: &SandboxId) {
        self.change(|_, branch| {
            if let Some(foreign) = &mut branch.foreign {
                foreign.is_fetched = true;
            }
        });
    }

    async fn foreign_tip(&self, _sandbox: &SandboxId, oid: &str) {
        let foreign = ForeignTip { oid: oid.to_owned(), is_fetched: false };
        self.change(|_, branch| branch.foreign = Some(foreign));
    }

    async fn begin_push(&self, _sandbox: &SandboxId, _old: &str, _new: &str) -> Result<(), String> {
        Ok(())
    }

    async fn end_push(&self, _sandbox: &SandboxId, end: PushEnd) {
        if let PushEnd::Pushed { tip } = &end {
            self.change(|_, branch| branch.tip = Some(tip.clone()));
        }
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).push(end);
    }
}

/// A GitHub, a gateway behind a sandbox's proxy, and a directory for git.
struct GatewayBench {
    github: GithubModel,
    works: Arc<OneWorkplace>,
    settings: PathBuf,
    dir: TempDir,
    _proxy: Proxy,
}

impl GatewayBench {
    async fn new() -> Self {
        Self::with(Network::None).await
    }

    async fn with(network: Network) -> Self {
        let github = GithubModel::start().expect("a free port");
        let id = github.repository(ORCHARD);
        github.set_private(ORCHARD, true);
        let installation = github.install("pear-garden");
        let credentials = GitHubCredentials::app(github.app().0, &Secret::new(APP_KEY));
        let credentials = credentials.expect("a key");
        let (clock, pace) = (Arc::new(SystemClock), Arc::new(UnkeptPace));
        let client = GitHubClient::new(&github.api_url(), credentials, clock, pace);
        let client = Arc::new(client.expect("a client"));
        let name = Repository::parse(ORCHARD).expect("a name");
        let work = Workplace {
            repository: RepositoryTarget {
                name: name.clone(),
                id: Some(id),
                installation: Some(installation),
            },
            names: vec![name],
            branch: Some(WorkBranch { name: BRANCH.to_owned(), ..WorkBranch::default() }),
            read: Vec::new(),
            push_max_mb: 16,
            workflows: false,
            push_refusal: None,
        };
        let works = Arc::new(OneWorkplace { work: Mutex::new(Some(work)), ..Default::default() });
        let web_url = github.web_url();
        let gateway = GitHubGateway::new(&web_url, client.clone(), client, Arc::clone(&works) as _);
        let late = LateGateway::new(&web_url).expect("an address");
        late.set(Some(Arc::new(gateway.expect("a gateway"))));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("bound");
        let settings = String::from_utf8_lossy(&late.git_config(false))
            .replace("http://127.0.0.1:3128", &format!("http://{at}"));
        let resolver = Arc::new(SystemResolver::default());
        let proxies = Proxies::new(resolver, None, EventSender::default());
        let sandbox = SandboxId::trusted("s1");
        let proxy = proxies.start(Some(listener), &network, &sandbox, Some(late));
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("gitconfig");
        std::fs::write(&file, settings).expect("written");
        Self { github, works, settings: file, dir, _proxy: proxy.expect("it has a proxy") }
    }

    /// Runs git as in the sandbox: its words, and whether it succeeded.
    async fn git(&self, dir: &str, args: &[&str]) -> (bool, String) {
        let output = Command::new("git")
            .args(["-c", "user.name=Mira", "-c", "user.email=mira@example.org"])
            .args(args)
            .current_dir(self.dir.path().join(dir))
            .env("GIT_CONFIG_SYSTEM", &self.settings)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .output()
            .await
            .expect("git runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    async fn done(&self, dir: &str, args: &[&str]) -> String {
        let (done, words) = self.git(dir, args).await;
        assert!(done, "{args:?}: {words}");
        words
    }

    async fn refused(&self, dir: &str, args: &[&str]) -> String {
        let (done, words) = self.git(dir, args).await;
        assert!(!done, "{args:?} must be refused: {words}");
        words
    }

    fn remote(&self) -> String {
        format!("{}/{ORCHARD}.git", self.github.web_url())
    }

    /// A clone on the sandbox's branch with a commit of `len` bytes.
    async fn worked(&self, name: &str, options: &[&str], len: usize) {
        let remote = self.remote();
        let clone = [&["clone", "-q"], options, &[remote.as_str(), name]].concat();
        self.done("", &clone).await;
        self.done(name, &["switch", "-q", "-C", BRANCH]).await;
        self.commit(name, "work.bin", len).await;
    }

    async fn commit(&self, name: &str, file: &str, len: usize) {
        let path = self.dir.path().join(name).join(file);
        // Bytes that do not compress.
        let mut state = 1_u64;
        let bytes = (0..len).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        });
        std::fs::write(path, bytes.collect::<Vec<u8>>()).expect("written");
        self.done(name, &["add", "."]).await;
        self.done(name, &["commit", "-q", "-m", "Work"]).await;
    }

    fn tip(&self) -> Option<String> {
        self.github.tip(ORCHARD, BRANCH)
    }

    /// No token is in what git wrote.
    fn assert_no_token_within(&self, dir: &str) {
        fn files(dir: &Path, all: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(dir).expect("readable") {
                let path = entry.expect("readable").path();
                if path.is_dir() { files(&path, all) } else { all.push(path) }
            }
        }
        let (mut all, tokens) = (Vec::new(), self.github.tokens());
        files(&self.dir.path().join(dir), &mut all);
        assert!(!tokens.is_empty() && !all.is_empty());
        for file in all {
            let bytes = std::fs::read(&file).expect("readable");
            let text = String::from_utf8_lossy(&bytes);
            assert!(!tokens.iter().any(|token| text.contains(token)), "{}", file.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
async fn a_sandbox_clones_and_pushes_its_branch_without_a_key() {
    let bench = GatewayBench::new().await;
    bench.worked("a", &[], 5_000_000).await;
    bench.done("a", &["push", "-q", "origin", BRANCH]).await;
    let first = bench.done("a", &["rev-parse", "HEAD"]).await.trim().to_owned();
    assert_eq!(bench.tip(), Some(first.clone()), "more than a mebibyte, after git's probe");
    // The next one is judged by what was recorded of the first.
    bench.commit("a", "more", 10).await;
    bench.done("a", &["push", "-q", "origin", BRANCH]).await;
    // It may rewrite its own.
    bench.done("a", &["commit", "-q", "--amend", "-m", "Other words"]).await;
    bench.done("a", &["push", "-q", "--force", "origin", BRANCH]).await;
    let last = bench.done("a", &["rev-parse", "HEAD"]).await.trim().to_owned();
    assert_eq!(bench.tip(), Some(last.clone()));
    let ends = bench.works.ends.lock().expect("whole").clone();
    assert_eq!(ends.len(), 3);
    assert_eq!(ends[2], PushEnd::Pushed { tip: last });
    // A shallow clone begins its pushes with what it lacks.
    bench.github.commit(ORCHARD, "main", &[("b", "b")], "More");
    bench.works.change(|_, branch| {
        *branch = WorkBranch { name: "issuebox/issue-13".to_owned(), ..WorkBranch::default() };
    });
    bench.worked("b", &["--depth=1"], 100).await;
    bench.done("b", &["push", "-q", "origin", "HEAD:refs/heads/issuebox/issue-13"]).await;
    bench.assert_no_token_within("a");
    bench.assert_no_token_within("b");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
async fn everything_but_the_branch_is_refused_in_words_and_stays_as_it_was() {
    let bench = GatewayBench::new().await;
    bench.worked("a", &[], 10).await;
    let main = bench.github.tip(ORCHARD, "main");
    bench.done("a", &["tag", "v1"]).await;
    let only = "is not this sandbox's branch; push to issuebox/issue-12";
    let both = format!("HEAD:{BRANCH}");
    for push in [
        &["push", "origin", "HEAD:main"][..],
        &["push", "origin", "v1"],
        &["push", "origin", "HEAD:issuebox/Issue-12"],
        &["push", "origin", "HEAD:refs/pull/12/head"],
        &["push", "origin", &both, "HEAD:other"],
        &["push", "--atomic", "origin", &both, "HEAD:main"],
    ] {
        let words = bench.refused("a", push).await;
        assert!(words.contains(only), "{push:?}: {words}");
    }
    assert_eq!((bench.tip(), bench.github.tip(ORCHARD, "main")), (None, main));
    bench.done("a", &["push", "-q", "origin", BRANCH]).await;
    let words = bench.refused("a", &["push", "origin", &format!(":{BRANCH}")]).await;
    assert!(words.contains("deleted by people"), "{words}");
    bench.works.change(|work, _| work.push_refusal = Some("no; your work is kept".to_owned()));
    bench.commit("a", "more", 10).await;
    let words = bench.refused("a", &["push", "origin", BRANCH]).await;
    assert!(words.contains("your work is kept"), "{words}");
    bench.works.change(|work, _| (work.push_refusal, work.push_max_mb) = (None, 1));
    bench.commit("a", "large", 3_000_000).await;
    let words = bench.refused("a", &["push", "origin", BRANCH]).await;
    assert!(!words.is_empty() && bench.github.pushes(ORCHARD).len() == 1, "{words}");
}

/// Whether GitHub gets a push of a branch that is not the sandbox's. All runs on this thread.
fn another_branch_is_sent() -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let bench = GatewayBench::new().await;
        bench.worked("a", &[], 10).await;
        bench.refused("a", &["push", "origin", "HEAD:other"]).await;
        !bench.github.calls_to("POST", "", "git-receive-pack").is_empty()
    })
}

#[test]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
fn a_push_is_judged_before_it_is_sent() {
    assert!(!another_branch_is_sent());
    assert!(with(Bug::PushJudgedLate, another_branch_is_sent), "a bug is noticed");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
async fn a_maintainer_s_commit_is_never_pushed_away_unseen() {
    let bench = GatewayBench::new().await;
    bench.worked("a", &[], 10).await;
    bench.done("a", &["push", "-q", "origin", BRANCH]).await;
    let theirs = bench.github.commit(ORCHARD, BRANCH, &[("fix", "by a person")], "Fix");
    bench.commit("a", "more", 10).await;
    let words = bench.refused("a", &["push", "--force", "origin", BRANCH]).await;
    assert!(words.contains(&theirs) && words.contains("fetch them first"), "{words}");
    let again = bench.refused("a", &["push", "--force", "origin", BRANCH]).await;
    assert!(again.contains(&theirs), "asking twice is not fetching: {again}");
    assert_eq!(bench.tip(), Some(theirs.clone()));
    bench.done("a", &["pull", "-q", "--rebase", "origin", BRANCH]).await;
    bench.done("a", &["push", "-q", "origin", BRANCH]).await;
    let contained = bench.done("a", &["merge-base", "HEAD", &theirs]).await;
    assert_eq!(contained.trim(), theirs, "it is built upon");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
async fn other_repositories_are_read_only_where_that_is_listed_or_public() {
    let bench = GatewayBench::new().await;
    let other = "pear-garden/meadow";
    bench.github.repository(other);
    bench.github.set_private(other, true);
    let url = format!("{}/{other}.git", bench.github.web_url());
    let words = bench.refused("", &["clone", &url, "m"]).await;
    assert!(words.contains("list pear-garden/meadow in `git.read`"), "{words}");
    let listed = Repository::parse(other).expect("a name");
    bench.works.change(|work, _| work.read = vec![listed]);
    bench.done("", &["clone", "-q", &url, "m"]).await;
    bench.commit("m", "x", 1).await;
    let words = bench.refused("m", &["push", "origin", "HEAD:issuebox/issue-12"]).await;
    assert!(words.contains("the repository of its issue alone"), "{words}");
    // Where the network reaches the host, what is public there is anybody's.
    let open = GatewayBench::with(Network::Full { private: Vec::new() }).await;
    open.github.repository(other);
    open.done("", &["clone", "-q", &format!("{}/{other}.git", open.github.web_url()), "m"]).await;
    open.github.set_private(other, true);
    let words = open.refused("m", &["fetch"]).await;
    assert!(words.contains("does not know this repository"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
async fn a_private_submodule_comes_with_the_clone_where_it_is_listed() {
    let bench = GatewayBench::new().await;
    let other = "pear-garden/meadow";
    bench.github.repository(other);
    bench.github.set_private(other, true);
    bench.github.commit(other, "main", &[("seed", "a seed")], "Seed");
    let listed = Repository::parse(other).expect("a name");
    bench.works.change(|work, _| work.read = vec![listed]);
    bench.worked("a", &[], 10).await;
    let url = format!("{}/{other}.git", bench.github.web_url());
    bench.done("a", &["submodule", "--quiet", "add", &url, "meadow"]).await;
    bench.done("a", &["commit", "-q", "-m", "With a meadow"]).await;
    bench.done("a", &["push", "-q", "origin", BRANCH]).await;
    let remote = bench.remote();
    let clone = ["clone", "-q", "--recurse-submodules", "--branch", BRANCH, &remote, "b"];
    bench.done("", &clone).await;
    let seed = std::fs::read_to_string(bench.dir.path().join("b/meadow/seed"));
    assert_eq!(seed.expect("it is there"), "a seed");
    bench.assert_no_token_within("b");
    bench.works.change(|work, _| work.read = Vec::new());
    let clone = ["clone", "-q", "--recurse-submodules", "--branch", BRANCH, &remote, "c"];
    let words = bench.refused("", &clone).await;
    assert!(words.contains("list pear-garden/meadow in `git.read`"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
async fn a_renamed_repository_is_found_and_trouble_is_said_in_words() {
    let bench = GatewayBench::new().await;
    bench.worked("a", &[], 10).await;
    bench.github.rename_repository(ORCHARD, "pear-garden/grove");
    bench.done("a", &["fetch", "-q"]).await;
    bench.github.uninstall(
        bench.works.work().as_ref().expect("one").repository.installation.expect("known"),
    );
    let words = bench.refused("a", &["push", "origin", BRANCH]).await;
    assert!(words.contains("remote: issuebox: ") || words.contains("issuebox: "), "{words}");
    assert!(!words.contains("Username"), "{words}");
    let words = bench.refused("", &["ls-remote", "http://git.issuebox/"]).await;
    assert!(words.contains("smart HTTP"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs git, which a machine may lack; .ci/run has it"]
async fn lfs_objects_pass_by_tickets_that_hold_for_their_sandbox_alone() {
    let bench = GatewayBench::new().await;
    let (done, _) = bench.git("", &["lfs", "version"]).await;
    if !done {
        // Tried where git-lfs is, as in CI.
        assert!(std::env::var_os("ISSUEBOX_REQUIRE_LFS").is_none(), "git-lfs is missing");
        return;
    }
    bench.worked("a", &[], 10).await;
    bench.done("a", &["lfs", "install", "--local"]).await;
    bench.done("a", &["lfs", "track", "*.dat"]).await;
    bench.commit("a", "big.dat", 300_000).await;
    bench.done("a", &["push", "origin", BRANCH]).await;
    let objects = bench.github.lfs_objects(ORCHARD);
    assert_eq!(objects.iter().map(|(_, len)| *len).collect::<Vec<_>>(), [300_000]);
    let remote = bench.remote();
    bench.done("", &["clone", "-q", "--branch", BRANCH, &remote, "b"]).await;
    bench.done("b", &["lfs", "install", "--local"]).await;
    bench.done("b", &["lfs", "pull"]).await;
    let bytes = std::fs::read(bench.dir.path().join("b/big.dat")).expect("there");
    assert_eq!(bytes.len(), 300_000);
    bench.assert_no_token_within("b");
}
