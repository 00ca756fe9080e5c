//! Follows the events of a conversation from now on, over broken connections.

use tokio::sync::mpsc::Sender;

use crate::cli::client::{ApiClient, ApiRequest};
use crate::cli::failure::CliFailure;
use crate::cli::rejoin::{Rejoins, ended_by_server};

/// What is followed.
pub(super) enum Followed {
    /// From here on every event comes.
    Ready,
    /// The data of an event.
    Event(String),
    /// Events are missing.
    Gap,
}

/// Follows an issue's conversation; returns why that ended.
pub(super) async fn follow(
    client: &ApiClient,
    issue: String,
    sender: Sender<Followed>,
) -> CliFailure {
    let mut rejoins = Rejoins::new();
    let mut place: Option<String> = None;
    let mut is_ready = false;
    loop {
        // Until the conversation has begun there is no place in it: then all that comes is new.
        let tail = (!is_ready).then_some(0);
        let path = ["issues", &issue, "conversation", "events"];
        let call = ApiRequest::get(&path).query("tail", tail);
        let ended = match client.stream(call, place.as_deref()).await {
            Err(failure) => failure,
            Ok(mut events) => {
                rejoins.joined();
                match events.place().await {
                    Err(failure) => failure,
                    Ok(known) => {
                        place = known.or(place);
                        if !std::mem::replace(&mut is_ready, true) {
                            let _ended = sender.send(Followed::Ready).await;
                        }
                        loop {
                            match events.next().await {
                                Err(failure) => break failure,
                                Ok(None) => break ended_by_server(),
                                Ok(Some(event)) => {
                                    place = event.id.or(place);
                                    let news = match event.name.as_str() {
                                        "conversation" => Followed::Event(event.data),
                                        "gap" => Followed::Gap,
                                        // Events of later versions.
                                        _ => continue,
                                    };
                                    let _ended = sender.send(news).await;
                                }
                            }
                        }
                    }
                }
            }
        };
        if let Err(failure) = rejoins.wait(ended).await {
            return failure;
        }
    }
}
