//! The signature of a delivery: `X-Hub-Signature-256`, an HMAC-SHA256 over the raw body.
//!
//! Compared in constant time. Every secret is tried, also after one matched, so that the time
//! says nothing about which secret of a rotation signed.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::types::Secret;

/// Why a delivery does not count as GitHub's. Each answers 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// There is no `X-Hub-Signature-256`.
    #[error("the delivery has no signature; set the webhook's secret on GitHub")]
    Missing,
    /// The header does not have the form `sha256=` and 64 hex digits.
    #[error("the signature must have the form sha256=<64 hex digits>")]
    Malformed,
    /// No configured secret made this signature over this body.
    #[error("the signature does not match; the secret here and on GitHub must be the same")]
    Mismatch,
}

const PREFIX: &str = "sha256=";

/// Checks the signature of a raw body against the configured secrets (two while rotating).
///
/// An empty secret never matches: anybody could sign with it.
///
/// # Errors
/// [`Unsigned`] says what is wrong with the signature.
pub fn verify(
    secrets: &[Secret],
    signature_header: Option<&str>,
    body: &[u8],
) -> Result<(), Unsigned> {
    let header = signature_header.ok_or(Unsigned::Missing)?;
    let digits = header.strip_prefix(PREFIX).ok_or(Unsigned::Malformed)?;
    let mut given = [0_u8; 32];
    hex::decode_to_slice(digits, &mut given).map_err(|_| Unsigned::Malformed)?;
    let mut matched = false;
    for secret in secrets.iter().filter(|secret| !secret.expose().is_empty()) {
        matched |= mac(secret, body).verify_slice(&given).is_ok();
    }
    if matched { Ok(()) } else { Err(Unsigned::Mismatch) }
}

/// The header's value that GitHub would send for this body: what `demo` and tests sign with.
pub fn sign(secret: &Secret, body: &[u8]) -> String {
    format!("{PREFIX}{}", hex::encode(mac(secret, body).finalize().into_bytes()))
}

fn mac(secret: &Secret, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())
        .expect("HMAC takes keys of any length");
    mac.update(body);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn secrets(words: &[&str]) -> Vec<Secret> {
        words.iter().map(|word| Secret::new(*word)).collect()
    }

    #[test]
    fn githubs_own_example_verifies() {
        let secrets = secrets(&["It's a Secret to Everybody"]);
        assert_eq!(verify(&secrets, Some(KNOWN), b"Hello, World!"), Ok(()));
        assert_eq!(sign(&secrets[0], b"Hello, World!"), KNOWN);
    }

    #[test]
    fn each_secret_of_a_rotation_counts() {
        let both = secrets(&["new", "It's a Secret to Everybody"]);
        assert_eq!(verify(&both, Some(KNOWN), b"Hello, World!"), Ok(()));
        let new = sign(&both[0], b"x");
        assert_eq!(verify(&both, Some(&new), b"x"), Ok(()));
    }

    #[test]
    fn anything_else_is_unsigned() {
        let secrets = secrets(&["It's a Secret to Everybody"]);
        let check = |header| verify(&secrets, header, b"Hello, World!");
        assert_eq!(check(None), Err(Unsigned::Missing));
        let no_hex = KNOWN.replace('7', "g");
        for bad in ["", "sha256=", "sha1=757107", &KNOWN[..70], &no_hex] {
            assert_eq!(check(Some(bad)), Err(Unsigned::Malformed), "{bad:?}");
        }
        assert_eq!(verify(&secrets, Some(KNOWN), b"Hello, World?"), Err(Unsigned::Mismatch));
        assert_eq!(check(Some(&KNOWN.replace('7', "8"))), Err(Unsigned::Mismatch));
    }

    #[test]
    fn an_empty_secret_and_no_secret_never_match() {
        let empty = secrets(&[""]);
        let signed = sign(&empty[0], b"x");
        assert_eq!(verify(&empty, Some(&signed), b"x"), Err(Unsigned::Mismatch));
        assert_eq!(verify(&[], Some(&signed), b"x"), Err(Unsigned::Mismatch));
    }
}
