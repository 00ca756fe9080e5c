//! Limits concurrent name look-ups, for each sandbox and in total.
//!
//! A look-up cannot be cancelled: the system's resolver blocks a thread until the name's servers answer
//! or time out, and an attacker can run a silent server. So a permit is returned when the look-up has
//! really ended, not when its caller stops waiting. A sandbox that looks up silent names uses up its own
//! permits, and others go on. Concurrent look-ups of one name by one sandbox share one answer, because
//! tools look up a name many times at once.

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::resolve::Resolve;

/// Most concurrent look-ups of one sandbox, each of a different name.
pub(super) const LOOKUPS_MAX: usize = 4;

/// Most concurrent look-ups of all sandboxes; each takes a thread.
const TOTAL_MAX: usize = 64;

/// How long a look-up waits for a permit, and then for its answer.
const PERMIT_WAIT: Duration = Duration::from_secs(10);
const RESOLVE_WAIT: Duration = Duration::from_secs(10);

/// The result of a look-up.
type LookupResult = Result<Vec<IpAddr>, LookupFailure>;

/// Look-ups in flight by name, each with a channel for its callers.
type UnderWay = Mutex<HashMap<String, Arc<watch::Sender<Option<LookupResult>>>>>;

/// Shared by the look-ups of all sandboxes.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    names: Arc<dyn Resolve>,
    permits: Arc<Semaphore>,
}

impl Resolver {
    pub(super) fn new(names: Arc<dyn Resolve>) -> Self {
        Self { names, permits: Arc::new(Semaphore::new(TOTAL_MAX)) }
    }

    /// The look-ups of one sandbox.
    pub(super) fn of_one(&self) -> Lookups {
        let own = Arc::new(Semaphore::new(LOOKUPS_MAX));
        Lookups { all: self.clone(), own, under_way: Arc::default() }
    }
}

/// The look-ups of one sandbox.
#[derive(Clone, Debug)]
pub(super) struct Lookups {
    all: Resolver,
    own: Arc<Semaphore>,
    under_way: Arc<UnderWay>,
}

/// Why a name has no addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupFailure {
    /// The resolver's error.
    NotFound(String),
    /// No name server answered.
    NoAnswer,
    /// There was no permit, because too many other look-ups are in flight.
    Overloaded,
}

impl fmt::Display for LookupFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(why) => f.write_str(why),
            Self::NoAnswer => f.write_str("no name server answered in time"),
            Self::Overloaded => {
                f.write_str("too many other names are being looked up; try again later")
            }
        }
    }
}

impl Lookups {
    /// The addresses of a name, at least one.
    ///
    /// # Errors
    /// [`LookupFailure`], within [`PERMIT_WAIT`] and [`RESOLVE_WAIT`].
    pub(super) async fn resolve(&self, name: &str) -> LookupResult {
        let mut answer = {
            let mut under_way = self.under_way();
            match under_way.get(name) {
                Some(sender) => sender.subscribe(),
                None => {
                    let (sender, answer) = watch::channel(None);
                    let sender = Arc::new(sender);
                    under_way.insert(name.to_owned(), Arc::clone(&sender));
                    // A separate task, since other callers may wait for it too.
                    tokio::spawn(self.clone().look_up(name.to_owned(), sender));
                    answer
                }
            }
        };
        let answer = answer.wait_for(Option::is_some).await.map(|answer| (*answer).clone());
        answer.ok().flatten().unwrap_or(Err(LookupFailure::NoAnswer))
    }

    /// Looks a name up and sends the answer to all callers; while it waits for a permit, it stops if all
    /// callers have gone.
    async fn look_up(self, name: String, sender: Arc<watch::Sender<Option<LookupResult>>>) {
        // Its own permit first, so that it holds no shared one while it waits.
        let permits = async {
            let own = Arc::clone(&self.own).acquire_owned().await;
            (own, Arc::clone(&self.all.permits).acquire_owned().await)
        };
        let permits = tokio::select! {
            permits = timeout(PERMIT_WAIT, permits) => permits.ok(),
            () = self.abandoned(&name, &sender) => return,
        };
        let answer = match permits {
            None => Err(LookupFailure::Overloaded),
            Some(permits) => {
                let (names, name) = (Arc::clone(&self.all.names), name.clone());
                // Continues after the timeout, and holds its permits until it has ended.
                let look_up = tokio::spawn(async move {
                    let answer = names.resolve(&name).await;
                    drop(permits);
                    answer
                });
                match timeout(RESOLVE_WAIT, look_up).await {
                    Ok(Ok(Ok(addresses))) if !addresses.is_empty() => Ok(addresses),
                    Ok(Ok(Ok(_none))) => Err(LookupFailure::NotFound("it has no address".into())),
                    Ok(Ok(Err(error))) if error.kind() == ErrorKind::TimedOut => {
                        Err(LookupFailure::NoAnswer)
                    }
                    Ok(Ok(Err(error))) => Err(LookupFailure::NotFound(error.to_string())),
                    Ok(Err(_gone)) => Err(LookupFailure::NotFound("the resolver failed".into())),
                    Err(_late) => Err(LookupFailure::NoAnswer),
                }
            }
        };
        // Later callers start a new look-up.
        self.under_way().remove(&name);
        // The callers may have gone.
        let _ = sender.send(Some(answer));
    }

