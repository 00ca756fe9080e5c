//! SIGHUP: which settings take effect while the server runs, and which at its next start.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use anyhow::Context;

use crate::access::Access;
use crate::config::{Config, PeopleLogin, Secrets};
use crate::engine::WeakEngine;
use crate::github::client::AppSignIn;
use crate::http::{LiveToken, LoginLinks, TokenHash};
use crate::models::gateway::HttpModelGateway;
use crate::sandbox::{Descriptor, ReloadedSettings};
use crate::types::{LiveSecrets, LoginGrants, NamedSecrets, ProviderName, TemplateName};

use super::exposure;
use super::github::{self, ReloadGitHub};
use super::models;
use super::providers::{Reloads, check_template};

/// The parts that can change while the server runs.
pub(super) struct Reload {
    /// The configuration in effect.
    pub config: Config,
    /// The secrets in effect.
    pub secrets: Secrets,
    /// The accounts, and tokens that people created. Does not keep them, since they keep the store.
    pub access: Weak<Access>,
    /// The secrets that verify deliveries.
    pub webhook_secrets: LiveSecrets,
    /// The token that authenticates calls.
    pub admin_token: LiveToken,
    /// Login links; a new admin token invalidates them.
    pub login_links: Arc<LoginLinks>,
    /// The client of GitHub's API, whose credentials can be replaced by others.
    pub github: ReloadGitHub,
    /// Where people log in with GitHub.
    pub sign_in: Option<Arc<AppSignIn>>,
    /// The secrets that templates name.
    pub named_secrets: NamedSecrets,
    /// The engine, whose templates can be replaced; it must not be kept either.
    pub engine: WeakEngine,
    /// What the open providers declared.
    pub declared: BTreeMap<ProviderName, Arc<Descriptor>>,
    /// The gateway to the models.
    pub models: Weak<HttpModelGateway>,
    /// The providers that take settings over while they are open.
    pub providers: Reloads,
}

/// The result of a reload.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TakenOver {
    /// Settings in effect now.
    now: Vec<&'static str>,
    /// Settings that take effect at the next start.
    later: Vec<&'static str>,
}

impl Reload {
    /// Applies what can change while the server runs, and logs the result.
    pub fn apply_and_log(&mut self, given: Config) {
        match self.take_over(given) {
            Ok(TakenOver { now, later }) if now.is_empty() && later.is_empty() => {
                tracing::info!("configuration reloaded; nothing changed");
            }
            Ok(TakenOver { now, later }) => {
                let list = |what: &[&str]| match what {
                    [] => "nothing".to_owned(),
                    what => what.join(", "),
                };
                tracing::info!(
                    now = list(&now),
                    at_the_next_start = list(&later),
                    "configuration reloaded"
                );
            }
            Err(error) => tracing::error!("cannot reload the configuration: {error:#}"),
        }
    }

    fn take_over(&mut self, given: Config) -> anyhow::Result<TakenOver> {
        // Includes the secrets in the current data directory, which may have been rotated. A different
        // data directory takes effect at the next start.
        let kept = Config { server: self.config.server.clone(), ..given.clone() };
        let secrets = Secrets::ensure(&kept).context("cannot load the secrets")?;
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
        // What was taken over so far are the secrets.
        if !taken_over.now.is_empty() {
            exposure::warn_of_short(&secrets);
        }
        if given.github.login != self.config.github.login {
            match self.github.take_over(&given.github) {
                Ok(true) => {
                    self.config.github.login.clone_from(&given.github.login);
                    taken_over.now.push("GitHub's credentials");
                }
                // Whether there are any decides what is started.
                Ok(false) => {}
                Err(error) => tracing::error!("GitHub's credentials stay as they were: {error:#}"),
            }
        }
        self.secrets = secrets;
        taken_over.now.extend(self.take_people(&given));
        self.config.auth.admin_token.clone_from(&given.auth.admin_token);
        self.config.github.webhook_secrets.clone_from(&given.github.webhook_secrets);
        if given.secrets != self.config.secrets {
            self.named_secrets.replace(given.secrets.clone());
            self.config.secrets.clone_from(&given.secrets);
            taken_over.now.push("[secrets]");
        }
        if given.models != self.config.models
            && let Some(gateway) = self.models.upgrade()
        {
            models::replace(&gateway, &given.models);
            self.config.models.clone_from(&given.models);
            taken_over.now.push("[models], [budgets], [prices]");
        }
        if given.accounts != self.config.accounts
            && let Some(access) = self.access.upgrade()
        {
            access.configure(given.accounts.clone());
            self.config.accounts.clone_from(&given.accounts);
            taken_over.now.push("[accounts]");
        }
        taken_over.now.extend(self.take_templates(&given));
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

    /// Takes over templates and what is different for repositories. Returns what took effect.
    fn take_templates(&mut self, given: &Config) -> Vec<&'static str> {
        let sections = [
            ("[templates]", given.templates != self.config.templates),
            ("[repositories]", given.repositories != self.config.repositories),
        ];
        let changed = sections.into_iter().filter_map(|(name, is)| is.then_some(name));
        let changed: Vec<_> = changed.collect();
        if changed.is_empty() {
            return changed;
        }
        match self.replace_templates(given) {
            Ok(()) => changed,
            Err(error) => {
                tracing::error!("the templates stay as they were: {error:#}");
                Vec::new()
            }
        }
    }

