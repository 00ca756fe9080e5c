//! A value for each repository: what counts for all, and what counts for those that a pattern matches.
//!
//! The most specific pattern wins, and it alone: nothing is merged. The name of one repository is more
//! specific than any pattern with `*`; of two patterns the one with more characters other than `*` is; of
//! equally many the one that comes first in the order of their text.

use std::cmp::Reverse;

use super::{Repository, RepositoryPattern};

/// A value for each repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerRepository<T> {
    usual: T,
    /// The most specific one first.
    others: Vec<(RepositoryPattern, T)>,
}

impl<T> PerRepository<T> {
    /// `usual` for all repositories but those that one of these patterns matches. Where they change
    /// nothing at all, it is the same as without them.
    pub fn new(usual: T, mut others: Vec<(RepositoryPattern, T)>) -> Self
    where
        T: PartialEq,
    {
        if others.iter().all(|(_, value)| *value == usual) {
            others.clear();
        }
        others.sort_by_cached_key(|(pattern, _)| {
            let literal = pattern.literal_len();
            (pattern.only().is_none(), Reverse(literal), pattern.to_string())
        });
        Self { usual, others }
    }

    /// The value for a repository; for none, what counts for all.
    pub fn of<'a>(&self, repository: impl Into<Option<&'a Repository>>) -> &T {
        let Some(repository) = repository.into() else { return &self.usual };
        let matching = self.others.iter().find(|(pattern, _)| pattern.matches(repository.as_str()));
        matching.map_or(&self.usual, |(_, value)| value)
    }

    /// What counts where no pattern matches.
    pub const fn usual(&self) -> &T {
        &self.usual
    }

    /// The patterns, the most specific one first, and the value of each.
    pub fn others(&self) -> &[(RepositoryPattern, T)] {
        &self.others
    }

    /// Every value.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.usual).chain(self.others.iter().map(|(_, value)| value))
    }

    /// What `convert` makes of each value.
    pub fn map<U>(&self, mut convert: impl FnMut(&T) -> U) -> PerRepository<U> {
        let others = self.others.iter();
        let usual = convert(&self.usual);
        PerRepository {
            usual,
            others: others.map(|(pattern, value)| (pattern.clone(), convert(value))).collect(),
        }
    }
}

impl<T> From<T> for PerRepository<T> {
    /// The same for all repositories.
    fn from(usual: T) -> Self {
        Self { usual, others: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(patterns: &[&str]) -> PerRepository<String> {
        let others = patterns.iter().map(|text| {
            let pattern = RepositoryPattern::parse(text).expect("a pattern");
            (pattern, (*text).to_owned())
        });
        PerRepository::new("usual".to_owned(), others.collect())
    }

    #[test]
    fn the_most_specific_pattern_wins_whatever_their_order() {
        let patterns = ["*", "octo/*", "*/hello", "octo/hel*", "octo/hello", "octo/*lo*"];
        let reversed: Vec<&str> = patterns.iter().rev().copied().collect();
        for values in [of(&patterns), of(&reversed)] {
            for (repository, wanted) in [
                ("Octo/Hello", "octo/hello"),
                ("octo/help", "octo/hel*"),
                ("octo/hello2", "octo/hel*"),
                ("octo/along", "octo/*lo*"),
                ("octo/x", "octo/*"),
                ("mona/hello", "*/hello"),
                ("mona/x", "*"),
            ] {
                let name = Repository::parse(repository).expect("a name");
                assert_eq!(values.of(&name), wanted, "{repository}");
            }
        }
    }

    #[test]
    fn of_equally_specific_patterns_the_first_by_name_wins() {
        let name = Repository::parse("octo/hello").expect("a name");
        for patterns in [["octo/*o", "octo/h*"], ["octo/h*", "octo/*o"]] {
            assert_eq!(of(&patterns).of(&name), "octo/*o");
        }
    }

    #[test]
    fn patterns_that_change_nothing_are_left_out_and_one_that_shields_is_not() {
        let pattern = |text: &str| RepositoryPattern::parse(text).expect("a pattern");
        let same = PerRepository::new(1, vec![(pattern("octo/*"), 1)]);
        assert_eq!(same, PerRepository::from(1));
        let shielded = PerRepository::new(1, vec![(pattern("octo/*"), 2), (pattern("octo/a"), 1)]);
        let name = Repository::parse("octo/a").expect("a name");
        assert_eq!(shielded.of(&name), &1);
    }

    #[test]
    fn without_a_pattern_that_matches_the_usual_value_counts() {
        let name = Repository::parse("octo/hello").expect("a name");
        assert_eq!(of(&["mona/*"]).of(&name), "usual");
        assert_eq!(of(&["*"]).of(None), "usual", "no repository is known");
        assert_eq!(PerRepository::from(1).of(&name), &1);
        let doubled = of(&["octo/*"]).map(|text| text.len());
        assert_eq!((doubled.of(&name), doubled.usual()), (&6, &5));
    }
}
