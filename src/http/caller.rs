//! The caller of a request: its account, its role, and what admitted it.

use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use tokio::sync::watch;

use crate::access::KnownToken;
use crate::types::{AccountName, Cause, Role};

use super::admin_token::TokenHash;
use super::error::{ApiError, Code};
use super::sessions::SessionKey;

/// An authenticated caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The account whose sandboxes it may see and change.
    pub account: AccountName,
    /// What it may do.
    pub role: Role,
    /// `admin`, `page`, the name of its token, or `github:` with the login of a person whom GitHub logged in.
    pub name: Arc<str>,
    /// Its request's id.
    pub request_id: Arc<str>,
    /// What admitted it.
    pub credential: Credential,
}

/// What admitted a caller.
#[derive(Clone, Debug)]
pub enum Credential {
    /// The configured admin token. It notices every one that came into force since before the
    /// caller was authenticated.
    Admin(watch::Receiver<TokenHash>),
    /// A token that a person created.
    Token(Arc<KnownToken>),
    /// A session of the dashboard.
    Session(SessionKey),
}

impl Caller {
    /// The caller as the cause of a step.
    pub fn cause(&self) -> Cause {
        Cause::Caller { name: self.name.to_string(), request_id: self.request_id.to_string() }
    }

    /// The session of a caller from the dashboard.
    pub const fn session(&self) -> Option<&SessionKey> {
        match &self.credential {
            Credential::Session(session) => Some(session),
            Credential::Admin(_) | Credential::Token(_) => None,
        }
    }

    /// Whether a sandbox is started for what it reads there.
    pub fn starts_to_read(&self) -> bool {
        self.session().is_none() && self.role >= Role::Operator
    }

    /// Whether it may see what belongs to no account, and manage the server.
    pub fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }

    /// Checks that its role is enough for a request.
    ///
    /// # Errors
    /// 403, which names the role that is needed.
    pub fn may(&self, request: &HttpRequest) -> Result<(), ApiError> {
        // As the router reads it: of a path it decodes what is percent-encoded.
        self.has_role(role_needed(request.method(), request.match_info().as_str()))
    }

    /// Checks that it has at least this role.
    ///
    /// # Errors
    /// 403, which names the role that is needed.
    pub fn has_role(&self, needed: Role) -> Result<(), ApiError> {
        if self.role >= needed {
            return Ok(());
        }
        let (has, needed) = (self.role.as_str(), needed.as_str());
        let message = format!("this needs the role {needed}; the caller's role is {has}");
        Err(ApiError::new(Code::Forbidden, message)
            .hint(format!("use a token with the role {needed}: an admin can create one")))
    }
}

impl FromRequest for Caller {
    type Error = ApiError;
    type Future = std::future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // The middleware sets it for routes below /v1.
        std::future::ready(
            request.extensions().get::<Self>().cloned().ok_or_else(ApiError::unauthorized),
        )
    }
}

/// A caller with the role admin. Handlers of what concerns the server or its accounts take it: they
/// refuse others also where [`role_needed`] has no rule for their path.
#[derive(Clone, Debug)]
pub struct AdminCaller(Caller);

impl std::ops::Deref for AdminCaller {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.0
    }
}

impl FromRequest for AdminCaller {
    type Error = ApiError;
    type Future = std::future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let caller = Caller::from_request(request, payload).into_inner();
        std::future::ready(caller.and_then(Self::of))
    }
}

impl AdminCaller {
    /// This caller, if it is an admin.
    ///
    /// # Errors
    /// 403 otherwise.
    pub fn of(caller: Caller) -> Result<Self, ApiError> {
        caller.has_role(Role::Admin).map(|()| Self(caller))
    }
}

/// The role that a request needs, whatever it is about: routes of the API and forms of pages alike.
///
/// Reading needs a viewer, everything else an operator, and what concerns the server or its accounts
/// an admin. A request that opens a terminal, an exec or a port reads by its method alone.
pub fn role_needed(method: &Method, path: &str) -> Role {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match (parts.as_slice(), reads) {
        (["v1", "tokens" | "accounts", ..] | ["v1", "system", "drift", ..], _)
        | (["tokens" | "accounts" | "account" | "drift" | "connect", ..], _)
        | (["v1", "github", ..] | ["github", ..], _)
        | (["v1", "holds", "server"], false) => Role::Admin,
        (["v1", "login-links"], _) => Role::Viewer,
        (["v1", "sandboxes", _, "ports", _, ..], _)
        | (["v1", "sandboxes", _, "exec" | "terminal"] | ["create"], _)
        | (_, false) => Role::Operator,
        (_, true) => Role::Viewer,
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;
    use crate::access::KnownToken;

    #[test]
    fn a_handler_for_admins_refuses_others_whatever_its_path_is() {
        for (role, is_admitted) in [(Role::Admin, true), (Role::Operator, false)] {
            let token = KnownToken::for_test("t");
            let (account, request_id) = (AccountName::default_account(), Arc::from("r"));
            let credential = Credential::Token(token);
            let caller = Caller { account, role, name: Arc::from("t"), request_id, credential };
            let request = TestRequest::get().uri("/anything").to_http_request();
            assert!(AdminCaller::extract(&request).into_inner().is_err(), "without a caller");
            request.extensions_mut().insert(caller);
            assert_eq!(
                AdminCaller::extract(&request).into_inner().is_ok(),
                is_admitted,
                "{role:?}"
            );
        }
    }

    #[test]
    fn a_request_needs_the_role_for_what_it_does() {
        for (method, path, role) in [
            ("GET", "/v1/sandboxes", Role::Viewer),
            ("HEAD", "/v1/sandboxes/x/files", Role::Viewer),
            ("GET", "/v1/sandboxes/x/ports", Role::Viewer),
            ("POST", "/v1/login-links", Role::Viewer),
            ("GET", "/sandboxes/x", Role::Viewer),
            ("POST", "/v1/sandboxes", Role::Operator),
            ("GET", "/v1/sandboxes/x/exec", Role::Operator),
            ("GET", "/v1/sandboxes/x/terminal", Role::Operator),
            ("GET", "/v1/sandboxes/x/ports/80", Role::Operator),
            ("GET", "/v1/sandboxes/x/ports/80/a/b", Role::Operator),
            ("POST", "/sandboxes/x/stop", Role::Operator),
            ("PUT", "/v1/holds/issues/1", Role::Operator),
            ("GET", "/v1/holds", Role::Viewer),
            ("PUT", "/v1/holds/server", Role::Admin),
            ("GET", "/v1/tokens", Role::Admin),
            ("DELETE", "/v1//tokens/x", Role::Admin),
            ("GET", "/v1/system", Role::Viewer),
            ("GET", "/v1/system/drift", Role::Admin),
            ("POST", "/connect/sample", Role::Admin),
            ("POST", "/account", Role::Admin),
            ("GET", "/create", Role::Operator),
        ] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(role_needed(&method, path), role, "{method} {path}");
        }
    }
}
