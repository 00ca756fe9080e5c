//! The cold start: what comes before its steps, and whether a start needs it.

use std::sync::Arc;

use super::repository_file::FileOfRepository;
use super::step::StepFailure;
use super::{HookPlace, HookRunner};
use crate::engine::HookedSandbox;
use crate::issue::event::{CallError, ColdStartEnd};
use crate::issue::step::PREPARATION_TIME_MAX;
use crate::runs::{AGENT_DIR, Inside};
use crate::sandbox::WorkspacePath;
use crate::types::HookName;

/// What a workspace has that counts as empty: our own directory, and that of a file system.
const OURS: [&[u8]; 2] = [b".issuebox", b"lost+found"];
/// What the [mark](crate::sync::COLD_START_MARK) says before the sandbox's id.
const MARK: &str = "cold start of ";
/// What it says in place of the id while the steps run: what they left behind if they were interrupted
/// is a stale workspace.
const UNFINISHED: &str = "(unfinished)";
/// Most of a mark that is read, in bytes.
const MARK_LEN_MAX: usize = 1_024;
/// Why no cold start begins.
const NOT_VERIFIED: &str =
    "GitHub's word on the issue speaks against it; the sandbox's log says why";

/// What is known before the first step.
enum Prepared {
    /// The steps can run. It has what the repository's file says, if that is read.
    Ready(Option<FileOfRepository>),
    /// The cold start ended: no step runs.
    Ended(ColdStartEnd),
}

impl HookRunner {
    /// Runs the cold start if the sandbox needs it.
    pub(super) async fn run_cold_start(
        &self,
        sandbox: &HookedSandbox,
    ) -> Result<ColdStartEnd, CallError> {
        let place = HookPlace::of(sandbox);
        let (record, workload) = (&sandbox.record, &sandbox.record.template.workload);
        let working_dir = workload.working_dir.as_deref();
        if !record.needs_cold_start && !self.is_empty_or_stale(&place, working_dir).await {
            return Ok(ColdStartEnd::NotNeeded);
        }
        // Without the marks a later start cannot see that the workspace is another sandbox's, or was
        // not finished; a workspace that cannot be written has nothing that could be lost.
        let is_marked = self.mark(&place, UNFINISHED).await.is_ok();
        let clock = &self.parts.clock;
        let end = clock.now().after(PREPARATION_TIME_MAX);
        let prepared = tokio::select! {
            biased;
            prepared = self.prepare(&place, sandbox) => prepared?,
            () = clock.sleep_until(end) => {
                let minutes = PREPARATION_TIME_MAX.as_secs() / 60;
                let what = "the issue was not verified and its repository not checked out";
                Prepared::Ended(ColdStartEnd::Failed(format!("{what} within {minutes} minutes")))
            }
        };
        let file = match prepared {
            Prepared::Ended(end) => return Ok(end),
            Prepared::Ready(file) => file,
        };
        let steps = async {
            self.steps(&place, HookName::ColdStart, &workload.hooks.on_cold_start).await?;
            match &file {
                Some(file) => self.setup(&place, workload, file).await,
                None => Ok(()),
            }
        };
        match steps.await {
            Ok(()) => {
                let finished = self.mark(&place, place.sandbox().as_str()).await;
                // Else the next start would take the work in it for what was left unfinished.
                if let (true, Err(message)) = (is_marked, finished) {
                    return Err(CallError::Unavailable { message, retry_after: None });
                }
                let kept = file.map(|file| ColdStartEnd::SucceededWith(file.kept));
                Ok(kept.unwrap_or(ColdStartEnd::Succeeded))
            }
            Err(failure) => cold_start_end(failure),
        }
    }

