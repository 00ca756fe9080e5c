//! Runs the commands of the documents.
//!
//! Every fenced block of the language `sh` or `console` is run, in the order of its document and in
//! one shell for each document, in a network namespace and a home directory of its own. A `console`
//! block shows its output, in which `...` stands for anything. `sh skip="the reason"` is not run.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::{blocks, built, documents, read, root};

/// How long a document's session may take. Only what hangs takes this long.
const SESSION_MAX: Duration = Duration::from_secs(300);

/// The commands of a `console` block, each with the output that is shown below it.
fn commands(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((format!("{command}\n"), String::new())),
            (None, Some((command, _))) if goes_on => *command += &format!("{line}\n"),
            (None, Some((_, output))) => *output += &format!("{line}\n"),
            (None, None) => panic!("a console block begins with a command: {text}"),
        }
        goes_on = line.ends_with('\\');
    }
    found
}

/// Whether an output is as shown: `...` stands for anything, also for several lines or none.
fn is_as_shown(shown: &str, output: &str) -> bool {
    let shown = shown.trim_end().replace("\n...\n", "...");
    let shown = shown.strip_suffix("\n...").map_or(shown.clone(), |head| format!("{head}..."));
    let mut rest = output.trim_end();
    let mut parts = shown.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(behind) = rest.strip_prefix(first) else { return false };
    rest = behind;
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// What a session defines before the document's own commands. `issuebox serve` goes to the
/// background and is waited for, as a person would wait who starts it in another terminal.
const PRELUDE: &str = r#"
set -eE -o pipefail
ip link set lo up
exec 9>"$HOME/trace"; BASH_XTRACEFD=9; PS4='+ '
issuebox() {
    case " $* " in
    *" serve "*)
        command issuebox "$@" >>"$HOME/serve.log" 2>&1 &
        served=$!
        until curl -qsf http://127.0.0.1:8787/readyz >/dev/null; do
            kill -0 $served || { cat "$HOME/serve.log"; return 1; }
            sleep 0.05
        done ;;
    *) command issuebox "$@" ;;
    esac
}
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
set -x
"#;

