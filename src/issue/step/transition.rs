//! A commit in the making, and the moves that every part of the lifecycle is made of.

use std::mem;
use std::time::Duration;

use crate::conversation::ConversationRows;
use crate::issue::commit::{Commit, ProviderCall, Reply};
use crate::issue::event::{CallError, NotAsked, ProviderRules, StepContext, StepRules};
use crate::issue::instruction::InstructionSource;
use crate::issue::state::{Goal, Issue, IssueState, Record, SandboxPlan, Step, StoppedBy, Verb};
use crate::issue::{Effect, Instruction};
use crate::types::{
    Alias, Attempt, Cause, ExternalId, Failure, FailureCode, HomeId, Mode, ObjectName, Phase,
    ProviderStep, Sandbox, SandboxId, TimelineEntry, Timestamp,
};

use super::cold_start;
use super::farewell::farewell;
use super::life::life_due;

/// How long one look at a provider may take.
pub(super) const LOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait after the first failed try; doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// The longest wait between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The longest that a provider is believed when it asks to be left alone.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// Activity closer together than this is recorded once, so that a busy sandbox does not write on
/// every request.
const ACTIVITY_RESOLUTION: Duration = Duration::from_secs(30);

/// A commit in the making.
pub(super) struct Transition<'a> {
    pub issue: Issue,
    pub context: &'a StepContext<'a>,
    pub cause: String,
    pub aliases: Vec<Alias>,
    pub taken_over: Vec<Alias>,
    pub names_go_to: Option<HomeId>,
    pub reply: Reply,
    pub effects: Vec<Effect>,
    pub instruction: Option<Instruction>,
    pub said: ConversationRows,
    /// Whether a person asked for something that was granted.
    pub is_asked: bool,
    pub is_unlocked: bool,
    is_fast_create: bool,
    /// As of when an answer shows what is there: when its look was asked, not when it was answered.
    pub seen_as_of: Timestamp,
    pub ended: Option<Sandbox>,
    timeline: Vec<TimelineEntry>,
    pub call: Option<ProviderCall>,
}

impl<'a> Transition<'a> {
    pub fn new(issue: Issue, context: &'a StepContext<'a>) -> Self {
        Self {
            issue,
            context,
            cause: Cause::Service("provider").to_string(),
            aliases: Vec::new(),
            taken_over: Vec::new(),
            names_go_to: None,
            reply: Reply::Nothing,
            effects: Vec::new(),
            instruction: None,
            said: ConversationRows::default(),
            is_asked: false,
            is_unlocked: false,
            is_fast_create: false,
            seen_as_of: context.now,
            ended: None,
            timeline: Vec::new(),
            call: None,
        }
    }

    /// Ends the transition; `before` is the issue that it began with.
    ///
    /// A home's first commit always claims the id that it is named after, so that the store can
    /// refuse a second home for one issue whatever led to it.
    pub fn finish(mut self, before: &Issue) -> Commit {
        let own = Alias::Issue(self.issue.facts.issue_id.clone());
        if before.version == 0 && self.issue != *before && !self.aliases.contains(&own) {
            self.aliases.push(own);
        }
        self.follow_by_runs();
        self.record_runs(before);
        self.forget_deleted();
        self.issue.life_due = life_due(&self.issue, self.context.rules);
        // A timeline entry alone must be durable too.
        let changed = self.issue != *before
            || !self.timeline.is_empty()
            || !self.aliases.is_empty()
            || !self.taken_over.is_empty()
            || self.names_go_to.is_some();
        if changed {
            self.issue.version += 1;
        }
        self.show_status(before);
        self.mark_work(before);
        Commit {
            issue: self.issue,
            changed,
            aliases: self.aliases,
            ended: self.ended,
            timeline: self.timeline,
            instruction: self.instruction,
            said: self.said,
            reply: self.reply,
            call: self.call,
            is_fast_create: self.is_fast_create,
            effects: self.effects,
            is_unlocked: self.is_unlocked,
            taken_over: self.taken_over,
            names_go_to: self.names_go_to,
        }
    }

    /// Whether the timeline has a new entry.
    pub const fn has_news(&self) -> bool {
        !self.timeline.is_empty()
    }

    /// Takes the state out to be replaced; every path puts one back with [`Self::enter`] or
    /// [`Self::keep`].
    pub fn take_state(&mut self) -> IssueState {
        mem::replace(&mut self.issue.state, IssueState::Absent)
    }

    /// Puts a state of the same phase back, without a timeline entry.
    pub fn keep(&mut self, state: IssueState) {
        self.issue.state = state;
    }

