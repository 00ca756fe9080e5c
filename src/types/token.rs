//! Tokens for the API that people create beside the configured admin token.
//!
//! A token is `ibx_`, 43 base62 digits of 256 random bits, and 6 of their CRC-32: a scanner for
//! leaked secrets recognises it without asking anybody, as it does GitHub's own tokens.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{AccountName, Role, Secret, Timestamp, TokenId};

/// How a token begins.
pub const TOKEN_PREFIX: &str = "ibx_";
/// Digits of the random part: 62^43 is a little more than 2^256.
const RANDOM_LEN: usize = 43;
/// Digits of the checksum: 62^6 is more than 2^32.
const CHECKSUM_LEN: usize = 6;

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest(pub [u8; 32]);

impl TokenDigest {
    /// The digest of a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(***)")
    }
}

/// What is known of a token, which itself is nowhere but with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    /// Its id.
    pub id: TokenId,
    /// Its digest.
    pub digest: TokenDigest,
    /// What a person called it.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// The account whose sandboxes its bearer sees.
    pub account: AccountName,
    /// When it was created.
    pub created_at: Timestamp,
    /// Until when it is valid; `None` for ever.
    pub expires_at: Option<Timestamp>,
    /// When it was used last, to the minute; `None` if never.
    pub last_used_at: Option<Timestamp>,
}

impl ApiToken {
    /// Whether it is valid at this time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }
}

/// The token of these random bytes.
pub fn token_of(random: [u8; 32]) -> Secret {
    let digits = base62(random, RANDOM_LEN);
    let checksum = checksum(&digits);
    Secret::new(format!("{TOKEN_PREFIX}{digits}{checksum}"))
}

/// Whether a text has the form of a token, its checksum included.
pub fn is_token(text: &str) -> bool {
    text.strip_prefix(TOKEN_PREFIX).is_some_and(|rest| {
        rest.is_ascii()
            && rest.len() == RANDOM_LEN + CHECKSUM_LEN
            && rest[RANDOM_LEN..] == checksum(&rest[..RANDOM_LEN])
    })
}

fn checksum(digits: &str) -> String {
    let mut crc = crc32fast::Hasher::new();
    crc.update(digits.as_bytes());
    base62(crc.finalize().to_be_bytes(), CHECKSUM_LEN)
}

/// A number of big-endian bytes in base 62, with zeros in front.
fn base62<const N: usize>(mut number: [u8; N], len: usize) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut digits: Vec<char> = (0..len)
        .map(|_| {
            let rest = number.iter_mut().fold(0u32, |rest, byte| {
                let dividend = rest * 256 + u32::from(*byte);
                *byte = u8::try_from(dividend / 62).expect("the rest is below 62");
                dividend % 62
            });
            char::from(DIGITS[rest as usize])
        })
        .collect();
    digits.reverse();
    digits.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_recognised_by_its_checksum() {
        let token = token_of([7; 32]);
        let text = token.expose();
        assert_eq!(text.len(), TOKEN_PREFIX.len() + RANDOM_LEN + CHECKSUM_LEN);
        assert!(is_token(text));
        let last = if text.ends_with('0') { '1' } else { '0' };
        let other = format!("{}{last}", &text[..text.len() - 1]);
        for wrong in [&other, &text.replace('_', "-"), &text[..50], "", "ibx_é"] {
            assert!(!is_token(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_number_has_one_text_in_base_62() {
        assert_eq!(base62([0, 0], 3), "000");
        assert_eq!(base62([0, 61], 3), "00z");
        assert_eq!(base62([0, 62], 3), "010");
        // 65535 = 17 * 62^2 + 3 * 62 + 1.
        assert_eq!(base62([255, 255], 3), "H31");
        // 2^256 - 1 needs all 43 digits.
        assert_eq!(base62([255; 32], RANDOM_LEN).len(), RANDOM_LEN);
        assert!(!base62([255; 32], RANDOM_LEN).starts_with('0'));
    }
}
