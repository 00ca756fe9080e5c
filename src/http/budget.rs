//! The memory for what is being received or sent, shared between all clients: one budget for heads
//! and bodies of requests, another for answers that clients have not read.
//!
//! actix-web limits neither the time nor the sum of bodies. Here the received bytes count until
//! they are dropped, within three bounds: the sum of all; three quarters of it for bodies of more
//! than [`SMALL_LEN_MAX`], so that small deliveries always have a part; and a quarter for each
//! address. Where a bound is reached, the one that comes slowest gives way, not the newest:
//! otherwise a client that filled the sum and then waits would keep it.
//!
//! The bytes of an answer count from when they are made until the kernel has taken them. There the
//! slowest is the client that reads the least, and of those alike the one that has not read for the
//! longest.
//!
//! What gives way counts no longer, but is in memory until its task has run, a moment later.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

/// Longest body that counts as small, in bytes. Most deliveries have some 10 to 30 KB.
pub const SMALL_LEN_MAX: usize = 64 * 1024;
/// Those that began less than this ago give way last: their speed says little yet.
const SPEED_KNOWN_AFTER: Duration = Duration::from_secs(1);
/// What is freed at once, as a part of the bound that was reached: looking for the slowest takes
/// as long as there are bodies.
const FREED_AT_ONCE: usize = 64;

/// The budget of all heads and bodies in memory.
#[derive(Debug)]
pub struct Budget {
    max: usize,
    large_max: usize,
    address_max: usize,
    ledger: Mutex<BudgetLedger>,
}

#[derive(Debug, Default)]
struct BudgetLedger {
    used: usize,
    /// The part of it that is in large bodies.
    large: usize,
    of_address: HashMap<IpAddr, usize>,
    shares: HashMap<u64, ShareEntry>,
    next: u64,
}

#[derive(Debug)]
struct ShareEntry {
    address: Option<IpAddr>,
    bytes: usize,
    /// Those of an answer that have not been given to the connection yet.
    unsent: usize,
    /// The bytes that came, or that the client took, since `began`.
    moved: usize,
    began: Instant,
    is_whole: bool,
    notice: Arc<GiveWayNotice>,
}

/// Tells a share's task that it gave way.
#[derive(Debug, Default)]
struct GiveWayNotice {
    has_given_way: AtomicBool,
    task: AtomicWaker,
}

/// The bytes of one head or body in the budget, given back on drop.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    id: u64,
    notice: Arc<GiveWayNotice>,
    /// Whether bytes of an answer count, so that others need no lock.
    holds: AtomicBool,
}

/// There is no room, or what had it gave way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Who gives way first: those whose speed is known, and among them the slowest, in bytes a second,
/// and then the oldest.
type Speed = (bool, u64, Instant);

impl ShareEntry {
    fn speed(&self, moved: usize, now: Instant) -> Speed {
        let age = now.duration_since(self.began);
        let per_second =
            moved as u64 * 1_000_000 / u64::try_from(age.as_micros()).unwrap_or(1).max(1);
        (age < SPEED_KNOWN_AFTER, per_second, self.began)
    }

    const fn is_large(&self) -> bool {
        self.bytes > SMALL_LEN_MAX
    }
}

impl Budget {
    /// An unused budget of `max` bytes.
    pub fn new(max: usize) -> Self {
        let (large_max, address_max) = (max - max / 4, max / 4);
        Self { max, large_max, address_max, ledger: Mutex::default() }
    }

    /// An unused budget of `max` bytes for answers. Neither size nor address has a bound of its own.
    pub fn of_answers(max: usize) -> Self {
        Self { max, large_max: max, address_max: max, ledger: Mutex::default() }
    }

    /// The bytes in memory.
    pub fn used(&self) -> usize {
        self.ledger().used
    }

    /// An empty share. Without an address it has no bound by address.
    pub fn share(self: &Arc<Self>, address: Option<IpAddr>) -> Share {
        let notice = Arc::<GiveWayNotice>::default();
        let entry = ShareEntry {
            address,
            bytes: 0,
            unsent: 0,
            moved: 0,
            began: Instant::now(),
            is_whole: false,
            notice: Arc::clone(&notice),
        };
        let mut ledger = self.ledger();
        let id = ledger.next;
        ledger.next += 1;
        ledger.shares.insert(id, entry);
        drop(ledger);
        Share { budget: Arc::clone(self), id, notice, holds: AtomicBool::new(false) }
    }

    fn ledger(&self) -> MutexGuard<'_, BudgetLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Counts further bytes that came.
    ///
    /// # Errors
    /// [`NoRoom`] if there is none and this is the slowest, or if it gave way before.
    pub fn take(&self, bytes: usize) -> Result<(), NoRoom> {
        self.add(bytes, bytes)
    }

