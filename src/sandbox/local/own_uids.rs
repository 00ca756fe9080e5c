//! Which host uids and gids sandboxes have.
//!
//! The kernel counts much for a host user, so a sandbox with a host user of its own leaves its
//! neighbours theirs (`docs/counters.md`). Root becomes any user. An ordinary user may become those
//! that `/etc/subuid` and `/etc/subgid` give it (`subuid(5)`), by the programs `newuidmap` and
//! `newgidmap` ([`mapped`](super::inside)). A sandbox's uid and gid are the same number, so a number
//! must be in both files.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::inside::{MAPPED_COMMAND, mapping_program};
use super::{LocalConfig, LocalSettings};
use crate::sandbox::confined::remove;

/// The ids of root's sandboxes if `/etc/subuid` has none for root.
const OF_ROOT: Range<u32> = 2_000_000..3_000_000;

/// `own_uids`: whether each sandbox has a host uid of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnUids {
    /// If the server's user has a range of them.
    #[default]
    Auto,
    /// Always: without a range, sandboxes are refused.
    Required,
    /// Only if the server is root, which takes none of `/etc/subuid`.
    Off,
}

impl OwnUids {
    /// Reads the configuration's word.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "required" => Ok(Self::Required),
            "off" => Ok(Self::Off),
            _ => Err("must be \"auto\", \"required\" or \"off\"".to_owned()),
        }
    }
}

/// The ids that a server may give, or why it can give none.
pub type IdRanges = Result<Vec<Range<u32>>, String>;

/// Finds the ids for sandboxes of this server.
pub fn find(config: &LocalConfig) -> IdRanges {
    if geteuid().is_root() {
        return Ok(match (&config.host_ids, config.own_uids) {
            (Some(range), _) => vec![range.clone()],
            (None, OwnUids::Off) => vec![OF_ROOT],
            (None, OwnUids::Auto | OwnUids::Required) => {
                subordinate().unwrap_or_else(|_| vec![OF_ROOT])
            }
        });
    }
    if config.own_uids == OwnUids::Off {
        return Err("providers.local.own_uids is \"off\"".to_owned());
    }
    let ranges = subordinate()?;
    for name in ["newuidmap", "newgidmap"] {
        if mapping_program(name).is_none() {
            return Err(format!("{name} is not installed: install the package uidmap"));
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line == "NoNewPrivs:\t1") {
        return Err(
            "newuidmap needs a privilege that this process may not gain: start the server \
                    without NoNewPrivileges=yes"
                .to_owned(),
        );
    }
    let tried = ranges[0].start;
    match as_mapped(&config.launcher, tried, None) {
        Ok(()) => Ok(ranges),
        Err(error) => Err(format!("the host uid {tried} cannot be used: {error}")),
    }
}

/// Which uids sandboxes would have if this user ran the server, for people.
pub fn note(settings: LocalSettings) -> String {
    match find(&LocalConfig::with("", settings)) {
        Ok(ranges) => {
            let shown = |range: &Range<u32>| format!("{}-{}", range.start, range.end - 1);
            let shown: Vec<_> = ranges.iter().map(shown).collect();
            format!("host uids {}, one for each sandbox", shown.join(", "))
        }
        Err(why) => format!("sandboxes have this user's host uid: {why}"),
    }
}

/// The ranges of this process's user that it can use in its user namespace.
fn subordinate() -> IdRanges {
    let user = geteuid().as_raw();
    let name = name_of(user);
    let owners = [name.as_deref().unwrap_or_default(), &user.to_string()];
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let both =
        common(&ranges_of(&read("/etc/subuid"), owners), &ranges_of(&read("/etc/subgid"), owners));
    let mapped =
        common(&mapped_in(&read("/proc/self/uid_map")), &mapped_in(&read("/proc/self/gid_map")));
    let usable = common(&both, &mapped);
    if !usable.is_empty() {
        return Ok(usable);
    }
    let name = name.unwrap_or_else(|| user.to_string());
    Err(if both.is_empty() {
        format!(
            "/etc/subuid and /etc/subgid give user {name} no numbers in common: `usermod \
             --add-subuids 100000-165535 --add-subgids 100000-165535 {name}`, with numbers that \
             nothing else has"
        )
    } else {
        format!("the numbers of user {name} in /etc/subuid and /etc/subgid are not mapped here")
    })
}

/// A user's name, if `/etc/passwd` has it.
fn name_of(user: u32) -> Option<String> {
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    })
}

