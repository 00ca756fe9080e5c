//! The form of the tar archives that issuebox writes: GNU's, without owners.

use std::io::{self, Write};

use tar::{EntryType, Header};

/// Bytes of a block: a header is one, contents are padded to whole ones.
const BLOCK_LEN: u64 = 512;

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// The end of an archive: two blocks of zeros.
pub const ARCHIVE_END: [u8; 2 * BLOCK_LEN as usize] = [0; 2 * BLOCK_LEN as usize];

/// What a header says of an entry.
pub struct ArchiveFacts {
    /// Its mode, of which the permission bits are written.
    pub mode: u32,
    /// When it was last changed, in seconds since 1970.
    pub modified_seconds: u64,
    /// The length of the content that follows, in bytes.
    pub size: u64,
}

/// Writes an entry's header, preceded by the names that do not fit into it.
pub fn head(
    out: &mut impl Write,
    path: &[u8],
    kind: EntryType,
    facts: &ArchiveFacts,
    link: Option<&[u8]>,
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    if !place(&mut header.as_old_mut().name, path) {
        long(out, EntryType::GNULongName, path)?;
    }
    if let Some(link) = link
        && !place(&mut header.as_old_mut().linkname, link)
    {
        long(out, EntryType::GNULongLink, link)?;
    }
    header.set_entry_type(kind);
    header.set_size(facts.size);
    header.set_mode(facts.mode & 0o777);
    header.set_mtime(facts.modified_seconds);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    out.write_all(header.as_bytes())
}

/// Writes the exact time of the following entry as an extended header (pax, IEEE Std 1003.1): a
/// header alone has whole seconds, and none before 1970.
pub fn exact_time(out: &mut impl Write, modified_ns: i64) -> io::Result<()> {
    let (sign, ns) = (if modified_ns < 0 { "-" } else { "" }, modified_ns.unsigned_abs());
    let record = format!("mtime={sign}{}.{:09}", ns / SECOND_NS, ns % SECOND_NS);
    // A record begins with its own length: two digits for these, a space and a line feed.
    let record = format!("{} {record}\n", record.len() + 4);
    let mut header = Header::new_gnu();
    place(&mut header.as_old_mut().name, b"././@PaxHeader");
    header.set_entry_type(EntryType::XHeader);
    header.set_size(record.len() as u64);
    header.set_cksum();
    out.write_all(header.as_bytes())?;
    out.write_all(record.as_bytes())?;
    fill_up(out, record.len() as u64)
}

/// Reads a time as an extended header has it, in nanoseconds since 1970; `None` for what is no time.
pub fn parse_exact_time(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !seconds.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = |at: usize| fraction.as_bytes().get(at).map_or(0, |digit| u64::from(digit - b'0'));
    let fraction = (0..9).fold(0, |ns, at| ns * 10 + digits(at));
    let ns = seconds.parse::<u64>().ok()?.checked_mul(SECOND_NS)?.checked_add(fraction)?;
    let ns = i64::try_from(ns).ok()?;
    Some(if is_negative { -ns } else { ns })
}

/// Writes a name that is too long for the following header.
fn long(out: &mut impl Write, kind: EntryType, name: &[u8]) -> io::Result<()> {
    let mut header = Header::new_gnu();
    place(&mut header.as_old_mut().name, b"././@LongLink");
    header.set_entry_type(kind);
    let size = name.len() as u64 + 1;
    header.set_size(size);
    header.set_cksum();
    out.write_all(header.as_bytes())?;
    out.write_all(name)?;
    out.write_all(&[0])?;
    fill_up(out, size)
}

/// Copies as much of a name into a field as fits; returns whether all fit.
fn place(field: &mut [u8], name: &[u8]) -> bool {
    let len = name.len().min(field.len());
    field[..len].copy_from_slice(&name[..len]);
    len == name.len()
}

/// Fills the last block of a content with zeros.
pub fn fill_up(out: &mut impl Write, size: u64) -> io::Result<()> {
    let missing = size.next_multiple_of(BLOCK_LEN) - size;
    let zeros = [0; BLOCK_LEN as usize];
    out.write_all(&zeros[..usize::try_from(missing).expect("less than a block")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_time_survives_its_header() {
        for ns in [0, 1, -1, -1_500_000_000, 1_700_000_000_123_456_789, i64::MAX, -i64::MAX] {
            let mut out = Vec::new();
            exact_time(&mut out, ns).expect("memory takes it");
            assert_eq!(out.len(), 1024);
            let record = out[512..].split(|byte| *byte == b'\n').next().expect("a line");
            let len = std::str::from_utf8(&record[..2]).expect("digits").parse::<usize>();
            assert_eq!(len.ok(), Some(record.len() + 1));
            assert_eq!(parse_exact_time(&record[b"00 mtime=".len()..]), Some(ns));
        }
        assert_eq!(parse_exact_time(b"5"), Some(5_000_000_000));
        assert_eq!(parse_exact_time(b"5.12345678999"), Some(5_123_456_789));
        for odd in [&b""[..], b".", b"x", b"1.x", b"+1", b"99999999999999999999", b"--1"] {
            assert_eq!(parse_exact_time(odd), None);
        }
    }
}
