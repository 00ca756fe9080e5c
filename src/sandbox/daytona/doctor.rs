//! `issuebox doctor` for this provider: reaches Daytona, makes a sandbox, runs `true` in it, deletes it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{DaytonaConfig, DaytonaProvider, DaytonaSettings};
use crate::clock::{Clock, IdSource, SystemClock, SystemIds};
use crate::sandbox::{
    CreateSpec, ExecEvent, ExecRequest, Labels, Lifecycle, Processes, ProviderError, Target,
    TargetCall,
};
use crate::types::{
    AccountName, Check, Generation, HomeId, InstanceId, IssueId, Mode, NamedSecrets, Network,
    ObjectName, OnLimit, ProviderName, Resources, Template, TemplateName, Workload,
};

/// How long each step may take. A region that has not seen the snapshot yet pulls it first.
const STEP_WAIT: Duration = Duration::from_secs(120);

/// Checks for real, since settings alone do not predict a failure.
pub(super) fn check(what: &str, settings: &DaytonaSettings) -> Check {
    let Some(key) = settings.key.clone() else {
        let remedy = "set providers.daytona.key_file to a file with an API key";
        return Check::broken(what, "it has no API key", remedy);
    };
    let config = DaytonaConfig::with(settings, key, NamedSecrets::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let tried = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let provider = DaytonaProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds))
            .map_err(|error| error.to_string())?;
        runtime.block_on(try_it(&provider))
    });
    match tried {
        Ok(()) => Check::right(what, "made a sandbox, ran `true` in it and deleted it"),
        Err(found) => {
            let remedy = "see docs/providers/daytona.md for what this provider needs";
            let (found, remedy) = found.split_once("; ").unwrap_or((&found, remedy));
            Check::broken(what, found, remedy)
        }
    }
}

async fn try_it(provider: &DaytonaProvider) -> Result<(), String> {
    if let Some(trouble) = provider.health().await.trouble {
        return Err(trouble);
    }
    let spec = spec();
    let expected = spec.labels.sandbox.clone();
    let key = crate::sandbox::ObjectKey {
        name: spec.name.clone(),
        instance: spec.labels.instance.clone(),
        home: spec.labels.home,
    };
    let tried = match provider.create(spec).await {
        Ok(object) => {
            let target = Target { external_id: object.external_id, expected: expected.clone() };
            run_true(provider, target).await
        }
        Err(error) => Err(format!("cannot make a sandbox: {error}")),
    };
    // Whatever came of it, nothing stays.
    let left = provider.find(key).await.map_err(|error| error.to_string())?;
    for object in left {
        let target = Target { external_id: object.external_id, expected: expected.clone() };
        let deadline = SystemClock.now().after(STEP_WAIT);
        match provider.delete(TargetCall { target, force: true, deadline }).await {
            Ok(()) | Err(ProviderError::Absent) => {}
            Err(error) => {
                return Err(format!("cannot delete the sandbox {}: {error}", object.name));
            }
        }
    }
    tried
}

async fn run_true(provider: &DaytonaProvider, target: Target) -> Result<(), String> {
    let request = ExecRequest {
        command: vec!["true".into()],
        cwd: None,
        env: Vec::new(),
        stdin: Bytes::new().into(),
        timeout: Some(STEP_WAIT),
    };
    let cannot = |error: String| format!("cannot run `true` in a sandbox: {error}");
    let execution = provider.exec(target, request).await;
    let mut execution = execution.map_err(|error| cannot(error.to_string()))?;
    while let Some(event) = execution.events.recv().await {
        match event {
            ExecEvent::Exit { code: 0, .. } => return Ok(()),
            ExecEvent::Exit { code, .. } => return Err(cannot(format!("it ended with {code}"))),
            ExecEvent::Stdout(_) | ExecEvent::Stderr(_) => {}
        }
    }
    Err(cannot("it did not end".into()))
}

/// A small sandbox of no issue.
fn spec() -> CreateSpec {
    let own = SystemIds.request_id();
    CreateSpec {
        name: ObjectName::trusted(format!("issuebox-doctor-{own}")),
        labels: Labels {
            instance: InstanceId::trusted(format!("doctor-{own}")),
            account: AccountName::default_account(),
            home: HomeId(0),
            issue: IssueId::from_github(0),
            sandbox: SystemIds.sandbox_id(),
            generation: Generation(1),
            mode: Mode::Strong,
        },
        template: Template {
            name: TemplateName::trusted("doctor"),
            provider: ProviderName::trusted("daytona"),
            mode: Mode::Strong,
            resources: Resources { cpu: 1.0, memory_mb: 1024, processes: 64, disk_mb: 1024 },
            network: Network::None,
            ports: Vec::new(),
            on_limit: OnLimit::Kill,
            workload: Workload::default().into(),
        },
        deadline: SystemClock.now().after(STEP_WAIT),
    }
}
