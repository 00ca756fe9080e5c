//! An answer's body on its way: passed on at once, read in passing, and ended when it falls silent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

use super::super::ModelApi;
use super::super::refusal::ModelRefusal;
use super::open::OpenModelRequest;
use super::places::SandboxPlaces;

/// The body of an answer. Dropping it cancels the request at the model.
pub struct PassingAnswer {
    inner: Pin<Box<reqwest::Body>>,
    /// `None` for what costs nothing, and once it has ended.
    open: Option<OpenModelRequest>,
    api: ModelApi,
    is_stream: bool,
    idle: Duration,
    ends_at: Instant,
    silence: Pin<Box<Sleep>>,
    places: Arc<SandboxPlaces>,
    has_ended: bool,
    failure: Option<io::Error>,
    _place: OwnedSemaphorePermit,
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub struct AnswerTimes {
    /// Between two pieces of it.
    pub idle: Duration,
    /// In all.
    pub whole: Duration,
}

impl PassingAnswer {
    /// Passes this body on. `is_stream` is whether it has events, among which one of ours can be the
    /// last.
    pub fn new(
        inner: reqwest::Body,
        open: Option<OpenModelRequest>,
        api: ModelApi,
        is_stream: bool,
        times: AnswerTimes,
        (places, place): (Arc<SandboxPlaces>, OwnedSemaphorePermit),
    ) -> Self {
        let now = Instant::now();
        let ends_at = now + times.whole;
        let silence = Box::pin(sleep_until(ends_at.min(now + times.idle)));
        let (inner, idle) = (Box::pin(inner), times.idle);
        let (has_ended, failure, _place) = (false, None, place);
        Self {
            inner,
            open,
            api,
            is_stream,
            idle,
            ends_at,
            silence,
            places,
            has_ended,
            failure,
            _place,
        }
    }

    /// Ends it, and with it the request at the model.
    fn end(&mut self) {
        self.has_ended = true;
        self.inner = Box::pin(reqwest::Body::default());
        self.open = None;
    }

    /// What a silent answer ends with.
    fn fall_silent(&mut self) -> io::Result<Frame<Bytes>> {
        let words = format!("its answer stopped for {} s", self.idle.as_secs());
        let refusal = ModelRefusal::Away(words.clone());
        self.places.note_silence();
        if let Some(open) = &self.open {
            open.report(&refusal);
        }
        self.end();
        if self.is_stream {
            // The blank line ends what was cut in the middle.
            Ok(Frame::data(Bytes::from(format!("\n\n{}", refusal.event(self.api)))))
        } else {
            Err(io::Error::new(io::ErrorKind::TimedOut, words))
        }
    }
}

impl Body for PassingAnswer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if this.has_ended {
            return Poll::Ready(this.failure.take().map(Err));
        }
        let Poll::Ready(next) = this.inner.as_mut().poll_frame(context) else {
            ready!(this.silence.as_mut().poll(context));
            return Poll::Ready(Some(this.fall_silent()));
        };
        Poll::Ready(match next {
            Some(Ok(frame)) => {
                if let (Some(data), Some(open)) = (frame.data_ref(), &mut this.open) {
                    open.read(data);
                }
                let next_at = this.ends_at.min(Instant::now() + this.idle);
                this.silence.as_mut().reset(next_at);
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                this.end();
                this.failure = Some(io::Error::other(error));
                // What came before is written first: a failure ends the connection at once.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            None => {
                this.end();
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        (self.has_ended && self.failure.is_none())
            || (self.open.is_none() && !self.has_ended && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
