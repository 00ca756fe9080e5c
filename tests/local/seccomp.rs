//! The system-call filter as seen from inside: this test binary is copied into a workspace and
//! makes the calls there.

#![allow(unsafe_code, reason = "system calls are made as a hostile program would make them")]

use std::ffi::c_long;
use std::path::Path;

use issuebox::sandbox::{ExecRequest, Lifecycle};
use issuebox::types::Network;

use crate::common::{Ended, Local, Sandbox, request, spec, target};

/// The filters' own table: each of its rows must be tried here.
#[allow(dead_code, reason = "it is the filters' own")]
#[path = "../../src/sandbox/local/inside/seccomp/table.rs"]
mod table;

/// Set if this binary is to be the hostile program.
const INSIDE: &str = "ISSUEBOX_TEST_INSIDE";

const PERM: i32 = libc::EPERM;
const NOSYS: i32 = libc::ENOSYS;

/// A system call with its arguments, and the expected refusal. Arguments are chosen so that
/// without the filter the kernel's own answer would differ, unless a capability is needed.
type Refused = (&'static str, c_long, [c_long; 4], i32);

const REFUSED: &[Refused] = &[
    ("ptrace", libc::SYS_ptrace, [0, 0, 0, 0], PERM),
    ("process_vm_readv", libc::SYS_process_vm_readv, [1, 0, 0, 0], PERM),
    ("process_vm_writev", libc::SYS_process_vm_writev, [-1, 0, 0, 0], PERM),
    ("kcmp", libc::SYS_kcmp, [-1, -1, 0, 0], PERM),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, [-1, 0, 0, 0], PERM),
    ("mount", libc::SYS_mount, [0, 0, 0, 0], PERM),
    ("umount2", libc::SYS_umount2, [0, -1, 0, 0], PERM),
    ("pivot_root", libc::SYS_pivot_root, [0, 0, 0, 0], PERM),
    ("chroot", libc::SYS_chroot, [0, 0, 0, 0], PERM),
    ("open_tree", libc::SYS_open_tree, [-1, 0, -1, 0], PERM),
    ("move_mount", libc::SYS_move_mount, [-1, 0, -1, 0], PERM),
    ("fsopen", libc::SYS_fsopen, [0, -1, 0, 0], PERM),
    ("fsconfig", libc::SYS_fsconfig, [-1, 0, 0, 0], PERM),
    ("fsmount", libc::SYS_fsmount, [-1, 0, 0, 0], PERM),
    ("fspick", libc::SYS_fspick, [-1, 0, -1, 0], PERM),
    ("mount_setattr", libc::SYS_mount_setattr, [-1, 0, -1, 0], PERM),
    ("open_tree_attr", 467, [-1, 0, 0, 0], NOSYS),
    ("unshare of files", libc::SYS_unshare, [0x400, 0, 0, 0], PERM),
    ("unshare of users", libc::SYS_unshare, [0x1000_0000, 0, 0, 0], PERM),
    ("setns", libc::SYS_setns, [-1, 0, 0, 0], PERM),
    // Namespaces without the flag that would make the call valid: the kernel itself answers
    // EINVAL.
    ("clone of mounts", libc::SYS_clone, [0x0002_0200, 0, 0, 0], PERM),
    ("clone of cgroups", libc::SYS_clone, [0x0200_0000 | 0x800, 0, 0, 0], PERM),
    ("clone of uts", libc::SYS_clone, [0x0400_0000 | 0x800, 0, 0, 0], PERM),
    ("clone of ipc", libc::SYS_clone, [0x0800_0000 | 0x800, 0, 0, 0], PERM),
    ("clone of users", libc::SYS_clone, [0x1000_0200, 0, 0, 0], PERM),
    ("clone of pids", libc::SYS_clone, [0x2000_0000 | 0x800, 0, 0, 0], PERM),
    ("clone of networks", libc::SYS_clone, [0x4000_0000 | 0x800, 0, 0, 0], PERM),
    ("clone3", libc::SYS_clone3, [0, 0, 0, 0], NOSYS),
    ("bpf", libc::SYS_bpf, [-1, 0, 0, 0], PERM),
    ("perf_event_open", libc::SYS_perf_event_open, [0, -1, -1, -1], PERM),
    ("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0], PERM),
    ("fanotify_init", libc::SYS_fanotify_init, [-1, 0, 0, 0], PERM),
    ("name_to_handle_at", libc::SYS_name_to_handle_at, [-1, 0, 0, 0], PERM),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, [-1, 0, 0, 0], PERM),
    ("init_module", libc::SYS_init_module, [0, 0, 0, 0], PERM),
    ("finit_module", libc::SYS_finit_module, [-1, 0, 0, 0], PERM),
    ("delete_module", libc::SYS_delete_module, [0, 0, 0, 0], PERM),
    ("kexec_load", libc::SYS_kexec_load, [0, 0, 0, 0], PERM),
    ("kexec_file_load", libc::SYS_kexec_file_load, [-1, -1, 0, 0], PERM),
    ("reboot", libc::SYS_reboot, [0, 0, 0, 0], PERM),
    ("swapon", libc::SYS_swapon, [0, 0, 0, 0], PERM),
    ("swapoff", libc::SYS_swapoff, [0, 0, 0, 0], PERM),
    ("acct", libc::SYS_acct, [0, 0, 0, 0], PERM),
    ("quotactl", libc::SYS_quotactl, [-1, 0, 0, 0], PERM),
    ("quotactl_fd", libc::SYS_quotactl_fd, [-1, 0, 0, 0], PERM),
    // Reads the length, which any process may do if the kernel's log is not restricted.
    ("syslog", libc::SYS_syslog, [10, 0, 0, 0], PERM),
    ("clock_settime", libc::SYS_clock_settime, [-1, 0, 0, 0], PERM),
    ("settimeofday", libc::SYS_settimeofday, [0, 0, 0, 0], PERM),
    ("adjtimex", libc::SYS_adjtimex, [0, 0, 0, 0], PERM),
    ("clock_adjtime", libc::SYS_clock_adjtime, [0, 0, 0, 0], PERM),
    #[cfg(target_arch = "x86_64")]
    ("iopl", libc::SYS_iopl, [0, 0, 0, 0], PERM),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", libc::SYS_ioperm, [-1, -1, 0, 0], PERM),
    #[cfg(target_arch = "x86_64")]
    ("modify_ldt", libc::SYS_modify_ldt, [0, 0, 0, 0], PERM),
    ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0], NOSYS),
    ("io_uring_enter", libc::SYS_io_uring_enter, [-1, 0, 0, 0], NOSYS),
    ("io_uring_register", libc::SYS_io_uring_register, [-1, 0, 0, 0], NOSYS),
    ("add_key", libc::SYS_add_key, [0, 0, 0, 0], NOSYS),
    ("request_key", libc::SYS_request_key, [0, 0, 0, 0], NOSYS),
    ("keyctl", libc::SYS_keyctl, [0, -3, 0, 0], NOSYS),
    ("prlimit64 of another", libc::SYS_prlimit64, [1, 7, 1, 0], PERM),
    ("ioctl TIOCSTI", libc::SYS_ioctl, [-1, 0x5412, 0, 0], PERM),
    ("ioctl TIOCSTI with bits above", libc::SYS_ioctl, [-1, 0x1_0000_5412, 0, 0], PERM),
    ("ioctl TIOCLINUX", libc::SYS_ioctl, [-1, 0x541c, 0, 0], PERM),
    ("ioctl TIOCSETD", libc::SYS_ioctl, [-1, 0x5423, 0, 0], PERM),
    ("socket AF_PACKET", libc::SYS_socket, [17, -1, 0, 0], PERM),
    ("socket AF_ALG", libc::SYS_socket, [38, 5, 0, 0], PERM),
    ("socket AF_VSOCK", libc::SYS_socket, [40, 1, 0, 0], PERM),
    ("socket AF_TIPC", libc::SYS_socket, [30, 1, 0, 0], PERM),
    ("socketpair AF_TIPC", libc::SYS_socketpair, [30, 1, 0, 0], PERM),
    ("socket of MPTCP", libc::SYS_socket, [2, 1, 262, 0], PERM),
    ("socket of SCTP over IPv6", libc::SYS_socket, [10, 1, 132, 0], PERM),
    ("socket of netlink for its users", libc::SYS_socket, [16, 3, 2, 0], PERM),
    ("socket of netlink for audit", libc::SYS_socket, [16, 3, 9, 0], PERM),
    ("setsockopt SO_ATTACH_FILTER", libc::SYS_setsockopt, [-1, 1, 26, 0], PERM),
    ("setsockopt SO_ATTACH_BPF", libc::SYS_setsockopt, [-1, 1, 50, 0], PERM),
    ("setsockopt SO_ATTACH_REUSEPORT_CBPF", libc::SYS_setsockopt, [-1, 1, 51, 0], PERM),
    ("setsockopt SO_ATTACH_REUSEPORT_EBPF", libc::SYS_setsockopt, [-1, 1, 52, 0], PERM),
    ("setsockopt TCP_MD5SIG", libc::SYS_setsockopt, [-1, 6, 14, 0], PERM),
    ("setsockopt TCP_MD5SIG_EXT", libc::SYS_setsockopt, [-1, 6, 32, 0], PERM),
    ("setsockopt TCP_AO_ADD_KEY", libc::SYS_setsockopt, [-1, 6, 38, 0], PERM),
    ("personality without random addresses", libc::SYS_personality, [0x0004_0000, 0, 0, 0], PERM),
    ("io_setup", libc::SYS_io_setup, [0, 0, 0, 0], NOSYS),
    ("memfd_secret", libc::SYS_memfd_secret, [-1, 0, 0, 0], NOSYS),
    ("statmount", 457, [0, 0, 0, 0], NOSYS),
    ("listmount", 458, [0, 0, 0, 0], NOSYS),
    ("setxattrat, newer than the table", 463, [-1, 0, -1, 0], NOSYS),
    ("a call that does not exist", 999, [0, 0, 0, 0], NOSYS),
    #[cfg(target_arch = "x86_64")]
    ("getpid of x32", 0x4000_0027, [0, 0, 0, 0], NOSYS),
];

