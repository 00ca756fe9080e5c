//! Which pushes may go to GitHub.

use super::{PushHead, PushRefusal};
use crate::types::inert;

/// What a sandbox may push now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRules {
    /// The sandbox's branch, without `refs/heads/`.
    pub branch: String,
    /// The tip that is recorded for the branch: what the sandbox last pushed.
    pub tip: Option<String>,
    /// Tips made by others that were fetched since a refusal named them.
    pub fetched: Vec<String>,
    /// Why nothing may be pushed now: `publish`, a closed issue, a repository that is not ours any
    /// more.
    pub denied: Option<String>,
}

impl PushRules {
    /// Whether a push may go to GitHub.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self, head: &PushHead) -> Result<(), PushRefusal> {
        let reference = format!("refs/heads/{}", self.branch);
        for command in &head.commands {
            if command.reference != reference.as_bytes() {
                let asked = String::from_utf8_lossy(&command.reference);
                let asked: String = asked.chars().take(200).collect();
                let asked = inert(&asked).into_owned();
                return Err(PushRefusal::OtherRef { asked, branch: self.branch.clone() });
            }
            if is_zero(&command.new) {
                return Err(PushRefusal::Deletes(self.branch.clone()));
            }
            let is_known = |old: &str| {
                let same = |known: &String| known.eq_ignore_ascii_case(old);
                self.tip.as_ref().is_some_and(same) || self.fetched.iter().any(same)
            };
            if !is_zero(&command.old) && !is_known(&command.old) {
                let (branch, tip) = (self.branch.clone(), command.old.clone());
                return Err(PushRefusal::NotFetched { branch, tip });
            }
        }
        match &self.denied {
            Some(sentence) => Err(PushRefusal::NotNow(sentence.clone())),
            None => Ok(()),
        }
    }
}

fn is_zero(oid: &str) -> bool {
    oid.bytes().all(|byte| byte == b'0')
}

/// Whether the headers are those of a push that may be read.
///
/// # Errors
/// [`PushRefusal::Malformed`] for another content type or any encoding, [`PushRefusal::TooLarge`] for
/// a declared length (bytes) over so many MiB.
pub fn check_headers(
    content_type: Option<&str>,
    content_encoding: Option<&str>,
    declared_len: Option<u64>,
    max_mb: u64,
) -> Result<(), PushRefusal> {
    if content_type != Some("application/x-git-receive-pack-request") {
        return Err(PushRefusal::Malformed("it has another content type"));
    }
    if content_encoding.is_some() {
        return Err(PushRefusal::Malformed("it is compressed as a whole"));
    }
    match declared_len {
        Some(len) if len > max_mb.saturating_mul(1 << 20) => Err(PushRefusal::TooLarge(max_mb)),
        Some(_) | None => Ok(()),
    }
}
