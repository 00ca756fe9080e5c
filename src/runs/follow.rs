//! Follows a process: its output, each byte once, and its end. Where the connection is lost it is opened again,
//! since the process may go on: only its sandbox says that it is gone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::inside::Inside;
use crate::clock::Clock;
use crate::sabotage::{Bug, on};
use crate::sandbox::{
    Offset, OutputStream, ProcessEvent, ProcessExit, ProcessId, ProcessOutput, WorkError,
};
use crate::types::Timestamp;

/// The pause before a lost connection is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// What was heard of a process.
pub(super) enum Heard {
    /// It wrote this, whose first byte is at this position.
    Output(Offset, OutputStream, Bytes),
    /// Bytes of its output, from a position to another one, are not kept any more.
    Gap(Offset, Offset),
    /// It ended. Output of it may still come, as long as a child of it holds that open.
    Exited(ProcessExit),
    /// It ended, and all of its output came.
    Ended(ProcessExit),
    /// Its sandbox went down under it.
    Gone,
}

/// The way to a process.
pub(super) struct Following {
    inside: Inside,
    clock: Arc<dyn Clock>,
    id: ProcessId,
    /// Up to where its output was heard.
    next: Offset,
    output: Option<mpsc::Receiver<ProcessEvent>>,
    /// Since when the output is connected to; `None` while the connection is opened.
    connected_since: Option<Timestamp>,
    opening: Option<BoxFuture<'static, Result<ProcessOutput, WorkError>>>,
    end: Option<BoxFuture<'static, Result<ProcessExit, WorkError>>>,
}

impl Following {
    /// From the process's first byte on.
    pub fn new(inside: Inside, clock: Arc<dyn Clock>, id: ProcessId) -> Self {
        let (next, output) = (Offset(0), None);
        let (connected_since, opening, end) = (None, None, None);
        let mut following = Self { inside, clock, id, next, output, connected_since, opening, end };
        following.opening = Some(following.open(Duration::ZERO));
        following.end = Some(following.wait(Duration::ZERO));
        following
    }

    /// Whether its output has been connected to for so long.
    pub fn is_drained(&self, wait: Duration) -> bool {
        self.connected_since.is_some_and(|since| since.after(wait) <= self.clock.now())
    }

    /// What is heard next. It can be dropped and called again without a loss.
    pub async fn next(&mut self) -> Heard {
        loop {
            tokio::select! {
                biased;
                event = some(&mut self.output, |output| Box::pin(output.recv())) => match event {
                    Some(ProcessEvent::Output { from, stream, bytes }) => {
                        self.next = Offset(from.0 + bytes.len() as u64);
                        return Heard::Output(from, stream, bytes);
                    }
                    Some(ProcessEvent::Gap { from, to }) => {
                        self.next = to;
                        return Heard::Gap(from, to);
                    }
                    Some(ProcessEvent::Exit(exit)) => return Heard::Ended(exit),
                    None => {
                        (self.output, self.connected_since) = (None, None);
                        self.opening = Some(self.open(PAUSE));
                    }
                },
                opened = some(&mut self.opening, |opening| Box::pin(opening)) => {
                    self.opening = None;
                    match opened {
                        Ok(output) => {
                            self.output = Some(output.events);
                            self.connected_since = Some(self.clock.now());
                        }
                        Err(error) if is_gone(&error) => return Heard::Gone,
                        Err(_) => self.opening = Some(self.open(PAUSE)),
                    }
                }
                ended = some(&mut self.end, |end| Box::pin(end)) => {
                    self.end = None;
                    match ended {
                        Ok(exit) => return Heard::Exited(exit),
                        Err(error) if is_gone(&error) => return Heard::Gone,
                        Err(_) => self.end = Some(self.wait(PAUSE)),
                    }
                }
            }
        }
    }

    fn open(&self, pause: Duration) -> BoxFuture<'static, Result<ProcessOutput, WorkError>> {
        let Inside { processes, target } = self.inside.clone();
        let (clock, id, next) = (Arc::clone(&self.clock), self.id.clone(), self.next);
        Box::pin(async move {
            clock.sleep_until(clock.now().after(pause)).await;
            processes.attach(target, id, next).await
        })
    }

    fn wait(&self, pause: Duration) -> BoxFuture<'static, Result<ProcessExit, WorkError>> {
        let Inside { processes, target } = self.inside.clone();
        let (clock, id) = (Arc::clone(&self.clock), self.id.clone());
        Box::pin(async move {
            clock.sleep_until(clock.now().after(pause)).await;
            processes.wait(target, id).await
        })
    }
}

/// Whether an error says that there is no such process any more, and not that it could not be asked.
fn is_gone(error: &WorkError) -> bool {
    let is_said = matches!(
        error,
        WorkError::NotRunning | WorkError::NoSuchProcess | WorkError::OutOfRange { .. }
    );
    is_said || on(Bug::TwoRunsAtOnce)
}

