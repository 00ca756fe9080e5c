//! What is read of a push before a byte of it reaches GitHub: its head, and the rules of the branch.
//!
//! A push is `POST …/git-receive-pack`. Its body begins with pkt-lines (gitprotocol-pack(5)): shallow
//! commits, then commands, then a flush. The pack behind them is not read.
//!
//! # Guarantees
//! - Nothing panics on any bytes, and at most [`HEAD_LEN_MAX`] bytes are kept.
//! - A head is accepted only if each of its commands updates the one branch that is allowed, byte for
//!   byte. One other command refuses the whole push.
//! - Cut in any way, the same bytes give the same result.

mod report;
mod rules;

pub use report::{git_error, push_refused};
pub use rules::{PushRules, check_headers};

/// Longest head that is read, in bytes: some 4,900 shallow lines.
pub const HEAD_LEN_MAX: usize = 256 << 10;
/// Most commands of a push.
pub const COMMANDS_MAX: usize = 64;

/// Why a push is refused. git shows the texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushRefusal {
    /// It is not what git sends.
    #[error("this is not a push that git makes: {0}")]
    Malformed(&'static str),
    /// The head is longer than what is read.
    #[error("this push has too many shallow commits or commands; push with a deeper clone")]
    HeadTooLong,
    /// Too many commands.
    #[error("a push may update one branch, not {COMMANDS_MAX} refs")]
    TooManyCommands,
    /// The body is too long.
    #[error("this push is larger than {0} MiB (git.push_max_mb)")]
    TooLarge(u64),
    /// Another ref than the sandbox's branch.
    #[error("{asked} is not this sandbox's branch; push to {branch}")]
    OtherRef {
        /// The ref, made printable.
        asked: String,
        /// The branch that may be pushed to.
        branch: String,
    },
    /// The branch is to be deleted.
    #[error("{0} is deleted by people, not from a sandbox")]
    Deletes(String),
    /// The branch has commits that the sandbox does not have.
    #[error("{branch} has commits of others ({tip}); fetch them first, then push again")]
    NotFetched {
        /// The branch.
        branch: String,
        /// The commit at its tip.
        tip: String,
    },
    /// Pushing is not allowed now; the sentence says why.
    #[error("{0}")]
    NotNow(String),
}

/// A command of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushCommand {
    /// The commit that the ref is to be updated from; all zeros if it is new.
    pub old: String,
    /// The commit that it is to be updated to; all zeros to delete it.
    pub new: String,
    /// The ref, as it was sent.
    pub reference: Vec<u8>,
}

/// The head of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushHead {
    /// Its commands, one at least.
    pub commands: Vec<PushCommand>,
    /// What the client can do, such as `report-status`.
    pub capabilities: Vec<String>,
    /// Its length with the flush, in bytes; the pack follows.
    pub len: usize,
}

impl PushHead {
    /// Whether the client can do this.
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|known| known == capability)
    }
}

/// What was read so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadRead {
    /// More bytes are needed.
    Incomplete,
    /// `0000` alone: git asks whether it may push more than a mebibyte. It is passed on.
    Probe,
    /// The whole head.
    Whole(PushHead),
}

/// Reads the head of a push out of the body's first bytes; `is_end` says that there are no more.
///
/// # Errors
/// [`PushRefusal::Malformed`], [`PushRefusal::HeadTooLong`] and [`PushRefusal::TooManyCommands`].
pub fn read_head(body: &[u8], is_end: bool) -> Result<HeadRead, PushRefusal> {
    let mut at = 0;
    let mut head = PushHead { commands: Vec::new(), capabilities: Vec::new(), len: 0 };
    loop {
        let (line, len) = match pkt_line(&body[at..])? {
            PktLine::Incomplete if at.max(body.len()) > HEAD_LEN_MAX => {
                return Err(PushRefusal::HeadTooLong);
            }
            PktLine::Incomplete if is_end => {
                return Err(PushRefusal::Malformed("it ends within its head"));
            }
            PktLine::Incomplete => return Ok(HeadRead::Incomplete),
            PktLine::Flush if at == 0 => return probe(body, is_end),
            PktLine::Flush if head.commands.is_empty() => {
                return Err(PushRefusal::Malformed("it has no commands"));
            }
            PktLine::Flush => {
                head.len = at + 4;
                return Ok(HeadRead::Whole(head));
            }
            PktLine::Line(line, len) => (line, len),
        };
        at += len;
        if at > HEAD_LEN_MAX {
            return Err(PushRefusal::HeadTooLong);
        }
        // git takes one line end off, too.
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        match line.strip_prefix(b"shallow ") {
            Some(oid) if head.commands.is_empty() && is_oid(oid) => {}
            Some(_) => return Err(PushRefusal::Malformed("a shallow line is out of place")),
            None => head.add(line)?,
        }
    }
}

