//! Which processes belong to a command: those in the session that it leads.
//!
//! A command is a session leader, so its children stay in its session whatever process groups a
//! shell makes, unless they ask for a session of their own; who does that is a daemon, and lives
//! until the sandbox stops.
//!
//! A leader may have been reaped while its session is killed. Its number means this session all the
//! same: the kernel gives it to no other process while it is the session of any. Once nothing of the
//! session is left PID 1 answers for the command, and kills it no more.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Most passes over the process table. Each kills everything it sees; a session that still
/// escapes is forking faster than it is killed, and ends with the sandbox.
const PASSES_MAX: usize = 200;

/// Kills every process of a session. Who has been killed can't fork any more, so a pass that sees
/// nobody new has seen all. The leader is killed by its number first: it may be on its way still,
/// and not yet in a session of its own.
pub fn kill(leader: Pid) {
    let mut killed = HashSet::new();
    // One that has ended by itself meanwhile is what is wanted; so below.
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

/// Whether a process of the session has not ended yet.
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

/// The session in a line of `/proc/<pid>/stat`; `None` where the process has ended. The name in
/// it is the process's own choice and may hold anything, so reading begins after its last `)`.
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
