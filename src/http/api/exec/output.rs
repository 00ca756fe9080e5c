//! A command's output: collected into one answer, or sent as events.

use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::ExecAnswer;
use crate::http::ending::Ending;
use crate::http::error::{ApiError, Code};
use crate::http::fields::Fields;
use crate::http::sse;
use crate::http::wire;
use crate::sandbox::{ExecEvent, Execution};
use crate::types::unfinished_len;

/// The encoding of bytes as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8; other bytes become U+FFFD.
    Utf8,
    /// Base64.
    Base64,
}

impl Encoding {
    /// Reads a field; default UTF-8.
    pub(super) fn read(fields: &mut Fields, name: &str) -> Result<Self, ApiError> {
        match fields.text(name)?.as_deref() {
            None | Some("utf-8") => Ok(Self::Utf8),
            Some("base64") => Ok(Self::Base64),
            Some(_) => Err(ApiError::field(name, "must be utf-8 or base64")),
        }
    }

    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Base64 => "base64",
        }
    }

    fn write(self, bytes: &[u8]) -> String {
        match self {
            Self::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
            Self::Base64 => BASE64.encode(bytes),
        }
    }
}

/// A piece of output, as an event.
#[derive(Serialize)]
struct OutputEvent<'a> {
    data: &'a str,
    encoding: &'static str,
}

/// The end, as an event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExitEvent {
    exit_code: i32,
    timed_out: bool,
    duration_ms: u64,
}

/// Collects the output of a command, up to `output_max` bytes of each stream.
pub(super) async fn gather(
    mut execution: Execution,
    encoding: Encoding,
    began: Instant,
    output_max: usize,
    mut ending: Ending,
) -> Result<ExecAnswer, ApiError> {
    let [mut stdout, mut stderr] = [(); 2].map(|()| Gathered::default());
    loop {
        let event = tokio::select! {
            biased;
            ended = ending.come() => return Err(ended.error()),
            event = execution.events.recv() => event.ok_or_else(went_away)?,
        };
        let (gathered, bytes) = match event {
            ExecEvent::Stdout(bytes) => (&mut stdout, bytes),
            ExecEvent::Stderr(bytes) => (&mut stderr, bytes),
            ExecEvent::Exit { code, timed_out } => {
                return Ok(ExecAnswer {
                    exit_code: code,
                    stdout: encoding.write(&stdout.kept),
                    stderr: encoding.write(&stderr.kept),
                    truncated: stdout.is_cut || stderr.is_cut,
                    timed_out,
                    duration_ms: millis_since(began),
                });
            }
        };
        gathered.add(&bytes, output_max, encoding);
    }
}

/// One stream of a command, up to a bound.
#[derive(Default)]
struct Gathered {
    kept: Vec<u8>,
    is_cut: bool,
}

impl Gathered {
    /// Adds as many bytes as have room, as text only whole characters.
    fn add(&mut self, bytes: &[u8], len_max: usize, encoding: Encoding) {
        if self.is_cut {
            return;
        }
        let room = bytes.len().min(len_max - self.kept.len());
        self.kept.extend_from_slice(&bytes[..room]);
        self.is_cut = room < bytes.len();
        if self.is_cut && encoding == Encoding::Utf8 {
            self.kept.truncate(self.kept.len() - unfinished_len(&self.kept));
        }
    }
}

/// Sends the output as events. The command ends with its caller's session.
pub(super) fn as_events(
    execution: Execution,
    encoding: Encoding,
    began: Instant,
    held: Arc<dyn Any + Send + Sync>,
    ending: Ending,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let (stdout, stderr) = (Vec::new(), Vec::new());
    let running = StreamedExec { execution, encoding, began, _held: held, ending, stdout, stderr };
    let rest = stream::unfold(Some(running), |running| async move {
        let mut running = running?;
        let (text, goes_on) = running.next().await;
        Some((Ok(Bytes::from(text)), goes_on.then_some(running)))
    });
    stream::once(async { Ok(sse::GREETING) }).chain(rest)
}