    /// Has people log in with the given client and rules from now on. Those whose rule is taken away are
    /// logged out. Returns what took effect.
    fn take_people(&mut self, given: &Config) -> Vec<&'static str> {
        let mut now = Vec::new();
        let grants = LoginGrants::new(given.auth.grants());
        // What is in force is compared: the section itself takes effect at the next start.
        if let Some(access) = self.access.upgrade()
            && *access.grants() != grants
        {
            access.set_grants(grants);
            now.push("auth.github.grant");
        }
        let (given, kept) = (given.auth.github.as_ref(), self.config.auth.github.as_mut());
        if let (Some(sign_in), Some(given), Some(kept)) = (&self.sign_in, given, kept) {
            // How long sessions last is a part of the server.
            let taken = PeopleLogin { session: kept.session, ..given.clone() };
            let client = github::client_of(given);
            if client != github::client_of(kept) {
                sign_in.replace_client(client);
                now.push("auth.github.client_id, client_secret");
            }
            *kept = taken;
        }
        now
    }

    /// Has sandboxes created from the given templates and settings of repositories from now on.
    fn replace_templates(&mut self, given: &Config) -> anyhow::Result<()> {
        for template in given.templates.values() {
            check_template(template, &self.declared)?;
        }
        let default = given.templates.get(&TemplateName::trusted("default"));
        let default = default.context("there is no default template")?.clone();
        let engine = self.engine.upgrade().context("the server is shutting down")?;
        self.config.templates.clone_from(&given.templates);
        self.config.repositories.clone_from(&given.repositories);
        let templates = self.config.all_templates().into_iter().collect();
        engine.replace_templates(default, templates, self.config.repositories.clone());
        Ok(())
    }
}

