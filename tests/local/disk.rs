//! The disk limit of a sandbox: it is enforced and reported, and no device is left.
//!
//! If this machine can't enforce it (as for an ordinary user), the provider reports that;
//! `watched.rs` tests that case.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::sync::Arc;

use issuebox::clock::{SystemClock, SystemIds};
use issuebox::sandbox::local::{LocalConfig, LocalProvider};
use issuebox::sandbox::{Enforcement, Lifecycle, LimitKind, ProviderError};
use issuebox::types::Resources;

use crate::common::{
    Local, Sandbox, attached, call, config, limit_event, request, spec, target, until,
};

/// The size of the small disks here, in MiB.
const DISK_MB: u64 = 16;

/// A provider that enforces disk limits. Without a warm pool, whose sandboxes would have images
/// too.
async fn limiting() -> Option<Local> {
    let local = Local::with(|config| config.warm_pool = 0).await?;
    let limits = local.provider.health().await.limits;
    let holds = limits[&LimitKind::Disk];
    if holds == Enforcement::Enforced {
        return Some(local);
    }
    assert_eq!(holds, Enforcement::Watched);
    let why = local.provider.limits_not_enforced().expect("the disk limit");
    assert!(why.contains("disk is only watched ("), "with the reason: {why}");
    let required = std::env::var("ISSUEBOX_REQUIRE_LOCAL").is_ok_and(|v| v == "1");
    assert!(!required || !rustix::process::geteuid().is_root(), "root must be able to: {why}");
    None
}

