//! What a local sandbox costs, as ratios to a bare start by another crate in the same run: numbers
//! of one machine and one hour mean little, their ratios travel.
//!
//! `cargo bench --bench local`. A create is *warm* if the warm pool has a sandbox for it, as it has
//! some milliseconds after the previous create, and *cold* if not. All are measured in turn, so that
//! whatever else the machine does hits them alike. Prints medians and exits with an error where a
//! bound that is promised does not hold; where this machine can't make sandboxes it says so.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use issuebox::clock::{Clock, SystemClock, SystemIds};
use issuebox::sandbox::local::{LocalConfig, LocalProvider};
use issuebox::sandbox::{
    CreateSpec, ExecEvent, ExecRequest, Labels, Lifecycle, Object, Processes, Target, TargetCall,
};
use issuebox::types::{
    AccountName, Generation, HomeId, InstanceId, IssueId, Mode, Network, ObjectName, OnLimit,
    ProviderName, Resources, SandboxId, Template, TemplateName, Timestamp,
};
use tempfile::TempDir;

/// How many times each is measured.
const ROUNDS: usize = 100;

/// How many are made at once. Of 50 ms each it would be ten seconds.
const AT_ONCE: usize = 200;

/// From the wish for a sandbox to its first output: at most this many bare starts, where one waits.
const WARM_MAX: f64 = 2.0;

/// Where none does: half of that is waiting for the disk, which others use too.
const COLD_MAX: f64 = 7.0;

/// Running `true` in a sandbox that is up: at most this part of a bare start.
const EXEC_MAX: f64 = 0.5;

#[tokio::main]
async fn main() -> ExitCode {
    let ((warm, _warm_dir), (cold, _cold_dir)) = (open(1), open(0));
    if let Some(trouble) = warm.health().await.trouble {
        println!("nothing measured: {trouble}");
        return ExitCode::SUCCESS;
    }
    let medians = measure_rounds(&warm, &cold).await;
    let each = measure_crowd(&cold).await;
    report(&medians, each)
}

/// A provider in a directory of its own, with a warm pool of this size.
fn open(warm_pool: usize) -> (LocalProvider, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let config = LocalConfig {
        launcher: env!("CARGO_BIN_EXE_issuebox").into(),
        warm_pool,
        ..LocalConfig::new(dir.path())
    };
    let provider = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds));
    (provider.expect("opens"), dir)
}

/// The life of one sandbox: how long until each moment of it.
#[derive(Default)]
struct LifeTimes<T> {
    /// From the wish until it is ready.
    ready: T,
    /// From the wish until its first output.
    first: T,
    /// From the wish to delete it until it is absent.
    delete: T,
}

/// Everything that is measured once a round.
#[derive(Default)]
struct RoundTimes<T> {
    warm: LifeTimes<T>,
    cold: LifeTimes<T>,
    /// `true` in a sandbox that is up.
    exec: T,
    /// The yardstick.
    bare: T,
}

/// Measures everything in turn, and returns the medians.
async fn measure_rounds(warm: &LocalProvider, cold: &LocalProvider) -> RoundTimes<Duration> {
    let standing = warm.create(spec("standing")).await.expect("made");
    let mut times = RoundTimes::<Vec<Duration>>::default();
    for round in 0..ROUNDS {
        let name = format!("round-{round}");
        for (provider, times) in [(warm, &mut times.warm), (cold, &mut times.cold)] {
            until_one_is_warm(warm).await;
            measure_life(provider, &name, times).await;
        }
        // Not while the next one is started, and right after other work, as all of these are.
        until_one_is_warm(warm).await;
        let begin = Instant::now();
        tokio::task::spawn_blocking(bare_start).await.expect("started");
        times.bare.push(begin.elapsed());

        let begin = Instant::now();
        run(warm, &standing, &["true"]).await;
        times.exec.push(begin.elapsed());
    }
    let life = |times: LifeTimes<Vec<Duration>>| LifeTimes {
        ready: median(times.ready),
        first: median(times.first),
        delete: median(times.delete),
    };
    RoundTimes {
        warm: life(times.warm),
        cold: life(times.cold),
        exec: median(times.exec),
        bare: median(times.bare),
    }
}

