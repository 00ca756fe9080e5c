//! Scripts that are run in sandboxes: how they are put together, and how words are quoted in them.
//!
//! What Daytona's toolbox has no call for (signals, input, exact bytes, links, atomic writes) is done by
//! small POSIX scripts. Each command carries its script whole, so nothing of ours is installed
//! in a sandbox and each server brings the scripts of its own version.

use std::fmt::Write as _;

const COMMON: &str = include_str!("scripts/common.sh");
const RUN: &str = include_str!("scripts/run.sh");
const WAIT: &str = include_str!("scripts/wait.sh");
const READ: &str = include_str!("scripts/read.sh");
const SIGNAL: &str = include_str!("scripts/signal.sh");
const WRITE: &str = include_str!("scripts/write.sh");
const TAGGED: &str = include_str!("scripts/tagged.sh");
const PREPARE: &str = include_str!("scripts/prepare.sh");
const TERMINAL: &str = include_str!("scripts/terminal.sh");
const PATHS: &str = include_str!("scripts/paths.sh");
const FILES: &str = include_str!("scripts/files.sh");
const ARCHIVES: &str = include_str!("scripts/archives.sh");

/// The directory of ours in a sandbox, below the home of its user.
const BASE: &str = ".issuebox";

/// What a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    /// Runs a process to its end.
    Run,
    /// Waits until a process has started.
    Wait,
    /// Reads a process's output.
    Read,
    /// Sends a signal.
    Signal,
    /// Gives input to a process.
    Write,
    /// Finds a process by its tag.
    Tagged,
    /// Makes an object ready for work.
    Prepare,
    /// Works on terminals.
    Terminal,
    /// Works on files.
    Files,
    /// Walks through directories and unpacks archives.
    Archives,
}

impl Script {
    const fn text(self) -> &'static str {
        match self {
            Self::Run => RUN,
            Self::Wait => WAIT,
            Self::Read => READ,
            Self::Signal => SIGNAL,
            Self::Write => WRITE,
            Self::Tagged => TAGGED,
            Self::Prepare => PREPARE,
            Self::Terminal => TERMINAL,
            Self::Files => FILES,
            Self::Archives => ARCHIVES,
        }
    }

    /// What the script needs beside what all have.
    const fn helpers(self) -> &'static str {
        match self {
            Self::Files | Self::Archives => PATHS,
            Self::Run
            | Self::Wait
            | Self::Read
            | Self::Signal
            | Self::Write
            | Self::Tagged
            | Self::Prepare
            | Self::Terminal => "",
        }
    }

    /// The command that runs the script with arguments. At its end it prints a line with a dot,
    /// unless it runs a process.
    pub fn command(self, workspace: &str, arguments: &[&str]) -> String {
        let lines = COMMON.lines().chain(self.helpers().lines()).chain(self.text().lines());
        let code: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
        let (set, code) = (format!("base={BASE} work={}", quoted(workspace)), code.join("\n"));
        let whole = match self {
            Self::Run => format!("{set}\n{code}"),
            Self::Wait
            | Self::Read
            | Self::Signal
            | Self::Write
            | Self::Tagged
            | Self::Prepare
            | Self::Terminal
            | Self::Files
            | Self::Archives => {
                format!("(\n{set}\n{code}\n)\necho .")
            }
        };
        let mut command = format!("sh -c {} sh", quoted(&whole));
        for argument in arguments {
            command.push(' ');
            command.push_str(&quoted(argument));
        }
        command
    }
}

/// A word that a shell reads as it is.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A path as `printf %b` reads it: ASCII, whatever bytes are in it.
pub(super) fn escaped(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                text.push(char::from(*byte));
            }
            // Writing to a text never fails.
            other => drop(write!(text, "\\0{other:03o}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What a shell prints.
    fn printed(script: &str) -> Vec<u8> {
        let ran = Command::new("sh").args(["-c", script]).output().expect("a shell");
        assert!(ran.status.success(), "{script}: {ran:?}");
        ran.stdout
    }

    #[test]
    fn a_shell_reads_quoted_words_and_escaped_paths_as_they_are() {
        for word in ["", "a b", "it's", "'", "''", "$HOME `id` \\ \"", "two\nlines\n", "-n"] {
            let script = format!("printf %s {}", quoted(word));
            assert_eq!(printed(&script), word.as_bytes());
        }
        let every: Vec<u8> = (1..=255).collect();
        let script = format!("printf %b '{}'", escaped(&every));
        assert_eq!(printed(&script), every);
    }

    #[test]
    fn every_script_is_one_that_a_shell_can_read() {
        use Script::{Archives, Files, Prepare, Read, Run, Signal, Tagged, Terminal, Wait, Write};
        let all = [Run, Wait, Read, Signal, Write, Tagged, Prepare, Terminal, Files, Archives];
        for script in all {
            let command = script.command("it's/work", &["it's", "x"]);
            let checked = Command::new("sh").args(["-n", "-c", script.text()]).output();
            assert!(checked.expect("a shell").status.success(), "{script:?}");
            assert!(command.ends_with(r"'it'\''s' 'x'"), "{command}");
        }
    }
}
