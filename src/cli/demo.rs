//! `issuebox demo`: shows the product in a minute. It plays how a label makes an agent work, which leads to
//! a pull request ([`story`]). Then it starts a fresh server, sends the deliveries of `fixtures/` over HTTP (in parallel,
//! duplicated, out of order), runs a command in each sandbox and prints a report. The dashboard stays up
//! until Ctrl-C; with `--exit` it does not.
//!
//! # Guarantees
//! The demo has its own data directory, port and secrets, and reads neither the configuration nor the
//! environment, but for the key of `--model` and what says where a container engine is. When it ends it removes its sandboxes and data. If it is killed, the data directory
//! stays behind in the system's temporary directory.

mod flood;
mod report;
mod story;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use reqwest::Url;
use serde_json::{Value, json};

use crate::app::providers::{KINDS, load_config};
use crate::app::{self, RunningServer};
use crate::config::Overrides;
use crate::sandbox::ProviderKind;
use crate::telemetry;
use crate::types::{WorkloadKey, inert};

use super::client::{ApiClient, ApiRequest};
use super::connect::Chosen;
use super::env::EnvVars;
use super::output::Screen;
use super::progress::Spinner;
use super::wire::{self, ApiSandbox};

use report::DemoSandbox;
use story::RealModel;

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Exit after the report instead of leaving the dashboard up
    #[arg(long)]
    exit: bool,
    /// Let the agent ask this model of Anthropic, with the key in ANTHROPIC_API_KEY, which costs money.
    /// Without it a double answers on this machine
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Create the sandboxes with this provider. Without it the first that works on this system
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Create the sandboxes from this image, which needs git, a shell and the usual libraries of C. The
    /// provider docker has no image of its own
    #[arg(long, value_name = "NAME", requires = "provider")]
    image: Option<String>,
}

/// The bot's account in the fixtures; assigning it to an issue triggers a sandbox.
const FIXTURE_BOT: &str = "71000150";
/// How the server is set that gets the fixtures.
const FLOOD_SETTINGS: [(&str, &str); 2] =
    [("ISSUEBOX__TRIGGERS__ASSIGNEE", FIXTURE_BOT), ("ISSUEBOX__GITHUB__BOT_USER_ID", FIXTURE_BOT)];

/// What creates the demo's sandboxes.
#[derive(Clone)]
struct DemoProvider {
    kind: &'static dyn ProviderKind,
    image: Option<String>,
}

impl DemoProvider {
    /// Those to be tried, in this order: the one that the person chose, or all that work without an image.
    fn candidates(name: Option<&str>, image: Option<String>) -> anyhow::Result<Vec<Self>> {
        let needs_image = |kind: &dyn ProviderKind| {
            kind.runs_programs() && kind.supports(WorkloadKey::Image).is_ok()
        };
        let Some(name) = name else {
            let kinds = KINDS.into_iter().filter(|kind| !needs_image(*kind));
            return Ok(kinds.map(|kind| Self { kind, image: None }).collect());
        };
        let kind = KINDS.into_iter().find(|kind| kind.name() == name).with_context(|| {
            let names: Vec<&str> = KINDS.iter().map(|kind| kind.name()).collect();
            format!("there is no provider {}; choose one of {}", inert(name), names.join(", "))
        })?;
        if let (Some(_), Err(why)) = (&image, kind.supports(WorkloadKey::Image)) {
            bail!("--image is not possible with the provider {name}: {why}");
        }
        ensure!(
            image.is_some() || !needs_image(kind),
            "the provider {name} creates sandboxes from an image; name one that has git and a shell: \
             issuebox demo --provider {name} --image IMAGE"
        );
        Ok(vec![Self { kind, image }])
    }

    /// The variables by which a server uses it, with all that it stores below this directory.
    fn settings(&self, data: &Path) -> Vec<(String, String)> {
        let Self { kind, image } = self;
        let variable = |key: &str| {
            format!("ISSUEBOX__PROVIDERS__{}__{}", kind.name(), key).to_ascii_uppercase()
        };
        let within = kind.settings_within(data).into_iter();
        let template = [("PROVIDER", Some(kind.name())), ("IMAGE", image.as_deref())];
        let template = template.into_iter().filter_map(|(key, value)| {
            Some((format!("ISSUEBOX__TEMPLATES__DEFAULT__{key}"), value?.to_owned()))
        });
        template.chain(within.map(|(key, value)| (variable(key), value))).collect()
    }
}

