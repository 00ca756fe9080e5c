//! The environment, read once.

use std::collections::BTreeMap;

/// A copy of the environment.
#[derive(Clone, Debug, Default)]
pub(super) struct EnvVars(BTreeMap<String, String>);

impl EnvVars {
    /// The environment of this process, without variables that are not UTF-8.
    pub fn of_process() -> Self {
        let text = |(name, word): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, word.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    /// An environment for a test.
    #[cfg(test)]
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(n, w)| ((*n).to_owned(), (*w).to_owned())).collect())
    }

    /// A variable; `None` if it is unset or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|word| !word.is_empty())
    }

    /// All variables, for the configuration.
    pub fn vars(&self) -> impl Iterator<Item = (String, String)> {
        self.0.clone().into_iter()
    }
}
