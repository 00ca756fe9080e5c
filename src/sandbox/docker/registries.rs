//! Credentials for registries, from the file that `docker login` and `podman login` write.
//!
//! The engine gets those of the registry that it pulls from, with each pull, and keeps none.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;

/// The registry of images whose name has none, its other name, and what engines call it in a login.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_INDEX: &str = "index.docker.io";
const DOCKER_HUB_LOGIN: &str = "https://index.docker.io/v1/";

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
    let host = place.split('/').next().unwrap_or_default();
    let Some((_, login)) = matching.max_by_key(|(key, _)| key.len()) else {
        return match file.cred_helpers.contains_key(host) {
            true => Err(in_a_helper(&file, host)),
            false => Ok(None),
        };
    };
    let [user, password] = match (&login.auth, &login.username, &login.password) {
        (Some(auth), _, _) if !auth.is_empty() => decoded(auth).ok_or_else(|| wrong.to_owned())?,
        (_, Some(user), Some(password)) => [user.clone(), password.clone()],
        _ if login.identity_token.is_some() => [String::new(), String::new()],
        _ => return Err(in_a_helper(&file, host)),
    };
    let (username, password) = (Some(user), Some(password));
    let identitytoken = login.identity_token.clone();
    let address = if host == DOCKER_HUB { DOCKER_HUB_LOGIN } else { host };
    let serveraddress = Some(address.to_owned());
    let none = DockerCredentials::default();
    let found = DockerCredentials { username, password, identitytoken, serveraddress, ..none };
    if is_sendable(&found) { Ok(Some(found)) } else { Err(not_sendable(host)) }
}

/// Whether the engine can read the login: bollard 0.21 sends it in the usual alphabet of Base64, and engines read
/// that of URLs, so they would pull without it.
fn is_sendable(credentials: &DockerCredentials) -> bool {
    let text = serde_json::to_string(credentials);
    text.is_ok_and(|text| !STANDARD.encode(text).contains(['+', '/']))
}

fn not_sendable(registry: &str) -> String {
    format!(
        "has a login for {registry} that cannot be sent to the engine, because of a character in it: `>`, `?`, `~` \
         or one beyond ASCII; create a token or a password without them"
    )
}

/// Why there is no password for a registry that the file names.
fn in_a_helper(file: &AuthFile, registry: &str) -> String {
    let helper = file.cred_helpers.get(registry).or(file.creds_store.as_ref());
    let program = helper.map_or_else(String::new, |name| {
        format!(": docker-credential-{name} keeps it, which the server does not run")
    });
    format!(
        "has no password for {registry}{program}; name a file that has it (podman login --authfile FILE \
         {registry} writes one)"
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
        Some((DOCKER_HUB_INDEX, rest)) => format!("{DOCKER_HUB}/{rest}"),
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => name.to_owned(),
        _ => format!("{DOCKER_HUB}/{name}"),
    }
}

/// The key of a login as registry and path: `https://index.docker.io/v1/` is `docker.io`.
fn normal(key: &str) -> String {
    let host = key.strip_prefix("https://").or(key.strip_prefix("http://")).unwrap_or(key);
    let host = host.trim_end_matches('/');
    let host = host.strip_suffix("/v1").or(host.strip_suffix("/v2")).unwrap_or(host);
    if host == DOCKER_HUB_INDEX { DOCKER_HUB.to_owned() } else { host.to_owned() }
}

/// Whether an image lies in a registry, or at a path of it. Behind a host a colon begins a port, and so another
/// registry; behind a path it begins a tag.
fn is_within(place: &str, key: &str) -> bool {
    place.strip_prefix(key).is_some_and(|rest| {
        rest.is_empty() || rest.starts_with('/') || (key.contains('/') && rest.starts_with(':'))
    })
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
            ("index.docker.io/octo/tool", Some(["hub", "a"])),
            ("ghcr.io:444/octo/tool", None),
            ("localhost/x", None),
            ("quay.io/x", None),
        ] {
            let expected = expected.map(|words| words.map(str::to_owned));
            assert_eq!(login(&text, image), Ok(expected), "{image}");
        }
        let address = |image: &str| find(&text, image).ok().flatten()?.serveraddress;
        assert_eq!(address("debian").as_deref(), Some("https://index.docker.io/v1/"));
        assert_eq!(address("ghcr.io/octo/private:2").as_deref(), Some("ghcr.io"));
    }

    #[test]
    fn a_login_that_the_engine_would_not_read_is_refused() {
        let of = |password: &str| {
            login(&file(&[("a.b", &format!("octo:{password}"))]), "a.b/c")
                .map(|found| found.is_some())
        };
        let refused: Vec<_> =
            ["~", "x~", "xx~"].into_iter().filter(|word| of(word).is_err()).collect();
        assert_eq!(refused.len(), 1, "one in three places: {refused:?}");
        assert!(of(refused[0]).is_err_and(|why| why.contains("beyond ASCII")));
        assert_eq!(of("plain-password_0123456789"), Ok(true));
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
        let known_to_a_helper = r#"{"credHelpers": {"a.b": "gcloud"}}"#;
        let error = login(known_to_a_helper, "a.b/c").expect_err("no password");
        assert!(error.contains("docker-credential-gcloud"), "{error}");
        let helper = r#"{"auths": {"a.b": {}}, "credsStore": "pass"}"#;
        insta::assert_snapshot!(login(helper, "a.b/c").expect_err("no password"), @"has no password for a.b: docker-credential-pass keeps it, which the server does not run; name a file that has it (podman login --authfile FILE a.b writes one)");
    }
}
