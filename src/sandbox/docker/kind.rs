//! How this provider is configured, opened and checked.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use super::address::EngineAddress;
use super::{
    DockerConfig, DockerOptions, DockerProvider, DockerSettings, doctor, run_hidden_command,
};
use crate::config::{ProviderSchema, ProviderSection, ProviderSettings};
use crate::sandbox::{OpenContext, OpenFailure, OpenedProvider, ProviderKind};
use crate::types::{Check, Template, WorkloadKey, WorkloadSource};

/// The kind `docker`.
pub struct DockerKind;

/// The settings as [`DockerSettings::read`] returned them.
fn settings_of(settings: &ProviderSettings) -> &DockerSettings {
    settings.get().expect("the settings are those that this kind has read")
}

impl ProviderSchema for DockerKind {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn read(&self, section: &mut ProviderSection<'_>) -> ProviderSettings {
        ProviderSettings::new(DockerSettings::read(section))
    }

    fn read_template(&self, section: &mut ProviderSection<'_>) -> BTreeMap<String, String> {
        DockerOptions::read(section).to_texts()
    }

    fn supports(&self, key: WorkloadKey) -> Result<(), &'static str> {
        match key {
            WorkloadKey::Image | WorkloadKey::User => Ok(()),
            WorkloadKey::Snapshot => Err(
                "it makes sandboxes from images only; commit the container to an image and name that",
            ),
            WorkloadKey::Mounts => {
                Err("its sandboxes see no directory of the host; put the files into the image")
            }
        }
    }
}

impl ProviderKind for DockerKind {
    fn open(&self, context: &OpenContext<'_>) -> Result<Option<OpenedProvider>, OpenFailure> {
        let settings = settings_of(context.settings);
        // Containers that an earlier configuration made stay reachable. The directory says that there
        // may be some; it holds nothing.
        let was_used = context.data.join("docker");
        if context.templates.is_empty() && !was_used.exists() {
            return Ok(None);
        }
        std::fs::create_dir_all(was_used)?;
        let config = DockerConfig {
            server: Some(context.server),
            secrets: context.secrets.clone(),
            gateway: context.gateway.clone(),
            models: context.models.clone(),
            programs: Arc::clone(context.programs),
            ..DockerConfig::new(settings.clone())
        };
        let provider =
            DockerProvider::open(config, Arc::clone(&context.clock), Arc::clone(&context.ids))?;
        Ok(Some(OpenedProvider { provider: Arc::new(provider).into(), reload: None }))
    }

    fn check(
        &self,
        what: &str,
        settings: &ProviderSettings,
        templates: &[&Template],
        _data: &Path,
    ) -> Check {
        let images = templates.iter().map(|template| &template.workload.source);
        let image = images.flatten().find_map(|source| match source {
            WorkloadSource::Image(image) => Some(image.clone()),
            WorkloadSource::Snapshot(_) => None,
        });
        let settings = settings_of(settings).clone();
        doctor::check(what, &DockerSettings { image: image.or(settings.image), ..settings })
    }

    fn note(&self, settings: &ProviderSettings) -> Option<String> {
        Some(format!("the container engine at {}", EngineAddress::of(settings_of(settings)).url))
    }

    fn runs_programs(&self) -> bool {
        true
    }

    fn hidden_command(&self) -> Option<ExitCode> {
        run_hidden_command()
    }
}