/// Runs inside: makes every call and prints each result.
#[test]
fn calls_from_inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    for (name, number, [a, b, c, d], _) in REFUSED {
        // SAFETY: no argument is an address that could be written to. A `clone` that is not
        // refused ends at once.
        let made = unsafe { libc::syscall(*number, *a, *b, *c, *d, 0, 0) };
        let error = std::io::Error::last_os_error();
        if made == 0 && name.starts_with("clone of") {
            std::process::exit(0);
        }
        println!("\n{name}={}", if made == -1 { error.raw_os_error().unwrap_or(0) } else { 0 });
    }
}

/// Runs inside: lists the network interfaces as the C library does, and opens netlink sockets until
/// one is refused.
#[test]
fn netlink_from_inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let mut all = std::ptr::null_mut();
    // SAFETY: the list is valid until the process ends, since it is not given back.
    let listed = unsafe { libc::getifaddrs(&raw mut all) };
    let mut names = std::collections::BTreeSet::new();
    while listed == 0 && !all.is_null() {
        // SAFETY: as above; a name ends with a null.
        unsafe {
            names.insert(std::ffi::CStr::from_ptr((*all).ifa_name).to_string_lossy());
            all = (*all).ifa_next;
        }
    }
    println!("\ninterfaces={}", names.into_iter().collect::<Vec<_>>().join(","));
    let open = || {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain numbers.
        unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) }
    };
    for _ in 0..100 {
        let socket = open();
        // SAFETY: plain numbers.
        let (ends, flags) =
            unsafe { (libc::fcntl(socket, libc::F_GETFD), libc::fcntl(socket, libc::F_GETFL)) };
        assert_eq!((ends, flags & libc::O_NONBLOCK), (libc::FD_CLOEXEC, libc::O_NONBLOCK));
        // SAFETY: it is this loop's own.
        unsafe { libc::close(socket) };
    }
    let many = (0..1000).take_while(|_| open() >= 0).count();
    println!("sockets={many}, {}", std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
}

