//! The ways into a sandbox after a command has closed its own directories.

use issuebox::sandbox::{
    ExecRequest, Lifecycle, Processes, TerminalEvent, TerminalRequest, TerminalSize, WorkError,
    Workspace, WorkspacePath, Written,
};
use issuebox::types::Workload;

use crate::common::{Local, Sandbox, WAIT, call, request, spec, target};
use crate::files::{archive_of, unpack};

/// What a command does to the directories that its user owns; the one that holds another comes last.
const CLOSINGS: [&str; 5] = [
    "chmod 000 /home/agent /home /tmp /dev/shm /workspace",
    "chmod 666 /home/agent /home /tmp /dev/shm /workspace",
    "chmod 300 /workspace && chmod 111 /tmp && chmod 577 /home && chmod 455 /dev/shm",
    "rm -rf /home/agent && chmod 000 /home /workspace",
    "rm -rf /home/agent && ln -s /workspace/nothing /home/agent && chmod 000 /tmp /workspace",
];

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text.as_bytes()).expect("a path")
}

/// What a command at a terminal shows until it ends.
async fn at_terminal(sandbox: &Sandbox<'_>, script: &str) -> Result<String, WorkError> {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let size = TerminalSize { columns: 100, rows: 30 };
    let request = TerminalRequest { command, cwd: None, env: Vec::new(), size };
    let mut terminal = sandbox.provider.terminal(sandbox.target.clone(), request).await?;
    let mut shown = Vec::new();
    while let Some(event) =
        tokio::time::timeout(WAIT, terminal.events.recv()).await.expect("it goes on")
    {
        match event {
            TerminalEvent::Output(bytes) => shown.extend(bytes),
            TerminalEvent::Exit { .. } => {}
        }
    }
    Ok(String::from_utf8_lossy(&shown).into_owned())
}

/// Uses every way in, each after `close`.
async fn every_way_is_open(sandbox: &Sandbox<'_>, close: &str) {
    let shut = || async { sandbox.sh(close).await };
    shut().await;
    assert_eq!(sandbox.sh("pwd; touch x /tmp/x; rm x /tmp/x").await, "/workspace\n", "{close}");
    for cwd in ["sub", "/tmp", "/home", "/"] {
        shut().await;
        let request = ExecRequest { cwd: Some(cwd.into()), ..request(&["true"]) };
        assert_eq!(sandbox.run(request).await.code, 0, "{close}: {cwd}");
    }
    shut().await;
    assert_eq!(at_terminal(sandbox, "pwd").await, Ok("/workspace\r\n".into()), "{close}");
    shut().await;
    assert_eq!(sandbox.list(b"", 9).await, Ok(vec!["sub".into(), "sub/f".into()]), "{close}");
    shut().await;
    assert_eq!(sandbox.read(b"sub/f").await, Ok("text".into()), "{close}");
    shut().await;
    assert_eq!(sandbox.write(b"new", "n").await, Ok(Written::Created), "{close}");
    shut().await;
    assert_eq!(sandbox.delete_file(b"new").await, Ok(()), "{close}");
    shut().await;
    let (from, to) = (path("sub/f"), path("moved/f"));
    let moved = sandbox.provider.move_file(sandbox.target.clone(), from, to, false).await;
    assert_eq!(moved, Ok(Written::Created), "{close}");
    shut().await;
    let archive = archive_of(sandbox, b"moved").await.expect("packed");
    shut().await;
    unpack(sandbox, b"sub", archive).await.expect("unpacked");
    shut().await;
    assert_eq!(sandbox.delete_file(b"moved").await, Ok(()), "{close}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_in_is_open_whatever_a_command_closed() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("ways").await;
    for close in CLOSINGS {
        sandbox.write(b"sub/f", "text").await.expect("written");
        every_way_is_open(&sandbox, close).await;
        sandbox.sh(close).await;
        local.provider.stop(call(&sandbox.target)).await.expect("stopped");
        local.provider.start(call(&sandbox.target)).await.expect("started");
        assert_eq!(sandbox.sh("pwd; cat sub/f").await, "/workspace\ntext", "{close}");
        sandbox.sh("rm -rf /home/agent; mkdir /home/agent").await;
    }
    sandbox.sh("chmod 000 sub /workspace").await;
    local.provider.delete(call(&sandbox.target)).await.expect("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_can_make_a_directory_immutable() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("immutable").await;
    if !std::path::Path::new("/usr/bin/chattr").exists() {
        return;
    }
    for flag in ["+i", "+a"] {
        let ended = sandbox.run(request(&["chattr", flag, "/workspace"])).await;
        assert_ne!(ended.code, 0, "{flag}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_directory_must_be_entered_and_a_default_gives_way() {
    let Some(local) = Local::new().await else { return };
    let mut spec = spec("default", "default");
    let working_dir = Some("src".into());
    spec.template.workload = Workload { working_dir, ..Workload::default() }.into();
    let object = local.provider.create(spec).await.expect("made");
    let sandbox = Sandbox { provider: &local.provider, target: target(&object) };
    assert_eq!(sandbox.sh("pwd").await, "/workspace/src\n");
    for (spoil, why) in [
        ("chmod 000 /workspace/src", "permission denied"),
        ("rmdir /workspace/src; touch /workspace/src", "not a directory"),
        ("rm /workspace/src; ln -s /nowhere /workspace/src", "no such file or directory"),
        ("rm /workspace/src; ln -s src /workspace/src", "too many levels of symbolic links"),
    ] {
        sandbox.run(request(&["sh", "-c", spoil])).await;
        let named = ExecRequest { cwd: Some("src".into()), ..request(&["true"]) };
        let error = sandbox.exec(named).await.expect_err(spoil);
        assert_eq!(error, WorkError::CannotStart(format!("directory src: {why}")));
        let ended = sandbox.run(request(&["pwd"])).await;
        let note = format!(
            "issuebox: cannot enter the working directory src: {why}; the command starts in \
             /workspace\n"
        );
        assert_eq!((ended.stdout.as_str(), ended.stderr), ("/workspace\n", note), "{spoil}");
        let shown = at_terminal(&sandbox, "pwd").await.expect("it starts");
        assert!(shown.contains("cannot enter the working directory src"), "{shown}");
        assert!(shown.ends_with("\r\n/workspace\r\n"), "{shown}");
    }
}
