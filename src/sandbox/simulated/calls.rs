//! The log of every call, for checks from outside: `calls.jsonl`, one JSON object a line.
//!
//! A line is written when its call ends, by one appending write, so lines of concurrent calls
//! never mix. A call whose caller went away is written too, with the result `dropped`. The log
//! is not synced: it records the calls, and losing its end with the machine's power is
//! accepted. A line that can't be written is reported once a call and loses nothing else.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use crate::sandbox::{Object, ProviderError};
use crate::types::{ObjectName, Timestamp};

/// The log's name in the provider's directory.
pub(super) const FILE_NAME: &str = "calls.jsonl";

/// The open log.
#[derive(Debug)]
pub(super) struct CallLog {
    path: PathBuf,
    file: Mutex<File>,
}

impl CallLog {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(FILE_NAME);
        Ok(Self { file: Mutex::new(append_to(&path)?), path })
    }

    /// Goes on in a new file, after the old one was taken away.
    pub(super) fn reopen(&self) -> io::Result<()> {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = append_to(&self.path)?;
        Ok(())
    }

    /// Begins a call, which is written when it is finished or dropped.
    pub(super) fn begin(&self, verb: &'static str, at: Timestamp) -> LoggedCall<'_> {
        LoggedCall { log: self, verb, at, name: None, labels: Vec::new(), result: "dropped" }
    }

    fn write(&self, line: &[u8]) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line) {
            tracing::warn!(%error, path = %self.path.display(), "cannot write the log of simulated calls");
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// A call that is under way.
pub(super) struct LoggedCall<'a> {
    log: &'a CallLog,
    verb: &'static str,
    at: Timestamp,
    name: Option<ObjectName>,
    labels: Vec<(&'static str, String)>,
    result: &'static str,
}

impl LoggedCall<'_> {
    /// Says what the call is about.
    pub(super) fn about(
        &mut self,
        name: Option<&ObjectName>,
        labels: impl IntoIterator<Item = (&'static str, String)>,
    ) {
        self.name = name.cloned();
        self.labels = labels.into_iter().collect();
    }

    /// Says which object the call turned out to be about.
    pub(super) fn about_object(&mut self, object: &Object) {
        let labels = object.labels.iter().flat_map(|labels| labels.to_pairs());
        self.about(Some(&object.name), labels);
    }

    /// Ends the call with what it answers.
    pub(super) fn end<T>(mut self, answer: Result<T, ProviderError>) -> Result<T, ProviderError> {
        self.result = match &answer {
            Ok(_) => "ok",
            Err(ProviderError::Absent) => "absent",
            Err(ProviderError::Present(_)) => "present",
            Err(ProviderError::Refused(_)) => "refused",
            Err(ProviderError::Exhausted { .. }) => "exhausted",
            Err(ProviderError::Unavailable { .. }) => "unavailable",
            Err(ProviderError::Broken(_)) => "broken",
        };
        answer
    }

    /// Ends the call as one that was carried out and whose answer got lost.
    pub(super) fn lose(mut self) -> ProviderError {
        self.result = "lost";
        ProviderError::unavailable("the answer of the simulated provider was lost")
    }
}

impl Drop for LoggedCall<'_> {
    fn drop(&mut self) {
        let line = Line {
            at: self.at.to_string(),
            verb: self.verb,
            name: self.name.as_ref().map(ObjectName::as_str),
            labels: LabelMap(&self.labels),
            result: self.result,
        };
        let mut line = serde_json::to_vec(&line).expect("text and maps of text are always JSON");
        line.push(b'\n');
        self.log.write(&line);
    }
}

#[derive(Serialize)]
struct Line<'a> {
    at: String,
    verb: &'static str,
    name: Option<&'a str>,
    labels: LabelMap<'a>,
    result: &'static str,
}

/// Labels as a JSON object, in their fixed order.
pub(super) struct LabelMap<'a>(pub(super) &'a [(&'static str, String)]);

impl Serialize for LabelMap<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
