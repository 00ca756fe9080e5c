//! The refused system calls, by name and by number on each processor.
//!
//! Numbers are the kernel's and never change. A call that a processor lacks is `None` there.

/// A processor in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// 64-bit Intel and AMD.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Processor {
    /// This program's processor; `None` if it is not in the table.
    pub const OWN: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Self::Aarch64)
    } else {
        None
    };
}

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// Its name.
    pub name: &'static str,
    x86_64: Option<u16>,
    aarch64: Option<u16>,
}

impl SystemCall {
    /// Its number; `None` if the processor lacks it.
    pub const fn number(&self, processor: Processor) -> Option<i64> {
        let number = match processor {
            Processor::X86_64 => self.x86_64,
            Processor::Aarch64 => self.aarch64,
        };
        match number {
            Some(number) => Some(number as i64),
            None => None,
        }
    }
}

const fn call(name: &'static str, x86_64: u16, aarch64: u16) -> SystemCall {
    SystemCall { name, x86_64: Some(x86_64), aarch64: Some(aarch64) }
}

/// Since 2019 new calls have the same number on all processors.
const fn same(name: &'static str, number: u16) -> SystemCall {
    call(name, number, number)
}

const fn x86_only(name: &'static str, number: u16) -> SystemCall {
    SystemCall { name, x86_64: Some(number), aarch64: None }
}

/// Refused with `EPERM`, with any arguments.
pub const NOT_PERMITTED: &[SystemCall] = &[
    // Access to other processes and their descriptors.
    call("ptrace", 101, 117),
    call("process_vm_readv", 310, 270),
    call("process_vm_writev", 311, 271),
    call("kcmp", 312, 272),
    same("pidfd_getfd", 438),
    // Mounts, by the old calls and the new ones.
    call("mount", 165, 40),
    call("umount2", 166, 39),
    call("pivot_root", 155, 41),
    call("chroot", 161, 51),
    same("open_tree", 428),
    same("move_mount", 429),
    same("fsopen", 430),
    same("fsconfig", 431),
    same("fsmount", 432),
    same("fspick", 433),
    same("mount_setattr", 442),
    // Namespaces; `clone` is filtered by its arguments.
    call("unshare", 272, 97),
    call("setns", 308, 268),
    // Kernel subsystems with many past bugs.
    call("bpf", 321, 280),
    call("perf_event_open", 298, 241),
    call("userfaultfd", 323, 282),
    call("fanotify_init", 300, 262),
    // Files by handle, which bypasses paths.
    call("name_to_handle_at", 303, 264),
    call("open_by_handle_at", 304, 265),
    // The machine as a whole.
    call("init_module", 175, 105),
    call("finit_module", 313, 273),
    call("delete_module", 176, 106),
    call("kexec_load", 246, 104),
    call("kexec_file_load", 320, 294),
    call("reboot", 169, 142),
    call("swapon", 167, 224),
    call("swapoff", 168, 225),
    call("acct", 163, 89),
    call("quotactl", 179, 60),
    same("quotactl_fd", 443),
    call("syslog", 103, 116),
    call("clock_settime", 227, 112),
    call("settimeofday", 164, 170),
    call("adjtimex", 159, 171),
    call("clock_adjtime", 305, 266),
    // I/O ports and segments of the processor.
    x86_only("iopl", 172),
    x86_only("ioperm", 173),
    x86_only("modify_ldt", 154),
];

/// Refused with `ENOSYS`, so that programs fall back as on older kernels: `clone3` passes its
/// flags by a pointer, which no filter can read, and libraries fall back to `clone`.
pub const NOT_THERE: &[SystemCall] = &[
    same("clone3", 435),
    same("io_uring_setup", 425),
    same("io_uring_enter", 426),
    same("io_uring_register", 427),
    call("add_key", 248, 217),
    call("request_key", 249, 218),
    call("keyctl", 250, 219),
    // Counted for the whole machine (`fs.aio-max-nr`); libraries fall back to threads.
    call("io_setup", 206, 0),
    // Needless: memory that the kernel itself cannot read, and mounts in another form than
    // `/proc/self/mountinfo`.
    same("memfd_secret", 447),
    same("statmount", 457),
    same("listmount", 458),
];

