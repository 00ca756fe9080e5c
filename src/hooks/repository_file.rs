//! `.github/issuebox.toml`: read when a sandbox's repository has been checked out, and its `setup` run as
//! the last steps of the cold start.

use super::step::{StepFailure, StepList};
use super::{HookPlace, HookRunner};
use crate::checkout::BaseFile;
use crate::config::{REPOSITORY_FILE_LEN_MAX, RepositoryFileText};
use crate::github::api::{GitHubError, GitHubFile};
use crate::issue::Issue;
use crate::issue::event::{CallError, ColdStartEnd};
use crate::store::checkout::CheckoutRow;
use crate::types::{HookStep, RepositoryFile, Workload, inert};

/// How long a commit's name is where people read it, in characters.
const SHORT_OID: usize = 10;

/// What the file of a sandbox's repository says.
pub(super) struct FileOfRepository {
    /// What the sandbox keeps of it.
    pub kept: RepositoryFile,
    /// `setup`.
    steps: Vec<HookStep>,
}

/// How a file is not used.
pub(super) enum FileFailure {
    /// It is wrong, or GitHub refuses it.
    Refused(String),
    /// GitHub cannot be asked now.
    Unavailable(CallError),
}

impl HookRunner {
    /// Reads the file at the tip of the branch that the work begins at; `None` if the template does not
    /// have it read. `row` is the checkout.
    ///
    /// # Errors
    /// [`FileFailure`].
    pub(super) async fn repository_file(
        &self,
        place: &HookPlace,
        workload: &Workload,
        row: Option<&CheckoutRow>,
    ) -> Result<Option<FileOfRepository>, FileFailure> {
        if workload.repository_file().is_none() {
            return Ok(None);
        }
        let none = FileOfRepository { kept: RepositoryFile::default(), steps: Vec::new() };
        let path = RepositoryFile::PATH;
        let base = row.and_then(|row| row.base.as_ref());
        let Some((checkouts, base)) = self.parts.checkouts.as_ref().zip(base) else {
            let what = format!("{path} was not read: the sandbox has no checkout");
            self.record(place, &what, true).await;
            return Ok(Some(none));
        };
        let issue = self.parts.store.load(place.home).await.map_err(|error| unavailable(&error))?;
        let issue: Issue = issue.ok_or_else(|| unavailable(&"its issue has no record"))?;
        let read = checkouts.file_at_tip(&issue, base, path).await;
        let read = read.map_err(|error| self.unread(base, error))?;
        let Some(BaseFile { commit, file }) = read else {
            let why = format!("cannot read {path}: there is no branch {}", inert(base));
            return Err(FileFailure::Refused(why));
        };
        let at = format!("{} at {}", inert(base), commit.get(..SHORT_OID).unwrap_or(&commit));
        let Some(file) = file else {
            self.record(place, &format!("{at} has no {path}"), false).await;
            return Ok(Some(none));
        };
        let text = match file {
            GitHubFile::Content(content) => RepositoryFileText::parse(&content),
            GitHubFile::TooLarge(_) => {
                Err(format!("{path} is larger than {} KiB", REPOSITORY_FILE_LEN_MAX / 1024))
            }
            GitHubFile::Other => Err(format!("{path} is no file")),
        };
        let refused = |why| FileFailure::Refused(format!("cannot use {path} of {at}: {why}"));
        let text = text.map_err(refused)?;
        self.record(place, &format!("read {path} of {at}"), false).await;
        let RepositoryFileText { setup, working_dir, instructions } = text;
        let kept = RepositoryFile { commit: Some(commit), working_dir, instructions };
        Ok(Some(FileOfRepository { kept, steps: setup }))
    }

    /// Runs `setup`, whose steps have a time together. They start in the directory that the file names.
    pub(super) async fn setup(
        &self,
        place: &HookPlace,
        workload: &Workload,
        file: &FileOfRepository,
    ) -> Result<(), StepFailure> {
        let clock = &self.parts.clock;
        let end = clock.now().after(RepositoryFile::SETUP_TIME_MAX);
        let dir = file.kept.working_dir.as_ref().filter(|_| workload.working_dir.is_none());
        for (number, step) in (1..).zip(&file.steps) {
            let step = HookStep {
                cwd: step.cwd.as_ref().or(dir).cloned(),
                timeout: step.timeout.min(end.since(clock.now())),
                ..step.clone()
            };
            let ended = self.step(place, StepList::Setup, &step, (number, file.steps.len())).await;
            let is_over = clock.now() >= end;
            ended.map_err(|failure| match failure {
                StepFailure::Failed(why) if is_over => StepFailure::Failed(format!(
                    "setup of {} took longer than {} s: {why}",
                    RepositoryFile::PATH,
                    RepositoryFile::SETUP_TIME_MAX.as_secs()
                )),
                failure => failure,
            })?;
        }
        Ok(())
    }

    /// What is read again later counts as unavailable; the rest waits for a person.
    fn unread(&self, base: &str, error: GitHubError) -> FileFailure {
        let message = format!("cannot read {} of {}: {error}", RepositoryFile::PATH, inert(base));
        match error {
            GitHubError::Limited { until } => {
                let retry_after = Some(until.since(self.parts.clock.now()));
                FileFailure::Unavailable(CallError::Unavailable { message, retry_after })
            }
            GitHubError::Unknown(_) | GitHubError::Unreachable(_) => unavailable(&message),
            GitHubError::Gone(_)
            | GitHubError::NotFound(_)
            | GitHubError::Moved { .. }
            | GitHubError::Held { .. }
            | GitHubError::Unauthorized(_)
            | GitHubError::AlreadyExists(_)
            | GitHubError::Refused { .. } => FileFailure::Refused(message),
        }
    }
}

impl FileFailure {
    /// How a cold start ends with it.
    pub(super) fn end(self) -> Result<ColdStartEnd, CallError> {
        match self {
            Self::Refused(message) => Ok(ColdStartEnd::Failed(message)),
            Self::Unavailable(error) => Err(error),
        }
    }
}

fn unavailable(why: &dyn std::fmt::Display) -> FileFailure {
    let message = why.to_string();
    FileFailure::Unavailable(CallError::Unavailable { message, retry_after: None })
}
