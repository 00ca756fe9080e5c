//! Another provider at the address of one of ours: another engine behind the same socket, an
//! account that was exchanged. Until the server could know, its calls break; from when it has heard which
//! answers, it asks nothing more and acts on nothing.
//!
//! What no contract excludes is left out: that it answers a call before anybody asked who it is.

use super::counts::Happening;
use super::world::WorldState;

impl WorldState {
    /// Another provider answers in place of the first one, for a while. The one that is seen first is
    /// taken for the right one, so that this comes later.
    pub fn impersonate(&mut self) {
        let name = &self.clouds[0].name;
        if !self.rows.identities().iter().any(|(known, _)| known == name) {
            return;
        }
        let until_ms = self.elapsed_ms() + self.chance.between(10_000, 240_000);
        self.clouds[0].impostor_until_ms = until_ms;
        self.clouds[0].unmasked_by = None;
        // A fast create is not undone while the wrong one answers: its tries go by without a call.
        self.leave_in_haste();
        self.note(None, || format!("another one is the first provider until {until_ms} ms"));
        self.count(Happening::Impostor);
        self.disturb("connections break");
    }

    pub fn is_impostor(&self, cloud: usize) -> bool {
        self.elapsed_ms() < self.clouds[cloud].impostor_until_ms && !self.weather.calm
    }

    /// Who a provider says it is. The server that heard of another one knows it from now on.
    pub fn identity(&mut self, cloud: usize) -> Option<String> {
        if !self.weather.impostors {
            return None;
        }
        if !self.is_impostor(cloud) {
            return Some(format!("the {}", self.clouds[cloud].name));
        }
        self.clouds[cloud].unmasked_by = self.alive;
        Some("another one".into())
    }

    /// A server that knows the other identity makes no calls.
    pub fn check_asked_of_impostor(&mut self, cloud: usize, what: &str) {
        if self.is_impostor(cloud) && self.clouds[cloud].unmasked_by == self.alive {
            self.violate(None, format!("{what} is asked of a provider with another identity"));
        }
    }
}
