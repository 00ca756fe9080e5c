//! The processes of a command: those in the session that it leads.
//!
//! A command is a session leader, and its children stay in its session, whatever process groups a
//! shell makes. A process that starts its own session is a daemon, and lives until the sandbox
//! stops.
//!
//! The leader may be reaped while its session is killed. Its number still means this session: the
//! kernel does not reuse it while a process has this session. When the session is empty, PID 1
//! reports the command's end and kills no more.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Most passes over the process table. Each kills every process that it sees; a session that still
/// escapes forks faster than it is killed, and ends with the sandbox.
const PASSES_MAX: usize = 200;

/// Kills every process of a session. Killed processes can't fork, so a pass without new processes
/// has seen all. The leader is killed by its number first: it may not have started its session
/// yet.
pub fn kill(leader: Pid) {
    let mut killed = HashSet::new();
    // The process may have ended by itself; the same below.
    let _ = kill_process(leader, Signal::KILL);
    for _ in 0..PASSES_MAX {
        let before = killed.len();
        for pid in members(leader) {
            let _ = kill_process(pid, Signal::KILL);
            killed.insert(pid);
        }
        if killed.len() == before {
            return;
        }
    }
}

/// Sends a signal to every process of a session.
pub fn signal(leader: Pid, signal: Signal) {
    for pid in members(leader) {
        // One that has ended meanwhile needs no signal.
        let _ = kill_process(pid, signal);
    }
}

/// Whether a process of the session still runs.
pub fn is_alive(leader: Pid) -> bool {
    !members(leader).is_empty()
}

/// The processes of a session that have not ended.
fn members(leader: Pid) -> Vec<Pid> {
    let Ok(table) = fs::read_dir("/proc") else { return Vec::new() };
    let leader = leader.as_raw_nonzero().get();
    table
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
            (living_session(&stat)? == leader).then(|| Pid::from_raw(pid))?
        })
        .collect()
}

/// The session in a line of `/proc/<pid>/stat`; `None` if the process has ended. The process
/// chooses its name, which may contain anything, so parsing begins after the last `)`.
fn living_session(stat: &[u8]) -> Option<i32> {
    let after_name = stat.iter().rposition(|b| *b == b')')? + 1;
    let mut fields = str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_not_forge_the_session() {
        assert_eq!(living_session(b"7 (sh) S 1 7 7 0 -1"), Some(7));
        assert_eq!(living_session(b"8 (a) S 1 9 9) R 1 8 5 0 -1"), Some(5));
        assert_eq!(living_session(b"9 (\xff\n) S 1 7 7 0"), Some(7));
        assert_eq!(living_session(b"9 (sh) Z 1 7 7 0"), None);
        assert_eq!(living_session(b"9 (sh"), None);
    }
}
