//! Sends one command's output to the log writer without blocking the command.
//!
//! The queue to the writer is bounded, in total and for each command, so that a command that floods
//! leaves room for others. A command with an empty queue always has room for a piece. Its start and
//! its end are never dropped, because lines need a command.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Begun, LogStream, Message};
use crate::sandbox::ExecEvent;

/// Most messages in the queue.
pub(super) const MESSAGES_MAX: usize = 1024;
/// Most pieces of output among them; the rest is for starts and ends.
const PIECES_MAX: usize = MESSAGES_MAX * 3 / 4;
/// Most bytes among them, besides one piece for each command.
pub(super) const BYTES_MAX: usize = 8 << 20;
/// One command may use at most this fraction of either.
const SHARE: usize = 8;

/// The size of the queue.
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

/// A piece's share of the queue; a drop returns it.
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

/// The queue to the writer.
#[derive(Clone)]
pub(super) struct RecorderDesk {
    pub tx: SyncSender<Message>,
    pub waiting: Arc<QueuedBytes>,
    /// Messages that must not be dropped when the queue is full; they follow what was in it then.
    pub last_words: Arc<Mutex<Vec<Message>>>,
}

/// Records one command; a drop records its end.
pub(super) struct Recorder {
    command: u64,
    /// `None` after the logs are closed.
    desk: Option<RecorderDesk>,
    /// Its start, until there was room for it.
    begun: Option<Begun>,
    own: Arc<QueuedBytes>,
    /// Bytes dropped since the last recorded piece.
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
            ExecEvent::Stdout(bytes) => (LogStream::Stdout, bytes),
            ExecEvent::Stderr(bytes) => (LogStream::Stderr, bytes),
            ExecEvent::Exit { code, timed_out } => {
                let why = if *timed_out { ", timed out" } else { "" };
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

    /// Records the start; returns whether it was queued.
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

    /// Records what was dropped; returns whether it was queued.
    fn admit(&mut self) -> bool {
        let (Some(desk), Some(lost)) = (&self.desk, self.lost()) else { return true };
        let is_sent = desk.tx.try_send(lost).is_ok();
        if is_sent {
            self.lost = 0;
        }
        is_sent
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
        let text = text.unwrap_or_else(|| "ended with its caller or its sandbox".to_owned());
        let begun = self.begun.take().map(|begun| Message::Begin { command, begun });
        let last = [begun, self.lost(), Some(Message::End { command, text })];
        // In this order: if one has no room, those after it must follow it.
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