/// Makes processes; refused if it creates a namespace.
pub const CLONE: SystemCall = call("clone", 56, 220);

/// Controls devices; some requests are refused.
pub const IOCTL: SystemCall = call("ioctl", 16, 29);

/// Sets limits of a process; refused if it sets those of another one. By PID 1's limits a command
/// could make the kernel kill it, or block its work.
pub const LIMITS: SystemCall = call("prlimit64", 302, 261);

/// Make sockets; families and protocols that are not needed are refused.
pub const SOCKET: SystemCall = call("socket", 41, 198);
/// The same for connected pairs.
pub const SOCKETPAIR: SystemCall = call("socketpair", 53, 199);

/// Sets an option of a socket; refused for [`UNCOUNTED_OPTIONS`].
pub const SET_OPTION: SystemCall = call("setsockopt", 54, 208);

/// Changes how programs are executed; refused but for [`PERSONAS`].
pub const PERSONALITY: SystemCall = call("personality", 135, 92);

/// The last call in the table's range (`mseal`, Linux 6.10). Later ones, and x32 numbers, get
/// `ENOSYS`.
pub const LAST_JUDGED: u32 = 462;

/// The `CLONE_NEW*` flags of `clone`: mount, cgroup, uts, ipc, user, pid, net. (`clone` can't make
/// a time namespace.)
pub const NAMESPACES: [u64; 7] =
    [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];

/// `TIOCSTI` types into a terminal like its user; `TIOCLINUX` pastes into one; `TIOCSETD` loads a
/// driver for one, some of which have many past bugs.
pub const TERMINAL_TRICKS: [u64; 3] = [0x5412, 0x541c, 0x5423];

/// `AF_UNIX`.
pub const UNIX: u64 = 1;
/// `AF_NETLINK`: how programs list network interfaces.
pub const NETLINK: u64 = 16;

/// `AF_UNIX`, `AF_INET`, `AF_INET6`, `AF_NETLINK`: the allowed families of sockets.
pub const FAMILIES: [u64; 4] = [UNIX, 2, 10, NETLINK];

/// The allowed protocols of `AF_INET` and `AF_INET6`: the usual one, ICMP, TCP, UDP, ICMPv6, and
/// raw, which the kernel refuses. MPTCP, SCTP, UDP-Lite and the rest load or run code that nothing
/// here needs; Go, which tries MPTCP first, falls back to TCP.
pub const INTERNET_PROTOCOLS: [u64; 6] = [0, 1, 6, 17, 58, 255];

/// `NETLINK_ROUTE`, the allowed protocol of `AF_NETLINK`.
pub const NETLINK_ROUTE: u64 = 0;

/// Options, by level and name, whose memory the kernel charges to no group: programs for a socket's
/// packets (`SO_ATTACH_FILTER`, `SO_ATTACH_BPF`, `SO_ATTACH_REUSEPORT_CBPF`, `…_EBPF`), which count
/// for the whole machine in `net.core.bpf_jit_limit`, and keys for TCP (`TCP_MD5SIG`, `…_EXT`,
/// `TCP_AO_ADD_KEY`).
pub const UNCOUNTED_OPTIONS: [(u64, u64); 7] =
    [(1, 26), (1, 50), (1, 51), (1, 52), (6, 14), (6, 32), (6, 38)];

/// The usual ways to execute (`PER_LINUX`, `PER_LINUX32`, both with `UNAME26`), and the question
/// for the current one. Others switch off what makes faults of programs harder to use, such as
/// random addresses.
pub const PERSONAS: [u64; 5] = [0, 8, 0x0002_0000, 0x0002_0008, 0xffff_ffff];
