//! What other users of the machine, and readers of its network, can do with a server's files and
//! connections. A start refuses what lets others decide, and warns of what lets them read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::config::{Config, Secrets, StoredApp};
use crate::types::Secret;

/// Every user may write to it.
const OTHERS_WRITE: u32 = 0o002;
/// Its group may write to it.
const GROUP_WRITES: u32 = 0o020;
/// Its group or others may read, write or enter it.
const NOT_PRIVATE: u32 = 0o077;

/// A thing of the server's that others reach.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exposed {
    /// What others can do.
    pub found: String,
    /// What to do.
    pub remedy: String,
    /// Whether every user of the machine decides what it says.
    pub is_decided_by_others: bool,
}

/// A sentence for each thing that others can read.
///
/// # Errors
/// Names what every user of the machine can write, and what to do.
pub(super) fn check(config: &Config) -> anyhow::Result<Vec<String>> {
    let data = &config.server.data;
    let kept = [Secrets::ADMIN_TOKEN_FILE, Secrets::WEBHOOK_SECRET_FILE].map(|n| data.join(n));
    let app = StoredApp::paths(data);
    let paths = std::iter::once(data).chain(&kept).chain(&app).chain(&config.secret_files);
    let mut warnings = Vec::new();
    // What is missing is made for its owner alone; the start's own error says what cannot be used.
    let found = paths.filter_map(|path| of_path(path, &path.metadata().ok()?));
    for Exposed { found, remedy, is_decided_by_others } in found {
        anyhow::ensure!(!is_decided_by_others, "{found}: check what is in it, then {remedy}");
        warnings.push(format!("{found}: {remedy}"));
    }
    warnings.extend(plain_http(config));
    Ok(warnings)
}

/// What others can do with a file or directory.
pub(super) fn of_path(path: &Path, metadata: &Metadata) -> Option<Exposed> {
    let (shown, mode) = (path.display(), metadata.mode() & 0o7777);
    let is_decided_by_others = mode & OTHERS_WRITE != 0;
    let who = match mode & NOT_PRIVATE {
        0 => return None,
        _ if is_decided_by_others => "every user of this machine can write to",
        _ if mode & GROUP_WRITES != 0 => "its group can write to",
        _ => "other users can read",
    };
    let private = if metadata.is_dir() { "0700" } else { "0600" };
    Some(Exposed {
        found: format!("{who} {shown} (mode {mode:04o})"),
        remedy: format!("chmod {private} {shown}"),
        is_decided_by_others,
    })
}

/// A sentence for each kind of secret that is short.
fn short(secrets: &Secrets) -> Vec<String> {
    let of = |what: &str, also: &str| {
        format!(
            "the {what} is shorter than {} characters and may be guessed: generate one (openssl rand \
             -hex 32){also}",
            Secret::LEN_LOW
        )
    };
    let webhook = secrets.webhook_secrets.iter().any(Secret::is_short);
    let webhook = webhook.then(|| of("webhook secret", " and set it at GitHub as well"));
    let refused = "; after 30 wrong ones in a minute an address is refused with a short one, too";
    let token = secrets.admin_token.is_short().then(|| of("admin token", refused));
    webhook.into_iter().chain(token).collect()
}

/// Logs a warning for each kind of secret that is short, at the start and when a reload changes one.
pub(super) fn warn_of_short(secrets: &Secrets) {
    for warning in short(secrets) {
        tracing::warn!("{warning}");
    }
}

/// Tokens and sessions cross the network readable, unless something in front of the server has TLS.
pub(super) fn plain_http(config: &Config) -> Option<String> {
    let server = &config.server;
    let has_tls = server.public_url.as_ref().is_some_and(|url| url.starts_with("https://"));
    if server.listen.ip().is_loopback() || has_tls || !server.trusted_proxies.is_empty() {
        return None;
    }
    Some(format!(
        "this server speaks plain HTTP on {}, where everybody on the way can read tokens and \
         sessions: put a proxy with TLS in front of it, and name its address in public_url",
        server.listen
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::Overrides;

    fn config(data: &Path, vars: &[(&str, &str)]) -> Config {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let overrides = Overrides { listen: None, data: Some(data.to_owned()) };
        super::super::providers::load_config(None, vars, overrides).expect("is right").config
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("is ours");
    }

    #[test]
    fn what_others_can_write_is_refused_and_what_they_can_read_is_warned_of() {
        let dir = tempfile::tempdir().expect("a directory");
        let (kept, named, value) =
            (dir.path().join("admin-token"), dir.path().join("hook"), dir.path().join("value"));
        for path in [&kept, &named, &value] {
            fs::write(path, "a secret\n").expect("written");
            chmod(path, 0o600);
        }
        chmod(dir.path(), 0o700);
        let [hook, npm] = [&named, &value].map(|path| path.to_str().expect("UTF-8"));
        let config = config(
            dir.path(),
            &[
                ("ISSUEBOX__GITHUB__WEBHOOK_SECRETS_FILE", hook),
                ("ISSUEBOX__SECRETS__NPM__FILE", npm),
            ],
        );
        assert_eq!(check(&config).expect("private"), [""; 0]);
        for path in [dir.path(), &kept, &named, &value] {
            let private = if path.is_dir() { 0o700 } else { 0o600 };
            for (mode, words) in
                [(0o755, "other users can read"), (0o770, "its group can write to")]
            {
                chmod(path, mode);
                let warnings = check(&config).expect("not refused");
                let [warning] = &warnings[..] else { panic!("{warnings:?}") };
                let remedy = format!("chmod {private:04o} {}", path.display());
                assert!(warning.starts_with(words) && warning.ends_with(&remedy), "{warning}");
            }
            chmod(path, 0o777);
            let refused = check(&config).expect_err("refused").to_string();
            assert!(refused.contains("(mode 0777): check what is in it"), "{refused}");
            chmod(path, private);
        }
    }

    #[test]
    fn a_short_secret_is_warned_of() {
        let long = "0123456789abcdef0123456789abcdef";
        let of = |token: &str, hooks: &[&str]| {
            let secret = crate::types::Secret::new;
            let webhook_secrets = hooks.iter().copied().map(secret).collect();
            short(&Secrets { admin_token: secret(token), webhook_secrets, made: Vec::new() })
        };
        assert_eq!(of(long, &[long]), [""; 0]);
        assert_eq!(of("x", &[long, "x"]).len(), 2);
        let warnings = of(long, &[long, "x"]);
        assert!(warnings.len() == 1 && warnings[0].contains("at GitHub as well"), "{warnings:?}");
    }

    #[test]
    fn plain_http_for_other_machines_is_warned_of() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = |vars: &[(&str, &str)]| plain_http(&config(dir.path(), vars));
        assert_eq!(of(&[]), None);
        let listen = ("ISSUEBOX_LISTEN", "0.0.0.0:8787");
        let warning = of(&[listen]).expect("a warning");
        assert!(warning.contains("plain HTTP on 0.0.0.0:8787"), "{warning}");
        assert_eq!(of(&[listen, ("ISSUEBOX__TRUSTED_PROXIES", "10.0.0.1")]), None);
        assert_eq!(of(&[listen, ("ISSUEBOX__PUBLIC_URL", "https://box.example.org")]), None);
        assert!(of(&[listen, ("ISSUEBOX__PUBLIC_URL", "http://box.example.org")]).is_some());
    }
}
