//! `issuebox doctor` for this provider: makes one sandbox without a server, runs `true` in it and removes
//! it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{DockerConfig, DockerProvider, DockerSettings};
use crate::clock::{Clock, IdSource, SystemClock, SystemIds};
use crate::sandbox::{
    CreateSpec, Enforcement, ExecEvent, ExecRequest, Labels, Lifecycle, LimitKind, OpenFailure,
    Processes, Target, TargetCall,
};
use crate::types::{
    AccountName, Check, Generation, HomeId, InstanceId, IssueId, Mode, Network, ObjectName,
    OnLimit, ProviderName, Resources, SandboxId, Template, TemplateName, Timestamp, Workload,
};

/// How long making the sandbox may take, with the pull of its image.
const TRIAL_WAIT: Duration = Duration::from_secs(300);

/// What an error has no advice for.
const ADVICE: &str = "see docs/providers/docker.md for what this provider needs";

/// Tries the engine.
pub(super) fn check(what: &str, settings: &DockerSettings) -> Check {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = match builder.worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Check::broken(what, format!("cannot try it: {error}"), ADVICE),
    };
    let tried = runtime.block_on(try_engine(settings));
    runtime.shutdown_timeout(Duration::from_secs(2));
    match tried {
        Ok(Trial { limits, image: Some(image) }) => Check::right(
            what,
            format!(
                "created a sandbox from the image {image}, ran true in it and removed it; {limits}"
            ),
        ),
        Ok(Trial { limits, image: None }) => Check::noted(
            what,
            format!("reached the container engine; {limits}; nothing was created"),
            "set templates.NAME.image or providers.docker.image, so that doctor can create a sandbox \
             from it",
        ),
        Err(error) => {
            let text = error.to_string();
            let (found, remedy) = text.split_once("; ").unwrap_or((&text, ADVICE));
            Check::broken(what, found, remedy)
        }
    }
}

/// The result of a trial.
struct Trial {
    limits: String,
    /// What a sandbox was made from; `None` if none was made.
    image: Option<String>,
}

async fn try_engine(settings: &DockerSettings) -> Result<Trial, OpenFailure> {
    let config = DockerConfig::new(settings.clone());
    let provider = DockerProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds))?;
    let health = provider.health().await;
    if let Some(trouble) = health.trouble {
        return Err(trouble.into());
    }
    let limit = |(limit, how): (&LimitKind, &Enforcement)| format!("{limit} {how}");
    let limits: Vec<String> = health.limits.iter().map(limit).collect();
    let limits = format!("limits: {}", limits.join(", "));
    let Some(image) = settings.image.clone() else { return Ok(Trial { limits, image: None }) };
    let object = provider.create(trial()).await?;
    let labels = object.labels.as_ref().ok_or("the engine lost the labels of a container")?;
    let target =
        Target { external_id: object.external_id.clone(), expected: labels.sandbox.clone() };
    let ran = run_true(&provider, &target).await;
    let removed = provider.delete(TargetCall { target, force: true, deadline: deadline() }).await;
    ran?;
    removed?;
    Ok(Trial { limits, image: Some(image) })
}

/// Runs `true`.
async fn run_true(provider: &DockerProvider, target: &Target) -> Result<(), OpenFailure> {
    let request = ExecRequest {
        command: vec!["true".to_owned()],
        cwd: None,
        env: Vec::new(),
        stdin: Bytes::new().into(),
        timeout: Some(Duration::from_secs(30)),
    };
    let mut execution = provider.exec(target.clone(), request).await?;
    while let Some(event) = execution.events.recv().await {
        if let ExecEvent::Exit { code, .. } = event {
            return match code {
                0 => Ok(()),
                code => Err(format!("true ended with code {code} in a sandbox").into()),
            };
        }
    }
    Err("true did not end in a sandbox".into())
}

fn deadline() -> Timestamp {
    SystemClock.now().after(TRIAL_WAIT)
}

/// A small sandbox of no issue.
fn trial() -> CreateSpec {
    let id = SystemIds.request_id();
    CreateSpec {
        name: ObjectName::trusted(format!("issuebox-doctor-{id}")),
        labels: Labels {
            instance: InstanceId::trusted(format!("doctor-{id}")),
            account: AccountName::default_account(),
            home: HomeId(0),
            issue: IssueId::parse("doctor").expect("an issue id"),
            sandbox: SandboxId::trusted(format!("doctor-{id}")),
            generation: Generation(1),
            mode: Mode::Strong,
        },
        template: Template {
            name: TemplateName::trusted("doctor"),
            provider: ProviderName::trusted("docker"),
            mode: Mode::Strong,
            resources: Resources { cpu: 1.0, memory_mb: 128, processes: 32, disk_mb: 128 },
            network: Network::None,
            ports: Vec::new(),
            on_limit: OnLimit::Kill,
            workload: Workload::default().into(),
        },
        deadline: deadline(),
    }
}
