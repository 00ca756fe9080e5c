//! How this provider is configured, opened and checked.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use super::{
    LocalConfig, LocalOptions, LocalProvider, LocalSettings, doctor, own_uids, run_hidden_command,
};
use crate::config::{ProviderSchema, ProviderSection, ProviderSettings};
use crate::sandbox::{OpenContext, OpenFailure, OpenedProvider, ProviderKind};
use crate::types::{Check, Template, WorkloadKey};

/// The kind `local`.
pub struct LocalKind;

/// The settings as [`LocalSettings::read`] returned them.
fn settings_of(settings: &ProviderSettings) -> LocalSettings {
    *settings.get().expect("the settings are those that this kind has read")
}

impl ProviderSchema for LocalKind {
    fn name(&self) -> &'static str {
        "local"
    }

    fn read(&self, section: &mut ProviderSection<'_>) -> ProviderSettings {
        ProviderSettings::new(LocalSettings::read(section))
    }

    fn read_template(&self, section: &mut ProviderSection<'_>) -> BTreeMap<String, String> {
        LocalOptions::read(section).to_texts()
    }

    fn supports(&self, key: WorkloadKey) -> Result<(), &'static str> {
        match key {
            WorkloadKey::Image | WorkloadKey::Snapshot => Err(
                "its sandboxes see the programs of this machine; remove the key, or use a provider \
                 with images",
            ),
            WorkloadKey::User => {
                Err("every command runs as the sandbox's one unprivileged user; remove the key")
            }
            WorkloadKey::Mounts => {
                Err("its sandboxes see no directory of the host but its programs; remove the key")
            }
        }
    }
}

impl ProviderKind for LocalKind {
    fn open(&self, context: &OpenContext<'_>) -> Result<Option<OpenedProvider>, OpenFailure> {
        let dir = context.data.join("local");
        // Sandboxes that an earlier configuration made stay reachable.
        if context.templates.is_empty() && !dir.exists() {
            return Ok(None);
        }
        let settings = settings_of(context.settings);
        let config = LocalConfig {
            server: Some(context.server),
            secrets: context.secrets.clone(),
            gateway: context.gateway.clone(),
            models: context.models.clone(),
            programs: Arc::clone(context.programs),
            ..LocalConfig::with(dir, settings)
        };
        let provider =
            LocalProvider::open(config, Arc::clone(&context.clock), Arc::clone(&context.ids))?;
        // Most sandboxes are made from it, the first of them too.
        if let Some(template) = context.default_template {
            provider.keep_warm(template);
        }
        Ok(Some(OpenedProvider { provider: Arc::new(provider).into(), reload: None }))
    }

    fn check(
        &self,
        what: &str,
        settings: &ProviderSettings,
        _templates: &[&Template],
        data: &Path,
    ) -> Check {
        doctor::check(what, settings_of(settings), data)
    }

    fn note(&self, settings: &ProviderSettings) -> Option<String> {
        Some(own_uids::note(settings_of(settings)))
    }

    fn runs_programs(&self) -> bool {
        true
    }

    fn hidden_command(&self) -> Option<ExitCode> {
        run_hidden_command()
    }
}