/// A command whose output is sent as events.
struct StreamedExec {
    execution: Execution,
    encoding: Encoding,
    began: Instant,
    /// Held until the command ends, so that the sandbox counts as active.
    _held: Arc<dyn Any + Send + Sync>,
    ending: Ending,
    /// The beginning of an incomplete character.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl StreamedExec {
    /// The next text of the stream, and whether there is more.
    async fn next(&mut self) -> (String, bool) {
        let heartbeat = Instant::now() + sse::HEARTBEAT;
        let event = tokio::select! {
            biased;
            ended = self.ending.come() => return (self.broken_off(&ended.error()), false),
            event = self.execution.events.recv() => event,
            () = sleep_until(heartbeat) => return (": still running\n\n".into(), true),
        };
        match event {
            Some(ExecEvent::Stdout(bytes)) => {
                (piece("stdout", self.encoding, &mut self.stdout, &bytes), true)
            }
            Some(ExecEvent::Stderr(bytes)) => {
                (piece("stderr", self.encoding, &mut self.stderr, &bytes), true)
            }
            Some(ExecEvent::Exit { code, timed_out }) => {
                let exited =
                    ExitEvent { exit_code: code, timed_out, duration_ms: millis_since(self.began) };
                let mut text = self.leftovers();
                text.push_str(&sse::event("exit", None, &wire::to_json(&exited)));
                (text, false)
            }
            None => (self.broken_off(&went_away()), false),
        }
    }

    /// An `error` event: the output ends before the command.
    fn broken_off(&mut self, error: &ApiError) -> String {
        let data = serde_json::json!({"code": error.code().as_str(), "message": error.message()});
        let mut text = self.leftovers();
        text.push_str(&sse::event("error", None, &data.to_string()));
        text
    }

    /// The incomplete characters at the end.
    fn leftovers(&mut self) -> String {
        let mut text = String::new();
        for (name, kept) in [("stdout", &mut self.stdout), ("stderr", &mut self.stderr)] {
            if !kept.is_empty() {
                let data = self.encoding.write(kept);
                text.push_str(&output(name, self.encoding, &data));
                kept.clear();
            }
        }
        text
    }
}

/// One piece of output. A piece can end inside a UTF-8 character: its beginning is kept for the
/// next piece, so that it does not become U+FFFD.
fn piece(name: &str, encoding: Encoding, kept: &mut Vec<u8>, bytes: &[u8]) -> String {
    if encoding == Encoding::Base64 {
        return output(name, encoding, &BASE64.encode(bytes));
    }
    kept.extend_from_slice(bytes);
    let whole = kept.len() - unfinished_len(kept);
    let data = String::from_utf8_lossy(&kept[..whole]).into_owned();
    kept.drain(..whole);
    if data.is_empty() { String::from(": \n\n") } else { output(name, encoding, &data) }
}

fn output(name: &str, encoding: Encoding, data: &str) -> String {
    sse::event(name, None, &wire::to_json(&OutputEvent { data, encoding: encoding.as_str() }))
}

