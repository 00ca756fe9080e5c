//! `[providers.simulated]`, read and checked.

use crate::config::{ProviderSection, SECONDS_MAX};

use super::{SimulatedConfig, SimulatedFaults};

/// `[providers.simulated]`
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedSettings {
    /// What needs a restart to change.
    pub config: SimulatedConfig,
    /// What SIGHUP changes.
    pub faults: SimulatedFaults,
}

impl SimulatedSettings {
    /// Reads the section.
    pub(super) fn read(section: &mut ProviderSection<'_>) -> Self {
        let mut delay = |name: &str| section.number(name, 0, 0..=SECONDS_MAX * 1000);
        let create_delay_ms = delay("create_delay_ms");
        let stop_delay_ms = delay("stop_delay_ms");
        let delete_delay_ms = delay("delete_delay_ms");
        let dir = section.path("dir", "./simulated");
        let faults = SimulatedFaults {
            create_delay_ms,
            stop_delay_ms,
            delete_delay_ms,
            fail_create: section.fraction("fail_create", 0.0, 0.0..=1.0),
            lose_response: section.fraction("lose_response", 0.0, 0.0..=1.0),
            unavailable: section.flag("unavailable", false),
            fail_first_n: section.number("fail_first_n", 0, 0..=u64::MAX),
        };
        let unique_names = section.flag("unique_names", true);
        Self { config: SimulatedConfig { dir, unique_names }, faults }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, Overrides, ProviderSchema};
    use crate::sandbox::simulated::SimulatedKind;

    /// Reads `[providers.simulated]` with these lines from a file.
    fn read(lines: &str) -> Result<SimulatedSettings, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("issuebox.toml");
        let text = format!("data = \"d\"\n[providers.simulated]\n{lines}");
        std::fs::write(&file, text).expect("written");
        let schemas: [&dyn ProviderSchema; 1] = [&SimulatedKind];
        let loaded = Config::load(Some(&file), std::iter::empty(), Overrides::default(), &schemas);
        let loaded = loaded.map_err(|error| {
            error.to_string().replace(&format!("{}/", dir.path().display()), "")
        })?;
        let settings = loaded.config.providers.into_values().next().expect("one provider");
        Ok(settings.get::<SimulatedSettings>().expect("its own").clone())
    }

    #[test]
    fn the_section_may_be_empty_and_each_key_is_read() {
        let settings = read("").expect("good");
        assert_eq!(settings.faults, SimulatedFaults::default());
        let SimulatedConfig { dir, unique_names } = settings.config;
        assert_eq!((dir.as_path(), unique_names), (Path::new("./simulated"), true));
        let settings = read(
            "dir = \"elsewhere\"\ncreate_delay_ms = 1500\nstop_delay_ms = 2\ndelete_delay_ms = 3\n\
             fail_create = 0.25\nlose_response = 1\nfail_first_n = 2\nunavailable = true\n\
             unique_names = false",
        );
        let faults = SimulatedFaults {
            create_delay_ms: 1500,
            stop_delay_ms: 2,
            delete_delay_ms: 3,
            fail_create: 0.25,
            lose_response: 1.0,
            unavailable: true,
            fail_first_n: 2,
        };
        let config = SimulatedConfig { dir: "elsewhere".into(), unique_names: false };
        assert_eq!(settings, Ok(SimulatedSettings { config, faults }));
        insta::assert_snapshot!(
            read("fail_create = 1.5").expect_err("wrong"),
            @"issuebox.toml:3: providers.simulated.fail_create must be a number from 0 to 1, not 1.5"
        );
    }
}
