//! The file system of a sandbox: built from nothing, then entered for good.
//!
//! The root is a tmpfs. It contains detached copies of the host's program directories, made
//! read-only *recursively* before they are attached (a plain read-only bind leaves mounts below it
//! writable); its own `/etc`; harmless devices; writable directories; a `/proc` of the new pid
//! namespace; and the workspace. In the end the root is made read-only and the host's root is
//! detached. No step falls back to something weaker: if one fails, there is no sandbox.
//!
//! The caller is in fresh namespaces, and alone.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, chmodat, mkdirat, openat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    mount_change, move_mount, open_tree, unmount,
};
use rustix::path::Arg;
use rustix::process::{fchdir, pivot_root};

use super::super::frame::Setup;
use super::super::host_view::{PROGRAMS, RUNTIME_SETTINGS, SETTINGS};
use super::given::GivenPrograms;
use super::workspace::TakenWorkspace;
use super::{HOME, NameStep, SetupError, WORKSPACE, network, sys};
use crate::sabotage::{Bug, on};

/// The mount point of the new root; every system has this directory.
const BUILD_AT: &str = "/tmp";

/// The size of the root's own content, in MiB: a few settings of some hundred bytes each.
const ROOT_MB: u32 = 1;

/// Devices without state of the host.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The entries of `/proc` that show other sandboxes and users: their disks with what they write, the
/// machine's keys, how it was started, and how busy it is, where watches can also be set. Covered
/// with what is empty.
pub(super) const HIDDEN: [&str; 11] = [
    "fs",
    "bus",
    "irq",
    "scsi",
    "keys",
    "key-users",
    "partitions",
    "diskstats",
    "mdstat",
    "cmdline",
    "pressure",
];

/// The sandbox's own `/etc`.
const OWN_SETTINGS: [(&str, &str); 6] = [
    (
        "passwd",
        "root:x:0:0:root:/nonexistent:/bin/false\n\
         agent:x:1000:1000:agent:/home/agent:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    ),
    ("group", "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n"),
    ("hostname", "sandbox\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"),
    ("shells", "/bin/sh\n/bin/bash\n"),
];

/// Most terminals of one sandbox.
const TERMINALS_MAX: &str = "64";

const READ_ONLY: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RDONLY;
const NO_SUID: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID;
const NO_DEV: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NODEV;
const NO_EXEC: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOEXEC;

/// Builds the view and enters it.
pub fn enter(
    setup: &Setup,
    workspace: TakenWorkspace,
    given: GivenPrograms,
) -> Result<(), SetupError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).step("make mounts private")?;
    let workspace = workspace.mount()?;
    let given = given.taken()?;

    // The root needs a few names and bytes itself; the rest is for later writes.
    let size = format!("{}m", setup.scratch_mb.saturating_add(ROOT_MB));
    let files = (u64::from(setup.scratch_mb) * 256 + 1024).to_string();
    let root = tmpfs(&[("size", &size), ("nr_inodes", &files), ("mode", "0755")])
        .step("make a root file system")?;
    move_mount(&root, "", CWD, BUILD_AT, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .step("attach the root file system")?;
    let root = root.as_fd();
    programs(root)?;
    given.attach(root)?;
    settings(root, setup)?;
    devices(root)?;
    for (path, mode) in [("tmp", 0o1777), ("home", 0o755), ("dev/shm", 0o1777)] {
        writable(root, path, mode).step(&format!("make /{path}"))?;
    }
    parents(root, "var/tmp")
        .and_then(|()| symlinkat("/tmp", root, "var/tmp"))
        .step("link /var/tmp to /tmp")?;
    processes(root)?;
    attach(&workspace, root, &WORKSPACE[1..], true).step("attach the workspace")?;

    fchdir(root).step("enter the new root")?;
    pivot_root(".", ".").step("pivot to the new root")?;
    // The old root is mounted on top of the new one; detaching it uncovers that.
    unmount(".", UnmountFlags::DETACH).step("leave the old root")?;
    std::env::set_current_dir("/").step("go to the new root")?;
    mkdirat(CWD, HOME, Mode::from_raw_mode(0o700)).step("make the home directory")?;
    let mut flags = READ_ONLY | NO_SUID | NO_DEV;
    flags.set(READ_ONLY, !on(Bug::RootWritable));
    sys::set_mount(root, bits(flags), false).step("make the root read-only")
}