async fn until_one_is_warm(provider: &LocalProvider) {
    while provider.waiting() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Makes a sandbox, runs a command in it and deletes it.
async fn measure_life(provider: &LocalProvider, name: &str, times: &mut LifeTimes<Vec<Duration>>) {
    let begin = Instant::now();
    let made = provider.create(spec(name)).await.expect("made");
    times.ready.push(begin.elapsed());
    let output = run(provider, &made, &["echo", "first"]).await;
    times.first.push(begin.elapsed());
    assert_eq!(output, b"first\n");

    let begin = Instant::now();
    while provider.delete(call(&made)).await.is_ok() {}
    times.delete.push(begin.elapsed());
}

/// Makes many at once, and returns how long each took, as if one after the other.
async fn measure_crowd(provider: &LocalProvider) -> Duration {
    let names = (0..AT_ONCE).map(|number| format!("crowd-{number}"));
    let begin = Instant::now();
    let crowd = join_all(names.map(async |name| provider.create(spec(&name)).await)).await;
    let each = begin.elapsed() / u32::try_from(AT_ONCE).expect("some");
    let crowd: Result<Vec<Object>, _> = crowd.into_iter().collect();
    join_all(crowd.expect("made").iter().map(
        async |made| {
            while provider.delete(call(made)).await.is_ok() {}
        },
    ))
    .await;
    each
}

/// Prints the medians and their ratios to a bare start; fails where a promised bound does not hold.
fn report(medians: &RoundTimes<Duration>, each: Duration) -> ExitCode {
    let RoundTimes { warm, cold, exec, bare } = medians;
    let ratio = |time: Duration| time.as_secs_f64() / bare.as_secs_f64();
    println!("medians of {ROUNDS}; a bare start of `true` is 1.00");
    for (what, time) in [
        ("a bare start of `true` (hakoniwa)", *bare),
        ("warm create, until ready", warm.ready),
        ("warm create, until the first output", warm.first),
        ("delete, until absent", warm.delete),
        ("cold create, until ready", cold.ready),
        ("cold create, until the first output", cold.first),
        ("delete, until absent", cold.delete),
        ("exec of `true` in a running sandbox", *exec),
        ("each of 200 creates at once", each),
    ] {
        println!("{what:36} {:8.2} ms {:6.2}", time.as_secs_f64() * 1e3, ratio(time));
    }
    if ratio(warm.first) > WARM_MAX || ratio(cold.first) > COLD_MAX || ratio(*exec) > EXEC_MAX {
        println!(
            "promised are {WARM_MAX} until the first output, {COLD_MAX} for a cold create, and \
             {EXEC_MAX} for an exec"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The yardstick: another crate's container, with the host's programs and nothing else.
fn bare_start() {
    let mut container = hakoniwa::Container::new();
    container.rootfs("/").expect("the host's programs");
    let status = container.command("/bin/true").status().expect("started");
    assert!(status.success(), "{}", status.reason);
}

async fn run(provider: &LocalProvider, object: &Object, command: &[&str]) -> Vec<u8> {
    let request = ExecRequest {
        command: command.iter().map(ToString::to_string).collect(),
        cwd: None,
        env: Vec::new(),
        stdin: Bytes::new().into(),
        timeout: None,
    };
    let mut execution = provider.exec(target(object), request).await.expect("started");
    let mut output = Vec::new();
    while let Some(event) = execution.events.recv().await {
        match event {
            ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) => output.extend(bytes),
            ExecEvent::Exit { code, .. } => assert_eq!(code, 0),
        }
    }
    output
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn deadline() -> Timestamp {
    SystemClock.now().after(Duration::from_secs(60))
}

fn target(object: &Object) -> Target {
    let labels = object.labels.as_ref().expect("ours");
    Target { external_id: object.external_id.clone(), expected: labels.sandbox.clone() }
}

fn call(object: &Object) -> TargetCall {
    TargetCall { target: target(object), force: false, deadline: deadline() }
}

fn spec(name: &str) -> CreateSpec {
    CreateSpec {
        name: ObjectName::trusted(name),
        labels: Labels {
            instance: InstanceId::trusted("bench"),
            account: AccountName::default_account(),
            home: HomeId(1),
            issue: IssueId::parse("bench-1").expect("an issue id"),
            sandbox: SandboxId::trusted(name),
            generation: Generation(1),
            mode: Mode::Strong,
        },
        template: Template {
            name: TemplateName::trusted("default"),
            provider: ProviderName::trusted("local"),
            mode: Mode::Strong,
            resources: Resources { cpu: 1.0, memory_mb: 512, processes: 128, disk_mb: 1024 },
            network: Network::None,
            ports: Vec::new(),
            on_limit: OnLimit::Kill,
            workload: issuebox::types::Workload::default().into(),
        },
        deadline: deadline(),
    }
}
