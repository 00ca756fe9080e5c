//! `[github]`: how we authenticate, and where GitHub is.

use std::net::IpAddr;
use std::path::Path;

use crate::types::{CiFailureMode, FollowUpMode, HiddenMode, PublishMode, PullRequestMode, Secret};

use super::StoredApp;
use super::reader::ConfigReader;
use super::sections::{secret, token_of, web_address};

/// How the server authenticates at GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitHubLogin {
    /// As a GitHub App.
    App {
        /// Its id.
        id: u64,
        /// Its private key, in PEM.
        key: Secret,
    },
    /// With the token of a user.
    Token(Secret),
}

/// How deliveries come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntakeMode {
    /// GitHub sends them to the webhook endpoint; those that did not arrive are read from GitHub.
    #[default]
    Webhook,
    /// They are read from GitHub's delivery log, every few seconds.
    Deliveries,
}

/// How deliveries come in. Reading them needs credentials.
pub(super) fn intake(r: &mut ConfigReader, login: Option<&GitHubLogin>) -> IntakeMode {
    let intake = r.parsed("github.intake", IntakeMode::default(), |text| match text {
        "webhook" => Ok(IntakeMode::Webhook),
        "deliveries" => Ok(IntakeMode::Deliveries),
        _ => Err("must be webhook or deliveries".to_owned()),
    });
    if intake == IntakeMode::Deliveries && login.is_none() {
        r.wrong(
            "github.intake",
            "is deliveries, which needs credentials for GitHub: register an App on the page Connect \
             first, or set github.app_id and github.app_key_file, or github.token_file",
        );
    }
    intake
}

/// An address of GitHub's.
pub(super) fn address(r: &mut ConfigReader, key: &str, default: &str) -> String {
    r.parsed(key, default.to_owned(), |text| web_address(text).and_then(encrypted))
}

/// `pull_request`
pub(super) fn pull_request(r: &mut ConfigReader) -> PullRequestMode {
    r.parsed("github.pull_request", PullRequestMode::default(), |text| {
        let known = PullRequestMode::ALL.map(PullRequestMode::as_str).join(", ");
        PullRequestMode::parse(text).ok_or(format!("must be one of {known}"))
    })
}

/// `publish`
pub(super) fn publish(r: &mut ConfigReader) -> PublishMode {
    r.parsed("github.publish", PublishMode::default(), |text| {
        let known = PublishMode::ALL.map(PublishMode::as_str).join(", ");
        PublishMode::parse(text).ok_or(format!("must be one of {known}"))
    })
}

/// `hidden`
pub(super) fn hidden(r: &mut ConfigReader) -> HiddenMode {
    r.parsed("github.hidden", HiddenMode::default(), |text| {
        let known = HiddenMode::ALL.map(HiddenMode::as_str).join(", ");
        HiddenMode::parse(text).ok_or(format!("must be one of {known}"))
    })
}

/// `follow_up`
pub(super) fn follow_up(r: &mut ConfigReader) -> FollowUpMode {
    r.parsed("github.follow_up", FollowUpMode::default(), |text| {
        let known = FollowUpMode::ALL.map(FollowUpMode::as_str).join(", ");
        FollowUpMode::parse(text).ok_or(format!("must be one of {known}"))
    })
}

/// `on_ci_failure`
pub(super) fn on_ci_failure(r: &mut ConfigReader) -> CiFailureMode {
    r.parsed("github.on_ci_failure", CiFailureMode::default(), |text| {
        let known = CiFailureMode::ALL.map(CiFailureMode::as_str).join(", ");
        CiFailureMode::parse(text).ok_or(format!("must be one of {known}"))
    })
}

/// The credentials, if there are any and they fit together.
pub(super) fn login(r: &mut ConfigReader) -> Option<GitHubLogin> {
    let before = r.problems();
    let id = r.number("github.app_id", 0, 0..=u64::MAX);
    let key = secret(r, "github.app_key", |given| key_of(&given.text()?));
    let token = secret(r, "github.token", |given| token_of(&given.text()?));
    if r.problems() > before {
        return None;
    }
    match (id, key, token) {
        (0, None, None) => None,
        (0, None, Some(token)) => Some(GitHubLogin::Token(token)),
        (id @ 1.., Some(key), None) => Some(GitHubLogin::App { id, key }),
        (1.., None, None) => {
            r.wrong("github.app_id", "needs the App's private key: set github.app_key_file");
            None
        }
        (0, Some(_), _) => {
            r.trouble("github.app_key needs the App's id: set github.app_id".to_owned());
            None
        }
        (1.., _, Some(_)) => {
            r.wrong("github.app_id", "and github.token are both set; keep the App or the token");
            None
        }
    }
}

/// The App in the data directory, if its credentials are to be used: none are configured, and it is of
/// the GitHub that is.
pub(super) fn stored_app(
    r: &mut ConfigReader,
    data: &Path,
    configured: Option<&GitHubLogin>,
    api_url: &str,
) -> Option<StoredApp> {
    if data.as_os_str().is_empty() {
        return None;
    }
    let app = match StoredApp::read(data) {
        Ok(app) => app?,
        Err(error) => {
            r.trouble(error.to_string());
            return None;
        }
    };
    let dir = data.join(StoredApp::DIR);
    let found = format!("the GitHub App {} in {} is not used", app.about.slug, dir.display());
    let key = match configured {
        Some(GitHubLogin::App { .. }) => "github.app_id",
        Some(GitHubLogin::Token(_)) => "github.token",
        None if app.about.api_url != api_url => {
            r.note(format!(
                "{found}: it is of {}, and github.api_url is {api_url}",
                app.about.api_url
            ));
            return None;
        }
        None => return Some(app),
    };
    r.note(format!("{found}, because {key} is configured; remove the directory or the key"));
    None
}

/// A private key in PEM; whether it can be used is seen when the server starts.
fn key_of(text: &str) -> Result<Secret, String> {
    let text = text.trim();
    if !text.starts_with("-----BEGIN ") {
        return Err("must be a private key in PEM form (-----BEGIN …)".to_owned());
    }
    Ok(Secret::new(text))
}

/// Credentials go there: unencrypted to this machine alone.
pub(super) fn encrypted(address: String) -> Result<String, String> {
    let Some(rest) = address.strip_prefix("http://") else { return Ok(address) };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if is_loopback || host == "localhost" {
        return Ok(address);
    }
    Err("must begin with https:// (http:// is accepted on loopback only)".to_owned())
}
