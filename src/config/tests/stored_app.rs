//! The App that was registered on the page: when its credentials are used, and what is said where they are
//! not.

use super::*;

/// Stores an App in a data directory.
fn store(data: &Path) -> StoredApp {
    let app = StoredApp {
        about: AppFacts {
            id: 7,
            slug: "pear-box".to_owned(),
            html_url: "https://github.com/apps/pear-box".to_owned(),
            web_url: "https://github.com".to_owned(),
            api_url: "https://api.github.com".to_owned(),
        },
        key: Secret::new("-----BEGIN KEY-----"),
        webhook_secret: Some(Secret::new("of-the-app")),
    };
    app.write(data).expect("written");
    app
}

fn load_on(data: &Path, github: &str) -> Result<Loaded, String> {
    let overrides = Overrides { listen: None, data: Some(data.to_owned()) };
    load_with(Some(&format!("[github]\n{github}")), &[], overrides)
}

#[test]
fn the_stored_app_is_used_and_its_webhook_secret_is_added() {
    let dir = tempfile::tempdir().expect("a directory");
    let app = store(dir.path());
    let text = "intake = \"deliveries\"\nwebhook_secrets = [\"own\"]";
    let Loaded { config, warnings, .. } = load_on(dir.path(), text).expect("accepted");
    assert_eq!(warnings, [""; 0]);
    assert_eq!(config.github.login, Some(app.login()));
    let git = config.templates.values().next().and_then(|template| template.workload.git.as_ref());
    assert!(git.is_some(), "sandboxes have checkouts");
    let accepted = |config: &Config| {
        let secrets = Secrets::ensure(config).expect("kept").webhook_secrets;
        secrets.iter().map(|secret| secret.expose().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(accepted(&config), ["own", "of-the-app"]);
    let config = load_on(dir.path(), "").expect("accepted").config;
    let generated = accepted(&config);
    assert_eq!((generated.len(), generated[1].as_str()), (2, "of-the-app"));
    assert!(!format!("{config:?}").contains("of-the-app"));
}

#[test]
fn configured_credentials_win_and_a_warning_names_both() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let key = "app_id = 8\napp_key = \"-----BEGIN OTHER-----\"";
    for (text, key) in [(key, "github.app_id"), ("token = \"ghp_x\"", "github.token")] {
        let Loaded { config, warnings, .. } = load_on(dir.path(), text).expect("accepted");
        assert_eq!(config.github.stored_app, None);
        assert_ne!(config.github.login, None);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        let named = dir.path().join("github-app").display().to_string();
        assert!(warning.contains("pear-box") && warning.contains(&named), "{warning}");
        assert!(warning.contains(&format!("{key} is configured")), "{warning}");
        assert_eq!(Secrets::ensure(&config).expect("kept").webhook_secrets.len(), 1);
    }
}

#[test]
fn the_app_of_another_github_is_not_used_there() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let text = "api_url = \"https://git.example.org/api/v3\"";
    let Loaded { config, warnings, .. } = load_on(dir.path(), text).expect("accepted");
    assert_eq!(config.github.login, None);
    assert!(warnings[0].contains("it is of https://api.github.com"), "{warnings:?}");
}

#[test]
fn a_damaged_app_keeps_the_server_from_starting_without_it() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    std::fs::remove_file(dir.path().join("github-app/key.pem")).expect("removed");
    let error = load_on(dir.path(), "").expect_err("refused");
    assert!(error.contains("key.pem") && error.contains("register the App again"), "{error}");
}
