//! Secrets in a text that is about to be published: those that the server knows, in the forms in which
//! they travel, and those of a known shape.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use regex::Regex;

use crate::types::Secret;

/// Shortest secret that is looked for, in bytes: a shorter one occurs by chance.
const SECRET_LEN_MIN: usize = 6;

/// What stands in the place of something that looks like a secret.
const REDACTED: &str = "[redacted]";

/// Tokens of GitHub and Anthropic, and private keys.
static SHAPES: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = r"gh[opsur]_[A-Za-z0-9._-]{36,}|github_pat_[A-Za-z0-9_]{20,}|sk-ant-[A-Za-z0-9_-]{16,}|-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)";
    Regex::new(shapes).expect("a valid expression")
});

/// A text contains a secret of the server, so it must not be published. It does not say which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the text contains a secret of this server; it was not published, a person must look at it"
)]
pub struct SecretFound;

/// Secrets that must not be published, in the forms in which they are looked for.
#[derive(Clone, Default)]
pub struct KnownSecrets {
    /// As they are, and inside of base64.
    exact: Vec<String>,
    /// In hexadecimal, lower case.
    hex: Vec<String>,
}

impl std::fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl KnownSecrets {
    /// These secrets. Those shorter than six bytes are not looked for.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut known = Self::default();
        for secret in secrets {
            let value = secret.expose().trim();
            if value.len() < SECRET_LEN_MIN {
                continue;
            }
            known.exact.push(without_spaces(value));
            known.hex.push(hex::encode(value));
            for shift in 0..3 {
                known.exact.extend(inside_base64(value.as_bytes(), shift));
            }
        }
        known
    }

    /// Looks for every secret in a text: by value, in base64, hexadecimal and percent form, also where
    /// white space was put in between.
    ///
    /// # Errors
    /// [`SecretFound`] when one is there.
    pub fn check(&self, text: &str) -> Result<(), SecretFound> {
        let joined = without_spaces(text);
        let decoded = percent_encoding::percent_decode_str(&joined).decode_utf8_lossy();
        let lower = joined.to_ascii_lowercase();
        let is_there =
            self.exact.iter().any(|form| joined.contains(form) || decoded.contains(form))
                || self.hex.iter().any(|form| lower.contains(form));
        if is_there { Err(SecretFound) } else { Ok(()) }
    }
}

fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

/// What base64 shows of a value that begins this many bytes behind a whole group, without the
/// characters that depend on what stands around it; in both alphabets.
fn inside_base64(value: &[u8], shift: usize) -> Vec<String> {
    let shifted = [&[0; 2][..shift], value].concat();
    let begin = (shift * 8).div_ceil(6);
    let end = shifted.len() * 8 / 6;
    let forms = [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)];
    forms.into_iter().map(|form| form[begin..end].to_owned()).collect()
}

/// The text without anything that has the shape of a token or private key.
pub(super) fn redacted(text: &str) -> std::borrow::Cow<'_, str> {
    SHAPES.replace_all(text, REDACTED)
}
