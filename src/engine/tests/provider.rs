//! A provider whose calls a test can hold open, fail and count; it outlives every engine.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::sandbox::{
    Capacity, CreateSpec, Descriptor, Enforcements, EventSender, Health, Labels, Lifecycle, Object,
    ObjectChange, ObjectKey, ProviderError, ProviderEvent, ProviderEvents, TargetCall,
};
use crate::types::{
    AccountName, ExternalId, Generation, HomeId, InstanceId, IssueId, Mode, ObjectName,
    ObjectState, SandboxId,
};

pub struct HeldProvider {
    world: Mutex<TestWorld>,
    open: watch::Sender<bool>,
    events: EventSender,
}

#[derive(Default)]
struct TestWorld {
    objects: Vec<Object>,
    calls: Vec<&'static str>,
    made: u32,
    panic_next: bool,
    lose_next: bool,
    break_slowly: bool,
    outage: Option<TestOutage>,
    creating: usize,
    creating_most: usize,
    identity: Option<String>,
    listing: TestListing,
    broken_home: Option<HomeId>,
    shortage: Option<String>,
}

/// What a list answers.
#[derive(Clone, Default)]
pub enum TestListing {
    /// What is there.
    #[default]
    True,
    /// This, whatever is there.
    Fixed(Vec<Object>),
    /// That it cannot be reached.
    Fails,
    /// Nothing, ever.
    Hangs,
    /// A panic.
    Panics,
}

/// How a provider that cannot be reached shows it when asked how it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOutage {
    Says,
    Hangs,
}

impl Default for HeldProvider {
    fn default() -> Self {
        let open = watch::Sender::new(true);
        Self { world: Mutex::default(), open, events: EventSender::default() }
    }
}

impl HeldProvider {
    /// Calls wait before they do anything, until [`Self::release`].
    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    pub fn release(&self) {
        self.open.send_replace(true);
    }

    /// It has no room for more, for this reason, or has.
    pub fn short_of(&self, shortage: Option<&str>) {
        self.world.lock().expect("not poisoned").shortage = shortage.map(str::to_owned);
    }

    pub fn panic_next(&self) {
        self.world.lock().expect("not poisoned").panic_next = true;
    }

    /// The next create is done and its answer lost.
    pub fn lose_next(&self) {
        self.world.lock().expect("not poisoned").lose_next = true;
    }

    /// The next create breaks and makes nothing.
    pub fn break_slowly(&self) {
        self.world.lock().expect("not poisoned").break_slowly = true;
    }

    pub fn count(&self, verb: &str) -> usize {
        self.world.lock().expect("not poisoned").calls.iter().filter(|v| **v == verb).count()
    }

    pub fn objects(&self) -> usize {
        self.world.lock().expect("not poisoned").objects.len()
    }

    /// Puts an object there that no record knows, and says what it is called.
    pub fn put(&self, external_id: &str, sandbox: &str) -> ExternalId {
        let external_id = ExternalId::trusted(external_id);
        let labels = Labels {
            instance: InstanceId::trusted("test-instance"),
            account: AccountName::default_account(),
            home: HomeId(1),
            issue: IssueId::parse("1").expect("a valid id"),
            sandbox: SandboxId::trusted(sandbox),
            generation: Generation(1),
            mode: Mode::Strong,
        };
        self.world.lock().expect("not poisoned").objects.push(Object {
            external_id: external_id.clone(),
            name: ObjectName::trusted(external_id.as_str()),
            labels: Some(labels),
            state: ObjectState::Running,
        });
        external_id
    }

    /// An outsider changes objects.
    pub fn outside(&self, change: impl FnOnce(&mut Vec<Object>)) {
        change(&mut self.world.lock().expect("not poisoned").objects);
    }

    /// It reports that an object changed.
    pub fn hint(&self, object: &Object) {
        let (external_id, labels) = (object.external_id.clone(), object.labels.clone());
        self.events.publish(ProviderEvent::ObjectChanged(ObjectChange { external_id, labels }));
    }

    /// Every object as it is now.
    pub fn all(&self) -> Vec<Object> {
        self.world.lock().expect("not poisoned").objects.clone()
    }

    /// What lists answer from now on.
    pub fn list_as(&self, listing: TestListing) {
        self.world.lock().expect("not poisoned").listing = listing;
    }

    /// Who it says it is from now on.
    pub fn identify(&self, identity: &str) {
        self.world.lock().expect("not poisoned").identity = Some(identity.to_owned());
    }

    /// It does not say any more who it is.
    pub fn forget_identity(&self) {
        self.world.lock().expect("not poisoned").identity = None;
    }

    /// Looks for this home fail from now on.
    pub fn break_home(&self, home: i64) {
        self.world.lock().expect("not poisoned").broken_home = Some(HomeId(home));
    }

    pub fn has(&self, external_id: &ExternalId) -> bool {
        let world = self.world.lock().expect("not poisoned");
        world.objects.iter().any(|object| object.external_id == *external_id)
    }

    /// From now on every call errors, until it ends with `None`.
    pub fn outage(&self, outage: Option<TestOutage>) {
        self.world.lock().expect("not poisoned").outage = outage;
    }