fn millis_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The error of a sandbox that stopped while its command ran.
pub fn went_away() -> ApiError {
    ApiError::new(Code::NotRunning, "the sandbox stopped while the command ran")
        .hint("see its timeline: GET /v1/issues/{issueId}/events")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::ending::TestSession;
    use crate::http::ending::until_closed;
    use tokio::sync::{mpsc, watch};

    fn execution(events: Vec<ExecEvent>) -> Execution {
        let (tx, rx) = mpsc::channel(events.len().max(1));
        for event in events {
            tx.try_send(event).expect("there is room");
        }
        Execution { events: rx }
    }

    fn out(bytes: &'static [u8]) -> ExecEvent {
        ExecEvent::Stdout(Bytes::from_static(bytes))
    }

    const EXIT: ExecEvent = ExecEvent::Exit { code: 3, timed_out: false };

    fn endless() -> Ending {
        // The sender of the shutdown signal lives as long as the test.
        let (open, closing) = watch::channel(false);
        std::mem::forget(open);
        until_closed(closing)
    }

    async fn events_of(events: Vec<ExecEvent>, encoding: Encoding) -> String {
        let held = Arc::new(());
        let stream = as_events(execution(events), encoding, Instant::now(), held, endless());
        let pieces: Vec<_> = stream.collect().await;
        let bytes: Vec<u8> = pieces
            .into_iter()
            .flat_map(|piece| piece.unwrap_or_else(|never| match never {}))
            .collect();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[tokio::test]
    async fn output_is_gathered_up_to_its_bound() {
        let events =
            vec![out(b"abc"), ExecEvent::Stderr(Bytes::from_static(b"e")), out(b"def"), EXIT];
        let answer = gather(execution(events), Encoding::Utf8, Instant::now(), 4, endless()).await;
        let answer = answer.expect("it exited");
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("abcd", "e"));
        assert!(answer.truncated && answer.exit_code == 3);
    }

    #[tokio::test]
    async fn output_at_its_bound_ends_with_a_whole_character() {
        let gathered = async |pieces: &[&'static [u8]], encoding, max| {
            let events = pieces.iter().map(|piece| out(piece)).chain([EXIT]).collect();
            let answer = gather(execution(events), encoding, Instant::now(), max, endless()).await;
            let answer = answer.expect("it exited");
            (answer.stdout, answer.truncated)
        };
        let euros = "€€".as_bytes();
        for (max, expected) in [(6, "€€"), (5, "€"), (4, "€"), (3, "€"), (2, "")] {
            for pieces in [&[euros][..], &[&euros[..4], &euros[4..]]] {
                let text = gathered(pieces, Encoding::Utf8, max).await;
                assert_eq!(text, (expected.to_owned(), max < 6), "{max}");
            }
        }
        // Nothing comes behind what was left out.
        let text = gathered(&[&euros[..5], b"\xacx", b"y"], Encoding::Utf8, 5).await;
        assert_eq!(text, ("€".to_owned(), true));
        // A command may end inside a character, and bytes are bytes.
        assert_eq!(gathered(&[&euros[..4]], Encoding::Utf8, 9).await, ("€\u{fffd}".into(), false));
        assert_eq!(gathered(&[euros], Encoding::Base64, 4).await, ("4oKs4g==".into(), true));
        // An invalid byte is no reason to lose it.
        assert_eq!(gathered(&[b"a\xffbc"], Encoding::Utf8, 2).await, ("a\u{fffd}".into(), true));
    }

    #[tokio::test]
    async fn a_command_without_an_exit_is_an_error() {
        let lost = execution(vec![out(b"x")]);
        let error = gather(lost, Encoding::Utf8, Instant::now(), 9, endless()).await;
        assert_eq!(error.err().map(|error| error.code()), Some(Code::NotRunning));
        assert!(events_of(vec![out(b"x")], Encoding::Utf8).await.contains("event: error\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_ends_with_the_session_that_asked_for_it_and_with_the_server() {
        let session = TestSession::begin().await;
        let (close, closing) = watch::channel(false);
        let (tx, rx) = mpsc::channel(1);
        let (execution, began, held) = (Execution { events: rx }, Instant::now(), Arc::new(()));
        let ending = session.ending(closing.clone());
        let stream = as_events(execution, Encoding::Utf8, began, held, ending);
        session.end().await;
        // More output does not keep it up.
        let writes = async {
            while tx.send(out(b".")).await.is_ok() {
                tokio::time::sleep(sse::HEARTBEAT / 9).await;
            }
        };
        let ((), pieces) = tokio::time::timeout(sse::HEARTBEAT * 3, async {
            tokio::join!(writes, stream.map(Result::unwrap).collect::<Vec<Bytes>>())
        })
        .await
        .expect("it ends");
        let last = String::from_utf8_lossy(pieces.last().expect("an end"));
        assert!(last.starts_with("event: error") && last.contains("unauthorized"), "{last}");

        close.send_replace(true);
        let (_running, rx) = mpsc::channel(1);
        let ending = until_closed(closing);
        let answer = gather(Execution { events: rx }, Encoding::Utf8, began, 9, ending).await;
        assert_eq!(answer.err().map(|error| error.code()), Some(Code::ShuttingDown));
    }

    #[tokio::test]
    async fn characters_cut_between_pieces_stay_whole() {
        let text =
            events_of(vec![out(b"a\xc3"), out(b"\xa4b"), out(b"\xff"), EXIT], Encoding::Utf8).await;
        assert!(text.contains(r#"{"data":"a","encoding":"utf-8"}"#), "{text}");
        assert!(text.contains(r#"{"data":"äb","encoding":"utf-8"}"#), "{text}");
        assert!(text.contains("{\"data\":\"\u{fffd}\",\"encoding\":\"utf-8\"}"), "{text}");
        assert!(
            text.contains(r#"event: exit"#) && text.contains(r#"{"exitCode":3,"timedOut":false"#)
        );
    }

    #[tokio::test]
    async fn a_character_that_never_ends_is_not_lost() {
        let text = events_of(vec![out(b"\xe2\x82"), EXIT], Encoding::Utf8).await;
        assert!(text.contains('\u{fffd}'), "{text}");
        let text = events_of(vec![out(b"\xe2\x82"), EXIT], Encoding::Base64).await;
        assert!(text.contains(r#"{"data":"4oI=","encoding":"base64"}"#), "{text}");
    }
}