fn bits(flags: MountAttrFlags) -> u64 {
    u64::from(flags.bits())
}

/// A detached copy of the mount at a path.
pub(super) fn copy(at: BorrowedFd<'_>, path: impl Arg, recursive: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    open_tree(at, path, flags)
}

/// A detached copy of the mount at a path that nothing can be changed by, with the mounts below it
/// if `recursive`.
pub(super) fn read_only(path: impl Arg, recursive: bool) -> Result<OwnedFd, Errno> {
    let mount = copy(CWD, path, recursive)?;
    sys::set_mount(&mount, bits(READ_ONLY | NO_SUID | NO_DEV), recursive)?;
    Ok(mount)
}

/// A detached tmpfs.
fn tmpfs(options: &[(&str, &str)]) -> Result<OwnedFd, Errno> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    let mut flags = NO_SUID | NO_DEV;
    flags.set(NO_DEV, !on(Bug::DevicesOpened));
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Makes the directories above `path`.
pub(super) fn parents(root: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    for (at, _) in path.match_indices('/') {
        match mkdirat(root, &path[..at], Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Makes a mount point at `path` and attaches a detached mount there.
pub(super) fn attach(
    mount: &OwnedFd,
    root: BorrowedFd<'_>,
    path: &str,
    directory: bool,
) -> Result<(), Errno> {
    parents(root, path)?;
    if directory {
        mkdirat(root, path, Mode::from_raw_mode(0o755))?;
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(root, path, flags, Mode::from_raw_mode(0o444))?;
    }
    move_mount(mount, "", root, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Shows a file or directory of the host read-only under the same path. A link is recreated as a
/// link, which then resolves inside; missing paths are skipped.
fn show(root: BorrowedFd<'_>, path: &str) -> Result<(), SetupError> {
    let from = Path::new("/").join(path);
    let step = || format!("show /{path}");
    let kind = match fs::symlink_metadata(&from) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).step(&step()),
    };
    if kind.is_symlink() {
        let target = fs::read_link(&from).step(&step())?;
        parents(root, path).and_then(|()| symlinkat(&target, root, path)).step(&step())
    } else if kind.is_dir() || kind.is_file() {
        let mount = copy(CWD, format!("/{path}"), true).step(&step())?;
        let mut flags = READ_ONLY | NO_SUID | NO_DEV;
        flags.set(READ_ONLY, !on(Bug::ProgramsWritable));
        flags.set(NO_SUID, !on(Bug::SetUidHonoured));
        sys::set_mount(&mount, bits(flags), true).step(&step())?;
        attach(&mount, root, path, kind.is_dir()).step(&step())
    } else {
        Ok(())
    }
}

fn programs(root: BorrowedFd<'_>) -> Result<(), SetupError> {
    PROGRAMS.iter().try_for_each(|path| show(root, path))
}

fn settings(root: BorrowedFd<'_>, setup: &Setup) -> Result<(), SetupError> {
    let resolver = network::resolver_settings(setup.reach);
    let own = OWN_SETTINGS.iter().map(|(name, text)| (*name, text.as_bytes()));
    let git = Some(("gitconfig", &setup.git_config[..])).filter(|(_, text)| !text.is_empty());
    for (name, text) in own.chain([("resolv.conf", &resolver[..])]).chain(git) {
        let path = format!("etc/{name}");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        parents(root, &path)
            .and_then(|()| openat(root, &*path, flags, Mode::from_raw_mode(0o644)))
            .and_then(|file| rustix::io::write(&file, text))
            .step(&format!("write /{path}"))?;
    }
    symlinkat("/proc/self/mounts", root, "etc/mtab").step("write /etc/mtab")?;
    for name in SETTINGS {
        show(root, &format!("etc/{name}"))?;
    }
    for entry in fs::read_dir("/etc").step("read /etc")? {
        let name = entry.step("read /etc")?.file_name();
        let wanted = name.to_str().filter(|n| RUNTIME_SETTINGS.iter().any(|p| n.starts_with(p)));
        if let Some(name) = wanted {
            show(root, &format!("etc/{name}"))?;
        }
    }
    Ok(())
}

fn devices(root: BorrowedFd<'_>) -> Result<(), SetupError> {
    for name in DEVICES {
        let path = format!("dev/{name}");
        let step = format!("show /{path}");
        let kind = fs::metadata(format!("/{path}")).step(&step)?.file_type();
        if !kind.is_char_device() {
            return Err(SetupError::check(format!("/{path} is not a device")));
        }
        let mount = copy(CWD, format!("/{path}"), false).step(&step)?;
        sys::set_mount(&mount, bits(READ_ONLY | NO_SUID | NO_EXEC), false).step(&step)?;
        attach(&mount, root, &path, false).step(&step)?;
    }
    terminals(root).step("make /dev/pts")?;
    let links = [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")];
    for (name, part) in links {
        symlinkat(format!("/proc/self/fd{part}"), root, format!("dev/{name}"))
            .step("link in /dev")?;
    }
    Ok(())
}

/// The sandbox's own terminals. The kernel makes their files itself, so the mount need not be
/// writable. The machine has some thousands of terminals, and one sandbox could otherwise take
/// all.
fn terminals(root: BorrowedFd<'_>) -> Result<(), Errno> {
    let context = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("ptmxmode", "0666"), ("mode", "0620"), ("max", TERMINALS_MAX)] {
        fsconfig_set_string(context.as_fd(), key, value)?;
    }
    fsconfig_create(context.as_fd())?;
    let flags = READ_ONLY | NO_SUID | NO_EXEC;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)?;
    attach(&mount, root, "dev/pts", true)?;
    symlinkat("pts/ptmx", root, "dev/ptmx")
}

/// A directory that stays writable when the root is read-only: a mount of the same file system. So
/// one limit holds for all such directories together, bytes and inodes.
fn writable(root: BorrowedFd<'_>, path: &str, mode: u32) -> Result<(), Errno> {
    parents(root, path)?;
    mkdirat(root, path, Mode::from_raw_mode(mode))?;
    // The umask has reduced the mode of the new directory.
    chmodat(root, path, Mode::from_raw_mode(mode), AtFlags::empty())?;
    let mount = copy(root, path, false)?;
    move_mount(&mount, "", root, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// A `/proc` of this pid namespace.
fn processes(root: BorrowedFd<'_>) -> Result<(), SetupError> {
    let mount = || {
        let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(context.as_fd())?;
        let flags = NO_SUID | NO_DEV | NO_EXEC;
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
    };
    let mount = mount().step("mount /proc")?;
    attach(&mount, root, "proc", true).step("attach /proc")?;
    if on(Bug::ProcUncovered) {
        return Ok(());
    }
    hide(root)
}

/// Covers [`HIDDEN`], where this kernel has it, with one empty file and one empty directory.
fn hide(root: BorrowedFd<'_>) -> Result<(), SetupError> {
    let (file, directory) = ("empty-file", "empty-directory");
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(root, file, flags, Mode::from_raw_mode(0o444)).step("make an empty file")?;
    mkdirat(root, directory, Mode::from_raw_mode(0o555)).step("make an empty directory")?;
    for name in HIDDEN {
        let path = format!("proc/{name}");
        let cover = || {
            let kind = match statat(root, &*path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            let empty = if kind == FileType::Directory { directory } else { file };
            let mount = copy(root, empty, false)?;
            sys::set_mount(&mount, bits(READ_ONLY | NO_SUID | NO_DEV | NO_EXEC), false)?;
            move_mount(&mount, "", root, &*path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        };
        cover().step(&format!("cover /{path}"))?;
    }
    // The mounts stay.
    unlinkat(root, file, AtFlags::empty())
        .and_then(|()| unlinkat(root, directory, AtFlags::REMOVEDIR))
        .step("remove what is empty")
}