async fn small<'a>(local: &'a Local, name: &str) -> Sandbox<'a> {
    let mut spec = spec(name, name);
    spec.template.resources = Resources { disk_mb: DISK_MB, ..spec.template.resources };
    let object = local.provider.create(spec).await.expect("made");
    Sandbox { provider: &local.provider, target: target(&object) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_reported_and_harms_no_other_sandbox() {
    let Some(local) = limiting().await else { return };
    let mut events = local.provider.subscribe();
    let (full, names, other) =
        tokio::join!(small(&local, "full"), small(&local, "names"), small(&local, "other"));
    // Each file is shorter than the longest allowed.
    let fill = "n=0; while head -c 1000000 /dev/zero > f$n; do n=$((n+1)); done; echo $n";
    let ended = full.run(request(&["sh", "-c", fill])).await;
    let written: u64 = ended.stdout.trim().parse().expect("a number");
    assert!((10..=16).contains(&written), "MB of {DISK_MB}: {ended:?}");
    assert!(ended.stderr.contains("No space left"), "{ended:?}");
    let event = limit_event(&mut events).await;
    assert_eq!(event.reason, "disk limit 16 MB reached");
    assert_eq!(event.labels.sandbox, full.target.expected);

    // Empty files use inodes.
    let name = "perl -e 'for (1..1e6) { open my $f, \">\", \"n$_\" or last; print \"$_\\n\" }' \
                | tail -1";
    let made: u64 = names.sh(name).await.trim().parse().expect("a number");
    assert!((500..20_000).contains(&made), "{made}");
    let event = limit_event(&mut events).await;
    assert_eq!(event.labels.sandbox, names.target.expected);

    other.sh("head -c 8000000 /dev/zero > f; sync f").await;
    // Deleted data is free again, also on the host.
    let image = local.dir.path().join("objects/full/workspace.ext4");
    let taken = || std::fs::metadata(&image).expect("there").blocks() * 512;
    full.sh("sync .").await;
    assert!(taken() > 10_000_000, "{}", taken());
    full.sh("rm f*; sync .; head -c 8000000 /dev/zero > f && rm f").await;
    until("the host's room", || taken() < 9_000_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_is_mounted_without_privileges() {
    let Some(local) = limiting().await else { return };
    let sandbox = small(&local, "own").await;
    let mount = sandbox.sh("grep ' /workspace ' /proc/self/mounts; ls -lan /workspace").await;
    for option in ["ext4", "nosuid", "nodev", "errors=remount-ro"] {
        assert!(mount.contains(option), "{option} in {mount}");
    }
    // Barriers are on before the first command.
    assert!(!mount.contains("nobarrier"), "{mount}");
    assert!(mount.contains("drwx------  2 1000 1000"), "empty, and its own: {mount}");
    assert!(!mount.contains("lost+found"), "{mount}");
    let device =
        "ls /dev/loop* /sys/block/loop*/loop 2>/dev/null; mount -o remount,suid /workspace";
    let ended = sandbox.run(request(&["sh", "-c", device])).await;
    assert!(ended.code != 0 && ended.stdout.is_empty(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_device_is_left_and_a_start_waits_for_the_last_mount() {
    let Some(local) = limiting().await else { return };
    let dir = local.dir.path();
    let sandbox = small(&local, "again").await;
    assert_eq!(attached(dir).len(), 1);
    for round in 0..5 {
        // Unsynced: the kernel writes it after the sandbox has ended.
        sandbox.sh("head -c 4000000 /dev/urandom > f; sha256sum f > sum").await;
        let mut stop = call(&sandbox.target);
        stop.force = round % 2 == 0;
        local.provider.stop(stop).await.expect("stopped");
        local.provider.start(call(&sandbox.target)).await.expect("started");
        assert_eq!(sandbox.sh("sha256sum -c sum").await, "f: OK\n");
        assert_eq!(attached(dir).len(), 1, "never two at once");
    }
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    assert_eq!(attached(dir), Vec::<String>::new(), "stopped means unmounted");
    local.provider.start(call(&sandbox.target)).await.expect("started");
    // Another process locks the image: a start does not mount it.
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    let image = std::fs::File::open(dir.join("objects/again/workspace.ext4")).expect("opened");
    rustix::fs::flock(&image, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    let start = local.provider.start(call(&sandbox.target));
    let wait = std::time::Duration::from_millis(300);
    let mut start = std::pin::pin!(start);
    assert!(tokio::time::timeout(wait, &mut start).await.is_err(), "it waits");
    drop(image);
    start.await.expect("started");
    while local.provider.delete(call(&sandbox.target)).await.is_ok() {}
    assert_eq!(attached(dir), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_from_before_images_stays_a_directory() {
    let Some(local) = limiting().await else { return };
    let sandbox = small(&local, "old").await;
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    let object = local.dir.path().join("objects/old");
    std::fs::remove_file(object.join("workspace.ext4")).expect("removed");
    let workspace = object.join("workspace");
    std::fs::create_dir(&workspace).expect("made");
    std::fs::write(workspace.join("file"), "kept").expect("written");
    std::fs::set_permissions(&workspace, PermissionsExt::from_mode(0o700)).expect("closed");
    let record = std::fs::read_to_string(object.join("record.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    let id = record["host_id"].as_u64().and_then(|id| u32::try_from(id).ok());
    for path in [workspace.join("file"), workspace] {
        chown(path, id, id).expect("given away");
    }
    local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(sandbox.sh("cat file; echo more > file").await, "kept");
    let in_force = async |sandbox: &Sandbox<'_>| {
        let limits = local.provider.limits(sandbox.target.clone()).await.expect("there");
        (limits.resources.disk_mb, limits.holds[&LimitKind::Disk])
    };
    assert_eq!(in_force(&sandbox).await, (DISK_MB, Enforcement::Watched), "of this one");
    let new = small(&local, "new").await;
    assert_eq!(in_force(&new).await, (DISK_MB, Enforcement::Enforced));
    local.provider.stop(call(&new.target)).await.expect("stopped");
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");

    // With required limits it is refused, with the reason.
    let Local { dir, provider } = local;
    drop(provider);
    let config = LocalConfig { require_limits: true, ..config(dir.path()) };
    let provider = LocalProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds));
    let provider = provider.expect("opens");
    let found = provider.list(spec("", "").labels.instance).await.expect("listed");
    let of = |name| target(found.iter().find(|o| o.name.as_str() == name).expect("there"));
    let target = of("old");
    provider.start(call(&of("new"))).await.expect("started");
    let Err(ProviderError::Refused(why)) = provider.start(call(&target)).await else {
        panic!("refused");
    };
    assert!(why.contains("disk is only watched (it was made without an image"), "{why}");
    while provider.delete(call(&target)).await.is_ok() {}
    assert!(!object.exists());
}
