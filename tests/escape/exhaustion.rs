//! Taking all there is of something: what a limit stops, and that nobody else wants for it.
//!
//! Each attempt has a sandbox of its own, which is stopped and deleted afterwards. Where this
//! machine can't enforce a limit the provider must have said so, and what is tried then is that
//! everybody else lives on.

use std::ops::RangeInclusive;

use issuebox::sandbox::Lifecycle;
use issuebox::types::Resources;

use crate::common::{call, limit_event, request};
use crate::ordinary;
use crate::world::World;

const SMALL: Resources = Resources { cpu: 1.0, memory_mb: 96, processes: 64, disk_mb: 32 };

/// What an attempt must come to.
#[derive(Debug)]
enum Must {
    /// One of these.
    Be(&'static [&'static str]),
    /// So many of it, and then this error.
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
        let came_to = hostile.attempt(arguments).await;
        let is_right = match must {
            Be(these) => these.contains(&&*came_to),
            Have(many, error) => {
                let had = came_to.strip_suffix(error).and_then(|had| had.trim().parse().ok());
                had.is_some_and(|had| many.contains(&had))
            }
        };
        if !is_right {
            wrong.push(format!("{tries}: {came_to} instead of {must:?}"));
        }
        world.assert_unharmed(tries).await;
        if is_right && came_to != THE_END {
            hostile.assert_usable().await;
        }
        hostile.assert_gone_after_stop().await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn memory_of_every_kind_is_limited_or_said_not_to_be() {
    let Some(world) = World::new(9).await else { return };
    let attempts = match world.holds("memory").await {
        "enforced" => [
            ("takes memory", "private_memory", Be(&[KILLED])),
            ("takes shared memory", "shared_memory", Be(&[KILLED])),
            ("fills files in memory", "memory_files", Be(&[KILLED])),
            ("takes shared memory of the old kind", "old_shared_memory", Be(&[KILLED])),
            ("fills pipes", "pipes", Be(&["done", KILLED])),
            ("fills sockets", "socket_buffers", Be(&[KILLED])),
            ("locks memory", "locked_memory", Be(&["ENOMEM", KILLED])),
        ],
        told => {
            assert_eq!(told, "per process");
            [
                ("takes memory", "private_memory", Be(&["ENOMEM"])),
                ("takes shared memory", "shared_memory", Be(&["done"])),
                ("fills files in memory", "memory_files", Be(&["done"])),
                ("takes shared memory of the old kind", "old_shared_memory", Be(&["done"])),
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
async fn what_fills_the_memory_ends_commands_and_never_the_sandbox() {
    let Some(world) = World::new(14).await else { return };
    if world.holds("memory").await != "enforced" {
        return world.end().await;
    }
    let mut limit_events = world.local.provider.subscribe();
    let resources = Resources { memory_mb: 64, ..SMALL };
    for fills in ["fill /tmp", "fill /home/agent", "fill /dev/shm", "old_shared_memory"] {
        let name = fills.replace(['_', ' ', '/'], "-");
        let hostile = world.hostile(&name, Some(resources.clone())).await;
        hostile.sandbox.sh("echo kept > note").await;
        let filled = hostile.attempt(fills).await;
        match fills.strip_prefix("fill ") {
            // What is full leaves room for who removes it, also where all else is in use.
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
        let limit_event = limit_event(&mut limit_events).await;
        assert_eq!(limit_event.reason, "memory limit 64 MB reached", "{fills}");
        assert_eq!(limit_event.labels.sandbox.as_str(), name);
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
async fn disks_fill_up_to_their_limit_or_it_is_said_that_there_is_none() {
    let Some(world) = World::new(10).await else { return };
    let (workspace, files) = match world.holds("disk").await {
        // What the file system keeps for itself is part of it.
        "enforced" => (Have(16..=32, "ENOSPC"), Be(&["ENOSPC"])),
        told => {
            assert_eq!(told, "watched");
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
async fn what_is_counted_is_limited() {
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
        ("sends descriptors to nobody", "descriptors_on_their_way", Be(&["ETOOMANYREFS"])),
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
async fn what_can_not_be_enforced_for_an_ordinary_user_is_said() {
    let Some(world) = World::new(12).await else { return };
    if ordinary::is_run_by_root() {
        for (limit, told) in [
            ("cpu", "none"),
            ("memory", "per process"),
            ("disk", "watched"),
            ("processes", "enforced"),
            ("openFiles", "per process"),
            ("fileSize", "per process"),
        ] {
            assert_eq!(world.holds(limit).await, told, "{limit}");
        }
        let why = world.local.provider.limits_not_enforced().expect("some are not");
        for limit in ["cpu is not limited", "memory is limited per process"] {
            assert!(why.contains(limit), "{why}");
        }
    }
    world.end().await;
}
