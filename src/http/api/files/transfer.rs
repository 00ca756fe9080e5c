//! Transfers the bytes of files from and to a provider.
//!
//! A write replaces a file only after its whole body arrived. A closed channel means the end of the
//! file to the provider. If a body ends early, is too slow or too large, or if its request or
//! session ends, the channel must end with an error instead: [`Upload`] reserves a slot for it.

use std::pin::pin;
use std::time::Duration;

use actix_web::error::PayloadError;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::http::body;
use crate::http::ending::Ending;
use crate::http::error::ApiError;
use crate::sandbox::{ChunkReceiver, FileContent};

/// Slowest upload after the first silence, in bytes a second.
const UPLOAD_PACE_MIN: u64 = 1024;
/// Most pieces of a file that wait for the provider.
const PIECES_MAX: usize = 8;

/// Streams pieces. The sandbox counts as active meanwhile, and the stream ends with an error at
/// shutdown or at the end of its caller's session.
pub fn under(
    pieces: impl Stream<Item = Result<Bytes, std::io::Error>>,
    at_work: impl Send + 'static,
    mut ending: Ending,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    let ended = Box::pin(async move { ending.come().await });
    let under_way = Some((Box::pin(pieces), ended, at_work));
    stream::unfold(under_way, |under_way| async move {
        let (mut pieces, mut ended, at_work) = under_way?;
        tokio::select! {
            biased;
            ended = &mut ended => Some((Err(std::io::Error::other(ended.message())), None)),
            piece = pieces.next() => Some((piece?, Some((pieces, ended, at_work)))),
        }
    })
}

/// The pieces of a file or of a range of it, up to its length when it was opened: a growing file is
/// cut, and a shrinking one ends early.
pub(super) fn pieces(content: FileContent) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    let len = content.range.end - content.range.start;
    stream::unfold((content.chunks, len), |(mut chunks, left)| async move {
        if left == 0 {
            return None;
        }
        let piece = match chunks.recv().await? {
            Ok(mut bytes) => {
                bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                Ok(bytes)
            }
            Err(why) => Err(std::io::Error::other(why)),
        };
        let left = piece.as_ref().map_or(0, |bytes| left - bytes.len() as u64);
        Some((piece, (chunks, left)))
    })
}

/// The sender of a file that is written.
pub(super) struct Upload {
    tx: mpsc::Sender<Result<Bytes, String>>,
    /// The reserved slot for an error.
    last_word: Option<mpsc::OwnedPermit<Result<Bytes, String>>>,
}

impl Upload {
    /// The sender, and the receiver for the provider.
    pub(super) fn begin() -> (Self, ChunkReceiver) {
        let (tx, rx) = mpsc::channel(PIECES_MAX);
        let last_word = tx.clone().try_reserve_owned().ok();
        (Self { tx, last_word }, rx)
    }

