//! Short commands of ours in a sandbox: files of the agent's directory go in and out by them.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::sandbox::{ExecEvent, ExecRequest, Processes, Target};

/// The agent's own directory in every sandbox: in the workspace, so that it is kept and counted as that
/// is, and ignored by git.
pub const AGENT_DIR: &str = "/workspace/.issuebox";
/// The workspace in every sandbox.
pub const WORKSPACE: &str = "/workspace";

/// How long one of these commands may take.
const COMMAND_WAIT: Duration = Duration::from_secs(60);
/// How much of a complaint is kept, in bytes.
const WORDS_LEN_MAX: usize = 1_000;
/// How many bytes of input go in one piece.
const PIECE_LEN: usize = 32 * 1024;

/// A sandbox that is up.
#[derive(Clone)]
pub(crate) struct Inside {
    pub processes: Arc<dyn Processes>,
    pub target: Target,
}

impl Inside {
    /// Makes the agent's directory, which git does not see.
    pub async fn make_agent_dir(&self) -> Result<(), String> {
        let script = "umask 077; mkdir -p \"$0\" && cd \"$0\" && echo '*' > .gitignore";
        self.run(&["/bin/sh", "-c", script, AGENT_DIR], Bytes::new(), 0).await.map(drop)
    }

    /// Writes a file, with the directories above it.
    pub async fn write(&self, path: &str, content: Bytes) -> Result<(), String> {
        let script = "umask 077; mkdir -p \"${0%/*}\" && cat > \"$0\"";
        self.run(&["/bin/sh", "-c", script, path], content, 0).await.map(drop)
    }

    /// Reads a file of at most so many bytes; `None` if there is none.
    pub async fn read(&self, path: &str, len_max: usize) -> Result<Option<Bytes>, String> {
        let script = "[ -f \"$0\" ] || exit 3; exec cat \"$0\"";
        match self.output(&["/bin/sh", "-c", script, path], Bytes::new(), len_max).await? {
            (3, _, _) => Ok(None),
            (0, content, _) => Ok(Some(content)),
            (code, _, words) => Err(complaint(code, &words)),
        }
    }

    /// The regular files in directories so deep below one of the agent's directory whose names end so,
    /// relative to that.
    pub async fn find(
        &self,
        directory: &str,
        depth: usize,
        name_end: &str,
    ) -> Result<Vec<String>, String> {
        // The pattern is the script's own; what is looked for is given to it as data.
        let script = "cd \"$0\" 2>/dev/null || exit 0; d=$1; n=$2; p=$d; i=$3
            while [ \"$i\" -gt 0 ]; do p=\"$p/*\"; i=$((i-1)); done
            IFS=; for f in $p/*\"$n\"; do [ -f \"$f\" ] && printf '%s\\n' \"$f\"; done; exit 0";
        let depth = depth.to_string();
        let argv = ["/bin/sh", "-c", script, AGENT_DIR, directory, name_end, &depth];
        let (code, found, words) = self.output(&argv, Bytes::new(), 64 * 1024).await?;
        if code != 0 {
            return Err(complaint(code, &words));
        }
        Ok(String::from_utf8_lossy(&found).lines().map(str::to_owned).collect())
    }

    /// Whether there is such a directory in the workspace.
    pub async fn has_dir(&self, path: &str) -> Result<bool, String> {
        let argv = ["/bin/sh", "-c", "cd \"$0\" && [ -d \"$1\" ]", WORKSPACE, path];
        let (code, _, _) = self.output(&argv, Bytes::new(), 0).await?;
        Ok(code == 0)
    }

    /// Whether a file contains a text.
    pub async fn contains(&self, path: &str, text: &str) -> bool {
        let argv = ["/bin/grep", "-qF", "--", text, path];
        matches!(self.output(&argv, Bytes::new(), 0).await, Ok((0, _, _)))
    }

    /// Runs a command that is to succeed, and gives its output.
    async fn run(&self, argv: &[&str], input: Bytes, len_max: usize) -> Result<Bytes, String> {
        match self.output(argv, input, len_max).await? {
            (0, output, _) => Ok(output),
            (code, _, words) => Err(complaint(code, &words)),
        }
    }

    /// Runs a command: its exit code, at most `len_max` bytes of its output, and of its complaint.
    async fn output(
        &self,
        argv: &[&str],
        input: Bytes,
        len_max: usize,
    ) -> Result<(i32, Bytes, Bytes), String> {
        let (sender, stdin) = crate::sandbox::ExecInput::channel();
        let request = ExecRequest {
            command: argv.iter().map(|&word| word.to_owned()).collect(),
            cwd: Some("/".to_owned()),
            env: Vec::new(),
            stdin,
            timeout: Some(COMMAND_WAIT),
        };
        let execution = self.processes.exec(self.target.clone(), request).await;
        let mut events = execution.map_err(|error| error.to_string())?.events;
        let feed = async move {
            let mut rest = input;
            while !rest.is_empty() {
                let piece = rest.split_to(rest.len().min(PIECE_LEN));
                if sender.send(piece).await.is_err() {
                    return;
                }
            }
        };
        let read = async {
            let (mut output, mut words) = (BytesMut::new(), BytesMut::new());
            while let Some(event) = events.recv().await {
                match event {
                    ExecEvent::Stdout(bytes) => {
                        if output.len() + bytes.len() > len_max && len_max > 0 {
                            return Err(format!("it is larger than {len_max} bytes"));
                        }
                        output.extend_from_slice(&bytes);
                    }
                    ExecEvent::Stderr(bytes) => {
                        let room = WORDS_LEN_MAX - words.len().min(WORDS_LEN_MAX);
                        words.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    }
                    ExecEvent::Exit { code, .. } => {
                        return Ok((code, output.freeze(), words.freeze()));
                    }
                }
            }
            Err("the sandbox went down".to_owned())
        };
        let (result, ()) = tokio::join!(read, feed);
        result
    }
}

fn complaint(code: i32, words: &[u8]) -> String {
    let words = String::from_utf8_lossy(words);
    match words.trim() {
        "" => format!("a command of issuebox in the sandbox ended with exit code {code}"),
        words => crate::types::inert(words).into_owned(),
    }
}