/// Whether a call above is this one, with matching arguments and this answer.
fn is_tried(call: &table::SystemCall, answer: i32, fits: impl Fn(&[u64; 4]) -> bool) -> bool {
    let own = table::Processor::OWN.expect("a processor that sandboxes run on");
    let Some(number) = call.number(own) else { return true };
    REFUSED.iter().any(|(_, tried, arguments, refused)| {
        *tried == number && *refused == answer && fits(&arguments.map(c_long::cast_unsigned))
    })
}

#[test]
fn every_row_of_the_table_is_tried() {
    for (calls, answer) in [(table::NOT_PERMITTED, PERM), (table::NOT_THERE, NOSYS)] {
        for call in calls {
            assert!(is_tried(call, answer, |_| true), "{} has no try", call.name);
        }
    }
    for flag in table::NAMESPACES {
        let is_matching = |arguments: &[u64; 4]| arguments[0] & flag != 0;
        assert!(is_tried(&table::CLONE, PERM, is_matching), "the namespace {flag:#x} has no try");
    }
    for request in table::TERMINAL_TRICKS {
        let is_matching = |arguments: &[u64; 4]| arguments[1] == request;
        assert!(is_tried(&table::IOCTL, PERM, is_matching), "ioctl {request:#x} has no try");
    }
    assert!(is_tried(&table::LIMITS, PERM, |arguments| arguments[0] != 0 && arguments[2] != 0));
    for (level, option) in table::UNCOUNTED_OPTIONS {
        let is_matching = |arguments: &[u64; 4]| arguments[1..3] == [level, option];
        assert!(is_tried(&table::SET_OPTION, PERM, is_matching), "{level}, {option} has no try");
    }
    let is_other = |arguments: &[u64; 4]| !table::PERSONAS.contains(&arguments[0]);
    assert!(is_tried(&table::PERSONALITY, PERM, is_other));
    for family in table::FAMILIES.into_iter().filter(|family| *family != table::UNIX) {
        let usual = |protocol| match family {
            table::NETLINK => protocol == table::NETLINK_ROUTE,
            _ => table::INTERNET_PROTOCOLS.contains(&protocol),
        };
        let is_other = |arguments: &[u64; 4]| arguments[0] == family && !usual(arguments[2]);
        assert!(is_tried(&table::SOCKET, PERM, is_other), "protocols of {family} have no try");
    }
    for call in [table::SOCKET, table::SOCKETPAIR] {
        let is_other = |arguments: &[u64; 4]| !table::FAMILIES.contains(&arguments[0]);
        assert!(is_tried(&call, PERM, is_other), "{} has no try", call.name);
    }
    let newer = c_long::from(table::LAST_JUDGED) + 1;
    let is_first_newer = |(_, tried, _, answer): &Refused| *tried == newer && *answer == NOSYS;
    assert!(REFUSED.iter().any(is_first_newer), "the first call past the table has no try");
}

