//! What SIGHUP takes over while the server runs, and what waits for its next start.

use std::sync::Arc;

use anyhow::Context;

use crate::config::{Config, Secrets};
use crate::http::{LiveToken, LoginLinks, TokenHash};
use crate::sandbox::ReloadedSettings;
use crate::types::LiveSecrets;

use super::providers::Reloads;

/// What can change while the server runs.
pub(super) struct Reload {
    /// As it is in force, what waits for the next start left out.
    pub config: Config,
    /// Those in force.
    pub secrets: Secrets,
    /// Who checks deliveries by them.
    pub webhook_secrets: LiveSecrets,
    /// Who checks calls by it.
    pub admin_token: LiveToken,
    /// Links that were made with it.
    pub login_links: Arc<LoginLinks>,
    /// The providers that take settings over while they are open.
    pub providers: Reloads,
}

/// What came of a configuration that was read again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TakenOver {
    /// In force from now on.
    now: Vec<&'static str>,
    /// In force at the next start.
    later: Vec<&'static str>,
}

impl Reload {
    /// Takes over what can change while the server runs, and logs what that was.
    pub fn take_over_and_tell(&mut self, given: Config) {
        match self.take_over(given) {
            Ok(TakenOver { now, later }) if now.is_empty() && later.is_empty() => {
                tracing::info!("the configuration was read again; it is as it was");
            }
            Ok(TakenOver { now, later }) => {
                let told = |what: &[&str]| match what {
                    [] => "nothing".to_owned(),
                    what => what.join(", "),
                };
                tracing::info!(
                    now = told(&now),
                    at_the_next_start = told(&later),
                    "the configuration was read again"
                );
            }
            Err(error) => tracing::error!("the configuration was not taken over: {error:#}"),
        }
    }

    fn take_over(&mut self, given: Config) -> anyhow::Result<TakenOver> {
        // Also those that are kept in the data directory, where somebody may have written new ones:
        // in the one that is in force, since another waits for the next start.
        let kept = Config { server: self.config.server.clone(), ..given.clone() };
        let secrets = Secrets::ensure(&kept).context("the secrets")?;
        let mut taken_over = TakenOver::default();
        if secrets.webhook_secrets != self.secrets.webhook_secrets {
            self.webhook_secrets.replace(secrets.webhook_secrets.clone());
            taken_over.now.push("github.webhook_secrets");
        }
        if secrets.admin_token != self.secrets.admin_token {
            self.admin_token.replace(TokenHash::of(&secrets.admin_token));
            self.login_links.forget();
            taken_over.now.push("auth.admin_token");
        }
        self.secrets = secrets;
        self.config.auth.clone_from(&given.auth);
        self.config.github.webhook_secrets.clone_from(&given.github.webhook_secrets);
        for (name, reload) in &self.providers {
            if let Some(settings) = given.providers.get(name) {
                let ReloadedSettings { in_force, changed } = reload(settings);
                self.config.providers.insert(name.clone(), in_force);
                taken_over.now.extend(changed);
            }
        }
        taken_over.later = differing(&self.config, &given);
        Ok(taken_over)
    }
}

