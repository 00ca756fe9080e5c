//! `[auth.github]`: people log in to the page with GitHub.

use std::time::Duration;

use crate::types::{
    AccountName, GrantSubject, LoginGrant, PermissionLevel, Repository, Role, Secret,
};

use super::accounts::is_owner;
use super::github::encrypted;
use super::reader::ConfigReader;
use super::sections::{secret, token_of};
use super::source::Value;

/// Most rules.
const GRANTS_MAX: usize = 100;
/// How long a session lasts if nothing is said, in seconds.
const SESSION_DEFAULT: u64 = 8 * 3_600;
/// The longest session, in seconds: a week.
const SESSION_MAX: u64 = 7 * 86_400;

/// How people log in with GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeopleLogin {
    /// `client_id`: the App's.
    pub client_id: String,
    /// `client_secret` or `client_secret_file`.
    pub client_secret: Secret,
    /// `session_seconds`: how long a session lasts.
    pub session: Duration,
    /// `grant`: who may log in, and as what. The first rule that is about a person counts.
    pub grants: Vec<LoginGrant>,
}

/// Reads `[auth.github]`; `None` if it is not there.
pub(super) fn people_login(
    r: &mut ConfigReader,
    public_url: Option<&str>,
    has_credentials: bool,
) -> Option<PeopleLogin> {
    let is_there = !r.table_names("auth.github").is_empty();
    let id = r.parsed("auth.github.client_id", None, |text| client_id(text).map(Some));
    let before = r.problems();
    let given = secret(r, "auth.github.client_secret", |given| token_of(&given.text()?));
    let is_secret_wrong = r.problems() > before;
    let seconds = r.number("auth.github.session_seconds", SESSION_DEFAULT, 60..=SESSION_MAX);
    let grants = grants(r, has_credentials);
    if !is_there {
        return None;
    }
    if id.is_none() && r.origin("auth.github.client_id").is_none() {
        r.trouble(
            "auth.github.client_id is missing: it is on the page of the App's settings".into(),
        );
    }
    if given.is_none() && !is_secret_wrong {
        r.trouble(
            "auth.github.client_secret is missing: generate one on the page of the App's settings, and \
             set auth.github.client_secret_file"
                .to_owned(),
        );
    }
    match public_url.map(|url| encrypted(url.to_owned())) {
        None => r.trouble(
            "public_url is missing, and auth.github needs it: GitHub leads people back there"
                .to_owned(),
        ),
        Some(Err(needed)) => r.wrong("public_url", &format!("{needed}, because of auth.github")),
        Some(Ok(_)) => {}
    }
    if grants.is_empty() {
        r.note("auth.github.grant is empty: no person can log in with GitHub".to_owned());
    }
    let session = Duration::from_secs(seconds);
    Some(PeopleLogin { client_id: id?, client_secret: given?, session, grants })
}

fn client_id(text: &str) -> Result<String, String> {
    let text = text.trim();
    match !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.') {
        true => Ok(text.to_owned()),
        false => Err("must be the client id of the App, such as Iv23abc".to_owned()),
    }
}

/// Reads the rules. Their keys are numbered from 1.
fn grants(r: &mut ConfigReader, has_credentials: bool) -> Vec<LoginGrant> {
    let table = "auth.github.grant";
    let numbers = r.table_names(table);
    if r.take(table).is_some_and(|given| given.value != Value::List(Vec::new()))
        || numbers.iter().any(|number| number.parse::<usize>().is_err())
    {
        r.trouble(format!("{table} must be a list of rules, each below [[{table}]]"));
    }
    let mut numbers: Vec<usize> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
    numbers.sort_unstable();
    if numbers.len() > GRANTS_MAX {
        r.trouble(format!("{table} has more than {GRANTS_MAX} rules"));
    }
    let mut read = |number| grant(r, &format!("{table}.{number}"), has_credentials);
    numbers.into_iter().filter_map(&mut read).collect()
}

/// Reads one rule; `None` if it is wrong.
fn grant(r: &mut ConfigReader, table: &str, has_credentials: bool) -> Option<LoginGrant> {
    let key = |part: &str| format!("{table}.{part}");
    // An empty one has no keys, and is reported below.
    r.table_names(table);
    let before = r.problems();
    let login = |text: &str| match is_owner(text) {
        true => Ok(Some(text.to_owned())),
        false => Err("must be a login at GitHub".to_owned()),
    };
    let user_id = r.number(&key("user_id"), 0, 1..=u64::try_from(i64::MAX).unwrap_or(u64::MAX));
    let user = r.parsed(&key("user"), None, login);
    let organization = r.parsed(&key("organization"), None, login);
    let repository = r.parsed(&key("repository"), None, |text| {
        Repository::parse(text).map(Some).map_err(|_| "must have the form owner/name".to_owned())
    });
    let permission =
        r.parsed(&key("permission"), None, |text| PermissionLevel::parse(text).map(Some));
    let role = r.parsed(&key("role"), None, |text| {
        Role::parse(text).map(Some).ok_or("must be viewer, operator or admin".to_owned())
    });
    let account = r.parsed(&key("account"), AccountName::default_account(), |text| {
        AccountName::parse(text).map_err(|wrong| wrong.to_string())
    });
    if r.problems() > before {
        return None;
    }
    let has_repository = repository.is_some();
    let mut subjects: Vec<GrantSubject> = Vec::new();
    subjects.extend((user_id > 0).then_some(GrantSubject::UserId(user_id)));
    subjects.extend(user.map(GrantSubject::User));
    subjects.extend(organization.map(GrantSubject::Organization));
    if let Some(name) = repository {
        // Everybody may read a public repository, so that there is no default.
        let Some(permission) = permission else {
            r.trouble(format!(
                "{} is missing: triage, write, maintain or admin",
                key("permission")
            ));
            return None;
        };
        subjects.push(GrantSubject::Repository { name, permission });
    } else if permission.is_some() {
        r.wrong(&key("permission"), "has an effect with repository only; remove it");
    }
    let Some(role) = role else {
        r.trouble(format!("{} is missing: viewer, operator or admin", key("role")));
        return None;
    };
    let one = subjects.pop();
    let (Some(to), true) = (one, subjects.is_empty()) else {
        r.trouble(format!("{table} needs exactly one of user, user_id, organization, repository"));
        return None;
    };
    if !has_credentials && (has_repository || matches!(to, GrantSubject::Organization(_))) {
        r.trouble(format!(
            "{table} needs credentials for GitHub, which say who belongs there: set github.app_id and \
             github.app_key_file, or github.token_file"
        ));
    }
    Some(LoginGrant { to, role, account })
}
