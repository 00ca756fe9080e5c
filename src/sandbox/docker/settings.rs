//! `[providers.docker]` and `[templates.X.docker]`, read and checked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::config::ProviderSection;

/// `[providers.docker]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DockerSettings {
    /// `host`: the engine's address; empty for `DOCKER_HOST`, else the usual sockets.
    pub host: String,
    /// `tls_dir`: the certificates for `host`; `None` without TLS.
    pub tls_dir: Option<PathBuf>,
    /// `registry_auth`: the file with the credentials for registries, as `docker login` writes it.
    pub registry_auth: Option<PathBuf>,
    /// `image`: the image of templates that name none.
    pub image: Option<String>,
    /// `pull`: whether a missing image is pulled.
    pub pull: Pull,
    /// `user`: the numeric user and group of commands.
    pub user: ContainerUser,
    /// `runtime`, `read_only`: for templates that do not say so themselves.
    pub options: DockerOptions,
}

/// Whether a missing image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pull {
    /// It is.
    #[default]
    Missing,
    /// It is not: a person brings images.
    Never,
}

/// Who commands are inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerUser {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Default for ContainerUser {
    fn default() -> Self {
        Self { uid: 1000, gid: 1000 }
    }
}

impl ContainerUser {
    /// Reads `UID` or `UID:GID`.
    ///
    /// # Errors
    /// What it must be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "must be a number UID or UID:GID, such as 1000:1000".to_owned();
        let (uid, gid) = text.split_once(':').unwrap_or((text, text));
        let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        Ok(Self { uid: number(uid)?, gid: number(gid)? })
    }

    /// As the engine reads it.
    pub fn to_text(self) -> String {
        format!("{}:{}", self.uid, self.gid)
    }
}

/// `[templates.X.docker]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DockerOptions {
    /// `runtime`: the OCI runtime, such as `runsc`; `None` for the engine's default.
    pub runtime: Option<String>,
    /// `read_only`: whether the root file system is read-only.
    pub is_read_only: bool,
}

impl DockerOptions {
    /// Reads the two keys.
    pub(super) fn read(section: &mut ProviderSection<'_>) -> Self {
        let runtime = section.parsed("runtime", None, |text| match text {
            "" => Ok(None),
            text if text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c)) => {
                Ok(Some(text.to_owned()))
            }
            _ => Err("must be the name of a runtime that the engine knows".to_owned()),
        });
        Self { runtime, is_read_only: section.flag("read_only", false) }
    }

    /// The keys as texts, for a template.
    pub(super) fn to_texts(&self) -> BTreeMap<String, String> {
        let runtime = self.runtime.iter().map(|name| ("runtime".to_owned(), name.clone()));
        let read_only = self.is_read_only.then(|| ("read_only".to_owned(), "true".to_owned()));
        runtime.chain(read_only).collect()
    }

    /// The keys of a template over those of the provider. Those of a later version have no effect.
    pub fn of(texts: &BTreeMap<String, String>, otherwise: &Self) -> Self {
        let is_read_only = texts.get("read_only").is_some_and(|text| text == "true");
        Self {
            runtime: texts.get("runtime").or(otherwise.runtime.as_ref()).cloned(),
            is_read_only: is_read_only || otherwise.is_read_only,
        }
    }
}

impl DockerSettings {
    /// Reads the section.
    pub(super) fn read(section: &mut ProviderSection<'_>) -> Self {
        let host = section.parsed("host", String::new(), |text| {
            let is_known = ["unix://", "tcp://", "http://"].iter().any(|s| text.starts_with(s));
            match text.is_empty() || is_known {
                true => Ok(text.to_owned()),
                false => Err("must begin with unix:// or tcp://".to_owned()),
            }
        });
        let tls_dir = section.parsed("tls_dir", None, |text| match text {
            "" => Err("must be a directory with ca.pem, cert.pem and key.pem".to_owned()),
            text if host.starts_with("tcp://") => Ok(Some(PathBuf::from(text))),
            _ => Err("must be left out unless host begins with tcp://".to_owned()),
        });
        let registry_auth = section.path_if_given("registry_auth");
        let image =
            section.parsed("image", None, |text| Ok((!text.is_empty()).then(|| text.to_owned())));
        let pull = section.parsed("pull", Pull::Missing, |text| match text {
            "missing" => Ok(Pull::Missing),
            "never" => Ok(Pull::Never),
            _ => Err("must be missing or never".to_owned()),
        });
        let user = section.parsed("user", ContainerUser::default(), ContainerUser::parse);
        let options = DockerOptions::read(section);
        Self { host, tls_dir, registry_auth, image, pull, user, options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides, ProviderSchema};
    use crate::sandbox::docker::DockerKind;

    /// Reads `[providers.docker]` with these lines from a file.
    fn read(lines: &str) -> Result<DockerSettings, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("issuebox.toml");
        std::fs::write(&file, format!("data = \"d\"\n[providers.docker]\n{lines}"))
            .expect("written");
        let schemas: [&dyn ProviderSchema; 1] = [&DockerKind];
        let loaded = Config::load(Some(&file), std::iter::empty(), Overrides::default(), &schemas);
        let loaded = loaded.map_err(|error| {
            error.to_string().replace(&format!("{}/", dir.path().display()), "")
        })?;
        let settings = loaded.config.providers.into_values().next().expect("one provider");
        Ok(settings.get::<DockerSettings>().expect("its own").clone())
    }

    #[test]
    fn the_section_may_be_empty_and_each_key_is_read() {
        assert_eq!(read(""), Ok(DockerSettings::default()));
        let read_all = read(
            "host = \"tcp://10.0.0.1:2376\"\ntls_dir = \"/certs\"\nregistry_auth = \"/auth.json\"\n\
             image = \"debian:12\"\npull = \"never\"\nuser = \"7:8\"\nruntime = \"runsc\"\nread_only = true",
        );
        let options = DockerOptions { runtime: Some("runsc".into()), is_read_only: true };
        let expected = DockerSettings {
            host: "tcp://10.0.0.1:2376".into(),
            tls_dir: Some("/certs".into()),
            registry_auth: Some("/auth.json".into()),
            image: Some("debian:12".into()),
            pull: Pull::Never,
            user: ContainerUser { uid: 7, gid: 8 },
            options: options.clone(),
        };
        assert_eq!(read_all, Ok(expected));
        assert_eq!(DockerOptions::of(&options.to_texts(), &DockerOptions::default()), options);
        let error = read("tls_dir = \"/certs\"").expect_err("it says nothing of the host");
        insta::assert_snapshot!(error, @r#"issuebox.toml:3: providers.docker.tls_dir must be left out unless host begins with tcp://, not "/certs""#);
        let error = read("host = \"x\"\npull = \"always\"\nuser = \"node\"").expect_err("wrong");
        insta::assert_snapshot!(error, @r#"
        issuebox.toml:3: providers.docker.host must begin with unix:// or tcp://, not "x"
        issuebox.toml:4: providers.docker.pull must be missing or never, not "always"
        issuebox.toml:5: providers.docker.user must be a number UID or UID:GID, such as 1000:1000, not "node"
        "#);
    }
}
