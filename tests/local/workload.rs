//! What a template says of a sandbox's environment, secrets, directory and scratch space.

use std::collections::BTreeMap;

use issuebox::sandbox::{CreateSpec, ExecRequest, Lifecycle, ProviderError, WorkError};
use issuebox::types::{NamedSecrets, Secret, SecretName, Workload};

use crate::common::{Local, Sandbox, call, open, request, spec, target};

const SECRET: &str = "hush-3141592653";

fn secrets(value: &str) -> BTreeMap<SecretName, Secret> {
    BTreeMap::from([(SecretName::trusted("npm"), Secret::new(value))])
}

fn with(name: &str, workload: Workload) -> CreateSpec {
    let mut spec = spec(name, name);
    spec.template.workload = workload.into();
    spec
}

fn workload() -> Workload {
    Workload {
        env: BTreeMap::from([("PLAIN".into(), "a value".into())]),
        secrets: BTreeMap::from([("NPM_TOKEN".into(), SecretName::trusted("npm"))]),
        working_dir: Some("src/app".into()),
        ..Workload::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_the_template_s_environment_and_directory() {
    let named = NamedSecrets::new(secrets(SECRET));
    let Some(local) = Local::with(|config| config.secrets = named.clone()).await else { return };
    let object = local.provider.create(with("workload", workload())).await.expect("made");
    let sandbox = Sandbox { provider: &local.provider, target: target(&object) };
    let script = "echo $PLAIN $NPM_TOKEN; pwd";
    let shown = |secret: &str| format!("a value {secret}\n/workspace/src/app\n");
    assert_eq!(sandbox.sh(script).await, shown(SECRET));
    let own = ExecRequest {
        cwd: Some("/tmp".into()),
        env: vec![("PLAIN".into(), "own".into())],
        ..request(&["sh", "-c", script])
    };
    assert_eq!(sandbox.run(own).await.stdout, format!("own {SECRET}\n/tmp\n"));

    // No file of the provider holds the value, and the next start finds everything again.
    let found = std::process::Command::new("grep")
        .args(["-raF", SECRET])
        .arg(local.dir.path())
        .output()
        .expect("grep is there");
    assert!(found.stdout.is_empty(), "{found:?}");
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    named.replace(secrets("rotated"));
    local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(sandbox.sh(script).await, shown("rotated"), "at the next command");

    named.replace(BTreeMap::new());
    let error = sandbox.exec(request(&["true"])).await.expect_err("it has no secret");
    let why = "its template needs the secret npm; add [secrets.npm] to the configuration";
    assert_eq!(error, WorkError::CannotStart(why.into()));
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    let error = local.provider.start(call(&sandbox.target)).await.expect_err("nor when it starts");
    assert_eq!(error, ProviderError::Refused(why.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_provider_knows_the_environment_and_the_scratch_space() {
    let Some(Local { provider, dir }) = Local::new().await else { return };
    let workload = Workload {
        secrets: BTreeMap::new(),
        options: BTreeMap::from([("scratch_mb".into(), "20".into())]),
        ..workload()
    };
    let object = provider.create(with("again", workload)).await.expect("made");
    let script = "echo $PLAIN; pwd; df -m /tmp | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2";
    let before = Sandbox { provider: &provider, target: target(&object) }.sh(script).await;
    assert!(before.starts_with("a value\n/workspace/src/app\n"), "{before}");
    let size: u32 = before.lines().last().and_then(|size| size.parse().ok()).expect("a size");
    assert!((20..=40).contains(&size), "{before}");
    drop(provider);
    let provider = open(dir.path());
    provider.start(call(&target(&object))).await.expect("started");
    let after = Sandbox { provider: &provider, target: target(&object) }.sh(script).await;
    assert_eq!(after, before);
}
