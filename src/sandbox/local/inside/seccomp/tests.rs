//! Runs the filters as the kernel does, for both processors.

use super::*;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const NOTIFIED: u32 = 0x7fc0_0000;
const PERM: u32 = 0x0005_0001;
const NOSYS: u32 = 0x0005_0026;

/// A filter's input: number, processor, address, six arguments.
fn data(number: u32, processor: u32, arguments: [u64; 6]) -> Vec<u8> {
    let mut data = Vec::new();
    data.extend(number.to_le_bytes());
    data.extend(processor.to_le_bytes());
    data.extend(0_u64.to_le_bytes());
    data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
    data
}

/// Runs a filter: implements the instructions that the filters here use.
fn run(program: &[sock_filter], data: &[u8]) -> u32 {
    let (mut at, mut value) = (0, 0);
    loop {
        let step = &program[at];
        at += 1;
        let mut jump = |holds: bool| at += usize::from(if holds { step.jt } else { step.jf });
        match step.code {
            0x20 => {
                let from = step.k as usize;
                value = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
            }
            0x54 => value &= step.k,
            0x05 => at += step.k as usize,
            0x15 => jump(value == step.k),
            0x25 => jump(value > step.k),
            0x35 => jump(value >= step.k),
            0x06 => return step.k,
            other => panic!("unknown instruction {other:#x}"),
        }
    }
}

const AUDIT_X86_64: u32 = 0xc000_003e;
const AUDIT_AARCH64: u32 = 0xc000_00b7;

/// The answer of all filters together: the kernel takes the strictest.
fn answer(processor: Processor, call: u32, arguments: [u64; 6]) -> u32 {
    let audit = match processor {
        Processor::X86_64 => AUDIT_X86_64,
        Processor::Aarch64 => AUDIT_AARCH64,
    };
    let data = data(call, audit, arguments);
    let answers = filters(processor).unwrap().map(|filter| run(&filter, &data));
    *answers.iter().min().unwrap()
}

const BOTH: [Processor; 2] = [Processor::X86_64, Processor::Aarch64];

#[test]
fn each_call_of_the_table_is_refused_and_no_other() {
    for processor in BOTH {
        let number = |call: &SystemCall| call.number(processor).map(|n| u32::try_from(n).unwrap());
        let not_permitted: Vec<u32> = NOT_PERMITTED.iter().filter_map(number).collect();
        let not_there: Vec<u32> = NOT_THERE.iter().filter_map(number).collect();
        // Calls that are filtered by their arguments get harmless ones.
        let by_arguments: Vec<u32> =
            [SOCKET, SOCKETPAIR, CLONE, IOCTL].iter().filter_map(number).collect();
        for call in 0..=LAST_JUDGED {
            let expected = match call {
                _ if not_permitted.contains(&call) => PERM,
                _ if not_there.contains(&call) => NOSYS,
                _ => ALLOW,
            };
            let argument = match call {
                _ if by_arguments.contains(&call) => 1,
                _ if number(&LIMITS) == Some(call) => 0,
                _ => u64::MAX,
            };
            let found = answer(processor, call, [argument; 6]);
            assert_eq!(found, expected, "{processor:?}, call {call}");
        }
        for call in [LAST_JUDGED + 1, 0x4000_0000, 0x4000_0065, u32::MAX] {
            assert_eq!(answer(processor, call, [0; 6]), NOSYS, "{processor:?}, call {call}");
        }
    }
}

#[test]
fn arguments_decide_and_what_the_kernel_ignores_of_them_does_not() {
    let above = 7 << 32;
    for processor in BOTH {
        let call_with = |call: &SystemCall, at: usize, value: u64| {
            let number = u32::try_from(call.number(processor).unwrap()).unwrap();
            let mut arguments = [0; 6];
            arguments[at] = value;
            answer(processor, number, arguments)
        };
        for flag in NAMESPACES {
            assert_eq!(call_with(&CLONE, 0, flag | 17), PERM, "{flag:#x}");
            assert_eq!(call_with(&CLONE, 0, above | flag | 0x0100_0000), PERM, "{flag:#x}");
        }
        // A thread, and a fork, as the libraries make them.
        for flags in [0x003d_0f00, 0x0120_0011, 0x4111] {
            assert_eq!(call_with(&CLONE, 0, flags), ALLOW, "{flags:#x}");
        }
        for request in TERMINAL_TRICKS {
            assert_eq!(call_with(&IOCTL, 1, request), PERM);
            assert_eq!(call_with(&IOCTL, 1, above | request), PERM);
        }
        assert_eq!(call_with(&IOCTL, 1, 0x5401), ALLOW);
        let limit = |process, new| {
            let number = u32::try_from(LIMITS.number(processor).unwrap()).unwrap();
            answer(processor, number, [process, 7, new, 0, 0, 0])
        };
        for (process, new, expected) in
            [(0, 1, ALLOW), (1, 0, ALLOW), (1, 1, PERM), (1, 1 << 32, PERM), (above, 1, ALLOW)]
        {
            assert_eq!(limit(process, new), expected, "{process:#x}, {new:#x}");
        }
        for socket in [SOCKET, SOCKETPAIR] {
            for family in FAMILIES {
                let is_left = family == NETLINK && socket == SOCKET;
                let expected = if is_left { NOTIFIED } else { ALLOW };
                assert_eq!(call_with(&socket, 0, family), expected, "{family}");
                assert_eq!(call_with(&socket, 0, above | family), expected, "{family}");
            }
            // Packet, key, ALG, VSOCK, XDP, and one that does not exist.
            for family in [17, 15, 38, 40, 44, 99] {
                assert_eq!(call_with(&socket, 0, family), PERM, "{family}");
            }
        }
    }
}

