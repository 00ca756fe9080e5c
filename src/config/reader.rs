//! Typed access to flat values. Each key that is read becomes a known key; all others are unknown. So
//! the code that reads the keys is also their list.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::error::Problem;
use super::source::{ConfigValue, Sources, Value, ValueOrigin};

/// Reads values by key and collects problems.
pub(super) struct ConfigReader {
    entries: BTreeMap<String, ConfigValue>,
    /// The variables of the environment that are no keys, for secrets.
    variables: BTreeMap<String, String>,
    known: BTreeSet<String>,
    set: BTreeMap<String, ValueOrigin>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
    secret_files: Vec<PathBuf>,
}

impl ConfigReader {
    pub fn new(sources: Sources) -> Self {
        Self {
            entries: sources.entries,
            variables: sources.variables,
            known: BTreeSet::new(),
            set: BTreeMap::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            secret_files: Vec::new(),
        }
    }

    /// The names of the subsections of a section.
    pub fn names_below(&self, section: &str) -> BTreeSet<String> {
        let below = self.entries.keys().filter_map(|key| {
            let rest = key.strip_prefix(section)?.strip_prefix('.')?;
            // A name with a dot is in quotes.
            let quoted = rest.strip_prefix('"').and_then(|rest| Some(rest.find('"')? + 2));
            let len = quoted.or_else(|| rest.find('.')).unwrap_or(rest.len());
            Some(rest[..len].to_owned())
        });
        below.collect()
    }

    /// A raw value; `None` if it was not set.
    pub fn take(&mut self, key: &str) -> Option<ConfigValue> {
        self.known.insert(key.to_owned());
        let entry = self.entries.remove(key)?;
        self.set.insert(key.to_owned(), entry.origin.clone());
        Some(entry)
    }

    /// Where a key that was read before was set.
    pub fn origin(&self, key: &str) -> Option<ValueOrigin> {
        self.set.get(key).cloned()
    }

    /// The names in a table whose names are free. The table may be empty.
    pub fn table_names(&mut self, table: &str) -> BTreeSet<String> {
        if self.entries.get(table).is_some_and(|entry| entry.value == Value::EmptySection) {
            self.entries.remove(table);
        }
        self.names_below(table)
    }

    /// A text; `None` if it is not given or not a text.
    pub fn text_if_given(&mut self, key: &str) -> Option<String> {
        self.read(key, None, |value| text_of(value).map(Some), "a text")
    }

    /// A variable of the environment.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    /// Whether a key that was read before came from the environment.
    pub fn is_variable(&self, key: &str) -> bool {
        matches!(self.set.get(key), Some(ValueOrigin::Variable(_)))
    }

    /// The content of a file with a secret.
    pub fn secret_file(&mut self, path: PathBuf) -> Result<String, String> {
        let content = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot be read from {}: {error}", path.display()));
        self.secret_files.push(path);
        content
    }