/// Runs a test of this binary in a sandbox.
async fn run_inside(sandbox: &Sandbox<'_>, test: &str) -> Ended {
    let binary = std::env::current_exe().expect("known");
    sandbox.put(b"hostile", std::fs::read(binary).expect("readable").into()).await;
    sandbox.sh("chmod +x hostile").await;
    let ended = sandbox
        .run(ExecRequest {
            env: vec![(INSIDE.into(), "1".into())],
            ..request(&["./hostile", "--exact", test, "--nocapture", "--test-threads=1"])
        })
        .await;
    assert_eq!(ended.code, 0, "{ended:?}");
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn netlink_lists_interfaces_and_has_few_sockets() {
    let Some(local) = Local::new().await else { return };
    let of_host = std::fs::read_dir("/sys/class/net").expect("readable").flatten().next();
    let of_host = of_host.expect("an interface").file_name().to_string_lossy().into_owned();
    for (network, interface) in [(Network::None, "lo".to_owned()), (Network::Host, of_host)] {
        let mut spec = spec(network.kind().as_str(), network.kind().as_str());
        spec.template.network = network;
        let object = local.provider.create(spec).await.expect("made");
        let sandbox = Sandbox { provider: &local.provider, target: target(&object) };
        // A second process finds them again.
        for _ in 0..2 {
            let ended = run_inside(&sandbox, "seccomp::netlink_from_inside").await;
            let value = |key: &str| {
                ended.stdout.lines().find_map(|line| line.strip_prefix(key)).expect("printed")
            };
            let interfaces = value("interfaces=");
            assert!(interfaces.split(',').any(|name| name == interface), "{interfaces}");
            let (many, error) = value("sockets=").split_once(", ").expect("two");
            assert!((4..=16).contains(&many.parse().expect("a number")), "{many}");
            assert_eq!(error, libc::ENOBUFS.to_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_denied_call_is_refused_inside() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("calls").await;
    let ended = run_inside(&sandbox, "seccomp::calls_from_inside").await;
    for (name, _, _, refused) in REFUSED {
        let result =
            ended.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        assert_eq!(result, Some(&*refused.to_string()), "{name}: {}", ended.stdout);
    }
    let status = sandbox.sh("grep -w Seccomp: /proc/self/status").await;
    assert_eq!(status, "Seccomp:\t2\n");
}

#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler that makes 32-bit programs without their libraries"]
async fn a_call_by_the_32_bit_entrance_is_killed() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("entrance").await;
    let source = "int main(void) { int r; __asm__ volatile (\"int $0x80\" : \"=a\"(r) : \"a\"(20)); \
                  return r > 0 ? 0 : 1; }";
    sandbox.write(b"x.c", source).await.expect("written");
    sandbox.sh("cc -o x x.c").await;
    assert_eq!(sandbox.run(request(&["./x"])).await.code, 128 + libc::SIGSYS);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs git, node, npm, python3, a C compiler and script"]
async fn common_tools_work_under_the_filter() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("work").await;
    let commit = "git init -q r && cd r && echo x > f && git add f && \
                  git -c user.name=a -c user.email=a@b commit -qm x && git gc -q && git fsck && \
                  git clone -q . ../copy && cat ../copy/f";
    let worker = "const { Worker } = require('worker_threads'); \
                  const server = require('http').createServer((_, answer) => answer.end('served')); \
                  server.listen(0, '127.0.0.1', () => \
                    require('http').get({ port: server.address().port }, answer => \
                      answer.on('data', data => { console.log(String(data)); server.close(); \
                        new Worker('console.log(\"worker\")', { eval: true }); })));";
    let python = "import multiprocessing as m, subprocess as s, pty, os; \
                  print(m.Pool(2).map(abs, [-1, -2])); \
                  print(s.run(['echo', 'ran'], capture_output=True, text=True).stdout); \
                  pty.spawn(['tty']); a, b = os.openpty(); print(os.ttyname(b))";
    for (tool, script, output) in [
        ("git", commit.to_owned(), "x\n"),
        ("node", format!("node -e {}", quoted(worker)), "worker"),
        (
            "node",
            "node -p 'Object.keys(require(\"os\").networkInterfaces()).join()'".to_owned(),
            "lo",
        ),
        ("python3", "/usr/bin/python3 -c 'import socket; print(socket.if_nameindex())'".to_owned(), "'lo'"),
        ("npm", "npm --version && npm init -y".to_owned(), "\"name\""),
        ("python3", format!("/usr/bin/python3 -c {}", quoted(python)), "/dev/pts/"),
        (
            "python3",
            "/usr/bin/python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix)'"
                .to_owned(),
            "/workspace/v",
        ),
        ("cc", "printf 'int main(void){return 0;}' > a.c && cc -o a a.c && ./a".to_owned(), ""),
        ("script", "script -qec 'stty size; tty' /dev/null".to_owned(), "/dev/pts/0"),
    ] {
        let found =
            ["/usr/bin", "/usr/local/bin"].iter().any(|at| Path::new(at).join(tool).exists());
        assert!(found, "{tool} must be installed where a sandbox finds it");
        let ended = sandbox.run(request(&["sh", "-c", &script])).await;
        assert_eq!(ended.code, 0, "{tool}: {ended:?}");
        assert!(ended.stdout.contains(output), "{tool}: {ended:?}");
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
