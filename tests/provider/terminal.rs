//! Terminals: keys, sizes, signals and the end, for providers that declare them.

use issuebox::sandbox::{
    Capability, Target, Terminal, TerminalControl, TerminalEvent, TerminalRequest, TerminalSignal,
    TerminalSize, WorkError,
};
use tokio::time::timeout;

use crate::ports::{closed, connected, echo_server};
use crate::subject::{Subject, WAIT, at_terminal};

contract!(
    a_terminal_shows_what_is_typed,
    a_shell_knows_the_size_of_its_terminal_and_says_how_it_ended,
    keys_and_signals_end_a_command_and_its_code_says_which,
    all_output_of_a_command_is_shown_before_its_exit,
    a_terminal_that_is_dropped_hangs_up,
    a_terminal_ends_with_its_object,
);

/// A terminal, and what it has shown so far.
struct Screen {
    terminal: Terminal,
    shown: Vec<u8>,
    code: Option<i32>,
}

impl Screen {
    /// Opens a terminal; `None` where the provider has none.
    async fn open(subject: &Subject, target: &Target, request: TerminalRequest) -> Option<Self> {
        if !subject.offers(Capability::Terminal) {
            return None;
        }
        let terminal = subject.provider.processes.terminal(target.clone(), request).await;
        Some(Self { terminal: terminal.expect("opened"), shown: Vec::new(), code: None })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    async fn keys(&self, keys: &'static str) {
        self.terminal.input.send(keys.into()).await.expect("taken");
    }

    async fn control(&self, control: TerminalControl) {
        self.terminal.control.send(control).await.expect("taken");
    }

    /// Takes the next event; returns whether there was one.
    async fn take(&mut self) -> bool {
        let event = timeout(WAIT, self.terminal.events.recv()).await;
        let event = event.unwrap_or_else(|_| panic!("no more after {:?}", self.text()));
        assert_eq!(self.code.filter(|_| event.is_some()), None, "nothing comes after the exit");
        match event {
            Some(TerminalEvent::Output(bytes)) => self.shown.extend(bytes),
            Some(TerminalEvent::Exit { code }) => self.code = Some(code),
            None => return false,
        }
        true
    }

    /// Reads until this is shown so many times.
    async fn shows(&mut self, text: &str, times: usize) {
        while self.text().matches(text).count() < times {
            assert!(self.take().await, "it ended without {text:?}: {:?}", self.text());
        }
    }

    /// Reads until the end; returns the exit code.
    async fn ended(&mut self) -> Option<i32> {
        while self.take().await {}
        self.code
    }
}

async fn a_terminal_shows_what_is_typed(subject: &Subject) {
    let target = subject.target().await;
    let cat = at_terminal(&["cat"]);
    let Some(mut screen) = Screen::open(subject, &target, cat).await else { return };
    screen.keys("tipo\x7f\x7f\x7fyped\r").await;
    // Once by the terminal, and once by `cat`.
    screen.shows("typed\r\n", 1).await;
    assert!(
        screen.text().starts_with("tipo\x08 \x08\x08 \x08\x08 \x08yped\r\n"),
        "{:?}",
        screen.text()
    );
    screen.keys("\x04").await;
    assert_eq!(screen.ended().await, Some(0));
    let after = screen.text();
    assert!(after.ends_with("\r\ntyped\r\n"), "{after:?}");
}

async fn a_shell_knows_the_size_of_its_terminal_and_says_how_it_ended(subject: &Subject) {
    let target = subject.target().await;
    let shell = at_terminal(&["sh"]);
    let Some(mut screen) = Screen::open(subject, &target, shell).await else { return };
    screen.keys("stty size\r").await;
    screen.shows("24 80\r\n", 1).await;
    screen.control(TerminalControl::Resize(TerminalSize { columns: 100, rows: 30 })).await;
    // A key may arrive before the size, so it is asked for until it is there.
    let resized = async {
        while !screen.text().contains("30 100\r\n") {
            screen.keys("stty size\r").await;
            let answers = |text: &str| text.matches("0\r\n").count();
            let before = answers(&screen.text());
            while answers(&screen.text()) == before {
                assert!(screen.take().await, "{:?}", screen.text());
            }
        }
    };
    timeout(WAIT, resized).await.expect("it has the new size");
    screen.keys("echo some words\r").await;
    screen.shows("some words\r\n", 2).await;
    screen.keys("exit 7\r").await;
    assert_eq!(screen.ended().await, Some(7));
}

async fn keys_and_signals_end_a_command_and_its_code_says_which(subject: &Subject) {
    let target = subject.target().await;
    for (key, signal, code) in [
        (Some("\x03"), None, 130),
        (Some("\x1c"), None, 131),
        (None, Some(TerminalSignal::Interrupt), 130),
        (None, Some(TerminalSignal::Quit), 131),
        (None, Some(TerminalSignal::Kill), 137),
    ] {
        let sleep = at_terminal(&["sleep", "1000"]);
        let Some(mut screen) = Screen::open(subject, &target, sleep).await else { return };
        if let Some(key) = key {
            screen.keys(key).await;
        }
        if let Some(signal) = signal {
            screen.control(TerminalControl::Signal(signal)).await;
        }
        assert_eq!(screen.ended().await, Some(code), "{key:?} {signal:?}");
    }
}

async fn all_output_of_a_command_is_shown_before_its_exit(subject: &Subject) {
    const LEN: usize = 3_000_000;
    let target = subject.target().await;
    let zeros = at_terminal(&["head", "-c", "3000000", "/dev/zero"]);
    let Some(mut screen) = Screen::open(subject, &target, zeros).await else { return };
    assert_eq!(screen.ended().await, Some(0));
    assert_eq!(screen.shown.len(), LEN);
}

async fn a_terminal_that_is_dropped_hangs_up(subject: &Subject) {
    if !subject.offers(Capability::Tunnels) {
        return;
    }
    let target = subject.target().await;
    let server = TerminalRequest { command: echo_server(subject), ..at_terminal(&[]) };
    let Some(screen) = Screen::open(subject, &target, server).await else { return };
    drop(connected(subject, &target).await);
    drop(screen);
    closed(subject, &target).await;
}

async fn a_terminal_ends_with_its_object(subject: &Subject) {
    let target = subject.target().await;
    for command in [&["sh"][..], &["cat"]] {
        let request = at_terminal(command);
        let Some(mut screen) = Screen::open(subject, &target, request.clone()).await else {
            return;
        };
        screen.keys("echo begun\r").await;
        screen.shows("begun\r\n", 1).await;
        subject.stop(&target).await;
        // Its command may be seen to end before the object is.
        screen.ended().await;
        let stopped = subject.provider.processes.terminal(target.clone(), request).await;
        assert_eq!(stopped.err(), Some(WorkError::NotRunning));
        subject.start(&target).await;
    }
}
