//! The one thread that writes.
//!
//! Everything that has queued up goes into one transaction, so that many writes share one sync to
//! disk: under load the transaction grows while the last one syncs. A refused write is undone
//! alone: if it has left a trace, the transaction is run again with a savepoint for each write.
//! Answers leave only after the COMMIT, which syncs. Where all chores of a transaction allow it
//! ([`LogSync::AfterAnswer`]) they leave before the sync, which follows at once.
//!
//! # Bounds
//! At most [`QUEUE_WRITES_MAX`] writes wait (more are answered `Overloaded` at once, nothing
//! stored), and at most [`BATCH_WRITES_MAX`] share a transaction.
//!
//! # What is accepted
//! Where the disk fails in the middle of a COMMIT, the write is answered `Failed` although its
//! pages may have reached the log, and the loss of the process at that moment could still bring
//! it back. It is whole then, and contradicts no answer: the caller knows only that it failed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::apply::{self, AccountNumbers, failed};
use super::checkpoints::Checkpoints;
use super::log_sync::{LogFile, LogSync};
use super::presence::Presence;
use super::trouble::Troubles;
use crate::store::{CommitError, Write};
use crate::types::Epoch;

/// Most writes that wait at any moment; some 2 KB each, so about 32 MB at worst.
pub(super) const QUEUE_WRITES_MAX: usize = 16_384;
/// Most writes in one transaction: past this the sync's share of the time is small already, and
/// the first in line would only wait longer.
const BATCH_WRITES_MAX: usize = 1_024;
/// How often the files are looked at while nothing is written.
const PRESENCE_PAUSE: Duration = Duration::from_secs(5);

/// How a piece of work ended: for a chore, with how many rows it changed.
type WriteResult = Result<usize, CommitError>;

/// What is to be written beside the steps of issues. It may be run twice, the first run undone.
pub(super) type Chore = dyn Fn(&Connection) -> WriteResult + Send;

/// What the writer is asked.
enum WriterTask {
    /// To make this durable. Boxed, since the queue's slots are made at once.
    Write(Box<Write>),
    /// To do this, durably.
    Chore(Box<Chore>, LogSync),
    /// To write something that means nothing, to see whether writing works.
    Probe,
}

struct Job {
    work: WriterTask,
    reply: oneshot::Sender<WriteResult>,
}

/// The way to the writer thread. Dropping it lets the thread finish what is queued, and waits.
#[derive(Debug)]
pub(super) struct StoreWriter {
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreWriter {
    /// Starts the thread, which takes the connection.
    pub(super) fn start(
        conn: Connection,
        checkpoints: Checkpoints,
        epoch: Epoch,
        (log, presence): (LogFile, Presence),
        troubles: Arc<Troubles>,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = sync_channel(QUEUE_WRITES_MAX);
        let accounts = AccountNumbers::default();
        let desk = WriterDesk { checkpoints, conn, log, epoch, accounts, presence, troubles };
        let thread =
            thread::Builder::new().name("store-writer".into()).spawn(move || desk.run(&jobs))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Queues a write; its place is taken when this returns.
    pub(super) fn write(
        &self,
        write: Write,
    ) -> impl Future<Output = Result<(), CommitError>> + Send + 'static {
        let written = self.queue(WriterTask::Write(Box::new(write)));
        async move { written.await.map(|_changed| ()) }
    }

    /// Queues a chore; says how many rows it changed.
    pub(super) fn chore(
        &self,
        chore: impl Fn(&Connection) -> WriteResult + Send + 'static,
    ) -> impl Future<Output = WriteResult> + Send + 'static {
        self.chore_synced(LogSync::BeforeAnswer, chore)
    }

    /// Queues a chore that says when it is synced.
    pub(super) fn chore_synced(
        &self,
        sync: LogSync,
        chore: impl Fn(&Connection) -> WriteResult + Send + 'static,
    ) -> impl Future<Output = WriteResult> + Send + 'static {
        self.queue(WriterTask::Chore(Box::new(chore), sync))
    }

    /// Queues a probe.
    pub(super) fn probe(&self) -> impl Future<Output = WriteResult> + Send + 'static {
        self.queue(WriterTask::Probe)
    }

    fn queue(&self, work: WriterTask) -> impl Future<Output = WriteResult> + Send + 'static {
        let (reply, verdict) = oneshot::channel();
        let queue = self.queue.as_ref().expect("the queue is taken only by drop");
        let queued = queue.try_send(Job { work, reply }).map_err(|refused| match refused {
            TrySendError::Full(_) => CommitError::Overloaded,
            TrySendError::Disconnected(_) => ended(),
        });
        async move {
            queued?;
            verdict.await.unwrap_or_else(|_| Err(ended()))
        }
    }
}

