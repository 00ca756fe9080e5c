//! Where each request on a connection begins and ends, checked before actix-http parses it.
//!
//! actix-http 3.20 takes a line feed alone after the last chunk, or in a trailer, for the beginning
//! of another trailer, and with it the whole next request (CVE-2026-134342). So each byte is read
//! here first, by the grammar of RFC 9112: what this lets pass has one meaning. A head's own syntax
//! is left to actix-http, which ends a connection with the first head that it does not understand.

/// Longest line of a head that says how the request is framed, in bytes; clients need some 30.
const FRAMING_LINE_MAX: usize = 256;
/// Longest chunk header with its extensions, in bytes.
const CHUNK_HEAD_MAX: usize = 1024;
/// Longest trailer section of a chunked body, in bytes.
const TRAILER_LEN_MAX: usize = 8 * 1024;

/// Why bytes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unframed {
    /// The head is longer than allowed.
    HeadTooLong,
    /// The head or the chunks break the grammar.
    Malformed,
}

/// The position in a connection's requests.
#[derive(Debug)]
pub struct Framing {
    head_len_max: usize,
    /// How many heads have come.
    heads: u64,
    at: At,
}

#[derive(Debug)]
enum At {
    Head(HeadState),
    /// Bytes left of a body with a declared length.
    Body(u64),
    Chunks(Chunk),
    /// What follows belongs to another protocol.
    Upgraded,
}

/// A head of which some bytes may have come.
#[derive(Debug, Default)]
struct HeadState {
    len: usize,
    /// The beginning of the current line, and how long it is.
    line: Vec<u8>,
    line_len: usize,
    /// Whether the request line has come; empty lines may precede it (RFC 9112, section 2.2).
    has_begun: bool,
    is_connect: bool,
    declared: u64,
    is_chunked: bool,
    is_upgrade: bool,
}

/// The position in a chunked body (RFC 9112, section 7.1).
#[derive(Clone, Copy, Debug)]
enum Chunk {
    /// In the size; its value, its digits so far.
    Size {
        size: u64,
        digits: usize,
    },
    /// In white space after the size.
    Space {
        size: u64,
        len: usize,
    },
    /// After a semicolon behind the size.
    Extension {
        size: u64,
        len: usize,
    },
    /// The line feed that ends the chunk header.
    HeadLf {
        size: u64,
    },
    Data(u64),
    DataCr,
    DataLf,
    /// In the trailers, at the beginning of a line or within one.
    Trailer {
        len: usize,
        is_line_empty: bool,
    },
    TrailerLf {
        len: usize,
        is_line_empty: bool,
    },
}

const NEW_CHUNK: Chunk = Chunk::Size { size: 0, digits: 0 };

impl Framing {
    /// The beginning of a connection.
    pub fn new(head_len_max: usize) -> Self {
        Self { head_len_max, heads: 0, at: At::Head(HeadState::default()) }
    }

    /// How many heads have come whole.
    pub const fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether no byte of a request has come since the last one ended.
    pub fn is_between(&self) -> bool {
        matches!(&self.at, At::Head(head) if head.len == 0)
    }

    /// Whether what comes belongs to another protocol.
    pub const fn is_upgraded(&self) -> bool {
        matches!(self.at, At::Upgraded)
    }

    /// The length of the head that has not ended.
    pub fn head_len(&self) -> Option<usize> {
        match &self.at {
            At::Head(head) => Some(head.len).filter(|len| *len > 0),
            At::Body(_) | At::Chunks(_) | At::Upgraded => None,
        }
    }

    /// Reads on, at most to the end of a request; how many bytes that were.
    ///
    /// # Errors
    /// If the bytes are refused; nothing may be read any more then.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<usize, Unframed> {
        let mut passed = 0;
        while passed < bytes.len() {
            let rest = &bytes[passed..];
            let (len, next) = match &mut self.at {
                At::Head(head) => head.pass(rest, self.head_len_max)?,
                At::Body(left) => {
                    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= len as u64;
                    (len, (*left == 0).then(between))
                }
                At::Chunks(chunk) => chunk.pass(rest)?,
                At::Upgraded => (rest.len(), None),
            };
            passed += len;
            if let Some(next) = next {
                self.heads += u64::from(matches!(self.at, At::Head(_)));
                self.at = next;
                if self.is_between() {
                    break;
                }
            }
        }
        Ok(passed)
    }
}

fn between() -> At {
    At::Head(HeadState::default())
}

