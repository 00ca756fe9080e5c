//! Text that must never be printed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::SecretName;

/// A secret: a token, a webhook secret, a key. `Debug` and `Display` show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Length of the shortest secret that cannot be guessed over a network, in characters: 128 bits
    /// in hexadecimal. A generated one has twice as many.
    pub const LEN_LOW: usize = 32;

    /// The secret itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it is shorter than [`Self::LEN_LOW`], so that it might be guessed.
    pub fn is_short(&self) -> bool {
        self.0.chars().count() < Self::LEN_LOW
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Secrets that can be replaced while they are in use. Clones share them.
#[derive(Clone, Debug)]
pub struct LiveSecrets(Arc<RwLock<Arc<[Secret]>>>);

impl LiveSecrets {
    /// Starts with these secrets.
    pub fn new(secrets: Vec<Secret>) -> Self {
        Self(Arc::new(RwLock::new(secrets.into())))
    }

    /// The current secrets.
    pub fn in_force(&self) -> Arc<[Secret]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces all secrets.
    pub fn replace(&self, secrets: Vec<Secret>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = secrets.into();
    }
}

/// The secrets of `[secrets]` by name. They can be replaced while they are in use; clones share them.
#[derive(Clone, Debug, Default)]
pub struct NamedSecrets(Arc<RwLock<BTreeMap<SecretName, Secret>>>);

impl NamedSecrets {
    /// Starts with these secrets.
    pub fn new(secrets: BTreeMap<SecretName, Secret>) -> Self {
        Self(Arc::new(RwLock::new(secrets)))
    }

    /// Replaces all secrets.
    pub fn replace(&self, secrets: BTreeMap<SecretName, Secret>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = secrets;
    }

    /// The current value of each environment variable that a template gives a secret.
    ///
    /// # Errors
    /// The name of a secret that does not exist (any more).
    pub fn resolve(
        &self,
        variables: &BTreeMap<String, SecretName>,
    ) -> Result<Vec<(String, Secret)>, SecretName> {
        let secrets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let resolve = |(variable, name): (&String, &SecretName)| {
            let secret = secrets.get(name).ok_or_else(|| name.clone())?;
            Ok((variable.clone(), secret.clone()))
        };
        variables.iter().map(resolve).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_by_name_follows_its_replacement_and_is_never_printed() {
        let npm = SecretName::trusted("npm");
        let with = |text: &str| BTreeMap::from([(npm.clone(), Secret::new(text))]);
        let secrets = NamedSecrets::new(with("hush-one"));
        let variables = BTreeMap::from([("NPM_TOKEN".to_owned(), npm.clone())]);
        let expected = |text: &str| Ok(vec![("NPM_TOKEN".to_owned(), Secret::new(text))]);
        assert_eq!(secrets.resolve(&variables), expected("hush-one"));
        let shared = secrets.clone();
        secrets.replace(with("hush-two"));
        assert_eq!(shared.resolve(&variables), expected("hush-two"));
        assert!(!format!("{shared:?} {:?}", shared.resolve(&variables)).contains("hush"));
        secrets.replace(BTreeMap::new());
        assert_eq!(shared.resolve(&variables), Err(npm));
    }
}
