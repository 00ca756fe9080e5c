//! What models cost: the operator's prices first, then a built-in table.

use crate::types::{ModelPattern, TokenPrice};

/// The day on which the built-in prices were looked up at the makers' pages.
pub const PRICES_AS_OF: &str = "2026-11-30";

/// List prices in dollars for a million tokens: input, output, cache reads, cache writes for five
/// minutes. Where a price grows with the length of a prompt, it is the highest one. OpenAI's
/// caches are written at the price of input.
const BUILT_IN: [(&str, [f64; 4]); 27] = [
    ("claude-fable-*", [10.0, 50.0, 1.0, 12.5]),
    ("claude-fable-5-1*", [10.0, 50.0, 0.25, 12.5]),
    ("claude-mythos-*", [10.0, 50.0, 1.0, 12.5]),
    ("claude-mythos-5-1*", [10.0, 50.0, 0.25, 12.5]),
    ("claude-opus-*", [5.0, 25.0, 0.5, 6.25]),
    ("claude-opus-5-5*", [4.0, 20.0, 0.2, 5.0]),
    ("claude-opus-4-1*", [15.0, 75.0, 1.5, 18.75]),
    ("claude-opus-4-0*", [15.0, 75.0, 1.5, 18.75]),
    ("claude-opus-4-2025*", [15.0, 75.0, 1.5, 18.75]),
    ("claude-sonnet-*", [3.0, 15.0, 0.3, 3.75]),
    ("claude-sonnet-5*", [2.0, 10.0, 0.2, 2.5]),
    ("claude-sonnet-5-5*", [2.0, 10.0, 0.1, 2.5]),
    ("claude-haiku-*", [1.0, 5.0, 0.1, 1.25]),
    ("claude-haiku-5-5*", [0.5, 2.5, 0.05, 0.625]),
    ("claude-3-5-haiku-*", [0.8, 4.0, 0.08, 1.0]),
    ("claude-3-7-sonnet-*", [3.0, 15.0, 0.3, 3.75]),
    ("gpt-5", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5-codex*", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5-mini*", [0.25, 2.0, 0.025, 0.25]),
    ("gpt-5.1*", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5.2*", [1.75, 14.0, 0.175, 1.75]),
    ("gpt-5.3*", [1.75, 14.0, 0.175, 1.75]),
    ("gpt-5.4*", [2.5, 15.0, 0.25, 2.5]),
    ("gpt-5.4-mini*", [0.75, 4.5, 0.075, 0.75]),
    ("gpt-5.4-nano*", [0.2, 1.25, 0.02, 0.2]),
    ("gpt-5.5*", [5.0, 30.0, 0.5, 5.0]),
    ("gpt-5*-pro*", [30.0, 180.0, 30.0, 30.0]),
];

/// The price of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelPrice {
    /// The price.
    pub price: TokenPrice,
    /// Whether a pattern matched. Otherwise it is that of the dearest model known.
    pub is_known: bool,
}

/// Prices by the pattern of a model's name. Among the patterns that match, the operator's come first,
/// and then the one that fixes more characters.
#[derive(Clone, Debug)]
pub struct PriceTable {
    configured: Vec<(ModelPattern, TokenPrice)>,
    built_in: Vec<(ModelPattern, TokenPrice)>,
    dearest: TokenPrice,
}

impl PriceTable {
    /// The built-in prices behind those of the configuration.
    pub fn new(configured: Vec<(ModelPattern, TokenPrice)>) -> Self {
        let built_in: Vec<_> =
            BUILT_IN.iter().map(|(name, prices)| parsed(name, *prices)).collect();
        let all = configured.iter().chain(&built_in);
        let dearest =
            all.fold(TokenPrice::default(), |dearest, (_, price)| dearest.dearest(*price));
        Self { configured, built_in, dearest }
    }

    /// What a model costs.
    pub fn of(&self, model: &str) -> ModelPrice {
        let best = |table: &[(ModelPattern, TokenPrice)]| {
            let matching = table.iter().filter(|(pattern, _)| pattern.matches(model));
            matching.max_by_key(|(pattern, _)| pattern.fixed_len()).map(|(_, price)| *price)
        };
        match best(&self.configured).or_else(|| best(&self.built_in)) {
            Some(price) => ModelPrice { price, is_known: true },
            None => ModelPrice { price: self.dearest, is_known: false },
        }
    }
}

fn parsed(name: &str, prices: [f64; 4]) -> (ModelPattern, TokenPrice) {
    let pattern = ModelPattern::parse(name).expect("the built-in patterns are valid");
    (pattern, TokenPrice::per_million(prices).expect("the built-in prices are amounts"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Money;

    fn output_of(table: &PriceTable, model: &str) -> (f64, bool) {
        let found = table.of(model);
        (found.price.output.dollars() * 1e6, found.is_known)
    }

    #[test]
    fn the_closest_pattern_counts_and_an_unknown_model_is_the_dearest() {
        let table = PriceTable::new(Vec::new());
        for (model, output) in [
            ("claude-opus-5-5", 20.0),
            ("claude-opus-5-5-20261001", 20.0),
            ("claude-opus-5", 25.0),
            ("claude-opus-4-1-20250805", 75.0),
            ("claude-opus-4-20250514", 75.0),
            ("claude-opus-4-5", 25.0),
            ("claude-sonnet-5", 10.0),
            ("claude-sonnet-4-6", 15.0),
            ("claude-haiku-5-5", 2.5),
            ("gpt-5", 10.0),
            ("gpt-5.5", 30.0),
            ("gpt-5.5-pro", 180.0),
            ("gpt-5.4-mini", 4.5),
        ] {
            assert_eq!(output_of(&table, model), (output, true), "{model}");
        }
        assert_eq!(output_of(&table, "stub-1"), (180.0, false));
        assert_eq!(output_of(&table, "gpt-4"), (180.0, false));
    }

    #[test]
    fn the_operators_prices_come_before_closer_built_in_ones() {
        let dear = parsed("*", [1_000.0, 2_000.0, 1.0, 1.0]);
        let own = parsed("claude-*", [1.0, 2.0, 3.0, 4.0]);
        let table = PriceTable::new(vec![own.clone()]);
        assert_eq!(table.of("claude-opus-5-5"), ModelPrice { price: own.1, is_known: true });
        assert_eq!(output_of(&table, "gpt-5.5"), (30.0, true));
        let table = PriceTable::new(vec![dear, own]);
        assert_eq!(output_of(&table, "claude-opus-5-5"), (2.0, true));
        assert_eq!(output_of(&table, "stub"), (2_000.0, true));
    }

    #[test]
    fn a_dearer_price_of_the_operator_is_that_of_unknown_models() {
        let table = PriceTable::new(vec![parsed("my-*", [0.0, 999.0, 0.0, 0.0])]);
        let unknown = table.of("other");
        assert_eq!(unknown.price.output, Money::from_dollars(999.0 / 1e6).expect("an amount"));
        assert!(!unknown.is_known);
    }
}
