//! A newtype for every identifier. Text from outside is parsed here and nowhere else.

use std::fmt;
use std::sync::Arc;

use md5::Md5;
use sha2::{Digest, Sha256};

/// A malformed identifier. The message is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {reason}")]
pub struct InvalidId {
    /// Which kind of identifier was expected, such as `issue id`.
    pub what: &'static str,
    /// What is wrong, and which form is right.
    pub reason: String,
}

impl InvalidId {
    fn new(what: &'static str, reason: impl Into<String>) -> Self {
        Self { what, reason: reason.into() }
    }
}

/// Declares a newtype around shared text that prints as itself.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Wraps text that issuebox wrote or checked before (a row, a provider's answer).
            pub fn trusted(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), &self.0)
            }
        }
    };
}

/// Replaces an identifier by the last one, if both are equal: of the two copies memory keeps one.
pub fn share_equal<T: Clone + PartialEq>(last: &mut Option<T>, id: &mut T) {
    match last {
        Some(last) if last == id => *id = last.clone(),
        Some(_) | None => *last = Some(id.clone()),
    }
}

text_id! {
    /// A tenant. Everything belongs to exactly one; the first is `default`.
    AccountName
}
text_id! {
    /// An issue's id at GitHub or a caller: the decimal of GitHub's global `issue.id`, or a caller's
    /// word. An alias of a home, see [`HomeId`].
    IssueId
}
text_id! {
    /// `owner/name` of a repository, as GitHub writes it. Compared without regard to case.
    Repository
}
text_id! {
    /// The id of one sandbox (one generation of one home). Opaque: a UUID v7 or an older form.
    SandboxId
}
text_id! {
    /// The name under which a provider keeps a sandbox's object.
    ObjectName
}
text_id! {
    /// The provider's own id of an object.
    ExternalId
}
text_id! {
    /// GitHub's GUID of one webhook delivery (`X-GitHub-Delivery`).
    DeliveryId
}
text_id! {
    /// The name of a configured provider, such as `local`.
    ProviderName
}
text_id! {
    /// The name of a configured template, such as `default`.
    TemplateName
}
text_id! {
    /// The id of a token of the API, such as `tok-1f0c…`; no secret.
    TokenId
}
text_id! {
    /// The name of an agent, such as `claude-code`.
    AgentName
}
text_id! {
    /// The name of a secret in the configuration's `[secrets]`.
    SecretName
}
text_id! {
    /// An installation of issuebox; generated once and kept in the store. Labels of objects carry it.
    InstanceId
}

impl SandboxId {
    /// The id of a sandbox in fast mode: 32 hex digits, the MD5 of `name:account:unixNanos`. MD5 is used
    /// for its distribution, not for secrecy.
    pub fn fast(name: &str, account: &AccountName, unix_ns: i64) -> Self {
        let digest = Md5::digest(format!("{name}:{account}:{unix_ns}"));
        Self::trusted(hex::encode(digest))
    }
}

impl AccountName {
    /// The account that exists from the start.
    pub fn default_account() -> Self {
        Self(Arc::from("default"))
    }

    /// Parses 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit.
    ///
    /// # Errors
    /// [`InvalidId`] when the text has another form.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        // The form of an issue's id, which has other words in its error.
        let form = "must consist of at most 64 letters, digits, '.', '_' and '-'";
        IssueId::parse(text).map_err(|_| InvalidId::new("account", form))?;
        Ok(Self(Arc::from(text)))
    }
}

impl IssueId {
    /// Longest accepted id, in characters.
    pub const LEN_MAX: usize = 64;

    /// Parses `[A-Za-z0-9][A-Za-z0-9._-]{0,63}` without `--` or `..`.
    ///
    /// # Errors
    /// [`InvalidId`] when the text has another form.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let wrong = |reason: &str| Err(InvalidId::new("issue id", reason));
        match text.as_bytes() {
            [] => return wrong("is empty"),
            bytes if bytes.len() > Self::LEN_MAX => {
                return wrong("is longer than 64 characters");
            }
            [first, rest @ ..] => {
                let tail_ok = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
                if !first.is_ascii_alphanumeric() || !rest.iter().all(tail_ok) {
                    return wrong(
                        "must begin with a letter or digit and hold only letters, digits, '.', '_' and '-'",
                    );
                }
            }
        }
        if text.contains("--") || text.contains("..") {
            return wrong("must not contain '--' or '..'");
        }
        Ok(Self(Arc::from(text)))
    }

    /// The issue id of a GitHub issue: the decimal of its global id.
    pub fn from_github(id: u64) -> Self {
        Self(Arc::from(id.to_string()))
    }

    /// The display name of this issue's sandbox.
    pub fn sandbox_name(&self) -> String {
        format!("{}{}", SANDBOX_NAME_PREFIX, self.0)
    }

    /// Extracts the issue id from a sandbox's name.
    pub fn from_sandbox_name(name: &str) -> Option<Self> {
        Self::parse(name.strip_prefix(SANDBOX_NAME_PREFIX)?).ok()
    }
}

const SANDBOX_NAME_PREFIX: &str = "claude-issue-";

