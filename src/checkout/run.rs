//! Runs commands of ours in a sandbox.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::CheckoutParts;
use super::commands::ENVIRONMENT;
use crate::engine::{AtWork, Work};
use crate::sandbox::{ExecEvent, ExecRequest, Target};
use crate::types::{ProviderName, SandboxId};

/// What a sandbox's log calls a checkout, in place of a request's id.
pub(super) const CHECKOUT: &str = "checkout";

/// How long one command may take.
const COMMAND_WAIT: Duration = Duration::from_secs(3_600);

/// How much of a command's complaint is kept, in bytes.
const WORDS_LEN_MAX: usize = 2_000;

/// Where commands run: in an object that is up.
#[derive(Clone)]
pub(super) struct CheckoutPlace {
    pub provider: ProviderName,
    pub target: Target,
    /// Keeps a running sandbox from being idle.
    _at_work: Option<Arc<AtWork>>,
}

impl CheckoutPlace {
    /// A sandbox that is not *running* yet.
    pub fn of_object(provider: ProviderName, target: Target) -> Self {
        Self { provider, target, _at_work: None }
    }
}

impl From<Work> for CheckoutPlace {
    fn from(work: Work) -> Self {
        let Work { target, sandbox, at_work } = work;
        Self { provider: sandbox.provider, target, _at_work: Some(at_work) }
    }
}

impl CheckoutParts {
    /// Runs a command; the inner error is what it complained of.
    pub(super) async fn run(
        &self,
        place: &CheckoutPlace,
        sandbox: &SandboxId,
        argv: Vec<String>,
    ) -> Result<Result<(), String>, String> {
        let CheckoutPlace { provider, target, .. } = place;
        let processes = self.processes.get(provider).ok_or("its provider is not open")?;
        let request = ExecRequest {
            command: argv.clone(),
            // The workspace itself, also if the template has commands start elsewhere.
            cwd: Some(".".to_owned()),
            env: ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            stdin: Bytes::new().into(),
            timeout: Some(COMMAND_WAIT),
        };
        let execution = processes.exec(target.clone(), request).await;
        let execution = execution.map_err(|error| error.to_string())?;
        let mut output = self.logs.keep(sandbox, CHECKOUT, &argv, execution);
        let mut words = Vec::new();
        while let Some(event) = output.events.recv().await {
            match event {
                ExecEvent::Stderr(bytes) if words.len() < WORDS_LEN_MAX => {
                    words.extend_from_slice(&bytes);
                }
                ExecEvent::Stdout(_) | ExecEvent::Stderr(_) => {}
                ExecEvent::Exit { code: 0, .. } => return Ok(Ok(())),
                ExecEvent::Exit { timed_out: true, .. } => {
                    return Ok(Err(format!("{} took longer than an hour", argv[0])));
                }
                ExecEvent::Exit { code, .. } => {
                    words.truncate(WORDS_LEN_MAX);
                    let words = String::from_utf8_lossy(&words);
                    let words = crate::types::inert(words.trim()).into_owned();
                    return Ok(Err(match words.is_empty() {
                        true => format!("{} ended with exit code {code}", argv[0]),
                        false => words,
                    }));
                }
            }
        }
        Err("the sandbox went away".to_owned())
    }
}
