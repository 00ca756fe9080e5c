//! Reports the limits that a sandbox hits, and kills its processes if nothing else stops them.
//!
//! A limit is reported once in a while, not at each hit: a fork bomb hits its limit a million
//! times. Counters are read [twice a second](LOOK_EVERY) and when the sandbox has ended, because
//! the kernel can't notify about all of them. An event that does not fit into the channel is sent
//! at the next look; at the end the watch waits for room. A lost limit is reported like one that
//! was hit, so a template that stops sandboxes at limits stops this one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::cgroup::{Controller, Group, TAKEN_AWAY};
use super::disk::Workspace;
use super::frame::Request;
use super::link::Link;
use crate::sandbox::{Labels, LimitEffect, LimitEvent};
use crate::types::{Resources, inert};

/// The pause between two looks at the counters.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long after an event the same limit may be reported again.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The capacity of the event channel; further events are sent later.
pub const LIMIT_EVENTS_LEN: usize = 256;

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

/// Reports each limit that a sandbox hits, until its last process has ended.
pub async fn watch(watched: LimitWatch, limit_events: mpsc::Sender<LimitEvent>) {
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
            let effect = LimitEffect::ByTemplate;
            let limit_event = LimitEvent { labels: watched.labels.clone(), reason, effect };
            let left = tally.send(&limit_events, &limit, count, Instant::now(), limit_event);
            if let Some(limit_event) = left.filter(|_| is_over) {
                // Fails if the receiver is gone; then there is nothing to report to.
                let _ = limit_events.send(limit_event).await;
            }
        }
        if is_over {
            if let Some(trouble) = watched.link.trouble() {
                let reason = inert(trouble).into_owned();
                let limit_event =
                    LimitEvent { labels: watched.labels, reason, effect: LimitEffect::Ended };
                let _ = limit_events.send(limit_event).await;
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

/// The events that were sent: for each limit the last count and time.
#[derive(Default)]
struct Tally {
    sent: HashMap<String, (u64, Instant)>,
}

impl Tally {
    /// Sends an event if it is due. Returns it if the channel is full; then it is still due.
    fn send(
        &mut self,
        limit_events: &mpsc::Sender<LimitEvent>,
        limit: &str,
        count: u64,
        now: Instant,
        limit_event: LimitEvent,
    ) -> Option<LimitEvent> {
        if !self.is_due(limit, count, now) {
            return None;
        }
        match limit_events.try_send(limit_event) {
            // Without a receiver there is no need to retry.
            Ok(()) | Err(TrySendError::Closed(_)) => {
                self.sent.insert(limit.to_owned(), (count, now));
                None
            }
            Err(TrySendError::Full(limit_event)) => Some(limit_event),
        }
    }

    /// Whether a higher count is to be reported now.
    fn is_due(&self, limit: &str, count: u64, now: Instant) -> bool {
        match self.sent.get(limit) {
            None => count > 0,
            Some((sent, at)) => count > *sent && now.duration_since(*at) >= REPORT_EVERY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{AccountName, Generation, HomeId, InstanceId, IssueId, Mode, SandboxId};

    fn limit_event() -> LimitEvent {
        let labels = Labels {
            instance: InstanceId::trusted("instance"),
            account: AccountName::default_account(),
            home: HomeId(1),
            issue: IssueId::parse("test-1").expect("an issue id"),
            sandbox: SandboxId::trusted("sandbox"),
            generation: Generation(1),
            mode: Mode::Strong,
        };
        LimitEvent {
            labels,
            reason: "memory limit 64 MB reached".into(),
            effect: LimitEffect::ByTemplate,
        }
    }

    #[tokio::test]
    async fn a_limit_is_reported_when_it_is_hit_and_again_after_a_while() {
        let begin = Instant::now();
        let (sender, mut limit_events) = mpsc::channel(8);
        let mut tally = Tally::default();
        for (seconds, count, is_due) in
            [(0, 0, false), (1, 3, true), (2, 4, false), (61, 4, true), (200, 4, false)]
        {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(tally.send(&sender, "memory", count, now, limit_event()), None);
            assert_eq!(limit_events.try_recv().is_ok(), is_due, "after {seconds} s");
        }
        tally.send(&sender, "pids", 1, begin, limit_event());
        assert!(limit_events.try_recv().is_ok(), "each limit on its own");
    }

    #[tokio::test]
    async fn an_event_without_room_is_sent_as_soon_as_there_is_room() {
        let begin = Instant::now();
        let (sender, mut limit_events) = mpsc::channel(1);
        let mut tally = Tally::default();
        assert_eq!(tally.send(&sender, "disk", 1, begin, limit_event()), None);
        for _ in 0..2 {
            assert_eq!(tally.send(&sender, "memory", 1, begin, limit_event()), Some(limit_event()));
        }
        limit_events.try_recv().expect("sent");
        assert_eq!(tally.send(&sender, "memory", 1, begin, limit_event()), None);
        limit_events.try_recv().expect("sent at last");
        drop(limit_events);
        assert_eq!(
            tally.send(&sender, "pids", 1, begin, limit_event()),
            None,
            "there is no receiver"
        );
    }
}
