//! The processes of all simulated objects: started, found again after a restart, and forgotten.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::process::{Found, SimProcess, broken, write_whole};
use crate::clock::Clock;
use crate::sandbox::{
    ENDED_KEPT, Offset, ProcessEvent, ProcessExit, ProcessId, ProcessOutput, ProcessSpec, Target,
    WorkError,
};
use crate::types::ExternalId;

/// The file beside the processes of an object that holds the next number.
const NEXT_FILE: &str = "next";

/// Events that wait for a reader, each of at most 64 KiB.
const EVENTS_LEN: usize = 4;

/// All processes.
pub(super) struct SimProcesses {
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    known: Mutex<KnownProcesses>,
}

type KnownProcesses = HashMap<(ExternalId, u64), Arc<SimProcess>>;

impl SimProcesses {
    /// The processes whose state is below a directory.
    pub fn below(dir: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self { clock, dir, known: Mutex::default() }
    }

    /// Where an object's workspace is.
    pub fn workspace(&self, object: &ExternalId) -> PathBuf {
        self.dir.join(object.as_str()).join("workspace")
    }

    fn processes(&self, object: &ExternalId) -> PathBuf {
        self.dir.join(object.as_str()).join("processes")
    }

    /// Starts a process.
    pub fn spawn(&self, target: &Target, spec: ProcessSpec) -> Result<ProcessId, WorkError> {
        let mut known = self.known();
        let start = || {
            let dir = self.processes(&target.external_id);
            fs::create_dir_all(&dir)?;
            let number = match fs::read_to_string(dir.join(NEXT_FILE)) {
                Ok(next) => next.parse().map_err(io::Error::other)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => 1,
                Err(error) => return Err(error),
            };
            // First, so that no number is ever given twice.
            write_whole(&dir.join(NEXT_FILE), (number + 1).to_string().as_bytes())?;
            let own = dir.join(number.to_string());
            fs::create_dir_all(&own)?;
            Ok((number, SimProcess::start(Arc::clone(&self.clock), own, spec)?))
        };
        let (number, process) = start().map_err(|error| broken(&error))?;
        known.insert((target.external_id.clone(), number), process);
        self.forget_oldest(&mut known, &target.external_id)?;
        Ok(ProcessId { sandbox: target.expected.clone(), number })
    }

    /// A process of an object.
    pub fn get(&self, target: &Target, id: &ProcessId) -> Result<Arc<SimProcess>, WorkError> {
        if id.sandbox != target.expected {
            return Err(WorkError::NoSuchProcess);
        }
        self.find(&mut self.known(), &target.external_id, id.number)
    }

    /// The newest process of an object with a tag.
    pub fn tagged(&self, target: &Target, tag: &str) -> Result<Option<ProcessId>, WorkError> {
        let mut known = self.known();
        let mut all =
            numbers(&self.processes(&target.external_id)).map_err(|error| broken(&error))?;
        all.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        for number in all {
            if self.find(&mut known, &target.external_id, number)?.has_tag(tag) {
                return Ok(Some(ProcessId { sandbox: target.expected.clone(), number }));
            }
        }
        Ok(None)
    }