fn probe(body: &[u8], is_end: bool) -> Result<HeadRead, PushRefusal> {
    match (body.len(), is_end) {
        (4, true) => Ok(HeadRead::Probe),
        (4, false) => Ok(HeadRead::Incomplete),
        _ => Err(PushRefusal::Malformed("something follows an empty head")),
    }
}

impl PushHead {
    fn add(&mut self, line: &[u8]) -> Result<(), PushRefusal> {
        if self.commands.len() == COMMANDS_MAX {
            return Err(PushRefusal::TooManyCommands);
        }
        if line.starts_with(b"push-cert") {
            return Err(PushRefusal::Malformed("signed pushes are not supported"));
        }
        let (command, capabilities) = match line.iter().position(|byte| *byte == 0) {
            Some(nul) if self.commands.is_empty() => (&line[..nul], Some(&line[nul + 1..])),
            None if !self.commands.is_empty() => (line, None),
            Some(_) | None => {
                return Err(PushRefusal::Malformed("its capabilities are out of place"));
            }
        };
        let command = parse_command(command)?;
        let is_first_len = |first: &PushCommand| first.old.len() == command.old.len();
        if !self.commands.first().is_none_or(is_first_len) {
            return Err(PushRefusal::Malformed("its commits' names have different lengths"));
        }
        if let Some(capabilities) = capabilities {
            if capabilities.contains(&0) {
                return Err(PushRefusal::Malformed("its capabilities contain a NUL byte"));
            }
            let text = String::from_utf8_lossy(capabilities);
            self.capabilities = text.split_ascii_whitespace().map(str::to_owned).collect();
        }
        self.commands.push(command);
        Ok(())
    }
}

/// `OLD SP NEW SP REF`, and nothing else.
fn parse_command(command: &[u8]) -> Result<PushCommand, PushRefusal> {
    let wrong = PushRefusal::Malformed("a command has another form");
    let mut parts = command.splitn(3, |byte| *byte == b' ');
    let (Some(old), Some(new), Some(reference)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(wrong);
    };
    if !is_oid(old) || !is_oid(new) || old.len() != new.len() || reference.is_empty() {
        return Err(wrong);
    }
    let text = |oid: &[u8]| String::from_utf8_lossy(oid).to_ascii_lowercase();
    Ok(PushCommand { old: text(old), new: text(new), reference: reference.to_owned() })
}

/// Whether this names an object, by SHA-1 or SHA-256.
fn is_oid(text: &[u8]) -> bool {
    matches!(text.len(), 40 | 64) && text.iter().all(u8::is_ascii_hexdigit)
}

enum PktLine<'a> {
    Incomplete,
    Flush,
    /// Its content, and its length with the four digits.
    Line(&'a [u8], usize),
}

fn pkt_line(bytes: &[u8]) -> Result<PktLine<'_>, PushRefusal> {
    let Some((digits, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(PktLine::Incomplete);
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let len = digits.iter().try_fold(0, |len, byte| Some(len * 16 + digit(byte)?));
    match len {
        Some(0) => Ok(PktLine::Flush),
        Some(len @ 4..=0xFFF0) => {
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            Ok(match rest.get(..len - 4) {
                Some(line) => PktLine::Line(line, len),
                None => PktLine::Incomplete,
            })
        }
        Some(_) | None => Err(PushRefusal::Malformed("a line's length is wrong")),
    }
}

#[cfg(test)]
mod tests;