    /// Puts a state back and records why on the timeline. A new phase begins now.
    pub fn enter(&mut self, from: Option<Phase>, mut state: IssueState, reason: String) {
        let to = state.phase();
        let now = self.context.now;
        let mut generation = self.issue.generation;
        if let Some(record) = state.record_mut() {
            if from != to {
                record.phase_since = now;
                record.deadline = to.and_then(|phase| self.deadline_of(phase, record));
            }
            if matches!(to, Some(Phase::Running | Phase::Stopped)) {
                record.healing = None;
                record.owes_farewell = false;
            }
            record.reason.clone_from(&reason);
            generation = record.generation;
        }
        self.issue.state = state;
        let cause = self.cause.clone();
        self.timeline.push(TimelineEntry { at: now, generation, from, to, reason, cause });
    }

    /// Records something on the timeline that leaves the phase as it is.
    pub fn record_entry(&mut self, reason: String) {
        let phase = self.issue.state.phase();
        let record = self.issue.state.record();
        let generation = record.map_or(self.issue.generation, |record| record.generation);
        let (at, cause) = (self.context.now, self.cause.clone());
        self.timeline.push(TimelineEntry { at, generation, from: phase, to: phase, reason, cause });
    }

    /// Records that a comment brought words for the agent, if nothing else on the timeline does: who
    /// asked what is to be found there, also of a sandbox that was running already.
    pub fn record_words(&mut self, reason: &str) {
        let source = self.instruction.as_ref().map(|instruction| instruction.source);
        if source.is_some_and(|source| source != InstructionSource::Issue)
            && self.timeline.is_empty()
        {
            self.record_entry(reason.to_owned());
        }
    }

    /// The rules of the record's provider. One that is no longer configured is never called, so
    /// its rules only matter for what was asked before.
    pub fn provider_rules(&self, record: &Record) -> ProviderRules {
        self.context.rules.providers.get(&record.template.provider).copied().unwrap_or(
            ProviderRules {
                names_enforced: true,
                late_effect_window: Duration::ZERO,
                dies_with_server: false,
            },
        )
    }

    /// Asks the provider now. The answer must name the record's new attempt.
    pub fn ask(
        &mut self,
        record: &mut Record,
        external_id: Option<&ExternalId>,
        verb: Verb,
        tries_left: u32,
    ) -> Step {
        let rules = self.context.rules;
        let timeout = match &verb {
            Verb::Look => LOOK_TIMEOUT,
            Verb::Create => rules.create.timeout,
            Verb::Start => rules.start.timeout,
            Verb::ColdStart { .. } => cold_start::cold_start_time_max(&record.template),
            Verb::Stop => rules.stop.timeout,
            Verb::Delete { .. } => rules.delete.timeout,
        };
        let before = farewell(record, &verb);
        let until = self.context.now.after(timeout);
        let until = until.after(before.map_or(Duration::ZERO, |what| what.grace));
        if verb == Verb::Start {
            record.settle_stop(self.context.now);
        }
        let force = match &verb {
            Verb::Stop => tries_left <= 1 || self.is_overdue(record),
            Verb::Delete { .. } => self.is_overdue(record),
            Verb::Look | Verb::Create | Verb::Start | Verb::ColdStart { .. } => false,
        };
        if verb == Verb::Create {
            record.needs_cold_start = cold_start::has_cold_start(&record.template);
        }
        record.attempt = record.attempt.next();
        self.call = Some(ProviderCall {
            provider: record.template.provider.clone(),
            attempt: record.attempt,
            verb: verb.clone(),
            account: self.issue.account.clone(),
            issue: self.issue.facts.issue_id.clone(),
            record: record.clone(),
            external_id: external_id.cloned(),
            force,
            deadline: until,
            lasts_max: until.since(self.context.now),
            before,
        });
        Step::Asked { verb, until, tries_left }
    }

    /// Remembers that a create with this deadline may still come into effect, since it is unknown
    /// its outcome. A later create that ends well does not undo that: once its object is gone,
    /// the earlier one could land.
    pub fn may_land(&self, record: &mut Record, deadline: Timestamp) {
        let landed = deadline.after(self.provider_rules(record).late_effect_window);
        record.may_land_until = record.may_land_until.max(Some(landed));
    }

    /// Remembers the same of a stop: should it take effect after the sandbox was started again,
    /// no one killed it.
    pub fn may_stop(&self, record: &mut Record, deadline: Timestamp) {
        let landed = deadline.after(self.provider_rules(record).late_effect_window);
        record.stop_may_land_until = record.stop_may_land_until.max(Some(landed));
    }

