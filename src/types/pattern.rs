//! Patterns of repositories: `owner/name` with `*` for any part of either, or `*` for all.

use std::fmt;

/// A pattern of repositories. It ignores case, as GitHub does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryPattern(String);

impl RepositoryPattern {
    /// Parses `*`, or `owner/name` in which `*` stands for any characters but `/`.
    ///
    /// # Errors
    /// Why the text is not a pattern.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let form_ok = text == "*" || (parts.len() == 2 && parts.iter().all(|p| !p.is_empty()));
        let char_ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*');
        if !form_ok || !parts.iter().all(|part| part.chars().all(char_ok)) {
            return Err("must have the form owner/name, with * for any part of it".into());
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// The name of the only repository that matches; `None` if there may be several.
    pub fn only(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(self.0.as_str())
    }

    /// How many of its characters are no `*`.
    pub fn literal_len(&self) -> usize {
        self.0.chars().filter(|c| *c != '*').count()
    }

    /// Whether a repository (`owner/name`) matches.
    pub fn matches(&self, repository: &str) -> bool {
        if self.0 == "*" {
            return true;
        }
        let repository = repository.to_ascii_lowercase();
        match (self.0.split_once('/'), repository.split_once('/')) {
            (Some((owner_like, name_like)), Some((owner, name))) => {
                part_matches(owner_like.as_bytes(), owner.as_bytes())
                    && part_matches(name_like.as_bytes(), name.as_bytes())
            }
            (None, _) | (_, None) => false,
        }
    }
}

/// Matches with `*` for any bytes. It backtracks only to the last star: linear in practice, at most the
/// product of the lengths.
fn part_matches(like: &[u8], text: &[u8]) -> bool {
    let (mut l, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match like.get(l) {
            Some(b'*') => {
                retry = Some((l, t));
                l += 1;
            }
            Some(byte) if *byte == text[t] => {
                l += 1;
                t += 1;
            }
            Some(_) | None => match &mut retry {
                Some((star, from)) => {
                    *from += 1;
                    (l, t) = (*star + 1, *from);
                }
                None => return false,
            },
        }
    }
    like[l..].iter().all(|byte| *byte == b'*')
}

impl fmt::Display for RepositoryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_part_of_a_name() {
        for (pattern, yes, no) in [
            ("*", &["a/b", "Octo/Hello"][..], &[][..]),
            ("octo/*", &["octo/hello", "OCTO/x"], &["octo2/hello", "a/octo"]),
            ("octo/hello", &["Octo/Hello"], &["octo/hello2", "octo/hell", "xocto/hello"]),
            ("*/hello", &["a/hello"], &["a/hello-2"]),
            ("octo/a*b*c", &["octo/abc", "octo/axbxbxc"], &["octo/abcd", "octo/ac"]),
            ("*/*-agents", &["a/my-agents"], &["a/agents"]),
        ] {
            let pattern = RepositoryPattern::parse(pattern).expect("a valid pattern");
            for repository in yes {
                assert!(pattern.matches(repository), "{pattern} must match {repository}");
            }
            for repository in no {
                assert!(!pattern.matches(repository), "{pattern} must not match {repository}");
            }
        }
    }

    #[test]
    fn patterns_have_one_form() {
        for bad in ["", "octo", "octo/", "/x", "a/b/c", "a b/c", "**/x/y", "a/b?"] {
            assert!(RepositoryPattern::parse(bad).is_err(), "{bad:?} must be refused");
        }
    }
}
