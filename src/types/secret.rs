//! Text that must never be printed.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A secret: a token, a webhook secret, a key. `Debug` and `Display` show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
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
