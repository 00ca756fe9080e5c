//! Who calls: JSON web tokens of the App, tokens of installations and of users.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::Value;

use super::rest::{ModelResult, RestReply, failure};
use super::state::{ModelState, PermissionLevels};

/// Whom a call is made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelCaller {
    Anonymous,
    App,
    Installation(u64),
    User(u64),
}

/// A token that was minted for an installation or made by a user.
#[derive(Clone, Debug)]
pub(super) struct ModelToken {
    pub caller: ModelCaller,
    /// The repositories to which it is narrowed.
    pub repositories: Option<BTreeSet<u64>>,
    /// What it may do. A classic token of a user may do what the user's role allows: `None`.
    pub permissions: Option<PermissionLevels>,
    pub expires: Option<Timestamp>,
    pub revoked: bool,
}

/// The caller of one request, and what its token allows.
#[derive(Clone, Debug)]
pub(super) struct ModelAccess {
    pub caller: ModelCaller,
    pub token: Option<ModelToken>,
    /// The token as it was sent.
    pub value: String,
}

impl ModelCaller {
    /// The name under which calls are recorded and limits are counted.
    pub fn identity(self) -> String {
        match self {
            Self::Anonymous => "anonymous".to_owned(),
            Self::App => "app".to_owned(),
            Self::Installation(id) => format!("installation {id}"),
            Self::User(id) => format!("user {id}"),
        }
    }
}

/// The key in a PEM file, PKCS#1 or PKCS#8.
fn key_pair(pem: &str) -> Option<RsaKeyPair> {
    let lines = pem.lines().filter(|line| !line.starts_with("-----"));
    let der = STANDARD.decode(lines.collect::<String>()).ok()?;
    RsaKeyPair::from_der(&der).or_else(|_| RsaKeyPair::from_pkcs8(&der)).ok()
}

/// A token in the form that GitHub mints since April 2026: `ghs_APPID_JWT`, some 520 characters.
pub(super) fn new_token_value(app: u64) -> String {
    let mut random = [0; 366];
    SystemRandom::new().fill(&mut random).expect("the system has random numbers");
    let text = URL_SAFE_NO_PAD.encode(random);
    format!("ghs_{app}_eyJhbGciOiJFUzI1NiJ9.{}.{}", &text[..400], &text[400..])
}

impl ModelState {
    /// Who sent this `Authorization` header. Errors are GitHub's 401 answers.
    pub fn access(&self, authorization: Option<&str>) -> Result<ModelAccess, RestReply> {
        let Some(header) = authorization else {
            let (caller, value) = (ModelCaller::Anonymous, String::new());
            return Ok(ModelAccess { caller, token: None, value });
        };
        let (scheme, value) = header.split_once(' ').unwrap_or(("", header));
        let value = match scheme.to_ascii_lowercase().as_str() {
            "bearer" | "token" => value.to_owned(),
            "basic" => {
                let decoded = STANDARD.decode(value).ok();
                let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
                text.and_then(|text| Some(text.split_once(':')?.1.to_owned())).unwrap_or_default()
            }
            _ => String::new(),
        };
        if let Some(token) = self.tokens.get(&value) {
            let is_over = token.expires.is_some_and(|at| self.now() >= at) || token.revoked;
            let is_known = match token.caller {
                ModelCaller::Installation(id) => self.installations.contains_key(&id),
                _ => true,
            };
            return match is_known && !is_over {
                true => Ok(ModelAccess { caller: token.caller, token: Some(token.clone()), value }),
                false => Err(failure(401, "Bad credentials")),
            };
        }
        if value.split('.').count() == 3 && !value.starts_with("ghs_") {
            self.check_jwt(&value)?;
            return Ok(ModelAccess { caller: ModelCaller::App, token: None, value });
        }
        Err(failure(401, "Bad credentials"))
    }

