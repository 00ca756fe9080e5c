//! Commands at terminals, as the server sees them.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::link::{Links, nonsense};
use super::wire::{
    self, HelperReply, HelperRequest, MESSAGE_LEN_MAX, TerminalOrder, TerminalPiece,
};
use super::work::order;
use crate::sandbox::{
    STDIN_CHUNK_MAX, Target, Terminal, TerminalControl, TerminalEvent, TerminalRequest,
    TerminalSignal, WorkError,
};

/// Pieces of output in the queue.
const EVENTS_LEN: usize = 4;

/// Pieces of input, and control requests, that wait.
const INPUT_LEN: usize = 4;

/// Starts a command at a terminal.
///
/// # Errors
/// [`WorkError`].
pub async fn open(
    links: &Arc<Links>,
    target: Target,
    request: TerminalRequest,
) -> Result<Terminal, WorkError> {
    let TerminalRequest { command, cwd, env, size } = request;
    let link = links.get(&target).await?;
    let order = order(&link, command, cwd.as_deref(), &env)?;
    let request = HelperRequest::Terminal { order, columns: size.columns, rows: size.rows };
    let (call, reply) = links.call_by(&link, &target, &request).await?;
    if reply != HelperReply::Done {
        return Err(nonsense());
    }
    let (sender, events) = mpsc::channel(EVENTS_LEN);
    let (input, typed) = mpsc::channel(INPUT_LEN);
    let (control, controls) = mpsc::channel(INPUT_LEN);
    tokio::spawn(async move {
        // The end of the stream hangs up. The place of the call is kept until then.
        let mut call = call;
        let (mut from_helper, mut to_helper) = tokio::io::split(&mut call.stream);
        let (taken, took) = mpsc::channel(1);
        tokio::select! {
            () = show(&mut from_helper, &sender, &taken) => {}
            () = sender.closed() => {}
            // An error shows in what is read, too.
            () = async { drop(pass_on(&mut to_helper, typed, controls, took).await);
                         std::future::pending().await } => {}
        }
        let _ = call.stream.shutdown().await;
    });
    Ok(Terminal { input, control, events })
}

/// Passes on what is shown until the exit.
async fn show(
    from: &mut (impl AsyncRead + Unpin),
    events: &mpsc::Sender<TerminalEvent>,
    taken: &mpsc::Sender<()>,
) {
    while let Ok(Some(piece)) = wire::receive(from, MESSAGE_LEN_MAX).await {
        let event = match piece {
            TerminalPiece::Taken => {
                // More than was sent: the helper is hostile.
                let _ = taken.try_send(());
                continue;
            }
            TerminalPiece::Output(bytes) => TerminalEvent::Output(bytes),
            TerminalPiece::Exit { code } => TerminalEvent::Exit { code },
        };
        let is_exit = matches!(event, TerminalEvent::Exit { .. });
        if events.send(event).await.is_err() || is_exit {
            return;
        }
    }
}

/// Sends what is typed, a piece at a time, and what is done to the terminal, which does not wait for that.
async fn pass_on(
    to: &mut (impl AsyncWrite + Unpin),
    mut typed: mpsc::Receiver<bytes::Bytes>,
    mut controls: mpsc::Receiver<TerminalControl>,
    mut took: mpsc::Receiver<()>,
) -> io::Result<()> {
    let (mut types, mut has_controls, mut waits) = (true, true, false);
    let mut rest = bytes::Bytes::new();
    loop {
        if !waits && !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(STDIN_CHUNK_MAX));
            wire::send(to, &TerminalOrder::Input(piece)).await?;
            waits = true;
        }
        tokio::select! {
            biased;
            control = controls.recv(), if has_controls => match control {
                None => has_controls = false,
                Some(control) => wire::send(to, &order_of(control)).await?,
            },
            Some(()) = took.recv() => waits = false,
            bytes = typed.recv(), if types && rest.is_empty() => match bytes {
                None => types = false,
                Some(bytes) => rest = bytes,
            },
        }
    }
}

fn order_of(control: TerminalControl) -> TerminalOrder {
    match control {
        TerminalControl::Resize(size) => {
            TerminalOrder::Resize { columns: size.columns, rows: size.rows }
        }
        TerminalControl::Signal(TerminalSignal::Interrupt) => TerminalOrder::Interrupt,
        TerminalControl::Signal(TerminalSignal::Quit) => TerminalOrder::Quit,
        TerminalControl::Signal(TerminalSignal::Kill) => TerminalOrder::Kill,
    }
}
