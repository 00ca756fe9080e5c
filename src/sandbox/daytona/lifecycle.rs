//! The life of sandboxes at Daytona. Daytona changes them in the background and refuses other changes
//! meanwhile, so each call looks, asks for what is missing, and looks again until its deadline.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;

use super::api::CALL_WAIT;
use super::failure::CallFailure;
use super::network::check_template;
use super::shell::Script;
use super::state::{DaytonaState, NextStep, StateChange, StateGoal};
use super::wire::{CreateBody, CurrentKey, DaytonaSandbox, OrganizationItem, SandboxPage};
use super::{DaytonaParts, DaytonaProvider};
use crate::sandbox::{
    Capability, CreateSpec, Descriptor, Enforcement, Enforcements, Health, Isolation, Lifecycle,
    LimitKind, LimitsInForce, Object, ObjectKey, ProviderError, Target, TargetCall, Uniqueness,
};
use crate::types::{InstanceId, NetworkKind, ObjectState, SandboxId, Timestamp};

/// The port's bound on `health`.
const HEALTH_WAIT: Duration = Duration::from_millis(1_800);
/// The longest wait between two looks.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(3);
/// Sandboxes of one page. Daytona allows no more.
const PAGE_LEN: &str = "200";
/// Most pages of a list. One that has more goes round in circles.
const PAGES_MAX: usize = 1_000;
/// What the key must be allowed to do.
const PERMISSIONS: [&str; 2] = ["write:sandboxes", "delete:sandboxes"];

/// The waits between looks at a sandbox that changes: each is half as long again as the one before.
struct LookWaits<'a> {
    provider: &'a DaytonaParts,
    next: Duration,
    deadline: Timestamp,
}

impl<'a> LookWaits<'a> {
    fn until(provider: &'a DaytonaParts, deadline: Timestamp) -> Self {
        Self { provider, next: provider.config.look_again, deadline }
    }

    /// How long the next call may take.
    fn left(&self) -> Result<Duration, ProviderError> {
        let late = || ProviderError::unavailable("Daytona is not done before the deadline");
        self.provider.left_until(self.deadline).ok_or_else(late)
    }

    /// LookWaits for the next look.
    async fn pause(&mut self) -> Result<(), ProviderError> {
        self.left()?;
        let clock = &self.provider.clock;
        clock.sleep_until(clock.now().after(self.next).min(self.deadline)).await;
        self.next = (self.next * 3 / 2).min(LOOK_WAIT_MAX);
        Ok(())
    }
}

/// Each limit and how it holds. Daytona limits each sandbox as a whole, and knows no limit on processes.
fn limits() -> Enforcements {
    use LimitKind::{Cpu, Disk, Memory, Processes};
    let enforced = [Cpu, Memory, Disk].map(|limit| (limit, Enforcement::Enforced));
    enforced.into_iter().chain([(Processes, Enforcement::None)]).collect()
}

impl DaytonaParts {
    /// The target's sandbox.
    ///
    /// # Errors
    /// `Absent`, also for one that has been destroyed; `Present` for another one's.
    async fn checked(
        &self,
        target: &Target,
        wait: Duration,
    ) -> Result<(DaytonaSandbox, Object), ProviderError> {
        let id = target.external_id.as_str();
        let found = self.look(id, wait).await.map_err(CallFailure::of_look)?;
        // Another sandbox may have this id as its name.
        let sandbox = found.filter(|sandbox| sandbox.id == id).ok_or(ProviderError::Absent)?;
        let object = sandbox.object().ok_or(ProviderError::Absent)?;
        if carries(&sandbox, &target.expected) {
            Ok((sandbox, object))
        } else {
            Err(ProviderError::Present(Box::new(object)))
        }
    }

    /// Asks for a change of a sandbox.
    async fn change(
        &self,
        id: &str,
        change: StateChange,
        force: bool,
        wait: Duration,
    ) -> Result<(), CallFailure> {
        let mut url = self.url(&["sandbox", id, change.as_str()])?;
        if force && change == StateChange::Stop {
            url.query_pairs_mut().append_pair("force", "true");
        }
        self.http.send(self.http.request(Method::POST, url.as_str()), wait).await.map(drop)
    }

