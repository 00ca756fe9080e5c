//! What tells the writer of one command, beside the command's work.
//!
//! Nothing here waits. What the writer has not come to is bounded, over all and for each command,
//! so that one that floods leaves room for the others, and however many flood, one of which nothing
//! waits has room for a piece; that it began and that it ended is never left out, or a command's
//! lines would be nobody's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Begun, Message, Stream};
use crate::sandbox::ExecEvent;

/// Messages that wait for the writer at most.
pub(super) const MESSAGES_MAX: usize = 1024;
/// Pieces of output among them at most: the rest is for what is told of commands.
const PIECES_MAX: usize = MESSAGES_MAX * 3 / 4;
/// Bytes of them at most, beside one piece for each command.
pub(super) const BYTES_MAX: usize = 8 << 20;
/// The part of all that one command may have of either.
const SHARE: usize = 8;

/// How much waits for the writer.
#[derive(Default)]
pub(super) struct QueuedBytes {
    pieces: AtomicUsize,
    bytes: AtomicUsize,
}

impl QueuedBytes {
    fn add(&self, len: usize) {
        self.pieces.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len, Ordering::Relaxed);
    }

    fn remove(&self, len: usize) {
        self.pieces.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(len, Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.pieces.load(Ordering::Relaxed) == 0
    }

    fn has_room(&self, len: usize, share: usize) -> bool {
        self.pieces.load(Ordering::Relaxed) < PIECES_MAX / share
            && self.bytes.load(Ordering::Relaxed) + len <= BYTES_MAX / share
    }
}

/// A piece's part of what waits, given back when it is taken or dropped.
pub(super) struct QueueShare {
    len: usize,
    all: Arc<QueuedBytes>,
    own: Arc<QueuedBytes>,
}

impl Drop for QueueShare {
    fn drop(&mut self) {
        self.all.remove(self.len);
        self.own.remove(self.len);
    }
}

/// The way to the writer.
#[derive(Clone)]
pub(super) struct RecorderDesk {
    pub tx: SyncSender<Message>,
    pub waiting: Arc<QueuedBytes>,
    /// What must not be left out where the queue has no room: behind what was in it then.
    pub last_words: Arc<Mutex<Vec<Message>>>,
}

/// Tells the writer of one command; its end, whatever ends it.
pub(super) struct Recorder {
    command: u64,
    /// `None` once the logs are closed.
    desk: Option<RecorderDesk>,
    /// Its beginning, until there was room for it.
    begun: Option<Begun>,
    own: Arc<QueuedBytes>,
    /// Bytes that were left out since the last that were not.
    lost: u64,
    ended: Option<String>,
}

impl Recorder {
    pub fn new(command: u64, desk: Option<RecorderDesk>, begun: Begun) -> Self {
        let begun = Some(begun);
        let mut recorder = Self { command, desk, begun, own: Arc::default(), lost: 0, ended: None };
        recorder.begin();
        recorder
    }

    pub fn take(&mut self, event: &ExecEvent) {
        let (stream, bytes) = match event {
            ExecEvent::Stdout(bytes) => (Stream::Stdout, bytes),
            ExecEvent::Stderr(bytes) => (Stream::Stderr, bytes),
            ExecEvent::Exit { code, timed_out } => {
                let why = if *timed_out { ", its time was up" } else { "" };
                self.ended = Some(format!("{code}{why}"));
                return;
            }
        };
        let Some(desk) = self.desk.clone() else { return };
        let (command, len) = (self.command, bytes.len());
        let all = &desk.waiting;
        let has_room =
            self.own.is_empty() || (all.has_room(len, 1) && self.own.has_room(len, SHARE));
        if !(has_room && self.begin() && self.admit()) {
            self.lost += len as u64;
            return;
        }
        all.add(len);
        self.own.add(len);
        let place = QueueShare { len, all: Arc::clone(all), own: Arc::clone(&self.own) };
        let piece = Message::Piece { command, stream, bytes: bytes.clone(), _place: place };
        if desk.tx.try_send(piece).is_err() {
            self.lost += len as u64;
        }
    }

    /// Tells that it began; whether that is told.
    fn begin(&mut self) -> bool {
        let (Some(desk), Some(begun)) = (&self.desk, self.begun.take()) else { return true };
        match desk.tx.try_send(Message::Begin { command: self.command, begun }) {
            Ok(()) => true,
            Err(error) => {
                if let Message::Begin { begun, .. } = message_of(error) {
                    self.begun = Some(begun);
                }
                false
            }
        }
    }

    /// Tells what was left out; whether that is told.
    fn admit(&mut self) -> bool {
        let (Some(desk), Some(lost)) = (&self.desk, self.lost()) else { return true };
        let is_told = desk.tx.try_send(lost).is_ok();
        if is_told {
            self.lost = 0;
        }
        is_told
    }

    fn lost(&self) -> Option<Message> {
        let (command, bytes) = (self.command, self.lost);
        (bytes > 0).then_some(Message::Lost { command, bytes })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let Some(desk) = self.desk.take() else { return };
        let (command, text) = (self.command, self.ended.take());
        let text = text.unwrap_or_else(|| "ended with its caller, or its sandbox".to_owned());
        let begun = self.begun.take().map(|begun| Message::Begin { command, begun });
        let last = [begun, self.lost(), Some(Message::End { command, text })];
        // In this order: once one of them had no room, the others follow it.
        let mut left = Vec::new();
        for message in last.into_iter().flatten() {
            if !left.is_empty() {
                left.push(message);
            } else if let Err(error) = desk.tx.try_send(message) {
                left.push(message_of(error));
            }
        }
        if !left.is_empty() {
            desk.last_words.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
        }
    }
}

fn message_of(error: std::sync::mpsc::TrySendError<Message>) -> Message {
    match error {
        std::sync::mpsc::TrySendError::Full(message)
        | std::sync::mpsc::TrySendError::Disconnected(message) => message,
    }
}
