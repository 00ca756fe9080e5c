//! Credentials for registries, from the file that `docker login` and `podman login` write.
//!
//! The engine gets those of the registry that it pulls from, with each pull, and keeps none.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;

/// The registry of images whose name has none, and what `docker login` calls it.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_LOGIN: &str = "index.docker.io";

/// What is used of such a file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthFile {
    #[serde(default)]
    auths: BTreeMap<String, Login>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

/// The login at one registry.
#[derive(Deserialize)]
struct Login {
    /// `USER:PASSWORD` in Base64.
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    #[serde(alias = "identitytoken")]
    identity_token: Option<String>,
}

/// The credentials with which an image is pulled; `None` if the file has none for its registry.
///
/// # Errors
/// Why they cannot be had, and what to do.
pub async fn credentials(file: &Path, image: &str) -> Result<Option<DockerCredentials>, String> {
    let text = tokio::fs::read_to_string(file).await;
    let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    find(&text, image).map_err(|why| format!("{} {why}", file.display()))
}

fn find(text: &str, image: &str) -> Result<Option<DockerCredentials>, String> {
    // The error of the parser could quote a secret.
    let wrong = "is not a file as `docker login` writes it: JSON with `auths`";
    let file: AuthFile = serde_json::from_str(text).map_err(|_| wrong.to_owned())?;
    let place = place_of(image);
    let logins = file.auths.iter().map(|(key, login)| (normal(key), login));
    let matching = logins.filter(|(key, _)| is_within(&place, key));
    let Some((registry, login)) = matching.max_by_key(|(key, _)| key.len()) else {
        return Ok(None);
    };
    let [user, password] = match (&login.auth, &login.username, &login.password) {
        (Some(auth), _, _) if !auth.is_empty() => decoded(auth).ok_or_else(|| wrong.to_owned())?,
        (_, Some(user), Some(password)) => [user.clone(), password.clone()],
        _ if login.identity_token.is_some() => [String::new(), String::new()],
        _ => return Err(in_a_helper(&file, &registry)),
    };
    let (username, password) = (Some(user), Some(password));
    let identitytoken = login.identity_token.clone();
    let serveraddress = Some(registry);
    let none = DockerCredentials::default();
    Ok(Some(DockerCredentials { username, password, identitytoken, serveraddress, ..none }))
}

/// Why there is no password for a registry that the file names.
fn in_a_helper(file: &AuthFile, registry: &str) -> String {
    let helper = file.cred_helpers.get(registry).or(file.creds_store.as_ref());
    let program = helper.map_or_else(String::new, |name| {
        format!(": docker-credential-{name} keeps it, which the server does not run")
    });
    format!(
        "has no password for {registry}{program}; name a file that has it (docker --config DIR login \
         {registry} writes DIR/config.json)"
    )
}

fn decoded(auth: &str) -> Option<[String; 2]> {
    let text = String::from_utf8(STANDARD.decode(auth).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    // Docker pads some with zeros.
    Some([user.to_owned(), password.trim_end_matches('\0').to_owned()])
}

/// The registry and the path of an image, without tag and digest. As for the engine, the first part of a name is a
/// registry if it looks like a host.
fn place_of(image: &str) -> String {
    let name = image.split('@').next().unwrap_or(image);
    match name.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => name.to_owned(),
        _ => format!("{DOCKER_HUB}/{name}"),
    }
}

/// The key of a login as registry and path: `https://index.docker.io/v1/` is `docker.io`.
fn normal(key: &str) -> String {
    let host = key.strip_prefix("https://").or(key.strip_prefix("http://")).unwrap_or(key);
    let host = host.trim_end_matches('/');
    let host = host.strip_suffix("/v1").or(host.strip_suffix("/v2")).unwrap_or(host);
    if host == DOCKER_HUB_LOGIN { DOCKER_HUB.to_owned() } else { host.to_owned() }
}

/// Whether an image lies in a registry, or at a path of it.
fn is_within(place: &str, key: &str) -> bool {
    place.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The user and the password for an image.
    fn login(text: &str, image: &str) -> Result<Option<[String; 2]>, String> {
        let found = find(text, image)?;
        Ok(found.map(|it| [it.username, it.password].map(Option::unwrap_or_default)))
    }

    /// A file with these logins.
    fn file(keys: &[(&str, &str)]) -> String {
        let login = |(key, words): &(&str, &str)| {
            (key.to_string(), serde_json::json!({"auth": STANDARD.encode(words)}))
        };
        let auths: serde_json::Map<_, _> = keys.iter().map(login).collect();
        serde_json::json!({ "auths": auths }).to_string()
    }

    #[test]
    fn the_login_is_that_of_the_image_s_registry() {
        let text = file(&[
            ("https://index.docker.io/v1/", "hub:a"),
            ("ghcr.io", "octo:b:c"),
            ("ghcr.io/octo/private", "robot:d"),
            ("localhost:5000", "me:e"),
            ("https://registry.example.com/v2/", "you:f"),
        ]);
        for (image, expected) in [
            ("debian", Some(["hub", "a"])),
            ("octo/tool:1", Some(["hub", "a"])),
            ("docker.io/library/debian:12", Some(["hub", "a"])),
            ("ghcr.io/octo/tool", Some(["octo", "b:c"])),
            ("ghcr.io/octo/private/tool@sha256:00", Some(["robot", "d"])),
            ("ghcr.io/octo/private:2", Some(["robot", "d"])),
            ("ghcr.io/octo/privateer", Some(["octo", "b:c"])),
            ("localhost:5000/x", Some(["me", "e"])),
            ("registry.example.com/x", Some(["you", "f"])),
            ("localhost/x", None),
            ("quay.io/x", None),
        ] {
            let expected = expected.map(|words| words.map(str::to_owned));
            assert_eq!(login(&text, image), Ok(expected), "{image}");
        }
    }

    #[test]
    fn other_forms_are_read_and_what_is_missing_is_explained() {
        let plain = r#"{"auths": {"a.b": {"username": "u", "password": "p"}}, "more": 1}"#;
        assert_eq!(login(plain, "a.b/c"), Ok(Some(["u".into(), "p".into()])));
        let token = r#"{"auths": {"a.b": {"identitytoken": "t"}}}"#;
        let found = find(token, "a.b/c").expect("read").expect("a login");
        assert_eq!(found.identitytoken.as_deref(), Some("t"));
        assert_eq!(login("{}", "a.b/c"), Ok(None));
        for text in ["secret", r#"{"auths": {"a.b": {"auth": "secret"}}}"#] {
            let error = login(text, "a.b/c").expect_err("it is wrong");
            assert!(error.contains("docker login") && !error.contains("secret"), "{error}");
        }
        let helper = r#"{"auths": {"a.b": {}}, "credsStore": "pass"}"#;
        insta::assert_snapshot!(login(helper, "a.b/c").expect_err("no password"), @"has no password for a.b: docker-credential-pass keeps it, which the server does not run; name a file that has it (docker --config DIR login a.b writes DIR/config.json)");
    }
}
