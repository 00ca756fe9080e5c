//! What every provider must keep of the contract in `sandbox.rs`, as one suite that each calls.
//!
//! The suite knows the port and nothing of any adapter. Each function makes its own objects, under
//! names that begin with the suite's prefix, and deletes them again.

use bytes::Bytes;
use issuebox::sandbox::{
    CreateSpec, ExecEvent, ExecRequest, FilePart, Labels, Object, ObjectKey, Provider,
    ProviderError, Target, TargetCall, Uniqueness, WorkError, WorkspacePath,
};
use issuebox::types::{
    AccountName, ExternalId, Generation, HomeId, InstanceId, IssueId, Mode, Network, ObjectName,
    ObjectState, OnLimit, Resources, SandboxId, Template, TemplateName, Timestamp,
};
use tokio::sync::mpsc;

/// Most looks at an object that is being deleted until it must be gone. Each look may wait.
const LOOKS_MAX: usize = 10_000;

/// A provider under test.
pub struct Suite<'a> {
    /// The provider.
    pub provider: &'a Provider,
    /// A deadline, by the provider's own clock, that is far enough away for all of it.
    pub deadline: Timestamp,
    /// What object names begin with: lower-case letters.
    pub prefix: &'a str,
    /// Whether exec really runs programs and the workspace really keeps files.
    pub does_work: bool,
}

