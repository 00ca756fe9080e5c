//! Containers with what templates say to the engine alone: a read-only root, another runtime.

use std::collections::BTreeMap;

use issuebox::sandbox::Object;
use issuebox::types::{ObjectState, Workload};

use crate::docker::docker_text;
use crate::subject::{Subject, call, target};

/// A container with these options of the template.
async fn made(subject: &Subject, options: &[(&str, &str)]) -> Object {
    let mut spec = subject.spec("optioned", "s1");
    let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let options: BTreeMap<String, String> = options.collect();
    // The threads of gVisor itself count as processes.
    spec.template.resources.processes = 256;
    spec.template.workload = Workload { options, ..Workload::default() }.into();
    subject.provider.lifecycle.create(spec).await.expect("made")
}

/// What a script prints.
async fn sh(subject: &Subject, object: &Object, script: &str) -> String {
    let ran = subject.run(&target(object), &["sh", "-c", script]).await;
    assert_eq!(ran.exit, Some((0, false)), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

/// Connects to the helper's socket as a command, sends what `connect` sends, and prints what comes back.
const INTRUDER: &str = "use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; \
    connect($s, pack('S a*', AF_UNIX, \"\\0issuebox-helper\")) or die \"connect: $!\"; \
    syswrite $s, 'i'; my $n = sysread $s, my $got, 100; print defined $n ? $n : 'broken'";

/// A command that speaks to the helper is not let in, and the server still is.
async fn lets_no_command_in(subject: &Subject, object: &Object) {
    let ran = subject.run(&target(object), &["perl", "-e", INTRUDER]).await;
    let seen = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(seen.0 == "0" || seen.0 == "broken", "{seen:?}");
}

/// Stops and starts it, and reads a file of its workspace.
async fn keeps_its_workspace(subject: &Subject, object: &Object) {
    sh(subject, object, "echo kept > /workspace/file").await;
    subject.provider.lifecycle.stop(call(&target(object))).await.expect("stopped");
    let started = subject.provider.lifecycle.start(call(&target(object))).await.expect("started");
    assert_eq!(started.state, ObjectState::Running);
    assert_eq!(sh(subject, &started, "cat file").await, "kept\n");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_read_only_container_has_a_workspace_a_home_and_tmp_to_write_to() {
    let subject = Subject::docker();
    let object = made(&subject, &[("read_only", "true")]).await;
    let places = "for at in /workspace /home/agent /tmp /var/tmp /etc; do \
                  if touch $at/x 2>/dev/null; then echo $at; fi; done; stat -c %u:%a /workspace";
    let seen = sh(&subject, &object, places).await;
    assert_eq!(seen, "/workspace\n/home/agent\n/tmp\n1000:755\n");
    lets_no_command_in(&subject, &object).await;
    keeps_its_workspace(&subject, &object).await;
    // The workspace's carrier is removed.
    let workspace = format!("volume={}", subject.owned().volumes()[0]);
    let mounted = docker_text(&["ps", "--all", "--quiet", "--filter", &workspace]);
    assert_eq!(mounted.lines().count(), 1, "{mounted}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an engine whose runtime `runsc` is gVisor; run by .ci/run where gVisor runs"]
async fn a_container_of_gvisor_works_like_another_one() {
    let subject = Subject::docker();
    let object = made(&subject, &[("runtime", "runsc"), ("read_only", "true")]).await;
    // The version that gVisor says it is, whatever the host's kernel.
    assert!(sh(&subject, &object, "cat /proc/version").await.starts_with("Linux version 4.4.0 "));
    assert_eq!(sh(&subject, &object, "id -u; touch /tmp/x ~/x; echo $?").await, "1000\n0\n");
    lets_no_command_in(&subject, &object).await;
    keeps_its_workspace(&subject, &object).await;
    subject.remove(&object, false).await;
    assert_eq!(subject.owned().volumes(), Vec::<String>::new());
}
