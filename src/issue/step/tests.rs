//! The lifecycle by tables, and by properties over random lives with a model of a provider.

mod answers;
mod healing;
mod histories;
mod hooks;
mod issue_deliveries;
mod life;
mod model;
mod observations;
mod order;
mod pending_starts;
mod properties;
mod provider_trouble;
mod repositories;
mod said;
mod tables;
mod unions;

use std::collections::HashMap;
use std::time::Duration;

use crate::conversation::FreshIds;
use crate::issue::event::{
    CallAnswer, CallError, Command, CommandAsk, Denial, Done, EnsureAsk, IssueEvent,
    ObservedObject, Owner, ProviderRules, Rules, StepContext, StepRules,
};
use crate::issue::{Commit, Issue, step::step};
use crate::types::{
    AccountName, Cause, ExternalId, HomeId, IssueId, MessageId, Mode, Network, ObjectState,
    OnLimit, ProviderName, Resources, RunId, SandboxId, SessionId, Template, TemplateName,
    Timestamp,
};
use uuid::Uuid;

pub(super) fn template(name: &str) -> Template {
    Template {
        name: TemplateName::trusted(name),
        provider: ProviderName::trusted("p"),
        mode: Mode::Strong,
        resources: Resources { cpu: 1.0, memory_mb: 1024, processes: 256, disk_mb: 2048 },
        network: Network::None,
        ports: Vec::new(),
        on_limit: OnLimit::Kill,
        workload: crate::types::Workload::default().into(),
    }
}

pub(super) const LATE_EFFECT_WINDOW: Duration = Duration::from_secs(7);

pub(super) fn rules(names_enforced: bool) -> Rules {
    let step = StepRules { attempts: 3, timeout: Duration::from_secs(60) };
    let provider = ProviderRules {
        names_enforced,
        late_effect_window: LATE_EFFECT_WINDOW,
        dies_with_server: false,
    };
    Rules {
        github: None,
        create: step,
        start: step,
        stop: step,
        delete: step,
        idle_stop: None,
        delete_after_close: Duration::from_secs(86_400),
        ttl: None,
        trigger_label: "agent".to_owned().into(),
        repositories: Default::default(),
        default_template: template("default"),
        providers: HashMap::from([(ProviderName::trusted("p"), provider)]),
    }
}

/// Ids that no other step has.
pub(super) fn fresh_ids(step: u32) -> FreshIds {
    let id = |place: u128| Uuid::from_u128(u128::from(step) * 10 + place);
    FreshIds { message: MessageId(id(1)), run: RunId(id(2)), session: SessionId(id(3)) }
}

/// One issue under test, and the commit that its latest event led to.
pub(super) struct StepBench {
    pub rules: Rules,
    pub issue: Issue,
    pub now: Timestamp,
    pub fresh: u32,
    pub may_fast_create: bool,
    pub denial: Option<Denial>,
}

impl StepBench {
    pub fn new(names_enforced: bool) -> Self {
        let id = IssueId::parse("1").expect("a valid id");
        Self {
            rules: rules(names_enforced),
            issue: Issue::new(HomeId(1), AccountName::default_account(), id),
            now: Timestamp::from_unix_ms(1_800_000_000_000),
            fresh: 0,
            may_fast_create: false,
            denial: None,
        }
    }

    pub fn apply(&mut self, event: IssueEvent) -> Commit {
        self.fresh += 1;
        let context = StepContext {
            now: self.now,
            rules: &self.rules,
            fresh_id: SandboxId::trusted(format!("sandbox-{}", self.fresh)),
            fresh: fresh_ids(self.fresh),
            jitter_permille: 500,
            unix_ns: self.now.unix_ms() * 1_000_000,
            may_fast_create: self.may_fast_create,
            denial: self.denial.clone(),
        };
        let commit = step(&self.issue, event, &context);
        self.issue = commit.issue.clone();
        commit
    }

    pub fn ensure(&mut self) -> Commit {
        self.ensure_with(false)
    }

    /// With or without the retry of a failed sandbox.
    pub fn ensure_with(&mut self, retry: bool) -> Commit {
        self.apply(IssueEvent::Ensure(EnsureAsk {
            sandbox: crate::issue::event::SandboxAsk::default(),
            title: None,
            numbered: None,
            claims: vec![],
            retry,
            cause: Cause::Service("test"),
        }))
    }

    pub fn command(&mut self, command: Command) -> Commit {
        let sandbox = match self.issue.state.record() {
            Some(record) => record.id.clone(),
            None => SandboxId::trusted("none"),
        };
        let cause = Cause::Service("test");
        self.apply(IssueEvent::Command(CommandAsk { sandbox, command, cause }))
    }

    pub fn answer(&mut self, result: Result<Done, CallError>) -> Commit {
        let record = self.issue.state.record().expect("a sandbox");
        let (sandbox, attempt) = (record.id.clone(), record.attempt);
        self.apply(IssueEvent::Answered(CallAnswer { sandbox, attempt, result }))
    }

    /// Lets the state's due time come.
    pub fn due(&mut self) -> Commit {
        self.now = self.now.max(self.issue.due_at().expect("something is due"));
        self.apply(IssueEvent::Due { in_flight: None, busy: false })
    }

    /// This sandbox's object, in a state.
    pub fn ours(&self, state: ObjectState) -> ObservedObject {
        let record = self.issue.state.record().expect("a sandbox");
        ObservedObject {
            external_id: ExternalId::trusted(format!("object-of-{}", record.id)),
            owner: Some(Owner {
                sandbox: record.id.clone(),
                generation: record.generation,
                mode: record.mode,
            }),
            state,
        }
    }

    pub fn up(&mut self) -> Commit {
        let seen = self.ours(ObjectState::Running);
        self.answer(Ok(Done::Up(seen)))
    }
}

pub(super) fn unavailable() -> CallError {
    CallError::Unavailable { message: "no answer".into(), retry_after: None }
}