    fn reached(&self) -> Result<(), ProviderError> {
        match self.world.lock().expect("not poisoned").outage {
            Some(_) => Err(ProviderError::unavailable("connection refused")),
            None => Ok(()),
        }
    }

    /// How many creates were under way at once at most.
    pub fn creating_most(&self) -> usize {
        self.world.lock().expect("not poisoned").creating_most
    }

    async fn begin(&self, verb: &'static str) {
        let panics = {
            let mut world = self.world.lock().expect("not poisoned");
            world.calls.push(verb);
            std::mem::take(&mut world.panic_next)
        };
        assert!(!panics, "armed by the test");
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.expect("the provider lives as long as the test");
    }

    fn set(&self, call: &TargetCall, state: ObjectState) -> Result<Object, ProviderError> {
        let mut world = self.world.lock().expect("not poisoned");
        let found = world.objects.iter_mut().find(|o| o.external_id == call.target.external_id);
        let object = found.ok_or(ProviderError::Absent)?;
        object.state = state;
        Ok(object.clone())
    }
}

#[async_trait]
impl Lifecycle for HeldProvider {
    fn descriptor(&self) -> Descriptor {
        Descriptor::plain()
    }

    fn subscribe(&self) -> ProviderEvents {
        self.events.subscribe()
    }

    async fn health(&self) -> Health {
        self.world.lock().expect("not poisoned").calls.push("health");
        let outage = self.world.lock().expect("not poisoned").outage;
        let trouble = match outage {
            None => None,
            Some(TestOutage::Says) => Some("connection refused".into()),
            Some(TestOutage::Hangs) => std::future::pending().await,
        };
        let identity = self.world.lock().expect("not poisoned").identity.clone();
        Health { identity, trouble, limits: Enforcements::new() }
    }

    fn capacity(&self) -> Capacity {
        let shortage = self.world.lock().expect("not poisoned").shortage.clone();
        Capacity { disk: None, shortage }
    }

    async fn create(&self, spec: CreateSpec) -> Result<Object, ProviderError> {
        {
            let mut world = self.world.lock().expect("not poisoned");
            world.creating += 1;
            world.creating_most = world.creating_most.max(world.creating);
        }
        self.begin("create").await;
        self.world.lock().expect("not poisoned").creating -= 1;
        self.reached()?;
        let slowly = self.world.lock().expect("not poisoned").break_slowly;
        if slowly {
            tokio::time::sleep(Duration::from_millis(100)).await;
            return Err(ProviderError::Broken("it broke".into()));
        }
        let mut world = self.world.lock().expect("not poisoned");
        if let Some(there) = world.objects.iter().find(|o| o.name == spec.name) {
            let same = there.labels.as_ref().is_some_and(|l| l.sandbox == spec.labels.sandbox);
            let there = there.clone();
            return if same { Ok(there) } else { Err(ProviderError::Present(Box::new(there))) };
        }
        world.made += 1;
        let object = Object {
            external_id: ExternalId::trusted(format!("object-{}", world.made)),
            name: spec.name,
            labels: Some(spec.labels),
            state: ObjectState::Running,
        };
        world.objects.push(object.clone());
        if std::mem::take(&mut world.lose_next) {
            return Err(ProviderError::unavailable("the answer was lost"));
        }
        Ok(object)
    }

    async fn find(&self, key: ObjectKey) -> Result<Vec<Object>, ProviderError> {
        self.begin("find").await;
        self.reached()?;
        let world = self.world.lock().expect("not poisoned");
        if world.broken_home == Some(key.home) {
            return Err(ProviderError::Broken("it is set to break".into()));
        }
        let is_of_home = |l: &Labels| l.home == key.home && l.instance == key.instance;
        let is_meant =
            |o: &&Object| o.name == key.name || o.labels.as_ref().is_some_and(is_of_home);
        Ok(world.objects.iter().filter(is_meant).cloned().collect())
    }

    async fn list(&self, _: InstanceId) -> Result<Vec<Object>, ProviderError> {
        let listing = {
            let mut world = self.world.lock().expect("not poisoned");
            world.calls.push("list");
            world.listing.clone()
        };
        match listing {
            TestListing::True => Ok(self.all()),
            TestListing::Fixed(objects) => Ok(objects),
            TestListing::Fails => Err(ProviderError::unavailable("it is set to fail")),
            TestListing::Hangs => std::future::pending().await,
            TestListing::Panics => panic!("armed by the test"),
        }
    }

    async fn start(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.begin("start").await;
        self.set(&call, ObjectState::Running)
    }

    async fn stop(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.begin("stop").await;
        self.reached()?;
        self.set(&call, ObjectState::Stopped)
    }

    async fn delete(&self, call: TargetCall) -> Result<(), ProviderError> {
        self.begin("delete").await;
        let object = self.set(&call, ObjectState::Destroying)?;
        let mut world = self.world.lock().expect("not poisoned");
        world.objects.retain(|o| o.external_id != object.external_id);
        Ok(())
    }
}
