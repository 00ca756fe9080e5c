//! Folds the write-ahead log back into the database while the writer goes on.
//!
//! SQLite's own checkpoint is part of the commit that makes the log too long, and everything that waits
//! to be written waits for it: tens of milliseconds for [`checkpoint_pages`]. This thread folds
//! most of them back before that, so that the writer's own checkpoint has few left and the log begins
//! again at its start. Only the writer begins it again, since there must be nothing left to fold back at
//! that moment.
//!
//! It changes nothing of what is durable: a page is synced in the log before it is written to the
//! database, and stays in the log until the database is synced.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, OpenFlags};

use super::open::{checkpoint_pages, connect};

/// When the thread folds back, in pages.
#[derive(Clone, Copy)]
struct FoldRules {
    /// It begins when so many are not folded back.
    pages_min: u32,
    /// When the log has so many, the rest is left to the writer: two checkpoints at once are refused.
    pages_max: u32,
}

impl FoldRules {
    fn of(conn: &Connection) -> rusqlite::Result<Self> {
        let eighth = checkpoint_pages(conn)? / 8;
        Ok(Self { pages_min: eighth, pages_max: eighth * 7 })
    }
}

/// The thread. Dropping it waits until it has ended, so that the writer's connection is the last one.
#[derive(Debug)]
pub(super) struct Checkpoints {
    committed: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Starts the thread for the database at `path`, with a connection of its own.
    pub(super) fn start(path: &Path) -> io::Result<Self> {
        let (committed, commits) = sync_channel(1);
        let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(io::Error::other)?;
        let rules = FoldRules::of(&conn).map_err(io::Error::other)?;
        let thread = thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || run(&conn, rules, &commits))?;
        Ok(Self { committed: Some(committed), thread: Some(thread) })
    }

    /// The log has become longer.
    pub(super) fn committed(&self) {
        if let Some(committed) = &self.committed {
            // Full: it will look anyway.
            let _noticed = committed.try_send(());
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        drop(self.committed.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the panic hook when it happened.
            let _ended = thread.join();
        }
    }
}

fn run(conn: &Connection, rules: FoldRules, commits: &Receiver<()>) {
    while commits.recv().is_ok() {
        let folded = log_of(conn).and_then(|log| {
            let is_due = log.pages - log.folded >= rules.pages_min && log.pages < rules.pages_max;
            if is_due { checkpoint(conn, "PASSIVE").map(drop) } else { Ok(()) }
        });
        if let Err(error) = folded {
            // The writer's own checkpoint, and its commits, meet the same.
            tracing::debug!(%error, "failed to fold the write-ahead log back in advance");
        }
    }
}

/// How long the write-ahead log is.
struct LogLen {
    /// Its pages.
    pages: u32,
    /// How many of them are in the database already.
    folded: u32,
}

fn log_of(conn: &Connection) -> rusqlite::Result<LogLen> {
    checkpoint(conn, "NOOP")
}

fn checkpoint(conn: &Connection, mode: &str) -> rusqlite::Result<LogLen> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    conn.prepare_cached(&sql)?.query_row([], |row| {
        // Both are -1 if there is no log.
        let pages = |column| row.get::<_, i64>(column).map(|pages| pages.try_into().unwrap_or(0));
        Ok(LogLen { pages: pages(1)?, folded: pages(2)? })
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::open;
    use super::*;

    #[test]
    fn a_long_log_is_folded_back_beside_the_writer() {
        let dir = tempfile::tempdir().expect("a directory");
        let opened = open::open(dir.path(), false).expect("opens");
        let conn = &opened.writer;
        let checkpoints = Checkpoints::start(&opened.path).expect("starts");
        conn.execute_batch("CREATE TABLE page (content BLOB)").expect("makes it");
        let pages_min = FoldRules::of(conn).expect("reads").pages_min;
        let write = |pages: u32| {
            let sql =
                "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
                       INSERT INTO page SELECT zeroblob(8000) FROM n";
            conn.execute(sql, [pages]).expect("writes");
        };
        write(10);
        checkpoints.committed();
        write(pages_min);
        checkpoints.committed();
        let began = Instant::now();
        loop {
            let log = log_of(conn).expect("reads");
            assert!(log.pages >= pages_min, "the writer has not begun again");
            if log.folded == log.pages {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{} of {}", log.folded, log.pages);
            thread::yield_now();
        }
        // All of it is in the database, so the next write begins the log again.
        write(1);
        assert!(log_of(conn).expect("reads").pages < pages_min);
        drop(checkpoints);
        let written: u32 =
            conn.query_row("SELECT count(*) FROM page", [], |row| row.get(0)).expect("reads");
        assert_eq!(written, 10 + pages_min + 1);
    }
}