    /// Checks a JSON web token as GitHub does: RS256 by the App's key, at most ten minutes long.
    fn check_jwt(&self, token: &str) -> Result<(), RestReply> {
        let undecodable = || failure(401, "A JSON web token could not be decoded");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(undecodable)?;
        let (header, claims) = signed.split_once('.').ok_or_else(undecodable)?;
        let json = |part: &str| -> Option<Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        let (header, claims) =
            (json(header).ok_or_else(undecodable)?, json(claims).ok_or_else(undecodable)?);
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| undecodable())?;
        let pair = key_pair(self.app.key).expect("the model's key is valid");
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref());
        if header["alg"] != "RS256" || key.verify(signed.as_bytes(), &signature).is_err() {
            return Err(undecodable());
        }
        let issuer = claims["iss"].as_u64().or_else(|| claims["iss"].as_str()?.parse().ok());
        if issuer != Some(self.app.id) {
            return Err(failure(401, "'Issuer' claim ('iss') must be an Integer"));
        }
        let now = self.now().as_second();
        match (claims["iat"].as_i64(), claims["exp"].as_i64()) {
            (None, _) => Err(failure(401, "Missing 'issued at' claim ('iat') in assertion")),
            (_, None) => Err(failure(401, "Missing 'expiration time' claim ('exp') in assertion")),
            (Some(issued), _) if issued > now => Err(failure(
                401,
                "'Issued at' claim ('iat') must be an Integer representing the time that the \
                 assertion was issued",
            )),
            (_, Some(expires)) if expires <= now => Err(failure(
                401,
                "'Expiration time' claim ('exp') must be a numeric value representing the future \
                 time at which the assertion expires",
            )),
            (_, Some(expires)) if expires > now + 600 => {
                Err(failure(401, "'Expiration time' claim ('exp') is too far in the future"))
            }
            _ => Ok(()),
        }
    }

    /// The account that acts where this caller acts.
    pub fn actor(&self, caller: ModelCaller) -> u64 {
        match caller {
            ModelCaller::User(id) => id,
            ModelCaller::App | ModelCaller::Installation(_) | ModelCaller::Anonymous => {
                self.app.bot
            }
        }
    }

    /// Whether this caller may use a permission of a repository. Errors are GitHub's answers: 404
    /// where the repository must not even be known, 403 where the permission is missing.
    pub fn allow(
        &self,
        access: &ModelAccess,
        repository: u64,
        permission: &str,
        write: bool,
    ) -> ModelResult<()> {
        let found = &self.repositories[&repository];
        let is_open = !found.private && !write && permission != "repository_hooks";
        let hidden = || failure(404, "Not Found");
        if found.archived && write {
            return Err(failure(403, "Repository was archived so is read-only."));
        }
        match access.caller {
            ModelCaller::Anonymous if is_open => Ok(()),
            ModelCaller::Anonymous if write => Err(failure(401, "Requires authentication")),
            ModelCaller::Anonymous => Err(hidden()),
            ModelCaller::App => Err(failure(
                401,
                "A JSON web token is not accepted here; use a token of an installation",
            )),
            ModelCaller::Installation(id) => {
                let words = "Resource not accessible by integration";
                let installation = self.installations.get(&id).ok_or_else(hidden)?;
                if installation.suspended.is_some() {
                    return Err(failure(403, "This installation has been suspended"));
                }
                let token = access.token.as_ref().ok_or_else(hidden)?;
                let narrowed = token.repositories.as_ref();
                let covers = self.installation_of(repository) == Some(id)
                    && narrowed.is_none_or(|ids| ids.contains(&repository));
                if !covers {
                    return match (is_open, found.private) {
                        (true, _) => Ok(()),
                        (_, true) => Err(hidden()),
                        (_, false) => Err(failure(403, words)),
                    };
                }
                let held = token.permissions.as_ref().and_then(|held| held.get(permission));
                let current = installation.permissions.get(permission);
                match is_open || (enough(held, write) && enough(current, write)) {
                    true => Ok(()),
                    false => Err(failure(403, words)),
                }
            }
            ModelCaller::User(user) => {
                let role = self.role(repository, user);
                if role.is_none() && found.private {
                    return Err(hidden());
                }
                let held = access.token.as_ref().and_then(|token| token.permissions.as_ref());
                if held.is_some_and(|held| !enough(held.get(permission), write)) {
                    let words = "Resource not accessible by personal access token";
                    return Err(failure(403, words));
                }
                let speaks = permission == "issues" || permission == "pull_requests";
                match !write || speaks || role.is_some_and(may_write) {
                    true => Ok(()),
                    false => Err(failure(403, "Must have admin rights to Repository.")),
                }
            }
        }
    }
}

/// Whether a level is enough.
pub(super) fn enough(held: Option<&String>, write: bool) -> bool {
    held.is_some_and(|level| !write || level == "write" || level == "admin")
}

/// Whether a role may push.
pub(super) fn may_write(role: &str) -> bool {
    matches!(role, "write" | "maintain" | "admin")
}
