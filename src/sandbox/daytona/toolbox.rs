//! The toolbox of one running sandbox: scripts, sessions, uploads and downloads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, Response};
use serde::{Deserialize, Serialize};

use super::api::{CALL_WAIT, HttpCaller};
use super::failure::CallFailure;
use super::shell::Script;
use crate::sandbox::TerminalSize;
use crate::web_socket::WebSocket;

/// How long the toolbox lets a script wait for news. Proxies on the way close quiet connections after a
/// minute.
const SCRIPT_SECONDS: u64 = 20;
/// How much longer its answer may take to arrive.
const ANSWER_WAIT: Duration = Duration::from_secs(15);

/// The toolbox of one sandbox.
#[derive(Clone)]
pub(super) struct Toolbox {
    pub http: Arc<HttpCaller>,
    /// Its address, without a slash at the end.
    pub url: String,
    /// The workspace, as scripts are given it.
    pub workspace: Arc<str>,
    /// The names of the secrets that commands have, by variable.
    pub secrets: BTreeMap<String, String>,
    /// Where commands begin, if not in the workspace.
    pub working_dir: Option<String>,
}

/// `ExecuteRequest`
#[derive(Serialize)]
struct ExecuteBody<'a> {
    command: &'a str,
    timeout: u64,
}

/// `ExecuteResponse`
#[derive(Deserialize)]
struct ExecuteAnswer {
    result: String,
}

/// `CreateSessionRequest`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionBody<'a> {
    session_id: &'a str,
}

/// `PtyCreateRequest`
#[derive(Serialize)]
pub(super) struct TerminalBody<'a> {
    pub id: &'a str,
    pub cwd: &'a str,
    pub envs: BTreeMap<&'a str, String>,
    pub cols: u16,
    pub rows: u16,
}

/// `PtyResizeRequest`
#[derive(Serialize)]
struct ResizeBody {
    cols: u16,
    rows: u16,
}

/// `SessionExecuteRequest`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionCommand<'a> {
    command: &'a str,
    run_async: bool,
}

impl Toolbox {
    /// Runs a script to its end and returns what it printed, without the dot at its end. `None`: it
    /// waited for news in vain.
    ///
    /// # Errors
    /// [`CallFailure`], also if the script did not come to its end.
    pub async fn run(
        &self,
        script: Script,
        arguments: &[&str],
    ) -> Result<Option<String>, CallFailure> {
        let command = script.command(&self.workspace, arguments);
        let body = ExecuteBody { command: &command, timeout: SCRIPT_SECONDS };
        let request = self.http.post(&format!("{}/process/execute", self.url), &body);
        let wait = Duration::from_secs(SCRIPT_SECONDS) + ANSWER_WAIT;
        let answer = match self.http.json::<ExecuteAnswer>(request, wait).await {
            Err(CallFailure::Status { status: 408, .. }) => return Ok(None),
            answer => answer?,
        };
        match answer.result.trim_end().strip_suffix('.') {
            Some(printed) => Ok(Some(printed.to_owned())),
            None => Err(CallFailure::NoAnswer("a script in the sandbox broke off".into())),
        }
    }

    /// Starts a command as the only one of a new session.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn start_session(&self, session: &str, command: &str) -> Result<(), CallFailure> {
        let url = format!("{}/process/session", self.url);
        let request = self.http.post(&url, &SessionBody { session_id: session });
        self.http.send(request, CALL_WAIT).await?;
        let body = SessionCommand { command, run_async: true };
        let request = self.http.post(&format!("{url}/{session}/exec"), &body);
        self.http.send(request, CALL_WAIT).await.map(drop)
    }

    /// Ends a session. One that is not there any more is success.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn delete_session(&self, session: &str) -> Result<(), CallFailure> {
        self.delete(&format!("{}/process/session/{session}", self.url)).await
    }

    async fn delete(&self, url: &str) -> Result<(), CallFailure> {
        match self.http.send(self.http.request(Method::DELETE, url), CALL_WAIT).await {
            Err(failure) if !failure.is_absence() => Err(failure),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Starts a shell at a terminal.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn create_terminal(&self, body: &TerminalBody<'_>) -> Result<(), CallFailure> {
        let request = self.http.post(&format!("{}/process/pty", self.url), body);
        self.http.send(request, CALL_WAIT).await.map(drop)
    }

    /// Connects to a terminal.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn connect_terminal(&self, id: &str) -> Result<WebSocket, CallFailure> {
        self.http.web_socket(&format!("{}/process/pty/{id}/connect", self.url)).await
    }

    /// Gives a terminal another size.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn resize_terminal(&self, id: &str, size: TerminalSize) -> Result<(), CallFailure> {
        let body = ResizeBody { cols: size.columns, rows: size.rows };
        let request = self.http.post(&format!("{}/process/pty/{id}/resize", self.url), &body);
        self.http.send(request, CALL_WAIT).await.map(drop)
    }

    /// Ends the shell at a terminal. One that is not there any more is success.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn delete_terminal(&self, id: &str) -> Result<(), CallFailure> {
        self.delete(&format!("{}/process/pty/{id}", self.url)).await
    }

    /// Where a command begins, as scripts are given it. The template's own directory is made.
    pub fn dir_of(&self, cwd: Option<&str>) -> String {
        match (cwd, &self.working_dir) {
            (Some(cwd), _) if cwd.starts_with('+') => format!("./{cwd}"),
            (Some(cwd), _) => cwd.to_owned(),
            (None, Some(dir)) => format!("+{dir}"),
            (None, None) => String::new(),
        }
    }

    /// Begins to read a file.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn download(&self, path: &[u8]) -> Result<Response, CallFailure> {
        let url = format!("{}/files/download?path={}", self.url, in_query(path));
        self.http.send(self.http.request(Method::GET, &url), CALL_WAIT).await
    }

    /// Writes a file; returns once all of it is there.
    ///
    /// # Errors
    /// [`CallFailure`]
    pub async fn upload(
        &self,
        path: &[u8],
        body: reqwest::Body,
        wait: Duration,
    ) -> Result<(), CallFailure> {
        let url = format!("{}/files/upload-v2?path={}", self.url, in_query(path));
        let request = self.http.request(Method::POST, &url);
        let request = request.header("content-type", "application/octet-stream").body(body);
        self.http.send(request, wait).await.map(drop)
    }
}

/// A path as the value of a query, byte for byte.
fn in_query(path: &[u8]) -> String {
    percent_encoding::percent_encode(path, percent_encoding::NON_ALPHANUMERIC).to_string()
}