/// The thread is gone before the store is: it panicked.
fn ended() -> CommitError {
    CommitError::Failed("the store's writer has ended".into())
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the panic hook when it happened.
            let _ended = thread.join();
        }
    }
}

/// What the thread works with.
struct WriterDesk {
    /// Dropped first: the writer's connection is the last one.
    checkpoints: Checkpoints,
    conn: Connection,
    log: LogFile,
    epoch: Epoch,
    accounts: AccountNumbers,
    presence: Presence,
    troubles: Arc<Troubles>,
}

impl WriterDesk {
    fn run(mut self, jobs: &Receiver<Job>) {
        let mut batch = Vec::with_capacity(BATCH_WRITES_MAX);
        loop {
            match jobs.recv_timeout(PRESENCE_PAUSE) {
                Ok(first) => batch.push(first),
                Err(RecvTimeoutError::Timeout) => {
                    self.troubles.note_presence(&self.presence.check());
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            batch.extend(jobs.try_iter().take(BATCH_WRITES_MAX - 1));
            let sync = sync_of(&batch);
            let verdicts = self.transact_synced(&batch, sync);
            for (nth, job) in batch.drain(..).enumerate() {
                let verdict = match &verdicts {
                    Ok(each) => each[nth].clone(),
                    Err(all) => Err(all.clone()),
                };
                if let Err(error) = &verdict {
                    self.troubles.note_write(error);
                }
                // The caller may have stopped waiting; the write stands all the same.
                let _gone = job.reply.send(verdict);
            }
            if sync == LogSync::AfterAnswer
                && let Err(error) = self.log.sync()
            {
                // The next transaction syncs the log as a whole, and is refused if it cannot.
                tracing::error!(%error, "cannot sync the database's log after an answer");
            }
            self.checkpoints.committed();
        }
    }

    /// As [`Self::transact`], and says to SQLite whether it syncs.
    fn transact_synced(
        &mut self,
        batch: &[Job],
        sync: LogSync,
    ) -> Result<Vec<WriteResult>, CommitError> {
        if sync == LogSync::BeforeAnswer {
            return self.transact(batch);
        }
        sync.apply(&self.conn).map_err(failed)?;
        let verdicts = self.transact(batch);
        LogSync::BeforeAnswer.apply(&self.conn).map_err(failed)?;
        verdicts
    }

    /// Makes a batch durable: a verdict for each, or one for all if it was not committed.
    fn transact(&mut self, batch: &[Job]) -> Result<Vec<WriteResult>, CommitError> {
        // Savepoints take a third of the time, and nearly no refusal has anything to undo. So
        // they are used only if one does.
        match self.attempt(batch, Undo::Nothing) {
            Err(Stop::ToUndo) => self.attempt(batch, Undo::BySavepoint),
            other => other,
        }
        .map_err(|stop| match stop {
            Stop::Failed(error) => error,
            Stop::ToUndo => failed("a savepoint was needed where there was one"),
        })
    }

    /// Runs one transaction. What stops it leaves nothing of it.
    fn attempt(&mut self, batch: &[Job], undo: Undo) -> Result<Vec<WriteResult>, Stop> {
        apply::run(&self.conn, "BEGIN IMMEDIATE")?;
        let done = self.fill(batch, undo).and_then(|verdicts| {
            apply::run(&self.conn, "COMMIT")?;
            Ok(verdicts)
        });
        if done.is_err() {
            self.accounts.forget();
            // Where this fails the transaction is gone already, or the next BEGIN says so.
            let _undone = apply::run(&self.conn, "ROLLBACK");
        }
        done
    }

    fn fill(&mut self, batch: &[Job], undo: Undo) -> Result<Vec<WriteResult>, Stop> {
        let is_there = self.presence.check();
        self.troubles.note_presence(&is_there);
        is_there.map_err(failed)?;
        if apply::stored_epoch(&self.conn)? != self.epoch {
            return Err(CommitError::Fenced.into());
        }
        batch
            .iter()
            .map(|job| match undo {
                Undo::Nothing => self.apply_plainly(&job.work),
                Undo::BySavepoint => self.apply_undoably(&job.work),
            })
            .collect()
    }

    fn apply(&mut self, work: &WriterTask) -> WriteResult {
        match work {
            WriterTask::Write(write) => {
                apply::apply(&self.conn, &mut self.accounts, write).map(|()| 1)
            }
            WriterTask::Chore(chore, _) => chore(&self.conn),
            WriterTask::Probe => apply::probe(&self.conn).map(|()| 1),
        }
    }

    /// Applies what is refused, if at all, before it changed anything.
    fn apply_plainly(&mut self, work: &WriterTask) -> Result<WriteResult, Stop> {
        let changes = self.conn.total_changes();
        let verdict = self.apply(work);
        // A full or failing disk may have ended the whole transaction: what came after would
        // then be on its own.
        let left = || self.conn.total_changes() != changes || self.conn.is_autocommit();
        if verdict.is_err() && left() { Err(Stop::ToUndo) } else { Ok(verdict) }
    }

    /// Applies something whole or not at all.
    fn apply_undoably(&mut self, work: &WriterTask) -> Result<WriteResult, Stop> {
        apply::run(&self.conn, "SAVEPOINT one")?;
        let verdict = self.apply(work);
        if verdict.is_err() {
            self.accounts.forget();
            // Where the whole transaction was ended, this finds no savepoint and fails the batch.
            apply::run(&self.conn, "ROLLBACK TO one")?;
        }
        apply::run(&self.conn, "RELEASE one")?;
        Ok(verdict)
    }
}

/// When a transaction of these is synced: before its answers, unless each of them allows otherwise.
fn sync_of(batch: &[Job]) -> LogSync {
    let allows = |job: &Job| matches!(job.work, WriterTask::Chore(_, LogSync::AfterAnswer));
    if batch.iter().all(allows) { LogSync::AfterAnswer } else { LogSync::BeforeAnswer }
}

/// How a refused write of a transaction is undone.
#[derive(Clone, Copy)]
enum Undo {
    /// Not at all: a refusal must have left no trace.
    Nothing,
    /// By a savepoint that each write gets.
    BySavepoint,
}

/// Why a transaction was not committed.
enum Stop {
    /// A refused write has left something that only a savepoint could undo.
    ToUndo,
    /// It could not be carried out, or must not be.
    Failed(CommitError),
}

impl From<CommitError> for Stop {
    fn from(error: CommitError) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::super::{open, read};
    use super::*;
    use crate::issue::Issue;
    use crate::store::{DeliveryRow, DeliveryState};
    use crate::types::{AccountName, DeliveryId, HomeId, IssueId, Timestamp};

    fn desk(dir: &std::path::Path) -> WriterDesk {
        let opened = open::open(dir, false).expect("opens");
        WriterDesk {
            checkpoints: Checkpoints::start(&opened.path).expect("starts"),
            log: LogFile::open(&opened.path).expect("it is there"),
            conn: opened.writer,
            epoch: opened.epoch,
            accounts: AccountNumbers::default(),
            presence: Presence::of(&opened.path).expect("its files are there"),
            troubles: Arc::default(),
        }
    }

    fn job(guid: &str) -> Job {
        let delivery = DeliveryRow {
            account: AccountName::default_account(),
            id: DeliveryId::trusted(guid),
            received_at: Timestamp::from_unix_ms(0),
            recovered: false,
            event: "issues".into(),
            action: String::new(),
            home: None,
            applied: false,
            reason: guid.into(),
            state: DeliveryState::Done,
        };
        let write = Write { delivery: Some(delivery), ..Write::default() };
        Job { work: WriterTask::Write(Box::new(write)), reply: oneshot::channel().0 }
    }

    /// A chore that reports how its connection syncs: 1 for NORMAL, 2 for FULL.
    fn chore(sync: LogSync, synced: &Arc<AtomicI64>) -> Job {
        let synced = Arc::clone(synced);
        let look = move |conn: &Connection| {
            let how = conn.pragma_query_value(None, "synchronous", |row| row.get(0));
            synced.store(how.map_err(failed)?, Ordering::Relaxed);
            Ok(0)
        };
        Job { work: WriterTask::Chore(Box::new(look), sync), reply: oneshot::channel().0 }
    }

    #[test]
    fn a_transaction_is_synced_before_its_answers_unless_all_of_it_allows_otherwise() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut desk = desk(dir.path());
        let seen = Arc::new(AtomicI64::new(0));
        let mut how = |batch: &[Job]| {
            let verdicts = desk.transact_synced(batch, sync_of(batch));
            assert!(verdicts.is_ok(), "{verdicts:?}");
            seen.load(Ordering::Relaxed)
        };
        let after = || chore(LogSync::AfterAnswer, &seen);
        assert_eq!(how(&[after(), after()]), 1);
        assert_eq!(how(&[after(), job("durable")]), 2);
        assert_eq!(how(&[chore(LogSync::BeforeAnswer, &seen)]), 2, "the next one syncs again");
    }

    fn is_stored(desk: &WriterDesk, guid: &str) -> bool {
        read::delivery(&desk.conn, &DeliveryId::trusted(guid)).expect("reads").is_some()
    }

    #[test]
    fn a_failed_commit_fails_every_write_of_the_batch_and_no_later_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut desk = desk(dir.path());
        // A deferred foreign key that only the COMMIT finds broken.
        desk.conn
            .execute_batch(
                "PRAGMA foreign_keys = ON;
                 CREATE TEMP TABLE parent (id INTEGER PRIMARY KEY);
                 CREATE TEMP TABLE child (parent REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
                 CREATE TEMP TRIGGER unlucky AFTER INSERT ON main.delivery
                 WHEN NEW.reason = 'unlucky' BEGIN INSERT INTO child VALUES (1); END;",
            )
            .expect("sets the trap");
        let verdicts = desk.transact(&[job("before"), job("unlucky"), job("after")]);
        assert!(matches!(verdicts, Err(CommitError::Failed(_))), "{verdicts:?}");
        for guid in ["before", "unlucky", "after"] {
            assert!(!is_stored(&desk, guid), "{guid}");
        }
        assert_eq!(desk.transact(&[job("before")]), Ok(vec![Ok(1)]));
        assert!(is_stored(&desk, "before"));
    }

    /// A write that makes its account, with a delivery of this GUID.
    fn job_of_account(home: i64, guid: &str) -> Job {
        let job = job(guid);
        let WriterTask::Write(mut write) = job.work else { unreachable!("job() makes a write") };
        let (account, id) = (AccountName::trusted("new"), IssueId::trusted(home.to_string()));
        write.issue = Some(Issue { version: 1, ..Issue::new(HomeId(home), account, id) });
        Job { work: WriterTask::Write(write), ..job }
    }

    #[test]
    fn an_account_that_was_undone_is_made_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut desk = desk(dir.path());
        let account_of = |desk: &WriterDesk, home| {
            let issue = read::load(&desk.conn, HomeId(home)).expect("reads");
            issue.map(|issue| issue.account.to_string())
        };
        desk.conn
            .execute_batch(
                "CREATE TEMP TRIGGER unlucky AFTER INSERT ON main.issue
                 WHEN NEW.home = 1 BEGIN SELECT RAISE(ABORT, 'no luck'); END;",
            )
            .expect("sets the trap");
        // The first makes the account, the second makes the batch run again.
        let verdicts = desk.transact(&[job_of_account(20, "good"), job_of_account(1, "bad")]);
        assert_eq!(verdicts.expect("commits")[0], Ok(1));
        assert_eq!(account_of(&desk, 20).as_deref(), Some("new"));
        // After the second was undone by its savepoint.
        assert_eq!(desk.transact(&[job_of_account(21, "later")]), Ok(vec![Ok(1)]));
        assert_eq!(account_of(&desk, 21).as_deref(), Some("new"));
    }