pub(super) fn run(args: DemoArgs, env: &EnvVars) -> anyhow::Result<ExitCode> {
    let _telemetry = telemetry::init("error")?;
    let candidates = DemoProvider::candidates(args.provider.as_deref(), args.image)?;
    let name = format!("issuebox-demo-{}", uuid::Uuid::now_v7().simple());
    let data = std::env::temp_dir().join(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let real_model = RealModel::chosen(args.model, env)?;
    let (screen, stays) = (Screen::new(env), !args.exit);
    let demo = Demo { screen, data: data.clone(), stays, real_model, candidates };
    let result = runtime.block_on(demo.play());
    let removed = std::fs::remove_dir_all(&data);
    let code = result?;
    removed.with_context(|| format!("cannot remove {}", data.display()))?;
    Ok(code)
}

struct Demo {
    screen: Screen,
    data: PathBuf,
    stays: bool,
    real_model: Option<RealModel>,
    candidates: Vec<DemoProvider>,
}

impl Demo {
    async fn play(mut self) -> anyhow::Result<ExitCode> {
        let (running, client, provider) = self.start().await?;
        let kind = provider.kind;
        let played = match story::obstacle(kind) {
            None => {
                let model = self.real_model.take();
                story::play(&mut self.screen, &self.data, &provider, model).await
            }
            Some(why) => {
                let left_out = "The part from a label to a pull request is left out";
                self.screen.line(&format!("{left_out}: {}.\n", inert(&why)))?;
                Ok(true)
            }
        };
        let holds = match played {
            Ok(holds) => holds,
            Err(error) => {
                running.stop()?;
                return Err(error);
            }
        };
        let ended = tokio::select! {
            result = self.show(&running, &client, kind) => result,
            signal = tokio::signal::ctrl_c() => signal.map(|()| ExitCode::SUCCESS).map_err(Into::into),
        };
        let cleaned = clean(&client).await;
        running.stop()?;
        cleaned?;
        ended.map(|code| if holds { code } else { ExitCode::FAILURE })
    }

    /// A server with the first provider that works on this system.
    async fn start(&mut self) -> anyhow::Result<(RunningServer, ApiClient, DemoProvider)> {
        let mut left = std::mem::take(&mut self.candidates).into_iter();
        let mut tried = left.next().context("there is a provider")?;
        loop {
            let (running, client) = server(&self.data, &tried, &FLOOD_SETTINGS)?;
            let system = client.call(ApiRequest::get(&["system"])).await?;
            let providers = system.data()["providers"].as_array().into_iter().flatten();
            let mut errors = providers.filter_map(|provider| provider["trouble"].as_str());
            let Some(error) = errors.next() else { return Ok((running, client, tried)) };
            running.stop()?;
            let name = tried.kind.name();
            let Some(next) = left.next() else {
                bail!("the provider {name} does not work on this system: {}", inert(error));
            };
            self.screen.line(&format!(
                "The provider {name} does not work on this system, so the demo uses {}:\n  {}\n",
                next.kind.name(),
                inert(error)
            ))?;
            tried = next;
        }
    }

    async fn show(
        &mut self,
        running: &RunningServer,
        client: &ApiClient,
        kind: &dyn ProviderKind,
    ) -> anyhow::Result<ExitCode> {
        let url = format!("http://{}", running.address);
        self.screen
            .line(&format!("A fresh server at {url}, its provider is {}.\n", kind.name()))?;
        let secret = running.secrets.webhook_secrets.first().context("a server has a secret")?;
        let flood = flood::Flood::new(secret);
        self.screen.line(&format!("{}.", flood.describe()))?;
        let answers = {
            let _spinner = Spinner::start("sending", true);
            flood.send(&url).await?
        };
        self.screen.line(&format!("{}.\n", answers.describe()))?;
        let work = {
            let spinner = Spinner::start("waiting for the sandboxes", true);
            work_in_all(client, kind, &spinner).await?
        };
        let table = report::table(&self.screen, &answers, &work);
        self.screen.line(&table)?;
        let verdict = report::verdict(&answers, &work);
        self.screen.line(&format!("\n{}", verdict.words))?;
        if self.stays {
            self.screen.line(&format!(
                "\nThe dashboard is at {url}/; log in with the token {}\n\
                 Press Ctrl-C to end the demo and remove everything it created.",
                running.secrets.admin_token.expose()
            ))?;
            tokio::signal::ctrl_c().await?;
        }
        Ok(if verdict.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Starts a server with these variables as well. Each provider has its own data directory, because a
/// server that just ended may still have its one locked.
fn server(
    data: &Path,
    provider: &DemoProvider,
    more: &[(&str, impl AsRef<str>)],
) -> anyhow::Result<(RunningServer, ApiClient)> {
    let data = data.join(provider.kind.name());
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), value.as_ref().to_owned()));
    let env = provider.settings(&data).into_iter().chain(more);
    let overrides = Overrides { listen: Some("127.0.0.1:0".into()), data: Some(data) };
    let running = app::start(load_config(None, env, overrides)?.config)?;
    let url = Url::parse(&format!("http://{}", running.address))?;
    let client = ApiClient::new(Chosen::local(url, running.secrets.admin_token.clone()))?;
    Ok((running, client))
}

/// Lists the sandboxes.
async fn sandboxes(client: &ApiClient, deleted: bool) -> anyhow::Result<Vec<ApiSandbox>> {
    let call = ApiRequest::get(&["sandboxes"])
        .query("limit", Some(200))
        .query("deleted", deleted.then_some("true"));
    Ok(wire::read(client.call(call).await?.data())?)
}

/// Waits until no sandbox is changing, and runs a command in each one that runs.
async fn work_in_all(
    client: &ApiClient,
    kind: &dyn ProviderKind,
    spinner: &Spinner,
) -> anyhow::Result<Vec<DemoSandbox>> {
    let mut all = Vec::new();
    for sandbox in sandboxes(client, true).await? {
        spinner.set(&format!("waiting for {}", sandbox.name));
        let call = ApiRequest::get(&["sandboxes", &sandbox.id]).query("until", Some("settled"));
        let settled: ApiSandbox = wire::read(client.call(call.wait(Some(60))).await?.data())?;
        let said = match settled.phase.as_deref() {
            Some("running") => Some(command_in(client, &settled, kind).await?),
            Some(_) | None => None,
        };
        all.push(DemoSandbox { sandbox: settled, said });
    }
    Ok(all)
}

/// Runs a command in a sandbox and returns its output; a provider that runs no programs echoes its
/// arguments.
async fn command_in(
    client: &ApiClient,
    sandbox: &ApiSandbox,
    kind: &dyn ProviderKind,
) -> anyhow::Result<String> {
    let script = "echo \"I am uid $(id -u), and I see $(ls -d /proc/[0-9]* | wc -l) processes\"";
    let command = match kind.runs_programs() {
        true => json!(["sh", "-c", script]),
        false => json!(["echo", "hello", "from", sandbox.issue()]),
    };
    let call =
        ApiRequest::post(&["sandboxes", &sandbox.id, "exec"]).json(json!({ "command": command }));
    let answer = client.call(call).await?;
    let text = |name: &str| answer.data()[name].as_str().unwrap_or_default().trim().to_owned();
    Ok(match answer.data()["exitCode"].as_i64() {
        Some(0) => text("stdout"),
        Some(_) | None => format!("it failed: {}", text("stderr")),
    })
}

/// Removes every sandbox, so that the demo leaves nothing on this machine.
async fn clean(client: &ApiClient) -> anyhow::Result<()> {
    let calls = sandboxes(client, false).await?.into_iter().map(|sandbox| async move {
        client.call(ApiRequest::delete(&["sandboxes", &sandbox.id]).wait(Some(30))).await
    });
    let ended: Result<Vec<_>, _> =
        futures_util::future::join_all(calls).await.into_iter().collect();
    ended.context("cannot remove a sandbox")?;
    Ok(())
}

/// A field of a payload, by its path.
fn field<'a>(payload: &'a Value, pointer: &str) -> Option<&'a Value> {
    payload.pointer(pointer).filter(|value| !value.is_null())
}