    /// Counts further bytes of an answer, until the client has taken them.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn hold(&self, bytes: usize) -> Result<(), NoRoom> {
        self.add(bytes, 0)?;
        self.holds.store(true, Ordering::Release);
        if let Some(entry) = self.budget.ledger().shares.get_mut(&self.id) {
            entry.unsent += bytes;
        }
        Ok(())
    }

    /// The connection was given so many bytes of an answer, or they are not sent any more.
    pub fn given(&self, bytes: usize) {
        if !self.holds.load(Ordering::Acquire) {
            return;
        }
        if let Some(entry) = self.budget.ledger().shares.get_mut(&self.id) {
            entry.unsent = entry.unsent.saturating_sub(bytes);
        }
    }

    /// The kernel took bytes of an answer; all that the connection was given if it `is_flushed`.
    pub fn sent(&self, bytes: usize, is_flushed: bool) {
        if !self.holds.load(Ordering::Acquire) {
            return;
        }
        let mut ledger = self.budget.ledger();
        let Some(entry) = ledger.shares.get_mut(&self.id).filter(|entry| entry.bytes > 0) else {
            return;
        };
        entry.moved += bytes;
        if is_flushed {
            (entry.moved, entry.began) = (0, Instant::now());
            let unsent = entry.unsent;
            self.holds.store(unsent > 0, Ordering::Release);
            ledger.count(self.id, unsent);
        }
    }

    fn add(&self, bytes: usize, moved: usize) -> Result<(), NoRoom> {
        let mut ledger = self.budget.ledger();
        let now = Instant::now();
        let entry = ledger.shares.get_mut(&self.id).ok_or(NoRoom)?;
        if self.notice.has_given_way.load(Ordering::Acquire) {
            return Err(NoRoom);
        }
        if entry.bytes == 0 && moved == 0 {
            // An answer begins to wait.
            (entry.moved, entry.began) = (0, now);
        }
        let (address, before, after) = (entry.address, entry.bytes, entry.bytes + bytes);
        // A client whose answer goes on has read what came before, so others give way to it.
        let is_answer = moved == 0;
        let moved = entry.moved + moved;
        let own = if is_answer { (true, u64::MAX, now) } else { entry.speed(moved, now) };
        let large = match (before > SMALL_LEN_MAX, after > SMALL_LEN_MAX) {
            (true, _) => bytes,
            (false, true) => after,
            (false, false) => 0,
        };
        if let Some(address) = address {
            let used = ledger.of_address.get(&address).copied().unwrap_or(0);
            let is_of = |entry: &ShareEntry| entry.address == Some(address);
            ledger.make_room(self.id, own, used + bytes, self.budget.address_max, is_of, now)?;
        }
        if large > 0 {
            let used = ledger.large + large;
            ledger.make_room(
                self.id,
                own,
                used,
                self.budget.large_max,
                ShareEntry::is_large,
                now,
            )?;
        }
        let used = ledger.used + bytes;
        ledger.make_room(self.id, own, used, self.budget.max, |_| true, now)?;
        ledger.count(self.id, after);
        if let Some(entry) = ledger.shares.get_mut(&self.id) {
            entry.moved = moved;
        }
        Ok(())
    }

    /// It came whole, and does not give way any more.
    pub fn is_whole(&self) {
        if let Some(entry) = self.budget.ledger().shares.get_mut(&self.id) {
            entry.is_whole = true;
        }
    }

    /// Ready when it gave way; the task is woken then.
    pub fn poll_given_way(&self, context: &Context<'_>) -> Poll<()> {
        self.notice.task.register(context.waker());
        match self.notice.has_given_way.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut ledger = self.budget.ledger();
        ledger.count(self.id, 0);
        ledger.shares.remove(&self.id);
    }
}

impl BudgetLedger {
    /// Has the slowest give way until `used` bytes are within `max`.
    fn make_room(
        &mut self,
        for_id: u64,
        own: Speed,
        used: usize,
        max: usize,
        is_of: impl Fn(&ShareEntry) -> bool,
        now: Instant,
    ) -> Result<(), NoRoom> {
        let Some(needed) = used.checked_sub(max).filter(|needed| *needed > 0) else {
            return Ok(());
        };
        let shares = self.shares.iter().filter(|(id, entry)| {
            **id != for_id && !entry.is_whole && entry.bytes > 0 && is_of(entry)
        });
        let mut slower: Vec<_> = shares
            .map(|(id, entry)| (entry.speed(entry.moved, now), *id, entry.bytes))
            .filter(|(speed, ..)| *speed < own)
            .collect();
        if slower.iter().map(|(.., bytes)| bytes).sum::<usize>() < needed {
            return Err(NoRoom);
        }
        slower.sort_unstable();
        let mut freed = 0;
        for (_, id, bytes) in slower {
            if freed >= needed.max(max / FREED_AT_ONCE) {
                break;
            }
            freed += bytes;
            self.count(id, 0);
            if let Some(entry) = self.shares.get(&id) {
                entry.notice.has_given_way.store(true, Ordering::Release);
                entry.notice.task.wake();
            }
        }
        Ok(())
    }

