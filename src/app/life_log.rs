//! The log of an ordinary day: a line for each sandbox that is begun, made, started, stopped, failed or
//! deleted, and a line a minute that sums up the deliveries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::{Change, Publisher};
use crate::http::Feed;
use crate::http::metrics::DeliveryCounts;
use crate::telemetry::LIFE;
use crate::types::{HomeId, Phase, Sandbox, TimelineEntry, Timestamp};

/// How often deliveries are summed up.
const SUMMARY_EVERY: Duration = Duration::from_secs(60);

/// Logs the changes that the engine publishes, and passes them on.
pub(super) struct LifeLog {
    next: Arc<dyn Publisher>,
    /// Since when homes are in a phase that leads on by itself.
    under_way: Mutex<HashMap<HomeId, Timestamp>>,
}

impl LifeLog {
    /// In front of this publisher.
    pub fn new(next: Arc<dyn Publisher>) -> Self {
        Self { next, under_way: Mutex::default() }
    }

    /// Since when what the change ends was under way.
    fn turn(&self, change: &Change) -> Option<Timestamp> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let sandbox = change.sandbox.as_deref();
        match sandbox.filter(|sandbox| sandbox.phase.is_some_and(Phase::is_transitional)) {
            Some(sandbox) => under_way.insert(change.home, sandbox.phase_since),
            None => under_way.remove(&change.home),
        }
    }
}

impl Publisher for LifeLog {
    fn publish(&self, change: Arc<Change>) {
        let since = self.turn(&change);
        for row in &change.timeline {
            if let (Some(turn), Some(sandbox)) = (LifeTurn::of(row), change.sandbox_of(row)) {
                turn.log(&change, sandbox, row, since);
            }
        }
        self.next.publish(change);
    }
}

/// What the log says of a sandbox's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LifeTurn {
    Begun,
    Made,
    Started,
    Stopped,
    Failed,
    Deleted,
}

impl LifeTurn {
    /// What an entry of the timeline is; `None` for what is only on its way.
    fn of(row: &TimelineEntry) -> Option<Self> {
        if row.from == row.to {
            return None;
        }
        match row.to {
            Some(Phase::Creating) => Some(Self::Begun),
            Some(Phase::Running) if row.from == Some(Phase::Creating) => Some(Self::Made),
            Some(Phase::Running) => Some(Self::Started),
            Some(Phase::Stopped) => Some(Self::Stopped),
            Some(Phase::Failed) => Some(Self::Failed),
            None => Some(Self::Deleted),
            Some(Phase::Starting | Phase::Stopping | Phase::Deleting) => None,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Begun => "sandbox begun",
            Self::Made => "sandbox made",
            Self::Started => "sandbox started",
            Self::Stopped => "sandbox stopped",
            Self::Failed => "sandbox failed",
            Self::Deleted => "sandbox deleted",
        }
    }

    fn log(self, change: &Change, of: &Sandbox, row: &TimelineEntry, since: Option<Timestamp>) {
        let (words, account, reason) = (self.words(), change.account.as_str(), &row.reason);
        let issue = match (&of.repository, of.issue_number) {
            (Some(repository), Some(number)) => format!("{repository}#{number}"),
            (None, _) | (_, None) => of.issue_id.to_string(),
        };
        let took = since.map(|since| row.at.since(since).as_millis());
        let took = took.and_then(|ms| u64::try_from(ms).ok());
        let (id, name) = (of.id.as_str(), of.name.as_str());
        if self == Self::Failed {
            tracing::warn!(
                target: LIFE,
                { sandbox.id = id, name, account, issue, duration_ms = took, reason },
                "{words}"
            );
        } else {
            tracing::info!(
                target: LIFE,
                { sandbox.id = id, name, account, issue, duration_ms = took, reason },
                "{words}"
            );
        }
    }
}