impl HeadState {
    /// Reads at most to the end of the head.
    fn pass(&mut self, bytes: &[u8], len_max: usize) -> Result<(usize, Option<At>), Unframed> {
        let mut passed = 0;
        while passed < bytes.len() {
            let rest = &bytes[passed..];
            let lf = rest.iter().position(|byte| *byte == b'\n');
            let part = &rest[..lf.unwrap_or(rest.len())];
            let len = part.len() + usize::from(lf.is_some());
            passed += len;
            self.len += len;
            if self.len > len_max {
                return Err(Unframed::HeadTooLong);
            }
            self.line_len += part.len();
            let kept = part.len().min(FRAMING_LINE_MAX.saturating_sub(self.line.len()));
            self.line.extend_from_slice(&part[..kept]);
            if lf.is_some() && self.ends_line()? {
                return Ok((passed, Some(self.body())));
            }
        }
        Ok((passed, None))
    }

    /// Takes a line in; whether it ends the head.
    fn ends_line(&mut self) -> Result<bool, Unframed> {
        let line = std::mem::take(&mut self.line);
        let is_whole = line.len() == std::mem::take(&mut self.line_len);
        let text = line.strip_suffix(b"\r").unwrap_or(&line);
        if text.is_empty() {
            return Ok(self.has_begun);
        }
        if !self.has_begun {
            self.has_begun = true;
            self.is_connect = text.starts_with(b"CONNECT ");
            return Ok(false);
        }
        let name_len = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
        let (name, value) = text.split_at(name_len);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        if !is("content-length") && !is("transfer-encoding") && !is("upgrade") {
            return Ok(false);
        }
        if !is_whole {
            return Err(Unframed::Malformed);
        }
        if is("content-length") {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(value).ok().filter(|_| is_number);
            let number = number.and_then(|number| number.parse().ok());
            self.declared = number.ok_or(Unframed::Malformed)?;
        } else if is("transfer-encoding") {
            self.is_chunked = value.eq_ignore_ascii_case(b"chunked");
            if !self.is_chunked {
                return Err(Unframed::Malformed);
            }
        } else {
            self.is_upgrade |= value.eq_ignore_ascii_case(b"websocket");
        }
        Ok(false)
    }

    /// What follows the head; the order is actix-http's.
    fn body(&self) -> At {
        if self.is_chunked {
            At::Chunks(NEW_CHUNK)
        } else if self.is_upgrade {
            At::Upgraded
        } else if self.declared > 0 {
            At::Body(self.declared)
        } else if self.is_connect {
            At::Upgraded
        } else {
            between()
        }
    }
}

impl Chunk {
    /// Reads one byte, or data, and says where that leads if the body ends.
    fn pass(&mut self, bytes: &[u8]) -> Result<(usize, Option<At>), Unframed> {
        if let Self::Data(left) = self {
            let len = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
            *left -= len as u64;
            if *left == 0 {
                *self = Self::DataCr;
            }
            return Ok((len, None));
        }
        match self.after(bytes[0])? {
            Some(next) => *self = next,
            None => return Ok((1, Some(between()))),
        }
        Ok((1, None))
    }

