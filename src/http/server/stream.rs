//! One connection's bytes, on their way from the socket to actix-http and back.
//!
//! One request at a time: the bytes after a request are held back until its answer is written.
//! actix-http alone would read up to 16 requests ahead, which no budget counts.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::LATE_HEADS_WAIT;
use super::connections::{Doing, EndStage, Registered};
use super::framing::{Framing, Unframed};
use crate::http::Feed;
use crate::http::budget::{Budget, Share};
use crate::http::metrics::CutOff;

/// Longest head whose memory is a part of what each connection costs, in bytes: actix-http reads
/// into a buffer of this size.
const FREE_HEAD_LEN: usize = 8 * 1024;

/// What all connections share.
#[derive(Debug)]
pub struct StreamRules {
    /// Longest head of a request, in bytes.
    pub head_len_max: usize,
    /// How long a head may take from its first byte on.
    pub head_time_max: Duration,
    /// How long the client's bytes are discarded after a refusal, so that it arrives.
    pub linger: Duration,
    /// The memory for heads.
    pub budget: Arc<Budget>,
    /// The memory for answers.
    pub answers: Arc<Budget>,
    /// Where what ended early is counted.
    pub feed: Arc<Feed>,
}

/// A connection whose requests are checked.
#[derive(Debug)]
pub struct RequestStream {
    stream: TcpStream,
    rules: Arc<StreamRules>,
    place: Registered,
    accepted_at: Instant,
    framing: Framing,
    /// What came with a request and belongs to the next one.
    ahead: BytesMut,
    /// Whether more may lie in the socket, without a notice of it to come.
    has_more: bool,
    /// Whether a part of an answer may wait for room in the socket.
    is_unflushed: bool,
    /// Whether a byte of an answer was written since the last head came.
    is_answered: bool,
    /// Whether a head has come whose answer has not been written whole.
    is_in_work: bool,
    /// The end of a head's time, while it has not ended.
    head_end: Option<Pin<Box<Sleep>>>,
    /// The memory of a head that came in parts, until its request is answered; and its length.
    head: Option<(Share, usize)>,
    refused: Option<Pin<Box<Sleep>>>,
}

impl RequestStream {
    /// A new connection.
    pub fn new(stream: TcpStream, place: Registered, rules: Arc<StreamRules>) -> Self {
        let framing = Framing::new(rules.head_len_max);
        rules.feed.metrics.connected(1);
        place.connection.counts_in(rules.answers.share(None));
        Self {
            stream,
            rules,
            place,
            accepted_at: Instant::now(),
            framing,
            ahead: BytesMut::new(),
            has_more: false,
            is_unflushed: false,
            is_answered: false,
            is_in_work: false,
            head_end: None,
            head: None,
            refused: None,
        }
    }

    /// Its registration.
    pub const fn place(&self) -> &Registered {
        &self.place
    }

    /// Whether a request was read whole and is not answered yet.
    fn awaits_answer(&self) -> bool {
        self.framing.is_between() && (self.place.connection.is_asked() || self.is_unflushed)
    }