    /// Returns once a look-up has no caller; it is removed then.
    async fn abandoned(&self, name: &str, sender: &watch::Sender<Option<LookupResult>>) {
        loop {
            sender.closed().await;
            let mut under_way = self.under_way();
            // A caller may have just subscribed.
            if sender.receiver_count() == 0 {
                under_way.remove(name);
                return;
            }
        }
    }

    fn under_way(
        &self,
    ) -> MutexGuard<'_, HashMap<String, Arc<watch::Sender<Option<LookupResult>>>>> {
        // The map is whole between statements.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use tokio::time::Instant;

    use super::*;

    /// Answers for `good.test`, and stays silent for unknown names.
    #[derive(Debug, Default)]
    struct Silent {
        asked: AtomicUsize,
    }

    #[async_trait]
    impl Resolve for Silent {
        async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            match name {
                "good.test" => Ok(vec![Ipv4Addr::LOCALHOST.into()]),
                "empty.test" => Ok(Vec::new()),
                "wrong.test" => Err(io::Error::other("no such name")),
                "slow.test" => {
                    tokio::time::sleep(RESOLVE_WAIT / 2).await;
                    Ok(vec![Ipv4Addr::LOCALHOST.into()])
                }
                _ => std::future::pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_that_looks_up_silent_names_delays_only_itself() {
        let names = Arc::new(Silent::default());
        let all = Resolver::new(Arc::clone(&names) as _);
        let hostile = Arc::new(all.of_one());
        let asking = (0..200).map(|n| {
            let hostile = Arc::clone(&hostile);
            tokio::spawn(async move { hostile.resolve(&format!("silent{n}.test")).await })
        });
        let asking: Vec<_> = asking.collect();
        while names.asked.load(Ordering::Relaxed) < LOOKUPS_MAX {
            tokio::task::yield_now().await;
        }
        // No time passes for the others while the hostile sandbox's look-ups wait.
        let begun = Instant::now();
        let other = all.of_one();
        for _ in 0..100 {
            assert_eq!(other.resolve("good.test").await, Ok(vec![Ipv4Addr::LOCALHOST.into()]));
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(names.asked.load(Ordering::Relaxed), LOOKUPS_MAX + 100);

        let mut ended = Vec::new();
        for task in asking {
            ended.push(task.await.expect("it ends"));
        }
        let count = |failure: &LookupFailure| {
            ended.iter().filter(|one| one.as_ref().is_err_and(|error| error == failure)).count()
        };
        assert_eq!(count(&LookupFailure::NoAnswer), LOOKUPS_MAX);
        assert_eq!(count(&LookupFailure::Overloaded), 200 - LOOKUPS_MAX);
        // No caller waits any more, but the threads are still in use.
        assert_eq!(hostile.resolve("good.test").await, Err(LookupFailure::Overloaded));
    }

    #[tokio::test(start_paused = true)]
    async fn the_total_has_a_bound_and_ended_look_ups_return_their_permits() {
        let names = Arc::new(Silent::default());
        let all = Resolver::new(Arc::clone(&names) as _);
        let many: Vec<_> = (0..TOTAL_MAX / LOOKUPS_MAX + 3).map(|_| all.of_one()).collect();
        let asking = many
            .iter()
            .flat_map(|one| (0..LOOKUPS_MAX).map(move |n| (one, format!("silent{n}.test"))));
        let asking = asking.map(|(one, name)| async move { one.resolve(&name).await });
        let ended = futures_util::future::join_all(asking).await;
        assert_eq!(names.asked.load(Ordering::Relaxed), TOTAL_MAX);
        assert!(ended.iter().all(Result::is_err));

        let (all, few) = (Resolver::new(Arc::clone(&names) as _), LOOKUPS_MAX * 3);
        let one = all.of_one();
        for (name, why) in [("empty.test", "it has no address"), ("wrong.test", "no such name")] {
            for _ in 0..few {
                let failure = one.resolve(name).await.expect_err("nothing is found");
                assert_eq!(failure.to_string(), why);
            }
        }
        assert_eq!(all.permits.available_permits(), TOTAL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_look_ups_of_one_name_share_one_answer() {
        let names = Arc::new(Silent::default());
        let one = Resolver::new(Arc::clone(&names) as _).of_one();
        let asking = (0..LOOKUPS_MAX * 10).map(|_| one.resolve("slow.test"));
        for answer in futures_util::future::join_all(asking).await {
            assert_eq!(answer, Ok(vec![Ipv4Addr::LOCALHOST.into()]));
        }
        assert_eq!(names.asked.load(Ordering::Relaxed), 1);
        assert_eq!(one.resolve("good.test").await, Ok(vec![Ipv4Addr::LOCALHOST.into()]));
        assert!(one.under_way().is_empty(), "ended look-ups are removed");

        // A look-up without a caller that still waits for a permit is not made.
        let silent = (0..LOOKUPS_MAX).map(|n| {
            let one = one.clone();
            tokio::spawn(async move { one.resolve(&format!("silent{n}.test")).await })
        });
        let silent: Vec<_> = silent.collect();
        while names.asked.load(Ordering::Relaxed) < LOOKUPS_MAX + 2 {
            tokio::task::yield_now().await;
        }
        drop(tokio::time::timeout(Duration::ZERO, one.resolve("left.test")).await);
        while one.under_way().contains_key("left.test") {
            tokio::task::yield_now().await;
        }
        assert_eq!(names.asked.load(Ordering::Relaxed), LOOKUPS_MAX + 2);
        drop(silent);
    }
}
