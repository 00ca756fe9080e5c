//! Changes checkouts, each together with what is to be said on its issue because of that.
//!
//! The worker that makes a checkout and the gateway that serves its sandbox change the same row: each reads
//! it, changes its own part and writes it while no other does.

use super::CheckoutParts;
use crate::issue::{GithubEffect, GithubRules};
use crate::store::checkout::CheckoutRow;
use crate::types::{CheckoutState, PullRequestMode, PushPermission, SandboxId};

impl CheckoutParts {
    /// Begins a checkout, or begins it again: what was pushed and published stays.
    ///
    /// # Errors
    /// Why it is not kept, for people.
    pub(super) async fn begin(&self, begun: CheckoutRow) -> Result<(), String> {
        let _writing = self.writing.lock().await;
        let before = self.rows.checkout(&begun.sandbox).await.map_err(|error| error.to_string())?;
        let row = match before.clone() {
            // What is known of its branch stays: the sandbox may have pushed already.
            Some(known) => CheckoutRow {
                state: begun.state,
                reason: begun.reason,
                changed_at: begun.changed_at,
                remote: begun.remote,
                remote_id: begun.remote_id,
                ..known
            },
            None => begun,
        };
        self.keep(before.as_ref(), row).await
    }

    /// Changes a checkout.
    ///
    /// # Errors
    /// Why that is not kept, for people.
    pub(super) async fn change(
        &self,
        sandbox: &SandboxId,
        change: impl FnOnce(&mut CheckoutRow) + Send,
    ) -> Result<(), String> {
        let _writing = self.writing.lock().await;
        let before = self.rows.checkout(sandbox).await.map_err(|error| error.to_string())?;
        let before = before.ok_or("the sandbox has no checkout")?;
        let mut row = before.clone();
        change(&mut row);
        self.keep(Some(&before), row).await
    }

    /// Keeps a checkout. What is to be said because of it is recorded with it, so a crash forgets
    /// neither.
    async fn keep(&self, before: Option<&CheckoutRow>, row: CheckoutRow) -> Result<(), String> {
        let effects = effects(before, &row, self.said);
        let is_said = !effects.is_empty();
        let kept = self.rows.put_checkout(row, effects, self.clock.now()).await;
        kept.map_err(|error| error.to_string())?;
        if is_said {
            self.engine.say_recorded();
        }
        Ok(())
    }
}

/// What is to be said when a checkout changes.
fn effects(
    before: Option<&CheckoutRow>,
    row: &CheckoutRow,
    rules: GithubRules,
) -> Vec<GithubEffect> {
    let mut effects = Vec::new();
    let is_pushed =
        row.tip.is_some() && before.and_then(|row| row.tip.as_ref()) != row.tip.as_ref();
    if is_pushed && rules.pull_request != PullRequestMode::None {
        effects.push(GithubEffect::ShowPull { sandbox: row.sandbox.clone() });
    }
    if is_pushed && rules.statuses {
        effects.push(GithubEffect::SetCommitStatus { sandbox: row.sandbox.clone() });
    }
    if rules.comments && before.map(shown_of) != Some(shown_of(row)) && is_shown(row) {
        effects.push(GithubEffect::ShowStatus { version: 0, is_asked: false, can_wait: false });
    }
    effects
}

/// Whether there is anything to say of a checkout.
const fn is_shown(row: &CheckoutRow) -> bool {
    row.branch.is_some() || !row.reason.is_empty()
}

/// What the status shows of a sandbox's pushes.
type PushesShown<'a> = (PushPermission, &'a str, Option<&'a str>);

/// What the status shows of a checkout.
fn shown_of(row: &CheckoutRow) -> (Option<&str>, &str, bool, bool, PushesShown<'_>) {
    let is_failed = row.state == CheckoutState::Failed;
    let pushes = (row.pushes, row.pushes_why.as_str(), row.published_by.as_deref());
    (row.branch.as_deref(), &row.reason, is_failed, row.tip.is_some(), pushes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::EffectKind::{self, ShowPull, ShowStatus};
    use crate::types::{HomeId, Repository, SandboxId, Timestamp};

    const RULES: GithubRules = GithubRules {
        comments: true,
        reactions: true,
        pull_request: PullRequestMode::Draft,
        statuses: false,
        working_label: false,
    };

    fn begun() -> CheckoutRow {
        let remote = (Repository::trusted("octo/hello"), Some(7));
        CheckoutRow::begun(SandboxId::trusted("s"), HomeId(1), remote, Timestamp::from_unix_ms(0))
    }

    fn kinds(
        before: Option<&CheckoutRow>,
        row: &CheckoutRow,
        rules: GithubRules,
    ) -> Vec<EffectKind> {
        effects(before, row, rules).iter().map(GithubEffect::kind).collect()
    }

    #[test]
    fn a_branch_a_failure_and_a_push_are_said() {
        let begun = begun();
        assert_eq!(kinds(None, &begun, RULES), [], "there is nothing to say yet");
        let named = CheckoutRow { branch: Some("b".into()), ..begun.clone() };
        assert_eq!(kinds(Some(&begun), &named, RULES), [ShowStatus]);
        let ready = CheckoutRow { state: CheckoutState::Ready, ..named.clone() };
        assert_eq!(kinds(Some(&named), &ready, RULES), []);
        let failed =
            CheckoutRow { state: CheckoutState::Failed, reason: "why".into(), ..begun.clone() };
        assert_eq!(kinds(Some(&begun), &failed, RULES), [ShowStatus]);
        let pushing = CheckoutRow { pushing: Some("1".into()), ..ready.clone() };
        assert_eq!(kinds(Some(&ready), &pushing, RULES), [], "it may not come to anything");
        let pushed = CheckoutRow { tip: Some("1".into()), ..ready };
        assert_eq!(kinds(Some(&pushing), &pushed, RULES), [ShowPull, ShowStatus]);
        let again = CheckoutRow { tip: Some("2".into()), ..pushed.clone() };
        assert_eq!(kinds(Some(&pushed), &again, RULES), [ShowPull], "it may have failed before");
        let silent = GithubRules { comments: false, pull_request: PullRequestMode::None, ..RULES };
        assert_eq!(kinds(Some(&pushing), &pushed, silent), []);
    }
}
