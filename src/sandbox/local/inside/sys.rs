//! System calls without a safe wrapper elsewhere, each as narrow as its one use.
//!
//! All are for the launcher and PID 1, which have one thread; that makes `fork` and `unshare`
//! sound here.

#![allow(unsafe_code, reason = "these system calls have no safe wrapper")]

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The side of a fork.
pub enum Fork {
    /// The new process.
    Child,
    /// The old process, with the pid of the new one.
    Parent(Pid),
}

fn checked(result: libc::c_int) -> Result<libc::c_int, Errno> {
    if result == -1 { Err(last_error()) } else { Ok(result) }
}

fn checked_long(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result == -1 { Err(last_error()) } else { Ok(result) }
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Forks this process.
pub fn fork() -> Result<Fork, Errno> {
    // SAFETY: this process has one thread, so the child inherits no lock held by another.
    let pid = checked(unsafe { libc::fork() })?;
    Ok(match Pid::from_raw(pid) {
        None => Fork::Child,
        Some(pid) => Fork::Parent(pid),
    })
}

/// Ends this process at once, without cleanup code of the process that it was forked from.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any number and does not return.
    unsafe { libc::_exit(code) }
}

/// Enters new namespaces.
pub fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: this process has one thread, so no other thread uses the descriptor table.
    unsafe { unshare_unsafe(flags) }
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: libc::c_uint) -> Result<(), Errno> {
    // SAFETY: called before anything owns a descriptor at or above `first`.
    checked_long(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) })?;
    Ok(())
}

/// Makes every descriptor from `first` on end at the next execution.
pub fn end_at_execution_from(first: libc::c_uint) -> Result<(), Errno> {
    const CLOEXEC: libc::c_uint = 4;
    // SAFETY: sets a flag; nothing is closed before this process becomes another program.
    checked_long(unsafe {
        libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, CLOEXEC)
    })?;
    Ok(())
}

/// Makes `to` (0, 1 or 2) the same as `from`.
pub fn place_descriptor(from: BorrowedFd<'_>, to: i32) -> Result<(), Errno> {
    // SAFETY: no value here owns the standard descriptors, so they may be replaced.
    checked(unsafe { libc::dup2(from.as_raw_fd(), to) })?;
    Ok(())
}

