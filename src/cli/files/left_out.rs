//! What an upload or a download lacks, because it could not be read.
//!
//! A server names what an archive lacks in the archive's last file, so the end of each download is
//! kept and looked at.

use std::io::{self, Write};

use tar::Header;

use crate::cli::failure::CliFailure;
use crate::sandbox::LEFT_OUT_NAME;

/// How much of an archive's end is kept, in bytes: more than a thousand names and reasons.
const END_LEN: usize = 1 << 20;

/// Bytes of a block of an archive.
const BLOCK_LEN: usize = 512;

/// Most lines of an error.
const LINES_MAX: usize = 20;

/// The error that names what is missing, if something is.
///
/// # Errors
/// [`CliFailure::Failed`].
pub(super) fn report(left_out: &[String], what: &str) -> anyhow::Result<()> {
    if left_out.is_empty() {
        return Ok(());
    }
    let mut lines = vec![format!("{what}; everything else was:")];
    lines.extend(left_out.iter().take(LINES_MAX).cloned());
    if left_out.len() > LINES_MAX {
        lines.push(format!("and {} more", left_out.len() - LINES_MAX));
    }
    Err(CliFailure::Failed {
        message: lines.join("\n"),
        hint: "make these readable, or remove them, and repeat".to_owned(),
    }
    .into())
}

/// An archive that is being written.
pub(in crate::cli) struct WatchedArchive<W> {
    out: W,
    end: Vec<u8>,
}

impl<W: Write> WatchedArchive<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, end: Vec::new() }
    }

    /// Whether the archive is complete.
    ///
    /// # Errors
    /// [`CliFailure::Failed`] with what it lacks.
    pub fn check(&self) -> anyhow::Result<()> {
        report(&left_out(&self.end), "the archive is not complete: these could not be read")
    }
}

impl<W: Write> Write for WatchedArchive<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.out.write(bytes)?;
        self.end.extend_from_slice(&bytes[..len]);
        if self.end.len() > 2 * END_LEN {
            self.end.drain(..self.end.len() - END_LEN);
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The lines of an archive's last file, if that names what the archive lacks.
fn left_out(end: &[u8]) -> Vec<String> {
    // Two blocks of zeros are the end.
    let blocks = end.rchunks_exact(BLOCK_LEN).skip(2);
    for (count, block) in blocks.enumerate() {
        if !block.starts_with(LEFT_OUT_NAME.as_bytes()) {
            continue;
        }
        let content = &end[end.len() - (count + 2) * BLOCK_LEN..end.len() - 2 * BLOCK_LEN];
        let header = Header::from_byte_slice(block);
        let size = header.size().ok().and_then(|size| usize::try_from(size).ok());
        if let Some(size) = size
            && size.div_ceil(BLOCK_LEN) == count
        {
            // The first line says what the others are.
            let text = String::from_utf8_lossy(&content[..size]).into_owned();
            return text.lines().skip(1).map(str::to_owned).collect();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content.as_bytes()).expect("written");
        }
        archive.into_inner().expect("whole")
    }

    #[test]
    fn what_an_archive_lacks_is_read_from_its_last_file_alone() {
        let long = format!("head\n{}", "\"a\": why\n".repeat(200));
        let big = "x".repeat(3 * END_LEN);
        for (files, lines) in [
            (vec![], 0),
            (vec![("a", "text\ntext")], 0),
            (vec![("a", "b"), ("issuebox-left-out.txt", "head\none\ntwo\n")], 2),
            (vec![("issuebox-left-out.txt", "head\none\n"), ("z", "z")], 0),
            (vec![("big", big.as_str()), ("issuebox-left-out-2.txt", long.as_str())], 200),
        ] {
            let bytes = archive(&files);
            let mut out = WatchedArchive::new(Vec::new());
            for piece in bytes.chunks(70_001) {
                out.write_all(piece).expect("written");
            }
            assert_eq!(left_out(&out.end).len(), lines);
            let said = out.check().map_err(|error| error.to_string());
            assert_eq!(said.is_err(), lines > 0, "{said:?}");
            assert!(out.out == bytes && out.end.len() <= 2 * END_LEN + 70_001);
        }
        assert_eq!(left_out(&[0; 300]), [""; 0]);
    }
}
