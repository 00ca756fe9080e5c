//! What happens when a sandbox hits a limit: an event is published, and if nothing else stops the
//! processes that hit it, they are killed.
//!
//! A limit that is hit again and again is published once in a while, not each time: a fork bomb hits
//! its limit a million times. Counts are read [twice a second](LOOK_EVERY) and once more when the
//! sandbox has ended, since the kernel can't wake a process for all of them. A limit that was taken
//! away is published like one that was hit: a template that stops the sandbox then wants it stopped
//! now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cgroup::{Controller, Group, TAKEN_AWAY};
use super::disk::Workspace;
use super::frame::Request;
use super::link::Link;
use crate::sandbox::{EventSender, Labels, LimitEffect, LimitEvent, ProviderEvent};
use crate::types::{Resources, inert};

/// The pause between two looks at the counters.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A limit that goes on being hit is published again after this.
const PUBLISH_EVERY: Duration = Duration::from_secs(60);

/// A sandbox whose limits are watched.
pub struct LimitWatch {
    /// The sandbox.
    pub link: Arc<Link>,
    /// Its control group.
    pub group: Arc<Group>,
    /// The kind of its workspace.
    pub workspace: Workspace,
    /// Its labels.
    pub labels: Labels,
    /// Its limits.
    pub resources: Resources,
}

/// Acts on each limit that strikes in a sandbox, until nothing of that runs any more.
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
            Workspace::Directory if count > killed_at => {
                killed_at = count;
                // In an ending sandbox there is nothing to kill.
                let _ = watched.link.send(&Request::KillAll, &[]).await;
            }
            Workspace::Directory | Workspace::Image => {}
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
            if tally.is_news(limit, count, Instant::now()) {
                let (labels, effect) = (watched.labels.clone(), LimitEffect::ByTemplate);
                events.publish(ProviderEvent::LimitHit(LimitEvent { labels, reason, effect }));
            }
        }
        if is_over {
            if let Some(trouble) = watched.link.trouble() {
                let reason = inert(trouble).into_owned();
                let (labels, effect) = (watched.labels, LimitEffect::Ended);
                events.publish(ProviderEvent::LimitHit(LimitEvent { labels, reason, effect }));
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

/// What has been published of each limit: its count then, and when.
#[derive(Default)]
struct Tally {
    published: HashMap<String, (u64, Instant)>,
}

impl Tally {
    /// Whether a limit's count is to be published now; it counts as published then.
    fn is_news(&mut self, limit: String, count: u64, now: Instant) -> bool {
        let is_news = match self.published.get(&limit) {
            None => count > 0,
            Some((last, at)) => count > *last && now.duration_since(*at) >= PUBLISH_EVERY,
        };
        if is_news {
            self.published.insert(limit, (count, now));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_news_when_it_is_hit_and_again_after_a_while() {
        let begin = Instant::now();
        let mut tally = Tally::default();
        for (seconds, count, is_due) in
            [(0, 0, false), (1, 3, true), (2, 4, false), (61, 4, true), (200, 4, false)]
        {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(tally.is_news("memory".into(), count, now), is_due, "after {seconds} s");
        }
        assert!(tally.is_news("pids".into(), 1, begin), "each limit for itself");
    }
}
