//! JSON bodies, read field by field: errors name the wrong field, or the unknown one.
//!
//! serde's derived errors give line and column instead of the field's name. serde_json limits the
//! depth, so nested input cannot exhaust the stack.

use serde_json::{Map, Value};

use super::error::{ApiError, Code};
use crate::types::SandboxMeta;

/// The fields of one JSON object, taken out one by one.
#[derive(Debug)]
pub struct Fields {
    map: Map<String, Value>,
}

impl Fields {
    /// Reads a body; an empty one has no fields.
    ///
    /// # Errors
    /// 400 if it is not one JSON object.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self { map: Map::new() });
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Self { map }),
            Ok(_) => Err(ApiError::new(Code::InvalidRequest, "the body must be a JSON object")),
            Err(error) => {
                Err(ApiError::new(Code::InvalidRequest, format!("the body is not JSON: {error}")))
            }
        }
    }

    fn take<T>(
        &mut self,
        name: &str,
        must_be: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        match self.map.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match read(value) {
                Some(value) => Ok(Some(value)),
                None => Err(ApiError::field(name, format!("must be {must_be}"))),
            },
        }
    }

    /// Reads text; `None` if it is absent or null.
    ///
    /// # Errors
    /// 400 if it is something else.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.take(name, "a string", |value| match value {
            Value::String(text) => Some(text),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => None,
        })
    }

    /// A whole number within bounds; `None` if it is absent or null.
    ///
    /// # Errors
    /// 400 if it is something else.
    pub fn number(
        &mut self,
        name: &str,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, ApiError> {
        let must_be = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        self.take(name, &must_be, |value| value.as_u64().filter(|n| bounds.contains(n)))
    }

    /// True or false; `None` if it is absent or null.
    ///
    /// # Errors
    /// 400 if it is something else.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.take(name, "true or false", |value| value.as_bool())
    }

    /// Reads a list of whole numbers; `None` if it is absent or null.
    ///
    /// # Errors
    /// 400 if it is something else.
    pub fn numbers(&mut self, name: &str) -> Result<Option<Vec<u64>>, ApiError> {
        self.take(name, "a list of whole numbers", |value| serde_json::from_value(value).ok())
    }

    /// A list of texts; `None` if it is absent or null.
    ///
    /// # Errors
    /// 400 if it is something else.
    pub fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, ApiError> {
        self.take(name, "a list of strings", |value| serde_json::from_value(value).ok())
    }

    /// An object whose values are texts, in the order of its names; empty if it is absent.
    ///
    /// # Errors
    /// 400 if it is something else.
    pub fn pairs(&mut self, name: &str) -> Result<Vec<(String, String)>, ApiError> {
        let map = self.take(name, "an object of strings", |value| {
            serde_json::from_value::<std::collections::BTreeMap<String, String>>(value).ok()
        })?;
        Ok(map.unwrap_or_default().into_iter().collect())
    }

    /// What a caller notes with a sandbox, in the field `meta`; nothing if it is absent.
    ///
    /// # Errors
    /// 400 if it is something else or goes beyond its bounds.
    pub fn meta(&mut self) -> Result<SandboxMeta, ApiError> {
        let entries = self.pairs("meta")?.into_iter().collect();
        SandboxMeta::new(entries).map_err(|wrong| ApiError::field("meta", wrong))
    }

    /// The first of these fields that is there and not null; all of them are taken out.
    pub fn first_given(&mut self, names: &[&'static str]) -> Option<&'static str> {
        let mut given = None;
        for name in names {
            let is_given = self.map.remove(*name).is_some_and(|value| !value.is_null());
            given = given.or(is_given.then_some(*name));
        }
        given
    }

    /// Refuses fields that were not read.
    ///
    /// # Errors
    /// 400 that names the first unknown field.
    pub fn finish(self) -> Result<(), ApiError> {
        match self.map.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::field(name, "this call has no such field")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_name_and_kind() {
        let body = br#"{"a":"x","n":3,"l":["p","q"],"e":{"K":"v"},"z":null}"#;
        let mut fields = Fields::parse(body).expect("an object");
        assert_eq!(fields.text("a").ok().flatten().as_deref(), Some("x"));
        assert_eq!(fields.number("n", 1..=5).ok().flatten(), Some(3));
        assert_eq!(fields.texts("l").ok().flatten(), Some(vec!["p".into(), "q".into()]));
        assert_eq!(fields.pairs("e").ok(), Some(vec![("K".into(), "v".into())]));
        assert_eq!(fields.text("z").ok(), Some(None));
        assert!(fields.finish().is_ok());
    }

    #[test]
    fn wrong_kinds_and_unknown_fields_are_named() {
        let mut fields = Fields::parse(br#"{"issueId":5}"#).expect("an object");
        let error = fields.text("issueId").expect_err("a number is not a string");
        assert_eq!(error.to_string(), "invalid_request: must be a string");
        assert!(Fields::parse(br#"{"nope":1}"#).and_then(Fields::finish).is_err());
    }

    #[test]
    fn deep_or_broken_json_is_an_error_and_nothing_worse() {
        let deep = "[".repeat(100_000);
        for body in [deep.as_str(), "{", "[]", "5", "{}x", "\u{0}"] {
            assert!(Fields::parse(body.as_bytes()).is_err(), "{:.20}", body);
        }
        assert!(Fields::parse(b" \n").is_ok_and(|fields| fields.map.is_empty()));
    }
}
