//! The kernel's rarely used parts, and the machine as a whole.

use crate::world::{Attempt, World, refused_if_there};

const EVERYWHERE: &[Attempt] = &[
    ("adds a key", "add_a_key", "ENOSYS"),
    ("reads keys", "read_keys", "ENOSYS"),
    ("types into a terminal", "type_into_a_terminal", "EPERM"),
    ("pastes into a terminal", "paste_into_a_terminal", "EPERM"),
    ("has a driver put behind a terminal", "load_a_driver_behind_a_terminal", "EPERM"),
    ("opens a ring", "ring", "ENOSYS"),
    ("takes the machine's asynchronous events", "asynchronous_events", "ENOSYS"),
    ("has a program look at packets", "packet_program", "EPERM"),
    ("has a program share out packets", "sharing_program", "EPERM"),
    ("keeps keys of connections", "connection_key", "EPERM"),
    ("hides memory from the kernel", "secret_memory", "ENOSYS"),
    ("has itself put at fixed addresses", "fixed_addresses", "EPERM"),
    ("handles page faults", "handle_faults", "EPERM"),
    ("loads a program into the kernel", "load_a_program", "EPERM"),
    ("counts events", "count_events", "EPERM"),
    ("watches a whole file system", "watch_a_file_system", "EPERM"),
    ("loads a module", "load_a_module", "EPERM"),
    ("loads another kernel", "load_a_kernel", "EPERM"),
    ("restarts the machine", "restart", "EPERM"),
    ("reads the kernel's log", "read_the_log", "EPERM"),
    ("ends swapping", "swap", "EPERM"),
    ("ends accounting", "account", "EPERM"),
    ("looks at quotas", "quota", "EPERM"),
    ("sets the clock", "set_the_clock", "EPERM"),
    ("bends the clock", "bend_the_clock", "EPERM"),
    ("renames the host", "rename_the_host", "EPERM"),
    ("goes before everyone", "before_everyone", "EACCES"),
    ("runs in real time", "in_real_time", "EPERM"),
    ("uses the disk in real time", "disk_in_real_time", "EPERM"),
    ("survives want of memory", "survive_want_of_memory", "EACCES"),
    ("uses a call that is too new", "call_that_is_too_new", "ENOSYS"),
];

/// Settings that only the machine's administrator may change.
const SETTINGS: &[(&str, &str)] = &[
    ("has core files go to a program", "set /proc/sys/kernel/core_pattern"),
    ("has modules loaded by a program", "set /proc/sys/kernel/modprobe"),
    ("has events handled by a program", "set /sys/kernel/uevent_helper"),
    ("has formats run by a program", "set /proc/sys/fs/binfmt_misc/register"),
    ("has the machine restart at an error", "set /proc/sys/kernel/panic_on_oops"),
    ("drops the machine's caches", "set /proc/sys/vm/drop_caches"),
    ("overcommits the machine's memory", "set /proc/sys/vm/overcommit_memory"),
    ("presses a magic key", "set /proc/sysrq-trigger"),
];

#[cfg(target_arch = "x86_64")]
const OF_THE_PROCESSOR: &[Attempt] = &[
    ("uses a port of the machine", "ports", "EPERM"),
    ("uses all ports of the machine", "all_ports", "EPERM"),
    ("changes its segments", "segments", "EPERM"),
    ("uses a call of x32 programs", "call_of_x32", "ENOSYS"),
    ("uses a call of 32-bit programs", "call_of_32_bits", "killed by 31"),
];

#[cfg(not(target_arch = "x86_64"))]
const OF_THE_PROCESSOR: &[Attempt] = &[];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn rarely_used_parts_of_the_kernel_are_refused() {
    let Some(world) = World::new(8).await else { return };
    let refused = |arguments: &str| match arguments.split_once(' ') {
        Some((_, path)) if path.starts_with("/proc/") => refused_if_there(path),
        _ => "ENOENT",
    };
    let settings: Vec<Attempt> =
        SETTINGS.iter().map(|(tries, set)| (*tries, *set, refused(set))).collect();
    world.try_all(&[EVERYWHERE, OF_THE_PROCESSOR, &settings].concat()).await;
    world.end().await;
}
