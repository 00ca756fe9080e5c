//! What a push of an unchanged workspace costs, against what it cannot do without: going through the
//! files twice as `find` does, and writing one manifest.
//!
//! `cargo bench --bench sync`. All are measured in turn, on the same 10,000 files. Prints medians, and
//! exits with an error if the push takes longer than both together.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use issuebox::clock::{Clock, SystemClock, SystemIds};
use issuebox::config::StorageLocation;
use issuebox::sandbox::simulated::{SimulatedConfig, SimulatedFaults, SimulatedProvider};
use issuebox::sandbox::{CreateSpec, Labels, Lifecycle, Target};
use issuebox::store::sqlite::SqliteStore;
use issuebox::sync::{OpenStorage, SyncOrder, SyncPlace, SyncSubject, SyncWorker};
use issuebox::types::{
    AccountName, Generation, HomeId, InstanceId, IssueId, Mode, Network, ObjectName, OnLimit,
    ProviderName, Resources, SandboxId, Template, TemplateName,
};

/// Directories, and files in each.
const DIRECTORIES: usize = 100;
const FILES: usize = 100;

/// How many times each is measured.
const ROUNDS: usize = 15;

/// The most that a push may take of both together.
const RATIO_MAX: f64 = 1.0;

fn main() -> ExitCode {
    // `cargo test` runs benches to see that they work; they only measure when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return ExitCode::SUCCESS;
    }
    let io = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let io = io.expect("a runtime");
    let ratio = io.block_on(measure(io.handle().clone()));
    println!("a push takes {ratio:.2} of find twice and a manifest (at most {RATIO_MAX})");
    if ratio <= RATIO_MAX { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn measure(io: tokio::runtime::Handle) -> f64 {
    let dir = tempfile::tempdir().expect("a directory");
    let (place, workspace) = place(dir.path()).await;
    plant(&workspace);
    let stored = dir.path().join("stored");
    let storage = OpenStorage::open(&StorageLocation::Directory(stored.clone())).expect("it opens");
    let rows = Arc::new(SqliteStore::open(&dir.path().join("data")).expect("the store opens"));
    let worker = SyncWorker::new(storage, rows, Arc::new(SystemClock), io);
    let account = AccountName::default_account();
    let subject = SyncSubject { account, sandbox: place.target.expected.clone() };
    let push = async || {
        let began = Instant::now();
        let synced = worker.sync(subject.clone(), place.clone(), SyncOrder::Push, ()).await;
        (synced.expect("pushed").row, began.elapsed())
    };
    let first = push().await.0;
    assert_eq!(first.stats.files_uploaded, (DIRECTORIES * FILES) as u64);
    let manifest = stored.join("default").join(subject.sandbox.as_str());
    let manifest = manifest.join(first.version.to_string()).join(".sandbox-state");
    let manifest = fs::read(manifest).expect("the manifest is there");
    let (mut pushes, mut finds, mut writes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (row, took) = push().await;
        assert_eq!(row.stats.files_uploaded, 0);
        pushes.push(took);
        finds.push(find(&workspace));
        writes.push(write(&dir.path().join("manifest"), &manifest));
    }
    let (push, find, write) = (median(pushes), median(finds), median(writes));
    let ms = |took: Duration| took.as_secs_f64() * 1000.0;
    println!(
        "median of {ROUNDS}, {} files: push {:.1} ms, find {:.1} ms, writing a manifest of {} KiB {:.1} ms",
        DIRECTORIES * FILES,
        ms(push),
        ms(find),
        manifest.len() / 1024,
        ms(write)
    );
    ms(push) / (2.0 * ms(find) + ms(write))
}

/// A running object, and where its workspace is.
async fn place(dir: &Path) -> (SyncPlace, PathBuf) {
    let config = SimulatedConfig { dir: dir.join("simulated"), unique_names: true };
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let provider = SimulatedProvider::open(config, SimulatedFaults::default(), clock, ids);
    let provider = Arc::new(provider.expect("it opens"));
    let object = provider.create(spec()).await.expect("made");
    let workspace =
        dir.join("simulated/.simulated/work").join(object.external_id.as_str()).join("workspace");
    let target = Target { external_id: object.external_id, expected: SandboxId::trusted("bench") };
    (SyncPlace { workspace: provider, target }, workspace)
}

/// Writes the files, with times of long ago.
fn plant(workspace: &Path) {
    let long_ago = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for directory in 0..DIRECTORIES {
        let directory = workspace.join(format!("directory-{directory}"));
        fs::create_dir_all(&directory).expect("made");
        for at in 0..FILES {
            let path = directory.join(format!("some-file-{at}.rs"));
            let mut file = File::create(path).expect("made");
            write!(file, "content {at} of {}", directory.display()).expect("written");
            file.set_modified(long_ago).expect("set");
        }
    }
}

/// Goes through the files once, as a script would.
fn find(workspace: &Path) -> Duration {
    let began = Instant::now();
    let mut find = Command::new("find");
    find.arg(workspace).args(["-type", "f", "-printf", "%p %s %T@ %m\n"]).stdout(Stdio::piped());
    let listed = find.output().expect("find runs");
    let took = began.elapsed();
    let lines = listed.stdout.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, DIRECTORIES * FILES);
    took
}

/// Writes a manifest as an object storage in a directory does.
fn write(path: &Path, manifest: &[u8]) -> Duration {
    let began = Instant::now();
    let staged = path.with_extension("new");
    let mut file = File::create(&staged).expect("made");
    file.write_all(manifest).and_then(|()| file.sync_all()).expect("written");
    fs::rename(&staged, path).expect("renamed");
    let parent = path.parent().expect("a directory");
    File::open(parent).and_then(|parent| parent.sync_all()).expect("synced");
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn spec() -> CreateSpec {
    CreateSpec {
        name: ObjectName::trusted("bench"),
        labels: Labels {
            instance: InstanceId::trusted("bench"),
            account: AccountName::default_account(),
            home: HomeId(1),
            issue: IssueId::parse("bench-1").expect("an issue id"),
            sandbox: SandboxId::trusted("bench"),
            generation: Generation(1),
            mode: Mode::Strong,
        },
        template: Template {
            name: TemplateName::trusted("default"),
            provider: ProviderName::trusted("simulated"),
            mode: Mode::Strong,
            resources: Resources { cpu: 1.0, memory_mb: 512, processes: 128, disk_mb: 1024 },
            network: Network::None,
            ports: Vec::new(),
            on_limit: OnLimit::Kill,
            workload: issuebox::types::Workload::default().into(),
        },
        deadline: SystemClock.now().after(Duration::from_secs(60)),
    }
}
