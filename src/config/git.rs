//! `[templates.X.git]`: the repository in the sandbox.

use super::reader::ConfigReader;
use crate::types::{CloneMode, GitWorkload, Network, Repository, RepositoryFile};

/// Largest push that may be allowed, in MiB: GitHub refuses packs of more than 2 GiB.
const PUSH_MB_MAX: u64 = 2_048;

/// The largest push if nothing is said, in MiB.
const PUSH_MB_DEFAULT: u64 = 1_024;

/// What a template needs that uses the checkout, if it has none.
const WITHOUT_CHECKOUT: &str = "needs a checkout: credentials in [github], a git.clone other than \
                                \"none\" and a network other than \"host\"";

/// Reads what a template says of git; `None` for no checkout.
pub(super) fn git(
    r: &mut ConfigReader,
    key: &impl Fn(&str) -> String,
    has_credentials: bool,
    network: &Network,
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
    let push_max_mb = r.number(&key("git.push_max_mb"), PUSH_MB_DEFAULT, 1..=PUSH_MB_MAX);
    let workflows = r.flag(&key("git.workflows"), false);
    let reads_file = r.flag(&key("git.repository_file"), false);
    if reads_file && !(has_credentials && clone.is_some() && *network != Network::Host) {
        r.wrong(&key("git.repository_file"), WITHOUT_CHECKOUT);
    }
    if !has_credentials {
        // Of the defaults nothing need be said.
        let parts = [
            ("clone", clone != Some(CloneMode::Auto)),
            ("read", !read.is_empty()),
            ("push_max_mb", push_max_mb != PUSH_MB_DEFAULT),
            ("workflows", workflows),
        ];
        for (part, _) in parts.into_iter().filter(|(_, is_changed)| *is_changed) {
            let key = key(&format!("git.{part}"));
            let why = "has no effect without credentials in [github]: nothing is checked out";
            r.warn(&key, why);
        }
    }
    let clone = clone.filter(|_| has_credentials)?;
    if *network == Network::Host {
        let what = "is \"host\", which has no git gateway: nothing is checked out";
        r.warn(&key("network"), what);
        return None;
    }
    // A branch to begin at is said of a repository, not of a template.
    let repository_file = reads_file.then(RepositoryFile::default);
    Some(GitWorkload { clone, base: None, read, push_max_mb, workflows, repository_file })
}
