//! Asks an agent's program for its version.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::KnownAgent;

/// How long a program may take to say its version.
const VERSION_TIME_MAX: Duration = Duration::from_secs(20);
/// Most bytes of what it says.
const VERSION_LEN_MAX: u64 = 4 * 1024;

/// The version of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramVersion {
    /// The first line of what it says, such as `2.1.332 (Claude Code)`.
    pub text: String,
    /// Whether its adapter was tested with this version.
    pub is_tested: bool,
}

impl ProgramVersion {
    /// Starts a program with `--version` and reads what it says.
    ///
    /// # Errors
    /// Why it did not say its version, for people.
    pub async fn ask(agent: &KnownAgent) -> Result<Self, String> {
        let program = agent.program.file();
        let said = timeout(VERSION_TIME_MAX, said(program)).await;
        let program = program.display();
        let too_long = |_| {
            let seconds = VERSION_TIME_MAX.as_secs();
            format!("{program} --version did not end within {seconds} s")
        };
        let text = said.map_err(too_long)??;
        let is_tested = agent.adapter.is_tested(&text);
        Ok(Self { text, is_tested })
    }
}

async fn said(program: &Path) -> Result<String, String> {
    let shown = program.display();
    let failed = |error: std::io::Error| format!("{shown} cannot be started: {error}");
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
    let mut text = String::new();
    if let Some(output) = child.stdout.take() {
        let mut bytes = Vec::new();
        output.take(VERSION_LEN_MAX).read_to_end(&mut bytes).await.map_err(failed)?;
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    let status = child.wait().await.map_err(failed)?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    match line {
        Some(line) if status.success() => Ok(line.to_owned()),
        Some(_) | None => Err(format!("{shown} --version ended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::built_in;
    use crate::sandbox::GivenProgram;
    use crate::types::AgentName;

    async fn ask(script: &str) -> Result<ProgramVersion, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("claude");
        // By a process of its own: while this one forks for another test, it must not have it open.
        let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$2" && chmod 755 "$2""#;
        let written = std::process::Command::new("/bin/sh")
            .args(["-c", write, "sh", script])
            .arg(&path)
            .status();
        assert!(written.is_ok_and(|status| status.success()));
        let adapter = built_in("claude-code").expect("it is built in");
        let program = given("claude-code", &path);
        ProgramVersion::ask(&KnownAgent { adapter, program, settings: Default::default() }).await
    }

    fn given(agent: &str, path: &Path) -> GivenProgram {
        GivenProgram::new(AgentName::trusted(agent), path).expect("it is there")
    }

    #[tokio::test]
    async fn a_version_is_known_or_the_reason_is_named() {
        let tested = ask("echo; test \"$1\" = --version && echo '2.1.332 (Claude Code)'").await;
        assert_eq!(
            tested,
            Ok(ProgramVersion { text: "2.1.332 (Claude Code)".into(), is_tested: true })
        );
        assert!(ask("echo 9.9.9").await.is_ok_and(|version| !version.is_tested));
        let failed = ask("echo 1.0; exit 3").await;
        assert!(
            failed.as_ref().is_err_and(|why| why.ends_with("ended with exit status: 3")),
            "{failed:?}"
        );
        assert!(ask("exit 0").await.is_err(), "it said nothing");
        let adapter = built_in("codex").expect("it is built in");
        let file = tempfile::NamedTempFile::new().expect("a file");
        let program = given("codex", file.path());
        let removed = KnownAgent { adapter, program, settings: Default::default() };
        drop(file);
        let missing = ProgramVersion::ask(&removed).await;
        assert!(missing.is_err_and(|why| why.contains(" cannot be started")));
    }
}
