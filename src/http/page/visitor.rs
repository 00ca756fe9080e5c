//! The visitor of a page: a person with a session. Without a session the log-in form is shown, and
//! the requested page after the log-in.

use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::{FromRequest, HttpMessage, HttpRequest, web};
use futures_util::future::LocalBoxFuture;

use crate::http::Shared;
use crate::http::auth::{Caller, session};
use crate::http::error::{ApiError, Code};
use crate::http::middleware::RequestId;
use crate::http::sessions::SessionKey;
use crate::types::AccountName;

use super::error::PageError;
use super::form::place_of;

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

async fn find(request: &HttpRequest) -> Result<Visitor, PageError> {
    let Some(shared) = request.app_data::<web::Data<Shared>>() else {
        return Err(ApiError::new(Code::ShuttingDown, "the server is not ready").into());
    };
    let Some(session) = session(shared, request).await? else {
        // A form that was sent without a session is lost: the front page is shown.
        let is_page = *request.method() == Method::GET;
        let next = if is_page { place_of(request) } else { "/".to_owned() };
        return Err(PageError::LogIn { is_welcome: is_page && next == "/", next });
    };
    let request_id = request.extensions().get::<RequestId>().map(|id| Arc::clone(&id.0));
    let caller = Caller {
        account: AccountName::default_account(),
        name: "page",
        request_id: request_id.unwrap_or_else(|| Arc::from("")),
        session: Some(session.clone()),
        token: shared.edge.admin_token.watch(),
    };
    Ok(Visitor { session, caller })
}
