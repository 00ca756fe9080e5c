//! What an archive lacks, as a file at its end: each path and why.

use std::fmt::Write as _;

use rustix::io::Errno;

use super::{explain, quoted};
use crate::sandbox::LEFT_OUT_NAME as NAME;

/// Most paths in the file. The rest is counted.
const PATHS_MAX: usize = 1_000;

/// The paths that were left out of an archive.
#[derive(Debug, Default)]
pub struct LeftOutEntries {
    lines: String,
    paths: Vec<Vec<u8>>,
    count: usize,
}

impl LeftOutEntries {
    /// Notes what was left out.
    pub fn add(&mut self, path: &[u8], why: &str) {
        self.count += 1;
        if self.count <= PATHS_MAX {
            self.paths.push(path.to_vec());
            let path = if path.is_empty() { "the directory".into() } else { quoted(path) };
            writeln!(self.lines, "{path}: {why}").expect("a text grows");
        }
    }

    /// The same for an error of the system.
    pub fn failed(&mut self, path: &[u8], errno: Errno) {
        self.add(path, &explain(errno));
    }

    /// The paths. If there were more than are kept, the whole directory is one of them.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        let rest = (self.count > PATHS_MAX).then_some(&b""[..]);
        self.paths.iter().map(Vec::as_slice).chain(rest)
    }

    /// Whether nothing was left out.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The file's first name that is not taken, and its content.
    pub fn file(&self, is_taken: impl Fn(&str) -> bool) -> (String, String) {
        let name = |number: u32| match number {
            1 => format!("{NAME}.txt"),
            number => format!("{NAME}-{number}.txt"),
        };
        let name = (1..=u32::MAX).map(name).find(|name| !is_taken(name)).unwrap_or(NAME.into());
        let rest = match self.count.saturating_sub(PATHS_MAX) {
            0 => String::new(),
            rest => format!("and {rest} more\n"),
        };
        let head = "This archive lacks the following, which could not be read:\n";
        (name, format!("{head}{}{rest}", self.lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thousand_are_named_and_the_rest_counted() {
        let mut left_out = LeftOutEntries::default();
        assert!(left_out.is_empty());
        left_out.failed(b"a\nb", Errno::ACCESS);
        left_out.add(b"", "why");
        let (name, text) = left_out.file(|name| !name.ends_with("-3.txt"));
        assert_eq!(name, "issuebox-left-out-3.txt");
        assert!(text.ends_with(":\n\"a\\nb\": permission denied\nthe directory: why\n"), "{text}");
        (0..PATHS_MAX).for_each(|_| left_out.add(b"x", "y"));
        assert_eq!(left_out.paths().last(), Some(&b""[..]));
        let (_, text) = left_out.file(|_| false);
        assert!(text.ends_with("\"x\": y\nand 2 more\n"), "{text}");
        assert_eq!(text.lines().count(), PATHS_MAX + 2);
    }
}
