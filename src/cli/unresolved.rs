//! Why a command found no host: by default a sandbox has no network, and programs say only that a
//! name could not be resolved.

use super::target::IssueArg;
use super::wire::ApiSandbox;

/// What programs print that found no host: curl, git, apt, wget, glibc, musl, node, Go, Rust.
const WORDS: [&str; 8] = [
    "could not resolve",
    "unable to resolve host",
    "temporary failure resolving",
    "failure in name resolution",
    "name or service not known",
    "getaddrinfo",
    "no such host",
    "failed to lookup address",
];
/// The longest of them, in bytes: a piece of output may end inside of one.
const WORD_LEN_MAX: usize = 32;

/// Looks for them in a command's output.
#[derive(Debug, Default)]
pub(super) struct Unresolved {
    tail: String,
    is_found: bool,
}

impl Unresolved {
    /// Takes the next piece of output.
    pub fn see(&mut self, piece: &[u8]) {
        if self.is_found {
            return;
        }
        self.tail.push_str(&String::from_utf8_lossy(piece).to_lowercase());
        self.is_found = WORDS.iter().any(|word| self.tail.contains(word));
        let from = self.tail.len().saturating_sub(WORD_LEN_MAX);
        let from = (from..).find(|at| self.tail.is_char_boundary(*at)).unwrap_or_default();
        self.tail.drain(..from);
    }

    /// What to do about it; `None` if no host was missed, or the sandbox has a network.
    pub fn hint(&self, sandbox: &ApiSandbox, issue: &IssueArg) -> Option<String> {
        if !self.is_found || sandbox.network.as_deref() != Some("none") {
            return None;
        }
        let template = &sandbox.template;
        Some(format!(
            "hint: this sandbox has no network: its template {template} has network = \"none\", the \
             default.\n      In issuebox.toml, under [templates.{template}], set network = \"allow\" and \
             allow = [\"github.com\"],\n      or network = \"full\", and restart the server. {}",
            moved(issue)
        ))
    }
}

/// How an existing sandbox comes to what its template says now: there is no change of a sandbox that
/// exists, so its workspace moves to a new one.
pub(super) fn moved(issue: &IssueArg) -> String {
    format!(
        "New sandboxes have it then; for this one:\n      issuebox files get {issue} --to w.tar && \
         issuebox rm {issue} --wait && issuebox ensure {issue} --wait && issuebox files put --tar \
         {issue} . w.tar"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(network: Option<&str>) -> ApiSandbox {
        let value = serde_json::json!({
            "id": "i", "name": "n", "issueId": "5", "provider": "local", "template": "web",
            "network": network, "wanted": "running", "generation": 1, "createdAt": "", "phaseSince": "",
        });
        super::super::wire::read(&value).expect("a sandbox")
    }

    #[test]
    fn a_host_that_was_not_found_is_explained_where_there_is_no_network() {
        let issue = IssueArg::parse("octo/hello#7").expect("an issue");
        let of = |pieces: &[&str], network: Option<&str>| {
            let mut unresolved = Unresolved::default();
            pieces.iter().for_each(|piece| unresolved.see(piece.as_bytes()));
            unresolved.hint(&sandbox(network), &issue)
        };
        let curl = "curl: (6) Could not resolve host: github.com\n";
        let hint = of(&[curl], Some("none")).expect("a hint");
        assert!(hint.contains("[templates.web]") && hint.contains("network = \"allow\""), "{hint}");
        assert!(hint.contains("issuebox files get octo/hello#7 --to w.tar"), "{hint}");
        // However it is cut, and whatever came before it.
        let (before, long) = ("ä".repeat(100_000), "x".repeat(100_000));
        for at in 0..curl.len() {
            let (head, rest) = curl.split_at(at);
            assert!(of(&[&before, &long, head, rest, &long], Some("none")).is_some(), "{at}");
        }
        assert_eq!(of(&[curl], Some("full")), None);
        assert_eq!(of(&[curl], None), None, "an older server");
        assert_eq!(of(&["could not find it\n"], Some("none")), None);
    }
}
