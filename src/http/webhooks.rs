//! Deliveries from GitHub: `POST /webhooks/github`.
//!
//! The order matters: first the checks of headers, then the raw body within its limits, then the
//! signature over it, and only then parsing. The answer is sent when the delivery is durable
//! together with its new state. An overload is answered before anything is stored, so that GitHub
//! shows the delivery as failed.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, post, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::{Delivered, DeliveredStatus};
use crate::github::webhook::{Unreadable, json_of, verify};
use crate::intake::{DeliverySourceKind, ReceivedDelivery};
use crate::types::DeliveryId;

use super::Shared;
use super::answers;
use super::body;
use super::doc::words::IntakeWord;
use super::error::{ApiError, Code, only};

/// The answer to a delivery.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryAnswer {
    /// Always true.
    pub success: bool,
    /// The delivery's GUID.
    pub delivery: String,
    /// `accepted`, `duplicate` or `ignored`.
    #[schema(value_type = IntakeWord)]
    pub status: &'static str,
    /// The issue of the delivery, if it concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issue_id: Option<String>,
    /// The result in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Receives a delivery from GitHub.
///
/// Signed by `X-Hub-Signature-256` over the raw body, which is JSON or a form with the JSON in
/// its field `payload`.
#[utoipa::path(
    operation_id = "receiveDelivery", tag = "webhooks",
    params(
        ("X-GitHub-Event" = String, Header, description = "The event, such as `issues`"),
        ("X-GitHub-Delivery" = String, Header, description = "The delivery's GUID"),
        ("X-Hub-Signature-256" = String, Header, description = "`sha256=` and 64 hex digits"),
    ),
    request_body = Object,
    responses(
        (status = 202, body = DeliveryAnswer, description = "the delivery is durable; status `accepted`"),
        (status = 200, body = DeliveryAnswer, description = "status `duplicate` or `ignored`"),
        answers::StoreWriteErrors, only::BadSignature, only::InvalidRequest,
    )
)]
#[post("/webhooks/github")]
pub async fn github(
    shared: web::Data<Shared>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let delivered = receive(&shared, &request, payload).await;
    let result = match &delivered {
        Ok((_, delivered)) => word(delivered.status),
        Err(error) => error.code().as_str(),
    };
    shared.edge.feed.metrics.delivered(result);
    if let Err(error) = &delivered {
        remember(&shared, request.headers(), error);
        if error.code().status() == StatusCode::SERVICE_UNAVAILABLE {
            shared.edge.intake.missed_one();
        }
    }
    let (id, delivered) = delivered?;
    let mut answer = match delivered.status {
        DeliveredStatus::Accepted => HttpResponse::Accepted(),
        DeliveredStatus::Duplicate | DeliveredStatus::Ignored => HttpResponse::Ok(),
    };
    Ok(answer.json(DeliveryAnswer {
        success: true,
        delivery: id.to_string(),
        status: word(delivered.status),
        issue_id: delivered.issue_id.map(|id| id.to_string()),
        reason: Some(delivered.reason).filter(|reason| !reason.is_empty()),
    }))
}

/// Remembers a refused delivery and its reason, for the list of deliveries.
fn remember(shared: &Shared, headers: &HeaderMap, error: &ApiError) {
    let (delivery, event) = (text(headers, "x-github-delivery"), text(headers, "x-github-event"));
    let is_badly_signed = error.code() == Code::BadSignature;
    let reason = match error.wrong_field() {
        Some(field) => format!("{field}: {}", error.message()),
        None => error.message().to_owned(),
    };
    shared.refused.push(shared.edge.clock.now(), delivery, event, is_badly_signed, &reason);
}

async fn receive(
    shared: &Shared,
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<(DeliveryId, Delivered), ApiError> {
    let edge = &shared.edge;
    let headers = request.headers();
    let content_type = text(headers, "content-type");
    check_content_type(content_type)?;
    let raw = body::read(shared, request, payload, edge.limits.delivery_len_max).await?;
    verify(&edge.webhook_secrets.in_force(), text(headers, "x-hub-signature-256"), &raw)
        .map_err(|unsigned| ApiError::new(Code::BadSignature, unsigned.to_string()))?;
    let event = text(headers, "x-github-event")
        .filter(|event| !event.is_empty())
        .ok_or_else(|| ApiError::field("X-GitHub-Event", "the header is missing"))?;
    let id = text(headers, "x-github-delivery")
        .ok_or_else(|| ApiError::field("X-GitHub-Delivery", "the header is missing"))?;
    let id =
        DeliveryId::parse(id).map_err(|wrong| ApiError::invalid_id("X-GitHub-Delivery", &wrong))?;
    let json: Cow<'_, [u8]> = json_of(content_type, &raw).map_err(unreadable)?;
    let received = ReceivedDelivery {
        id: id.clone(),
        event,
        json: &json,
        received_at: edge.clock.now(),
        source: DeliverySourceKind::Webhook,
    };
    let read = edge
        .intake
        .read(received)
        .map_err(|malformed| ApiError::new(Code::InvalidRequest, malformed.to_string()))?;
    // Frees the body before the store writes, so that waiting deliveries are small.
    drop(json);
    drop(raw);
    if let Some((repository_id, hook)) = hook_of(headers) {
        edge.intake.note_hook(repository_id, hook);
    }
    let delivered = edge.intake.apply(read).await?;
    Ok((id, delivered))
}

/// The repository and the webhook that sent a delivery, if it was no App's.
fn hook_of(headers: &HeaderMap) -> Option<(u64, u64)> {
    let number = |name| text(headers, name)?.parse().ok();
    if text(headers, "x-github-hook-installation-target-type") != Some("repository") {
        return None;
    }
    Some((number("x-github-hook-installation-target-id")?, number("x-github-hook-id")?))
}

/// Refuses an unsupported content type before the body is read; [`json_of`] decides again later.
fn check_content_type(content_type: Option<&str>) -> Result<(), ApiError> {
    match json_of(content_type, b"") {
        Err(Unreadable::ContentType(given)) => Err(unreadable(Unreadable::ContentType(given))),
        Ok(_) | Err(Unreadable::NoPayload) => Ok(()),
    }
}

fn unreadable(why: Unreadable) -> ApiError {
    let message = why.to_string();
    match why {
        Unreadable::ContentType(_) => ApiError::new(Code::UnsupportedMediaType, message)
            .hint("select application/json in the webhook's settings")
            .header(header::ACCEPT, HeaderValue::from_static("application/json")),
        Unreadable::NoPayload => ApiError::field("payload", message),
    }
}

const fn word(status: DeliveredStatus) -> &'static str {
    match status {
        DeliveredStatus::Accepted => "accepted",
        DeliveredStatus::Duplicate => "duplicate",
        DeliveredStatus::Ignored => "ignored",
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderName;

    use super::*;

    #[test]
    fn a_webhook_of_a_repository_is_known_by_its_headers_and_an_apps_is_not() {
        let of = |kind: &str, target: &str| {
            let mut headers = HeaderMap::new();
            for (name, value) in [
                ("x-github-hook-installation-target-type", kind),
                ("x-github-hook-installation-target-id", target),
                ("x-github-hook-id", "7"),
            ] {
                let value = HeaderValue::from_str(value).expect("a value");
                headers.insert(HeaderName::from_static(name), value);
            }
            hook_of(&headers)
        };
        assert_eq!(of("repository", "9"), Some((9, 7)));
        assert_eq!(of("repository", "nine"), None);
        assert_eq!(of("integration", "9"), None);
        assert_eq!(hook_of(&HeaderMap::new()), None);
    }
}