    /// Waits for the verification, checks the repository out, and reads its file.
    async fn prepare(
        &self,
        place: &HookPlace,
        sandbox: &HookedSandbox,
    ) -> Result<Prepared, CallError> {
        let (gate, id) = (&self.parts.gate, place.sandbox());
        let since = sandbox.record.phase_since;
        // What spoke against it may be over by now, such as an issue that was closed and reopened.
        if !gate.may_begin(place.home, id, since).await
            && !gate.may_begin(place.home, id, self.parts.clock.now()).await
        {
            return Ok(Prepared::Ended(ColdStartEnd::Withheld(NOT_VERIFIED.to_owned())));
        }
        let row = match self.checkout(place).await {
            Ok(row) => row,
            Err(failure) => return cold_start_end(failure).map(Prepared::Ended),
        };
        let workload = &sandbox.record.template.workload;
        match self.repository_file(place, workload, row.as_ref()).await {
            Ok(file) => Ok(Prepared::Ready(file)),
            Err(failure) => failure.end().map(Prepared::Ended),
        }
    }

    /// Whether the workspace has nothing in it, or what the cold start of another sandbox made, or one
    /// that was interrupted. A workspace that cannot be read is neither: it may have work in it.
    async fn is_empty_or_stale(&self, place: &HookPlace, working_dir: Option<&str>) -> bool {
        let Ok(provider) = self.provider(place) else { return false };
        let Ok(root) = WorkspacePath::parse(b"") else { return false };
        let working_dir = working_dir.unwrap_or_default().trim_matches('/');
        // Deep enough to see what is in the working directory, which the provider makes.
        let depth = working_dir.split('/').filter(|part| !part.is_empty()).count() + 1;
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        let listing = provider.workspace.list_files(place.target.clone(), root, depth).await;
        let Ok(listing) = listing else { return false };
        let is_work = |path: &[u8]| is_work(path, working_dir.as_bytes());
        if !listing.entries.iter().any(|entry| is_work(&entry.path)) {
            return true;
        }
        let Ok(inside) = self.inside(place) else { return false };
        let mark = inside.read(&mark_path(), MARK_LEN_MAX).await.ok().flatten().unwrap_or_default();
        let of = mark.strip_prefix(MARK.as_bytes());
        of.is_some_and(|id| id != place.sandbox().as_str().as_bytes())
    }

    /// Writes into the workspace whose it is.
    async fn mark(&self, place: &HookPlace, of: &str) -> Result<(), String> {
        let inside = self.inside(place)?;
        inside.make_agent_dir().await?;
        inside.write(&mark_path(), format!("{MARK}{of}").into()).await
    }

    fn inside(&self, place: &HookPlace) -> Result<Inside, String> {
        let processes = Arc::clone(&self.provider(place)?.processes);
        Ok(Inside { processes, target: place.target.clone() })
    }
}

/// Whether this is not there without any work: the workspace itself, what is ours, and the working directory
/// with those that it is in.
fn is_work(path: &[u8], working_dir: &[u8]) -> bool {
    let is_at_or_in = |path: &[u8], dir: &[u8]| {
        path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    let is_ours = OURS.iter().any(|ours| is_at_or_in(path, ours));
    !matches!(path, b"" | b"." | b"/") && !is_ours && !is_at_or_in(working_dir, path)
}

/// How a cold start ended that did not succeed.
fn cold_start_end(failure: StepFailure) -> Result<ColdStartEnd, CallError> {
    match failure {
        StepFailure::Failed(message) => Ok(ColdStartEnd::Failed(message)),
        StepFailure::Gone(message) => Err(CallError::Unavailable { message, retry_after: None }),
    }
}

fn mark_path() -> String {
    format!("{AGENT_DIR}/cold-start")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::COLD_START_MARK;

    #[test]
    fn no_version_has_the_mark() {
        assert_eq!(mark_path(), format!("/workspace/{COLD_START_MARK}"));
    }

    #[test]
    fn the_working_directory_alone_is_no_work() {
        for path in ["", ".issuebox", ".issuebox/cold-start", "lost+found", "web", "web/app"] {
            assert!(!is_work(path.as_bytes(), b"web/app"), "{path}");
        }
        for path in [".issueboxignore", "web/app/x", "web/lib", "we", "README"] {
            assert!(is_work(path.as_bytes(), b"web/app"), "{path}");
        }
        assert!(is_work(b"web", b""));
    }
}
