//! How git hears of a refusal, so that it shows the reason at the terminal.

use super::PushHead;

/// Longest content of a side-band line: with the small band, and with the large one.
const SMALL_BAND: usize = 995;
const LARGE_BAND: usize = 65_515;

/// The body of an answer 200 that refuses every command of a push: the report that the client asked
/// for, and the sentence as a message.
pub fn push_refused(head: &PushHead, sentence: &str) -> Vec<u8> {
    let sentence: String = sentence.chars().filter(|c| !c.is_control()).collect();
    let mut report = Vec::new();
    if head.can("report-status") || head.can("report-status-v2") {
        pkt(&mut report, b"unpack ok\n");
        for command in &head.commands {
            let mut line = b"ng ".to_vec();
            line.extend_from_slice(&command.reference);
            line.push(b' ');
            line.extend_from_slice(sentence.as_bytes());
            line.push(b'\n');
            pkt(&mut report, &line);
        }
        report.extend_from_slice(b"0000");
    }
    let band = match (head.can("side-band-64k"), head.can("side-band")) {
        (true, _) => LARGE_BAND,
        (false, true) => SMALL_BAND,
        (false, false) => return report,
    };
    let mut body = Vec::new();
    banded(&mut body, 2, format!("{sentence}\n").as_bytes(), band);
    banded(&mut body, 1, &report, band);
    body.extend_from_slice(b"0000");
    body
}

/// An `ERR` line, which git shows for a fetch.
pub fn git_error(sentence: &str) -> Vec<u8> {
    let sentence: String = sentence.chars().filter(|c| !c.is_control()).take(1_000).collect();
    let mut body = Vec::new();
    pkt(&mut body, format!("ERR {sentence}\n").as_bytes());
    body
}

fn banded(to: &mut Vec<u8>, band: u8, bytes: &[u8], most: usize) {
    for part in bytes.chunks(most) {
        let mut line = vec![band];
        line.extend_from_slice(part);
        pkt(to, &line);
    }
}

fn pkt(to: &mut Vec<u8>, line: &[u8]) {
    to.extend_from_slice(format!("{:04x}", line.len() + 4).as_bytes());
    to.extend_from_slice(line);
}