    /// Lets the next call wait: longer with each failed try, never shorter than the provider asked.
    pub fn wait(
        &self,
        verb: Verb,
        rules: StepRules,
        tries_left: u32,
        trouble: Option<&CallError>,
    ) -> Step {
        let failed = rules.attempts.saturating_sub(tries_left).saturating_sub(1).min(16);
        let full = BACKOFF_FIRST.saturating_mul(1 << failed).min(BACKOFF_MAX);
        // Half of the wait is fixed, half is chance, so that many issues do not come back at once.
        let spread = full / 2 + full.mul_f64(f64::from(self.context.jitter_permille) / 2000.0);
        let asked = match trouble {
            Some(
                CallError::Unavailable { retry_after, .. }
                | CallError::Exhausted { retry_after, .. },
            ) => retry_after.unwrap_or(Duration::ZERO).min(RETRY_AFTER_MAX),
            Some(CallError::NotAsked(NotAsked::Unreachable { next_try, .. })) => *next_try,
            Some(
                CallError::NotAsked(NotAsked::NoTurn)
                | CallError::Absent
                | CallError::Present(_)
                | CallError::Refused(_)
                | CallError::Broken(_)
                | CallError::Unknown(_),
            )
            | None => Duration::ZERO,
        };
        Step::Waiting { verb, due: self.context.now.after(spread.max(asked)), tries_left }
    }

    /// Begins the next generation: recorded first, then asked for; in fast mode asked for while
    /// the record is being written, if the last generation is known for certain.
    pub fn begin(&mut self, plan: SandboxPlan, mode: Mode, reason: String) {
        let SandboxPlan { template, agent_id, meta } = plan;
        let now = self.context.now;
        let generation = self.issue.generation.next();
        let name = self.issue.facts.issue_id.sandbox_name();
        let fast = mode == Mode::Fast && self.context.may_fast_create;
        let made_at_ns = fast.then_some(self.context.unix_ns);
        let id = match made_at_ns {
            Some(ns) => SandboxId::fast(&name, &self.issue.account, ns),
            None => self.context.fresh_id.clone(),
        };
        let mut record = Record {
            id,
            object_name: ObjectName::for_home(&self.issue.account, self.issue.home, &name),
            name,
            generation,
            mode: if fast { Mode::Fast } else { Mode::Strong },
            template_version: template.version(),
            template,
            agent_id,
            meta,
            created_at: now,
            phase_since: now,
            last_activity_at: now,
            reason: String::new(),
            attempt: Attempt::default(),
            // What a generation that was given up by force may still bring forth.
            may_land_until: self.issue.may_land_until.filter(|until| now < *until),
            stop_may_land_until: None,
            deadline: None,
            made_at_ns,
            healing: None,
            left_nothing: false,
            needs_cold_start: false,
            owes_farewell: false,
        };
        self.issue.generation = generation;
        self.issue.may_land_until = None;
        self.issue.pending_start = None;
        self.issue.delete_due = None;
        // A provider that enforces names says by itself when an object has the name already; any
        // other is looked at first.
        let verb =
            if self.provider_rules(&record).names_enforced { Verb::Create } else { Verb::Look };
        let tries_left = self.context.rules.create.attempts;
        self.is_fast_create = fast && verb == Verb::Create;
        let step = self.ask(&mut record, None, verb, tries_left);
        let state = IssueState::Creating { record, goal: Goal::Running, step, giving_up: None };
        self.enter(None, state, reason);
    }

    /// Takes a sandbox that is up to its desired state.
    pub fn up(&mut self, from: Phase, record: Record, id: ExternalId, goal: Goal, how: &str) {
        match goal {
            Goal::Running => {
                let state = IssueState::Running { record, external_id: id };
                self.enter(Some(from), state, how.to_owned());
            }
            Goal::Stopped(by) => {
                self.stop(Some(from), record, id, by, format!("{how}; a stop was asked for"));
            }
        }
    }

    /// Begins to take a sandbox down.
    pub fn stop(
        &mut self,
        from: Option<Phase>,
        mut record: Record,
        external_id: ExternalId,
        by: StoppedBy,
        reason: String,
    ) {
        record.owes_farewell = from == Some(Phase::Running);
        let tries = self.context.rules.stop.attempts;
        let step = self.ask(&mut record, Some(&external_id), Verb::Stop, tries);
        let goal = Goal::Stopped(by);
        self.enter(from, IssueState::Stopping { record, external_id, by, goal, step }, reason);
    }

