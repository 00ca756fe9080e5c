//! Commands in sandboxes: each is the one command of a toolbox session, run by a script that keeps its
//! output in files, so that any server finds it again by its number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use reqwest::Method;
use tokio::sync::mpsc;

use super::api::CALL_WAIT;
use super::output::{ReadFailure, follow};
use super::shell::Script;
use super::toolbox::Toolbox;
use super::wire::PreviewUrl;
use super::{DaytonaParts, DaytonaProvider, terminal};
use crate::sandbox::{
    ExecRequest, Execution, HttpAccess, OUTPUT_KEPT_MAX, Offset, Overflow, PortAccess, ProcessExit,
    ProcessId, ProcessOutput, ProcessSpec, Processes, STDIN_CHUNK_MAX, Signal, StdinMode, Target,
    Terminal, TerminalRequest, WorkError, exec_by_spawn,
};
use crate::types::SecretName;

/// Events that wait for a reader, each of at most 64 KiB.
const EVENTS_LEN: usize = 2;
/// How often the start of a process is waited for: twenty seconds each time.
const START_WAITS: usize = 3;

/// The session of a process.
fn session_of(number: u64) -> String {
    format!("issuebox-{number}")
}

impl DaytonaParts {
    /// Ends the session of a process that has ended. One that stays costs an idle shell.
    pub(super) async fn end_session(&self, toolbox: &Toolbox, number: u64) {
        if let Err(failure) = toolbox.delete_session(&session_of(number)).await {
            tracing::debug!(error = failure.words(), number, "a session in a sandbox stays");
        }
    }

    /// The toolbox of a target, for a process of it.
    async fn of_process(&self, target: &Target, id: &ProcessId) -> Result<Toolbox, WorkError> {
        let toolbox = self.toolbox(target).await?;
        if id.sandbox == target.expected { Ok(toolbox) } else { Err(WorkError::NoSuchProcess) }
    }

    /// Runs a script about a process until it has something to say.
    async fn ask(
        &self,
        target: &Target,
        toolbox: &Toolbox,
        script: Script,
        arguments: &[&str],
    ) -> Result<String, WorkError> {
        loop {
            match toolbox.run(script, arguments).await {
                Ok(Some(printed)) if printed.starts_with("!none") => {
                    return Err(WorkError::NoSuchProcess);
                }
                Ok(Some(printed)) => return Ok(printed),
                // The sandbox may have gone, and the process with it.
                Ok(None) => drop(self.toolbox(target).await?),
                Err(failure) => return Err(self.work_error(target, failure).await),
            }
        }
    }

    async fn read_error(&self, target: &Target, failure: ReadFailure) -> WorkError {
        match failure {
            ReadFailure::NoProcess => WorkError::NoSuchProcess,
            ReadFailure::Call(failure) => self.work_error(target, failure).await,
        }
    }

    /// The variables of a command: the template's secrets, then what the caller adds.
    pub(super) fn variables(
        &self,
        toolbox: &Toolbox,
        env: &[(String, String)],
    ) -> Result<Vec<String>, WorkError> {
        let names: BTreeMap<String, SecretName> = toolbox
            .secrets
            .iter()
            .map(|(variable, name)| (variable.clone(), SecretName::trusted(name.clone())))
            .collect();
        let secrets = self.config.secrets.resolve(&names).map_err(|name| {
            WorkError::CannotStart(format!("the secret {name} is not in [secrets] any more"))
        })?;
        let secrets = secrets.into_iter().map(|(name, secret)| (name, secret.expose().to_owned()));
        let all = secrets.chain(env.iter().cloned());
        all.map(|(name, value)| match name.is_empty() || name.contains('=') {
            true => Err(WorkError::CannotStart(format!("{name:?} is no name of a variable"))),
            false => Ok(format!("{name}={value}")),
        })
        .collect()
    }

