//! The session file of the stand-in, in the place and nearly the form of claude's.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::super::env::EnvVars;
use super::Flags;

/// A session, and the file in which it is kept.
#[derive(Debug)]
pub(super) struct SessionLog {
    id: String,
    file: File,
    messages: Vec<Value>,
    /// Held while this run goes on, so that another run in the session is seen.
    _lock: File,
}

pub(super) enum SessionError {
    Taken(String),
    Missing(String),
    Io(io::Error),
}

impl From<io::Error> for SessionError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl SessionLog {
    pub(super) fn open(flags: &Flags, env: &EnvVars) -> Result<Self, SessionError> {
        let dir = match env.get("CLAUDE_CONFIG_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => PathBuf::from(env.get("HOME").unwrap_or("/tmp")).join(".claude"),
        };
        let (id, path, messages) = match &flags.resume {
            Some(id) => {
                let path = find(&dir, id).ok_or_else(|| SessionError::Missing(id.clone()))?;
                (id.clone(), path.clone(), read_messages(&path)?)
            }
            None => {
                let id = flags.new.clone();
                let id = id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
                if find(&dir, &id).is_some() {
                    return Err(SessionError::Taken(id));
                }
                let cwd = std::env::current_dir()?.display().to_string();
                let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
                let folder = dir.join("projects").join(cwd.chars().map(plain).collect::<String>());
                fs::create_dir_all(&folder)?;
                let path = folder.join(format!("{id}.jsonl"));
                (id, path, Vec::new())
            }
        };
        let lock = note_overlap(&dir, &id)?;
        let file = File::options().append(true).create(true).open(path)?;
        let mut log = Self { id, file, messages, _lock: lock };
        log.close_calls()?;
        Ok(log)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// Adds a message to the session, on disk first.
    pub(super) fn add(&mut self, role: &str, content: &Value) -> io::Result<()> {
        let message = json!({ "role": role, "content": content });
        let line = json!({ "type": role, "sessionId": self.id, "message": message });
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.messages.push(message);
        Ok(())
    }

    /// A run that was killed can leave calls without results, which no model takes.
    fn close_calls(&mut self) -> io::Result<()> {
        let last = self.messages.last().filter(|message| message["role"] == "assistant");
        let blocks = last.and_then(|message| message["content"].as_array()).into_iter().flatten();
        let results: Vec<Value> = blocks
            .filter(|block| block["type"] == "tool_use")
            .map(|block| {
                json!({ "type": "tool_result", "tool_use_id": block["id"], "is_error": true,
                    "content": "The run was killed: the outcome is unknown." })
            })
            .collect();
        if results.is_empty() { Ok(()) } else { self.add("user", &json!(results)) }
    }
}

/// The file of a session, in the folder of any working directory.
fn find(dir: &Path, id: &str) -> Option<PathBuf> {
    let folders = fs::read_dir(dir.join("projects")).ok()?;
    let paths = folders.filter_map(|folder| Some(folder.ok()?.path().join(format!("{id}.jsonl"))));
    paths.into_iter().find(|path| path.is_file())
}

/// The messages of a session file. A line that was cut in a crash is left out.
fn read_messages(path: &Path) -> io::Result<Vec<Value>> {
    let text = fs::read(path)?;
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    Ok(lines.map(|mut line| line["message"].take()).filter(Value::is_object).collect())
}

/// Takes the lock of a session; if another run holds it, that is written down.
fn note_overlap(dir: &Path, id: &str) -> io::Result<File> {
    let append = || File::options().append(true).create(true).clone();
    let lock = append().open(dir.join(format!("stand-in-{id}.lock")))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut overlaps = append().open(dir.join("stand-in-overlaps"))?;
        writeln!(overlaps, "{id} {}", std::process::id())?;
    }
    Ok(lock)
}
