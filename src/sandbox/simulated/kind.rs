//! How this provider is configured, opened and checked.

use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Access, access};

use super::{SimulatedConfig, SimulatedProvider, SimulatedSettings};
use crate::config::{ProviderSchema, ProviderSection, ProviderSettings};
use crate::sandbox::{
    OpenContext, OpenFailure, OpenedProvider, ProviderKind, ReloadSettings, ReloadedSettings,
};
use crate::types::{Check, Template, WorkloadKey};

/// The kind `simulated`.
pub struct SimulatedKind;

/// The settings as [`SimulatedSettings::read`] returned them.
fn settings_of(settings: &ProviderSettings) -> &SimulatedSettings {
    settings.get().expect("the settings are those that this kind has read")
}

impl ProviderSchema for SimulatedKind {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn read(&self, section: &mut ProviderSection<'_>) -> ProviderSettings {
        ProviderSettings::new(SimulatedSettings::read(section))
    }

    /// Its objects only record it.
    fn supports(&self, _key: WorkloadKey) -> Result<(), &'static str> {
        Ok(())
    }
}

impl ProviderKind for SimulatedKind {
    fn open(&self, context: &OpenContext<'_>) -> Result<Option<OpenedProvider>, OpenFailure> {
        if context.templates.is_empty() {
            return Ok(None);
        }
        let SimulatedSettings { config, faults } = settings_of(context.settings).clone();
        let (clock, ids) = (Arc::clone(&context.clock), Arc::clone(&context.ids));
        let provider = Arc::new(SimulatedProvider::open(config.clone(), faults, clock, ids)?);
        let reload = reload(Arc::clone(&provider), config);
        Ok(Some(OpenedProvider { provider: provider.into(), reload: Some(reload) }))
    }

    fn check(
        &self,
        what: &str,
        settings: &ProviderSettings,
        _templates: &[&Template],
        _data: &Path,
    ) -> Check {
        check(what, settings_of(settings))
    }

    fn runs_programs(&self) -> bool {
        false
    }

    fn settings_within(&self, dir: &Path) -> Vec<(&'static str, String)> {
        vec![("dir", dir.join("simulated").display().to_string())]
    }
}

/// Takes the delays and faults over; `config` stays in force until the next start.
fn reload(provider: Arc<SimulatedProvider>, config: SimulatedConfig) -> ReloadSettings {
    Box::new(move |given| {
        let faults = settings_of(given).faults;
        let changed = provider.change_faults(faults);
        let in_force = SimulatedSettings { config: config.clone(), faults };
        ReloadedSettings {
            in_force: ProviderSettings::new(in_force),
            changed: changed.then_some("the delays and faults of providers.simulated"),
        }
    })
}

fn check(what: &str, settings: &SimulatedSettings) -> Check {
    if settings.faults.unavailable {
        let found = "it simulates an outage: providers.simulated.unavailable is true";
        return Check::broken(what, found, "remove that key to end the outage");
    }
    let dir = &settings.config.dir;
    let shown = dir.display();
    // The server makes it at its start, with the directories above it.
    let existing = dir.ancestors().find(|at| at.exists()).unwrap_or(Path::new("."));
    if !existing.is_dir() {
        let found = format!("its directory {shown}: {} is not a directory", existing.display());
        return Check::broken(what, found, "set providers.simulated.dir to a directory");
    }
    if access(existing, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let found = format!("its directory {shown}: cannot write to {}", existing.display());
        let remedy = "make it writable for this user, or set providers.simulated.dir";
        return Check::broken(what, found, remedy);
    }
    Check::noted(
        what,
        format!("its objects are files in {shown}; nothing runs in its sandboxes"),
        "fine for tests and demonstrations; for real work set another provider in \
         [templates.default]",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sandbox::simulated::SimulatedFaults;
    use crate::types::CheckState;

    fn settings(dir: &Path) -> SimulatedSettings {
        let config = SimulatedConfig { dir: dir.to_owned(), unique_names: true };
        SimulatedSettings { config, faults: SimulatedFaults::default() }
    }

    #[test]
    fn the_check_names_a_wrong_directory_and_makes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let simulated = dir.path().join("simulated");
        let remedy = |check: &Check| check.remedy.clone().unwrap_or_default();
        let checked = check("provider", &settings(&simulated));
        assert_eq!(checked.state, CheckState::Noted, "{checked:?}");
        assert!(!simulated.exists(), "nothing is made");

        let mut unavailable = settings(&simulated);
        unavailable.faults.unavailable = true;
        let checked = check("provider", &unavailable);
        assert_eq!(checked.state, CheckState::Broken);
        assert_eq!(remedy(&checked), "remove that key to end the outage");

        fs::write(&simulated, "").expect("written");
        for wrong in [simulated.clone(), simulated.join("a")] {
            let checked = check("provider", &settings(&wrong));
            assert_eq!(checked.state, CheckState::Broken);
            assert!(checked.found.contains("simulated is not a directory"), "{checked:?}");
            assert!(remedy(&checked).contains("providers.simulated.dir"), "{checked:?}");
        }
    }
}
