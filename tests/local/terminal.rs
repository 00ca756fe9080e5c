//! Commands at a terminal in a real sandbox.

use bytes::Bytes;
use issuebox::sandbox::{
    Lifecycle, Processes, Terminal, TerminalControl, TerminalEvent, TerminalRequest,
    TerminalSignal, TerminalSize, WorkError,
};

use crate::common::{Local, Sandbox, WAIT, call, marker, processes_with, until};

const SIZE: TerminalSize = TerminalSize { columns: 100, rows: 30 };

fn request(command: &[&str]) -> TerminalRequest {
    TerminalRequest {
        command: command.iter().map(ToString::to_string).collect(),
        cwd: None,
        env: vec![("TERM".into(), "xterm".into())],
        size: SIZE,
    }
}

async fn open(sandbox: &Sandbox<'_>, request: TerminalRequest) -> Result<Screen, WorkError> {
    let terminal = sandbox.provider.terminal(sandbox.target.clone(), request).await?;
    Ok(Screen { terminal, shown: Vec::new(), code: None })
}

/// A terminal, and its output so far.
struct Screen {
    terminal: Terminal,
    shown: Vec<u8>,
    code: Option<i32>,
}

impl Screen {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    async fn keys(&self, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        self.terminal.input.send(bytes).await.expect("taken");
    }

    async fn does(&self, control: TerminalControl) {
        self.terminal.control.send(control).await.expect("done");
    }

    /// Takes the next event; returns whether there was one.
    async fn take(&mut self) -> bool {
        let event = tokio::time::timeout(WAIT, self.terminal.events.recv()).await;
        match event.unwrap_or_else(|_| panic!("no more output after {:?}", self.text())) {
            Some(TerminalEvent::Output(bytes)) => self.shown.extend(bytes),
            Some(TerminalEvent::Exit { code }) => self.code = Some(code),
            None => return false,
        }
        true
    }

    /// Reads until the output contains this.
    async fn shows(&mut self, text: &str) {
        while !self.text().contains(text) {
            assert!(self.take().await, "it ended without {text:?}: {:?}", self.text());
        }
    }

