//! `[models]`, `[budgets]` and `[prices]`.

use super::*;
use crate::types::{ModelPattern, Money, TokenPrice};

/// A configuration with a key in a file.
fn with_key(text: &str) -> Result<Loaded, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let key = dir.path().join("key");
    std::fs::write(&key, "sk-hush\n").expect("written");
    load(&text.replace("KEY", &format!("key_file = {key:?}")))
}

fn dollars(amount: f64) -> Money {
    Money::from_dollars(amount).expect("an amount")
}

#[test]
fn an_endpoint_needs_a_key_and_the_known_ones_nothing_else() {
    let text = "[models.anthropic]\nKEY\n[models.mine]\nbase_url = \"http://127.0.0.1:9/x/\"\nKEY\n\
                models = [\"m-*\"]\nmax_tokens = 7\nsilence_seconds = 9";
    let models = with_key(text).expect("a good configuration").config.models;
    let anthropic = &models.endpoints["anthropic"];
    assert_eq!(anthropic.base_url, "https://api.anthropic.com");
    assert_eq!((anthropic.key.expose(), anthropic.max_tokens), ("sk-hush", 32_000));
    assert!(anthropic.models[0].matches("claude-x"));
    let mine = &models.endpoints["mine"];
    assert_eq!((mine.base_url.as_str(), mine.max_tokens), ("http://127.0.0.1:9/x", 7));
    assert_eq!([anthropic.silence.as_secs(), mine.silence.as_secs()], [120, 9]);
    assert_eq!(mine.models, [ModelPattern::parse("m-*").expect("a pattern")]);
    assert!(!format!("{models:?}").contains("hush"));
}

#[test]
fn errors_name_the_key_of_an_endpoint() {
    for (text, words) in [
        ("[models.anthropic]", "models.anthropic needs key_file"),
        ("[models.anthropic]\nmodels = []", "models.anthropic needs key_file"),
        ("[models.mine]\nKEY", "models.mine needs base_url"),
        (
            "[models.anthropic]\nKEY\nbase_url = \"https://a.example/v1\"",
            "anthropic.base_url must be",
        ),
        (
            "[models.anthropic]\nKEY\nbase_url = \"http://a.example\"",
            "anthropic.base_url must begin",
        ),
        (
            "[models.anthropic]\nKEY\nmodels = [\"a b\"]",
            "models.anthropic.models must be a model's",
        ),
        (
            "[models.anthropic]\nkey_file = \"/nowhere/x\"",
            "models.anthropic.key_file cannot be read",
        ),
        ("[models.anthropic]\nkey_file = \"/dev/null\"", "models.anthropic.key_file is empty"),
        ("[models.anthropic]\nKEY\nmax_tokens = 0", "models.anthropic.max_tokens must be"),
        ("[models.anthropic]\nKEY\nsilence_seconds = 301", "anthropic.silence_seconds must be"),
        ("[models.\"a b\"]\nbase_url = \"https://a.example\"\nKEY", "must have a name of a-z"),
        ("[models.anthropic]\nKEY\nkey = \"sk\"", "unknown key models.anthropic.key"),
    ] {
        let error = with_key(text).expect_err(text);
        assert!(error.contains(words), "{text}: {error}");
        assert!(!error.contains("hush"), "{error}");
    }
}

#[test]
fn budgets_are_dollars_and_zero_is_no_limit() {
    let budgets = *load("").expect("good").config.models.budgets.usual();
    assert_eq!(budgets.run, dollars(5.0));
    assert_eq!((budgets.issue, budgets.account_per_day), (dollars(10.0), dollars(50.0)));
    let loaded = load("[budgets]\nrun = 0\nissue = 0.25").expect("good");
    let budgets = *loaded.config.models.budgets.usual();
    assert_eq!((budgets.run, budgets.issue), (Money::ZERO, dollars(0.25)));
    let wrong = error_of("[budgets]\nrun = -1");
    assert!(wrong.contains("budgets.run must be a number from 0 to"), "{wrong}");
}

#[test]
fn prices_have_patterns_also_with_dots() {
    let text = "[prices.\"gpt-5.5*\"]\ninput = 1\noutput = 2.5\n\
                [prices.claude-x]\ninput = 4\noutput = 20\ncache_read = 0.2\ncache_write = 5";
    let prices = load(text).expect("good").config.models.prices;
    let price = |amounts| TokenPrice::per_million(amounts).expect("amounts");
    let found = |name: &str| {
        let pattern = ModelPattern::parse(name).expect("a pattern");
        prices.iter().find(|(of, _)| *of == pattern).expect("it is there").1
    };
    assert_eq!(found("gpt-5.5*"), price([1.0, 2.5, 1.0, 1.25]), "a cache is not cheaper");
    assert_eq!(found("claude-x"), price([4.0, 20.0, 0.2, 5.0]));
    for (text, words) in [
        ("[prices.x]\ninput = 1", "prices.x needs input and output"),
        ("[prices.\"x y\"]\ninput = 1\noutput = 1", "must be a model's name"),
        ("[prices.x]\ninput = -1\noutput = 1", "prices.x.input must be a number"),
        ("[prices.x]\ninput = 1\noutput = 1\ncached = 1", "unknown key prices.x.cached"),
    ] {
        let error = error_of(text);
        assert!(error.contains(words), "{text}: {error}");
    }
}