/// Sums up the deliveries of each minute that had any, until the server ends.
pub(super) async fn sum_up_deliveries(feed: Arc<Feed>, mut ended: watch::Receiver<bool>) {
    let mut before = DeliveryCounts::default();
    loop {
        let has_ended = tokio::select! {
            () = tokio::time::sleep(SUMMARY_EVERY) => false,
            // An error means that the owner is gone.
            _ = ended.wait_for(|ended| *ended) => true,
        };
        let now = feed.metrics.delivery_counts();
        let DeliveryCounts { applied, ignored, duplicate, refused } = now.since(&before);
        let received = applied + ignored + duplicate + refused;
        if received > 0 {
            tracing::info!(received, applied, ignored, duplicate, refused, "deliveries");
        }
        if has_ended {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::http::wire::tests::sample;
    use crate::types::Generation;

    /// What was logged.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Kept {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    impl Kept {
        fn subscriber(&self) -> impl tracing::Subscriber + use<> {
            tracing_subscriber::fmt().json().flatten_event(true).with_writer(self.clone()).finish()
        }

        fn lines(&self) -> Vec<serde_json::Value> {
            let bytes = self.0.lock().expect("not poisoned").clone();
            let text = String::from_utf8(bytes).expect("text");
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
        }
    }

    /// Publishes a sandbox's way through these phases, each two seconds after the one before.
    fn live(log: &LifeLog, phases: &[Option<Phase>]) {
        let (mut from, home) = (None, HomeId(1));
        for (secs, to) in (2..).step_by(2).zip(phases) {
            let at = Timestamp::from_unix_ms(secs * 1000);
            let sandbox = Sandbox { phase: *to, phase_since: at, ..sample("5") };
            let (reason, cause) = (format!("because of {secs}"), "test".into());
            let row = TimelineEntry { at, generation: Generation(1), from, to: *to, reason, cause };
            let (sandbox, ended) = match to {
                Some(_) => (Some(Arc::new(sandbox)), None),
                None => (None, Some(Arc::new(sandbox))),
            };
            log.publish(Arc::new(Change {
                sandbox,
                ended,
                timeline: vec![row],
                ..Change::bare(home, 1)
            }));
            from = *to;
        }
    }

    #[test]
    fn each_turn_of_a_sandbox_s_life_is_one_line() {
        let (kept, log) = (Kept::default(), LifeLog::new(Arc::new(Feed::new("run"))));
        let phases = [
            Some(Phase::Creating),
            Some(Phase::Running),
            Some(Phase::Stopping),
            Some(Phase::Stopped),
            Some(Phase::Starting),
            Some(Phase::Running),
            Some(Phase::Failed),
            Some(Phase::Deleting),
            None,
        ];
        tracing::subscriber::with_default(kept.subscriber(), || live(&log, &phases));
        let lines = kept.lines();
        let said: Vec<_> = lines
            .iter()
            .map(|line| {
                let word = |field: &str| line[field].as_str().unwrap_or("-").to_owned();
                format!("{} {} {}", word("level"), word("message"), line["duration_ms"])
            })
            .collect();
        insta::assert_snapshot!(said.join("\n"), @r"
        INFO sandbox begun null
        INFO sandbox made 2000
        INFO sandbox stopped 2000
        INFO sandbox started 2000
        WARN sandbox failed null
        INFO sandbox deleted 2000
        ");
        let made = &lines[1];
        assert_eq!(
            (&made["sandbox.id"], &made["name"]),
            (&"sb-5".into(), &"claude-issue-5".into())
        );
        assert_eq!(
            (&made["account"], &made["reason"]),
            (&"default".into(), &"because of 4".into())
        );
        assert_eq!(made["issue"], "Octo/hello#7");
        assert!(log.under_way.lock().expect("not poisoned").is_empty(), "nothing is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn a_minute_with_deliveries_is_summed_up_and_one_without_is_silent() {
        let kept = Kept::default();
        let _logging = tracing::subscriber::set_default(kept.subscriber());
        let (feed, (end, ended)) = (Arc::new(Feed::new("run")), watch::channel(false));
        let summing = tokio::spawn(sum_up_deliveries(Arc::clone(&feed), ended));
        let results =
            ["accepted", "accepted", "ignored", "duplicate", "bad_signature", "overloaded"];
        results.into_iter().for_each(|result| feed.metrics.delivered(result));
        tokio::time::sleep(SUMMARY_EVERY * 3 + Duration::from_secs(1)).await;
        feed.metrics.delivered("accepted");
        end.send_replace(true);
        summing.await.expect("it ends with the server");
        let lines = kept.lines();
        let said: Vec<_> = lines
            .iter()
            .map(|line| {
                let fields = ["received", "applied", "ignored", "duplicate", "refused"];
                format!("{:?}", fields.map(|field| line[field].as_u64()))
            })
            .collect();
        assert_eq!(
            said,
            [
                "[Some(6), Some(2), Some(1), Some(1), Some(2)]",
                "[Some(1), Some(1), Some(0), Some(0), Some(0)]"
            ]
        );
    }
}