impl Repository {
    /// Parses `owner/name`: two parts of letters, digits, `.`, `_` and `-`, at most 39 and 100
    /// characters (GitHub's own limits).
    ///
    /// # Errors
    /// [`InvalidId`] when the text has another form.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let wrong = || Err(InvalidId::new("repository", "must have the form owner/name"));
        let Some((owner, name)) = text.split_once('/') else { return wrong() };
        let part_ok = |part: &str, len_max: usize| {
            !part.is_empty()
                && part.len() <= len_max
                && part != "."
                && part != ".."
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        };
        if !part_ok(owner, 39) || !part_ok(name, 100) {
            return wrong();
        }
        Ok(Self(Arc::from(text)))
    }

    /// The form in which two spellings of one repository are equal.
    pub fn folded(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

impl DeliveryId {
    /// How the ids of sample deliveries begin, which the server sends to itself. GitHub's are GUIDs.
    pub const SAMPLE_PREFIX: &str = "issuebox-sample-";
    /// How the ids begin of what GitHub said when it was asked, and did not deliver.
    pub const VERIFIED_PREFIX: &str = "issuebox-verified-";

    /// Parses the value of `X-GitHub-Delivery`: 1 to 64 characters of `[A-Za-z0-9-]`.
    ///
    /// # Errors
    /// [`InvalidId`] when the text has another form.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let ok = (1..=64).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !ok {
            return Err(InvalidId::new("delivery id", "must be a GUID of at most 64 characters"));
        }
        Ok(Self(Arc::from(text)))
    }
}

impl ObjectName {
    /// Longest name that is used unchanged, in characters.
    const PLAIN_LEN_MAX: usize = 40;

    /// The object name of a home's sandbox; stored with the record when it is created.
    ///
    /// In the account `default` it equals the sandbox's name, if that matches
    /// `[a-z0-9]([a-z0-9-]*[a-z0-9])?` and has at most 40 characters. Otherwise it is a slug of the name
    /// and 16 hex digits of SHA-256 over account and home, so that two accounts never share a name.
    pub fn for_home(account: &AccountName, home: HomeId, sandbox_name: &str) -> Self {
        let plain = sandbox_name.len() <= Self::PLAIN_LEN_MAX
            && sandbox_name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !sandbox_name.starts_with('-')
            && !sandbox_name.ends_with('-');
        if plain && *account == AccountName::default_account() {
            return Self(Arc::from(sandbox_name));
        }
        let digest = Sha256::digest(format!("{account}\n{home}"));
        let slug: String = sandbox_name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .take(Self::PLAIN_LEN_MAX - 17)
            .collect();
        Self(Arc::from(format!("{}-{}", slug.trim_matches('-'), hex::encode(&digest[..8]))))
    }
}

/// The permanent identity of an issue within this installation. Actors, rows, object names and
/// labels use it; issue ids and (repository, number) are [`Alias`]es of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HomeId(pub i64);

/// The number of an issue within its repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IssueNumber(pub u64);

/// The number of a home's sandbox: 1, 2, … It only grows; 0 means there has been none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u32);

impl Generation {
    /// The one after this.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The number of a provider call of a sandbox. It never decreases, even on `retry`, and fences late
/// answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The one after this.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The number of a server process on a store. Every write carries it, and older ones are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

macro_rules! show_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
show_number!(HomeId, IssueNumber, Generation, Attempt, Epoch);

/// A name of a home in an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Alias {
    /// By issue id.
    Issue(IssueId),
    /// By repository and number.
    Numbered(Repository, IssueNumber),
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issue(id) => write!(f, "{id}"),
            Self::Numbered(repository, number) => write!(f, "{repository}#{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_ids_have_one_form() {
        for good in ["1", "test-123", "444500041", "A.b_c-d", &"x".repeat(64)] {
            assert_eq!(IssueId::parse(good).map(|id| id.to_string()), Ok(good.to_string()));
        }
        for bad in ["", "-a", ".a", "a--b", "a..b", "a/b", "ä", "a b", &"x".repeat(65)] {
            assert!(IssueId::parse(bad).is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn a_fast_id_depends_on_name_account_and_time_alone() {
        let [ours, other] = ["default", "other"].map(AccountName::trusted);
        let id = SandboxId::fast("claude-issue-1", &ours, 1_770_000_000_000_000_000);
        // md5sum of "claude-issue-1:default:1770000000000000000".
        assert_eq!(id.as_str(), "69093861adffb5df34a8be328f6cfd26");
        assert_eq!(SandboxId::fast("claude-issue-1", &ours, 1_770_000_000_000_000_000), id);
        assert_ne!(SandboxId::fast("claude-issue-1", &ours, 1_770_000_000_000_000_001), id);
        assert_ne!(SandboxId::fast("claude-issue-1", &other, 1_770_000_000_000_000_000), id);
        assert_ne!(SandboxId::fast("claude-issue-2", &ours, 1_770_000_000_000_000_000), id);
    }

    #[test]
    fn object_names_are_unchanged_if_possible() {
        let account = AccountName::default_account();
        let name = |id: &str| {
            let id = IssueId::parse(id).expect("a valid id");
            ObjectName::for_home(&account, HomeId(7), &id.sandbox_name()).to_string()
        };
        assert_eq!(name("test-123"), "claude-issue-test-123");
        assert_eq!(name("Test_1").split_at(20).0, "claude-issue-test-1-");
        assert!(name(&"9".repeat(64)).len() <= ObjectName::PLAIN_LEN_MAX);
    }

    #[test]
    fn accounts_never_share_an_object_name() {
        let other = AccountName::trusted("other");
        let name = "claude-issue-1";
        assert_ne!(
            ObjectName::for_home(&AccountName::default_account(), HomeId(1), name),
            ObjectName::for_home(&other, HomeId(1), name),
        );
    }

    #[test]
    fn repositories_are_owner_and_name() {
        assert!(Repository::parse("octo/hello.world").is_ok());
        for bad in ["octo", "octo/", "/x", "a/b/c", "a/..", "a b/c"] {
            assert!(Repository::parse(bad).is_err(), "{bad:?} must be refused");
        }
    }
}
