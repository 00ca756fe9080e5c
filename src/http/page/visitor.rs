//! The visitor of a page: a person with a session. Without a session the log-in form is shown, and
//! the requested page after the log-in.

use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::{FromRequest, HttpMessage, HttpRequest, web};
use futures_util::future::LocalBoxFuture;

use crate::http::Shared;
use crate::http::auth::{of_session, session};
use crate::http::caller::{AdminCaller, Caller};
use crate::http::error::{ApiError, Code};
use crate::http::middleware::RequestId;
use crate::http::sessions::SessionKey;

use super::error::PageError;
use super::form::place_of;
use super::github_login::begin_url;

/// A person with a session.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// The session.
    pub session: SessionKey,
    /// The visitor as the caller of the engine.
    pub caller: Caller,
}

impl FromRequest for Visitor {
    type Error = PageError;
    type Future = LocalBoxFuture<'static, Result<Self, PageError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { find(&request).await })
    }
}

/// A person with the role admin. Pages about the server or its accounts take it, as the handlers of
/// the API take [`AdminCaller`].
#[derive(Clone, Debug)]
pub struct AdminVisitor {
    visitor: Visitor,
    /// The same as the caller of what only admins do.
    pub admin: AdminCaller,
}

impl std::ops::Deref for AdminVisitor {
    type Target = Visitor;

    fn deref(&self) -> &Visitor {
        &self.visitor
    }
}

impl FromRequest for AdminVisitor {
    type Error = PageError;
    type Future = LocalBoxFuture<'static, Result<Self, PageError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let visitor = find(&request).await?;
            let admin = AdminCaller::of(visitor.caller.clone())?;
            Ok(Self { visitor, admin })
        })
    }
}

async fn find(request: &HttpRequest) -> Result<Visitor, PageError> {
    let Some(shared) = request.app_data::<web::Data<Shared>>() else {
        return Err(ApiError::new(Code::ShuttingDown, "the server is not ready").into());
    };
    let Some(session) = session(shared, request).await? else {
        // A form that was sent without a session is lost: the front page is shown.
        let is_page = *request.method() == Method::GET;
        let next = if is_page { place_of(request) } else { "/".to_owned() };
        let with_github = begin_url(shared, &next);
        return Err(PageError::LogIn { is_welcome: is_page && next == "/", next, with_github });
    };
    let request_id = request.extensions().get::<RequestId>().map(|id| Arc::clone(&id.0));
    let request_id = request_id.unwrap_or_else(|| Arc::from(""));
    let caller = of_session(shared, session.clone(), request_id)?;
    caller.may(request)?;
    Ok(Visitor { session, caller })
}