    /// Brings a target up or down.
    async fn bring(
        &self,
        target: &Target,
        goal: StateGoal,
        force: bool,
        deadline: Timestamp,
    ) -> Result<Object, ProviderError> {
        let mut waits = LookWaits::until(self, deadline);
        let mut refused = None;
        loop {
            let (sandbox, object) = self.checked(target, waits.left()?).await?;
            let standing = sandbox.standing();
            match standing.next_step(goal)? {
                NextStep::Done if goal == StateGoal::Down => {
                    return Ok(Object { state: ObjectState::Stopped, ..object });
                }
                NextStep::Done => {
                    if self.prepare(&sandbox).await? {
                        return Ok(object);
                    }
                }
                NextStep::Ask(change) => {
                    // It refused that before, and no change is under way that could be the reason.
                    if let Some((before, failure)) = refused.take()
                        && before == change
                        && !standing.is_moving()
                        && matches!(failure, CallFailure::Status { status: 400, .. })
                    {
                        return Err(failure.of_change());
                    }
                    match self.change(&sandbox.id, change, force, waits.left()?).await {
                        Ok(()) => {}
                        Err(failure) if failure.may_be_conflict() => {
                            refused = Some((change, failure));
                        }
                        Err(failure) => return Err(failure.of_change()),
                    }
                }
                NextStep::Wait => {}
            }
            waits.pause().await?;
        }
    }

    /// Makes a sandbox that is up ready for work; `false` if its toolbox does not answer yet.
    async fn prepare(&self, sandbox: &DaytonaSandbox) -> Result<bool, ProviderError> {
        let toolbox = self.toolbox_of(sandbox).map_err(ProviderError::Broken)?;
        let Ok(Some(printed)) = toolbox.run(Script::Prepare, &[]).await else { return Ok(false) };
        let failed = |message: String| Err(ProviderError::Broken(message));
        match printed.trim().split_once(' ') {
            None if printed.trim() == "ready" => Ok(true),
            Some(("!lacks", tool)) => failed(format!(
                "the sandbox's image lacks the program {tool}, which issuebox needs in it; use an \
                 image with coreutils, findutils and util-linux"
            )),
            Some(("!work", dir)) => failed(format!(
                "the sandbox's user cannot make the workspace {dir}; set providers.daytona.workspace \
                 to a directory below its home, or make it in the snapshot"
            )),
            _ => Ok(false),
        }
    }

