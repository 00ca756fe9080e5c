//! The port for registering the server as a GitHub App, and the manifest that says what the App is. A
//! person posts the manifest to GitHub's page; GitHub leads the browser back with a code; the code is
//! exchanged for the App's credentials once.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::api::GitHubError;
use crate::types::Secret;

/// Longest name of an App, in characters.
pub const NAME_LEN_MAX: usize = 34;
/// Longest login of an account, in characters.
const LOGIN_LEN_MAX: usize = 39;
/// The events that the App subscribes to. Those of its installations come without asking.
pub(super) const EVENTS: [&str; 5] =
    ["issues", "issue_comment", "label", "repository", "pull_request_review"];
/// The event that it subscribes to as well if the agent is given failed checks.
pub(super) const CHECK_EVENT: &str = "check_run";

/// What is asked of GitHub for a server that has no credentials yet.
#[async_trait]
pub trait AppRegistration: Send + Sync + 'static {
    /// Exchanges a code for the App that GitHub made. The code is spent then, also if the answer is lost.
    ///
    /// # Errors
    /// [`GitHubError`]; after [`GitHubError::Unknown`] the code may be spent.
    async fn convert(&self, code: &str) -> Result<NewApp, GitHubError>;

    /// Asks GitHub, as this App, which App it is: that proves the key.
    ///
    /// # Errors
    /// [`GitHubError`]; [`GitHubError::Unauthorized`] if it is not the App's key, or none at all.
    async fn prove(&self, id: u64, key: &Secret) -> Result<ProvenApp, GitHubError>;
}

/// An App that GitHub made of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewApp {
    /// Which App it is.
    pub app: ProvenApp,
    /// Its private key, in PEM.
    pub key: Secret,
    /// The secret of its webhook, if it has one.
    pub webhook_secret: Option<Secret>,
}

/// An App as GitHub names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenApp {
    /// Its id.
    pub id: u64,
    /// Its name in addresses.
    pub slug: String,
    /// The address of its public page.
    pub html_url: String,
}

/// The App that a person asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppRequest {
    name: String,
    /// The organisation that owns it; `None` for the person's own account.
    organisation: Option<String>,
    /// Whether it may set commit statuses.
    pub statuses: bool,
    /// Whether it may change workflow files.
    pub workflows: bool,
    /// Whether it hears of checks and may read them.
    pub checks: bool,
}

impl AppRequest {
    /// An App of this name, owned by this organisation; an empty one means the person's own account.
    ///
    /// # Errors
    /// Which of the two is wrong (`name`, `organisation`), and how.
    pub fn new(name: &str, organisation: &str) -> Result<Self, (&'static str, String)> {
        let (name, organisation) = (name.trim(), organisation.trim());
        let is_name =
            |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.' | '[' | ']');
        if name.is_empty() || name.chars().count() > NAME_LEN_MAX || !name.chars().all(is_name) {
            let needed = "must have 1 to 34 characters: letters, digits, spaces, hyphens, dots";
            return Err(("name", needed.to_owned()));
        }
        let is_login = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if organisation.len() > LOGIN_LEN_MAX || !organisation.bytes().all(is_login) {
            return Err(("organisation", "must be an organisation's name at GitHub".to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            organisation: Some(organisation.to_owned()).filter(|login| !login.is_empty()),
            statuses: false,
            workflows: false,
            checks: false,
        })
    }

    /// The manifest. `home` is the server's address for people, `back` the address that GitHub leads the
    /// browser back to, `hook` where it sends deliveries; without one the App has no webhook.
    pub fn manifest(&self, home: &str, back: &str, hook: Option<&str>) -> Value {
        let mut manifest = json!({
            "name": self.name,
            "url": home,
            "redirect_url": back,
            "public": false,
            "default_permissions": {
                "issues": "write", "contents": "write", "pull_requests": "write", "metadata": "read",
            },
            "default_events": EVENTS,
        });
        for (name, is_wanted) in [("statuses", self.statuses), ("workflows", self.workflows)] {
            if is_wanted {
                manifest["default_permissions"][name] = json!("write");
            }
        }
        if self.checks {
            manifest["default_permissions"]["checks"] = json!("read");
            if let Some(events) = manifest["default_events"].as_array_mut() {
                events.push(json!(CHECK_EVENT));
            }
        }
        if let Some(hook) = hook {
            manifest["hook_attributes"] = json!({"url": hook, "active": true});
        }
        manifest
    }

    /// Where the manifest is posted, with the state that comes back with the code.
    pub fn new_app_url(&self, web_url: &str, state: &str) -> String {
        format!("{}/new?state={state}", self.apps_url(web_url))
    }

    /// The page of the App's settings, where keys are made. GitHub derives it from the name.
    pub fn settings_url(&self, web_url: &str) -> String {
        let slug = self.name.to_lowercase();
        let parts = slug.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        format!("{}/{}", self.apps_url(web_url), parts.join("-"))
    }

    fn apps_url(&self, web_url: &str) -> String {
        match &self.organisation {
            Some(login) => format!("{web_url}/organizations/{login}/settings/apps"),
            None => format!("{web_url}/settings/apps"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "https://github.com";

    #[test]
    fn a_manifest_asks_for_what_the_server_needs_and_no_more() {
        let mut request = AppRequest::new(" My Box ", "").expect("a good name");
        let manifest = request.manifest("https://box.example", "https://box.example/back", None);
        assert_eq!(
            manifest,
            json!({
                "name": "My Box", "url": "https://box.example",
                "redirect_url": "https://box.example/back", "public": false,
                "default_permissions": {
                    "issues": "write", "contents": "write", "pull_requests": "write",
                    "metadata": "read",
                },
                "default_events": [
                    "issues", "issue_comment", "label", "repository", "pull_request_review",
                ],
            })
        );
        (request.statuses, request.workflows, request.checks) = (true, true, true);
        let manifest = request.manifest("x", "y", Some("https://box.example/webhooks/github"));
        assert_eq!(manifest["default_permissions"]["statuses"], "write");
        assert_eq!(manifest["default_permissions"]["workflows"], "write");
        assert_eq!(manifest["default_permissions"]["checks"], "read");
        assert_eq!(manifest["default_events"].as_array().map(Vec::len), Some(6));
        assert_eq!(manifest["default_events"][5], "check_run");
        let hook = json!({"url": "https://box.example/webhooks/github", "active": true});
        assert_eq!(manifest["hook_attributes"], hook);
    }

    #[test]
    fn the_addresses_are_those_of_the_owner() {
        let own = AppRequest::new("My Box.2", "").expect("good");
        assert_eq!(own.new_app_url(WEB, "s"), "https://github.com/settings/apps/new?state=s");
        assert_eq!(own.settings_url(WEB), "https://github.com/settings/apps/my-box-2");
        let of_org = AppRequest::new("box", "octo-org").expect("good");
        let apps = "https://github.com/organizations/octo-org/settings/apps";
        assert_eq!(of_org.new_app_url(WEB, "s"), format!("{apps}/new?state=s"));
        assert_eq!(of_org.settings_url(WEB), format!("{apps}/box"));
    }

    #[test]
    fn names_that_could_lead_elsewhere_are_refused() {
        for (name, organisation, wrong) in [
            ("", "", "name"),
            (&"x".repeat(35), "", "name"),
            ("a/b", "", "name"),
            ("box", "octo/../..", "organisation"),
            ("box", "octo?x", "organisation"),
            ("box", &"o".repeat(40), "organisation"),
        ] {
            let refused = AppRequest::new(name, organisation).expect_err(name);
            assert_eq!(refused.0, wrong, "{name:?} {organisation:?}");
        }
    }
}
