//! One sweep of one provider: read the records, list the objects, compare, look a second time, send what
//! was seen to the actors.
//!
//! The order is what makes it safe. Each home that the list nominates is read again, and only *then*
//! looked at. So what an actor gets is newer than the state it was compared with, and the actor takes it
//! only if that state is still its own ([`Observation`](crate::issue::event::Observation)). A list that
//! is stale, partial or wrong can nominate too many homes, never decide.

use super::compare::KnownHome;
use super::drift::{Drift, SweepResult, Swept};
use super::items::{self, Outlook};
use super::read::look;
use super::second_look::confirm_all;
use super::sides::{Home, Sides, SweepParts};
use crate::types::{ProviderName, Timestamp};

/// What a sweep led to.
pub(super) struct Outcome {
    pub swept: Swept,
    /// When something that was seen is due before the next sweep.
    pub again_at: Option<Timestamp>,
}

/// Sweeps one provider.
pub(super) async fn sweep(parts: &SweepParts, drift: &Drift, name: &ProviderName) -> Outcome {
    let swept = match look(parts, name).await {
        Ok(sides) => return act(parts, drift, name, sides).await,
        Err(why) => Swept {
            result: SweepResult::NotMade,
            at: parts.env.now(),
            compared: None,
            found: vec![items::not_made(name, why, parts.env.now())],
        },
    };
    Outcome { swept, again_at: None }
}

/// Sends the actors what was found, unless it is too much to be believed.
async fn act(parts: &SweepParts, drift: &Drift, name: &ProviderName, sides: Sides) -> Outcome {
    let doubted = drift.doubted(name, sides.tally.too_much());
    let compared = Some((sides.tally.records, sides.tally.objects));
    let has_open_stop =
        |known: &KnownHome| known.has_open_stop(name) && !parts.restarting.contains(&known.home);
    let is_nominated = |home: &&Home| !home.findings.is_empty() || has_open_stop(&home.known);
    let nominated: Vec<&Home> = sides.homes.values().filter(is_nominated).collect();
    let (result, found) = if doubted.is_empty() {
        (SweepResult::Done, confirm_all(parts, name, &sides, &nominated).await)
    } else {
        let masses = doubted.iter().map(|what| items::of_mass(name, *what, &sides.tally, sides.at));
        let held_back =
            nominated.iter().flat_map(|home| sides.items(name, home, &Outlook::HeldBack));
        (SweepResult::HeldBack, masses.chain(held_back).collect())
    };
    let at = parts.env.now();
    let again_at = sides.again_at;
    Outcome { swept: Swept { result, at, compared, found }, again_at }
}