#[test]
fn protocols_options_and_personas_are_allowed_by_name() {
    let above = 7 << 32;
    for processor in BOTH {
        let answer_to = |call: &SystemCall, arguments: [u64; 3]| {
            let number = u32::try_from(call.number(processor).unwrap()).unwrap();
            let [a, b, c] = arguments;
            answer(processor, number, [a, b, c, 0, 0, 0])
        };
        for family in [2, 10] {
            for protocol in INTERNET_PROTOCOLS {
                assert_eq!(answer_to(&SOCKET, [family, 1, above | protocol]), ALLOW, "{protocol}");
            }
            // IGMP, DCCP, SCTP, UDP-Lite, and the number of MPTCP, which is above a byte.
            for protocol in [2, 33, 132, 136, 262, above | 136] {
                assert_eq!(answer_to(&SOCKET, [family, 1, protocol]), PERM, "{protocol}");
                assert_eq!(answer_to(&SOCKET, [above | family, 1, protocol]), PERM, "{protocol}");
            }
        }
        // The kernel itself knows no protocols of `AF_UNIX`.
        assert_eq!(answer_to(&SOCKET, [UNIX, 1, 136]), ALLOW);
        for protocol in 1..32 {
            assert_eq!(answer_to(&SOCKET, [NETLINK, 3, protocol]), PERM, "{protocol}");
        }
        for (level, option) in UNCOUNTED_OPTIONS {
            assert_eq!(answer_to(&SET_OPTION, [9, level, option]), PERM, "{level}, {option}");
            let option = above | option;
            assert_eq!(answer_to(&SET_OPTION, [9, above | level, option]), PERM, "{option}");
        }
        // Buffers, `SO_DETACH_FILTER`, `TCP_NODELAY`, and a number of another level.
        for (level, option) in [(1, 7), (1, 8), (1, 27), (6, 1), (0, 26), (41, 26), (6, 50)] {
            assert_eq!(answer_to(&SET_OPTION, [9, level, option]), ALLOW, "{level}, {option}");
        }
        for persona in PERSONAS {
            assert_eq!(answer_to(&PERSONALITY, [above | persona, 0, 0]), ALLOW, "{persona:#x}");
        }
        // Fixed addresses, everything executable, a page at 0, old layout.
        for persona in [0x0004_0000, 0x0040_0000, 0x0010_0000, 0x0020_0000, 0x0004_0008] {
            assert_eq!(answer_to(&PERSONALITY, [persona, 0, 0]), PERM, "{persona:#x}");
        }
    }
}

#[test]
fn calls_of_another_processor_are_killed() {
    const AUDIT_I386: u32 = 0x4000_0003;
    for (processor, audit) in [
        (Processor::X86_64, AUDIT_I386),
        (Processor::X86_64, AUDIT_AARCH64),
        (Processor::Aarch64, AUDIT_X86_64),
    ] {
        let data = data(1, audit, [0; 6]);
        let found = filters(processor).unwrap().map(|filter| run(&filter, &data));
        assert!(found.contains(&KILL), "{processor:?}, {audit:#x}: {found:x?}");
    }
}

/// Names that the C library has on both processors.
const OF_HEADERS: &[(&str, libc::c_long)] = &[
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("kcmp", libc::SYS_kcmp),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("open_tree", libc::SYS_open_tree),
    ("move_mount", libc::SYS_move_mount),
    ("fsopen", libc::SYS_fsopen),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsmount", libc::SYS_fsmount),
    ("fspick", libc::SYS_fspick),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns),
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("kexec_load", libc::SYS_kexec_load),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("reboot", libc::SYS_reboot),
    ("swapon", libc::SYS_swapon),
    ("swapoff", libc::SYS_swapoff),
    ("acct", libc::SYS_acct),
    ("quotactl", libc::SYS_quotactl),
    ("quotactl_fd", libc::SYS_quotactl_fd),
    ("syslog", libc::SYS_syslog),
    ("clock_settime", libc::SYS_clock_settime),
    ("settimeofday", libc::SYS_settimeofday),
    ("adjtimex", libc::SYS_adjtimex),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    #[cfg(target_arch = "x86_64")]
    ("iopl", libc::SYS_iopl),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", libc::SYS_ioperm),
    #[cfg(target_arch = "x86_64")]
    ("modify_ldt", libc::SYS_modify_ldt),
    ("clone3", libc::SYS_clone3),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("keyctl", libc::SYS_keyctl),
    ("clone", libc::SYS_clone),
    ("ioctl", libc::SYS_ioctl),
    ("socket", libc::SYS_socket),
    ("socketpair", libc::SYS_socketpair),
    ("setsockopt", libc::SYS_setsockopt),
    ("personality", libc::SYS_personality),
    ("io_setup", libc::SYS_io_setup),
    ("memfd_secret", libc::SYS_memfd_secret),
    // The library has no names for these; the number is that of all processors.
    ("statmount", 457),
    ("listmount", 458),
    ("prlimit64", libc::SYS_prlimit64),
];

#[test]
fn numbers_are_those_of_this_system_s_headers() {
    let by_arguments = [SOCKET, SOCKETPAIR, CLONE, IOCTL, LIMITS, SET_OPTION, PERSONALITY];
    for call in NOT_PERMITTED.iter().chain(NOT_THERE).chain(&by_arguments) {
        let Some(number) = call.number(Processor::OWN.expect("known")) else { continue };
        let found = OF_HEADERS.iter().find(|(name, _)| *name == call.name);
        let (name, expected) = found.unwrap_or_else(|| panic!("{} is not looked up", call.name));
        assert_eq!(number, *expected, "{name}");
    }
}