    /// The sandboxes that carry these labels, as Daytona's index has them: a moment old.
    async fn labelled(&self, labels: &str) -> Result<Vec<DaytonaSandbox>, ProviderError> {
        let (mut found, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..PAGES_MAX {
            let mut url = self.url(&["sandbox"]).map_err(CallFailure::of_look)?;
            // One whose deletion failed is there all the same.
            let query =
                [("labels", labels), ("limit", PAGE_LEN), ("includeErroredDeleted", "true")];
            let cursor_pair = cursor.as_deref().map(|cursor| ("cursor", cursor));
            url.query_pairs_mut().extend_pairs(query.into_iter().chain(cursor_pair));
            let request = self.http.request(Method::GET, url.as_str());
            let page: SandboxPage =
                self.http.json(request, CALL_WAIT).await.map_err(CallFailure::of_look)?;
            found.extend(page.items);
            match page.next_cursor.filter(|next| !next.is_empty()) {
                None => return Ok(found),
                next => cursor = next,
            }
        }
        Err(ProviderError::unavailable("Daytona's list of sandboxes does not end"))
    }

    /// The sandbox of a name.
    async fn named(
        &self,
        name: &str,
        wait: Duration,
    ) -> Result<Option<DaytonaSandbox>, ProviderError> {
        let found = self.look(name, wait).await.map_err(CallFailure::of_look)?;
        Ok(found.filter(|sandbox| sandbox.name == name))
    }

    /// Makes a sandbox, or finds the one that has the name.
    async fn make(&self, spec: &CreateSpec, body: &CreateBody) -> Result<Target, ProviderError> {
        let mut waits = LookWaits::until(self, spec.deadline);
        let wanted = &spec.labels.sandbox;
        let target = |sandbox: &DaytonaSandbox| Target {
            external_id: crate::types::ExternalId::trusted(sandbox.id.clone()),
            expected: wanted.clone(),
        };
        loop {
            let url = self.url(&["sandbox"]).map_err(CallFailure::of_look)?;
            let request = self.http.post(url.as_str(), body);
            let failure = match self.http.json::<DaytonaSandbox>(request, waits.left()?).await {
                Ok(made) => return Ok(target(&made)),
                Err(failure) => failure,
            };
            match failure {
                // The name is taken, or something that belongs to it is changing.
                CallFailure::Status { status: 409, .. } => {
                    let there = self.named(spec.name.as_str(), waits.left()?).await?;
                    if let Some((there, object)) = there.and_then(with_object) {
                        if carries(&there, wanted) && object.state != ObjectState::Destroying {
                            return Ok(target(&there));
                        }
                        return Err(ProviderError::Present(Box::new(object)));
                    }
                }
                // Its snapshot or region.
                CallFailure::Status { status: 404, .. } => {
                    return Err(ProviderError::Refused(failure.words()));
                }
                CallFailure::Status { .. } | CallFailure::NoAnswer(_) => {
                    return Err(failure.of_change());
                }
            }
            waits.pause().await?;
        }
    }

    /// The organization of the key.
    async fn organization(&self) -> Result<Option<String>, CallFailure> {
        if let Some(known) = self.organization.get() {
            return Ok(Some(known.clone()));
        }
        let url = self.url(&["organizations"])?;
        let request = self.http.request(Method::GET, url.as_str());
        let all: Vec<OrganizationItem> = self.http.json(request, HEALTH_WAIT).await?;
        let found = match all.as_slice() {
            [one] => Some(one.id.clone()),
            // Which of several it is, only a sandbox says.
            _ => {
                let mut url = self.url(&["sandbox"])?;
                url.query_pairs_mut().append_pair("limit", "1");
                let request = self.http.request(Method::GET, url.as_str());
                let page: SandboxPage = self.http.json(request, HEALTH_WAIT).await?;
                page.items.into_iter().next().map(|sandbox| sandbox.organization_id)
            }
        };
        Ok(found.map(|id| self.organization.get_or_init(|| id).clone()))
    }

    /// Whether the key is good, and which organization it is of.
    async fn ask_health(&self) -> Result<Option<String>, String> {
        let url = self.url(&["api-keys", "current"]).map_err(|failure| failure.words())?;
        let request = self.http.request(Method::GET, url.as_str());
        let key: CurrentKey = self
            .http
            .json(request, HEALTH_WAIT)
            .await
            .map_err(|failure| failure.of_look().to_string())?;
        let lacks = |permission: &&str| !key.permissions.iter().any(|own| own == permission);
        if let Some(missing) = PERMISSIONS.into_iter().find(|permission| lacks(permission)) {
            return Err(format!(
                "the API key lacks the permission {missing}; make a key that has it and write it \
                 into providers.daytona.key_file"
            ));
        }
        self.organization().await.map_err(|failure| failure.words())
    }
}

/// A sandbox with the port's view of it; `None` if it is gone.
fn with_object(sandbox: DaytonaSandbox) -> Option<(DaytonaSandbox, Object)> {
    let object = sandbox.object()?;
    Some((sandbox, object))
}

/// Whether a sandbox carries the sandbox id that is expected on it.
fn carries(sandbox: &DaytonaSandbox, expected: &SandboxId) -> bool {
    sandbox.labels().is_some_and(|labels| labels.sandbox == *expected)
}

#[async_trait]
impl Lifecycle for DaytonaProvider {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            uniqueness: Uniqueness::EnforcedNames,
            late_effect_window: self.config.late_effect_window,
            capabilities: [
                Capability::Archives,
                Capability::DetachedProcesses,
                Capability::Ports,
                Capability::Snapshots,
                Capability::Terminal,
            ]
            .into(),
            networks: vec![NetworkKind::None, NetworkKind::Allow, NetworkKind::Full],
            isolation: Isolation {
                kind: "daytona",
                // Daytona does not say.
                seccomp: Enforcement::None,
                memory_counts: Some("what Daytona counts: all of the sandbox"),
            },
            limits: limits(),
            ..Descriptor::plain()
        }
    }

    async fn health(&self) -> Health {
        let asked = tokio::time::timeout(HEALTH_WAIT, self.ask_health()).await;
        let asked = asked.unwrap_or_else(|_| Err("Daytona does not answer in time".into()));
        let known = self.organization.get().cloned();
        let (identity, trouble) = match asked {
            Ok(identity) => (identity, None),
            Err(trouble) => (known, Some(trouble)),
        };
        Health { identity, trouble, limits: limits() }
    }

    async fn find(&self, key: ObjectKey) -> Result<Vec<Object>, ProviderError> {
        let mut found: Vec<Object> = Vec::new();
        let by_name = self.named(key.name.as_str(), CALL_WAIT).await?;
        found.extend(by_name.as_ref().and_then(DaytonaSandbox::object));
        let labels = serde_json::json!({
            "issuebox.instance": key.instance.to_string(), "issuebox.home": key.home.to_string(),
        });
        let mut seen: HashSet<String> = by_name.into_iter().map(|sandbox| sandbox.id).collect();
        for listed in self.labelled(&labels.to_string()).await? {
            if !seen.insert(listed.id.clone()) {
                continue;
            }
            // The list may be old; this is not.
            let now = self.look(&listed.id, CALL_WAIT).await.map_err(CallFailure::of_look)?;
            let now = now.filter(|sandbox| sandbox.id == listed.id);
            found.extend(now.as_ref().and_then(DaytonaSandbox::object));
        }
        Ok(found)
    }

    async fn list(&self, instance: InstanceId) -> Result<Vec<Object>, ProviderError> {
        let labels = serde_json::json!({"issuebox.instance": instance.to_string()});
        let listed = self.labelled(&labels.to_string()).await?;
        let mut seen = HashSet::new();
        let is_new = |sandbox: &&DaytonaSandbox| seen.insert(sandbox.id.clone());
        Ok(listed.iter().filter(is_new).filter_map(DaytonaSandbox::object).collect())
    }

    async fn limits(&self, target: Target) -> Option<LimitsInForce> {
        let (sandbox, _) = self.checked(&target, CALL_WAIT).await.ok()?;
        Some(LimitsInForce { resources: sandbox.resources(), holds: limits() })
    }

    async fn create(&self, spec: CreateSpec) -> Result<Object, ProviderError> {
        let rules = check_template(&spec.template).map_err(ProviderError::Refused)?;
        let (region, archive) = (self.config.region.as_deref(), self.config.archive_minutes);
        let body = CreateBody::new(&spec, rules, region, archive);
        let target = self.make(&spec, &body).await?;
        match self.bring(&target, StateGoal::Up, false, spec.deadline).await {
            Err(ProviderError::Absent) => {
                Err(ProviderError::Broken("the sandbox was removed while it was being made".into()))
            }
            brought => brought,
        }
    }

    async fn start(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.bring(&call.target, StateGoal::Up, call.force, call.deadline).await
    }

    async fn stop(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.bring(&call.target, StateGoal::Down, call.force, call.deadline).await
    }

    async fn delete(&self, call: TargetCall) -> Result<(), ProviderError> {
        let mut waits = LookWaits::until(self, call.deadline);
        let mut was_refused = false;
        loop {
            let (sandbox, object) = self.checked(&call.target, waits.left()?).await?;
            let standing = sandbox.standing();
            // A deletion that failed is asked for again.
            let has_failed = standing.state == DaytonaState::Error;
            if object.state == ObjectState::Destroying && !has_failed {
                return Ok(());
            }
            let url = self.url(&["sandbox", &sandbox.id]).map_err(CallFailure::of_look)?;
            let request = self.http.request(Method::DELETE, url.as_str());
            match self.http.send(request, waits.left()?).await {
                Ok(_) => return Ok(()),
                // Daytona does not destroy what it creates, starts or stops at the moment.
                Err(failure) if failure.may_be_conflict() => {
                    let is_refusal = matches!(failure, CallFailure::Status { status: 400, .. });
                    if is_refusal && was_refused && !standing.is_moving() {
                        return Err(failure.of_change());
                    }
                    was_refused = is_refusal && !standing.is_moving();
                }
                Err(failure) => return Err(failure.of_change()),
            }
            waits.pause().await?;
        }
    }
}
