//! The state of `issuebox top`: sandboxes, alarms and the selection.

use std::collections::HashMap;

use crate::cli::wire::{ApiSandbox, Changed};

use super::keys::Key;

/// Most sandboxes that are kept. Beyond it those with the oldest change are dropped, failed ones
/// last.
pub(super) const KEPT_MAX: usize = 2_000;

/// The server's status.
#[derive(Clone, Debug, Default)]
pub(super) struct System {
    pub version: String,
    /// What does not work or needs a decision, as sentences.
    pub degraded: Vec<String>,
    /// How many live sandboxes are in each phase.
    pub counts: Vec<(String, u64)>,
}

/// An update from the server.
#[derive(Debug)]
pub(super) enum ViewUpdate {
    /// The whole list; it replaces the previous one.
    All(Vec<ApiSandbox>),
    Changed(Box<Changed>),
    System(System),
    /// The stream of changes is connected.
    Live,
    /// The stream of changes is not connected; why.
    Lost(String),
}

/// What a key requires beyond a change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Quit,
    Nothing,
}

/// The state of the view.
#[derive(Debug, Default)]
pub(super) struct TopView {
    /// The server's address, for the first line.
    pub server: String,
    pub system: System,
    /// Why the stream of changes is not connected; `None` while it is.
    pub lost: Option<String>,
    sandboxes: HashMap<String, ApiSandbox>,
    /// The selected sandbox by id, so that the selection follows it when rows move.
    pub selected: Option<String>,
    pub filter: String,
    pub is_filter_edited: bool,
}

impl TopView {
    /// An empty view that is not connected yet.
    pub fn new(server: &str) -> Self {
        let lost = Some("connecting to the stream of changes".to_owned());
        Self { server: server.to_owned(), lost, ..Self::default() }
    }

    /// Applies an update.
    pub fn take(&mut self, news: ViewUpdate) {
        match news {
            ViewUpdate::All(sandboxes) => {
                self.sandboxes = sandboxes.into_iter().map(|s| (s.id.clone(), s)).collect();
            }
            ViewUpdate::Changed(changed) => {
                let sandbox = changed.sandbox;
                if sandbox.phase.is_none() {
                    self.sandboxes.remove(&sandbox.id);
                } else {
                    self.sandboxes.insert(sandbox.id.clone(), sandbox);
                }
            }
            ViewUpdate::System(system) => self.system = system,
            ViewUpdate::Live => self.lost = None,
            ViewUpdate::Lost(why) => self.lost = Some(why),
        }
        self.bound();
    }

    fn bound(&mut self) {
        if self.sandboxes.len() <= KEPT_MAX {
            return;
        }
        let mut all: Vec<_> = self.sandboxes.values().collect();
        all.sort_unstable_by(|a, b| {
            (has_failed(b), &b.phase_since).cmp(&(has_failed(a), &a.phase_since))
        });
        let beyond: Vec<String> = all.iter().skip(KEPT_MAX).map(|s| s.id.clone()).collect();
        for id in beyond {
            self.sandboxes.remove(&id);
        }
    }

    /// How many sandboxes are kept.
    pub fn kept(&self) -> usize {
        self.sandboxes.len()
    }

    /// Failed sandboxes, the latest first.
    pub fn failed(&self) -> Vec<&ApiSandbox> {
        latest_first(self.sandboxes.values().filter(|s| has_failed(s)))
    }

    /// Sandboxes that match the filter, the latest change first.
    pub fn shown(&self) -> Vec<&ApiSandbox> {
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let passes = |s: &&ApiSandbox| {
            let more = [&s.issue_title, &s.reason];
            wanted.is_empty()
                || has(s.phase_word())
                || has(&s.issue())
                || has(&s.name)
                || more.into_iter().flatten().any(|text| has(text))
        };
        latest_first(self.sandboxes.values().filter(passes))
    }

