//! Credentials for GitHub, and what templates say of git.

use super::*;
use crate::types::{BranchPattern, CloneMode, GitWorkload, Repository};

#[test]
fn github_is_asked_as_an_app_or_with_a_token_and_never_with_both() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let pem = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----";
    let (key, token) = (file("app.pem", &format!("{pem}\n")), file("token", "ghp_hush\n"));
    let login = |text: &str| {
        let loaded = load(&format!("[github]\n{text}"));
        loaded.map(|loaded| loaded.config.github.login).map_err(|error| error.to_string())
    };
    assert_eq!(login(""), Ok(None));
    let app = GitHubLogin::App { id: 7, key: Secret::new(pem) };
    assert_eq!(login(&format!("app_id = 7\napp_key_file = {key:?}")), Ok(Some(app)));
    let user = GitHubLogin::Token(Secret::new("ghp_hush"));
    assert_eq!(login(&format!("token_file = {token:?}")), Ok(Some(user.clone())));
    assert_eq!(login("token = \"ghp_hush\""), Ok(Some(user)));
    for (text, wrong) in [
        ("app_id = 7".to_owned(), "github.app_id needs the App's private key"),
        (format!("app_key_file = {key:?}"), "github.app_key needs the App's id"),
        (
            "app_id = 7\napp_key = \"hush\"".to_owned(),
            "github.app_key must be a private key in PEM",
        ),
        ("token = \" \"".to_owned(), "github.token is empty"),
        (format!("token = \"a\"\ntoken_file = {token:?}"), "are both set; keep one"),
        (
            format!("app_id = 7\napp_key_file = {key:?}\ntoken = \"a\""),
            "github.app_id and github.token are both set; keep the App or the token",
        ),
    ] {
        let error = login(&text).expect_err("it is refused");
        assert!(error.contains(wrong) && !error.contains("hush"), "{text}: {error}");
    }
}

#[test]
fn credentials_go_out_encrypted_or_to_this_machine_alone() {
    let api_url = |address: &str| {
        load(&format!("[github]\napi_url = {address:?}")).map(|loaded| loaded.config.github.api_url)
    };
    for good in [
        "https://git.example.org/api/v3",
        "http://127.0.0.1:7/api",
        "http://[::1]:7",
        "http://localhost",
    ] {
        assert_eq!(api_url(good).expect("accepted"), good);
    }
    for bad in
        ["http://git.example.org", "http://127.0.0.1.example.org", "http://a@git.example.org"]
    {
        let error = api_url(bad).expect_err("it is refused").to_string();
        assert!(error.contains("http:// is accepted on loopback only"), "{bad}: {error}");
    }
}

fn git(text: &str) -> Result<(Option<GitWorkload>, Vec<String>), String> {
    let loaded = load(&format!("[github]\ntoken = \"hush\"\n{text}"))?;
    let template = loaded.config.templates.into_values().next().expect("one");
    Ok((template.workload.git.clone(), loaded.warnings))
}

#[test]
fn a_template_says_what_is_checked_out() {
    let default = GitWorkload {
        base: None,
        clone: CloneMode::Auto,
        read: Vec::new(),
        push_max_mb: 1_024,
        workflows: false,
        repository_file: None,
    };
    assert_eq!(git(""), Ok((Some(default), Vec::new())));
    let text = "[templates.default.git]\nclone = \"shallow\"\nread = [\"octo/tools\"]\n\
                push_max_mb = 7\nworkflows = true";
    let all = GitWorkload {
        base: None,
        clone: CloneMode::Shallow,
        read: vec![Repository::parse("octo/tools").expect("one")],
        push_max_mb: 7,
        workflows: true,
        repository_file: None,
    };
    assert_eq!(git(text), Ok((Some(all), Vec::new())));
    assert_eq!(git("[templates.default.git]\nclone = \"none\""), Ok((None, Vec::new())));
    let (none, warnings) = git("[templates.default]\nnetwork = \"host\"").expect("accepted");
    assert_eq!(none, None);
    assert!(warnings[0].ends_with(
        "templates.default.network is \"host\", which has no git gateway: nothing is checked out"
    ));
    for (text, wrong) in [
        ("clone = \"deep\"", "must be one of auto, full, blobless, shallow, none"),
        ("read = [\"tools\"]", "must be owner/name, not \"tools\""),
        ("push_max_mb = 0", "must be"),
    ] {
        let error = git(&format!("[templates.default.git]\n{text}")).expect_err("it is refused");
        assert!(error.contains(wrong), "{text}: {error}");
    }
}

#[test]
fn branches_follow_the_pattern() {
    let branch = |text: &str| {
        load(&format!("[github]\nbranch = {text:?}")).map(|loaded| loaded.config.github.branch)
    };
    let pattern = BranchPattern::parse("bots/{number}").expect("one");
    assert_eq!(branch("bots/{number}"), Ok(pattern));
    let error = branch("bots").expect_err("it is refused");
    assert!(error.contains("github.branch must contain {number} once"), "{error}");
}
