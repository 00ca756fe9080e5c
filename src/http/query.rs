//! Query strings, read by name: errors name the wrong parameter, or the unknown one.
//!
//! Values are bytes until they are asked for as text: a file's name need not be UTF-8.

use percent_encoding::percent_decode;

use super::error::ApiError;

/// The parameters of one request, taken out one by one.
#[derive(Debug)]
pub struct Query {
    pairs: Vec<(String, Vec<u8>)>,
}

impl Query {
    /// Splits a query string. Later values of one name are refused by [`Query::finish`].
    pub fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (String::from_utf8_lossy(&decode(name)).into_owned(), decode(value))
            })
            .collect();
        Self { pairs }
    }

    /// A value as bytes; `None` if it is not given.
    pub fn bytes(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.pairs.iter().position(|(given, _)| given == name)?;
        Some(self.pairs.remove(at).1)
    }

    /// A value as text; `None` if it is not given or empty.
    ///
    /// # Errors
    /// 400 if it is not UTF-8.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let Some(bytes) = self.bytes(name) else { return Ok(None) };
        let text = String::from_utf8(bytes).map_err(|_| ApiError::field(name, "is not UTF-8"))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// A number within bounds; `None` if it is not given.
    ///
    /// # Errors
    /// 400 if it is not a whole number or out of bounds.
    pub fn number(
        &mut self,
        name: &str,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse() {
            Ok(number) if bounds.contains(&number) => Ok(Some(number)),
            _ => Err(ApiError::field(
                name,
                format!("must be a whole number from {} to {}", bounds.start(), bounds.end()),
            )),
        }
    }

    /// A boolean; default false.
    ///
    /// # Errors
    /// 400 if it is something else than `true` or `false`.
    pub fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        match self.text(name)?.as_deref() {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(_) => Err(ApiError::field(name, "must be true or false")),
        }
    }

    /// Refuses parameters that were not read.
    ///
    /// # Errors
    /// 400 that names the first unknown parameter.
    pub fn finish(self) -> Result<(), ApiError> {
        match self.pairs.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::field(
                name,
                "this route has no such query parameter, or it was sent twice",
            )),
        }
    }
}

fn decode(text: &str) -> Vec<u8> {
    // As in forms, a plus is a space; a plus itself is %2B.
    percent_decode(text.replace('+', " ").as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_may_be_any_bytes() {
        let mut query = Query::parse("path=a%2Fb%FF+c&limit=5&deleted=true");
        assert_eq!(query.bytes("path"), Some(b"a/b\xff c".to_vec()));
        assert_eq!(query.number("limit", 1..=200).ok().flatten(), Some(5));
        assert!(query.flag("deleted").is_ok_and(|flag| flag));
        assert!(query.finish().is_ok());
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for text in ["limit=0", "limit=201", "limit=x", "limit=-1", "limit=%FF"] {
            let error = Query::parse(text).number("limit", 1..=200).expect_err(text);
            assert!(error.to_string().starts_with("invalid_request"), "{text}: {error}");
        }
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        assert!(Query::parse("nope=1").finish().is_err());
        let mut twice = Query::parse("q=a&q=b");
        assert!(twice.text("q").is_ok());
        assert!(twice.finish().is_err());
    }
}