    /// Reads until the end; returns the exit code.
    async fn exited(&mut self) -> Option<i32> {
        while self.take().await {}
        self.code
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_a_terminal_of_the_sandboxs_own() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("tty").await;
    let script = "tty; stty size; stty -a | grep -o ' iutf8'; echo $TERM; \
                  echo /dev/pts/*; echo typed > /dev/tty; exit 7";
    let mut screen = open(&sandbox, request(&["sh", "-c", script])).await.expect("it starts");
    assert_eq!(screen.exited().await, Some(7));
    let text = screen.text();
    let lines = ["/dev/pts/0", "30 100", " iutf8", "xterm", "/dev/pts/0 /dev/pts/ptmx", "typed"];
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    assert_eq!(sandbox.sh("ls /dev/pts").await, "ptmx\n", "the terminal ends with its command");
    let login = TerminalRequest { command: TerminalRequest::login_shell(), ..request(&[]) };
    let mut screen = open(&sandbox, login).await.expect("it starts");
    screen.keys(b"echo $((40+2)) $0; exit 3\n").await;
    assert_eq!(screen.exited().await, Some(3));
    assert!(screen.text().contains("42 "), "{}", screen.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_sizes_and_signals_reach_the_command() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("keys").await;
    let script = "trap 'echo size $(stty size)' WINCH; echo ready; while :; do sleep 0.01; done";
    let mut screen = open(&sandbox, request(&["sh", "-c", script])).await.expect("it starts");
    screen.shows("ready").await;
    let size = TerminalSize { columns: 77, rows: 11 };
    screen.does(TerminalControl::Resize(size)).await;
    screen.shows("size 11 77").await;
    screen.does(TerminalControl::Signal(TerminalSignal::Interrupt)).await;
    assert_eq!(screen.exited().await, Some(130));
    let script = "while read -r line; do echo \"got <$line>\"; done; echo end";
    let mut screen = open(&sandbox, request(&["sh", "-c", script])).await.expect("it starts");
    // A split character arrives whole, and is erased whole.
    for piece in [&b"a\xc3"[..], b"\xa4\xe2\x82", b"\xac\x7f!\n"] {
        screen.keys(piece).await;
    }
    screen.shows("got <aä!>").await;
    screen.keys(b"\x04").await;
    assert_eq!(screen.exited().await, Some(0));
    let mut screen = open(&sandbox, request(&["sleep", "1000"])).await.expect("it starts");
    screen.keys(b"\x03").await;
    assert_eq!(screen.exited().await, Some(130));
    let mut screen = open(&sandbox, request(&["sleep", "1000"])).await.expect("it starts");
    screen.does(TerminalControl::Signal(TerminalSignal::Kill)).await;
    assert_eq!(screen.exited().await, Some(137));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_is_closed_for_a_moment_can_be_opened_again() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("moment").await;
    let script = "echo first; exec 3>&- < /dev/null > /dev/null 2>&1; touch closed; \
                  until [ -e seen ]; do sleep 0.01; done; echo second > /dev/tty; read -r line \
                  < /dev/tty; echo \"got $line\" > /dev/tty; exit 5";
    let mut screen = open(&sandbox, request(&["sh", "-c", script])).await.expect("it starts");
    screen.shows("first").await;
    sandbox.sh("until [ -e closed ]; do sleep 0.01; done; sleep 0.1; touch seen").await;
    screen.shows("second").await;
    screen.keys(b"typed\n").await;
    assert_eq!(screen.exited().await, Some(5));
    assert!(screen.text().contains("got typed"), "{}", screen.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_ends_the_session_even_if_it_ignores_sighup() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("hup").await;
    for script in [
        "sleep TIME",
        "trap '' HUP; sleep TIME",
        // The leader ends by itself, and leaves a process in its session that does not.
        "(trap '' HUP; sleep TIME) & echo begun; wait",
    ] {
        // Many at once: PID 1 may see a leader's end or its hang-up first, and both must work.
        let mark = marker();
        let script = format!("echo begun; {}", script.replace("TIME", &mark));
        let mut screens = Vec::new();
        for _ in 0..12 {
            let sh = request(&["sh", "-c", &script]);
            let mut screen = open(&sandbox, sh).await.expect("it starts");
            screen.shows("begun").await;
            screens.push(screen);
        }
        until("the commands run", || processes_with(&mark).len() >= 12).await;
        drop(screens);
        until("the sessions have ended", || processes_with(&mark).is_empty()).await;
    }
    // Its trap ran, so the signal came first.
    let script = "trap 'echo hung up > note; exit' HUP; echo begun; while :; do sleep 0.01; done";
    let mut screen = open(&sandbox, request(&["sh", "-c", script])).await.expect("it starts");
    screen.shows("begun").await;
    drop(screen);
    let note = "until [ -s note ]; do sleep 0.01; done; cat note";
    assert_eq!(sandbox.sh(note).await, "hung up\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_terminal_blocks_only_its_command() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("unread").await;
    let yes = open(&sandbox, request(&["yes"])).await.expect("it starts");
    // No process reads the input here.
    let deaf = open(&sandbox, request(&["sh", "-c", "stty raw; exec sleep 1000"])).await;
    let deaf = deaf.expect("it starts");
    until("the input is full", || {
        while deaf.terminal.input.try_send(Bytes::from(vec![b'x'; 65_536])).is_ok() {}
        deaf.terminal.input.capacity() == 0 && yes.terminal.events.len() >= 16
    })
    .await;
    assert_eq!(sandbox.sh("echo others go on").await, "others go on\n");
    let mut screen = open(&sandbox, request(&["echo", "hi"])).await.expect("it starts");
    assert_eq!(screen.exited().await, Some(0));
    // Full buffers block no signal, in either direction; nor is a signal a key here, which a raw
    // terminal would not interpret.
    for mut full in [deaf, yes] {
        full.does(TerminalControl::Signal(TerminalSignal::Interrupt)).await;
        assert_eq!(full.exited().await, Some(130));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_before_the_end_is_shown_and_later_output_is_not_waited_for() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("end").await;
    for _ in 0..20 {
        let script = "seq 1 2000; echo the end";
        let mut screen = open(&sandbox, request(&["sh", "-c", script])).await.expect("it starts");
        assert_eq!(screen.exited().await, Some(0));
        let lines: Vec<String> = screen.text().lines().map(str::to_owned).collect();
        assert_eq!(
            (lines.len(), lines[1999].as_str(), lines[2000].as_str()),
            (2001, "2000", "the end")
        );
    }
    let script = "trap '' HUP; yes & echo begun";
    let mut screen = open(&sandbox, request(&["sh", "-c", script])).await.expect("it starts");
    assert_eq!(screen.exited().await, Some(0), "a background process does not delay the end");
    let error = open(&sandbox, request(&["no-such-command"])).await.err();
    assert_eq!(
        error,
        Some(WorkError::CommandNotFound("no-such-command: command not found".into()))
    );
    let mut screen = open(&sandbox, request(&["sleep", "1000"])).await.expect("it starts");
    sandbox.provider.stop(call(&sandbox.target)).await.expect("stopped");
    // Whether the command or the sandbox ends first is a race; that it ends is not.
    screen.exited().await;
    let error = open(&sandbox, request(&["true"])).await.err();
    assert_eq!(error, Some(WorkError::NotRunning));
}
