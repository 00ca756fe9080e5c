//! `[providers.daytona]`, read and checked.

use crate::config::{ProviderSection, ProviderSettings};
use crate::types::Secret;

/// `[providers.daytona]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaytonaSettings {
    /// `api_url`: the address of the API, without a slash at the end.
    pub api_url: String,
    /// The content of `key_file`: the API key. `None`: Daytona is not used.
    pub key: Option<Secret>,
    /// `target`: the region in which sandboxes are made.
    pub region: Option<String>,
    /// `workspace`: the directory of workspaces in sandboxes. A relative one is below the home.
    pub workspace: String,
    /// `archive_minutes`: after how long Daytona archives a stopped sandbox.
    pub archive_minutes: Option<u64>,
}

/// The longest time until a stopped sandbox is archived, in minutes: thirty days.
const ARCHIVE_MINUTES: std::ops::RangeInclusive<u64> = 1..=43_200;

impl DaytonaSettings {
    /// Reads the section.
    pub(super) fn read(section: &mut ProviderSection<'_>) -> Self {
        let word = |text: &str| match text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic())
        {
            true => Err("must be one word".to_owned()),
            false => Ok(Some(text.to_owned())),
        };
        let api_url = section.web_address("api_url", "https://app.daytona.io/api");
        let key = section.secret_file("key_file");
        let region = section.parsed("target", None, word);
        let workspace = section.parsed("workspace", "/workspace".to_owned(), |text| {
            let is_path = !text.is_empty()
                && text != "/"
                && !text.contains(['\0', '\n'])
                && !text.split('/').any(|part| part == "..");
            match is_path {
                true => Ok(text.trim_end_matches('/').to_owned()),
                false => Err("must be a directory other than /, without ..".to_owned()),
            }
        });
        let archive_minutes = section.number_if_given("archive_minutes", ARCHIVE_MINUTES);
        Self { api_url, key, region, workspace, archive_minutes }
    }

    /// The settings as [`Self::read`] returned them.
    pub(super) fn of(settings: &ProviderSettings) -> &Self {
        settings.get().expect("the settings are those that this kind has read")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides, ProviderSchema};
    use crate::sandbox::daytona::DaytonaKind;

    /// Reads `[providers.daytona]` with these lines from a file, beside which lies a key.
    fn read(lines: &str) -> Result<DaytonaSettings, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("issuebox.toml");
        std::fs::write(dir.path().join("key"), "dtn_secret\n").expect("written");
        std::fs::write(dir.path().join("spaced"), "dtn secret\n").expect("written");
        let lines = lines.replace("DIR", &dir.path().display().to_string());
        std::fs::write(&file, format!("data = \"d\"\n[providers.daytona]\n{lines}"))
            .expect("written");
        let schemas: [&dyn ProviderSchema; 1] = [&DaytonaKind];
        let loaded = Config::load(Some(&file), std::iter::empty(), Overrides::default(), &schemas);
        let loaded = loaded.map_err(|error| {
            error.to_string().replace(&format!("{}/", dir.path().display()), "")
        })?;
        let settings = loaded.config.providers.into_values().next().expect("one provider");
        Ok(settings.get::<DaytonaSettings>().expect("its own").clone())
    }

    #[test]
    fn the_section_may_be_empty_and_each_key_is_read() {
        let settings = read("").expect("good");
        assert_eq!((settings.key, settings.workspace.as_str()), (None, "/workspace"));
        let settings = read(
            "api_url = \"https://daytona.example/api/\"\nkey_file = \"DIR/key\"\ntarget = \"eu\"\n\
             workspace = \"work/\"\narchive_minutes = 60",
        );
        let settings = settings.expect("good");
        assert!(!format!("{settings:?}").contains("dtn_secret"), "{settings:?}");
        let expected = DaytonaSettings {
            api_url: "https://daytona.example/api".into(),
            key: Some(Secret::new("dtn_secret")),
            region: Some("eu".into()),
            workspace: "work".into(),
            archive_minutes: Some(60),
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn what_is_wrong_is_named_and_no_key_is_shown() {
        let error = read(
            "api_url = \"http://daytona.example\"\nkey_file = \"DIR/spaced\"\ntarget = \"a b\"\n\
             workspace = \"/\"\narchive_minutes = 0",
        );
        insta::assert_snapshot!(error.expect_err("wrong"), @r#"
        issuebox.toml:3: providers.daytona.api_url must begin with https:// (http:// is accepted on loopback only), not "http://daytona.example"
        issuebox.toml:4: providers.daytona.key_file must be visible ASCII characters without spaces
        issuebox.toml:5: providers.daytona.target must be one word, not "a b"
        issuebox.toml:6: providers.daytona.workspace must be a directory other than /, without .., not "/"
        issuebox.toml:7: providers.daytona.archive_minutes must be a whole number from 1 to 43200, not 0
        "#);
    }
}
