//! The programs of the simulation. None of them is a process: what each does follows from its
//! arguments, its input, the time and signals, so it goes on after a restart of the server.

use std::time::Duration;

use crate::sandbox::TerminalRequest;

/// What a command does. The forms are those of the programs of these names on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// Anything else: writes its arguments to standard output and ends.
    Echo,
    /// `cat`: writes what it reads.
    Cat,
    /// `tee /dev/stderr`: writes what it reads to both outputs.
    Tee,
    /// `sleep SECONDS`.
    Sleep(Duration),
    /// `head -c BYTES /dev/zero`: writes so many zero bytes.
    Zeros(u64),
    /// `sh` or `bash` without a script. At a terminal it reads commands there; without one it reads its
    /// input to the end and runs nothing.
    Shell,
    /// A server on a port: `socat TCP-LISTEN:PORT,fork EXEC:cat`, or `python3 -m http.server PORT`.
    Server(u16, Serves),
}

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serves {
    /// Writes back what it reads.
    Echo,
    /// Answers each HTTP request with its first line.
    Http,
}

impl Program {
    /// The program that a command names.
    pub fn of(command: &[String]) -> Self {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["cat"] => Self::Cat,
            ["tee", "/dev/stderr"] => Self::Tee,
            ["sleep", seconds] => {
                let seconds = seconds.parse().ok().map(Duration::try_from_secs_f64);
                seconds.and_then(Result::ok).map_or(Self::Echo, Self::Sleep)
            }
            ["head", "-c", bytes, "/dev/zero"] => bytes.parse().map_or(Self::Echo, Self::Zeros),
            ["sh" | "bash"] | ["sh" | "bash", "-l" | "-i"] => Self::Shell,
            ["socat", listen, "EXEC:cat"] => {
                let port = listen.strip_prefix("TCP-LISTEN:");
                let port = port.and_then(|port| port.strip_suffix(",fork")?.parse().ok());
                port.map_or(Self::Echo, |port| Self::Server(port, Serves::Echo))
            }
            ["python3", "-m", "http.server", port] => {
                port.parse().map_or(Self::Echo, |port| Self::Server(port, Serves::Http))
            }
            _ if command == TerminalRequest::login_shell() => Self::Shell,
            _ => Self::Echo,
        }
    }

    /// What [`Program::Echo`] writes.
    pub fn echo(command: &[String]) -> String {
        format!("{}\n", command.get(1..).unwrap_or_default().join(" "))
    }
}