/// What comes of something, if it is there; else it never ends.
async fn some<'a, S, T>(
    it: &'a mut Option<S>,
    wait: impl FnOnce(&'a mut S) -> BoxFuture<'a, T>,
) -> T {
    match it {
        Some(it) => wait(it).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::sandbox::{
        ExecRequest, Execution, PortAccess, ProcessSpec, Processes, Signal, Target, Terminal,
        TerminalRequest,
    };
    use crate::types::{ExternalId, SandboxId, Timestamp};

    /// A clock of the runtime's time.
    struct RuntimeClock(tokio::time::Instant);

    #[async_trait]
    impl Clock for RuntimeClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_unix_ms(0).after(self.0.elapsed())
        }

        async fn sleep_until(&self, at: Timestamp) {
            tokio::time::sleep(at.since(self.now())).await;
        }
    }

    type Attached = Result<Vec<ProcessEvent>, WorkError>;

    /// One process, and what each connection to it comes to. Its end is never heard of otherwise.
    struct LostConnections {
        attached: Mutex<VecDeque<Attached>>,
        from: Mutex<Vec<u64>>,
    }

    #[async_trait]
    impl Processes for LostConnections {
        async fn spawn(&self, _: Target, _: ProcessSpec) -> Result<ProcessId, WorkError> {
            unreachable!("it runs already")
        }

        async fn tagged(&self, _: Target, _: &str) -> Result<Option<ProcessId>, WorkError> {
            unreachable!("it is known")
        }

        async fn attach(
            &self,
            _: Target,
            _: ProcessId,
            from: Offset,
        ) -> Result<ProcessOutput, WorkError> {
            self.from.lock().expect("not poisoned").push(from.0);
            let next = self.attached.lock().expect("not poisoned").pop_front();
            let (sender, events) = mpsc::channel(8);
            for event in next.expect("it is attached no more")? {
                sender.try_send(event).expect("there is room");
            }
            Ok(ProcessOutput { events })
        }

        async fn write_stdin(&self, _: Target, _: ProcessId, _: Bytes) -> Result<(), WorkError> {
            unreachable!("it reads nothing")
        }

        async fn close_stdin(&self, _: Target, _: ProcessId) -> Result<(), WorkError> {
            unreachable!("it reads nothing")
        }

        async fn signal(&self, _: Target, _: ProcessId, _: Signal) -> Result<(), WorkError> {
            unreachable!("it is only followed")
        }

        async fn wait(&self, _: Target, _: ProcessId) -> Result<ProcessExit, WorkError> {
            Err(WorkError::Broken("the connection was lost".into()))
        }

        async fn exec(&self, _: Target, _: ExecRequest) -> Result<Execution, WorkError> {
            unreachable!("it is only followed")
        }

        async fn terminal(&self, _: Target, _: TerminalRequest) -> Result<Terminal, WorkError> {
            unreachable!("it is only followed")
        }

        async fn port(&self, _: Target, _: u16) -> Result<PortAccess, WorkError> {
            unreachable!("it is only followed")
        }
    }

    /// What is heard until the end, and from which offsets on.
    async fn heard(attached: Vec<Attached>) -> (String, Option<ProcessExit>, Vec<u64>) {
        let attached = Mutex::new(attached.into());
        let process = Arc::new(LostConnections { attached, from: Mutex::default() });
        let sandbox = SandboxId::trusted("s");
        let target = Target { external_id: ExternalId::trusted("o"), expected: sandbox.clone() };
        let processes = Arc::clone(&process) as Arc<dyn Processes>;
        let clock = Arc::new(RuntimeClock(tokio::time::Instant::now()));
        let id = ProcessId { sandbox, number: 1 };
        let mut following = Following::new(Inside { processes, target }, clock, id);
        let mut text = String::new();
        let exit = loop {
            match following.next().await {
                Heard::Output(_, _, bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
                Heard::Gap(from, to) => text.push_str(&format!("[{}]", to.0 - from.0)),
                Heard::Exited(_) => unreachable!("it cannot be waited for"),
                Heard::Ended(exit) => break Some(exit),
                Heard::Gone => break None,
            }
        };
        let from = process.from.lock().expect("not poisoned").clone();
        (text, exit, from)
    }

    fn output(from: u64, text: &'static str) -> ProcessEvent {
        let (from, stream) = (Offset(from), OutputStream::Stdout);
        ProcessEvent::Output { from, stream, bytes: Bytes::from_static(text.as_bytes()) }
    }

    fn lost() -> Attached {
        Err(WorkError::Broken("the connection was lost".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_opened_again_where_it_was_lost() {
        let exit = ProcessExit { code: 7, timed_out: false };
        let gap = ProcessEvent::Gap { from: Offset(3), to: Offset(9) };
        let end = vec![gap, output(9, "d"), ProcessEvent::Exit(exit)];
        let attached = vec![
            lost(),
            Ok(vec![output(0, "ab"), output(2, "c")]),
            lost(),
            Ok(Vec::new()),
            Ok(end),
        ];
        let (text, ended, from) = heard(attached).await;
        assert_eq!((text.as_str(), ended), ("abc[6]d", Some(exit)));
        assert_eq!(from, [0, 0, 3, 3, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_is_gone_when_its_sandbox_says_so() {
        for gone in [WorkError::NotRunning, WorkError::NoSuchProcess] {
            let (text, ended, from) = heard(vec![Ok(vec![output(0, "a")]), Err(gone)]).await;
            assert_eq!((text.as_str(), ended, from), ("a", None, vec![0, 1]));
        }
    }
}
