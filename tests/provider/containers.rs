//! What only the provider of containers does: an engine that others use, too.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use issuebox::sandbox::docker::{DockerConfig, DockerSettings, Pull};
use issuebox::sandbox::{
    CreateSpec, GivenProgram, Lifecycle, Offset, Overflow, ProcessEvent, ProcessSpec, Provider,
    ProviderError, ProviderEvent, StdinMode,
};
use issuebox::types::{
    AgentName, NamedSecrets, Network, ObjectState, Secret, SecretName, Workload, WorkloadSource,
};

use crate::docker::{self, docker_text};
use crate::subject::{Subject, WAIT, call, ended, request, target};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn forty_creates_at_once_make_one_container() {
    let subject = Subject::docker();
    let create = |_| subject.provider.lifecycle.create(subject.spec("forty", "s1"));
    let all = join_all((0..40).map(create)).await;
    let ids: std::collections::BTreeSet<String> =
        all.into_iter().map(|made| made.expect("made").external_id.to_string()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let owned = subject.owned();
    assert_eq!(owned.containers(), Vec::from_iter(ids));
    assert_eq!(owned.volumes().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn volumes_of_others_stay_whatever_is_removed() {
    let subject = Subject::docker();
    let theirs = format!("{}-theirs", subject.name);
    docker_text(&["volume", "create", &theirs]);
    let object = subject.make("beside", "s1").await;
    assert_eq!(subject.owned().volumes().len(), 1);
    subject.remove(&object, false).await;
    let instance = subject.spec("beside", "s1").labels.instance;
    subject.provider.lifecycle.list(instance).await.expect("listed");
    assert_eq!(subject.owned().volumes(), Vec::<String>::new());
    docker_text(&["volume", "rm", &theirs]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn two_servers_at_once_make_one_container() {
    let subject = Subject::docker();
    let other = Provider::from(Arc::new(docker::open()));
    let (one, two) = tokio::join!(
        subject.provider.lifecycle.create(subject.spec("both", "s1")),
        other.lifecycle.create(subject.spec("both", "s1")),
    );
    assert_eq!(one.expect("made").external_id, two.expect("made").external_id);
    assert_eq!(subject.owned().containers().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_foreign_container_under_the_name_is_shown_and_goes_on() {
    let subject = Subject::docker();
    let name = format!("{}-foreign", subject.name);
    let foreign = ["run", "--detach", "--network", "none", "--name", &name, docker::image()];
    let id = docker_text(&[&foreign[..], &["sleep", "1000"]].concat());
    let started = docker_text(&["inspect", "--format", "{{.State.StartedAt}}", &id]);
    let made = subject.provider.lifecycle.create(subject.spec("foreign", "s1")).await;
    let Err(ProviderError::Present(there)) = made else { panic!("{made:?}") };
    assert_eq!((there.external_id.as_str(), &there.labels), (id.as_str(), &None));
    let found = subject.find("foreign").await;
    assert_eq!(found.len(), 1, "a foreign one of this name is found");
    let mut as_ours = call(&target(&subject.make("ours", "s1").await));
    as_ours.target.external_id = there.external_id.clone();
    for answer in [
        subject.provider.lifecycle.stop(as_ours.clone()).await.err(),
        subject.provider.lifecycle.delete(as_ours).await.err(),
    ] {
        assert!(matches!(answer, Some(ProviderError::Present(_))), "{answer:?}");
    }
    let state = ["inspect", "--format", "{{.State.Running}} {{.State.StartedAt}}", &id];
    assert_eq!(docker_text(&state), format!("true {started}"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_kill_from_outside_is_reported_within_a_second() {
    let subject = Subject::docker();
    let object = subject.make("killed", "s1").await;
    let mut events = subject.provider.lifecycle.subscribe();
    // Until the end of another one is heard, the engine may not be followed yet.
    let other = subject.make("heard", "s2").await;
    loop {
        subject.kill(&other);
        if tokio::time::timeout(Duration::from_secs(1), events.next()).await.is_ok() {
            break;
        }
        subject.start(&target(&other)).await;
    }
    subject.kill(&object);
    let began = Instant::now();
    let event = tokio::time::timeout(WAIT, events.next()).await.expect("in time");
    let Some(ProviderEvent::ObjectChanged(change)) = event else { panic!("{event:?}") };
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!((change.external_id, change.labels), (object.external_id.clone(), object.labels));
    assert_eq!(subject.find("killed").await[0].state, ObjectState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_delete_leaves_neither_container_nor_volume() {
    let subject = Subject::docker();
    let object = subject.make("gone", "s1").await;
    let owned = subject.owned();
    assert_eq!((owned.containers().len(), owned.volumes().len()), (1, 1));
    subject.remove(&object, false).await;
    assert_eq!((owned.containers(), owned.volumes()), (vec![], vec![]));
    // A workspace that lost its container is in no other's way, and goes with the next delete.
    let object = subject.make("gone", "s1").await;
    docker_text(&["rm", "--force", object.external_id.as_str()]);
    assert_eq!(owned.volumes().len(), 1);
    let next = subject.make("gone", "s1").await;
    assert_eq!(subject.run(&target(&next), &["ls"]).await.stdout, b"");
    subject.remove(&next, true).await;
    assert_eq!((owned.containers(), owned.volumes()), (vec![], vec![]));
}

/// What a person does to the server's volumes.
enum Removal {
    /// Removes all of them, as a prune does.
    All,
    /// Removes those with files.
    Filled,
    /// Removes those with files, and empty ones take their place, as when they are removed just before a
    /// create.
    Emptied,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn volumes_of_the_server_that_a_person_removed_are_filled_again() {
    let subject = Subject::docker();
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = with_own_helper(dir.path(), subject.name);
    let tool = dir.path().join("tool");
    std::fs::write(&tool, format!("#!/bin/sh\necho {}\n", subject.name)).expect("written");
    let program = GivenProgram::new(AgentName::trusted("tool"), &tool).expect("it is there");
    config.programs = Arc::new([program.clone()]);
    let provider = Provider::from(Arc::new(docker::open_with(config)));
    let make = async || provider.lifecycle.create(subject.spec("pruned", "s1")).await;
    let mut object = make().await.expect("made");
    for removal in [Removal::All, Removal::Filled, Removal::Emptied] {
        let filled = server_volumes(object.external_id.as_str());
        assert_eq!(filled.len(), 2, "{filled:?}");
        provider.lifecycle.delete(call(&target(&object))).await.expect("deleted");
        remove_volumes(&filled);
        match removal {
            Removal::All => remove_volumes(&marks_of(&filled)),
            Removal::Filled => {}
            Removal::Emptied => {
                for name in &filled {
                    docker_text(&["volume", "create", name]);
                }
            }
        }
        object = make().await.expect("made again");
        let execution =
            provider.processes.exec(target(&object), request(&["sh", &program.inside()])).await;
        let stdout = ended(execution.expect("started")).await.stdout;
        assert_eq!(String::from_utf8_lossy(&stdout).trim(), subject.name);
    }
    let filled = server_volumes(object.external_id.as_str());
    provider.lifecycle.delete(call(&target(&object))).await.expect("deleted");
    remove_volumes(&[filled.clone(), marks_of(&filled)].concat());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn servers_that_fill_a_volume_at_once_use_the_same_and_see_it_whole() {
    const SERVERS: usize = 6;
    let subject = Subject::docker();
    let dir = tempfile::tempdir().expect("a directory");
    let config = with_own_helper(dir.path(), subject.name);
    for round in 0..3 {
        // Each starts its container as soon as it has filled a volume, while others fill one.
        let create = |n| {
            let server = Provider::from(Arc::new(docker::open_with(config.clone())));
            let spec = subject.spec(&format!("fill-{round}-{n}"), "s1");
            async move { server.lifecycle.create(spec).await }
        };
        let made = join_all((0..SERVERS).map(create)).await;
        let made: Vec<_> = made.into_iter().map(|one| one.expect("made")).collect();
        let mounted: std::collections::BTreeSet<_> =
            made.iter().map(|one| server_volumes(one.external_id.as_str())).collect();
        assert_eq!(mounted.len(), 1, "{mounted:?}");
        let filled = Vec::from_iter(mounted).remove(0);
        let hashed = filled[0].rsplit_once('-').expect("an id").0;
        let all = docker_text(&["volume", "ls", "--quiet", "--filter", &format!("name={hashed}")]);
        assert_eq!(all.lines().count(), 2, "the volume and its mark: {all}");
        for one in &made {
            subject.remove(one, false).await;
        }
        remove_volumes(&[filled.clone(), marks_of(&filled)].concat());
    }
}

/// A configuration whose helper is a file of its own, so that no other test's container keeps its volume.
fn with_own_helper(dir: &std::path::Path, name: &str) -> DockerConfig {
    let mut config = docker::config();
    let helper = dir.join("helper");
    std::fs::copy(&config.helper, &helper).expect("copied");
    let mut end = std::fs::File::options().append(true).open(&helper).expect("opened");
    end.write_all(name.as_bytes()).expect("written");
    config.helper = helper;
    config
}

/// The volumes with files of the server that a container mounts.
fn server_volumes(container: &str) -> Vec<String> {
    let names = ["inspect", "--format", "{{range .Mounts}}{{.Name}} {{end}}", container];
    let names = docker_text(&names);
    let is_server_s = |name: &&str| !name.starts_with("issuebox-workspace-");
    let mut names: Vec<_> =
        names.split_whitespace().filter(is_server_s).map(str::to_owned).collect();
    names.sort();
    names
}

/// The empty volumes that say which ones are filled.
fn marks_of(filled: &[String]) -> Vec<String> {
    let mark = |name: &String| format!("{}-filled", name.rsplit_once('-').expect("an id").0);
    filled.iter().map(mark).collect()
}

fn remove_volumes(names: &[String]) {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    docker_text(&[&["volume", "rm"], &names[..]].concat());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn no_secret_is_in_what_the_engine_shows_or_in_the_container() {
    let subject = Subject::docker();
    let name = SecretName::trusted("npm");
    let secrets = BTreeMap::from([(name.clone(), Secret::new("hush-hush"))]);
    let mut config = docker::config();
    config.secrets = NamedSecrets::new(secrets);
    let provider = Provider::from(Arc::new(docker::open_with(config)));
    let mut spec = subject.spec("secret", "s1");
    spec.template.workload = Workload {
        secrets: BTreeMap::from([("NPM_TOKEN".to_owned(), name)]),
        env: BTreeMap::from([("PLAIN".to_owned(), "seen".to_owned())]),
        ..Workload::default()
    }
    .into();
    let object = provider.lifecycle.create(spec).await.expect("made");
    let run = async |script: &str| {
        let execution =
            provider.processes.exec(target(&object), request(&["sh", "-c", script])).await;
        String::from_utf8(ended(execution.expect("started")).await.stdout).expect("text")
    };
    assert_eq!(run("echo $PLAIN $NPM_TOKEN").await, "seen hush-hush\n", "commands have it");
    let shown = docker_text(&["inspect", object.external_id.as_str()]);
    assert!(shown.contains("seen") && !shown.contains("hush-hush"), "{shown}");
    // PID 1 is closed to commands, and what it was started with has no secret.
    assert_eq!(
        run("cat /proc/1/environ /proc/1/mem 2>/dev/null; ls /proc/1/fd 2>/dev/null").await,
        ""
    );
    assert_eq!(
        run("grep -rl hush-hush / 2>/dev/null --exclude-dir=proc --exclude-dir=sys").await,
        ""
    );
    let status = run("cat /proc/self/status").await;
    for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{status}");
    }
    assert!(status.contains("Seccomp:\t2") && status.contains("Uid:\t1000\t1000"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_missing_image_is_refused_with_what_to_do() {
    let subject = Subject::docker();
    let mut spec: CreateSpec = subject.spec("missing", "s1");
    let image = WorkloadSource::Image("issuebox-no-such-image".to_owned());
    spec.template.workload = Workload { source: Some(image), ..Workload::default() }.into();
    let refused = subject.provider.lifecycle.create(spec.clone()).await;
    let Err(ProviderError::Refused(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("issuebox-no-such-image") && why.contains("docker pull"), "{why}");
    // With a pull it is an error, too, and not a hang.
    let mut config = docker::config();
    config.settings.pull = Pull::Missing;
    let provider = docker::open_with(config);
    let pulled = tokio::time::timeout(WAIT * 4, provider.create(spec)).await.expect("it ends");
    let (Err(ProviderError::Refused(why)) | Err(ProviderError::Broken(why))) = pulled else {
        panic!("{pulled:?}")
    };
    assert!(why.contains("docker pull"), "{why}");
    assert_eq!(subject.owned().containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_away_is_unavailable() {
    let settings = DockerSettings { host: "unix:///no/such/engine".into(), ..Default::default() };
    let mut config = issuebox::sandbox::docker::DockerConfig::new(settings);
    config.helper = env!("CARGO_BIN_EXE_issuebox").into();
    let provider = docker::open_with(config);
    let health = provider.health().await;
    assert!(health.trouble.is_some_and(|why| why.contains("/no/such/engine")));
    let listed = provider.list(issuebox::types::InstanceId::trusted("i")).await;
    assert!(matches!(listed, Err(ProviderError::Unavailable { .. })), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_way_that_breaks_is_made_again_under_a_reader() {
    let subject = Subject::docker();
    let target = subject.target().await;
    let script = "n=0; while [ $n -lt 300 ]; do echo line $n; n=$((n+1)); sleep 0.01; done";
    let spec = ProcessSpec {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        cwd: None,
        env: Vec::new(),
        stdin: StdinMode::Empty,
        timeout: None,
        keep: 1 << 20,
        overflow: Overflow::Wait,
        tag: None,
    };
    let processes = &subject.provider.processes;
    let id = processes.spawn(target.clone(), spec).await.expect("started");
    let mut output = processes.attach(target.clone(), id, Offset(0)).await.expect("attached");
    let (mut text, mut broken) = (Vec::new(), 0);
    loop {
        let event = tokio::time::timeout(WAIT, output.events.recv()).await.expect("in time");
        match event.expect("it goes on until the end") {
            ProcessEvent::Output { from, bytes, .. } => {
                assert_eq!(from.0, text.len() as u64, "no byte is missing or comes twice");
                text.extend(bytes);
                if text.len() > 500 * (broken + 1) && broken < 3 {
                    broken += 1;
                    kill_ways(target.external_id.as_str());
                }
            }
            ProcessEvent::Gap { from, to } => panic!("{from:?} {to:?}"),
            ProcessEvent::Exit(exit) => break assert_eq!(exit.code, 0),
        }
    }
    let expected: String = (0..300).map(|n| format!("line {n}\n")).collect();
    assert_eq!(String::from_utf8(text).expect("text"), expected);
    assert_eq!(broken, 3);
}

/// Kills the server's ways to a container's helper, as the kernel does for want of memory. They are
/// processes of this machine in the container's control group.
fn kill_ways(id: &str) {
    let is_way = |pid: &str| {
        let file =
            |name| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        file("cmdline").contains("__issuebox-docker-connect") && file("cgroup").contains(id)
    };
    let processes = std::fs::read_dir("/proc").expect("a list");
    for process in processes.map(|entry| entry.expect("an entry").file_name()) {
        let Some(pid) = process.to_str().and_then(|name| name.parse().ok()) else { continue };
        if is_way(process.to_str().unwrap_or_default()) {
            let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
            // It may have ended meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Sends a request to a port on the loopback inside; the answer's first line.
const ASK: &str = "use IO::Socket::INET; $s = IO::Socket::INET->new(\"127.0.0.1:$ARGV[0]\") \
    or die 'refused'; print $s \"$ARGV[1]\\r\\nHost: x\\r\\n\\r\\n\"; print scalar <$s>";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn programs_reach_the_server_s_services_and_nothing_else_also_after_a_restart() {
    let mut subject = Subject::docker();
    let mut spec = subject.spec("online", "s1");
    spec.template.network = Network::Full { private: Vec::new() };
    let object = subject.provider.lifecycle.create(spec).await.expect("made");
    for _ in 0..2 {
        let ask = async |port: &str, line: &str| {
            let command = ["perl", "-e", ASK, port, line];
            String::from_utf8(subject.run(&target(&object), &command).await.stdout).expect("text")
        };
        // No gateway is set in this server, which answers itself that it is overloaded.
        assert!(ask("3129", "POST /anthropic/v1/messages HTTP/1.1").await.contains(" 529 "));
        let answer = ask("3128", "CONNECT 169.254.169.254:80 HTTP/1.1").await;
        assert!(answer.contains(" 403 "), "{answer}");
        let links = subject.run(&target(&object), &["sh", "-c", "grep : /proc/net/dev"]).await;
        let links = String::from_utf8(links.stdout).expect("text");
        assert!(links.lines().all(|line| line.trim().starts_with("lo:")), "{links}");
        subject = subject.restarted();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_container_costs_little_more_than_one_of_docker_run() {
    const TIMES: usize = 20;
    let subject = Subject::docker();
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    drop(subject.make("warm-up", "s0").await);
    let (mut made, mut run, mut own_exec, mut exec) = (vec![], vec![], vec![], vec![]);
    for n in 0..TIMES {
        let began = Instant::now();
        let object = subject.make(&format!("cost-{n}"), &format!("s{n}")).await;
        made.push(began.elapsed());
        let began = Instant::now();
        assert_eq!(subject.run(&target(&object), &["true"]).await.exit, Some((0, false)));
        own_exec.push(began.elapsed());
        let name = format!("{}-run-{n}", subject.name);
        let began = Instant::now();
        let options = ["run", "--detach", "--network", "none", "--name", &name, docker::image()];
        docker_text(&[&options[..], &["sleep", "1000"]].concat());
        run.push(began.elapsed());
        let began = Instant::now();
        docker_text(&["exec", &name, "true"]);
        exec.push(began.elapsed());
    }
    let (made, run) = (median(made), median(run));
    let (own_exec, exec) = (median(own_exec), median(exec));
    println!("create {made:?}, docker run {run:?}; exec {own_exec:?}, docker exec {exec:?}");
    // Other tests run at the same time, so there is room beyond what is to be seen alone: 1.15 and 1.3.
    assert!(made < run * 2, "{made:?} beside {run:?}");
    assert!(own_exec < exec * 2, "{own_exec:?} beside {exec:?}");
}
