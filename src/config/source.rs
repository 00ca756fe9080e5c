//! The sources of values: a TOML file, the environment, flags. All become a flat map from
//! `section.key` to a value and its origin. The meaning of keys is elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfigError;

/// Values given on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`
    pub listen: Option<String>,
    /// `--data`
    pub data: Option<PathBuf>,
}

/// A file that was read, as it was then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Which file.
    pub path: PathBuf,
    /// The user who owns it.
    pub owner: u32,
    /// Its type and permissions, see `inode(7)`.
    pub mode: u32,
}

impl ConfigFile {
    /// Whether it is a file with content of its own: not a device such as `/dev/null`, and no pipe.
    pub const fn is_regular(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    /// Whether every user of the machine can change it.
    pub const fn is_writable_by_all(&self) -> bool {
        self.mode & 0o002 != 0
    }
}

/// Where a value was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueOrigin {
    /// A line of the file.
    File {
        /// Which file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A flag.
    Flag(&'static str),
}

impl ValueOrigin {
    /// The precedence: flags over the environment over the file.
    pub(super) const fn rank(&self) -> u8 {
        match self {
            Self::File { .. } => 0,
            Self::Variable(_) => 1,
            Self::Flag(_) => 2,
        }
    }
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A raw value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Text in the file.
    Text(String),
    /// A whole number in the file.
    Integer(i64),
    /// Any other number in the file.
    Float(f64),
    /// `true` or `false` in the file.
    Flag(bool),
    /// A list in the file.
    List(Vec<Self>),
    /// A section in the file without any key.
    EmptySection,
    /// A value that no key accepts: a date, a number out of range.
    Odd(&'static str),
    /// A word from the environment or a flag; the key decides its type.
    Word(String),
}

/// A value and where it was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConfigValue {
    pub value: Value,
    pub origin: ValueOrigin,
}

/// All values, the one with the highest precedence for each key.
#[derive(Default)]
pub(super) struct Sources {
    pub entries: BTreeMap<String, ConfigValue>,
    /// Every other variable of the environment; `[secrets]` may name them.
    pub variables: BTreeMap<String, String>,
    /// `$XDG_STATE_HOME` and `$HOME`, for the default data directory.
    pub state_home: Option<String>,
    pub home: Option<String>,
}

const LONG_PREFIX: &str = "ISSUEBOX__";

/// The short names, which take precedence over the long ones.
const SHORT_NAMES: [(&str, &str); 4] = [
    ("ISSUEBOX_LISTEN", "listen"),
    ("ISSUEBOX_DATA", "data"),
    ("ISSUEBOX_WEBHOOK_SECRET", "github.webhook_secrets"),
    ("ISSUEBOX_ADMIN_TOKEN", "auth.admin_token"),
];

impl Sources {
    /// Adds the values of a TOML file.
    ///
    /// # Errors
    /// If it cannot be read or is not TOML.
    pub fn add_file(&mut self, path: &Path) -> Result<ConfigFile, ConfigError> {
        let mut text = String::new();
        let metadata = File::open(path)
            .and_then(|mut file| file.read_to_string(&mut text).and_then(|_len| file.metadata()))
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let table = DeTable::parse(&text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            line: line_at(&text, error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        self.add_table(path, &text, "", table.get_ref());
        Ok(ConfigFile { path: path.to_owned(), owner: metadata.uid(), mode: metadata.mode() })
    }

    pub fn add_table(&mut self, path: &Path, text: &str, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let name_at = name.span().start;
            let name = name.get_ref();
            // A dot in a quoted name is not a section's separator.
            let name = if name.contains('.') { format!("{name:?}") } else { name.to_string() };
            let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
            match value.get_ref() {
                DeValue::Table(inner) if !inner.is_empty() => {
                    self.add_table(path, text, &key, inner);
                }
                DeValue::Array(items) if !items.is_empty() && items.iter().all(is_table) => {
                    // The sections of a list are numbered from 1.
                    for (item, number) in items.iter().zip(1..) {
                        let key = format!("{key}.{number}");
                        match item.get_ref() {
                            DeValue::Table(inner) if !inner.is_empty() => {
                                self.add_table(path, text, &key, inner);
                            }
                            other => self.add_value(path, text, key, item.span().start, other),
                        }
                    }
                }
                other => self.add_value(path, text, key, name_at, other),
            }
        }
    }

    pub fn add_value(
        &mut self,
        path: &Path,
        text: &str,
        key: String,
        at: usize,
        value: &DeValue<'_>,
    ) {
        let origin = ValueOrigin::File { path: path.to_owned(), line: line_at(text, at) };
        self.entries.insert(key, ConfigValue { value: value_of(value), origin });
    }

    /// Adds issuebox's environment variables.
    pub fn add_environment(&mut self, env: impl Iterator<Item = (String, String)>) {
        let mut short = Vec::new();
        for (name, word) in env {
            if let Some((_, key)) = SHORT_NAMES.iter().find(|(known, _)| *known == name) {
                short.push(((*key).to_owned(), name, word));
            } else if let Some(rest) = name.strip_prefix(LONG_PREFIX) {
                let key = rest.to_lowercase().replace("__", ".");
                self.add_word(key, ValueOrigin::Variable(name), word);
            } else {
                match name.as_str() {
                    "XDG_STATE_HOME" => self.state_home = Some(word.clone()),
                    "HOME" => self.home = Some(word.clone()),
                    _ => {}
                }
                self.variables.insert(name, word);
            }
        }
        for (key, name, word) in short {
            self.add_word(key, ValueOrigin::Variable(name), word);
        }
    }

    /// Adds the command line's values.
    pub fn add_flags(&mut self, overrides: Overrides) {
        if let Some(listen) = overrides.listen {
            self.add_word("listen".into(), ValueOrigin::Flag("--listen"), listen);
        }
        if let Some(data) = overrides.data {
            let word = data.to_string_lossy().into_owned();
            self.add_word("data".into(), ValueOrigin::Flag("--data"), word);
        }
    }

    fn add_word(&mut self, key: String, origin: ValueOrigin, word: String) {
        self.entries.insert(key, ConfigValue { value: Value::Word(word), origin });
    }
}

fn is_table(value: &Spanned<DeValue<'_>>) -> bool {
    matches!(value.get_ref(), DeValue::Table(_))
}

fn value_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            i64::from_str_radix(&digits, number.radix())
                .map_or(Value::Odd("a number out of range"), Value::Integer)
        }
        DeValue::Float(number) => number
            .as_str()
            .replace('_', "")
            .parse()
            .map_or(Value::Odd("a number out of range"), Value::Float),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(_) => Value::Odd("a date"),
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| value_of(item.get_ref())).collect())
        }
        DeValue::Table(_) => Value::EmptySection,
    }
}

pub(super) fn line_at(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count()
}
