//! What callers may want: *ensure*, commands to one sandbox, and work in it.

use crate::issue::acts::ActKind;
use crate::issue::commit::{CommandRefusal, Reply};
use crate::issue::event::{Command, CommandAsk, Denial, EnsureAsk, SandboxAsk};
use crate::issue::state::{
    Dated, Goal, IssueState, PendingStart, SandboxPlan, Step, StoppedBy, Verb,
};
use crate::sabotage::{Bug, on};
use crate::types::{
    Attempt, Cause, IssueNumber, MetaChange, Outcome, Phase, ProviderStep, Repository, SandboxId,
    Wanted,
};

use super::transition::Transition;

impl Transition<'_> {
    /// *Ensure*: this issue wants a running sandbox; give the one it has, or make it.
    pub fn ensure(&mut self, mut ask: EnsureAsk) {
        self.cause = ask.cause.to_string();
        if self.is_elsewhere(ask.numbered.as_ref()) {
            self.reply = Reply::OtherPlace;
            return;
        }
        if let Some(denial) = self.denial_to_begin(ask.retry) {
            self.reply = Reply::Denied(denial.clone());
            return;
        }
        self.aliases = std::mem::take(&mut ask.claims);
        self.learn_from_caller(ask.numbered.as_ref(), ask.title.as_ref());
        let repository = self.issue.facts.repository.as_ref();
        let rules = self.context.rules;
        let asked = ask.sandbox.template.take();
        ask.sandbox.template = asked.map(|asked| rules.laid_over(asked, repository));
        let mismatch = self.mismatch(&ask.sandbox);
        self.ensured_here();
        let why = "a caller asked for it";
        let (outcome, reason) = match ask.retry {
            true => self.want_running_again(ask.sandbox, why),
            false => self.want_running(ask.sandbox, why),
        };
        // A caller wants it although its issue may be closed.
        self.issue.delete_due = None;
        self.touch();
        self.reply = Reply::Ensured { outcome, reason, mismatch };
    }

    /// In what the sandbox that there is differs from what a caller asks for.
    fn mismatch(&self, ask: &SandboxAsk) -> Vec<&'static str> {
        let record = match &self.issue.state {
            // The next generation will be as it was asked for.
            IssueState::Deleting { .. } => None,
            state => state.record(),
        };
        let Some(record) = record else { return vec![] };
        let other_template = ask.template.as_ref().and_then(|asked| match ask.by_provider {
            true => (asked.provider != record.template.provider).then_some("provider"),
            false => (asked.name != record.template.name).then_some("template"),
        });
        let is_other_agent = ask.agent_id.is_some() && ask.agent_id != record.agent_id;
        let is_other_agent = is_other_agent.then_some("agentId");
        let is_other_meta = (!record.meta.has_all_of(&ask.meta)).then_some("meta");
        other_template.into_iter().chain(is_other_agent).chain(is_other_meta).collect()
    }

    /// Whether the issue is known to be in another place than a caller says.
    pub fn is_elsewhere(&self, numbered: Option<&(Repository, IssueNumber)>) -> bool {
        let facts = &self.issue.facts;
        let (Some((repository, number)), Some(known)) = (numbered, &facts.repository) else {
            return false;
        };
        (repository.folded(), Some(*number)) != (known.folded(), facts.number)
    }

    /// Takes from a caller what is not known of the issue yet.
    pub fn learn_from_caller(
        &mut self,
        numbered: Option<&(Repository, IssueNumber)>,
        title: Option<&String>,
    ) {
        if let Some((repository, number)) = numbered
            && self.issue.facts.repository.is_none()
        {
            self.issue.facts.repository = Some(repository.clone());
            self.issue.facts.number = Some(*number);
        }
        // GitHub's word on a title is newer than a caller's; a caller's fills the gap.
        if let Some(title) = title
            && self.issue.facts.title.is_none()
        {
            let as_of = crate::types::Timestamp::from_unix_ms(0);
            self.issue.facts.title = Some(Dated { value: title.clone(), as_of });
        }
    }

    /// What forbids a running sandbox now, if that would create or start one, or retry a failed one.
    pub fn denial_to_begin(&self, retry: bool) -> Option<&Denial> {
        let would_begin = match &self.issue.state {
            IssueState::Absent | IssueState::Stopped { .. } => true,
            IssueState::Failed { .. } => retry,
            IssueState::Creating { .. }
            | IssueState::Running { .. }
            | IssueState::Stopping { .. }
            | IssueState::Starting { .. }
            | IssueState::Deleting { .. } => false,
        };
        self.context.denial.as_ref().filter(|_| would_begin)
    }

    /// Keeps a start request that is denied now, to be granted later.
    pub fn pending_start(&mut self, why: &str, plan: Option<SandboxPlan>) {
        let Some(denial) = &self.context.denial else { return };
        if self.issue.pending_start.is_none() {
            let reason = format!("the start waits: {}", denial.reason);
            let (since, why) = (self.now(), why.to_owned());
            self.issue.pending_start = Some(PendingStart { since, why, plan });
            self.record_entry(reason);
        }
    }

    /// The pending start may no longer be denied: grant it.
    pub fn granted(&mut self) {
        self.cause = Cause::Service("scheduler").to_string();
        if self.denial_to_begin(true).is_some() {
            return;
        }
        let Some(PendingStart { why, plan, .. }) = self.issue.pending_start.take() else {
            return;
        };
        if self.issue.merged_into.is_none() && !on(Bug::PendingStartDropped) {
            self.want_running_again(plan.map(SandboxAsk::from).unwrap_or_default(), &why);
            self.issue.delete_due = None;
        }
    }

    /// What is to be made: as it is asked for now, else as before, else from the template of the
    /// repository.
    fn plan(&self, ask: SandboxAsk, before: Option<SandboxPlan>) -> SandboxPlan {
        let SandboxAsk { template, agent_id, meta, .. } = ask;
        let Some(before) = before else {
            let repository = self.issue.facts.repository.as_ref();
            let default = || self.context.rules.template_for(repository);
            return SandboxPlan { template: template.unwrap_or_else(default), agent_id, meta };
        };
        SandboxPlan {
            template: template.unwrap_or(before.template),
            agent_id: agent_id.or(before.agent_id),
            meta: if meta.is_empty() { before.meta } else { meta },
        }
    }

    /// The same as [`Self::want_running`], by one who wants a failed sandbox to be retried.
    pub fn want_running_again(&mut self, ask: SandboxAsk, why: &str) -> (Outcome, String) {
        match self.retry_by_person(Some(Goal::Running), why) {
            Some(step) => {
                self.issue.pending_start = None;
                (Outcome::Resumed, format!("it had failed; {step} is retried"))
            }
            None => self.want_running(ask, why),
        }
    }

    /// Sets the desired state to *running* by the table of *ensure*, and says what that came to. The
    /// caller has checked that nothing forbids it.
    pub fn want_running(&mut self, ask: SandboxAsk, why: &str) -> (Outcome, String) {
        self.issue.pending_start = None;
        let wanted = self.issue.state.wanted();
        let goal = Goal::Running;
        let answer = match self.take_state() {
            IssueState::Absent => {
                let mode = ask.mode;
                let plan = self.plan(ask, None);
                let mode = mode.unwrap_or(plan.template.mode);
                let reason = "the sandbox is being created".to_owned();
                self.begin(plan, mode, format!("{why}; {reason}"));
                return (Outcome::Created, reason);
            }
            IssueState::Stopped { record, external_id, .. } => {
                let reason = "the sandbox is being started again".to_owned();
                let entry = format!("{why}; {reason}");
                self.start(Some(Phase::Stopped), record, external_id, goal, entry);
                return (Outcome::Resumed, reason);
            }
            IssueState::Creating { record, step, giving_up, .. } => {
                let reason = match &giving_up {
                    None => "the sandbox is being created".to_owned(),
                    Some(failure) => {
                        format!("the sandbox could not be created: {}", failure.message)
                    }
                };
                self.keep(IssueState::Creating { record, goal, step, giving_up });
                (Outcome::Existing, reason)
            }
            IssueState::Starting { record, external_id, step, .. } => {
                self.keep(IssueState::Starting { record, external_id, goal, step });
                (Outcome::Existing, "the sandbox is being started".to_owned())
            }
            state @ IssueState::Running { .. } => {
                self.keep(state);
                (Outcome::Existing, "the sandbox is running".to_owned())
            }
            IssueState::Stopping { record, external_id, by, step, .. } => {
                self.keep(IssueState::Stopping { record, external_id, by, goal, step });
                (
                    Outcome::Queued,
                    "the sandbox is being stopped and starts again after that".to_owned(),
                )
            }
            IssueState::Failed { record, external_id, failure, .. } => {
                let reason = format!("the sandbox failed at {}: {}", failure.step, failure.message);
                self.keep(IssueState::Failed { record, external_id, goal, failure });
                (Outcome::Failed, reason)
            }
            IssueState::Deleting { record, external_id, step, failure, next } => {
                let next = Some(self.plan(ask, next));
                self.keep(IssueState::Deleting { record, external_id, step, failure, next });
                (
                    Outcome::Queued,
                    "the sandbox is being deleted; a new one is created after that".to_owned(),
                )
            }
        };
        self.record_pending_start(wanted, why);
        answer
    }

    /// A command to one sandbox, by the table of commands.
    pub fn command(&mut self, ask: CommandAsk) {
        self.cause = ask.cause.to_string();
        let current = self.issue.state.record().map(|record| &record.id);
        if current != Some(&ask.sandbox) {
            self.reply = match ask.command {
                Command::Delete | Command::ForceDelete => Reply::AlreadyAbsent,
                Command::Stop | Command::Start | Command::Retry => {
                    Reply::Refused(CommandRefusal::SandboxDeleted)
                }
            };
            return;
        }
        let refused = match ask.command {
            Command::Stop => {
                self.acted_here(ActKind::Stopped);
                self.want_stopped(StoppedBy::Person, "a caller asked for it");
                None
            }
            Command::Delete => {
                self.acted_here(ActKind::Deleted);
                self.delete("a caller asked for it");
                None
            }
            Command::ForceDelete => {
                self.acted_here(ActKind::Deleted);
                self.give_record_up();
                self.reply = Reply::AlreadyAbsent;
                return;
            }
            Command::Start | Command::Retry if self.denials(ask.command) => {
                if let Some(denial) = &self.context.denial {
                    self.reply = Reply::Denied(denial.clone());
                }
                return;
            }
            Command::Start => self.command_start(),
            Command::Retry => self.command_retry(),
        };
        if refused.is_none() {
            if ask.command == Command::Start {
                self.acted_here(ActKind::Started);
            }
            self.touch();
        }
        self.reply = refused.map_or(Reply::Accepted, Reply::Refused);
    }

    /// Whether a hold or a quota forbids what a command would begin.
    pub fn denials(&self, command: Command) -> bool {
        let begins = match &self.issue.state {
            IssueState::Stopped { .. } => command == Command::Start,
            IssueState::Failed { .. } => matches!(command, Command::Start | Command::Retry),
            IssueState::Absent
            | IssueState::Creating { .. }
            | IssueState::Running { .. }
            | IssueState::Stopping { .. }
            | IssueState::Starting { .. }
            | IssueState::Deleting { .. } => false,
        };
        begins && self.context.denial.is_some()
    }

    /// Gives the record up although the provider has not confirmed that the object is gone. The
    /// object, and what a call under way may still bring forth, is left to the sweep, which knows
    /// the sandbox as deleted; the next generation looks before it makes anything.
    fn give_record_up(&mut self) {
        let state = self.take_state();
        let (Some(from), Some(mut record)) = (state.phase(), state.record().cloned()) else {
            return self.keep(state);
        };
        let external_id = state.external_id().cloned();
        if let Some(Step::Asked { verb: Verb::Create, until, .. }) = state.step() {
            self.may_land(&mut record, *until);
        }
        if !on(Bug::ForceForgetsCreate) {
            self.issue.may_land_until = self.issue.may_land_until.max(record.may_land_until);
        }
        self.issue.pending_start = None;
        let reason = "deleted by force: the provider has not confirmed that the object is gone";
        self.end(from, record, external_id, reason.to_owned());
    }

    /// Sets the desired state to *stopped*.
    pub fn want_stopped(&mut self, by: StoppedBy, why: &str) {
        self.issue.pending_start = None;
        let wanted = self.issue.state.wanted();
        match self.take_state() {
            IssueState::Absent => {}
            IssueState::Running { record, external_id } => {
                let reason = format!("stopping: {why}");
                return self.stop(Some(Phase::Running), record, external_id, by, reason);
            }
            IssueState::Creating { record, goal, step, giving_up } => {
                let goal = stopped_by(goal, by);
                self.keep(IssueState::Creating { record, goal, step, giving_up });
            }
            IssueState::Starting { record, external_id, goal, step } => {
                let goal = stopped_by(goal, by);
                self.keep(IssueState::Starting { record, external_id, goal, step });
            }
            IssueState::Stopping { record, external_id, by: before, goal, step } => {
                let goal = stopped_by(goal, by);
                let by = if before == StoppedBy::Person { before } else { by };
                self.keep(IssueState::Stopping { record, external_id, by, goal, step });
            }
            IssueState::Stopped { record, external_id, by: before } => {
                let by = if before == StoppedBy::Person { before } else { by };
                self.keep(IssueState::Stopped { record, external_id, by });
            }
            // It may run, whatever failed.
            IssueState::Failed { record, external_id: Some(id), goal, .. } => {
                let Goal::Stopped(by) = stopped_by(goal, by) else { return };
                let reason = format!("stopping although it has failed: {why}");
                return self.stop(Some(Phase::Failed), record, id, by, reason);
            }
            IssueState::Failed { record, external_id: None, goal, failure } => {
                let goal = stopped_by(goal, by);
                self.keep(IssueState::Failed { record, external_id: None, goal, failure });
            }
            IssueState::Deleting { record, external_id, step, failure, .. } => {
                let next = None;
                self.keep(IssueState::Deleting { record, external_id, step, failure, next });
            }
        }
        self.record_pending_start(wanted, why);
    }

    /// A changed desired state without a step of its own is recorded, too: the step that it leads
    /// to comes later, and would not say who asked for it.
    fn record_pending_start(&mut self, before: Wanted, why: &str) {
        let now = self.issue.state.wanted();
        if now != before {
            self.record_entry(format!("desired state: {now} ({why})"));
        }
    }

    pub fn command_start(&mut self) -> Option<CommandRefusal> {
        match &self.issue.state {
            IssueState::Deleting { .. } => Some(CommandRefusal::Deleting),
            IssueState::Absent => Some(CommandRefusal::SandboxDeleted),
            IssueState::Creating { .. }
            | IssueState::Starting { .. }
            | IssueState::Running { .. }
            | IssueState::Stopping { .. }
            | IssueState::Stopped { .. }
            | IssueState::Failed { .. } => {
                self.want_running_again(SandboxAsk::default(), "a caller asked for it");
                self.issue.delete_due = None;
                None
            }
        }
    }

    pub fn command_retry(&mut self) -> Option<CommandRefusal> {
        let retried = self.retry_by_person(None, "a caller asked for it");
        retried.is_none().then_some(CommandRefusal::NotFailed(Command::Retry))
    }

    /// The same as [`Self::retry_failed`]; the automatic retries have a day of their own after that.
    fn retry_by_person(&mut self, goal: Option<Goal>, why: &str) -> Option<ProviderStep> {
        if let IssueState::Failed { record, .. } = &mut self.issue.state {
            record.healing = None;
        }
        self.retry_failed(goal, why)
    }

    /// Retries the step at which the sandbox failed, on the same sandbox, towards this goal or the one
    /// that it has. Returns the step; `None` if the sandbox has not failed.
    pub(super) fn retry_failed(&mut self, goal: Option<Goal>, why: &str) -> Option<ProviderStep> {
        let (mut record, external_id, goal, step) = match self.take_state() {
            IssueState::Failed { record, external_id, goal: before, failure } => {
                (record, external_id, goal.unwrap_or(before), failure.step)
            }
            state @ (IssueState::Absent
            | IssueState::Creating { .. }
            | IssueState::Starting { .. }
            | IssueState::Running { .. }
            | IssueState::Stopping { .. }
            | IssueState::Stopped { .. }
            | IssueState::Deleting { .. }) => {
                self.keep(state);
                return None;
            }
        };
        let reason = format!("retrying {step}: {why}");
        let from = Some(Phase::Failed);
        record.left_nothing = false;
        if on(Bug::AttemptResetOnRetry) {
            record.attempt = Attempt::default();
        }
        match (external_id, goal) {
            (None, goal) => {
                let tries = self.context.rules.create.attempts;
                let look = self.ask(&mut record, None, Verb::Look, tries);
                let state = IssueState::Creating { record, goal, step: look, giving_up: None };
                self.enter(from, state, reason);
            }
            (Some(id), Goal::Running) => self.start(from, record, id, goal, reason),
            (Some(id), Goal::Stopped(by)) => self.stop(from, record, id, by, reason),
        }
        Some(step)
    }

    /// Accepts a delete, which is final: the sandbox shows *deleting* at once and ends absent.
    pub fn delete(&mut self, why: &str) {
        self.issue.pending_start = None;
        let reason = format!("deleting: {why}");
        let from = self.issue.state.phase();
        let (record, external_id, in_flight) = match self.take_state() {
            IssueState::Absent => return,
            IssueState::Deleting { record, external_id, step, failure, next } => {
                // Deleting again withdraws the generation that was queued behind it.
                let withdrawn = next.is_some();
                let next = None;
                self.keep(IssueState::Deleting { record, external_id, step, failure, next });
                if withdrawn {
                    self.record_entry(format!("the next sandbox is no longer created: {why}"));
                }
                return;
            }
            IssueState::Creating { record, step, .. } => (record, None, Some(step)),
            IssueState::Stopping { record, external_id, step, .. }
            | IssueState::Starting { record, external_id, step, .. } => {
                (record, Some(external_id), Some(step))
            }
            IssueState::Running { record, external_id }
            | IssueState::Stopped { record, external_id, .. } => (record, Some(external_id), None),
            IssueState::Failed { record, external_id, .. } => (record, external_id, None),
        };
        let mut record = record;
        record.owes_farewell |= from == Some(Phase::Running);
        let step = match in_flight {
            // One call at a time: the answer to this one, whatever it is, leads on to the removal.
            Some(Step::Asked { verb, until, .. }) => {
                Step::Asked { verb, until, tries_left: self.patience().attempts }
            }
            Some(Step::Waiting { .. }) | None => {
                self.ask_removal(&mut record, external_id.as_ref())
            }
        };
        let state = IssueState::Deleting { record, external_id, step, failure: None, next: None };
        self.enter(from, state, reason);
    }

    /// A caller changes what is noted with a certain sandbox.
    pub fn set_meta(&mut self, sandbox: &SandboxId, change: MetaChange, cause: &Cause) {
        self.cause = cause.to_string();
        let record = self.issue.state.record_mut().filter(|record| record.id == *sandbox);
        self.reply = match record.map(|record| (record.meta.changed(change), record)) {
            None => Reply::Refused(CommandRefusal::SandboxDeleted),
            Some((Err(why), _)) => Reply::Refused(CommandRefusal::BadMeta(why)),
            Some((Ok(meta), record)) => {
                record.meta = meta;
                Reply::Accepted
            }
        };
        if self.reply == Reply::Accepted {
            self.record_entry("what is noted with it was changed".to_owned());
        }
    }

    /// A caller works in a certain sandbox, or is about to.
    pub fn worked(&mut self, sandbox: &SandboxId, start: bool, cause: &Cause) {
        self.cause = cause.to_string();
        if self.issue.state.record().map(|record| &record.id) != Some(sandbox) {
            self.reply = Reply::Refused(CommandRefusal::SandboxDeleted);
            return;
        }
        self.reply = Reply::Accepted;
        if start && let IssueState::Stopped { by, .. } = &self.issue.state {
            match by {
                StoppedBy::Person => {
                    self.reply = Reply::Refused(CommandRefusal::StoppedByPerson);
                    return;
                }
                StoppedBy::Issue
                | StoppedBy::Restart
                | StoppedBy::Provider
                | StoppedBy::Idle
                | StoppedBy::Limit
                | StoppedBy::Host => {
                    if let Some(denial) = &self.context.denial {
                        self.reply = Reply::Denied(denial.clone());
                        return;
                    }
                    self.acted_here(ActKind::Started);
                    self.want_running(SandboxAsk::default(), "work in it was asked for");
                    self.issue.delete_due = None;
                }
            }
        }
        self.touch();
    }
}

/// A person's stop outlives GitHub's: work does not start the sandbox again by itself.
fn stopped_by(before: Goal, by: StoppedBy) -> Goal {
    match before {
        Goal::Stopped(StoppedBy::Person) => before,
        Goal::Stopped(
            StoppedBy::Issue
            | StoppedBy::Restart
            | StoppedBy::Provider
            | StoppedBy::Idle
            | StoppedBy::Limit
            | StoppedBy::Host,
        )
        | Goal::Running => Goal::Stopped(by),
    }
}
