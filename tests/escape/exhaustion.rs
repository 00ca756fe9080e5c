//! Attempts to exhaust a resource: the limit that stops each, and that other sandboxes do not
//! suffer.
//!
//! Each attempt has its own sandbox, which is stopped and deleted afterwards. If this machine
//! can't enforce a limit, the provider must have reported that, and the attempt only checks that
//! all others survive.

use std::ops::RangeInclusive;

use issuebox::sandbox::Lifecycle;
use issuebox::types::Resources;
use rustix::fs::inotify;

use crate::common::{call, limit_event, request};
use crate::ordinary;
use crate::world::World;

const SMALL: Resources = Resources { cpu: 1.0, memory_mb: 96, processes: 64, disk_mb: 32 };

/// The expected result of an attempt.
#[derive(Debug)]
enum Must {
    /// One of these.
    Be(&'static [&'static str]),
    /// This many of it, and then this error.
    Have(RangeInclusive<u64>, &'static str),
}

use Must::{Be, Have};

const KILLED: &str = "killed by 9";
const THE_END: &str = "the end of the sandbox";

/// Makes each attempt in a sandbox of its own.
async fn try_each(world: &World, attempts: &[(&str, &str, Must)]) {
    let mut wrong = Vec::new();
    for (tries, arguments, must) in attempts {
        let name = arguments.replace(['_', ' ', '/'], "-");
        let hostile = world.hostile(&name, Some(SMALL)).await;
        let result = hostile.attempt(arguments).await;
        let is_right = match must {
            Be(these) => these.contains(&&*result),
            Have(many, error) => {
                let had = result.strip_suffix(error).and_then(|had| had.trim().parse().ok());
                had.is_some_and(|had| many.contains(&had))
            }
        };
        if !is_right {
            wrong.push(format!("{tries}: {result} instead of {must:?}"));
        }
        world.assert_unharmed(tries).await;
        if is_right && result != THE_END {
            hostile.assert_usable().await;
        }
        hostile.assert_gone_after_stop().await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn memory_of_every_kind_is_limited_or_reported_as_unlimited() {
    let Some(world) = World::new(9).await else { return };
    let attempts = match world.holds("memory").await {
        "enforced" => [
            ("takes memory", "private_memory", Be(&[KILLED])),
            ("takes shared memory", "shared_memory", Be(&[KILLED])),
            ("fills files in memory", "memory_files", Be(&[KILLED])),
            ("takes System V shared memory", "old_shared_memory", Be(&[KILLED])),
            ("fills pipes", "pipes", Be(&["done", KILLED])),
            ("fills sockets", "socket_buffers", Be(&[KILLED])),
            ("locks memory", "locked_memory", Be(&["ENOMEM", KILLED])),
        ],
        how => {
            assert_eq!(how, "per process");
            [
                ("takes memory", "private_memory", Be(&["ENOMEM"])),
                ("takes shared memory", "shared_memory", Be(&["done"])),
                ("fills files in memory", "memory_files", Be(&["done"])),
                ("takes System V shared memory", "old_shared_memory", Be(&["done"])),
                ("fills pipes", "pipes", Be(&["done", "EMFILE"])),
                ("fills sockets", "socket_buffers", Be(&["done", "EMFILE"])),
                ("locks memory", "locked_memory", Be(&["ENOMEM"])),
            ]
        }
    };
    try_each(&world, &attempts).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn full_memory_ends_commands_and_never_the_sandbox() {
    let Some(world) = World::new(14).await else { return };
    if world.holds("memory").await != "enforced" {
        return world.end().await;
    }
    let mut events = world.local.provider.subscribe();
    let resources = Resources { memory_mb: 64, ..SMALL };
    for fills in ["fill /tmp", "fill /home/agent", "fill /dev/shm", "old_shared_memory"] {
        let name = fills.replace(['_', ' ', '/'], "-");
        let hostile = world.hostile(&name, Some(resources.clone())).await;
        hostile.sandbox.sh("echo kept > note").await;
        let filled = hostile.attempt(fills).await;
        match fills.strip_prefix("fill ") {
            // Full files in memory leave room for a command that removes them, even if all other
            // memory is used.
            Some(place) => {
                assert!(["48 ENOSPC", "49 ENOSPC"].contains(&&*filled), "{fills}: {filled}");
                assert_eq!(hostile.attempt("private_memory").await, KILLED, "{fills}");
                hostile.sandbox.sh(&format!("rm {place}/fill-*")).await;
                hostile.sandbox.sh(&format!("head -c 20000000 /dev/zero > {place}/again")).await;
            }
            None => {
                assert_eq!(filled, KILLED);
                let ended = hostile.sandbox.run(request(&["true"])).await;
                assert!([0, 137].contains(&ended.code), "{ended:?}");
            }
        }
        let hit = limit_event(&mut events).await;
        assert_eq!(hit.reason, "memory limit 64 MB reached", "{fills}");
        assert_eq!(hit.labels.sandbox.as_str(), name);
        assert_eq!(hostile.sandbox.read(b"note").await.expect("readable"), "kept\n", "{fills}");
        world.assert_unharmed(fills).await;
        let provider = &world.local.provider;
        provider.stop(call(&hostile.sandbox.target)).await.expect("stopped");
        provider.start(call(&hostile.sandbox.target)).await.expect("started");
        assert_eq!(hostile.sandbox.sh("cat note").await, "kept\n", "{fills}");
        provider.delete(call(&hostile.sandbox.target)).await.expect("deleted");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn disks_fill_up_to_their_limit_or_are_reported_as_unlimited() {
    let Some(world) = World::new(10).await else { return };
    let (workspace, files) = match world.holds("disk").await {
        // The file system's own overhead is part of it.
        "enforced" => (Have(16..=32, "ENOSPC"), Be(&["ENOSPC"])),
        how => {
            assert_eq!(how, "watched");
            (Be(&["400 done", KILLED]), Be(&["done", KILLED]))
        }
    };
    let is_watched = matches!(workspace, Be(_));
    let one_file = Have(16..=32, if is_watched { "EFBIG" } else { "ENOSPC" });
    let deep = if is_watched { Be(&["done", KILLED]) } else { Be(&["done"]) };
    let attempts = [
        ("fills its disk", "fill /workspace", workspace),
        ("writes one file without end", "one_long_file", one_file),
        ("makes files without end", "many_files /workspace", files),
        ("makes a tree that no path reaches", "deep_tree", deep),
        ("fills the page cache", "page_cache", Be(&["done"])),
        ("fills shared memory", "fill /dev/shm", Have(48..=49, "ENOSPC")),
        ("fills /tmp", "fill /tmp", Have(48..=49, "ENOSPC")),
        ("fills its home", "fill /home/agent", Have(48..=49, "ENOSPC")),
        ("makes files in memory without end", "many_files /tmp", Be(&["ENOSPC"])),
    ];
    try_each(&world, &attempts).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn countable_resources_are_limited() {
    let Some(world) = World::new(11).await else { return };
    assert_eq!(world.holds("processes").await, "enforced");
    assert_eq!(world.holds("openFiles").await, "per process");
    let attempts = [
        ("starts processes", "processes", Have(50..=63, "EAGAIN")),
        ("bombs with forks", "fork_bomb", Be(&["done"])),
        ("starts threads", "threads", Have(50..=63, "EAGAIN")),
        ("does not reap its children", "zombies", Have(50..=63, "EAGAIN")),
        ("leaves its children to PID 1", "orphans", Be(&["done"])),
        ("opens descriptors", "descriptors", Be(&["EMFILE"])),
        ("sends descriptors without a receiver", "descriptors_on_their_way", Be(&["ETOOMANYREFS"])),
        ("opens terminals", "terminals", Have(64..=64, "ENOSPC")),
        ("sets timers", "timers", Be(&["EAGAIN", KILLED])),
        ("watches files", "watches", Be(&["EMFILE"])),
        ("makes queues", "queues", Be(&["EMFILE", "ENOSPC"])),
        ("gives a program all arguments there are", "long_arguments", Be(&["E2BIG"])),
    ];
    try_each(&world, &attempts).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn descriptors_on_their_way_keep_no_other_sandbox_from_work() {
    let Some(world) = World::new(16).await else { return };
    let other = world.local.sandbox("other").await;
    let hostile = world.hostile("holder", None).await;
    assert_eq!(hostile.attempt("keep_descriptors_on_their_way").await, "ETOOMANYREFS");
    let new = world.local.sandbox("new").await;
    for sandbox in [&hostile.sandbox, &other, &new] {
        assert_eq!(sandbox.sh("echo runs").await, "runs\n");
        sandbox.write(b"file", "content").await.expect("written");
        assert_eq!(sandbox.read(b"file").await.expect("readable"), "content");
    }
    world.assert_unharmed("holding descriptors on their way").await;
    hostile.assert_gone_after_stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn what_the_kernel_counts_for_a_user_is_left_to_the_others() {
    let Some(world) = World::new(17).await else { return };
    let other = world.hostile("other", None).await;
    for (holds, error, needs) in [
        ("keep_watches", "EMFILE", "watch"),
        ("keep_timers", "EAGAIN", "set_a_timer"),
        ("keep_queues", "EMFILE", "queue"),
    ] {
        let hostile = world.hostile("holder", None).await;
        let held = hostile.attempt(holds).await;
        assert!([error, "ENOSPC"].contains(&&*held), "{holds}: {held}");
        assert_eq!(other.attempt(needs).await, "done", "{needs} beside {holds}");
        // The server's user has its own left, too.
        inotify::init(inotify::CreateFlags::CLOEXEC).expect(holds);
        hostile.assert_gone_after_stop().await;
    }
    other.assert_gone_after_stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn limits_not_enforced_for_an_ordinary_user_are_reported() {
    let Some(world) = World::new(12).await else { return };
    if ordinary::is_run_by_root() {
        for (limit, how) in [
            ("cpu", "none"),
            ("memory", "per process"),
            ("disk", "watched"),
            ("processes", "enforced"),
            ("openFiles", "per process"),
            ("fileSize", "per process"),
            ("userCounters", "none"),
        ] {
            assert_eq!(world.holds(limit).await, how, "{limit}");
        }
        let why = world.local.provider.limits_not_enforced().expect("some are not");
        for limit in ["cpu is not limited", "memory is limited per process"] {
            assert!(why.contains(limit), "{why}");
        }
    }
    world.end().await;
}