    /// Forwards a body piece by piece, until it is complete, the answer ends, or the provider stops
    /// reading.
    pub(super) async fn feed(
        mut self,
        mut body: impl Stream<Item = Result<Bytes, PayloadError>> + Unpin,
        len_max: u64,
        silence_max: Duration,
        mut ending: Ending,
    ) -> Result<(), ApiError> {
        let mut len = 0;
        let mut ended = pin!(ending.come());
        let began = Instant::now();
        loop {
            // A slow body keeps the workspace's file open, so it must keep a minimum pace, too.
            let paced = began + silence_max + Duration::from_secs(len / UPLOAD_PACE_MIN);
            let next = paced.min(Instant::now() + silence_max);
            let piece = tokio::select! {
                biased;
                ended = &mut ended => return Err(body::cut_short(ended.error())),
                // The provider's error says why.
                () = self.tx.closed() => return Ok(()),
                piece = timeout_at(next, body.next()) => piece,
            };
            let Some(piece) = piece.map_err(|_| body::too_slow())? else { break };
            let piece = piece.map_err(body::broken_off)?;
            len += piece.len() as u64;
            if len > len_max {
                return Err(body::too_large(len_max));
            }
            tokio::select! {
                biased;
                ended = &mut ended => return Err(body::cut_short(ended.error())),
                sent = self.tx.send(Ok(piece)) => if sent.is_err() {
                    return Ok(());
                },
            }
        }
        // Complete: the slot for an error is not needed.
        self.last_word = None;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(place) = self.last_word.take() {
            place.send(Err("the upload ended early".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use tokio::sync::watch;
    use tokio::time::timeout;

    use crate::http::ending::{TestSession, until_closed};
    use crate::http::error::Code;

    const SECOND: Duration = Duration::from_secs(1);

    /// An answer that never ends.
    fn endless() -> Ending {
        static CLOSING: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::channel(false).0);
        until_closed(CLOSING.subscribe())
    }

    async fn received(mut chunks: ChunkReceiver) -> Vec<Result<Bytes, String>> {
        let mut all = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            all.push(chunk);
        }
        all
    }

    fn body(
        parts: &[&'static str],
    ) -> impl Stream<Item = Result<Bytes, PayloadError>> + Unpin + use<> {
        stream::iter(parts.iter().map(|part| Ok(Bytes::from(*part))).collect::<Vec<_>>())
    }

    #[tokio::test]
    async fn a_whole_body_ends_the_file() {
        let (upload, chunks) = Upload::begin();
        let (fed, got) =
            tokio::join!(upload.feed(body(&["ab", "c"]), 3, SECOND, endless()), received(chunks));
        assert!(fed.is_ok());
        assert_eq!(got, [Ok(Bytes::from("ab")), Ok(Bytes::from("c"))]);
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_breaks_the_file_off() {
        let (upload, chunks) = Upload::begin();
        let (fed, got) =
            tokio::join!(upload.feed(body(&["ab", "cd"]), 3, SECOND, endless()), received(chunks));
        assert_eq!(fed.err().map(|error| error.code()), Some(Code::BodyTooLarge));
        assert!(got.last().is_some_and(Result::is_err), "{got:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_body_breaks_the_file_off() {
        let (upload, chunks) = Upload::begin();
        let silent = body(&["ab"]).chain(stream::pending());
        let (fed, got) = tokio::join!(upload.feed(silent, 3, SECOND, endless()), received(chunks));
        assert_eq!(fed.err().map(|error| error.code()), Some(Code::RequestTimeout));
        assert!(got.last().is_some_and(Result::is_err), "{got:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_breaks_the_file_off() {
        let (upload, chunks) = Upload::begin();
        let drips = stream::unfold((), |()| async {
            tokio::time::sleep(SECOND / 2).await;
            Some((Ok(Bytes::from_static(b"x")), ()))
        });
        let feeding = upload.feed(Box::pin(drips), u64::MAX, SECOND, endless());
        let (fed, got) = tokio::join!(feeding, received(chunks));
        assert_eq!(fed.err().map(|error| error.code()), Some(Code::RequestTimeout));
        assert!(got.last().is_some_and(Result::is_err), "{got:?}");
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_breaks_the_file_off_even_when_the_channel_is_full() {
        let (upload, chunks) = Upload::begin();
        let repeated = stream::repeat_with(|| Ok(Bytes::from_static(b"x")));
        let feeding = upload.feed(repeated, u64::MAX, SECOND, endless());
        assert!(timeout(Duration::from_millis(10), feeding).await.is_err(), "the channel is full");
        let got = received(chunks).await;
        assert_eq!(got.len(), PIECES_MAX);
        assert!(got.last().is_some_and(Result::is_err), "{got:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_ends_breaks_the_file_off_whether_the_body_or_the_file_is_waited_for() {
        for is_read in [true, false] {
            let session = TestSession::begin().await;
            let (_open, closing) = watch::channel(false);
            let (upload, chunks) = Upload::begin();
            let pieces = stream::repeat_with(|| Ok(Bytes::from_static(b"x")));
            let pieces = pieces.take(PIECES_MAX * 2).chain(stream::pending());
            let day = SECOND * 86_400;
            let feeding = upload.feed(pieces, u64::MAX, day, session.ending(closing));
            let (fed, got) = match is_read {
                true => {
                    let (fed, got, ()) = tokio::join!(feeding, received(chunks), session.end());
                    (fed, got)
                }
                false => {
                    let (fed, ()) = tokio::join!(feeding, session.end());
                    (fed, received(chunks).await)
                }
            };
            assert_eq!(fed.err().map(|error| error.code()), Some(Code::Unauthorized));
            assert!(got.last().is_some_and(Result::is_err), "{got:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_gives_up_does_not_wait_for_the_body() {
        let (upload, chunks) = Upload::begin();
        drop(chunks);
        let began = Instant::now();
        assert!(upload.feed(stream::pending(), 3, SECOND, endless()).await.is_ok());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_file_that_grows_is_cut_where_it_ended_when_opened() {
        let (tx, rx) = mpsc::channel(4);
        for piece in ["abc", "def"] {
            tx.try_send(Ok(Bytes::from(piece))).expect("there is room");
        }
        let all: Vec<_> = pieces(FileContent { size: 4, range: 0..4, chunks: rx }).collect().await;
        let bytes: Vec<u8> = all.into_iter().flat_map(|p| p.expect("no error")).collect();
        assert_eq!(bytes, b"abcd");
    }
}