/// The sections in which two configurations differ.
fn differing(one: &Config, other: &Config) -> Vec<&'static str> {
    let Config { server, auth, github, triggers, lifecycle, quota, .. } = one;
    let Config { accounts_in_metrics_max, .. } = one;
    let Config { retention, logs, models, sync, templates, repositories, providers, .. } = one;
    [
        ("listen, data, public_url, trusted_proxies", *server == other.server),
        // The admin token always takes effect at once.
        ("[auth.github]", auth.github == other.auth.github),
        ("[github]", *github == other.github),
        ("[triggers]", *triggers == other.triggers),
        ("[lifecycle]", *lifecycle == other.lifecycle),
        ("[quota]", *quota == other.quota),
        ("[metrics]", *accounts_in_metrics_max == other.accounts_in_metrics_max),
        ("[retention]", *retention == other.retention),
        ("[sync]", *sync == other.sync),
        ("[logs]", *logs == other.logs),
        ("[models], [budgets], [prices]", *models == other.models),
        ("[templates]", *templates == other.templates),
        ("[repositories]", *repositories == other.repositories),
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
    use crate::http::login_links::LinkHolder;
    use crate::store::sqlite::SqliteStore;

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
            access: Weak::new(),
            webhook_secrets: LiveSecrets::new(secrets.webhook_secrets.clone()),
            admin_token: LiveToken::new(TokenHash::of(&secrets.admin_token)),
            login_links: Arc::default(),
            github: ReloadGitHub::default(),
            sign_in: None,
            named_secrets: NamedSecrets::default(),
            engine: WeakEngine::default(),
            declared: BTreeMap::new(),
            models: Weak::new(),
            providers: Reloads::new(),
            secrets,
        }
    }

    #[test]
    fn templates_whose_provider_is_not_open_stay_as_they_were() {
        let dir = tempfile::tempdir().expect("a directory");
        let one = config(dir.path(), "[templates.default]\nprovider = \"simulated\"");
        let mut reload = reload(&one);
        let two = config(dir.path(), "[templates.default]\nprovider = \"local\"");
        let taken_over = reload.take_over(two.clone()).expect("good");
        assert_eq!(taken_over, TakenOver { now: vec![], later: vec!["[templates]"] });
        assert_eq!(reload.config.templates, one.templates);
        let error = reload.replace_templates(&two).expect_err("it is not open");
        let words = "templates.default needs the provider local, which is opened at the next start";
        assert_eq!(error.to_string(), words);
    }

    #[test]
    fn triggers_of_repositories_take_effect_at_the_next_start_and_budgets_with_the_models() {
        let dir = tempfile::tempdir().expect("a directory");
        let one = config(dir.path(), "");
        let mut reload = reload(&one);
        let text = "[repositories.\"octo/*\"]\ntriggers = { label = \"robot\" }";
        let taken_over = reload.take_over(config(dir.path(), text)).expect("good");
        assert_eq!(taken_over, TakenOver { now: vec![], later: vec!["[triggers]"] });
        let text = "[repositories.\"octo/*\"]\nbudget = { run = 1 }";
        let taken_over = reload.take_over(config(dir.path(), text)).expect("good");
        assert_eq!(taken_over.later, ["[models], [budgets], [prices]"], "there is no gateway");
        let text = "[repositories.\"octo/*\"]\nworking_dir = \"web\"";
        let taken_over = reload.take_over(config(dir.path(), text)).expect("good");
        assert_eq!(taken_over.later, ["[repositories]"], "there is no engine");
    }

    #[tokio::test]
    async fn rules_for_log_ins_are_those_of_the_configuration_that_was_read_last() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = "public_url = \"https://box.example.org\"\n[auth.github]\nclient_id = \"a\"\n\
                    client_secret = \"b\"\ngrant = [{ user_id = 7, role = \"viewer\" }]";
        let (with, without) = (config(dir.path(), text), config(dir.path(), ""));
        let store = SqliteStore::open(&dir.path().join("store")).expect("a store");
        let access = Access::open(Arc::new(store), BTreeMap::new()).await;
        let access = Arc::new(access.expect("it is read"));
        let rules = |config: &Config| LoginGrants::new(config.auth.grants());
        for (first, second) in [(&with, &without), (&without, &with)] {
            access.set_grants(rules(first));
            let mut reload = Reload { access: Arc::downgrade(&access), ..reload(first) };
            for given in [second, first, second] {
                let taken_over = reload.take_over(given.clone()).expect("good");
                assert_eq!(*access.grants(), rules(given));
                assert!(taken_over.now.contains(&"auth.github.grant"), "{taken_over:?}");
            }
        }
    }

    #[test]
    fn secrets_take_effect_at_once_and_other_changes_at_the_next_start() {
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

        // None is configured any more, so the one in the data directory is used.
        let kept = config(dir.path(), "");
        assert_eq!(reload.take_over(kept).expect("good").now, ["github.webhook_secrets"]);
        assert_eq!(secrets.in_force().len(), 1);
        let file = dir.path().join("data").join(Secrets::WEBHOOK_SECRET_FILE);
        std::fs::write(file, "rotated\n").expect("written");
        reload.take_over(config(dir.path(), "")).expect("good");
        assert_eq!(secrets.in_force()[0].expose(), "rotated");

        // A new data directory waits for the next start, and so do its secrets.
        let elsewhere = dir.path().join("elsewhere");
        let mut moved = config(dir.path(), "");
        moved.server.data.clone_from(&elsewhere);
        assert_eq!(reload.take_over(moved).expect("good").now, Vec::<&str>::new());
        assert_eq!(secrets.in_force()[0].expose(), "rotated");
        assert!(!elsewhere.exists(), "nothing was made there");
    }

    #[test]
    fn a_new_admin_token_takes_effect_at_once_and_invalidates_login_links() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut reload = reload(&config(dir.path(), ""));
        let (token, links) = (reload.admin_token.clone(), Arc::clone(&reload.login_links));
        let (ids, now) = (SystemIds, SystemClock.now());
        let (kept, _) = links.make(LinkHolder::Admin, &ids, now);
        reload.take_over(config(dir.path(), "")).expect("good");
        assert!(links.take(&kept, now).is_some(), "nothing changed");

        let (link, _) = links.make(LinkHolder::Admin, &ids, now);
        let file = dir.path().join("data").join(Secrets::ADMIN_TOKEN_FILE);
        std::fs::write(file, "rotated\n").expect("written");
        let taken_over = reload.take_over(config(dir.path(), "")).expect("good");
        assert_eq!(taken_over.now, ["auth.admin_token"]);
        assert!(token.in_force().matches("rotated") && links.take(&link, now).is_none());
        let given = config(dir.path(), "[auth]\nadmin_token = \"given\"");
        let taken_over = reload.take_over(given).expect("good");
        assert_eq!((taken_over.now, taken_over.later), (vec!["auth.admin_token"], vec![]));
        assert!(token.in_force().matches("given") && !token.in_force().matches("rotated"));
    }
}
