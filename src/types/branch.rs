//! The branch on which a sandbox works: `issuebox/issue-12`, or the next name when that one belongs to
//! other people.
//!
//! # Guarantees
//! A name that comes out of here is a valid branch of git, holds no word of an issue's title, and
//! begins with no dash.

use super::IssueNumber;

/// The pattern when the configuration has none.
pub const BRANCH_PATTERN_DEFAULT: &str = "issuebox/issue-{number}";

/// What stands for the issue's number in a pattern.
const NUMBER: &str = "{number}";
/// Longest pattern, in bytes: GitHub refuses refs of more than 255, `refs/heads/` included.
const PATTERN_LEN_MAX: usize = 200;
/// The highest number that is put behind a name.
const SUFFIX_MAX: u8 = 9;

/// How branches are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchPattern(String);

impl BranchPattern {
    /// Reads a pattern such as `issuebox/issue-{number}`.
    ///
    /// # Errors
    /// What a pattern must be, in words, when this is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.matches(NUMBER).count() != 1 {
            return Err(format!("must contain {NUMBER} once"));
        }
        if text.len() > PATTERN_LEN_MAX {
            return Err(format!("must have at most {PATTERN_LEN_MAX} bytes"));
        }
        let pattern = Self(text.to_owned());
        match pattern.name(IssueNumber(1), 1) {
            name if is_branch(&name) => Ok(pattern),
            name => Err(format!("must make a branch's name by git's rules, and {name:?} is none")),
        }
    }

    /// The names for an issue, in the order in which they are tried: the second ends with `-2`, the
    /// last one with `-9`.
    pub fn names(&self, number: IssueNumber) -> impl Iterator<Item = String> {
        (1..=SUFFIX_MAX).map(move |suffix| self.name(number, suffix))
    }

    fn name(&self, number: IssueNumber, suffix: u8) -> String {
        let name = self.0.replace(NUMBER, &number.0.to_string());
        if suffix == 1 { name } else { format!("{name}-{suffix}") }
    }
}

impl Default for BranchPattern {
    fn default() -> Self {
        Self(BRANCH_PATTERN_DEFAULT.to_owned())
    }
}

/// Whether this is a branch's name by the rules of `git check-ref-format --branch`.
pub fn is_branch(name: &str) -> bool {
    let is_forbidden = |c: char| c.is_control() || " ~^:?*[\\\u{7f}".contains(c);
    let part_ok =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    !name.contains(is_forbidden)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && !name.starts_with('-')
        && !matches!(name, "@" | "HEAD")
        && name.split('/').all(part_ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_an_issue_end_at_nine() {
        let names: Vec<String> = BranchPattern::default().names(IssueNumber(12)).collect();
        assert_eq!(names.len(), 9);
        assert_eq!(names[0], "issuebox/issue-12");
        assert_eq!(names[1], "issuebox/issue-12-2");
        assert_eq!(names[8], "issuebox/issue-12-9");
    }

    #[test]
    fn a_pattern_must_make_a_ref() {
        assert_eq!(BranchPattern::parse(BRANCH_PATTERN_DEFAULT), Ok(BranchPattern::default()));
        assert!(BranchPattern::parse("agents/{number}/work").is_ok());
        for wrong in [
            "agent",
            "{number}{number}",
            "-{number}",
            "a b{number}",
            "a..{number}",
            "/{number}",
            "{number}/",
            "a//{number}",
            ".a/{number}",
            "a/.{number}",
            "{number}.lock",
            "{number}.",
            "a~{number}",
            "a^{number}",
            "a:{number}",
            "a?{number}",
            "a*{number}",
            "a[{number}",
            "a\\{number}",
            "a@{{number}",
            "a\u{7f}{number}",
            "a\n{number}",
        ] {
            assert!(BranchPattern::parse(wrong).is_err(), "{wrong:?}");
        }
        let long = format!("{}{{number}}", "a".repeat(PATTERN_LEN_MAX));
        assert!(BranchPattern::parse(&long).is_err());
        assert!(!is_branch("@") && !is_branch("HEAD") && !is_branch(""));
    }
}