impl Suite<'_> {
    /// Runs everything, one after the other.
    pub async fn run(&self) {
        self.create_of_the_same_sandbox_is_the_same_object().await;
        self.a_name_of_another_sandbox_is_present_and_unchanged().await;
        self.of_many_creates_at_once_one_makes_an_object().await;
        self.start_and_stop_are_idempotent_and_show_their_state().await;
        self.a_forced_stop_and_delete_come_to_the_same_as_others().await;
        self.the_sandbox_id_on_an_object_is_checked().await;
        self.an_unknown_external_id_is_absent().await;
        self.a_deleted_object_is_absent_and_never_its_successor().await;
        self.find_is_by_name_and_by_home_and_list_by_instance().await;
        self.work_needs_a_running_object().await;
        if self.does_work {
            self.a_stop_keeps_the_workspace().await;
            self.a_delete_does_not_keep_the_workspace().await;
        }
    }

    /// `create` again, with the same sandbox id, answers with the same object.
    pub async fn create_of_the_same_sandbox_is_the_same_object(&self) {
        let first = self.make("same", "s1").await;
        assert_eq!(first.state, ObjectState::Running);
        let labels = self.spec("same", "s1").labels;
        assert_eq!(first.labels.as_ref(), Some(&labels), "every label is carried");
        let again = self.make("same", "s1").await;
        assert_eq!(again, first);
        self.provider.lifecycle.stop(self.call(&first)).await.expect("stopped");
        let up_again = self.make("same", "s1").await;
        assert_eq!(up_again, first, "create completes what is there, also where it was down");
        assert_eq!(self.find("same").await, std::slice::from_ref(&first));
        self.remove(&first).await;
    }

    /// `create` under a name that another sandbox has answers *present* and changes nothing.
    pub async fn a_name_of_another_sandbox_is_present_and_unchanged(&self) {
        let first = self.make("taken", "s1").await;
        for state in [ObjectState::Running, ObjectState::Stopped] {
            if state == ObjectState::Stopped {
                self.provider.lifecycle.stop(self.call(&first)).await.expect("stopped");
            }
            let expected = Object { state, ..first.clone() };
            match self.provider.lifecycle.create(self.spec("taken", "s2")).await {
                Err(ProviderError::Present(there)) => assert_eq!(*there, expected),
                other => panic!("{other:?}"),
            }
            assert_eq!(self.find("taken").await, [expected]);
        }
        self.remove(&first).await;
    }

    /// Where names are enforced, creates at once make one object; the others see it.
    pub async fn of_many_creates_at_once_one_makes_an_object(&self) {
        if self.provider.descriptor.uniqueness != Uniqueness::EnforcedNames {
            return;
        }
        let create = |n: usize| {
            let sandbox = format!("s{}", n % 3);
            self.provider.lifecycle.create(self.spec("many", &sandbox))
        };
        let answers = futures_util::future::join_all((0..9).map(create)).await;
        let made: Vec<&Object> = answers.iter().filter_map(|a| a.as_ref().ok()).collect();
        assert!(made.len() >= 3, "all creates of one sandbox succeed: {answers:?}");
        assert!(made.iter().all(|object| *object == made[0]), "{answers:?}");
        for answer in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            let ProviderError::Present(there) = answer else { panic!("{answer:?}") };
            assert_eq!(there.external_id, made[0].external_id);
        }
        assert_eq!(self.find("many").await, [made[0].clone()]);
        self.remove(made[0]).await;
    }

    /// Start and stop bring about a state; being there already is success.
    pub async fn start_and_stop_are_idempotent_and_show_their_state(&self) {
        let object = self.make("updown", "s1").await;
        let up = self.provider.lifecycle.start(self.call(&object)).await.expect("already up");
        assert_eq!(up, object);
        for _ in 0..2 {
            let down = self.provider.lifecycle.stop(self.call(&object)).await.expect("down");
            assert_eq!(down, Object { state: ObjectState::Stopped, ..object.clone() });
        }
        assert_eq!(self.find("updown").await[0].state, ObjectState::Stopped);
        for _ in 0..2 {
            let up = self.provider.lifecycle.start(self.call(&object)).await.expect("up");
            assert_eq!(up, object);
        }
        self.remove(&object).await;
    }

    /// Force is without grace and leads to the same state; an object that is down is removed too.
    pub async fn a_forced_stop_and_delete_come_to_the_same_as_others(&self) {
        let object = self.make("force", "s1").await;
        if self.does_work {
            self.write(&object, "kept").await;
        }
        let forced = || TargetCall { force: true, ..self.call(&object) };
        for _ in 0..2 {
            let down = self.provider.lifecycle.stop(forced()).await.expect("down");
            assert_eq!(down, Object { state: ObjectState::Stopped, ..object.clone() });
        }
        let up = self.provider.lifecycle.start(self.call(&object)).await.expect("up");
        assert_eq!(up, object);
        if self.does_work {
            assert_eq!(self.read(&object).await, Ok("kept".into()), "the workspace is kept");
        }
        for _ in 0..LOOKS_MAX {
            match self.provider.lifecycle.delete(forced()).await {
                Ok(()) => tokio::task::yield_now().await,
                Err(error) => {
                    assert_eq!(error, ProviderError::Absent);
                    break;
                }
            }
        }
        assert_eq!(self.find("force").await, []);
    }

    /// Every call that names an object names the sandbox on it; another's is not touched.
    pub async fn the_sandbox_id_on_an_object_is_checked(&self) {
        let object = self.make("checked", "s1").await;
        let other = Target {
            external_id: object.external_id.clone(),
            expected: SandboxId::trusted(format!("{}-s2", self.prefix)),
        };
        let call = || TargetCall { target: other.clone(), force: false, deadline: self.deadline };
        for error in [
            self.provider.lifecycle.start(call()).await.expect_err("another's"),
            self.provider.lifecycle.stop(call()).await.expect_err("another's"),
            self.provider.lifecycle.delete(call()).await.expect_err("another's"),
        ] {
            let ProviderError::Present(there) = error else { panic!("{error:?}") };
            assert_eq!(*there, object);
        }
        assert!(self.provider.processes.exec(other.clone(), request(&["true"])).await.is_err());
        assert_eq!(
            self.find("checked").await,
            std::slice::from_ref(&object),
            "nothing was changed"
        );
        self.remove(&object).await;
    }

    /// What was never there is absent.
    pub async fn an_unknown_external_id_is_absent(&self) {
        let mut gone = self.make("unknown", "s1").await;
        self.remove(&gone).await;
        for external_id in [gone.external_id.clone(), ExternalId::trusted("no-such-object")] {
            gone.external_id = external_id;
            let absent = Err(ProviderError::Absent);
            assert_eq!(self.provider.lifecycle.start(self.call(&gone)).await, absent);
            assert_eq!(self.provider.lifecycle.stop(self.call(&gone)).await, absent);
            assert_eq!(
                self.provider.lifecycle.delete(self.call(&gone)).await,
                Err(ProviderError::Absent)
            );
        }
        assert_eq!(self.find("unknown").await, []);
    }

    /// A name can be used again once its object is gone; the old external id is never the new one.
    pub async fn a_deleted_object_is_absent_and_never_its_successor(&self) {
        let first = self.make("again", "s1").await;
        self.remove(&first).await;
        // The same sandbox id too: an answer that came late must not hit what came after.
        for sandbox in ["s2", "s1"] {
            let next = self.make("again", sandbox).await;
            assert_ne!(next.external_id, first.external_id);
            for answer in [
                self.provider.lifecycle.delete(self.call(&first)).await.err(),
                self.provider.lifecycle.stop(self.call(&first)).await.err(),
                self.provider.lifecycle.start(self.call(&first)).await.err(),
            ] {
                let is_refused =
                    matches!(answer, Some(ProviderError::Absent | ProviderError::Present(_)));
                assert!(is_refused, "{answer:?}");
            }
            assert_eq!(
                self.find("again").await,
                std::slice::from_ref(&next),
                "the successor is untouched"
            );
            self.remove(&next).await;
        }
    }

    /// `find` sees what has the name or the home, `list` what has the instance.
    pub async fn find_is_by_name_and_by_home_and_list_by_instance(&self) {
        let one = self.make("find-one", "s1").await;
        let mut spec = self.spec("find-two", "s2");
        spec.labels.instance = InstanceId::trusted(format!("{}-other", self.prefix));
        let two = self.provider.lifecycle.create(spec).await.expect("made");
        let key = |name: &str, object: &Object| {
            let labels = object.labels.as_ref().expect("ours");
            let name = ObjectName::trusted(format!("{}-{name}", self.prefix));
            ObjectKey { name, instance: labels.instance.clone(), home: labels.home }
        };
        let find = async |key| self.provider.lifecycle.find(key).await.expect("found");
        assert_eq!(find(key("no-such-name", &one)).await, std::slice::from_ref(&one), "by home");
        assert_eq!(
            find(key("no-such-name", &two)).await,
            std::slice::from_ref(&two),
            "by home and instance"
        );
        let unknown = ObjectKey { home: HomeId(-1), ..key("find-one", &one) };
        assert_eq!(find(unknown).await, std::slice::from_ref(&one), "by name");
        for object in [&one, &two] {
            let instance = object.labels.as_ref().expect("ours").instance.clone();
            let listed = self.provider.lifecycle.list(instance).await.expect("listed");
            assert_eq!(listed, std::slice::from_ref(object));
            self.remove(object).await;
        }
    }

    /// Exec and files need an object that is up, and say so.
    pub async fn work_needs_a_running_object(&self) {
        let object = self.make("work", "s1").await;
        self.provider.lifecycle.stop(self.call(&object)).await.expect("stopped");
        let exec = self.provider.processes.exec(target(&object), request(&["true"])).await;
        assert!(matches!(exec, Err(WorkError::NotRunning)), "{exec:?}");
        let read =
            self.provider.workspace.read_file(target(&object), path("file"), FilePart::Whole).await;
        let refused = matches!(read, Err(WorkError::NotRunning | WorkError::Unsupported(_)));
        assert!(refused, "{read:?}");
        self.provider.lifecycle.start(self.call(&object)).await.expect("started");
        let mut execution = self
            .provider
            .processes
            .exec(target(&object), request(&["true"]))
            .await
            .expect("started");
        let mut last = None;
        while let Some(event) = execution.events.recv().await {
            last = Some(event);
        }
        assert_eq!(last, Some(ExecEvent::Exit { code: 0, timed_out: false }));
        self.remove(&object).await;
    }

    /// What is in the workspace is there after a stop and a start.
    pub async fn a_stop_keeps_the_workspace(&self) {
        let object = self.make("keep", "s1").await;
        self.write(&object, "kept").await;
        self.provider.lifecycle.stop(self.call(&object)).await.expect("stopped");
        self.provider.lifecycle.start(self.call(&object)).await.expect("started");
        assert_eq!(self.read(&object).await, Ok("kept".into()));
        self.remove(&object).await;
    }

    /// What was in a deleted object's workspace is not in its successor's.
    pub async fn a_delete_does_not_keep_the_workspace(&self) {
        let first = self.make("fresh", "s1").await;
        self.write(&first, "old").await;
        self.remove(&first).await;
        let next = self.make("fresh", "s2").await;
        assert_eq!(self.read(&next).await, Err(WorkError::NoSuchFile));
        self.remove(&next).await;
    }

    fn spec(&self, name: &str, sandbox: &str) -> CreateSpec {
        CreateSpec {
            name: ObjectName::trusted(format!("{}-{name}", self.prefix)),
            labels: Labels {
                instance: InstanceId::trusted(format!("{}-instance", self.prefix)),
                account: AccountName::default_account(),
                home: HomeId(41),
                issue: IssueId::parse("test-41").expect("an issue id"),
                sandbox: SandboxId::trusted(format!("{}-{sandbox}", self.prefix)),
                generation: Generation(3),
                mode: Mode::Strong,
            },
            template: Template {
                name: TemplateName::trusted("default"),
                provider: issuebox::types::ProviderName::trusted(self.prefix),
                mode: Mode::Strong,
                resources: Resources { cpu: 1.0, memory_mb: 256, processes: 64, disk_mb: 256 },
                network: Network::None,
                ports: Vec::new(),
                on_limit: OnLimit::Kill,
                workload: issuebox::types::Workload::default(),
            },
            deadline: self.deadline,
        }
    }

    async fn make(&self, name: &str, sandbox: &str) -> Object {
        self.provider.lifecycle.create(self.spec(name, sandbox)).await.expect("made")
    }

    async fn find(&self, name: &str) -> Vec<Object> {
        let CreateSpec { name, labels, .. } = self.spec(name, "s1");
        let key = ObjectKey { name, instance: labels.instance, home: labels.home };
        self.provider.lifecycle.find(key).await.expect("found")
    }

    fn call(&self, object: &Object) -> TargetCall {
        TargetCall { target: target(object), force: false, deadline: self.deadline }
    }

    /// Deletes an object and sees it gone. Until it is, it must be found.
    async fn remove(&self, object: &Object) {
        for _ in 0..LOOKS_MAX {
            match self.provider.lifecycle.delete(self.call(object)).await {
                Ok(()) => tokio::task::yield_now().await,
                Err(ProviderError::Absent) => return,
                Err(other) => panic!("{other:?}"),
            }
        }
        panic!("{} must be gone in the end", object.name);
    }

    async fn write(&self, object: &Object, text: &'static str) {
        let (sender, chunks) = mpsc::channel(1);
        sender.send(Ok(Bytes::from_static(text.as_bytes()))).await.expect("room");
        drop(sender);
        self.provider
            .workspace
            .write_file(target(object), path("dir/file"), chunks)
            .await
            .expect("written");
    }

    async fn read(&self, object: &Object) -> Result<String, WorkError> {
        let mut content = self
            .provider
            .workspace
            .read_file(target(object), path("dir/file"), FilePart::Whole)
            .await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = content.chunks.recv().await {
            bytes.extend(chunk.expect("readable"));
        }
        Ok(String::from_utf8(bytes).expect("text"))
    }
}

fn target(object: &Object) -> Target {
    let labels = object.labels.as_ref().expect("ours");
    Target { external_id: object.external_id.clone(), expected: labels.sandbox.clone() }
}

fn path(path: &str) -> WorkspacePath {
    WorkspacePath::parse(path.as_bytes()).expect("a path")
}

fn request(command: &[&str]) -> ExecRequest {
    ExecRequest {
        command: command.iter().map(ToString::to_string).collect(),
        cwd: None,
        env: Vec::new(),
        stdin: Bytes::new(),
        timeout: None,
    }
}
