//! Reads GitHub's report of a push while it passes: whether the branch changed.
//!
//! The answer to a push is `report-status` in packet lines, which are in side band 1 of further
//! packet lines if git asked for side bands (`gitprotocol-pack(5)`). What is longer or other than
//! that is passed on and taken for no report.

/// Most bytes that are read of a report.
const LEN_MAX: usize = 64 * 1024;

/// What the report says of the one ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reported {
    /// It changed.
    Ok,
    /// It did not, for this reason.
    Refused(String),
}

/// Collects a report from the bytes of an answer.
#[derive(Debug)]
pub struct ReportReader {
    side_band: bool,
    /// What is not a whole packet yet, of the answer.
    outer: Vec<u8>,
    /// The report.
    inner: Vec<u8>,
    is_broken: bool,
}

impl ReportReader {
    /// A reader of an answer with or without side bands.
    pub const fn new(side_band: bool) -> Self {
        Self { side_band, outer: Vec::new(), inner: Vec::new(), is_broken: false }
    }

    /// Reads further bytes of the answer.
    pub fn read(&mut self, bytes: &[u8]) {
        if self.is_broken {
            return;
        }
        if !self.side_band {
            self.inner.extend_from_slice(bytes);
        } else {
            self.outer.extend_from_slice(bytes);
            let mut rest = self.outer.as_slice();
            while let Some((line, after)) = next_line(rest) {
                if let Some((&1, report)) = line.and_then(|line| line.split_first()) {
                    self.inner.extend_from_slice(report);
                }
                rest = after;
            }
            let read = self.outer.len() - rest.len();
            self.outer.drain(..read);
        }
        self.is_broken = self.inner.len() > LEN_MAX || self.outer.len() > 2 * LEN_MAX;
    }

    /// What the report says of a ref; `None` if it was not received whole or says nothing of it.
    pub fn of(&self, name: &str) -> Option<Reported> {
        if self.is_broken {
            return None;
        }
        let mut rest = self.inner.as_slice();
        let mut reported = None;
        while let Some((line, after)) = next_line(rest) {
            // The flush packet: it is whole.
            let Some(line) = line else { return reported };
            let line = String::from_utf8_lossy(line);
            let line = line.trim_end();
            if let Some(failure) = line.strip_prefix("unpack ").filter(|what| *what != "ok") {
                return Some(Reported::Refused(failure.to_owned()));
            }
            if line.strip_prefix("ok ") == Some(name) {
                reported = Some(Reported::Ok);
            } else if let Some(reason) = line.strip_prefix("ng ").and_then(|l| l.strip_prefix(name))
            {
                reported = Some(Reported::Refused(reason.trim_start().to_owned()));
            }
            rest = after;
        }
        None
    }
}

/// The next packet line and what is behind it; the line is `None` for a flush packet.
fn next_line(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(4)?;
    let len = usize::from_str_radix(std::str::from_utf8(head).ok()?, 16).ok()?;
    match len.checked_sub(4) {
        Some(len) => rest.split_at_checked(len).map(|(line, rest)| (Some(line), rest)),
        None => Some((None, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRANCH: &str = "refs/heads/issuebox/issue-12";

    fn pkt_line(line: &[u8]) -> Vec<u8> {
        [format!("{:04x}", line.len() + 4).as_bytes(), line].concat()
    }

    fn report(lines: &[&str]) -> Vec<u8> {
        let mut bytes: Vec<u8> = lines.iter().flat_map(|line| pkt_line(line.as_bytes())).collect();
        bytes.extend_from_slice(b"0000");
        bytes
    }

    fn banded(parts: &[(u8, &[u8])]) -> Vec<u8> {
        let line = |(band, bytes): &(u8, &[u8])| pkt_line(&[&[*band], *bytes].concat());
        let mut bytes: Vec<u8> = parts.iter().flat_map(line).collect();
        bytes.extend_from_slice(b"0000");
        bytes
    }

    /// Reads it in pieces of one byte.
    fn read(side_band: bool, bytes: &[u8]) -> Option<Reported> {
        let mut reader = ReportReader::new(side_band);
        bytes.iter().for_each(|byte| reader.read(&[*byte]));
        reader.of(BRANCH)
    }

    #[test]
    fn a_report_is_read_with_and_without_side_bands_wherever_it_is_cut() {
        let ok = report(&["unpack ok\n", &format!("ok {BRANCH}\n")]);
        assert_eq!(read(false, &ok), Some(Reported::Ok));
        let (first, second) = ok.split_at(7);
        let parts = [(2, b"remote: hello\n".as_slice()), (1, first), (2, b"x"), (1, second)];
        assert_eq!(read(true, &banded(&parts)), Some(Reported::Ok));
        let refused = report(&["unpack ok\n", &format!("ng {BRANCH} hook declined\n")]);
        let expected = Some(Reported::Refused("hook declined".into()));
        assert_eq!(read(true, &banded(&[(1, &refused)])), expected);
        let broken = report(&["unpack index-pack abnormal exit\n", &format!("ok {BRANCH}\n")]);
        let expected = Some(Reported::Refused("index-pack abnormal exit".into()));
        assert_eq!(read(false, &broken), expected);
    }

    #[test]
    fn what_is_cut_off_or_of_another_ref_is_no_report() {
        let ok = report(&["unpack ok\n", &format!("ok {BRANCH}\n")]);
        assert_eq!(read(false, &ok[..ok.len() - 4]), None, "without its end");
        assert_eq!(read(false, &report(&["unpack ok\n", "ok refs/heads/main\n"])), None);
        assert_eq!(read(false, &report(&["unpack ok\n", &format!("ok {BRANCH}-2\n")])), None);
        assert_eq!(read(true, b"no packet"), None);
        assert_eq!(read(false, &vec![b'0'; 3 * LEN_MAX]), None);
    }
}