    /// Handles a key.
    pub fn press(&mut self, key: Key) -> KeyAction {
        match (key, self.is_filter_edited) {
            (Key::Interrupt, _) | (Key::Char('q'), false) => return KeyAction::Quit,
            (Key::Char(c), true) => self.filter.push(c),
            (Key::Backspace, true) => drop(self.filter.pop()),
            (Key::Enter, true) => self.is_filter_edited = false,
            (Key::Escape, _) => {
                self.is_filter_edited = false;
                self.filter.clear();
            }
            (Key::Char('/'), false) => self.is_filter_edited = true,
            (Key::Up, _) | (Key::Char('k'), false) => self.go(|at| at.saturating_sub(1)),
            (Key::Down, _) | (Key::Char('j'), false) => self.go(|at| at + 1),
            (Key::Char(_) | Key::Enter | Key::Backspace, false) => {}
        }
        KeyAction::Nothing
    }

    /// Moves the selection; without one it selects the first row.
    fn go(&mut self, to: impl FnOnce(usize) -> usize) {
        let shown = self.shown();
        let at = shown.iter().position(|s| Some(&s.id) == self.selected.as_ref());
        let at = at.map_or(0, to).min(shown.len().saturating_sub(1));
        self.selected = shown.get(at).map(|s| s.id.clone());
    }
}

fn has_failed(sandbox: &ApiSandbox) -> bool {
    // A failing delete stays in the phase `deleting`.
    sandbox.failure.is_some()
}

fn latest_first<'a>(sandboxes: impl Iterator<Item = &'a ApiSandbox>) -> Vec<&'a ApiSandbox> {
    let mut all: Vec<_> = sandboxes.collect();
    // Timestamps of one format and zone sort as text.
    all.sort_unstable_by(|a, b| (&b.phase_since, &b.id).cmp(&(&a.phase_since, &a.id)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::frame::tests::{changed, sandbox};

    fn shown(state: &TopView) -> Vec<&str> {
        state.shown().into_iter().map(|s| s.issue_id.as_str()).collect()
    }

    #[test]
    fn changes_are_applied_and_the_selection_stays() {
        let mut state = TopView::new("s");
        let all = [("a", "running", 1), ("b", "creating", 2), ("c", "failed", 3)];
        state.take(ViewUpdate::All(all.map(|(id, phase, at)| sandbox(id, phase, at)).into()));
        assert_eq!(shown(&state), ["c", "b", "a"]);
        let press = |state: &mut TopView, text: &str| {
            text.chars().map(|c| state.press(Key::Char(c))).collect::<Vec<_>>().pop()
        };
        press(&mut state, "jjkjjj");
        assert_eq!(state.selected.as_deref(), Some("id-of-a"), "not beyond the last");
        state.take(changed(sandbox("a", "stopping", 4)));
        assert_eq!(shown(&state), ["a", "c", "b"]);
        assert_eq!(state.selected.as_deref(), Some("id-of-a"));
        let mut gone = sandbox("c", "deleting", 5);
        gone.phase = None;
        state.take(changed(gone));
        assert_eq!(shown(&state), ["a", "b"]);

        press(&mut state, "/CREAqt");
        state.press(Key::Backspace);
        state.press(Key::Backspace);
        state.press(Key::Enter);
        assert_eq!((shown(&state), state.is_filter_edited), (vec!["b"], false));
        state.press(Key::Escape);
        assert_eq!(shown(&state), ["a", "b"]);
        assert_eq!(press(&mut state, "q"), Some(KeyAction::Quit));
        assert_eq!(TopView::new("s").press(Key::Interrupt), KeyAction::Quit);
    }

    #[test]
    fn kept_sandboxes_are_bounded_and_failed_ones_are_dropped_last() {
        let mut state = TopView::new("s");
        let mut all: Vec<_> =
            (0..KEPT_MAX).map(|n| sandbox(&n.to_string(), "running", n)).collect();
        all[0] = sandbox("0", "failed", 0);
        state.take(ViewUpdate::All(all));
        state.take(changed(sandbox("more", "running", KEPT_MAX)));
        assert_eq!(state.kept(), KEPT_MAX);
        assert_eq!(state.failed().len(), 1);
        assert!(!shown(&state).contains(&"1"), "the oldest that did not fail");
    }
}
