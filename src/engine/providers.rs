//! The configured providers, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sandbox::Lifecycle;
use crate::types::ProviderName;

/// The configured providers, cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Providers {
    by_name: Arc<BTreeMap<ProviderName, Arc<dyn Lifecycle>>>,
}

impl Providers {
    /// The provider of that name.
    pub fn get(&self, name: &ProviderName) -> Option<Arc<dyn Lifecycle>> {
        self.by_name.get(name).cloned()
    }

    /// All providers, by name.
    pub fn all(&self) -> impl Iterator<Item = (&ProviderName, &Arc<dyn Lifecycle>)> {
        self.by_name.iter()
    }
}

impl FromIterator<(ProviderName, Arc<dyn Lifecycle>)> for Providers {
    fn from_iter<T: IntoIterator<Item = (ProviderName, Arc<dyn Lifecycle>)>>(all: T) -> Self {
        Self { by_name: Arc::new(all.into_iter().collect()) }
    }
}
