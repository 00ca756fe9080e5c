//! *Ensure* for callers, over whichever door: whose an issue is, then what GitHub says of it, then the
//! engine.

use std::sync::Arc;

use super::{IssueVerifier, VerificationError};
use crate::access::Access;
use crate::engine::{Engine, EngineError, EnsureIssue, Ensured, IssueKey};
use crate::types::{AccountName, IssueOrigin, Repository};

/// Gives issues their sandboxes for callers; cheap to clone.
#[derive(Clone)]
pub struct CallersEnsure {
    /// Creates.
    pub engine: Engine,
    /// Whose each repository is.
    pub access: Arc<Access>,
    /// Asks GitHub; `None` without credentials.
    pub verifier: Option<Arc<IssueVerifier>>,
}

/// Why a caller is given no sandbox for an issue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnsureError {
    /// The issue's repository belongs to another account.
    #[error("the repository {repository} is not of the account {account}")]
    OtherAccount {
        /// The issue's repository.
        repository: Repository,
        /// The caller's account.
        account: AccountName,
    },
    /// What GitHub says of the issue, or that it says nothing.
    #[error(transparent)]
    Verification(#[from] VerificationError),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl CallersEnsure {
    /// Checks that an issue may be of this account: that no rule gives its repository to another one. If
    /// GitHub is asked about the issue, its repository must belong to the account, since what GitHub says
    /// of it is shown there.
    ///
    /// # Errors
    /// [`EnsureError::OtherAccount`].
    pub fn check_account(
        &self,
        account: &AccountName,
        issue: &IssueKey,
    ) -> Result<(), EnsureError> {
        let Some((repository, _)) = &issue.numbered else { return Ok(()) };
        let origin = IssueOrigin { repository: Some(repository.clone()), installation: None };
        let belongs = match self.access.accounts().named_by(&origin) {
            Some(named) => named == account,
            None => self.verifier.is_none() || *account == AccountName::default_account(),
        };
        if belongs {
            return Ok(());
        }
        let (repository, account) = (repository.clone(), account.clone());
        Err(EnsureError::OtherAccount { repository, account })
    }

    /// Gives an issue its one sandbox; with credentials for GitHub, after asking there about the issue.
    ///
    /// # Errors
    /// [`EnsureError`]; then nothing was created.
    pub async fn ensure(
        &self,
        account: &AccountName,
        mut ask: EnsureIssue,
    ) -> Result<Ensured, EnsureError> {
        self.check_account(account, &ask.issue)?;
        if let Some(verifier) = &self.verifier {
            ask.issue = verifier.before_ensure(account, ask.issue).await?;
        }
        Ok(self.engine.ensure(account, ask).await?)
    }
}