    /// Counts so many bytes for a share from now on.
    fn count(&mut self, id: u64, bytes: usize) {
        let Some(entry) = self.shares.get_mut(&id) else { return };
        let large_before = if entry.is_large() { entry.bytes } else { 0 };
        let before = std::mem::replace(&mut entry.bytes, bytes);
        let large = if entry.is_large() { bytes } else { 0 };
        self.used = self.used - before + bytes;
        self.large = self.large - large_before + large;
        if let Some(address) = entry.address {
            let used = self.of_address.entry(address).or_default();
            *used = *used - before + bytes;
            if *used == 0 {
                self.of_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: usize = 1024;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn has_given_way(share: &Share) -> bool {
        let waker = futures_util::task::noop_waker();
        share.poll_given_way(&Context::from_waker(&waker)).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_gives_way_and_not_the_newest() {
        let budget = Arc::new(Budget::new(400 * KB));
        let [stalled, quick] = [1, 2].map(|last| budget.share(address(last)));
        stalled.take(60 * KB).expect("there is room");
        tokio::time::advance(Duration::from_secs(5)).await;
        quick.take(60 * KB).expect("there is room");
        let others: Vec<_> = (3..=7).map(|last| budget.share(address(last))).collect();
        for other in &others {
            other.take(55 * KB).expect("there is room");
        }
        assert_eq!((has_given_way(&stalled), budget.used()), (false, 395 * KB));
        let new = budget.share(address(8));
        new.take(10 * KB).expect("the stalled one gives way");
        assert!(has_given_way(&stalled) && !has_given_way(&quick));
        assert_eq!(stalled.take(1), Err(NoRoom), "it stays away");
        assert_eq!(budget.used(), 345 * KB);
        drop((stalled, quick, others, new));
        assert_eq!(budget.used(), 0);
        assert!(budget.ledger().of_address.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quarter_is_kept_for_small_ones() {
        let budget = Arc::new(Budget::new(400 * KB));
        let large: Vec<_> = (0..4).map(|last| budget.share(address(last))).collect();
        for share in &large[..3] {
            share.take(100 * KB).expect("there is room");
            share.is_whole();
        }
        assert_eq!(large[3].take(65 * KB), Err(NoRoom), "whole ones do not give way");
        let small: Vec<_> = (0..2).map(|_| budget.share(None)).collect();
        for share in &small {
            share.take(50 * KB).expect("it is the part of small ones");
        }
        assert_eq!(small[0].take(15 * KB), Err(NoRoom), "it is none any more");
    }

    #[tokio::test(start_paused = true)]
    async fn of_answers_unread_ones_give_way() {
        let budget = Arc::new(Budget::of_answers(400 * KB));
        let [reading, stalled, idle] = [1, 2, 3].map(|_| budget.share(None));
        idle.hold(10 * KB).expect("there is room");
        idle.given(10 * KB);
        idle.sent(10 * KB, true);
        assert_eq!(budget.used(), 0, "it was read whole");
        for share in [&stalled, &reading] {
            share.hold(190 * KB).expect("there is room");
            share.given(64 * KB);
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        reading.sent(10 * KB, false);
        idle.hold(100 * KB).expect("the stalled one gives way");
        assert!(has_given_way(&stalled) && !has_given_way(&reading) && !has_given_way(&idle));
        assert_eq!((budget.used(), stalled.hold(1)), (290 * KB, Err(NoRoom)));
        // Of those whose speed is not known, the oldest gives way.
        let [older, newer] = [4, 5].map(|_| budget.share(None));
        tokio::time::advance(Duration::from_millis(1)).await;
        reading.sent(54 * KB, true);
        assert_eq!(budget.used(), (100 + 126) * KB, "what it took does not count");
        older.hold(150 * KB).expect("there is room");
        tokio::time::advance(Duration::from_millis(1)).await;
        newer.hold(100 * KB).expect("the oldest gives way");
        assert!(has_given_way(&idle) && !has_given_way(&older) && !has_given_way(&reading));
        drop((stalled, reading, idle, older, newer));
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_its_share_and_takes_it_from_itself() {
        let budget = Arc::new(Budget::new(400 * KB));
        let other = budget.share(address(2));
        other.take(10 * KB).expect("there is room");
        let first = budget.share(address(1));
        first.take(60 * KB).expect("there is room");
        tokio::time::advance(Duration::from_secs(2)).await;
        let second = budget.share(address(1));
        second.take(60 * KB).expect("the first gives way");
        assert!(has_given_way(&first) && !has_given_way(&other));
        let slow = budget.share(address(1));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(slow.take(50 * KB), Err(NoRoom), "nothing of the address is slower");
        assert!(!has_given_way(&second));
    }
}