/// The ranges of a user, by name or number, in a file such as `/etc/subuid`.
fn ranges_of(text: &str, owners: [&str; 2]) -> Vec<Range<u32>> {
    let range = |line: &str| {
        let (owner, numbers) = line.trim().split_once(':')?;
        let (first, count) = numbers.split_once(':')?;
        let (first, count): (u32, u32) = (first.parse().ok()?, count.parse().ok()?);
        (!owner.is_empty() && owners.contains(&owner)).then(|| first..first.saturating_add(count))
    };
    text.lines().filter_map(range).collect()
}

/// What a file such as `/proc/self/uid_map` maps, by the inner numbers.
fn mapped_in(text: &str) -> Vec<Range<u32>> {
    let range = |line: &str| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (first, _, count) = (numbers.next()?.ok()?, numbers.next()?, numbers.next()?.ok()?);
        Some(first..first.saturating_add(count))
    };
    text.lines().filter_map(range).collect()
}

/// What two lists of ranges have in common.
fn common(some: &[Range<u32>], others: &[Range<u32>]) -> Vec<Range<u32>> {
    let both = |a: &Range<u32>, b: &Range<u32>| a.start.max(b.start)..a.end.min(b.end);
    let all = some.iter().flat_map(|a| others.iter().map(move |b| both(a, b)));
    all.filter(|range| !range.is_empty()).collect()
}

/// The ids of a provider's sandboxes. None is given to two of them.
pub struct HostIds {
    ranges: IdRanges,
    used: Mutex<HashSet<u32>>,
}

impl HostIds {
    /// None of these is in use yet.
    pub fn new(ranges: IdRanges) -> Self {
        Self { ranges, used: Mutex::default() }
    }

    /// Why new sandboxes have the server's user; `None` if each has its own.
    pub fn why_shared(&self) -> Option<&str> {
        self.ranges.as_ref().err().map(String::as_str)
    }

    /// Takes an unused id; `None` if sandboxes have the server's user. The search starts at a hash of
    /// the incarnation, so that two directories on one host rarely choose the same.
    pub fn take(&self, incarnation: &str) -> io::Result<Option<u32>> {
        let Ok(ranges) = &self.ranges else { return Ok(None) };
        let hash = incarnation
            .bytes()
            .fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
        let len = ranges.iter().map(Range::len).sum::<usize>().max(1);
        let first = usize::try_from(hash).unwrap_or(0) % len;
        let all = || ranges.iter().cloned().flatten();
        let server = [0, geteuid().as_raw(), getegid().as_raw()];
        let mut used = self.used();
        let mut turn = all().skip(first).chain(all().take(first));
        let id = turn.find(|id| !server.contains(id) && !used.contains(id)).ok_or_else(|| {
            io::Error::other(
                "every host uid of the server's range is in use; enlarge the range in /etc/subuid \
                 and /etc/subgid, or delete sandboxes",
            )
        })?;
        used.insert(id);
        Ok(Some(id))
    }

    /// Keeps an id from being given away: it is in use since before.
    pub fn keep(&self, id: Option<u32>) {
        self.used().extend(id);
    }

    /// Lets an id be given away again.
    pub fn release(&self, id: Option<u32>) {
        if let Some(id) = id {
            self.used().remove(&id);
        }
    }

