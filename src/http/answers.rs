//! The errors that handlers have in common, as groups that their descriptions name.
//!
//! A status can stand for several codes, and a handler can name several groups. So each code is an
//! answer of its own under the key `status code` until [`doc`](super::doc) folds those of one
//! status into one.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{RefOr, Response};

use super::error::Code;

/// Answers by status, or by status and code.
pub type ResponseMap = BTreeMap<String, RefOr<Response>>;

/// The answers with these codes.
pub fn of(codes: &[Code]) -> ResponseMap {
    let key = |code: &Code| format!("{} {}", code.status().as_u16(), code.as_str());
    codes.iter().map(|code| (key(code), Response::new("").into())).collect()
}

/// The status and the code of a key that [`of`] made; `None` for a status alone.
pub fn code_of(key: &str) -> Option<(&str, Code)> {
    let (status, word) = key.split_once(' ')?;
    let code = Code::ALL.iter().copied().find(|code| code.as_str() == word)?;
    Some((status, code))
}

/// Answers of an *ensure* by what GitHub says of the issue.
#[derive(Debug)]
pub struct VerificationErrors;

impl IntoResponses for VerificationErrors {
    fn responses() -> ResponseMap {
        let mut answers = of(&[Code::IssueClosed, Code::GithubUnavailable]);
        let unknown = Code::IssueUnknown;
        if let Some(status) = unknown.status_by_github() {
            let key = format!("{} {}", status.as_u16(), unknown.as_str());
            answers.insert(key, Response::new("").into());
        }
        answers
    }
}

/// Declares groups: their own codes, and those of the groups that they extend.
macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident $(extends $base:ident)? = [$($code:ident),* $(,)?];)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl IntoResponses for $name {
            fn responses() -> ResponseMap {
                #[allow(unused_mut, reason = "a group need not extend another one")]
                let mut answers = of(&[$(Code::$code),*]);
                $(answers.extend($base::responses());)?
                answers
            }
        }
    )*};
}

groups! {
    /// Reads the store.
    StoreReadErrors = [StoreFailed];
    /// Writes to the store.
    StoreWriteErrors = [Overloaded, StoreFailed, ShuttingDown];
    /// Reads what is known about one sandbox.
    SandboxReadErrors extends StoreReadErrors = [SandboxNotFound];
    /// Commands one sandbox.
    SandboxWriteErrors extends StoreWriteErrors = [SandboxNotFound];
    /// Creates or starts a sandbox.
    AdmissionErrors extends StoreWriteErrors = [Held, NoRoom];
    /// Ensures an issue's sandbox.
    EnsureErrors extends AdmissionErrors = [
        IssueIdConflict, TemplateUnknown, TemplateOnly, QuotaExceeded,
    ];
    /// Starts a stopped sandbox to work in it.
    StartupErrors extends AdmissionErrors =
        [SandboxNotFound, NotRunning, Stopped, SandboxDeleted, ProviderUnknown];
    /// Works in a sandbox.
    WorkErrors extends StartupErrors = [RefusedInside, NotSupported, ProviderFailed];
    /// Reads or changes files of a workspace.
    WorkspaceErrors extends WorkErrors = [PathNotAllowed, FileNotFound, WrongKind];
    /// Reads or writes versions in the object storage.
    SyncErrors = [SyncNotConfigured, VersionNotFound, SyncFailed];
    /// Pushes a workspace before its sandbox is deleted.
    PushErrors extends SyncErrors = [
        Held, NoRoom, NotRunning, ProviderUnknown, RefusedInside, NotSupported, ProviderFailed,
    ];
    /// Connects to a port of a running sandbox.
    PortErrors extends SandboxReadErrors = [
        Forbidden, PortNotListed, NotRunning, SandboxDeleted, ProviderUnknown, RefusedInside,
        NotSupported, PortClosed, ProviderFailed, ShuttingDown,
    ];
    /// Decides about a drift item.
    DriftErrors extends StoreWriteErrors = [DriftOver, ProviderFailed];
}
