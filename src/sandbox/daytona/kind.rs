//! How this provider is configured, opened and checked.

use std::path::Path;
use std::sync::Arc;

use super::network::check_template;
use super::{DaytonaConfig, DaytonaProvider, DaytonaSettings, doctor};
use crate::config::{ProviderSchema, ProviderSection, ProviderSettings};
use crate::sandbox::{OpenContext, OpenFailure, OpenedProvider, ProviderKind};
use crate::types::{Check, Template, WorkloadKey};

/// The kind `daytona`.
pub struct DaytonaKind;

impl ProviderSchema for DaytonaKind {
    fn name(&self) -> &'static str {
        "daytona"
    }

    fn read(&self, section: &mut ProviderSection<'_>) -> ProviderSettings {
        ProviderSettings::new(DaytonaSettings::read(section))
    }

    fn supports(&self, key: WorkloadKey) -> Result<(), &'static str> {
        match key {
            WorkloadKey::Image | WorkloadKey::Snapshot | WorkloadKey::User => Ok(()),
            WorkloadKey::Mounts => {
                Err("its sandboxes are on another machine; copy files into them instead")
            }
        }
    }
}

impl ProviderKind for DaytonaKind {
    fn open(&self, context: &OpenContext<'_>) -> Result<Option<OpenedProvider>, OpenFailure> {
        let settings = DaytonaSettings::of(context.settings);
        let Some(key) = settings.key.clone() else {
            return match context.templates.first() {
                None => Ok(None),
                Some(template) => Err(format!(
                    "cannot use templates.{}: its provider daytona is not configured; set \
                     providers.daytona.key_file to a file with an API key, or change the \
                     template's provider",
                    template.name
                )
                .into()),
            };
        };
        for template in &context.templates {
            check_template(template)?;
        }
        // With a key it is open without a template, too: earlier sandboxes stay reachable.
        let config = DaytonaConfig::with(settings, key, context.secrets.clone());
        let (clock, ids) = (Arc::clone(&context.clock), Arc::clone(&context.ids));
        let provider = Arc::new(DaytonaProvider::open(config, clock, ids)?);
        Ok(Some(OpenedProvider { provider: provider.into(), reload: None }))
    }

    fn check(
        &self,
        what: &str,
        settings: &ProviderSettings,
        _templates: &[&Template],
        _data: &Path,
    ) -> Check {
        doctor::check(what, DaytonaSettings::of(settings))
    }

    fn runs_programs(&self) -> bool {
        true
    }
}
