//! The section `[providers.NAME]`: the configuration reads no key of it. Each provider reads its own
//! section with the same checks and error messages as the rest, and gets back what it read.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use super::github::encrypted;
use super::reader::ConfigReader;
use super::sections::{token_of, web_address};
use crate::types::{Secret, WorkloadKey};

/// How one provider is configured.
pub trait ProviderSchema: Sync {
    /// Its name in `provider = "…"` and `[providers.NAME]`.
    fn name(&self) -> &'static str;

    /// Reads `[providers.NAME]`, which may be absent.
    fn read(&self, section: &mut ProviderSection<'_>) -> ProviderSettings;

    /// Reads `[templates.X.NAME]`, which may be absent: the options that only this provider
    /// understands, as text. It gets them back with each sandbox of the template.
    fn read_template(&self, _section: &mut ProviderSection<'_>) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Whether its sandboxes can have this part of a workload.
    ///
    /// # Errors
    /// Why not, and what to do instead.
    fn supports(&self, key: WorkloadKey) -> Result<(), &'static str>;
}

/// What a provider read of its section. Only that provider knows the type.
#[derive(Clone)]
pub struct ProviderSettings(Arc<dyn AnySettings>);

impl ProviderSettings {
    /// Wraps the settings of one provider.
    pub fn new<T: fmt::Debug + PartialEq + Send + Sync + 'static>(settings: T) -> Self {
        Self(Arc::new(settings))
    }

    /// The settings, if they have this type.
    pub fn get<T: 'static>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }
}

impl fmt::Debug for ProviderSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for ProviderSettings {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(other.0.as_any())
    }
}

/// Settings of any type that can be compared and printed.
trait AnySettings: fmt::Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn is_equal(&self, other: &dyn Any) -> bool;
}

impl<T: fmt::Debug + PartialEq + Send + Sync + 'static> AnySettings for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

/// One section of the configuration. Keys are named without the section.
pub struct ProviderSection<'a> {
    reader: &'a mut ConfigReader,
    prefix: String,
}

impl<'a> ProviderSection<'a> {
    pub(super) fn new(reader: &'a mut ConfigReader, prefix: String) -> Self {
        Self { reader, prefix }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    /// `true` or `false`.
    pub fn flag(&mut self, name: &str, default: bool) -> bool {
        self.reader.flag(&self.key(name), default)
    }

    /// A whole number within bounds.
    pub fn number(&mut self, name: &str, default: u64, range: RangeInclusive<u64>) -> u64 {
        self.reader.number(&self.key(name), default, range)
    }

    /// A whole number within bounds; `None` if it is not given.
    pub fn number_if_given(&mut self, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let number = self.number(name, *range.start(), range);
        self.reader.origin(&self.key(name)).map(|_| number)
    }

    /// A list of texts.
    pub fn texts(&mut self, name: &str) -> Vec<String> {
        self.reader.texts(&self.key(name), &[])
    }

    /// A number within bounds.
    pub fn fraction(&mut self, name: &str, default: f64, range: RangeInclusive<f64>) -> f64 {
        self.reader.fraction(&self.key(name), default, range)
    }

    /// A path; an empty one is an error.
    pub fn path(&mut self, name: &str, default: &str) -> PathBuf {
        let default = PathBuf::from(default);
        self.reader.path(&self.key(name), Some(default.clone())).unwrap_or(default)
    }

    /// A path; `None` if it is not given.
    pub fn path_if_given(&mut self, name: &str) -> Option<PathBuf> {
        self.reader.path(&self.key(name), None)
    }

    /// The address of a server: `https://…`, or `http://…` on the loopback, without a slash at the end.
    pub fn web_address(&mut self, name: &str, default: &str) -> String {
        self.parsed(name, default.to_owned(), |text| web_address(text).and_then(encrypted))
    }

    /// The token in the file that a key names; `None` if the key is not given. No error shows it.
    pub fn secret_file(&mut self, name: &str) -> Option<Secret> {
        let key = self.key(name);
        let path = self.reader.path(&key, None)?;
        let read = self.reader.secret_file(path).and_then(|text| token_of(&text));
        read.map_err(|needed| self.reader.wrong(&key, &needed)).ok()
    }

    /// A text that `parse` accepts; its error says what is needed: "must …".
    pub fn parsed<T>(
        &mut self,
        name: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        self.reader.parsed(&self.key(name), default, parse)
    }
}