    /// The command that runs a process in its session.
    fn run_command(
        &self,
        toolbox: &Toolbox,
        number: u64,
        spec: &ProcessSpec,
    ) -> Result<String, WorkError> {
        let variables = self.variables(toolbox, &spec.env)?;
        let overflow = match spec.overflow {
            Overflow::DropOldest => "drop",
            Overflow::Wait => "wait",
        };
        let input = match spec.stdin {
            StdinMode::Empty => "empty",
            StdinMode::Open => "open",
        };
        let limit = spec.timeout.map(|limit| format!("{:.3}", limit.as_secs_f64()));
        let dir = toolbox.dir_of(spec.cwd.as_deref());
        let keep = spec.keep.min(OUTPUT_KEPT_MAX).to_string();
        let (number, count) = (number.to_string(), variables.len().to_string());
        let limit = limit.unwrap_or_default();
        let tag = spec.tag.as_deref().unwrap_or_default();
        let mut arguments: Vec<&str> =
            vec![&number, &keep, overflow, input, &limit, &dir, tag, &count];
        arguments.extend(variables.iter().map(String::as_str));
        arguments.extend(spec.command.iter().map(String::as_str));
        if arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(WorkError::CannotStart("the command has a NUL byte".into()));
        }
        Ok(Script::Run.command(&toolbox.workspace, &arguments))
    }

    /// Waits until a process runs.
    async fn started(
        &self,
        target: &Target,
        toolbox: &Toolbox,
        number: u64,
    ) -> Result<(), WorkError> {
        let waiter = self.ids.request_id();
        for _ in 0..START_WAITS {
            let asked = toolbox.run(Script::Wait, &[&number.to_string(), &waiter]).await;
            let printed = match asked {
                Ok(Some(printed)) => printed,
                Ok(None) => continue,
                Err(failure) => return Err(self.work_error(target, failure).await),
            };
            return match printed.trim().split_once(' ') {
                None if printed.trim() == "started" => Ok(()),
                Some(("fail", why)) => Err(cannot_start(why)),
                Some(_) | None => Err(cannot_start("")),
            };
        }
        Err(WorkError::Broken("the command did not start in time".into()))
    }
}

/// Why a command did not start, by what a script says of it.
pub(super) fn cannot_start(why: &str) -> WorkError {
    match why.split_once(' ') {
        Some(("none", program)) => WorkError::CommandNotFound(format!("{program}: not found")),
        Some(("dir", dir)) => WorkError::CannotStart(format!("there is no directory {dir}")),
        Some(("exec", program)) => WorkError::CannotStart(format!("{program} cannot be executed")),
        Some(_) | None => WorkError::Broken("the sandbox did not say whether it runs".into()),
    }
}

#[async_trait]
impl Processes for DaytonaProvider {
    async fn spawn(&self, target: Target, spec: ProcessSpec) -> Result<ProcessId, WorkError> {
        let toolbox = self.toolbox(&target).await?;
        // Time only grows, so no number comes twice, also after a restart of the server.
        let number = self.ids.unix_ns().unsigned_abs();
        let command = self.run_command(&toolbox, number, &spec)?;
        if let Err(failure) = toolbox.start_session(&session_of(number), &command).await {
            return Err(self.work_error(&target, failure).await);
        }
        let started = self.started(&target, &toolbox, number).await;
        if started.is_err() {
            self.end_session(&toolbox, number).await;
        }
        started.map(|()| ProcessId { sandbox: target.expected, number })
    }

    async fn tagged(&self, target: Target, tag: &str) -> Result<Option<ProcessId>, WorkError> {
        let toolbox = self.toolbox(&target).await?;
        let printed = self.ask(&target, &toolbox, Script::Tagged, &[tag]).await?;
        let number = printed.trim().strip_prefix("tagged").map(str::trim);
        match number {
            Some("") => Ok(None),
            Some(number) => match number.parse() {
                Ok(number) => Ok(Some(ProcessId { sandbox: target.expected, number })),
                Err(_) => Err(WorkError::Broken("the sandbox named no process".into())),
            },
            None => Err(WorkError::Broken("the sandbox did not say what it found".into())),
        }
    }

