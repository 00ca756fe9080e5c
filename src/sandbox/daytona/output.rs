//! The output of a process: what a read of it says, and following it to its end.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::DaytonaProvider;
use super::failure::CallFailure;
use super::shell::Script;
use super::toolbox::Toolbox;
use crate::sandbox::{
    Offset, OutputStream, ProcessEvent, ProcessExit, ProcessId, Target, WorkError,
};

/// How often a read may fail in a row before the reader must attach again.
const FAILURES_MAX: u32 = 5;
/// The wait before a read that failed is tried again, in milliseconds.
const FAILURE_WAIT_MS: u64 = 500;

/// What one read of a process's output says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OutputRead {
    /// How much the process has written.
    pub next: u64,
    /// How it ended; `None` if it has not.
    pub exit: Option<ProcessExit>,
    /// Output from the position on that was asked for: position, stream, bytes.
    pieces: Vec<(u64, OutputStream, Bytes)>,
}

/// Why a read said nothing.
#[derive(Debug)]
pub(super) enum ReadFailure {
    /// There is no such process.
    NoProcess,
    /// The toolbox did not answer.
    Call(CallFailure),
}

impl OutputRead {
    /// Reads what the script `read` printed for a position.
    ///
    /// # Errors
    /// What cannot be understood.
    fn parse(printed: &str, from: u64) -> Result<Self, String> {
        let not_understood = || "a script in the sandbox printed what is not understood".to_owned();
        let mut lines = printed.lines().peekable();
        let head =
            lines.next().and_then(|line| line.strip_prefix("= ")).ok_or_else(not_understood)?;
        let mut fields = head.split(' ');
        let next = fields.next().and_then(|word| word.parse().ok()).ok_or_else(not_understood)?;
        let (code, timed_out) = (fields.nth(1), fields.next());
        let code = code.and_then(|word| word.parse().ok());
        let exit = code.map(|code| ProcessExit { code, timed_out: timed_out == Some("1") });
        let mut read = Self { next, exit, pieces: Vec::new() };
        while let Some(line) = lines.next() {
            let start: u64 = line
                .strip_prefix("@ ")
                .and_then(|word| word.parse().ok())
                .ok_or_else(not_understood)?;
            let index: Vec<&str> = lines.by_ref().take_while(|line| *line != ":").collect();
            let mut text = String::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("@ ")) {
                text.push_str(line.trim());
            }
            let bytes = BASE64_STANDARD.decode(text).map_err(|_| not_understood())?;
            if !read.add_segment(start, &index, bytes.into(), from) {
                break;
            }
        }
        Ok(read)
    }

    /// Adds the pieces of a segment; `false` if it has gone in the meantime, and what follows with it.
    fn add_segment(&mut self, start: u64, index: &[&str], mut bytes: Bytes, from: u64) -> bool {
        let mut at = start;
        for line in index {
            let Some((stream, end)) = line.split_once(' ') else { return false };
            let Ok(end) = end.parse::<u64>() else { return false };
            let stream = if stream == "1" { OutputStream::Stdout } else { OutputStream::Stderr };
            // The script leaves out what lies before the position.
            let first = at.max(from.min(end));
            at = end;
            let Ok(len) = usize::try_from(end.saturating_sub(first)) else { return false };
            if len > bytes.len() {
                return false;
            }
            let piece = bytes.split_to(len);
            match self.pieces.last_mut() {
                // Pieces that belong together are one.
                Some((begin, of, before))
                    if *of == stream
                        && *begin + before.len() as u64 == first
                        && before.len() + len <= 64 * 1024 =>
                {
                    *before = [&before[..], &piece].concat().into();
                }
                _ if len > 0 => self.pieces.push((first, stream, piece)),
                _ => {}
            }
        }
        true
    }
}

impl Toolbox {
    /// The output of a process from a position on; waits until there is some, or the end. `None`: it
    /// waited in vain.
    pub async fn read_output(
        &self,
        number: u64,
        from: u64,
        waiter: &str,
        waits: bool,
    ) -> Result<Option<OutputRead>, ReadFailure> {
        let (number, position) = (number.to_string(), from.to_string());
        let now = if waits { "" } else { "now" };
        let arguments = [number.as_str(), &position, waiter, now];
        let run = self.run(Script::Read, &arguments);
        let Some(printed) = run.await.map_err(ReadFailure::Call)? else { return Ok(None) };
        read_of(&printed, from)
    }