    #[test]
    fn a_write_that_fails_inside_leaves_the_others_of_its_batch() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut desk = desk(dir.path());
        desk.conn
            .execute_batch(
                "CREATE TEMP TRIGGER unlucky AFTER INSERT ON main.delivery
                 WHEN NEW.reason = 'unlucky' BEGIN SELECT RAISE(ABORT, 'no luck'); END;",
            )
            .expect("sets the trap");
        let verdicts = desk.transact(&[job("before"), job("unlucky"), job("after")]);
        let failed = Err(CommitError::Failed("no luck".into()));
        assert_eq!(verdicts, Ok(vec![Ok(1), failed, Ok(1)]));
        let stored = ["before", "unlucky", "after"].map(|guid| is_stored(&desk, guid));
        assert_eq!(stored, [true, false, true]);
    }

    #[test]
    fn a_transaction_that_sqlite_ended_fails_the_whole_batch() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut desk = desk(dir.path());
        // What a full disk does: the statement fails and takes the transaction with it.
        desk.conn
            .execute_batch(
                "CREATE TEMP TRIGGER unlucky AFTER INSERT ON main.delivery
                 WHEN NEW.reason = 'unlucky' BEGIN SELECT RAISE(ROLLBACK, 'disk full'); END;",
            )
            .expect("sets the trap");
        let verdicts = desk.transact(&[job("before"), job("unlucky"), job("after")]);
        assert!(matches!(verdicts, Err(CommitError::Failed(_))), "{verdicts:?}");
        assert!(!is_stored(&desk, "before") && !is_stored(&desk, "after"));
        assert_eq!(desk.transact(&[job("after")]), Ok(vec![Ok(1)]));
    }
}
