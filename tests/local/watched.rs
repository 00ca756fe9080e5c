//! The disk of a sandbox without an enforced limit: it is watched, and a workspace that grows too
//! large has its processes killed.
//!
//! That is the case for an ordinary user, as whom all of this runs too (see `life.rs`).

use issuebox::sandbox::{Enforcement, Lifecycle, LimitKind, ProviderEvents};
use issuebox::types::Resources;

use crate::common::{Local, Sandbox, call, has_hit_a_limit, limit_event, request, spec, target};

/// The size of the disks here, in MiB.
const DISK_MB: u64 = 16;

/// Writes files of a megabyte until it is killed.
const FILL: &str = "n=0; while head -c 1000000 /dev/zero > f$n; do n=$((n+1)); done";

/// A provider that watches disks, and the receiver of its events.
async fn watching() -> Option<(Local, ProviderEvents)> {
    let local = Local::new().await?;
    let limits = local.provider.health().await.limits;
    let limit_events = local.provider.subscribe();
    (limits[&LimitKind::Disk] == Enforcement::Watched).then_some((local, limit_events))
}

async fn small<'a>(local: &'a Local, name: &str) -> Sandbox<'a> {
    let mut spec = spec(name, name);
    spec.template.resources = Resources { disk_mb: DISK_MB, ..spec.template.resources };
    let object = local.provider.create(spec).await.expect("made");
    Sandbox { provider: &local.provider, target: target(&object) }
}

/// Runs a script that is killed by the limit, and checks the event.
async fn is_killed(sandbox: &Sandbox<'_>, limit_events: &mut ProviderEvents, script: &str) {
    let ended = sandbox.run(request(&["sh", "-c", script])).await;
    assert_eq!(ended.code, 137, "{script}: {ended:?}");
    let event = limit_event(limit_events).await;
    assert_eq!(event.reason, "disk limit 16 MB reached");
    assert_eq!(event.labels.sandbox, sandbox.target.expected);
}

async fn start_again(local: &Local, sandbox: &Sandbox<'_>) {
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    local.provider.start(call(&sandbox.target)).await.expect("started");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_fills_the_disk_is_killed_and_the_sandbox_can_be_cleaned_up() {
    let Some((local, mut limit_events)) = watching().await else { return };
    let sandbox = small(&local, "full").await;
    sandbox.sh("sleep 1000 >&- 2>&- & echo").await;
    is_killed(&sandbox, &mut limit_events, FILL).await;
    let others = "for at in /proc/[0-9]*/comm; do cat $at; done | grep -c sleep || true";
    assert_eq!(sandbox.sh(others).await, "0\n", "every process in it is killed");
    // It may keep its size, also after a restart.
    assert_eq!(sandbox.read_bytes(b"f0").await.len(), 1_000_000);
    for _ in 0..2 {
        assert_eq!(sandbox.sh("echo small > note; sleep 1.5; cat note").await, "small\n");
        start_again(&local, &sandbox).await;
    }
    sandbox.sh("rm f*; head -c 8000000 /dev/zero > again; sleep 1.5").await;
    assert!(!has_hit_a_limit(&mut limit_events), "no further limit was hit");
    start_again(&local, &sandbox).await;
    is_killed(&sandbox, &mut limit_events, FILL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_deletes_in_time_goes_on() {
    let Some((local, mut limit_events)) = watching().await else { return };
    let sandbox = small(&local, "tidy").await;
    // 200 MB in all, of which at most 8 MB exist at a time, under two names each.
    let script = "for n in $(seq 25); do head -c 8000000 /dev/zero > f; ln f g; \
                  sleep 0.1; rm f g; done; echo done";
    assert_eq!(sandbox.sh(script).await, "done\n");
    assert!(!has_hit_a_limit(&mut limit_events), "no limit was hit");
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_and_deep_files_count() {
    let Some((local, mut limit_events)) = watching().await else { return };
    let hidden = small(&local, "hidden").await;
    let script = format!("mkdir -p a/b; cd a/b; chmod 300 . ..; {FILL}");
    is_killed(&hidden, &mut limit_events, &script).await;
    // Each name counts, even if empty, and a link back up is not followed.
    let names = small(&local, "names").await;
    let script = "perl -e 'for (1..1e7) { mkdir \"n$_\"; symlink \"..\", \"n$_/up\" }'";
    is_killed(&names, &mut limit_events, script).await;
    // A path too long to name.
    let levels = small(&local, "levels").await;
    let script = "perl -e 'while (1) { mkdir \"d\"; chdir \"d\" or die }'";
    is_killed(&levels, &mut limit_events, script).await;
    local.provider.stop(call(&levels.target)).await.expect("stopped; the launcher still reacts");
    // Only this removal can delete a tree this deep.
    while local.provider.delete(call(&levels.target)).await.is_ok() {}
}