    /// Reads what is there, at most to the end of a request.
    fn poll_request(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let heads = self.framing.heads();
        let start = buffer.filled().len();
        let passed = if self.ahead.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            let read = &buffer.filled()[start..];
            let passed = self.framing.pass(read);
            self.ahead.extend_from_slice(&read[passed.unwrap_or(0)..]);
            buffer.set_filled(start + passed.unwrap_or(0));
            passed
        } else {
            let len = self.ahead.len().min(buffer.remaining());
            let passed = self.framing.pass(&self.ahead[..len]);
            buffer.put_slice(&self.ahead[..passed.unwrap_or(0)]);
            self.ahead.advance(passed.unwrap_or(0));
            passed
        };
        if let Err(why) = passed {
            return self.refuse(why, context);
        }
        let len = buffer.filled().len() - start;
        self.note(heads, len)
    }

    /// Notes that bytes were read: what the connection does now, and the time and memory of a head.
    fn note(&mut self, heads: u64, len: usize) -> Poll<io::Result<()>> {
        let connection = &self.place.connection;
        if self.framing.heads() != heads {
            connection.asked();
            (self.is_in_work, self.is_answered) = (true, false);
        }
        let doing = match (self.framing.is_between(), connection.is_asked()) {
            (true, true) => Doing::Working,
            (true, false) => Doing::Idle,
            (false, _) if self.framing.is_upgraded() => Doing::Working,
            (false, true) => Doing::Receiving,
            (false, false) if self.framing.head_len().is_some() => Doing::Receiving,
            (false, false) => Doing::Idle,
        };
        self.place.does(doing, len);
        let Some(head_len) = self.framing.head_len() else {
            self.head_end = None;
            match &self.head {
                Some((share, of)) if *of > FREE_HEAD_LEN => share.is_whole(),
                Some(_) | None => self.head = None,
            }
            return Poll::Ready(Ok(()));
        };
        if self.head_end.is_none() {
            self.head_end = Some(Box::pin(sleep(self.rules.head_time_max)));
            self.head = None;
        }
        let address = connection.address();
        let share = || (self.rules.budget.share(address), 0);
        let (share, of) = self.head.get_or_insert_with(share);
        let added = head_len - std::mem::replace(of, head_len);
        match share.take(added) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(_) => self.cut_off(CutOff::HeadOverloaded, io::ErrorKind::OutOfMemory),
        }
    }

    /// Ends the connection.
    fn cut_off(&self, why: CutOff, kind: io::ErrorKind) -> Poll<io::Result<()>> {
        self.rules.feed.metrics.cut_off(why, 1);
        Poll::Ready(Err(kind.into()))
    }

    /// Whether the connection gave way to another one, or to what other clients do read.
    fn poll_given_way(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let connection = &self.place.connection;
        connection.wakes(context.waker());
        if connection.has_given_way() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        match connection.unread() {
            Some(share) if share.poll_given_way(context).is_ready() => {
                self.cut_off(CutOff::AnswerUnread, io::ErrorKind::ConnectionAborted)
            }
            Some(_) | None => Poll::Pending,
        }
    }

    /// Looks for the client's end while a request is being answered, so that the work for a client
    /// that is gone is ended.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_more = !self.ahead.is_empty();
        if self.has_more {
            return Poll::Pending;
        }
        let mut byte = [0];
        match ready!(self.stream.poll_peek(context, &mut ReadBuf::new(&mut byte)))? {
            0 => Poll::Ready(Ok(())),
            _ => {
                self.has_more = true;
                Poll::Pending
            }
        }
    }

    /// Whether the connection ends here, with nothing to read in the socket: with the server, or
    /// because a head takes too long or gave way to others.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_last = match self.place.stage() {
            EndStage::Open => false,
            EndStage::Draining => self.framing.is_between() && !self.is_fresh(),
            EndStage::Closing => self.framing.is_between() || self.framing.head_len().is_some(),
        };
        if is_last && self.is_empty() {
            // As if the client had closed it.
            return Poll::Ready(Ok(()));
        }
        let Some(end) = &mut self.head_end else { return Poll::Pending };
        if end.as_mut().poll(context).is_ready() {
            return self.cut_off(CutOff::HeadTooSlow, io::ErrorKind::TimedOut);
        }
        match &self.head {
            Some((share, _)) if share.poll_given_way(context).is_ready() => {
                self.cut_off(CutOff::HeadOverloaded, io::ErrorKind::OutOfMemory)
            }
            Some(_) | None => Poll::Pending,
        }
    }

    /// Whether it was just opened and its first request is still to come.
    fn is_fresh(&self) -> bool {
        self.framing.heads() == 0 && self.accepted_at.elapsed() < LATE_HEADS_WAIT
    }

    /// Whether nothing lies in the socket. The kernel is asked: tokio learns of new bytes only when it
    /// looks for events the next time.
    fn is_empty(&self) -> bool {
        let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(recv(&self.stream, &mut [0], look), Ok((1.., _)))
    }

    /// Refuses what came, and all that follows.
    fn refuse(&mut self, why: Unframed, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.rules.feed.metrics.cut_off(
            match why {
                Unframed::HeadTooLong => CutOff::HeadTooLong,
                Unframed::Malformed => CutOff::Malformed,
            },
            1,
        );
        self.place.does(Doing::Idle, 0);
        // An answer that has begun, or that waits for room, is not mixed with another.
        if !(self.is_unflushed || self.place.connection.is_asked() && self.is_answered) {
            // If there is no room for it, the client did not read earlier answers either.
            let _ = self.stream.try_write(refusal(why));
        }
        let _ = shutdown(&self.stream, Shutdown::Write);
        self.refused = Some(Box::pin(sleep_until(Instant::now() + self.rules.linger)));
        self.poll_refused(context)
    }

    /// Discards what the client still sends: a socket that is closed with unread bytes takes the
    /// refusal back.
    fn poll_refused(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let refused = || Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        if self.refused.as_mut().is_none_or(|end| end.as_mut().poll(context).is_ready()) {
            return refused();
        }
        let mut discarded = [0; 4096];
        loop {
            let mut discarded = ReadBuf::new(&mut discarded);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut discarded))?;
            if discarded.filled().is_empty() {
                return refused();
            }
        }
    }
}

impl Drop for RequestStream {
    fn drop(&mut self) {
        self.rules.feed.metrics.connected(-1);
    }
}

/// The answer to bytes that are no request.
const fn refusal(why: Unframed) -> &'static [u8] {
    match why {
        Unframed::HeadTooLong => {
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
              content-type: text/plain\r\ncontent-length: 46\r\n\r\n\
              the head of the request is longer than 32 KiB\n"
        }
        Unframed::Malformed => {
            b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\
              content-type: text/plain\r\ncontent-length: 59\r\n\r\n\
              it is unclear where the request ends (RFC 9112, section 6)\n"
        }
    }
}

impl AsyncRead for RequestStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(ended) = this.poll_given_way(context) {
            return Poll::Ready(ended);
        }
        if this.refused.is_some() {
            return this.poll_refused(context);
        }
        if this.awaits_answer() {
            return this.poll_gone(context);
        }
        match this.poll_request(context, buffer) {
            Poll::Pending if this.refused.is_none() => this.poll_end(context),
            read => read,
        }
    }
}

impl AsyncWrite for RequestStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.refused.is_some() {
            return Poll::Ready(Ok(bytes.len()));
        }
        if let Poll::Ready(Err(ended)) = this.poll_given_way(context) {
            return Poll::Ready(Err(ended));
        }
        (this.is_unflushed, this.is_answered) = (true, true);
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        if let (Poll::Ready(Ok(len)), Some(share)) = (&written, this.place.connection.unread()) {
            share.sent(*len, false);
        }
        this.place.does(if written.is_pending() { Doing::Blocked } else { Doing::Working }, 0);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // actix-http calls it when all that it had to write is written.
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        if std::mem::take(&mut this.is_unflushed)
            && let Some(share) = this.place.connection.unread()
        {
            share.sent(0, true);
        }
        let is_working = this.place.connection.is_asked() || this.framing.is_upgraded();
        if is_working || !std::mem::take(&mut this.is_in_work) {
            return Poll::Ready(Ok(()));
        }
        // The answer is written. What still comes of its request is discarded.
        this.place.does(Doing::Idle, 0);
        this.head = None;
        if this.framing.is_between() && (this.has_more || this.place.stage() != EndStage::Open) {
            context.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