    async fn attach(
        &self,
        target: Target,
        id: ProcessId,
        from: Offset,
    ) -> Result<ProcessOutput, WorkError> {
        let toolbox = self.of_process(&target, &id).await?;
        let waiter = self.ids.request_id();
        let first = match toolbox.read_output(id.number, from.0, &waiter, false).await {
            Ok(first) => first.unwrap_or_default(),
            Err(failure) => return Err(self.read_error(&target, failure).await),
        };
        if first.next < from.0 {
            return Err(WorkError::OutOfRange { size: first.next });
        }
        let (reader, events) = mpsc::channel(EVENTS_LEN);
        tokio::spawn(follow(self.clone(), toolbox, (target, id), (from, first), reader));
        Ok(ProcessOutput { events })
    }

    async fn write_stdin(
        &self,
        target: Target,
        id: ProcessId,
        bytes: Bytes,
    ) -> Result<(), WorkError> {
        let toolbox = self.of_process(&target, &id).await?;
        if bytes.len() > STDIN_CHUNK_MAX {
            return Err(WorkError::Broken("more input than one call takes".into()));
        }
        let (number, waiter) = (id.number.to_string(), self.ids.request_id());
        let text = BASE64_STANDARD.encode(&bytes);
        let arguments = [number.as_str(), &waiter, &text];
        let printed = self.ask(&target, &toolbox, Script::Write, &arguments).await?;
        if printed.starts_with("!closed") { Err(WorkError::StdinClosed) } else { Ok(()) }
    }

    async fn close_stdin(&self, target: Target, id: ProcessId) -> Result<(), WorkError> {
        let toolbox = self.of_process(&target, &id).await?;
        let arguments = [&id.number.to_string(), "", "close"];
        self.ask(&target, &toolbox, Script::Write, &arguments).await.map(drop)
    }

    async fn signal(&self, target: Target, id: ProcessId, signal: Signal) -> Result<(), WorkError> {
        let toolbox = self.of_process(&target, &id).await?;
        let arguments = [&id.number.to_string(), signal.as_str()];
        self.ask(&target, &toolbox, Script::Signal, &arguments).await.map(drop)
    }

    async fn wait(&self, target: Target, id: ProcessId) -> Result<ProcessExit, WorkError> {
        let toolbox = self.of_process(&target, &id).await?;
        let waiter = self.ids.request_id();
        loop {
            match toolbox.read_exit(id.number, &waiter).await {
                Ok(Some(exit)) => return Ok(exit),
                Ok(None) => drop(self.toolbox(&target).await?),
                Err(failure) => return Err(self.read_error(&target, failure).await),
            }
        }
    }

    async fn exec(&self, target: Target, request: ExecRequest) -> Result<Execution, WorkError> {
        exec_by_spawn(Arc::new(self.clone()), target, request).await
    }

    async fn terminal(
        &self,
        target: Target,
        request: TerminalRequest,
    ) -> Result<Terminal, WorkError> {
        terminal::open(self.clone(), target, request).await
    }

    async fn port(&self, target: Target, port: u16) -> Result<PortAccess, WorkError> {
        self.toolbox(&target).await?;
        let id = target.external_id.as_str();
        let asked = async {
            let url = self.url(&["sandbox", id, "ports", &port.to_string(), "preview-url"])?;
            let request = self.http.request(Method::GET, url.as_str());
            self.http.json::<PreviewUrl>(request, CALL_WAIT).await
        };
        match asked.await {
            Ok(preview) => Ok(PortAccess::Http(HttpAccess {
                base_url: preview.url.trim_end_matches('/').to_owned(),
                headers: vec![
                    ("x-daytona-preview-token".into(), preview.token),
                    ("x-daytona-skip-preview-warning".into(), "true".into()),
                ],
            })),
            Err(failure) => Err(self.work_error(&target, failure).await),
        }
    }
}

/// The longest time that an upload may take: a gigabyte at a slow line's speed.
pub(super) const UPLOAD_WAIT: Duration = Duration::from_secs(3_600);