/// A block as the session sources it.
fn as_sourced(text: &str) -> String {
    let line = |line: &str| {
        let command = line.split('#').next().unwrap_or_default().trim_end();
        let is_server = command.starts_with("issuebox") && command.contains(" serve");
        match command.strip_suffix('&').filter(|_| is_server) {
            Some(in_front) => in_front.to_owned(),
            None => line.to_owned(),
        }
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

/// Runs the commands of a document; how many blocks ran.
async fn run(name: &str, document: &str) -> Result<usize, String> {
    assert!(
        rustix::process::geteuid().is_root(),
        "sessions get network namespaces: run it as root"
    );
    let home = tempfile::tempdir().expect("a directory");
    let path = |name: &str| home.path().join(name);
    for folder in ["bin", "blocks", "work"] {
        fs::create_dir(path(folder)).expect("made");
    }
    std::os::unix::fs::symlink(built(), path("bin/issuebox")).expect("linked");
    // An answer that is an error is one for the shell, too.
    fs::write(path(".curlrc"), "fail-with-body\nsilent\nshow-error\n").expect("written");
    let parts = ["README.md", "LICENSE-MIT", "deploy", "docs", "fixtures"].map(|p| root().join(p));
    let copied = Command::new("cp").arg("-r").args(parts).arg(path("work")).status();
    assert!(copied.expect("cp runs").success(), "the documents' files are copied");
    let (mut script, mut shown, mut ran) = (PRELUDE.to_owned(), Vec::new(), 0);
    for block in blocks(document).iter().filter(|b| b.is_commands() && b.skip.is_none()) {
        let parts = match block.language.as_str() {
            "console" => commands(&block.text),
            _ => vec![(block.text.clone(), String::new())],
        };
        for (n, (command, output)) in parts.into_iter().enumerate() {
            let file = format!("blocks/{}-{n}", block.line);
            fs::write(path(&file), as_sourced(&command)).expect("written");
            // Where an output is shown, it says whether the command was to succeed.
            let or = if output.is_empty() { "" } else { " || true" };
            let _ = writeln!(script, "source ~/{file} >~/{file}.out 2>&1{or}");
            shown.push((block.line, format!("{file}.out"), command, output));
        }
        ran += 1;
    }
    fs::write(path("session.sh"), script).expect("written");
    let mut session = Command::new("unshare");
    session.args(["--net", "--", "bash", "../session.sh"]).current_dir(path("work"));
    let bin = format!("{}:{}", path("bin").display(), std::env::var("PATH").unwrap_or_default());
    session.env_clear().env("HOME", home.path()).env("PATH", bin).env("LANG", "C.UTF-8");
    session.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let ended = in_a_group(session).await;
    for (line, file, command, output) in &shown {
        let Ok(got) = fs::read_to_string(path(file)) else { continue };
        if !output.is_empty() && !is_as_shown(output, &got) {
            return Err(format!("{name}:{line}: {command}gave\n{got}and not\n{output}"));
        }
    }
    match ended {
        Some(true) => Ok(ran),
        ended => {
            let last = shown
                .iter()
                .rev()
                .find_map(|(line, file, ..)| Some((line, fs::read_to_string(path(file)).ok()?)));
            let (line, got) = last.map_or((0, String::new()), |(line, got)| (*line, got));
            let trace = fs::read_to_string(path("trace")).unwrap_or_default();
            let trace: Vec<&str> = trace.lines().rev().take(8).collect();
            let trace: Vec<&str> = trace.into_iter().rev().collect();
            let how = if ended.is_none() { "hangs" } else { "failed" };
            Err(format!("{name}:{line} {how}:\n{}\n{got}", trace.join("\n")))
        }
    }
}

/// Whether a program succeeds; `None` where it is killed, with all that it started, for taking
/// too long.
async fn in_a_group(mut program: Command) -> Option<bool> {
    std::os::unix::process::CommandExt::process_group(&mut program, 0);
    let mut child = tokio::process::Command::from(program).spawn().expect("unshare is installed");
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("an id");
    if let Ok(status) = tokio::time::timeout(SESSION_MAX, child.wait()).await {
        return Some(status.expect("it ends").success());
    }
    kill_process_group(group, Signal::KILL).expect("they are ours");
    child.wait().await.expect("it ends");
    None
}

#[tokio::test]
#[ignore = "needs root, isolation, curl, jq, openssl and iproute2; .ci/run has them"]
async fn every_command_in_the_documents_runs_as_written() {
    let (mut ran, mut skipped, mut wrong) = (0, Vec::new(), Vec::new());
    for name in documents() {
        let text = read(&name);
        for block in blocks(&text).iter().filter(|block| block.is_commands()) {
            if let Some(reason) = &block.skip {
                skipped.push(format!("{name}:{}: {reason}", block.line));
            }
        }
        match run(&name, &text).await {
            Ok(blocks) => ran += blocks,
            Err(error) => wrong.push(error),
        }
    }
    println!("{ran} blocks ran, {} did not:\n{}", skipped.len(), skipped.join("\n"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test]
#[ignore = "needs root, isolation, curl, jq, openssl and iproute2; .ci/run has them"]
async fn the_runner_notices_what_does_not_run() {
    let one = |block: &str| format!("# A\n\n```sh\nexport a=1\n```\n\n```{block}\n```\n");
    for (block, complaint) in [
        ("sh\ntest \"$a\" = 2", "A.md:7 failed"),
        ("sh\nissuebox frobnicate", "unrecognized subcommand"),
        ("sh\nissuebox serve &\ncurl http://127.0.0.1:8787/v1/sandboxes", "unauthorized"),
        ("console\n$ echo one two three\none ... four", "and not"),
    ] {
        let found = run("A.md", &one(block)).await.expect_err(block);
        assert!(found.contains(complaint), "{block}: {found}");
    }
    let right = "console\n$ echo one two \\\n   three; false\none ... three\n$ test $a = 1";
    assert_eq!(run("A.md", &one(right)).await, Ok(2));
}
