//! How many names are looked up at once: of a sandbox, and of all.
//!
//! A look-up can't be called off: the system's resolver has a thread until it gives up on the name's
//! servers, which anybody can run, silent ones too. So a place is given back when the look-up has
//! really ended, not when nobody waits for it any more; a sandbox that asks for names which nobody
//! answers runs out of its own places, and the others go on. Who asks for a name that is being looked
//! up for the same sandbox waits for that answer: tools ask for one name many times at once.

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::resolve::Resolve;

/// Most look-ups of one sandbox at once, each of another name. Tools ask for few.
pub(super) const LOOKUPS_MAX: usize = 4;

/// Most look-ups of all sandboxes at once, each of which takes a thread.
const TOTAL_MAX: usize = 64;

/// How long a look-up waits for a place, and then for its answer.
const PLACE_WAIT: Duration = Duration::from_secs(10);
const RESOLVE_WAIT: Duration = Duration::from_secs(10);

/// What a look-up comes to.
type LookupResult = Result<Vec<IpAddr>, LookupFailure>;

/// Look-ups under way by name: who waits for each hears from there.
type UnderWay = Mutex<HashMap<String, Arc<watch::Sender<Option<LookupResult>>>>>;

/// What all sandboxes' look-ups share.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    names: Arc<dyn Resolve>,
    places: Arc<Semaphore>,
}

impl Resolver {
    pub(super) fn new(names: Arc<dyn Resolve>) -> Self {
        Self { names, places: Arc::new(Semaphore::new(TOTAL_MAX)) }
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
    /// What the resolver says.
    NotFound(String),
    /// It says nothing.
    NoAnswer,
    /// It could not be asked: too many other names are without an answer.
    NoPlace,
}

impl fmt::Display for LookupFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(why) => f.write_str(why),
            Self::NoAnswer => f.write_str("no name server answered in time"),
            Self::NoPlace => {
                f.write_str("too many other names are being looked up; try again later")
            }
        }
    }
}

impl Lookups {
    /// The addresses of a name, at least one.
    ///
    /// # Errors
    /// [`LookupFailure`], within [`PLACE_WAIT`] and [`RESOLVE_WAIT`].
    pub(super) async fn resolve(&self, name: &str) -> LookupResult {
        let mut answer = {
            let mut under_way = self.under_way();
            match under_way.get(name) {
                Some(teller) => teller.subscribe(),
                None => {
                    let (teller, answer) = watch::channel(None);
                    let teller = Arc::new(teller);
                    under_way.insert(name.to_owned(), Arc::clone(&teller));
                    // A task of its own, since others may wait for it, too.
                    tokio::spawn(self.clone().look_up(name.to_owned(), teller));
                    answer
                }
            }
        };
        let answer = answer.wait_for(Option::is_some).await.map(|answer| (*answer).clone());
        answer.ok().flatten().unwrap_or(Err(LookupFailure::NoAnswer))
    }

    /// Looks a name up and tells all who wait for it; gives up while it waits for a place where
    /// nobody does.
    async fn look_up(self, name: String, teller: Arc<watch::Sender<Option<LookupResult>>>) {
        // Its own first: what waits here holds no place that others could have.
        let places = async {
            let own = Arc::clone(&self.own).acquire_owned().await;
            (own, Arc::clone(&self.all.places).acquire_owned().await)
        };
        let places = tokio::select! {
            places = timeout(PLACE_WAIT, places) => places.ok(),
            () = self.forsaken(&name, &teller) => return,
        };
        let answer = match places {
            None => Err(LookupFailure::NoPlace),
            Some(places) => {
                let (names, name) = (Arc::clone(&self.all.names), name.clone());
                // Goes on where it is late, and has its places until it has ended.
                let look_up = tokio::spawn(async move {
                    let answer = names.resolve(&name).await;
                    drop(places);
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
        // Whoever comes from here on asks anew.
        self.under_way().remove(&name);
        // Nobody may be left to hear it.
        let _ = teller.send(Some(answer));
    }

    /// Returns once nobody waits for a name, which can be asked for anew then.
    async fn forsaken(&self, name: &str, teller: &watch::Sender<Option<LookupResult>>) {
        loop {
            teller.closed().await;
            let mut under_way = self.under_way();
            // Somebody may have come in this moment.
            if teller.receiver_count() == 0 {
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

    /// Answers for `good.test` alone, and not at all for others.
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
    async fn who_asks_for_names_that_nobody_answers_waits_alone() {
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
        // No time passes for the others, however many of the hostile one's wait.
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
        assert_eq!(count(&LookupFailure::NoPlace), 200 - LOOKUPS_MAX);
        // Nobody waits any more, and the threads are still taken.
        assert_eq!(hostile.resolve("good.test").await, Err(LookupFailure::NoPlace));
    }

    #[tokio::test(start_paused = true)]
    async fn all_together_have_a_bound_and_ended_look_ups_give_back_their_places() {
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
        assert_eq!(all.places.available_permits(), TOTAL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_one_name_at_once_waits_for_one_answer() {
        let names = Arc::new(Silent::default());
        let one = Resolver::new(Arc::clone(&names) as _).of_one();
        let asking = (0..LOOKUPS_MAX * 10).map(|_| one.resolve("slow.test"));
        for answer in futures_util::future::join_all(asking).await {
            assert_eq!(answer, Ok(vec![Ipv4Addr::LOCALHOST.into()]));
        }
        assert_eq!(names.asked.load(Ordering::Relaxed), 1);
        assert_eq!(one.resolve("good.test").await, Ok(vec![Ipv4Addr::LOCALHOST.into()]));
        assert!(one.under_way().is_empty(), "nothing is kept of what has ended");

        // What nobody waits for any more before it has a place is not asked.
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
