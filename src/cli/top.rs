//! `issuebox top`: a live view of all sandboxes, in the terminal.
//!
//! # Guarantees
//! What needs attention stands first, then the sandboxes by their latest change. Nothing is left
//! out between the list and the stream of changes; a connection that breaks is taken up where it
//! was, and until then the view says that it is not live. However it ends, the terminal is as
//! before.

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

use super::Session;
use super::client::{ApiClient, ApiRequest, EventStream};
use super::failure::CliFailure;
use super::rejoin::{Rejoins, ended_by_server};
use super::wire::{self, Sandbox};
use frame::frame;
use state::{KEPT_MAX, KeyAction, System, TopView, ViewUpdate};
use terminal::RawScreen;

#[derive(Debug, Args)]
pub(super) struct TopArgs {}

/// How many the API gives at once at most.
const PAGE_LEN: usize = 200;
/// How often the server is asked about itself, and ages are drawn anew.
const PACE: Duration = Duration::from_secs(2);
/// News that may wait to be taken in; beyond it the server waits for us.
const NEWS_MAX: usize = 256;

pub(super) async fn run(session: &mut Session<'_>, _args: TopArgs) -> anyhow::Result<ExitCode> {
    let is_dumb = session.env.get("TERM") == Some("dumb");
    if is_dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CliFailure::Usage {
            message: "top needs a terminal that it can draw on".to_owned(),
            hint: "use `issuebox ls` for a list, or `issuebox events` for changes as they come"
                .to_owned(),
        }
        .into());
    }
    let client = &session.client;
    let mut state = TopView::new(client.server());
    // Before the terminal is taken, so that a server that is not there is told as by other verbs.
    state.take(ViewUpdate::System(system(client).await?));
    let (sandboxes, cursor) = load(client).await?;
    state.take(ViewUpdate::All(sandboxes));
    let (sender, mut news) = mpsc::channel(NEWS_MAX);
    let mut following = std::pin::pin!(follow(client, cursor, &sender));
    let mut asking = std::pin::pin!(ask_again(client, &sender));

    let mut resized = signal(SignalKind::window_change())?;
    let mut ended = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
        .map(|kind| signal(kind).map(|signal| (kind, signal)));
    let [Ok((_, terminated)), Ok((_, interrupted)), Ok((_, hung_up))] = &mut ended else {
        anyhow::bail!("signals cannot be listened to");
    };
    let mut terminal = RawScreen::take()?;
    let mut pressed = terminal::pressed()?;
    let by_signal = |kind: SignalKind| {
        // As shells say it of a program that a signal ended.
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
                // Drawn once for all that came meanwhile.
                while let Ok(next) = news.try_recv() {
                    state.take(next);
                }
            }
            given_up = &mut following => return Err(given_up.into()),
            never = &mut asking => match never {},
        }
    }
}

/// What the server says about itself.
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

/// Asks the server about itself again and again. That it does not answer is seen at the stream.
async fn ask_again(client: &ApiClient, news: &Sender<ViewUpdate>) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(PACE).await;
        if let Ok(system) = system(client).await {
            // Closed only while the view ends anyway.
            let _ended = news.send(ViewUpdate::System(system)).await;
        }
    }
}

/// The sandboxes, those that failed first and then the newest, and the cursor from which on
/// changes are not in them.
async fn load(client: &ApiClient) -> Result<(Vec<Sandbox>, Option<String>), CliFailure> {
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
            // The first one: what changes while we read is told again, which does no harm.
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

/// Tells changes as they come. Returns once joining the stream has failed too often.
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
                match tell(client, &mut events, &mut cursor, news).await {
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

/// Tells changes until the stream ends, and returns why it did.
async fn tell(
    client: &ApiClient,
    events: &mut EventStream,
    cursor: &mut Option<String>,
    news: &Sender<ViewUpdate>,
) -> Result<std::convert::Infallible, CliFailure> {
    loop {
        let event = events.next().await?.ok_or_else(ended_by_server)?;
        let told = match event.name.as_str() {
            "sandbox.changed" => {
                Some(ViewUpdate::Changed(Box::new(wire::read_event(&event.data)?)))
            }
            // What is missing is read; what the stream tells besides is not older.
            "gap" => Some(ViewUpdate::All(load(client).await?.0)),
            // What later versions may tell.
            _ => None,
        };
        if let Some(told) = told {
            let _ended = news.send(told).await;
        }
        if event.id.is_some() {
            *cursor = event.id;
        }
    }
}