    /// Why a sandbox that has this id cannot be started; `None` if it can.
    pub fn why_not_started(&self, id: Option<u32>) -> Option<String> {
        match (geteuid().is_root(), id, &self.ranges) {
            (true, Some(_), _) | (false, None, _) => None,
            (true, None, _) => Some(
                "the sandbox was made by a server of an ordinary user, and this one is root; run \
                 the server as the same user as before"
                    .to_owned(),
            ),
            (false, Some(id), Ok(ranges)) if ranges.iter().any(|range| range.contains(&id)) => None,
            (false, Some(id), ranges) => {
                let why = match ranges {
                    Ok(_) => "/etc/subuid and /etc/subgid do not give it to the server's user",
                    Err(why) => why,
                };
                Some(format!(
                    "the sandbox's files belong to the host uid {id}, which this server cannot use: \
                     {why}. If a server of root made it, run the server as root again"
                ))
            }
        }
    }

    /// Locks the set, also after a panic: it is consistent between statements.
    fn used(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The host uid that a directory's files belong to; `None` if that is the server's user or root's
/// server has every right on them anyway.
pub fn mapped_owner(directory: &OwnedFd, name: &str) -> Result<Option<u32>, Errno> {
    let owner = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_uid;
    Ok((!geteuid().is_root() && owner != geteuid().as_raw()).then_some(owner))
}

/// Removes the tree `name` in a directory, also if its files belong to a sandbox's host user.
///
/// # Errors
/// The system's; `NotFound` if there is none.
pub fn remove(program: &Path, directory: &OwnedFd, name: &str) -> io::Result<()> {
    let Some(owner) = mapped_owner(directory, name)? else {
        return Ok(remove::remove(directory, name.as_bytes())?);
    };
    match unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => as_mapped(program, owner, Some((directory, name))),
        removed => Ok(removed?),
    }
}

/// Has the helper become able to act for this host id, and then remove a tree.
fn as_mapped(program: &Path, id: u32, removes: Option<(&OwnedFd, &str)>) -> io::Result<()> {
    let mut command = Command::new(program);
    command.env_clear().arg(MAPPED_COMMAND).arg(id.to_string());
    match removes {
        Some((directory, name)) => command.arg(name).stdin(directory.try_clone()?),
        None => command.stdin(Stdio::null()),
    };
    let ended = command.stdout(Stdio::null()).output()?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(io::Error::other(said.trim().replace('\n', "; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_numbers_that_both_files_give_it_by_name_or_number() {
        let subuid = "# none\nroot:100000:65536\nagents:200000:10\n1001:300000:5\n\nagents:7\n\
                      agents:x:10\nagents2:1:9\n:5:5\n";
        let of = |owners| ranges_of(subuid, owners);
        assert_eq!(of(["agents", "1001"]), [200_000..200_010, 300_000..300_005]);
        assert_eq!(of(["", "1002"]), []);
        let subgid = ranges_of("agents:200004:100\nagents:300000:2", ["agents", "1001"]);
        let both = common(&of(["agents", "1001"]), &subgid);
        assert_eq!(both, [200_004..200_010, 300_000..300_002]);
        let here = mapped_in("         0       1000          1\n         1 200000 200005\n");
        assert_eq!(here, [0..1, 1..200_006]);
        let one = |from, to| vec![Range { start: from, end: to }];
        assert_eq!(common(&both, &here), one(200_004, 200_006));
        assert_eq!(mapped_in("0 0 4294967295"), one(0, u32::MAX));
    }

    #[test]
    fn no_id_is_given_twice_nor_one_that_was_in_use_before() {
        let ids = HostIds::new(Ok(vec![10..12, 20..22]));
        ids.keep(Some(21));
        let mut given: Vec<_> =
            (0..3).map(|turn| ids.take(&turn.to_string()).expect("one is free")).collect();
        assert!(ids.take("more").is_err());
        given.sort_unstable();
        assert_eq!(given, [Some(10), Some(11), Some(20)]);
        ids.release(Some(11));
        assert_eq!(ids.take("more").expect("free again"), Some(11));
        let shared = HostIds::new(Err("there is no range".into()));
        assert_eq!(
            (shared.take("a").expect("none"), shared.why_shared()),
            (None, Some("there is no range"))
        );
    }
}
