//! `.issueboxignore`: what stays out of versions and is left alone by a pull, in gitignore's syntax.
//!
//! The mark of the cold start is always ignored: it says whose this workspace is, and not another one that
//! a version was pushed from.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The file with the rules, at the top of the workspace.
pub const IGNORE_FILE: &str = ".issueboxignore";

/// Longest file of rules that is read, in bytes.
pub const IGNORE_LEN_MAX: u64 = 1024 * 1024;

/// The mark of the cold start, in the workspace.
pub const COLD_START_MARK: &str = ".issuebox/cold-start";

/// The rules of a workspace.
#[derive(Debug)]
pub struct IgnoreRules(Gitignore);

impl IgnoreRules {
    /// No rules.
    pub fn none() -> Self {
        Self(Gitignore::empty())
    }

    /// Reads rules. A line that is no pattern is passed over, as git does.
    pub fn parse(text: &[u8]) -> Self {
        let mut builder = GitignoreBuilder::new("");
        for line in String::from_utf8_lossy(text).lines() {
            if let Err(error) = builder.add_line(None, line) {
                tracing::debug!(%error, line, "a line of {IGNORE_FILE} is no pattern");
            }
        }
        Self(builder.build().unwrap_or_else(|error| {
            tracing::warn!(%error, "the patterns of {IGNORE_FILE} cannot be used; none applies");
            Gitignore::empty()
        }))
    }

    /// Whether the rules name this path itself. What is below an ignored directory is ignored, too:
    /// [`IgnoredWalk`] knows that.
    fn names(&self, path: &[u8], is_directory: bool) -> bool {
        self.0.matched(Path::new(OsStr::from_bytes(path)), is_directory).is_ignore()
    }
}

/// Rules, applied to paths in the order of a walk: parents before children.
pub struct IgnoredWalk<'a> {
    rules: &'a [IgnoreRules],
    /// The directory that was ignored last, with a slash at its end.
    below: Option<Vec<u8>>,
}

impl<'a> IgnoredWalk<'a> {
    /// A path is ignored if any of these rules says so.
    pub const fn new(rules: &'a [IgnoreRules]) -> Self {
        Self { rules, below: None }
    }

    /// Whether the next path is ignored.
    pub fn is_ignored(&mut self, path: &[u8], is_directory: bool) -> bool {
        if self.below.as_ref().is_some_and(|below| path.starts_with(below)) {
            return true;
        }
        let is_ignored = path == COLD_START_MARK.as_bytes()
            || self.rules.iter().any(|rules| rules.names(path, is_directory));
        if is_ignored && is_directory {
            self.below = Some([path, b"/"].concat());
        }
        is_ignored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_of_gitignore() {
        let text = b"# a comment\n*.log\n!keep.log\n/build\ncache/\n[\ndocs/**/draft\nodd\xff\n";
        let rules = [IgnoreRules::parse(text)];
        let mut walk = IgnoredWalk::new(&rules);
        for (path, is_directory, is_ignored) in [
            (&b"a.log"[..], false, true),
            (b"keep.log", false, false),
            (b"build", true, true),
            (b"build/keep.log", false, true),
            (b"build2", false, false),
            (b"cache", false, false),
            (b"docs", true, false),
            (b"docs/a/b/draft", false, true),
            (b".issuebox", true, false),
            (b".issuebox/cold-start", false, true),
            (b"src", true, false),
            (b"src/build", true, false),
            (b"src/cache", true, true),
            (b"src/cache/x", false, true),
            (b"src/\xff.log", false, true),
            (b"src/\xff", false, false),
        ] {
            let path_shown = String::from_utf8_lossy(path);
            assert_eq!(walk.is_ignored(path, is_directory), is_ignored, "{path_shown}");
        }
        assert!(!IgnoredWalk::new(&[IgnoreRules::none()]).is_ignored(b"a.log", false));
    }
}
