//! The header `Range`: one range of bytes is supported. Malformed ranges, other units and several
//! ranges are ignored, as RFC 9110 (sections 14.1.1 and 14.2) allows.

use actix_web::http::header::{self, HeaderMap};

use crate::sandbox::FilePart;

/// The part of a file that a request asks for.
pub(super) fn asked(headers: &HeaderMap) -> FilePart {
    // Files have no validators here, so the client's validator cannot match.
    if headers.contains_key(header::IF_RANGE) {
        return FilePart::Whole;
    }
    let mut given = headers.get_all(header::RANGE);
    match (given.next(), given.next()) {
        (Some(value), None) => value.to_str().ok().and_then(parse).unwrap_or(FilePart::Whole),
        _ => FilePart::Whole,
    }
}

fn parse(value: &str) -> Option<FilePart> {
    let (unit, range) = value.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    match (first, last) {
        ("", last) => Some(FilePart::Last(number(last)?)),
        (first, "") => Some(FilePart::From(number(first)?)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(FilePart::Between(first, last))
        }
    }
}

/// Parses digits; a number that is too large is after the end of every file.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_range_is_read_and_everything_else_is_the_whole_file() {
        for (value, part) in [
            ("bytes=0-99", Some(FilePart::Between(0, 99))),
            ("BYTES=5-5", Some(FilePart::Between(5, 5))),
            ("bytes=7-", Some(FilePart::From(7))),
            ("bytes=-3", Some(FilePart::Last(3))),
            ("bytes=-0", Some(FilePart::Last(0))),
            ("bytes=99999999999999999999-", Some(FilePart::From(u64::MAX))),
            ("bytes=9-8", None),
            ("bytes=0-1,4-5", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("bytes=a-b", None),
            ("bytes", None),
            ("lines=1-2", None),
        ] {
            assert_eq!(parse(value), part, "{value}");
        }
    }

    proptest! {
        #![proptest_config(crate::fuzz::cases(2048))]

        #[test]
        fn no_bytes_of_a_header_ask_for_what_is_not_in_the_file(
            value in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                "(bytes|lines|) ?=? ?[0-9]{0,21} ?-? ?[0-9]{0,21},?".prop_map(String::into_bytes),
            ],
            size: u64,
        ) {
            let Ok(value) = header::HeaderValue::from_bytes(&value) else { return Ok(()) };
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, value);
            if let Some(range) = asked(&headers).of(size) {
                prop_assert!(range.end <= size && (range.start < range.end || size == 0));
            }
        }
    }
}
