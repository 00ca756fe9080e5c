//! The vocabulary of models: patterns of their names, what their tokens cost, and budgets.

use std::fmt;

use super::{Money, Tokens};

/// A pattern of model names, such as `claude-opus-*`: `*` stands for any characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelPattern(String);

impl ModelPattern {
    /// The longest pattern and the longest name of a model, in bytes.
    pub const LEN_MAX: usize = 128;

    /// Parses a pattern.
    ///
    /// # Errors
    /// Why the text is not a pattern.
    pub fn parse(text: &str) -> Result<Self, String> {
        let char_ok = |c: char| c.is_ascii_alphanumeric() || "*-._:/@[]".contains(c);
        if text.is_empty() || text.len() > Self::LEN_MAX || !text.chars().all(char_ok) {
            return Err("must be a model's name, with * for any part of it".into());
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether a model's name matches.
    pub fn matches(&self, model: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else { return self.0 == model };
        let Some(mut left) = model.strip_prefix(head) else { return false };
        let (between, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        for part in between.split('*') {
            match left.find(part) {
                Some(at) => left = &left[at + part.len()..],
                None => return false,
            }
        }
        left.ends_with(tail)
    }

    /// How many characters it fixes: of two that match, the one that fixes more counts.
    pub fn fixed_len(&self) -> usize {
        self.0.chars().filter(|c| *c != '*').count()
    }
}

impl fmt::Display for ModelPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What one token of a model costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenPrice {
    /// Input that is in no cache.
    pub input: Money,
    /// Output.
    pub output: Money,
    /// Input that is read from the model's cache.
    pub cache_read: Money,
    /// Input that is written to the model's cache for five minutes.
    pub cache_write: Money,
}

impl TokenPrice {
    /// From dollars for a million tokens: input, output, cache reads, cache writes. `None` if one of
    /// them is no amount.
    pub fn per_million([input, output, cache_read, cache_write]: [f64; 4]) -> Option<Self> {
        let for_one = |dollars: f64| Money::from_dollars(dollars / 1e6);
        Some(Self {
            input: for_one(input)?,
            output: for_one(output)?,
            cache_read: for_one(cache_read)?,
            cache_write: for_one(cache_write)?,
        })
    }

    /// What these tokens cost.
    pub fn cost(&self, tokens: &Tokens) -> Money {
        let Tokens { input, output, cache_read, cache_write } = *tokens;
        self.input.times(input)
            + self.output.times(output)
            + self.cache_read.times(cache_read)
            + self.cache_write.times(cache_write)
    }

    /// The dearest way to read one token of input.
    pub fn dearest_input(&self) -> Money {
        self.input.max(self.cache_read).max(self.cache_write)
    }

    /// The dearer one of each kind of token.
    #[must_use]
    pub fn dearest(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cache_read: self.cache_read.max(other.cache_read),
            cache_write: self.cache_write.max(other.cache_write),
        }
    }
}

/// How much may be spent on models. [`Money::ZERO`] is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelBudgets {
    /// For one run.
    pub run: Money,
    /// For one issue, over all of its runs.
    pub issue: Money,
    /// For one account in a day (UTC).
    pub account_per_day: Money,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_part_of_a_models_name() {
        for (pattern, yes, no) in [
            ("*", &["", "claude-opus-5-5"][..], &[][..]),
            ("claude-*", &["claude-", "claude-haiku-5-5"], &["Claude-x", "my-claude-x"]),
            ("gpt-5", &["gpt-5"], &["gpt-5.5", "gpt-"]),
            ("*-mini", &["gpt-5-mini"], &["gpt-5-mini-x"]),
            ("a*b*c", &["abc", "axbxbxc"], &["abcd", "ac", "acb"]),
            ("a*by*a", &["abya", "a-by-a"], &["aya", "by"]),
            ("aa*aa", &["aaaa", "aa-aa"], &["aaa"]),
        ] {
            let pattern = ModelPattern::parse(pattern).expect("a valid pattern");
            for model in yes {
                assert!(pattern.matches(model), "{pattern} must match {model}");
            }
            for model in no {
                assert!(!pattern.matches(model), "{pattern} must not match {model}");
            }
        }
        let long = "a".repeat(ModelPattern::LEN_MAX + 1);
        for bad in ["", "a b", "a\"", "ü", &long] {
            assert!(ModelPattern::parse(bad).is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn tokens_are_priced_to_a_billionth_of_a_dollar() {
        let price = TokenPrice::per_million([4.0, 20.0, 0.2, 5.0]).expect("amounts");
        let tokens = Tokens { input: 1_000_000, output: 100, cache_read: 10, cache_write: 1 };
        assert_eq!(price.cost(&tokens).nano_dollars(), 4_000_000_000 + 2_000_000 + 2_000 + 5_000);
        assert_eq!(TokenPrice::per_million([4.0, -1.0, 0.2, 5.0]), None);
    }
}
