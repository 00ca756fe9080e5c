//! The JSON of a delivery, out of either content type that GitHub offers for a webhook.
//!
//! The signature covers the raw body in both, so this comes after the verification.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// Why there is no JSON in a delivery's body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A content type that GitHub does not offer; answers 415.
    #[error(
        "the content type must be application/json or application/x-www-form-urlencoded, not {0}"
    )]
    ContentType(String),
    /// A form without exactly one field `payload`; answers 400.
    #[error("the form must have one field named payload")]
    NoPayload,
}

/// Takes the JSON out of a raw body: as it is, or out of the form field `payload`.
///
/// # Errors
/// [`Unreadable`] for another content type, or a form without that field.
pub fn json_of<'a>(content_type: Option<&str>, raw: &'a [u8]) -> Result<Cow<'a, [u8]>, Unreadable> {
    let given = content_type.unwrap_or("none");
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(Cow::Borrowed(raw))
    } else if essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        form_payload(raw).map(Cow::Owned)
    } else {
        let shown = essence.chars().filter(|c| !c.is_control()).take(100).collect();
        Err(Unreadable::ContentType(shown))
    }
}

fn form_payload(raw: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let mut payloads = raw.split(|b| *b == b'&').filter_map(|pair| {
        let at = pair.iter().position(|b| *b == b'=')?;
        (form_decode(&pair[..at]) == b"payload").then(|| form_decode(&pair[at + 1..]))
    });
    match (payloads.next(), payloads.next()) {
        (Some(payload), None) => Ok(payload),
        (None, _) | (Some(_), Some(_)) => Err(Unreadable::NoPayload),
    }
}

/// Decodes one name or value of a form: `+` is a space, `%xx` a byte, all else itself.
fn form_decode(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = text.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    percent_decode(&spaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Option<&str> = Some("application/x-www-form-urlencoded");

    #[test]
    fn json_is_taken_as_it_is() {
        for content_type in ["application/json", "Application/JSON; charset=utf-8"] {
            assert_eq!(json_of(Some(content_type), b"{}"), Ok(Cow::Borrowed(&b"{}"[..])));
        }
    }

    #[test]
    fn a_form_is_decoded() {
        let json = json_of(FORM, b"a=1&payload=%7B%22a%22%3A+%22b%2Bc+%C3%A4%22%7D&z=");
        assert_eq!(json.as_deref(), Ok(r#"{"a": "b+c ä"}"#.as_bytes()));
    }

    #[test]
    fn a_form_has_exactly_one_payload() {
        for body in ["", "a=1", "payload", "Payload={}", "payload={}&payload={}"] {
            assert_eq!(json_of(FORM, body.as_bytes()), Err(Unreadable::NoPayload), "{body:?}");
        }
    }

    #[test]
    fn other_content_types_are_named() {
        let error = json_of(Some("text/plain; charset=x"), b"{}").map_err(|e| e.to_string());
        insta::assert_snapshot!(
            error.expect_err("not JSON"),
            @"the content type must be application/json or application/x-www-form-urlencoded, not text/plain"
        );
        assert!(json_of(None, b"{}").is_err());
    }
}