    /// Waits for the end of a process. `None`: in vain.
    pub async fn read_exit(
        &self,
        number: u64,
        waiter: &str,
    ) -> Result<Option<ProcessExit>, ReadFailure> {
        let number = number.to_string();
        let arguments = [number.as_str(), "-", waiter, ""];
        let run = self.run(Script::Read, &arguments);
        let Some(printed) = run.await.map_err(ReadFailure::Call)? else { return Ok(None) };
        Ok(read_of(&printed, 0)?.and_then(|read| read.exit))
    }
}

fn read_of(printed: &str, from: u64) -> Result<Option<OutputRead>, ReadFailure> {
    if printed.starts_with("!none") {
        return Err(ReadFailure::NoProcess);
    }
    let failed = |message| ReadFailure::Call(CallFailure::NoAnswer(message));
    OutputRead::parse(printed, from).map(Some).map_err(failed)
}

/// Passes a process's output on until its end, until the reader has gone, or until the sandbox has gone
/// down.
pub(super) async fn follow(
    provider: DaytonaProvider,
    toolbox: Toolbox,
    (target, id): (Target, ProcessId),
    (from, mut read): (Offset, OutputRead),
    reader: mpsc::Sender<ProcessEvent>,
) {
    let (mut at, mut failures) = (from.0, 0);
    let waiter = provider.ids.request_id();
    loop {
        for (start, stream, bytes) in std::mem::take(&mut read.pieces) {
            if start > at {
                let gap = ProcessEvent::Gap { from: Offset(at), to: Offset(start) };
                if reader.send(gap).await.is_err() {
                    return;
                }
            }
            at = start + bytes.len() as u64;
            let output = ProcessEvent::Output { from: Offset(start), stream, bytes };
            if reader.send(output).await.is_err() {
                return;
            }
        }
        if let Some(exit) = read.exit
            && at >= read.next
        {
            // An error means that the reader has gone.
            let _ = reader.send(ProcessEvent::Exit(exit)).await;
            provider.end_session(&toolbox, id.number).await;
            return;
        }
        let next = tokio::select! {
            biased;
            () = reader.closed() => return,
            next = toolbox.read_output(id.number, at, &waiter, true) => next,
        };
        match next {
            Ok(Some(next)) => (read, failures) = (next, 0),
            Ok(None) => failures = 0,
            Err(ReadFailure::NoProcess) => return,
            Err(ReadFailure::Call(failure)) => {
                failures += 1;
                let error = provider.work_error(&target, failure).await;
                if failures == FAILURES_MAX || error == WorkError::NotRunning {
                    tracing::debug!(%error, process = %id, "following a process broke off");
                    return;
                }
                let clock = &provider.clock;
                let wait = std::time::Duration::from_millis(FAILURE_WAIT_MS);
                clock.sleep_until(clock.now().after(wait)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(at: u64, stream: OutputStream, text: &str) -> (u64, OutputStream, Bytes) {
        (at, stream, Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn output_is_cut_at_its_streams_and_begins_at_the_position() {
        use OutputStream::{Stderr, Stdout};
        // `one`, `two` on the first stream, `err` on the second.
        let printed = "= 9 0 - 0\n@ 0\n1 3\n1 6\n2 9\n:\nb25l\ndHdvZXJy\n";
        let whole = OutputRead::parse(printed, 0).expect("understood");
        assert_eq!((whole.next, whole.exit), (9, None));
        assert_eq!(whole.pieces, [piece(0, Stdout, "onetwo"), piece(6, Stderr, "err")]);
        let printed = "= 9 0 137 1\n@ 0\n1 3\n1 6\n2 9\n:\nb2Vycg==\n@ 9\n2 10\n:\nIQ==\n";
        let rest = OutputRead::parse(printed, 5).expect("understood");
        assert_eq!(rest.exit, Some(ProcessExit { code: 137, timed_out: true }));
        assert_eq!(rest.pieces, [piece(5, Stdout, "o"), piece(6, Stderr, "err!")]);
    }

    #[test]
    fn a_segment_that_has_gone_ends_the_read_and_garbage_is_refused() {
        let printed = "= 12 6 - 0\n@ 6\n1 9\n:\n@ 9\n1 12\n:\ndHdv\n";
        let read = OutputRead::parse(printed, 6).expect("understood");
        assert_eq!(read.pieces, []);
        for garbage in ["", "ready", "= x", "= 1 0 - 0\nb25l", "= 3 0 - 0\n@ 0\n1 3\n:\n!!!!"] {
            assert!(OutputRead::parse(garbage, 0).is_err(), "{garbage:?}");
        }
    }
}