/// Executes another program; returns only on failure.
pub fn execute(program: &CStr, arguments: &[CString], environment: &[CString]) -> Errno {
    let pointers = |list: &[CString]| {
        let mut list: Vec<_> = list.iter().map(|text| text.as_ptr()).collect();
        list.push(ptr::null());
        list
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both lists end with a null and their texts live until the call has returned.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    last_error()
}

/// Blocks `SIGCHLD` and returns a descriptor that is readable while one is pending.
pub fn child_signals() -> Result<OwnedFd, Errno> {
    // SAFETY: an all-zero set is valid storage for `sigemptyset`; the calls only fill and read it;
    // a new descriptor has no other owner.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        checked(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()))?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let descriptor = checked(libc::signalfd(-1, &raw const set, flags))?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Resets signals to their defaults, as a program expects.
pub fn reset_signals() {
    // SAFETY: an all-zero set is valid storage for `sigemptyset`; no handler of ours is replaced,
    // since there is none.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Resets every signal to its default. The server's parent may have ignored some, as a shell does
/// for background jobs, and ignored signals survive `execve`.
pub fn default_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: no handler of ours is replaced, since there is none. What cannot be set stays.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Makes a write beyond the longest file fail with `EFBIG` instead of killing this process.
pub fn survive_long_files() {
    // SAFETY: no handler of ours is replaced, since there is none.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Sends a signal to every process in this pid namespace but this one.
pub fn signal_everyone(signal: Signal) {
    // SAFETY: -1 means all processes that may be signalled; this process is PID 1 of its
    // namespace, which bounds them. No other process is no error.
    unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Replaces the inherited session keyring by a new one.
pub fn fresh_keyring() -> Result<(), Errno> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    let name: *const libc::c_char = ptr::null();
    // SAFETY: a null name requests an anonymous keyring; no memory is passed.
    let joined =
        checked_long(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, name) });
    match joined {
        Ok(_) | Err(Errno::NOSYS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// Sets attributes (`MOUNT_ATTR_*`) of a mount, and with `recursive` of all mounts below it.
pub fn set_mount(mount: impl AsFd, attributes: u64, recursive: bool) -> Result<(), Errno> {
    const EMPTY_PATH: libc::c_uint = 0x1000;
    const RECURSIVE: libc::c_uint = 0x8000;
    let flags = EMPTY_PATH | if recursive { RECURSIVE } else { 0 };
    let wanted = MountAttributes { set: attributes, clear: 0, propagation: 0, userns: 0 };
    // SAFETY: the path is an empty C string, and the size is that of the struct beside it.
    checked_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const wanted,
            size_of::<MountAttributes>(),
        )
    })?;
    Ok(())
}

/// Installs a filter in this process whose *notify* answers go to the returned listener.
pub fn install_with_listener(program: &[seccompiler::sock_filter]) -> Result<OwnedFd, Errno> {
    let len = libc::c_ushort::try_from(program.len()).map_err(|_| Errno::TOOBIG)?;
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel only reads the program, whose instructions are laid out as its own are; a
    // new descriptor has no other owner.
    unsafe {
        let listener = checked_long(libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        ))?;
        let listener = i32::try_from(listener).map_err(|_| Errno::BADF)?;
        Ok(OwnedFd::from_raw_fd(listener))
    }
}

/// A system call that waits for a listener's answer.
pub struct WaitingCall {
    id: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// Takes the next waiting call of a listener that is readable.
pub fn take_call(listener: &OwnedFd) -> Result<WaitingCall, Errno> {
    // SAFETY: the struct is plain numbers, which the kernel wants zeroed and fills.
    unsafe {
        let mut call: libc::seccomp_notif = std::mem::zeroed();
        let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
        checked(libc::ioctl(listener.as_raw_fd(), request, &raw mut call))?;
        Ok(WaitingCall { id: call.id, arguments: call.data.args })
    }
}

/// Makes a waiting call fail.
pub fn refuse_call(listener: &OwnedFd, call: &WaitingCall, errno: Errno) -> Result<(), Errno> {
    answer_call(listener, call, 0, -errno.raw_os_error())
}

fn answer_call(listener: &OwnedFd, call: &WaitingCall, val: i64, error: i32) -> Result<(), Errno> {
    let answer = libc::seccomp_notif_resp { id: call.id, val, error, flags: 0 };
    let request = libc::SECCOMP_IOCTL_NOTIF_SEND;
    // SAFETY: the kernel only reads the struct.
    checked(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw const answer) })?;
    Ok(())
}

/// Answers a waiting call with a copy of a descriptor.
pub fn answer_with(
    listener: &OwnedFd,
    call: &WaitingCall,
    descriptor: &OwnedFd,
    ends_at_execution: bool,
) -> Result<(), Errno> {
    let add = |flags: libc::c_ulong| {
        let add = libc::seccomp_notif_addfd {
            id: call.id,
            flags: u32::try_from(flags).unwrap_or_default(),
            srcfd: descriptor.as_raw_fd().cast_unsigned(),
            newfd: 0,
            newfd_flags: if ends_at_execution { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
        };
        let request = libc::SECCOMP_IOCTL_NOTIF_ADDFD;
        // SAFETY: the kernel only reads the struct, and copies a descriptor that stays ours.
        checked(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw const add) })
    };
    match add(libc::SECCOMP_ADDFD_FLAG_SEND) {
        // Before Linux 5.14 it takes two steps.
        Err(Errno::INVAL) => answer_call(listener, call, add(0)?.into(), 0),
        added => added.map(|_| ()),
    }
}

/// Raises the loopback interface of this network namespace.
pub fn raise_loopback() -> Result<(), Errno> {
    // SAFETY: the request is a zeroed `ifreq` with the interface's name, which both calls expect;
    // the socket was just made and is owned here.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let socket = OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_INET, kind, 0))?);
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = libc::c_char::from_ne_bytes([*from]);
        }
        checked(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request))?;
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        checked(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request))?;
    }
    Ok(())
}