    /// The files with secrets that were read.
    pub fn take_secret_files(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.secret_files)
    }

    /// How many problems there are so far.
    pub fn problems(&self) -> usize {
        self.problems.len()
    }

    /// Records that the value of a key is wrong.
    pub fn wrong(&mut self, key: &str, message: &str) {
        self.problems
            .push(Problem { origin: self.origin(key), message: format!("{key} {message}") });
    }

    /// Records a problem that is not about one key.
    pub fn trouble(&mut self, message: String) {
        self.problems.push(Problem { origin: None, message });
    }

    /// Records what people should know, and that is not about one key.
    pub fn note(&mut self, message: String) {
        self.warnings.push(message);
    }

    /// Records what people should know of a key that was set.
    pub fn warn(&mut self, key: &str, message: &str) {
        if let Some(origin) = self.origin(key) {
            self.warnings.push(format!("{origin}: {key} {message}"));
        }
    }

    /// A value converted by `convert`; `needed` says what it must be: "must be …".
    fn read<T>(
        &mut self,
        key: &str,
        default: T,
        convert: impl FnOnce(&Value) -> Option<T>,
        needed: &str,
    ) -> T {
        let Some(entry) = self.take(key) else { return default };
        convert(&entry.value).unwrap_or_else(|| {
            self.wrong(key, &format!("must be {needed}, not {}", shown(&entry.value)));
            default
        })
    }

    /// A text.
    pub fn text(&mut self, key: &str, default: &str) -> String {
        self.read(key, default.to_owned(), text_of, "a text")
    }

    /// A text parsed by `parse`, whose error says what is needed: "must …".
    pub fn parsed<T>(
        &mut self,
        key: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        let Some(entry) = self.take(key) else { return default };
        let parsed = match text_of(&entry.value) {
            Some(text) => parse(&text),
            None => Err("must be a text".to_owned()),
        };
        parsed.unwrap_or_else(|needed| {
            self.wrong(key, &format!("{needed}, not {}", shown(&entry.value)));
            default
        })
    }

    /// A path; an empty one is wrong.
    pub fn path(&mut self, key: &str, default: Option<PathBuf>) -> Option<PathBuf> {
        let path = |text: &str| match text {
            "" => Err("must be a path".to_owned()),
            text => Ok(Some(PathBuf::from(text))),
        };
        self.parsed(key, default, path)
    }

    /// A whole number within bounds.
    pub fn number(&mut self, key: &str, default: u64, range: RangeInclusive<u64>) -> u64 {
        let needed = match *range.end() {
            u64::MAX => format!("a whole number from {}", range.start()),
            end => format!("a whole number from {} to {end}", range.start()),
        };
        let convert = |value: &Value| number_of(value).filter(|number| range.contains(number));
        self.read(key, default, convert, &needed)
    }

    /// A number within bounds.
    pub fn fraction(&mut self, key: &str, default: f64, range: RangeInclusive<f64>) -> f64 {
        let needed = format!("a number from {} to {}", range.start(), range.end());
        let convert = |value: &Value| fraction_of(value).filter(|number| range.contains(number));
        self.read(key, default, convert, &needed)
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &str, default: bool) -> bool {
        self.read(key, default, flag_of, "true or false")
    }

    /// A list of texts.
    pub fn texts(&mut self, key: &str, default: &[&str]) -> Vec<String> {
        let default = default.iter().map(|text| (*text).to_owned()).collect();
        self.read(key, default, |value| list_of(value, text_of), "a list of texts")
    }

    /// A list of whole numbers.
    pub fn numbers(&mut self, key: &str) -> Vec<u64> {
        self.read(key, Vec::new(), |value| list_of(value, number_of), "a list of whole numbers")
    }

    /// Ends the reading; keys that were not read are unknown.
    ///
    /// # Errors
    /// All problems, those of values first.
    pub fn finish(mut self) -> Result<Vec<String>, Vec<Problem>> {
        for (key, entry) in &self.entries {
            let is_section = self
                .known
                .iter()
                .any(|known| known.strip_prefix(key.as_str()).is_some_and(|r| r.starts_with('.')));
            let message = match (&entry.value, is_section) {
                (Value::EmptySection, true) => continue,
                (_, true) => format!("{key} is a section, not a value"),
                (_, false) => match self.nearest(key) {
                    Some(known) => format!("unknown key {key}; did you mean {known}?"),
                    None => format!("unknown key {key}"),
                },
            };
            self.problems.push(Problem { origin: Some(entry.origin.clone()), message });
        }
        if self.problems.is_empty() { Ok(self.warnings) } else { Err(self.problems) }
    }

    /// The known key that is most similar to an unknown one, if any is similar enough.
    fn nearest(&self, key: &str) -> Option<&str> {
        let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        let likeness = |known: &&String| {
            // The right key in the wrong section is as similar as a misspelt one.
            let whole = strsim::normalized_damerau_levenshtein(key, known);
            if last(key) == last(known) { whole.max(0.95) } else { whole }
        };
        let best = self.known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
        (likeness(&best) >= LIKENESS_MIN).then_some(best.as_str())
    }
}

/// The smallest similarity (0 to 1) at which a suggestion helps.
const LIKENESS_MIN: f64 = 0.7;

pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) | Value::Word(text) => Some(text.clone()),
        Value::Integer(_)
        | Value::Float(_)
        | Value::Flag(_)
        | Value::List(_)
        | Value::EmptySection
        | Value::Odd(_) => None,
    }
}

fn number_of(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::Word(word) => word.trim().parse().ok(),
        Value::Text(_)
        | Value::Float(_)
        | Value::Flag(_)
        | Value::List(_)
        | Value::EmptySection
        | Value::Odd(_) => None,
    }
}

fn fraction_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        Value::Word(word) => word.trim().parse().ok(),
        Value::Text(_) | Value::Flag(_) | Value::List(_) | Value::EmptySection | Value::Odd(_) => {
            None
        }
    }
}

fn flag_of(value: &Value) -> Option<bool> {
    match value {
        Value::Flag(flag) => Some(*flag),
        Value::Word(word) => word.trim().parse().ok(),
        Value::Text(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::List(_)
        | Value::EmptySection
        | Value::Odd(_) => None,
    }
}

/// A list in the file, or comma-separated words in the environment (an empty word is no item).
pub(super) fn list_of<T>(value: &Value, item: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    match value {
        Value::List(items) => items.iter().map(item).collect(),
        Value::Word(word) if word.trim().is_empty() => Some(Vec::new()),
        Value::Word(words) => {
            words.split(',').map(|word| item(&Value::Word(word.trim().to_owned()))).collect()
        }
        Value::Text(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Flag(_)
        | Value::EmptySection
        | Value::Odd(_) => None,
    }
}

/// A value as errors print it.
fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Word(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::List(_) => "this list".to_owned(),
        Value::EmptySection => "a section".to_owned(),
        Value::Odd(what) => (*what).to_owned(),
    }
}
