//! `[providers.local]`, read and checked.

use crate::config::ProviderSection;
use crate::sandbox::local::OwnUids;
use crate::types::Reserve;

/// `[providers.local]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalSettings {
    /// `require_limits`: refuse sandboxes whose limits this machine cannot enforce.
    pub require_limits: bool,
    /// `warm_pool`: how many started sandboxes are not yet assigned to an issue.
    pub warm_pool: usize,
    /// `disk_reserve`: how much of the data directory's file system is kept free.
    pub disk_reserve: Reserve,
    /// `own_uids`: whether each sandbox has a host uid of its own.
    pub own_uids: OwnUids,
}

/// The largest warm pool. Each sandbox in it has other limits or network settings, and few servers
/// have many of those.
const WARM_MAX: u64 = 16;

impl LocalSettings {
    /// Reads the section.
    pub(super) fn read(section: &mut ProviderSection<'_>) -> Self {
        section.parsed("isolation", (), |text| match text {
            "namespaces" => Ok(()),
            _ => Err("must be namespaces (anything less is not available yet)".to_owned()),
        });
        let require_limits = section.flag("require_limits", false);
        let warm_pool = section.number("warm_pool", 1, 0..=WARM_MAX);
        Self {
            require_limits,
            warm_pool: usize::try_from(warm_pool).expect("it is in bounds"),
            disk_reserve: section.parsed("disk_reserve", Reserve::Auto, Reserve::parse),
            own_uids: section.parsed("own_uids", OwnUids::Auto, OwnUids::parse),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides, ProviderSchema};
    use crate::sandbox::local::LocalKind;

    /// Reads `[providers.local]` with these lines from a file.
    fn read(lines: &str) -> Result<LocalSettings, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("issuebox.toml");
        std::fs::write(&file, format!("data = \"d\"\n[providers.local]\n{lines}"))
            .expect("written");
        let schemas: [&dyn ProviderSchema; 1] = [&LocalKind];
        let loaded = Config::load(Some(&file), std::iter::empty(), Overrides::default(), &schemas);
        let loaded = loaded.map_err(|error| {
            error.to_string().replace(&format!("{}/", dir.path().display()), "")
        })?;
        let settings = loaded.config.providers.into_values().next().expect("one provider");
        Ok(*settings.get::<LocalSettings>().expect("its own"))
    }

    #[test]
    fn the_section_may_be_empty_and_each_key_is_read() {
        let settings = read("").expect("good");
        assert_eq!((settings.require_limits, settings.warm_pool), (false, 1));
        assert_eq!(settings.disk_reserve, Reserve::Auto);
        let lines = "isolation = \"namespaces\"\nrequire_limits = true\nwarm_pool = 0";
        let settings = read(lines).expect("good");
        assert_eq!((settings.require_limits, settings.warm_pool), (true, 0));
        assert_eq!(
            (settings.own_uids, read("own_uids = \"off\"").expect("good").own_uids),
            (OwnUids::Auto, OwnUids::Off)
        );
        let error =
            read("isolation = \"none\"\nwarm_pool = 17\nown_uids = \"yes\"").expect_err("wrong");
        insta::assert_snapshot!(error, @r#"
        issuebox.toml:3: providers.local.isolation must be namespaces (anything less is not available yet), not "none"
        issuebox.toml:4: providers.local.warm_pool must be a whole number from 0 to 16, not 17
        issuebox.toml:5: providers.local.own_uids must be "auto", "required" or "off", not "yes"
        "#);
    }

    #[test]
    fn the_disk_reserve_is_a_part_or_a_size() {
        let reserve = |text: &str| read(&format!("disk_reserve = {text}")).map(|s| s.disk_reserve);
        assert_eq!(reserve("\"auto\""), Ok(Reserve::Auto));
        assert_eq!(reserve("\"10%\""), Ok(Reserve::Percent(10.0)));
        assert_eq!(reserve("\"2 GB\""), Ok(Reserve::Megabytes(2048)));
        insta::assert_snapshot!(
            reserve("\"plenty\"").expect_err("wrong"),
            @r#"issuebox.toml:3: providers.local.disk_reserve must be "auto", a percentage up to "90%", or a size such as "4096 MB" or "4 GB", not "plenty""#
        );
        insta::assert_snapshot!(
            reserve("5").expect_err("wrong"),
            @"issuebox.toml:3: providers.local.disk_reserve must be a text, not 5"
        );
    }
}