/// The sections in which two configurations differ.
fn differing(one: &Config, other: &Config) -> Vec<&'static str> {
    // What [auth] holds never waits.
    let Config { server, auth: _, github, triggers, lifecycle, quota, .. } = one;
    let Config { retention, logs, templates, providers, .. } = one;
    [
        ("listen, data, public_url, trusted_proxies", *server == other.server),
        ("[github]", *github == other.github),
        ("[triggers]", *triggers == other.triggers),
        ("[lifecycle]", *lifecycle == other.lifecycle),
        ("[quota]", *quota == other.quota),
        ("[retention]", *retention == other.retention),
        ("[logs]", *logs == other.logs),
        ("[templates]", *templates == other.templates),
        ("[providers]", *providers == other.providers),
    ]
    .into_iter()
    .filter(|(_, is_same)| !is_same)
    .map(|(name, _)| name)
    .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::app::providers;
    use crate::clock::{Clock, SystemClock, SystemIds};
    use crate::config::Overrides;

    fn config(dir: &Path, text: &str) -> Config {
        let file = dir.join("issuebox.toml");
        std::fs::write(&file, format!("data = {:?}\n{text}", dir.join("data"))).expect("written");
        let loaded = providers::load_config(Some(&file), std::iter::empty(), Overrides::default());
        loaded.expect("a good configuration").config
    }

    fn reload(config: &Config) -> Reload {
        let secrets = Secrets::ensure(config).expect("kept");
        Reload {
            config: config.clone(),
            webhook_secrets: LiveSecrets::new(secrets.webhook_secrets.clone()),
            admin_token: LiveToken::new(TokenHash::of(&secrets.admin_token)),
            login_links: Arc::default(),
            providers: Reloads::new(),
            secrets,
        }
    }

    #[test]
    fn secrets_are_in_force_at_once_and_the_rest_is_said_to_wait() {
        let dir = tempfile::tempdir().expect("a directory");
        let one = config(dir.path(), "[github]\nwebhook_secrets = [\"one\"]");
        let mut reload = reload(&one);
        let secrets = reload.webhook_secrets.clone();
        assert_eq!(reload.take_over(one).expect("good"), TakenOver::default());

        let text = "[github]\nwebhook_secrets = [\"two\", \"one\"]\n[quota]\nlive = 7";
        let two = config(dir.path(), text);
        let taken_over = reload.take_over(two.clone()).expect("good");
        assert_eq!(taken_over.now, ["github.webhook_secrets"]);
        assert_eq!(taken_over.later, ["[quota]"]);
        assert_eq!(*secrets.in_force(), *two.github.webhook_secrets);
        let again = reload.take_over(two).expect("good");
        assert_eq!((again.now.len(), again.later), (0, vec!["[quota]"]), "it still waits");

        // None is configured any more: the data directory's is in force.
        let kept = config(dir.path(), "");
        assert_eq!(reload.take_over(kept).expect("good").now, ["github.webhook_secrets"]);
        assert_eq!(secrets.in_force().len(), 1);
        let file = dir.path().join("data").join(Secrets::WEBHOOK_SECRET_FILE);
        std::fs::write(file, "rotated\n").expect("written");
        reload.take_over(config(dir.path(), "")).expect("good");
        assert_eq!(secrets.in_force()[0].expose(), "rotated");

        // Another data directory waits, and so do the secrets that are kept there.
        let elsewhere = dir.path().join("elsewhere");
        let mut moved = config(dir.path(), "");
        moved.server.data.clone_from(&elsewhere);
        assert_eq!(reload.take_over(moved).expect("good").now, Vec::<&str>::new());
        assert_eq!(secrets.in_force()[0].expose(), "rotated");
        assert!(!elsewhere.exists(), "nothing was made there");
    }

    #[test]
    fn another_admin_token_is_in_force_at_once_and_links_of_the_old_one_are_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut reload = reload(&config(dir.path(), ""));
        let (token, links) = (reload.admin_token.clone(), Arc::clone(&reload.login_links));
        let (ids, now) = (SystemIds, SystemClock.now());
        let (kept, _) = links.make(&ids, now);
        reload.take_over(config(dir.path(), "")).expect("good");
        assert!(links.take(&kept, now), "nothing changed");

        let (link, _) = links.make(&ids, now);
        let file = dir.path().join("data").join(Secrets::ADMIN_TOKEN_FILE);
        std::fs::write(file, "rotated\n").expect("written");
        let taken_over = reload.take_over(config(dir.path(), "")).expect("good");
        assert_eq!(taken_over.now, ["auth.admin_token"]);
        assert!(token.in_force().matches("rotated") && !links.take(&link, now));
        let given = config(dir.path(), "[auth]\nadmin_token = \"given\"");
        let taken_over = reload.take_over(given).expect("good");
        assert_eq!((taken_over.now, taken_over.later), (vec!["auth.admin_token"], vec![]));
        assert!(token.in_force().matches("given") && !token.in_force().matches("rotated"));
    }
}
