//! Which requests the gateway takes: their paths, and the headers that pass.

use hyper::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName,
    HeaderValue, RETRY_AFTER, USER_AGENT,
};

use super::super::ModelApi;
use crate::types::Secret;

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelService {
    /// An answer of a model.
    Answer,
    /// How many tokens a request has, which costs nothing.
    Count,
}

/// A path that the gateway knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRoute<'a> {
    /// The name of the endpoint, as in `[models.NAME]`.
    pub endpoint: &'a str,
    /// Its form.
    pub api: ModelApi,
    /// What it asks for.
    pub service: ModelService,
}

impl<'a> ModelRoute<'a> {
    /// Reads a path, such as `/anthropic/v1/messages`. The makers' own endpoints have one form.
    pub fn parse(path: &'a str) -> Option<Self> {
        let (endpoint, rest) = path.strip_prefix('/')?.split_once('/')?;
        let (api, service) = match rest {
            "v1/messages" => (ModelApi::Messages, ModelService::Answer),
            "v1/messages/count_tokens" => (ModelApi::Messages, ModelService::Count),
            "v1/responses" => (ModelApi::Responses, ModelService::Answer),
            _ => return None,
        };
        let is_known = match endpoint {
            "anthropic" => api == ModelApi::Messages,
            "openai" => api == ModelApi::Responses,
            other => !other.is_empty(),
        };
        is_known.then_some(Self { endpoint, api, service })
    }

    /// The path at the endpoint.
    pub const fn upstream_path(&self) -> &'static str {
        match (self.api, self.service) {
            (ModelApi::Messages, ModelService::Answer) => "/v1/messages",
            (ModelApi::Messages, ModelService::Count) => "/v1/messages/count_tokens",
            (ModelApi::Responses, _) => "/v1/responses",
        }
    }
}

/// The form in which a path's caller expects errors.
pub fn form_of(path: &str) -> ModelApi {
    if path.ends_with("/responses") { ModelApi::Responses } else { ModelApi::Messages }
}

/// The headers of a request that pass. Those of credentials, cookies, encodings and of the
/// organisation that pays are none of them.
const ASKED: [HeaderName; 3] = [ACCEPT, CONTENT_TYPE, USER_AGENT];
/// The same by the beginnings of their names.
const ASKED_LIKE: [&str; 12] = [
    "anthropic-version",
    "anthropic-beta",
    "x-stainless-",
    "x-app",
    "x-claude-code-",
    "openai-beta",
    "originator",
    "session-id",
    "session_id",
    "thread-id",
    "x-codex-",
    "x-session-id",
];
/// The headers of an answer that pass.
const ANSWERED: [HeaderName; 4] = [CONTENT_TYPE, CONTENT_LENGTH, CACHE_CONTROL, RETRY_AFTER];
/// The same by their names.
const ANSWERED_LIKE: [&str; 4] = ["x-should-retry", "retry-after-ms", "request-id", "x-request-id"];

/// The headers that a request is sent with: those that pass, and our key.
pub fn asked(from: &HeaderMap, api: ModelApi, key: &Secret) -> Option<HeaderMap> {
    let passes = |name: &HeaderName| {
        ASKED.contains(name) || ASKED_LIKE.iter().any(|begin| name.as_str().starts_with(begin))
    };
    let mut headers = HeaderMap::new();
    for (name, value) in from.iter().filter(|(name, _)| passes(name)) {
        headers.append(name.clone(), value.clone());
    }
    // Usage is read in passing.
    headers.insert("accept-encoding", HeaderValue::from_static("identity"));
    let (name, text) = match api {
        ModelApi::Messages => (HeaderName::from_static("x-api-key"), key.expose().to_owned()),
        ModelApi::Responses => (AUTHORIZATION, format!("Bearer {}", key.expose())),
    };
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Some(headers)
}

/// The headers of an answer that pass.
pub fn answered(from: &HeaderMap) -> HeaderMap {
    let passes =
        |name: &HeaderName| ANSWERED.contains(name) || ANSWERED_LIKE.contains(&name.as_str());
    let passing = from.iter().filter(|(name, _)| passes(name));
    passing.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_listed_paths_are_routes() {
        for (path, endpoint, upstream) in [
            ("/anthropic/v1/messages", "anthropic", "/v1/messages"),
            ("/anthropic/v1/messages/count_tokens", "anthropic", "/v1/messages/count_tokens"),
            ("/openai/v1/responses", "openai", "/v1/responses"),
            ("/mine/v1/messages", "mine", "/v1/messages"),
            ("/mine/v1/responses", "mine", "/v1/responses"),
        ] {
            let route = ModelRoute::parse(path).expect("a route");
            assert_eq!((route.endpoint, route.upstream_path()), (endpoint, upstream));
        }
        for path in [
            "/",
            "",
            "/v1/messages",
            "/anthropic/v1/models",
            "/anthropic/v1/messages/",
            "/anthropic/v1/messages/batches",
            "/anthropic//v1/messages",
            "/anthropic/../v1/messages",
            "/anthropic/v1/responses",
            "/openai/v1/messages",
            "//v1/messages",
        ] {
            assert_eq!(ModelRoute::parse(path), None, "{path}");
        }
    }

    #[test]
    fn our_key_takes_the_place_of_every_credential() {
        let mut from = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer theirs"),
            ("x-api-key", "theirs"),
            ("proxy-authorization", "theirs"),
            ("cookie", "theirs"),
            ("accept-encoding", "gzip"),
            ("openai-organization", "theirs"),
            ("openai-project", "theirs"),
            ("x-goog-api-key", "theirs"),
            ("host", "theirs"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "a,b"),
            ("user-agent", "claude-cli"),
            ("x-stainless-lang", "js"),
        ] {
            from.append(name, HeaderValue::from_static(value));
        }
        let key = Secret::new("ours");
        let messages = asked(&from, ModelApi::Messages, &key).expect("a key");
        assert_eq!(messages.get("x-api-key").expect("ours"), "ours");
        assert_eq!(messages.get("authorization"), None);
        let responses = asked(&from, ModelApi::Responses, &key).expect("a key");
        assert_eq!(responses.get("authorization").expect("ours"), "Bearer ours");
        assert_eq!(responses.get("x-api-key"), None);
        for headers in [messages, responses] {
            assert!(headers.values().all(|value| !value.to_str().unwrap_or("").contains("theirs")));
            assert_eq!(headers.get("accept-encoding").expect("none"), "identity");
            assert_eq!(headers.len(), 6);
        }
        assert_eq!(asked(&from, ModelApi::Messages, &Secret::new("a\nb")), None);
    }
}
