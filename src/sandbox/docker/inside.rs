//! What runs in a container: the helper, which is its PID 1, and the way to it.
//!
//! The helper starts commands, keeps their output, works on files and accepts connections for the
//! server's services. It runs as the sandbox's user and holds no secret. It is not dumpable, so no
//! process of that user can read or trace it, and the kernel lets no process inside kill PID 1. When
//! it ends, every process of the container ends.
//!
//! The server reaches it by `docker exec` of the same binary as the container's root, without any
//! capability, which passes bytes between its standard streams and the helper's socket
//! ([`connect`]). The socket is abstract: it needs no file, it is the container's own, since the
//! container has its own network namespace, and no other process can take its name as long as PID 1 lives.
//! The helper lets root alone in there ([`peer`]), which no command can become.

mod commands;
mod connect;
mod files;
mod peer;
mod ports;
mod reaper;
mod serve;
mod terminal;

use std::process::ExitCode;

use crate::sandbox::reach::Reach;

/// The first argument that makes the binary the helper; the second is what it is connected to.
pub const HELPER_COMMAND: &str = "__issuebox-docker-helper";

/// The first argument that makes the binary pass bytes between its standard streams and the helper.
pub const CONNECT_COMMAND: &str = "__issuebox-docker-connect";

/// What the helper writes to its standard output once it serves.
pub const READY: &str = "issuebox: ready";

/// The name of the helper's socket, without the leading NUL.
const SOCKET: &[u8] = b"issuebox-helper";

/// The workspace's place inside.
pub const WORKSPACE: &str = "/workspace";

/// The home directory inside.
pub const HOME: &str = "/home/agent";

/// The word for what a helper is connected to, as its argument.
pub const fn reach_word(reach: Reach) -> &'static str {
    match reach {
        Reach::Loopback => "loopback",
        Reach::Git => "git",
        Reach::Proxy => "proxy",
        Reach::Host => "host",
    }
}

/// Runs one of the two commands, if this process was started for it.
pub fn run_hidden_command() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let done = match arguments.next()?.as_str() {
        HELPER_COMMAND => {
            let word = arguments.next();
            let all = [Reach::Loopback, Reach::Git, Reach::Proxy, Reach::Host];
            let reach = all.into_iter().find(|reach| Some(reach_word(*reach)) == word.as_deref());
            serve::run(reach?)
        }
        CONNECT_COMMAND => connect::run(),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "issuebox: {error}");
            ExitCode::FAILURE
        }
    })
}
