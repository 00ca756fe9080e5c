//! Publishes the limits that a sandbox hits, and kills its processes if nothing else stops them; at
//! last its end, if no call asked for that.
//!
//! A limit is published once in a while, not at each hit: a fork bomb hits its limit a million times.
//! Counters are read [twice a second](LOOK_EVERY) and when the sandbox has ended, because the kernel
//! can't notify about all of them. A lost limit is published like one that was hit, so a template that
//! stops sandboxes at limits stops this one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cgroup::{Controller, Group, TAKEN_AWAY};
use super::disk::WorkspaceKind;
use super::frame::Request;
use super::link::Link;
use crate::sandbox::{EventSender, Labels, LimitEffect, LimitEvent, ObjectChange, ProviderEvent};
use crate::types::{Resources, inert};

/// The pause between two looks at the counters.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long after an event the same limit may be published again.
const PUBLISH_EVERY: Duration = Duration::from_secs(60);

/// A sandbox whose limits are watched.
pub struct LimitWatch {
    /// The sandbox.
    pub link: Arc<Link>,
    /// Its control group.
    pub group: Arc<Group>,
    /// The kind of its workspace.
    pub workspace: WorkspaceKind,
    /// Its labels.
    pub labels: Labels,
    /// Its limits.
    pub resources: Resources,
}

/// Publishes each limit that a sandbox hits, until its last process has ended. An end that no call
/// asked for comes last, so that a limit that led to it is known by then.
pub async fn watch(watched: LimitWatch, events: EventSender) {
    let mut tally = Tally::default();
    let mut killed_at = 0;
    loop {
        let is_over = tokio::select! {
            biased;
            () = watched.link.gone() => true,
            () = watched.link.struck() => false,
            () = tokio::time::sleep(LOOK_EVERY) => false,
        };
        let count = watched.link.disk_limit_events();
        match watched.workspace {
            WorkspaceKind::Directory if count > killed_at => {
                killed_at = count;
                // In an ending sandbox there is nothing to kill.
                let _ = watched.link.send(&Request::KillAll, &[]).await;
            }
            WorkspaceKind::Directory | WorkspaceKind::Image => {}
        }
        let lost = watched.group.lost().map(|controller| {
            let what = controller.as_str();
            (what.to_owned(), 1, format!("{what} is no longer limited: {TAKEN_AWAY}"))
        });
        let struck = watched.counts().map(|(limit, count)| {
            let reason = format!("{limit} reached");
            (limit, count, reason)
        });
        for (limit, count, reason) in struck.chain(lost) {
            if tally.is_due(limit, count, Instant::now()) {
                let (labels, effect) = (watched.labels.clone(), LimitEffect::ByTemplate);
                events.publish(ProviderEvent::LimitHit(LimitEvent { labels, reason, effect }));
            }
        }
        if is_over {
            if let Some(trouble) = watched.link.trouble() {
                let reason = inert(trouble).into_owned();
                let (labels, effect) = (watched.labels.clone(), LimitEffect::Ended);
                events.publish(ProviderEvent::LimitHit(LimitEvent { labels, reason, effect }));
            }
            if !watched.link.is_end_asked() {
                let external_id = watched.link.target.external_id.clone();
                let labels = Some(watched.labels);
                events.publish(ProviderEvent::ObjectChanged(ObjectChange { external_id, labels }));
            }
            return;
        }
    }
}

impl LimitWatch {
    /// How often each limit was hit, if that is counted.
    fn counts(&self) -> impl Iterator<Item = (String, u64)> {
        let Resources { cpu: _, memory_mb, processes, disk_mb } = self.resources;
        [
            (format!("memory limit {memory_mb} MB"), self.group.limit_events(Controller::Memory)),
            (format!("process limit {processes}"), self.group.limit_events(Controller::Pids)),
            (format!("disk limit {disk_mb} MB"), Some(self.link.disk_limit_events())),
        ]
        .into_iter()
        .filter_map(|(limit, count)| Some((limit, count?)))
    }
}

/// The last published count of each limit, and its time.
#[derive(Default)]
struct Tally {
    published: HashMap<String, (u64, Instant)>,
}

impl Tally {
    /// Whether to publish a limit's count now; if so, records it as published.
    fn is_due(&mut self, limit: String, count: u64, now: Instant) -> bool {
        let is_due = match self.published.get(&limit) {
            None => count > 0,
            Some((last, at)) => count > *last && now.duration_since(*at) >= PUBLISH_EVERY,
        };
        if is_due {
            self.published.insert(limit, (count, now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_published_when_it_is_hit_and_again_after_a_while() {
        let begin = Instant::now();
        let mut tally = Tally::default();
        for (seconds, count, is_due) in
            [(0, 0, false), (1, 3, true), (2, 4, false), (61, 4, true), (200, 4, false)]
        {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(tally.is_due("memory".into(), count, now), is_due, "after {seconds} s");
        }
        assert!(tally.is_due("pids".into(), 1, begin), "each limit on its own");
    }
}
