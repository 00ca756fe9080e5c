//! What happens when a limit strikes in a sandbox: it is told, and where nothing else stops what has
//! met it, that is killed.
//!
//! A limit that strikes is told once in a while, not each time: a fork bomb meets its limit a million
//! times. Counts are looked at [twice a second](LOOK_EVERY) and once more when the sandbox has ended,
//! since the kernel can't wake a process for all of them. What there is no room to tell is told at the
//! next look, and at the end it is waited for. A limit that was taken away is told like one that
//! struck: who wants the sandbox stopped then wants it stopped now.

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

/// The pause between two looks at what has struck.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A limit that goes on striking is told again after this.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Strikes that wait to be heard; past that they are told later.
pub const LIMIT_EVENTS_LEN: usize = 256;

/// Where limits strike.
pub struct LimitWatch {
    /// The sandbox.
    pub link: Arc<Link>,
    /// Its control group.
    pub group: Arc<Group>,
    /// What its workspace is.
    pub workspace: Workspace,
    /// Whose it is.
    pub labels: Labels,
    /// The limits.
    pub resources: Resources,
}

/// Acts on each limit that strikes in a sandbox, until nothing of that runs any more.
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
                // One that is ending has nothing to be killed.
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
            let left = tally.tell(&limit_events, &limit, count, Instant::now(), limit_event);
            if let Some(limit_event) = left.filter(|_| is_over) {
                // Where nobody hears any more there is nobody to tell.
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
    /// How often each limit has struck, as far as that is counted.
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

/// What has been told.
#[derive(Default)]
struct Tally {
    told: HashMap<String, (u64, Instant)>,
}

impl Tally {
    /// Tells a strike where its count is news. Gives it back where there is no room: it has not been
    /// told then.
    fn tell(
        &mut self,
        limit_events: &mpsc::Sender<LimitEvent>,
        limit: &str,
        count: u64,
        now: Instant,
        limit_event: LimitEvent,
    ) -> Option<LimitEvent> {
        if !self.is_news(limit, count, now) {
            return None;
        }
        match limit_events.try_send(limit_event) {
            // Where nobody hears any more it need not be tried again.
            Ok(()) | Err(TrySendError::Closed(_)) => {
                self.told.insert(limit.to_owned(), (count, now));
                None
            }
            Err(TrySendError::Full(limit_event)) => Some(limit_event),
        }
    }

    /// Whether a count that rose is to be told now.
    fn is_news(&self, limit: &str, count: u64, now: Instant) -> bool {
        match self.told.get(limit) {
            None => count > 0,
            Some((told, at)) => count > *told && now.duration_since(*at) >= TELL_EVERY,
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
    async fn a_limit_is_told_when_it_strikes_and_again_after_a_while() {
        let begin = Instant::now();
        let (sender, mut limit_events) = mpsc::channel(8);
        let mut tally = Tally::default();
        for (seconds, count, is_news) in
            [(0, 0, false), (1, 3, true), (2, 4, false), (61, 4, true), (200, 4, false)]
        {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(tally.tell(&sender, "memory", count, now, limit_event()), None);
            assert_eq!(limit_events.try_recv().is_ok(), is_news, "after {seconds} s");
        }
        tally.tell(&sender, "pids", 1, begin, limit_event());
        assert!(limit_events.try_recv().is_ok(), "each limit for itself");
    }

    #[tokio::test]
    async fn what_there_was_no_room_to_tell_is_told_as_soon_as_there_is() {
        let begin = Instant::now();
        let (sender, mut limit_events) = mpsc::channel(1);
        let mut tally = Tally::default();
        assert_eq!(tally.tell(&sender, "disk", 1, begin, limit_event()), None);
        for _ in 0..2 {
            assert_eq!(tally.tell(&sender, "memory", 1, begin, limit_event()), Some(limit_event()));
        }
        limit_events.try_recv().expect("told");
        assert_eq!(tally.tell(&sender, "memory", 1, begin, limit_event()), None);
        limit_events.try_recv().expect("told after all");
        drop(limit_events);
        assert_eq!(tally.tell(&sender, "pids", 1, begin, limit_event()), None, "nobody hears");
    }
}