    /// Begins to bring a sandbox up again.
    pub fn start(
        &mut self,
        from: Option<Phase>,
        mut record: Record,
        external_id: ExternalId,
        goal: Goal,
        reason: String,
    ) {
        let step = self.ask(
            &mut record,
            Some(&external_id),
            Verb::Start,
            self.context.rules.start.attempts,
        );
        self.enter(from, IssueState::Starting { record, external_id, goal, step }, reason);
    }

    /// Gives a sandbox up: `retry` and `delete` lead on, and an outage's end if that was the cause.
    pub fn fail(
        &mut self,
        from: Phase,
        mut record: Record,
        external_id: Option<ExternalId>,
        goal: Goal,
        failure: Failure,
    ) {
        let next = self.plan_healing(&mut record, &failure);
        let reason = format!("{}{next}", failure.message);
        self.enter(Some(from), IssueState::Failed { record, external_id, goal, failure }, reason);
    }

    /// The sandbox is confirmed absent: it becomes history, and the generation that was asked for
    /// meanwhile begins, or waits until nothing forbids it.
    pub fn gone(&mut self, record: Record, next: Option<SandboxPlan>) {
        self.end(Phase::Deleting, record, None, "the provider no longer has it".to_owned());
        let Some(plan) = next else { return };
        let why = "asked for while the last one was being deleted";
        if self.context.denial.is_some() {
            return self.pending_start(why, Some(plan));
        }
        let mode = plan.template.mode;
        self.begin(plan, mode, why.to_owned());
    }

    /// Makes a sandbox history.
    pub fn end(
        &mut self,
        from: Phase,
        record: Record,
        external_id: Option<ExternalId>,
        reason: String,
    ) {
        let now = self.context.now;
        self.issue.delete_due = None;
        self.issue.state = IssueState::Deleting {
            record,
            external_id,
            step: Step::Waiting { verb: Verb::Look, due: now, tries_left: 0 },
            failure: None,
            next: None,
        };
        self.ended = self.issue.sandbox().map(|sandbox| Sandbox {
            phase: None,
            reason: reason.clone(),
            phase_since: now,
            agent: None,
            deleted_at: Some(now),
            ..sandbox
        });
        self.enter(Some(from), IssueState::Absent, reason);
    }

    /// Counts as activity, recorded at most every 30 seconds, or every tenth of the time after
    /// which an idle sandbox is stopped if that is shorter.
    pub fn touch(&mut self) {
        let now = self.context.now;
        let idle = self.context.rules.idle_stop;
        let resolution =
            idle.map_or(ACTIVITY_RESOLUTION, |idle| ACTIVITY_RESOLUTION.min(idle / 10));
        if let Some(record) = self.issue.state.record_mut()
            && now.since(record.last_activity_at) >= resolution
        {
            record.last_activity_at = now;
        }
    }

    /// The failure that a provider's trouble amounts to.
    pub fn failure_of(&self, step: ProviderStep, trouble: &CallError) -> Failure {
        let (code, message, retryable) = match trouble {
            CallError::NotAsked(NotAsked::NoTurn) => (
                FailureCode::ProviderUnavailable,
                "too many calls wait for the provider; it was not asked".to_owned(),
                true,
            ),
            CallError::NotAsked(NotAsked::Unreachable { message, .. }) => {
                (FailureCode::ProviderUnavailable, message.clone(), true)
            }
            CallError::Absent => {
                (FailureCode::ObjectLost, "the provider no longer has it".to_owned(), true)
            }
            CallError::Present(seen) => (
                FailureCode::NameTaken,
                format!(
                    "the provider already has an object of this name that is not this sandbox's \
                     (its external id: {}); it was left untouched: remove or rename it there, then \
                     retry",
                    seen.external_id
                ),
                true,
            ),
            CallError::Refused(message) => {
                (FailureCode::ProviderRefused, format!("the provider refused: {message}"), false)
            }
            CallError::Unavailable { message, .. } => (
                FailureCode::ProviderUnavailable,
                format!("the provider is unavailable: {message}"),
                true,
            ),
            CallError::Exhausted { what, .. } => {
                (FailureCode::ProviderExhausted, format!("the provider has no room: {what}"), true)
            }
            CallError::Broken(message) => {
                (FailureCode::ProviderBroken, format!("the provider failed: {message}"), true)
            }
            CallError::Unknown(name) => (
                FailureCode::ProviderUnknown,
                format!("the configuration has no provider {name}; add it and retry, or delete"),
                true,
            ),
        };
        Failure { code, step, message, retryable }
    }

    /// The moment's time.
    pub fn now(&self) -> Timestamp {
        self.context.now
    }
}
