//! `issuebox top`: a live view of all sandboxes in the terminal.
//!
//! # Guarantees
//! Alarms come first, then the sandboxes by their latest change. No change between the list and the
//! stream is missed. A broken connection resumes at its cursor, and until then the view says that it
//! is not live. However the view ends, the terminal is restored.

mod frame;
mod keys;
mod state;
mod terminal;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, Sender};

use crate::clock::{Clock, SystemClock};

use super::CliSession;
use super::client::{ApiClient, ApiRequest, EventStream};
use super::failure::CliFailure;
use super::rejoin::{Rejoins, ended_by_server};
use super::wire::{self, ApiSandbox};
use frame::frame;
use state::{KEPT_MAX, KeyAction, System, TopView, ViewUpdate};
use terminal::RawScreen;

#[derive(Debug, Args)]
pub(super) struct TopArgs {}

/// Largest page of the API.
const PAGE_LEN: usize = 200;
/// How often the server's status is refreshed and ages are redrawn.
const PACE: Duration = Duration::from_secs(2);
/// Most updates that may wait; beyond it the reader blocks.
const NEWS_MAX: usize = 256;

pub(super) async fn run(session: &mut CliSession<'_>, _args: TopArgs) -> anyhow::Result<ExitCode> {
    let is_dumb = session.env.get("TERM") == Some("dumb");
    if is_dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CliFailure::Usage {
            message: "top needs a terminal".to_owned(),
            hint: "use `issuebox ls` for a list, or `issuebox events` for changes as they come"
                .to_owned(),
        }
        .into());
    }
    let client = &session.client;
    let mut state = TopView::new(client.server());
    // Before the terminal changes, so that an unreachable server is reported as by other verbs.
    state.take(ViewUpdate::System(system(client).await?));
    let (sandboxes, cursor) = load(client).await?;
    state.take(ViewUpdate::All(sandboxes));
    let (sender, mut news) = mpsc::channel(NEWS_MAX);
    let mut following = std::pin::pin!(follow(client, cursor, &sender));
    let mut polling = std::pin::pin!(poll_system(client, &sender));

    let mut resized = signal(SignalKind::window_change())?;
    let mut ended = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
        .map(|kind| signal(kind).map(|signal| (kind, signal)));
    let [Ok((_, terminated)), Ok((_, interrupted)), Ok((_, hung_up))] = &mut ended else {
        anyhow::bail!("cannot listen for signals");
    };
    let mut terminal = RawScreen::take()?;
    let mut pressed = terminal::pressed()?;
    let by_signal = |kind: SignalKind| {
        // The exit code of a program that a signal ended, as in shells.
        Ok(ExitCode::from(
            u8::try_from(128 + kind.as_raw_value()).unwrap_or(super::failure::FAILED),
        ))
    };
    loop {
        terminal.draw(frame(&state, terminal.size(), &session.screen, SystemClock.now()))?;
        tokio::select! {
            biased;
            _ = terminated.recv() => return by_signal(SignalKind::terminate()),
            _ = interrupted.recv() => return by_signal(SignalKind::interrupt()),
            _ = hung_up.recv() => return by_signal(SignalKind::hangup()),
            key = pressed.recv() => match key.map(|key| state.press(key)) {
                Some(KeyAction::Nothing) => {}
                Some(KeyAction::Quit) | None => return Ok(ExitCode::SUCCESS),
            },
            _ = resized.recv() => terminal.clear()?,
            Some(first) = news.recv() => {
                state.take(first);
                    // Draw once for all waiting updates.
                while let Ok(next) = news.try_recv() {
                    state.take(next);
                }
            }
            given_up = &mut following => return Err(given_up.into()),
            never = &mut polling => match never {},
        }
    }
}

/// The server's status.
async fn system(client: &ApiClient) -> Result<System, CliFailure> {
    let answer = client.call(ApiRequest::get(&["system"])).await?;
    let data = answer.data();
    let counts = data["sandboxes"].as_object().into_iter().flatten();
    Ok(System {
        version: data["version"].as_str().unwrap_or_default().to_owned(),
        degraded: serde_json::from_value(data["degraded"].clone()).unwrap_or_default(),
        counts: counts.map(|(phase, n)| (phase.clone(), n.as_u64().unwrap_or(0))).collect(),
    })
}

/// Polls the server's status. The stream reports it when the server does not answer.
async fn poll_system(client: &ApiClient, news: &Sender<ViewUpdate>) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(PACE).await;
        if let Ok(system) = system(client).await {
            // The channel closes only when the view ends.
            let _ended = news.send(ViewUpdate::System(system)).await;
        }
    }
}

/// The sandboxes, failed ones first and then the newest, and the cursor at which the stream of
/// changes must start.
async fn load(client: &ApiClient) -> Result<(Vec<ApiSandbox>, Option<String>), CliFailure> {
    let mut all = Vec::new();
    let mut since = None;
    for phase in [Some("failed"), None] {
        let mut cursor: Option<String> = None;
        loop {
            let call = ApiRequest::get(&["sandboxes"])
                .query("phase", phase)
                .query("limit", Some(PAGE_LEN))
                .query("cursor", cursor.as_deref());
            let body = client.call(call).await?.body;
            let text = |name: &str| body[name].as_str().map(str::to_owned);
            // The first cursor: changes during the load then arrive twice, which is harmless.
            since = since.or_else(|| text("eventCursor"));
            for item in body["data"].as_array().into_iter().flatten() {
                all.push(wire::read(item)?);
            }
            cursor = text("nextCursor");
            if cursor.is_none() || all.len() >= KEPT_MAX {
                break;
            }
        }
    }
    Ok((all, since))
}

/// Forwards changes as they arrive. Returns after too many failed attempts to connect.
async fn follow(
    client: &ApiClient,
    mut cursor: Option<String>,
    news: &Sender<ViewUpdate>,
) -> CliFailure {
    let mut rejoins = Rejoins::new();
    loop {
        let ended = match client.stream(ApiRequest::get(&["events"]), cursor.as_deref()).await {
            Ok(mut events) => {
                rejoins.joined();
                let _ended = news.send(ViewUpdate::Live).await;
                match forward(client, &mut events, &mut cursor, news).await {
                    Ok(never) => match never {},
                    Err(ended) => ended,
                }
            }
            Err(failure) => failure,
        };
        let _ended = news.send(ViewUpdate::Lost(ended.to_string())).await;
        if let Err(given_up) = rejoins.wait(ended).await {
            return given_up;
        }
    }
}

/// Forwards changes until the stream ends, and returns why it ended.
async fn forward(
    client: &ApiClient,
    events: &mut EventStream,
    cursor: &mut Option<String>,
    news: &Sender<ViewUpdate>,
) -> Result<std::convert::Infallible, CliFailure> {
    loop {
        let event = events.next().await?.ok_or_else(ended_by_server)?;
        let update = match event.name.as_str() {
            "sandbox.changed" => {
                Some(ViewUpdate::Changed(Box::new(wire::read_event(&event.data)?)))
            }
            // Reloading fills the gap; later events of the stream are newer.
            "gap" => Some(ViewUpdate::All(load(client).await?.0)),
            // Events of later versions.
            _ => None,
        };
        if let Some(update) = update {
            let _ended = news.send(update).await;
        }
        if event.id.is_some() {
            *cursor = event.id;
        }
    }
}
