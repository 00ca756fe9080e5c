//! Which files of a directory were changed, read on demand.
//!
//! On Linux the kernel queues a note of each change as part of the change itself (inotify), so
//! asking costs one system call and misses nothing that happened before. Elsewhere, and where the
//! kernel gives no queue, every answer is "anything may have".

use std::path::Path;

/// What happened since the last question.
pub(super) enum DirectoryChanges {
    /// These names were touched, in order; one may appear more than once.
    Names(Vec<TouchedName>),
    /// Anything may have happened.
    Any,
}

/// One touched name.
pub(super) struct TouchedName {
    pub(super) name: String,
    /// Whether a file was renamed to it, as every change of ours does.
    pub(super) renamed_to: bool,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::mem::MaybeUninit;

    use rustix::fd::OwnedFd;
    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
    use rustix::io::Errno;

    use super::{DirectoryChanges, Path, TouchedName};

    /// Room for what the kernel hands over at once, in bytes; a note takes 16 and the name.
    const BUFFER_BYTES: usize = 16 * 1024;

    /// A watched directory.
    #[derive(Debug)]
    pub(in super::super) struct Watch {
        queue: Option<OwnedFd>,
    }

    impl Watch {
        pub(in super::super) fn on(dir: &Path) -> Self {
            let queue = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).and_then(|queue| {
                let of_interest = WatchFlags::CREATE
                    | WatchFlags::CLOSE_WRITE
                    | WatchFlags::MOVED_TO
                    | WatchFlags::MOVED_FROM
                    | WatchFlags::DELETE
                    | WatchFlags::MOVE_SELF
                    | WatchFlags::ONLYDIR;
                add_watch(&queue, dir, of_interest)?;
                Ok(queue)
            });
            Self { queue: queue.ok() }
        }

        pub(in super::super) fn changes(&mut self) -> DirectoryChanges {
            let Some(queue) = &self.queue else { return DirectoryChanges::Any };
            let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
            let mut notes = Reader::new(queue, &mut buffer);
            let (mut names, mut any, mut gone) = (Vec::new(), false, false);
            loop {
                match notes.next() {
                    Ok(note) => {
                        let flags = note.events();
                        any |= flags.contains(ReadFlags::QUEUE_OVERFLOW);
                        gone |= flags.intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF);
                        if let Some(Ok(name)) = note.file_name().map(|name| name.to_str()) {
                            let renamed_to = flags.contains(ReadFlags::MOVED_TO);
                            names.push(TouchedName { name: name.to_owned(), renamed_to });
                        }
                    }
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(_) => {
                        gone = true;
                        break;
                    }
                }
            }
            if gone {
                // The directory itself was taken away; another of its name is not watched.
                self.queue = None;
            }
            if any || gone { DirectoryChanges::Any } else { DirectoryChanges::Names(names) }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::{DirectoryChanges, Path};

    /// A directory that can't be watched.
    #[derive(Debug)]
    pub(in super::super) struct Watch;

    impl Watch {
        pub(in super::super) fn on(_dir: &Path) -> Self {
            Self
        }

        pub(in super::super) fn changes(&mut self) -> DirectoryChanges {
            DirectoryChanges::Any
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::Watch;
#[cfg(target_os = "linux")]
pub(super) use linux::Watch;
