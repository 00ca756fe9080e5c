//! The pages for people that make an App of a manifest: the first shows what was posted and a button, and
//! the button leads back to who posted it, with a code and the state.

use std::io;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::ModelShared;
use super::rest::slug_of;
use super::server::{ModelBody, plain, whole};
use super::state::ModelState;

/// Largest form, in bytes.
const FORM_MAX: usize = 64 << 10;
/// Longest name of an App, in characters.
const NAME_MAX: usize = 34;
/// What a manifest may have, as GitHub documents it.
const MANIFEST_KEYS: [&str; 12] = [
    "name",
    "url",
    "hook_attributes",
    "redirect_url",
    "callback_urls",
    "setup_url",
    "description",
    "public",
    "default_events",
    "default_permissions",
    "request_oauth_on_install",
    "setup_on_update",
];

/// A page about new Apps.
pub(super) enum AppPage {
    /// Shows a manifest; of this organisation, or of the person who is logged in.
    New(Option<String>),
    /// Makes the App.
    Create,
}

/// The page at a path.
pub(super) fn page(path: &str) -> Option<AppPage> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["", "settings", "apps", "new"] => Some(AppPage::New(None)),
        ["", "organizations", org, "settings", "apps", "new"] => {
            Some(AppPage::New(Some(org.to_owned())))
        }
        ["", "settings", "apps"] => Some(AppPage::Create),
        _ => None,
    }
}

/// Answers a form that a browser posted.
pub(super) async fn serve(
    shared: &ModelShared,
    page: AppPage,
    request: Request<Incoming>,
) -> Result<Response<ModelBody>, io::Error> {
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        return Ok(plain(404, "Not Found"));
    }
    let Ok(body) = Limited::new(body, FORM_MAX).collect().await else {
        return Ok(plain(413, "too large"));
    };
    let form = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let query = head.uri.query().unwrap_or_default();
    let mut state = shared.state();
    Ok(match page {
        AppPage::New(org) => {
            let manifest = field(&form, "manifest").unwrap_or_default();
            let given = field(query, "state").unwrap_or_default();
            state.show_manifest(org.as_deref(), &manifest, given)
        }
        AppPage::Create => match field(query, "draft").and_then(|id| id.parse().ok()) {
            Some(draft) => state.create_app(draft),
            None => plain(404, "Not Found"),
        },
    })
}

/// A value of a form or a query.
pub(super) fn field(pairs: &str, name: &str) -> Option<String> {
    let value = pairs.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned())
}

fn page_of(status: u16, words: &str) -> Response<ModelBody> {
    let page = format!("<!DOCTYPE html><title>GitHub</title>{words}");
    let answer = Response::builder().status(status).header("content-type", "text/html");
    answer.body(whole(page)).expect("a valid answer")
}

impl ModelState {
    /// Makes an App of a manifest; gives the code for its conversion.
    pub fn approve(&mut self, owner: u64, manifest: Value) -> String {
        let code = format!("code-{}", self.next_id());
        self.manifests.insert(code.clone(), (owner, manifest));
        code
    }

    /// The page with the button, or the one that says what is wrong with the manifest.
    fn show_manifest(
        &mut self,
        org: Option<&str>,
        manifest: &str,
        given: String,
    ) -> Response<ModelBody> {
        let manifest: Value = serde_json::from_str(manifest).unwrap_or_default();
        if let Some(wrong) = self.wrong_manifest(&manifest) {
            return page_of(422, &format!("<p>{wrong}</p>"));
        }
        let owner = match org {
            Some(login) => self.user_or_new(login, "Organization"),
            None => self.app.owner,
        };
        let draft = self.next_id();
        self.drafts.insert(draft, (owner, manifest, given));
        let button = format!(
            "<form method=\"post\" action=\"{}/settings/apps?draft={draft}\">\
             <button>Create GitHub App</button></form>",
            self.base
        );
        page_of(200, &button)
    }

    /// What is wrong with a manifest.
    fn wrong_manifest(&self, manifest: &Value) -> Option<String> {
        let Some(fields) = manifest.as_object() else {
            return Some("The manifest is not an object".to_owned());
        };
        if let Some(unknown) = fields.keys().find(|key| !MANIFEST_KEYS.contains(&key.as_str())) {
            return Some(format!("{unknown} is not a key of a manifest"));
        }
        let name = manifest["name"].as_str().unwrap_or_default();
        if name.is_empty() || name.chars().count() > NAME_MAX {
            return Some("Name is missing or too long".to_owned());
        }
        if slug_of(name) == self.app.slug {
            return Some("Name is already taken".to_owned());
        }
        if manifest["url"].as_str().is_none() || manifest["redirect_url"].as_str().is_none() {
            return Some("URL can't be blank".to_owned());
        }
        let hook = fields.get("hook_attributes")?;
        let url = hook["url"].as_str().unwrap_or_default();
        let is_here = ["127.0.0.1", "localhost", "[::1]"].iter().any(|here| url.contains(here));
        (url.is_empty() || is_here)
            .then(|| "Hook url is not supported because it isn't reachable".to_owned())
    }

    /// The button was pressed: the browser is led back.
    fn create_app(&mut self, draft: u64) -> Response<ModelBody> {
        let Some((owner, manifest, given)) = self.drafts.remove(&draft) else {
            return plain(404, "Not Found");
        };
        let back = manifest["redirect_url"].as_str().unwrap_or_default().to_owned();
        let joint = if back.contains('?') { '&' } else { '?' };
        let code = self.approve(owner, manifest);
        let location = format!("{back}{joint}code={code}&state={given}");
        let answer = Response::builder().status(302).header("location", location);
        answer.body(whole("")).expect("a valid answer")
    }
}
