//! `[auth.github]`: log-ins with GitHub.

use std::time::Duration;

use super::*;
use crate::types::{GrantSubject, LoginGrant, PermissionLevel, Repository, Role};

const CLIENT: &str = "public_url = \"https://box.example.org\"\n[github]\ntoken = \"t\"\n\
                      [auth.github]\nclient_id = \"Iv1.abc\"\nclient_secret = \"hush\"\n";

fn people(text: &str) -> Result<Option<PeopleLogin>, String> {
    load(text).map(|loaded| loaded.config.auth.github)
}

#[test]
fn rules_are_read_in_their_order() {
    assert_eq!(people(""), Ok(None));
    let text = format!(
        "{CLIENT}session_seconds = 3600\n\
         [[auth.github.grant]]\nuser_id = 583231\nrole = \"admin\"\n\
         [[auth.github.grant]]\nuser = \"octocat\"\nrole = \"operator\"\naccount = \"acme\"\n\
         [[auth.github.grant]]\norganization = \"acme-inc\"\nrole = \"viewer\"\naccount = \"acme\"\n\
         [[auth.github.grant]]\nrepository = \"acme-inc/tool\"\npermission = \"write\"\n\
         role = \"operator\"\n"
    );
    let login = people(&text).expect("good").expect("it is there");
    let rule =
        |to, role, account: &str| LoginGrant { to, role, account: AccountName::trusted(account) };
    let (name, permission) = (Repository::trusted("acme-inc/tool"), PermissionLevel::Write);
    let expected = [
        rule(GrantSubject::UserId(583_231), Role::Admin, "default"),
        rule(GrantSubject::User("octocat".to_owned()), Role::Operator, "acme"),
        rule(GrantSubject::Organization("acme-inc".to_owned()), Role::Viewer, "acme"),
        rule(GrantSubject::Repository { name, permission }, Role::Operator, "default"),
    ];
    assert_eq!(login.grants, expected);
    let shown: Vec<String> = login.grants.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "user_id 583231: admin of default",
            "user octocat: operator of acme",
            "organization acme-inc: viewer of acme",
            "repository acme-inc/tool with write: operator of default",
        ]
    );
    assert_eq!((login.client_id.as_str(), login.client_secret.expose()), ("Iv1.abc", "hush"));
    assert_eq!(login.session, Duration::from_secs(3_600));
    let inline = format!("{CLIENT}grant = [{{ user = \"octocat\", role = \"admin\" }}]");
    let login = people(&inline).expect("good").expect("it is there");
    assert_eq!((login.grants.len(), login.session), (1, Duration::from_secs(8 * 3_600)));
    let warnings = load(CLIENT).expect("good").warnings;
    assert!(warnings.iter().any(|one| one.contains("no person can log in")), "{warnings:?}");
}

#[test]
fn a_mistake_names_its_key() {
    let rule = |text: &str| format!("{CLIENT}[[auth.github.grant]]\n{text}");
    let without = |part: &str| CLIENT.replace(part, "");
    for (text, wrong) in [
        (without("client_id = \"Iv1.abc\"\n"), "auth.github.client_id is missing"),
        (without("client_secret = \"hush\"\n"), "auth.github.client_secret is missing"),
        (CLIENT.replace("hush", "hu sh"), "auth.github.client_secret must be visible ASCII"),
        (without("public_url = \"https://box.example.org\"\n"), "public_url is missing"),
        (CLIENT.replace("https://box", "http://box"), "public_url must begin with https://"),
        (CLIENT.replace("Iv1.abc", "a b"), "auth.github.client_id must be the client id"),
        (rule("role = \"admin\""), "grant.1 needs exactly one of user, user_id"),
        (rule(""), "auth.github.grant.1.role is missing"),
        (rule("user = \"a\"\nuser_id = 7\nrole = \"admin\""), "grant.1 needs exactly one of user"),
        (rule("user = \"a\""), "auth.github.grant.1.role is missing"),
        (rule("user = \"a\"\nrole = \"root\""), "role must be viewer, operator or admin"),
        (rule("user = \"a b\"\nrole = \"admin\""), "grant.1.user must be a login"),
        (rule("repository = \"o/r\"\nrole = \"viewer\""), "grant.1.permission is missing"),
        (
            rule("repository = \"o/r\"\npermission = \"read\"\nrole = \"viewer\""),
            "grant.1.permission must be triage, write, maintain or admin",
        ),
        (
            rule("user = \"a\"\npermission = \"write\"\nrole = \"viewer\""),
            "grant.1.permission has an effect with repository only",
        ),
        (rule("user = \"a\"\nrole = \"viewer\"\naccount = \"a b\""), "grant.1.account"),
        (
            rule("user = \"a\"\nrole = \"viewer\"\nteam = \"x\""),
            "unknown key auth.github.grant.1.team",
        ),
        (format!("{CLIENT}grant = [\"octocat\"]"), "auth.github.grant must be a list of rules"),
        (
            rule("organization = \"o\"\nrole = \"viewer\"").replace("token = \"t\"", ""),
            "grant.1 needs credentials for GitHub",
        ),
    ] {
        let error = people(&text).expect_err(&text);
        assert!(error.contains(wrong) && !error.contains("hush"), "{wrong}: {error}");
    }
}
