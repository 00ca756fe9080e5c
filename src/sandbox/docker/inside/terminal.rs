//! A command at a terminal of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::mux::MuxStream;
use super::super::wire::{
    self, CommandOrder, HelperReply, MESSAGE_LEN_MAX, TerminalOrder, TerminalPiece,
};
use super::commands::{CommandStarter, Leader};
use super::serve::failed;
use crate::sandbox::confined::broken;
use crate::sandbox::terminal_device::TerminalDevice;
use crate::sandbox::{TerminalEvent, TerminalSize, WorkError, terminal_pair};

/// Pieces of output in the queue; 64 KiB.
const EVENTS_LEN: usize = 16;

/// How long a session has between SIGHUP and SIGKILL.
const HANG_UP_GRACE: Duration = Duration::from_secs(2);

/// A terminal with its command.
struct HeldTerminal {
    leader: Arc<Leader>,
    device: TerminalDevice,
    /// What the terminal shows; closed once nothing holds it open any more.
    events: mpsc::Receiver<TerminalEvent>,
    /// The command's exit code.
    ended: JoinHandle<Option<i32>>,
}

/// Runs a command until it ends or the server hangs up.
pub async fn run(
    starter: &CommandStarter,
    order: &CommandOrder,
    size: (u16, u16),
    call: &mut MuxStream,
) -> io::Result<()> {
    let held = match start(starter, order, size) {
        Ok(held) => held,
        Err(error) => return wire::send(call, &failed(error)).await,
    };
    wire::send(call, &HelperReply::Done).await?;
    let HeldTerminal { leader, device, mut events, mut ended } = held;
    let (mut from_server, mut to_server) = tokio::io::split(call);
    let (orders, mut arrived) = mpsc::channel(1);
    // Bounded by the server, which waits for each `Taken`.
    let (answers, mut to_send) = mpsc::unbounded_channel();
    // What the server sends is read apart: a cut read would lose a part of it.
    let read = async {
        while let Ok(Some(order)) = wire::receive(&mut from_server, MESSAGE_LEN_MAX).await {
            if orders.send(order).await.is_err() {
                break;
            }
        }
        drop(orders);
        std::future::pending::<()>().await;
    };
    // What is shown is sent apart: an order must not wait for a server that does not read.
    let send = send_all(&mut to_server, &mut to_send, &mut events);
    let attend = attend(&device, &leader, starter, &mut arrived, &answers, &mut ended);
    let (mut send, mut attend) = (std::pin::pin!(send), Box::pin(attend));
    let mut read = std::pin::pin!(read);
    let code = tokio::select! {
        code = &mut attend => code,
        _ = &mut send => None,
        () = &mut read => None,
    };
    drop(attend);
    match code {
        Some(code) => {
            let rest = async {
                device.read_to_the_end().await;
                // The channel is open: its other half is in `send`.
                let _ = answers.send(TerminalPiece::Exit { code });
            };
            let reading = async { tokio::join!(rest, &mut send).1 };
            tokio::select! {
                sent = reading => sent,
                () = &mut read => Ok(()),
            }
        }
        None => {
            leader.signal(starter.reaper(), Signal::HUP);
            drop(device);
            // One that ends by itself may leave others in its session.
            let _ = timeout(HANG_UP_GRACE, ended).await;
            leader.kill_rest().await;
            Ok(())
        }
    }
}

/// Follows the server's orders until the command has ended, with its exit code, or the server hangs up.
async fn attend(
    device: &TerminalDevice,
    leader: &Leader,
    starter: &CommandStarter,
    arrived: &mut mpsc::Receiver<TerminalOrder>,
    answers: &mpsc::UnboundedSender<TerminalPiece>,
    ended: &mut JoinHandle<Option<i32>>,
) -> Option<i32> {
    let mut typed = None;
    loop {
        tokio::select! {
            biased;
            code = &mut *ended => return Some(code.ok().flatten().unwrap_or(-1)),
            order = arrived.recv() => match order? {
                TerminalOrder::Input(bytes) => typed = Some(bytes),
                order => control(device, leader, starter, &order),
            },
            permit = device.keys.reserve(), if typed.is_some() => {
                // Input is lost if the terminal is closed, as on any.
                if let (Ok(permit), Some(bytes)) = (permit, typed.take()) {
                    permit.send(bytes);
                }
                let _ = answers.send(TerminalPiece::Taken);
            }
        }
    }
}

/// Sends what is answered and shown; ends after the exit, which comes last.
async fn send_all(
    to_server: &mut (impl AsyncWrite + Unpin),
    answers: &mut mpsc::UnboundedReceiver<TerminalPiece>,
    events: &mut mpsc::Receiver<TerminalEvent>,
) -> io::Result<()> {
    loop {
        let piece = tokio::select! {
            biased;
            answer = answers.recv() => match answer {
                Some(answer) => answer,
                None => return Ok(()),
            },
            Some(TerminalEvent::Output(bytes)) = events.recv() => TerminalPiece::Output(bytes),
        };
        let is_exit = matches!(piece, TerminalPiece::Exit { .. });
        if is_exit {
            while let Some(TerminalEvent::Output(bytes)) = events.recv().await {
                wire::send(to_server, &TerminalPiece::Output(bytes)).await?;
            }
        }
        wire::send(to_server, &piece).await?;
        if is_exit {
            return Ok(());
        }
    }
}

fn start(
    starter: &CommandStarter,
    order: &CommandOrder,
    (columns, rows): (u16, u16),
) -> Result<HeldTerminal, WorkError> {
    let (master, slave) = terminal_pair::open(columns, rows)?;
    let flags = fcntl_getfl(&master).map_err(broken)?;
    fcntl_setfl(&master, flags | OFlags::NONBLOCK).map_err(broken)?;
    let (stdin, stdout) = (slave.try_clone().map_err(broken)?, slave.try_clone().map_err(broken)?);
    let (sender, events) = mpsc::channel(EVENTS_LEN);
    let device = TerminalDevice::new(Arc::new(master), sender)?;
    let (pid, exit) = starter.start(order, [stdin, stdout, slave], true)?;
    let leader = Leader::new(pid);
    let of_task = Arc::clone(&leader);
    let ended = tokio::spawn(async move { of_task.ended(exit).await });
    Ok(HeldTerminal { leader, device, events, ended })
}

fn control(
    device: &TerminalDevice,
    leader: &Leader,
    starter: &CommandStarter,
    order: &TerminalOrder,
) {
    match order {
        TerminalOrder::Input(_) => {}
        TerminalOrder::Resize { columns, rows } => {
            device.resize(TerminalSize { columns: *columns, rows: *rows });
        }
        TerminalOrder::Interrupt => device.signal(Signal::INT),
        TerminalOrder::Quit => device.signal(Signal::QUIT),
        TerminalOrder::Kill => leader.signal(starter.reaper(), Signal::KILL),
    }
}
