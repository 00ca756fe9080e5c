//! `[models]`, `[budgets]`, `[prices]`: the models that agents may ask, and what that may cost.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::types::{ModelBudgets, ModelPattern, Money, PerRepository, Secret, TokenPrice};

use super::github::encrypted;
use super::reader::ConfigReader;
use super::sections::{token_of, web_address};

/// Where the endpoints are whose names are known.
const KNOWN_ENDPOINTS: [(&str, &str); 2] =
    [("anthropic", "https://api.anthropic.com"), ("openai", "https://api.openai.com")];
/// Most tokens of output of one request. claude asks for 32,000 where it knows no better.
const MAX_TOKENS: u64 = 32_000;
/// The longest silence of a model, in seconds. Agents themselves wait for five minutes.
const SILENCE_SECONDS: u64 = 120;
const SILENCE_RANGE: RangeInclusive<u64> = 1..=300;
/// The highest amount, in dollars: for a million tokens, and for a budget.
const DOLLARS_MAX: f64 = 1e6;

/// What agents may ask models, and what that may cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelsConfig {
    /// `[models.NAME]`, by name.
    pub endpoints: BTreeMap<String, EndpointConfig>,
    /// `[budgets]`, and what `[repositories]` says of them.
    pub budgets: PerRepository<ModelBudgets>,
    /// `[prices."PATTERN"]`
    pub prices: Vec<(ModelPattern, TokenPrice)>,
}

/// `[models.NAME]`
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointConfig {
    /// `base_url`, without `/v1`.
    pub base_url: String,
    /// The content of `key_file`.
    pub key: Secret,
    /// `models`: which may be asked.
    pub models: Vec<ModelPattern>,
    /// `max_tokens`: most tokens of output of one request.
    pub max_tokens: u64,
    /// `silence_seconds`: the longest silence of the model.
    pub silence: Duration,
}

/// Reads all of it.
pub(super) fn models(r: &mut ConfigReader) -> ModelsConfig {
    ModelsConfig { endpoints: endpoints(r), budgets: budgets(r).into(), prices: prices(r) }
}

fn endpoints(r: &mut ConfigReader) -> BTreeMap<String, EndpointConfig> {
    let mut endpoints = BTreeMap::new();
    for name in r.table_names("models") {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if !name.chars().all(is_name) {
            r.trouble(format!("models.{name} must have a name of a-z, 0-9, - and _"));
        }
        if let Some(endpoint) = endpoint(r, &name) {
            endpoints.insert(name, endpoint);
        }
    }
    endpoints
}

fn endpoint(r: &mut ConfigReader, name: &str) -> Option<EndpointConfig> {
    let key = |part: &str| format!("models.{name}.{part}");
    let before = r.problems();
    let known = KNOWN_ENDPOINTS.iter().find(|(known, _)| *known == name);
    let default = known.map_or(String::new(), |(_, url)| (*url).to_owned());
    let base_url = r.parsed(&key("base_url"), default, |text| {
        let address = web_address(text).and_then(encrypted)?;
        match address.ends_with("/v1") || address.contains(['?', '#']) {
            true => Err("must be written without /v1 and without a query".to_owned()),
            false => Ok(address),
        }
    });
    let path = r.path(&key("key_file"), None);
    let given = path.map(|path| r.secret_file(path).and_then(|text| token_of(&text)));
    let mut models = Vec::new();
    for text in r.texts(&key("models"), &["*"]) {
        match ModelPattern::parse(&text) {
            Ok(pattern) => models.push(pattern),
            Err(needed) => r.wrong(&key("models"), &format!("{needed}, not {text:?}")),
        }
    }
    let max_tokens = r.number(&key("max_tokens"), MAX_TOKENS, 1..=1_000_000);
    let silence = r.number(&key("silence_seconds"), SILENCE_SECONDS, SILENCE_RANGE);
    let silence = Duration::from_secs(silence);
    // A value of the wrong kind has been reported already.
    if base_url.is_empty() && r.problems() == before {
        r.trouble(format!("models.{name} needs base_url"));
    }
    match given {
        Some(Ok(key)) => Some(EndpointConfig { base_url, key, models, max_tokens, silence }),
        // The error does not contain the value.
        Some(Err(needed)) => {
            r.wrong(&key("key_file"), &needed);
            None
        }
        None if r.problems() == before => {
            r.trouble(format!("models.{name} needs key_file, a file with the key"));
            None
        }
        None => None,
    }
}

fn budgets(r: &mut ConfigReader) -> ModelBudgets {
    let mut amount = |key: &str, default: f64| {
        let dollars = r.fraction(&format!("budgets.{key}"), default, 0.0..=DOLLARS_MAX);
        Money::from_dollars(dollars).unwrap_or_default()
    };
    ModelBudgets {
        run: amount("run", 5.0),
        issue: amount("issue", 10.0),
        account_per_day: amount("account_per_day", 50.0),
    }
}

/// The budgets of a repository: what it does not say is as everywhere.
pub(super) fn budgets_of(
    r: &mut ConfigReader,
    key: &impl Fn(&str) -> String,
    usual: &ModelBudgets,
) -> ModelBudgets {
    let mut amount = |part: &str, usual: Money| {
        let key = key(part);
        let dollars = r.fraction(&key, 0.0, 0.0..=DOLLARS_MAX);
        let given = r.origin(&key).and_then(|_| Money::from_dollars(dollars));
        given.unwrap_or(usual)
    };
    ModelBudgets {
        run: amount("budget.run", usual.run),
        issue: amount("budget.issue", usual.issue),
        account_per_day: usual.account_per_day,
    }
}

fn prices(r: &mut ConfigReader) -> Vec<(ModelPattern, TokenPrice)> {
    let mut prices = Vec::new();
    for name in r.table_names("prices") {
        let (section, before) = (format!("prices.{name}"), r.problems());
        let mut amount = |key: &str| {
            let key = format!("{section}.{key}");
            let dollars = r.fraction(&key, 0.0, 0.0..=DOLLARS_MAX);
            r.origin(&key).map(|_| dollars)
        };
        let given =
            [amount("input"), amount("output"), amount("cache_read"), amount("cache_write")];
        let pattern = match ModelPattern::parse(name.trim_matches('"')) {
            Ok(pattern) => pattern,
            Err(needed) => {
                r.trouble(format!("{section} {needed}"));
                continue;
            }
        };
        let [Some(input), Some(output), cache_read, cache_write] = given else {
            if r.problems() == before {
                r.trouble(format!("{section} needs input and output"));
            }
            continue;
        };
        // A cache costs no less than is counted.
        let cache = [cache_read.unwrap_or(input), cache_write.unwrap_or(input * 1.25)];
        let all = TokenPrice::per_million([input, output, cache[0], cache[1]]);
        prices.extend(all.map(|price| (pattern, price)));
    }
    prices
}