    fn find(
        &self,
        known: &mut KnownProcesses,
        object: &ExternalId,
        number: u64,
    ) -> Result<Arc<SimProcess>, WorkError> {
        let key = (object.clone(), number);
        if let Some(process) = known.get(&key) {
            return Ok(Arc::clone(process));
        }
        let dir = self.processes(object).join(number.to_string());
        match SimProcess::reopen(Arc::clone(&self.clock), dir) {
            Ok(process) => {
                known.insert(key, Arc::clone(&process));
                Ok(process)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(WorkError::NoSuchProcess),
            Err(error) => Err(broken(&error)),
        }
    }

    /// The processes of an object that have not ended.
    pub fn running(&self, object: &ExternalId) -> Result<Vec<Arc<SimProcess>>, WorkError> {
        let mut known = self.known();
        let mut running = Vec::new();
        for number in numbers(&self.processes(object)).map_err(|error| broken(&error))? {
            let process = self.find(&mut known, object, number)?;
            if process.exit()?.is_none() {
                running.push(process);
            }
        }
        Ok(running)
    }

    /// Ends every process of an object that goes down.
    pub fn go_down(&self, object: &ExternalId) -> Result<(), WorkError> {
        let mut known = self.known();
        for number in numbers(&self.processes(object)).map_err(|error| broken(&error))? {
            self.find(&mut known, object, number)?.go_down()?;
        }
        Ok(())
    }

    /// Ends every process of an object and removes what it has on the disk.
    pub fn remove(&self, object: &ExternalId) -> Result<(), WorkError> {
        self.go_down(object)?;
        self.known().retain(|(of, _), _| of != object);
        match fs::remove_dir_all(self.dir.join(object.as_str())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(broken(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Forgets the processes that ended first, so that [`ENDED_KEPT`] are left.
    fn forget_oldest(
        &self,
        known: &mut KnownProcesses,
        object: &ExternalId,
    ) -> Result<(), WorkError> {
        let all = numbers(&self.processes(object)).map_err(|error| broken(&error))?;
        if all.len() <= ENDED_KEPT {
            return Ok(());
        }
        let mut ended = Vec::new();
        for number in all {
            if let Some((_, at)) = self.find(known, object, number)?.exit()? {
                ended.push((at, number));
            }
        }
        ended.sort_unstable();
        let surplus = ended.len().saturating_sub(ENDED_KEPT);
        for (_, number) in ended.into_iter().take(surplus) {
            if let Some(process) = known.remove(&(object.clone(), number)) {
                process.forget().map_err(|error| broken(&error))?;
            }
        }
        Ok(())
    }

    /// Follows a process from a position on.
    pub fn attach(
        &self,
        process: Arc<SimProcess>,
        from: Offset,
    ) -> Result<ProcessOutput, WorkError> {
        // A position behind the end is refused at once.
        drop(process.look(from)?);
        let (sender, events) = mpsc::channel(EVENTS_LEN);
        let clock = Arc::clone(&self.clock);
        tokio::spawn(async move {
            if let Err(error) = follow(&process, from, &sender, &*clock).await {
                tracing::warn!(%error, "following a simulated process broke off");
            }
        });
        Ok(ProcessOutput { events })
    }

    /// Writes to a process's input, once it reads it.
    pub async fn write_stdin(&self, process: &SimProcess, bytes: Bytes) -> Result<(), WorkError> {
        let mut changes = process.changes();
        while !process.write_stdin(&bytes)? {
            // It is held here, so it goes on telling.
            let _ = changes.changed().await;
        }
        Ok(())
    }

    /// Waits for a process's end.
    pub async fn wait(&self, process: &Arc<SimProcess>) -> Result<ProcessExit, WorkError> {
        let mut changes = process.changes();
        loop {
            let next = match process.end()? {
                Found::Ended(exit) => return Ok(exit),
                Found::Gone => return Err(WorkError::NotRunning),
                Found::Nothing(next) => next,
                Found::Event(..) => None,
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = until(next, &*self.clock) => {}
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, KnownProcesses> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes a process's output on until its end, or until the reader has gone.
async fn follow(
    process: &SimProcess,
    from: Offset,
    reader: &mpsc::Sender<ProcessEvent>,
    clock: &dyn Clock,
) -> Result<(), WorkError> {
    let (mut at, mut changes) = (from, process.changes());
    loop {
        changes.borrow_and_update();
        match process.look(at)? {
            Found::Event(event, next) => {
                if reader.send(event).await.is_err() {
                    return Ok(());
                }
                at = Offset(next);
                process.give(next)?;
            }
            Found::Ended(exit) => {
                // An error means that the reader has gone.
                let _ = reader.send(ProcessEvent::Exit(exit)).await;
                return Ok(());
            }
            Found::Gone => return Ok(()),
            Found::Nothing(next) => tokio::select! {
                biased;
                () = reader.closed() => return Ok(()),
                _ = changes.changed() => {}
                () = until(next, clock) => {}
            },
        }
    }
}

async fn until(at: Option<crate::types::Timestamp>, clock: &dyn Clock) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The numbers of an object's processes.
fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    Ok(numbers)
}
