//! An eye on the simulated provider's directory that misses no object: the kernel notes each file
//! that comes and goes, in the order in which that happened, also between two looks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;
use serde_json::Value;

/// What was seen from the beginning to the end.
#[derive(Debug, Default)]
pub struct Seen {
    /// How many objects were made.
    pub made: usize,
    /// How many were gone before their file could be read: of these it is not known whose they
    /// were.
    pub unread: usize,
    /// Two objects that were there for one issue at one moment: the issue and their files.
    pub doubles: Vec<(String, BTreeSet<String>)>,
}

/// A watch over a directory of objects.
pub struct Eye {
    ends: Arc<AtomicBool>,
    watching: JoinHandle<Seen>,
}

impl Eye {
    /// Begins to watch a directory, and creates it if it is missing.
    pub fn on(dir: &Path) -> Self {
        std::fs::create_dir_all(dir).expect("made");
        let queue = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
        add_watch(&queue, dir, WatchFlags::MOVED_TO | WatchFlags::DELETE).expect("a directory");
        // What is there already is read before anybody goes on.
        let mut watched = Watched::in_dir(dir.to_owned());
        let ends = Arc::<AtomicBool>::default();
        let until = Arc::clone(&ends);
        let watching = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                watched.look(&queue);
            }
            // Events until the end of the watch are in the queue.
            watched.look(&queue);
            watched.seen
        });
        Self { ends, watching }
    }

    /// Ends the watch.
    pub fn end(self) -> Seen {
        self.ends.store(true, Ordering::Relaxed);
        self.watching.join().expect("it watched")
    }
}

/// The objects as of the last note that was read.
struct Watched {
    dir: PathBuf,
    /// Whose object a file was, for each that was ever seen: ids are never used again.
    owners: HashMap<String, String>,
    there: BTreeMap<String, BTreeSet<String>>,
    seen: Seen,
}

impl Watched {
    fn in_dir(dir: PathBuf) -> Self {
        let seen = Seen::default();
        let mut watched = Self { dir, owners: HashMap::new(), there: BTreeMap::new(), seen };
        for entry in std::fs::read_dir(&watched.dir).expect("a directory") {
            watched.came(&entry.expect("an entry").file_name().to_string_lossy());
        }
        watched
    }

    /// Takes in what happened, and waits a little where nothing did.
    fn look(&mut self, queue: &OwnedFd) {
        let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let mut ready = [PollFd::new(queue, PollFlags::IN)];
        match poll(&mut ready, Some(&pause)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("the notes can't be waited for: {error}"),
        }
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut notes = Reader::new(queue, &mut buffer);
        loop {
            match notes.next() {
                Ok(note) => {
                    let flags = note.events();
                    assert!(!flags.contains(ReadFlags::QUEUE_OVERFLOW), "a note was lost");
                    let Some(Ok(name)) = note.file_name().map(|name| name.to_str()) else {
                        continue;
                    };
                    if flags.contains(ReadFlags::DELETE) {
                        self.went(name);
                    } else {
                        self.came(name);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(error) => panic!("the notes can't be read: {error}"),
            }
        }
    }

    fn came(&mut self, name: &str) {
        if !name.ends_with(".json") {
            return;
        }
        if !self.owners.contains_key(name) {
            self.seen.made += 1;
            // A file is renamed to its place when it is whole, so what is there can be read.
            let Ok(file) = std::fs::read(self.dir.join(name)) else {
                self.seen.unread += 1;
                return;
            };
            let file: Value = serde_json::from_slice(&file).expect("whole JSON");
            let issue = file["labels"]["issuebox.issue"].as_str().expect("a label").to_owned();
            self.owners.insert(name.to_owned(), issue);
        }
        let issue = &self.owners[name];
        let there = self.there.entry(issue.clone()).or_default();
        if there.insert(name.to_owned()) && there.len() > 1 {
            self.seen.doubles.push((issue.clone(), there.clone()));
        }
    }

    fn went(&mut self, name: &str) {
        if let Some(there) = self.owners.get(name).and_then(|issue| self.there.get_mut(issue)) {
            there.remove(name);
        }
    }
}

#[test]
fn two_objects_of_one_issue_are_seen_also_when_one_is_gone_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let put = |id: &str, issue: &str| {
        let file = serde_json::json!({"labels": {"issuebox.issue": issue}}).to_string();
        let unfinished = dir.path().join(format!("{id}.unfinished"));
        std::fs::write(&unfinished, file).expect("written");
        std::fs::rename(unfinished, dir.path().join(format!("{id}.json"))).expect("renamed");
    };
    let remove = |id: &str| {
        std::fs::remove_file(dir.path().join(format!("{id}.json"))).expect("removed");
    };
    put("sim-0", "5");
    let eye = Eye::on(dir.path());
    put("sim-1", "6");
    remove("sim-1");
    put("sim-2", "6");
    put("sim-2", "6");
    remove("sim-0");
    put("sim-3", "5");
    let seen = eye.end();
    assert_eq!((seen.doubles, seen.made), (Vec::new(), 4));

    let eye = Eye::on(dir.path());
    put("sim-4", "5");
    remove("sim-3");
    let seen = eye.end();
    assert_eq!(seen.doubles.len(), 1, "{seen:?}");
    assert_eq!(seen.doubles[0].0, "5");
}