    /// The position after a byte; `None` if the body ended with it.
    fn after(self, byte: u8) -> Result<Option<Self>, Unframed> {
        let next = match (self, byte) {
            (Self::Size { size, digits }, _) if byte.is_ascii_hexdigit() && digits < 16 => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                Self::Size { size: size << 4 | digit, digits: digits + 1 }
            }
            (Self::Size { size, digits: 1.. }, b'\r') => Self::HeadLf { size },
            (Self::Size { size, digits: 1.. }, b' ' | b'\t') => Self::Space { size, len: 1 },
            (Self::Size { size, digits: 1.. }, b';') => Self::Extension { size, len: 1 },
            (Self::Space { size, len }, b' ' | b'\t') if len < CHUNK_HEAD_MAX => {
                Self::Space { size, len: len + 1 }
            }
            (Self::Space { size, len }, b';') => Self::Extension { size, len },
            (Self::Space { size, .. } | Self::Extension { size, .. }, b'\r') => {
                Self::HeadLf { size }
            }
            (Self::Extension { size, len }, b'\t' | b' '..=b'~') if len < CHUNK_HEAD_MAX => {
                Self::Extension { size, len: len + 1 }
            }
            (Self::HeadLf { size: 0 }, b'\n') => Self::Trailer { len: 0, is_line_empty: true },
            (Self::HeadLf { size }, b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => NEW_CHUNK,
            (Self::Trailer { len, is_line_empty }, b'\r') => Self::TrailerLf { len, is_line_empty },
            (Self::Trailer { len, .. }, b'\t' | b' '..=b'~' | 0x80..) if len < TRAILER_LEN_MAX => {
                Self::Trailer { len: len + 1, is_line_empty: false }
            }
            (Self::TrailerLf { is_line_empty: true, .. }, b'\n') => return Ok(None),
            (Self::TrailerLf { len, .. }, b'\n') => Self::Trailer { len, is_line_empty: true },
            (
                Self::Size { .. }
                | Self::Space { .. }
                | Self::Extension { .. }
                | Self::HeadLf { .. }
                | Self::Data(_)
                | Self::DataCr
                | Self::DataLf
                | Self::Trailer { .. }
                | Self::TrailerLf { .. },
                _,
            ) => return Err(Unframed::Malformed),
        };
        Ok(Some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &str = "POST / HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    const GET: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    /// The requests in these bytes, given in pieces of this length.
    fn split(bytes: &str, piece_len: usize) -> Result<Vec<String>, Unframed> {
        let mut framing = Framing::new(1000);
        let (mut requests, mut current) = (Vec::new(), Vec::new());
        for piece in bytes.as_bytes().chunks(piece_len) {
            let mut piece = piece;
            while !piece.is_empty() {
                let passed = framing.pass(piece)?;
                current.extend_from_slice(&piece[..passed]);
                piece = &piece[passed..];
                if framing.is_between() {
                    let request = String::from_utf8(std::mem::take(&mut current));
                    requests.push(request.expect("text"));
                }
            }
        }
        assert!(current.is_empty(), "a request has not ended: {current:?}");
        Ok(requests)
    }

    #[test]
    fn each_request_ends_where_it_says() {
        let chunked = |chunks: &str| format!("{CHUNKED}{chunks}");
        for request in [
            GET.to_owned(),
            "\r\nGET / HTTP/1.1\nhost: x\n\n".to_owned(),
            "POST / HTTP/1.1\r\ncontent-LENGTH:  3 \r\n\r\nabc".to_owned(),
            "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n".to_owned(),
            chunked("0\r\n\r\n"),
            chunked("3\r\nabc\r\n00A;x=\"y z\"\r\n0123456789\r\n0\r\n\r\n"),
            chunked("1 \t;a\r\nx\r\n0\r\na: b\r\nc: \u{e9}\r\n\r\n"),
        ] {
            for piece_len in [1, 2, 7, 1000] {
                let both = split(&format!("{request}{GET}"), piece_len).expect("it is valid");
                assert_eq!(both, [&*request, GET], "in pieces of {piece_len}");
            }
        }
    }

    #[test]
    fn framing_with_another_meaning_for_others_is_refused() {
        for chunks in [
            "0\r\n\n",
            "0\n\r\n",
            "0\r\na: b\n\r\n",
            "0\r\na: b\rc\r\n\r\n",
            "\r\n",
            "-1\r\n",
            "0x1\r\nx\r\n",
            "1\r\nxx\r\n",
            "1\r\nx\n",
            "1;a\nb\r\n",
            "1;\u{0}\r\n",
            "1 2\r\n\n",
            "11111111111111111\r\n",
        ] {
            let bytes = format!("{CHUNKED}{chunks}{GET}");
            for piece_len in [1, 1000] {
                assert_eq!(split(&bytes, piece_len), Err(Unframed::Malformed), "{chunks:?}");
            }
        }
        for line in [
            "content-length: +3",
            "content-length: 3, 3",
            "content-length: ",
            "content-length: 0x3",
            "transfer-encoding: identity",
            "transfer-encoding: gzip, chunked",
        ] {
            let bytes = format!("POST / HTTP/1.1\r\n{line}\r\n\r\nabc");
            assert_eq!(split(&bytes, 1000), Err(Unframed::Malformed), "{line:?}");
        }
        let padded = format!("POST / HTTP/1.1\r\ncontent-length:{}3\r\n\r\n", " ".repeat(300));
        assert_eq!(split(&padded, 1000), Err(Unframed::Malformed));
    }

    #[test]
    fn a_head_is_bounded_whether_it_ends_or_not() {
        let long = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(1000));
        assert_eq!(split(&long, 10), Err(Unframed::HeadTooLong));
        let lines = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(200));
        assert_eq!(split(&lines, 1000), Err(Unframed::HeadTooLong));
        let mut framing = Framing::new(1000);
        framing.pass(b"GET /").expect("it may go on");
        assert_eq!((framing.head_len(), framing.is_between()), (Some(5), false));
    }

    #[test]
    fn what_follows_an_upgrade_is_not_read() {
        let mut framing = Framing::new(1000);
        let upgrade = b"GET / HTTP/1.1\r\nupgrade: WebSocket\r\ncontent-length: 1\r\n\r\nanything";
        assert_eq!(framing.pass(upgrade), Ok(upgrade.len()));
        assert!(!framing.is_between());
    }
}
