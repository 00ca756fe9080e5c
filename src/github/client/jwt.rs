//! The App's key, and the JSON web tokens that it signs.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::json;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::types::{Secret, Timestamp};

/// How far back a token is dated, in seconds, for a GitHub whose clock is behind.
const IAT_BACK_SECS: i64 = 60;
/// How long a token is valid, in seconds. GitHub accepts 10 minutes at most.
const EXP_AHEAD_SECS: i64 = 9 * 60;

/// The private key of a GitHub App.
pub(super) struct AppKey(RsaKeyPair);

impl fmt::Debug for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl AppKey {
    /// Reads a key in PEM: PKCS#1 (`RSA PRIVATE KEY`, as GitHub gives it) or PKCS#8 (`PRIVATE KEY`).
    ///
    /// # Errors
    /// What is wrong with it, without any of its content.
    pub fn from_pem(pem: &Secret) -> Result<Self, String> {
        let der = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes())
            .map_err(|_| "is not a private key in PEM form".to_owned())?;
        let pair = match &der {
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            _ => return Err("is no RSA key".to_owned()),
        };
        pair.map(Self).map_err(|error| format!("is not an RSA key that can be used: {error}"))
    }

    /// A token for the App, valid for 9 minutes from `now`, which is GitHub's time.
    ///
    /// # Errors
    /// If the key cannot sign.
    pub fn sign(&self, app_id: u64, now: Timestamp) -> Result<Secret, String> {
        let now = now.unix_ms().div_euclid(1_000);
        let header = json!({"alg": "RS256", "typ": "JWT"});
        let claims =
            json!({"iat": now - IAT_BACK_SECS, "exp": now + EXP_AHEAD_SECS, "iss": app_id});
        let part = |value: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let mut token = format!("{}.{}", part(header), part(claims));
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), token.as_bytes(), &mut signature)
            .map_err(|_| "the App's key cannot sign".to_owned())?;
        token.push('.');
        BASE64_URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(Secret::new(token))
    }
}
