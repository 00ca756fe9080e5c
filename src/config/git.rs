//! `[templates.X.git]`: the repository in the sandbox.

use super::reader::ConfigReader;
use crate::types::{CloneMode, GitWorkload, Repository};

/// Largest push that may be allowed, in MiB: GitHub refuses packs of more than 2 GiB.
const PUSH_MB_MAX: u64 = 2_048;

/// Reads what a template says of git; `None` for no checkout.
pub(super) fn git(
    r: &mut ConfigReader,
    key: &impl Fn(&str) -> String,
    has_credentials: bool,
) -> Option<GitWorkload> {
    // `None`: none.
    let clone = r.parsed(&key("git.clone"), Some(CloneMode::Auto), |text| {
        if text == "none" {
            return Ok(None);
        }
        let known = CloneMode::ALL.map(CloneMode::as_str).join(", ");
        CloneMode::parse(text).map(Some).ok_or(format!("must be one of {known}, none"))
    });
    let mut read = Vec::new();
    for text in r.texts(&key("git.read"), &[]) {
        match Repository::parse(&text) {
            Ok(repository) => read.push(repository),
            Err(_) => r.wrong(&key("git.read"), &format!("must be owner/name, not {text:?}")),
        }
    }
    let push_max_mb = r.number(&key("git.push_max_mb"), 1_024, 1..=PUSH_MB_MAX);
    let workflows = r.flag(&key("git.workflows"), false);
    if !has_credentials {
        for part in ["clone", "read", "push_max_mb", "workflows"] {
            let key = key(&format!("git.{part}"));
            r.without_effect(&key, "without credentials in [github]: nothing is checked out");
        }
    }
    let clone = clone.filter(|_| has_credentials)?;
    Some(GitWorkload { clone, read, push_max_mb, workflows })
}
