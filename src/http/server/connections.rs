//! The open connections: how each of them is, how many there may be, and their end.
//!
//! Their number is bounded below the limit of open files, and for one address at half of that.
//! Where a bound is reached, another connection gives way to the new one: one that is idle, then
//! one whose request comes too slowly, then one whose client does not read; of the address that
//! has most. Only where all are at work is the new one refused.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::http::budget::Share;

/// How long the speed of a request says little.
const SPEED_KNOWN_AFTER: Duration = Duration::from_secs(1);
/// A request that comes slower than this may give way, in bytes a second.
const SLOW: u64 = 4096;
/// A client that reads nothing for this long may give way.
const DEAF_AFTER: Duration = Duration::from_secs(5);
/// How many give way at once, as a part of all: looking for them takes as long as there are
/// connections.
const GIVE_WAY_AT_ONCE: usize = 32;

/// Connections that may be open besides, until the tasks of those that gave way have run.
const OPEN_SPARE: usize = 16;

/// The open connections of a server.
#[derive(Debug)]
pub struct Connections {
    max: usize,
    address_max: usize,
    table: Mutex<Table>,
    stage: AtomicU8,
    /// Notified when one has ended.
    ended: Notify,
    began: Instant,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Arc<ClientConnection>>,
    /// Those that have not given way.
    kept: usize,
    of_address: HashMap<IpAddr, usize>,
    next: u64,
}

/// How far the server's end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndStage {
    /// It serves.
    Open,
    /// A connection ends when it has no request and nothing lies in its socket, unless it is so new that
    /// its first request may still come.
    Draining,
    /// A connection ends when it has no whole head of a request.
    Closing,
}

impl EndStage {
    const fn of(number: u8) -> Self {
        match number {
            0 => Self::Open,
            1 => Self::Draining,
            _ => Self::Closing,
        }
    }
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// No byte of a request has come, or what comes is discarded.
    Idle,
    /// A request is coming.
    Receiving,
    /// A request is being answered.
    Working,
    /// An answer waits until the client reads.
    Blocked,
}

impl Doing {
    const fn of(number: u8) -> Self {
        match number {
            0 => Self::Idle,
            1 => Self::Receiving,
            2 => Self::Working,
            _ => Self::Blocked,
        }
    }
}

/// A connection, as it is seen from outside of its task.
#[derive(Debug)]
pub struct ClientConnection {
    address: Option<IpAddr>,
    /// Whether a request has come that is not answered.
    is_asked: AtomicBool,
    /// What it does, since when in milliseconds, and the bytes that came since.
    doing: AtomicU8,
    since: AtomicU64,
    bytes: AtomicU64,
    has_given_way: AtomicBool,
    /// Wakes its task.
    waker: AtomicWaker,
    /// The memory of what its client has not read yet.
    unread: OnceLock<Share>,
}

/// The registration of an open connection; its drop ends it.
#[derive(Debug)]
pub struct Registered {
    of: Arc<Connections>,
    id: u64,
    pub connection: Arc<ClientConnection>,
}

/// Held until the answer to a request has been written or given up.
#[derive(Debug)]
pub struct Answering(Arc<ClientConnection>);

/// A new connection's place.
#[derive(Debug)]
pub struct ConnectionAdmission {
    /// `None` if all places are taken by connections at work.
    pub place: Option<Registered>,
    /// How many gave way to it.
    pub gave_way: usize,
}

/// Who gives way first.
type Rank = (u8, Reverse<usize>, u64);

impl Connections {
    /// No connection yet, of at most so many.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            address_max: (max / 2).max(1),
            table: Mutex::default(),
            stage: AtomicU8::new(EndStage::Open as u8),
            ended: Notify::new(),
            began: Instant::now(),
        }
    }

    /// Registers a connection. Without an address it has no bound by address.
    pub fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> ConnectionAdmission {
        let now = self.now();
        let mut table = self.table();
        let mut gave_way = 0;
        let of = |table: &Table| address.and_then(|own| table.of_address.get(&own).copied());
        if of(&table).unwrap_or(0) >= self.address_max {
            gave_way += table.give_way(1, now, |other| other.address == address);
        }
        if table.kept >= self.max {
            gave_way += table.give_way(1 + self.max / GIVE_WAY_AT_ONCE, now, |_| true);
        }
        let is_full = table.kept >= self.max || of(&table).unwrap_or(0) >= self.address_max;
        if is_full {
            return ConnectionAdmission { place: None, gave_way };
        }
        let connection = Arc::new(ClientConnection {
            address,
            is_asked: AtomicBool::new(false),
            doing: AtomicU8::new(Doing::Idle as u8),
            since: AtomicU64::new(now),
            bytes: AtomicU64::new(0),
            has_given_way: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            unread: OnceLock::new(),
        });
        let id = table.next;
        table.next += 1;
        table.open.insert(id, Arc::clone(&connection));
        table.kept += 1;
        if let Some(address) = address {
            *table.of_address.entry(address).or_default() += 1;
        }
        drop(table);
        let place = Registered { of: Arc::clone(self), id, connection };
        ConnectionAdmission { place: Some(place), gave_way }
    }

    /// Returns when another connection may be open. Those that gave way are open until their tasks
    /// have run. One caller at a time, and not together with [`Self::all_ended`].
    pub async fn room(&self) {
        while self.open() >= self.max + self.max / 8 + OPEN_SPARE {
            self.ended.notified().await;
        }
    }

    /// Returns when there is no connection.
    pub async fn all_ended(&self) {
        while self.open() > 0 {
            self.ended.notified().await;
        }
    }

    fn open(&self) -> usize {
        self.table().open.len()
    }

    /// How far the server's end has come.
    pub fn stage(&self) -> EndStage {
        EndStage::of(self.stage.load(Ordering::Acquire))
    }

    /// Moves the server's end on.
    pub fn enter(&self, stage: EndStage) {
        self.stage.store(stage as u8, Ordering::Release);
        for connection in self.table().open.values() {
            connection.waker.wake();
        }
    }

    /// Milliseconds since the beginning.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Has at most `count` connections give way; how many did.
    fn give_way(
        &mut self,
        count: usize,
        now: u64,
        is_of: impl Fn(&ClientConnection) -> bool,
    ) -> usize {
        let mut ranks: Vec<(Rank, u64)> = self
            .open
            .iter()
            .filter(|(_, connection)| is_of(connection))
            .filter_map(|(id, connection)| Some((self.rank(connection, now)?, *id)))
            .collect();
        ranks.sort_unstable();
        ranks.truncate(count);
        for (_, id) in &ranks {
            let Some(connection) = self.open.get(id).cloned() else { continue };
            connection.has_given_way.store(true, Ordering::Release);
            connection.waker.wake();
            self.count_no_longer(&connection);
        }
        ranks.len()
    }

    fn rank(&self, connection: &ClientConnection, now: u64) -> Option<Rank> {
        if connection.has_given_way.load(Ordering::Acquire) {
            return None;
        }
        let since = connection.since.load(Ordering::Acquire);
        let age = Duration::from_millis(now.saturating_sub(since));
        let place = match Doing::of(connection.doing.load(Ordering::Acquire)) {
            Doing::Idle => 0,
            Doing::Receiving if age >= SPEED_KNOWN_AFTER => {
                let bytes = connection.bytes.load(Ordering::Acquire);
                (bytes / age.as_secs().max(1) < SLOW).then_some(1)?
            }
            Doing::Blocked if age >= DEAF_AFTER => 2,
            Doing::Receiving | Doing::Blocked | Doing::Working => return None,
        };
        let of_address = connection.address.and_then(|own| self.of_address.get(&own));
        Some((place, Reverse(of_address.copied().unwrap_or(0)), since))
    }

    fn count_no_longer(&mut self, connection: &ClientConnection) {
        self.kept -= 1;
        if let Some(address) = connection.address
            && let Some(count) = self.of_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.of_address.remove(&address);
            }
        }
    }
}

impl ClientConnection {
    /// Its client's address, unless that is of a trusted proxy.
    pub const fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Has changes from outside wake this task.
    pub fn wakes(&self, task: &std::task::Waker) {
        self.waker.register(task);
    }

    /// Whether it has to end for another one.
    pub fn has_given_way(&self) -> bool {
        self.has_given_way.load(Ordering::Acquire)
    }

    /// Takes the share that its answers count in.
    pub fn counts_in(&self, share: Share) {
        // There is one stream for a connection.
        let _ = self.unread.set(share);
    }

    /// The memory of what its client has not read yet.
    pub fn unread(&self) -> Option<&Share> {
        self.unread.get()
    }

    /// A request has come.
    pub fn asked(&self) {
        self.is_asked.store(true, Ordering::Release);
    }

    /// Whether a request has come that is not answered.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// The request that has come is being answered.
    pub fn answering(self: &Arc<Self>) -> Answering {
        Answering(Arc::clone(self))
    }
}

impl Answering {
    /// The connection that it is on.
    pub fn connection(&self) -> &ClientConnection {
        &self.0
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.is_asked.store(false, Ordering::Release);
    }
}

impl Registered {
    /// How far the server's end has come.
    pub fn stage(&self) -> EndStage {
        self.of.stage()
    }

    /// Notes what it does now, and the bytes that came.
    pub fn does(&self, doing: Doing, bytes: usize) {
        let connection = &self.connection;
        if connection.doing.swap(doing as u8, Ordering::AcqRel) != doing as u8 {
            connection.since.store(self.of.now(), Ordering::Release);
            connection.bytes.store(0, Ordering::Release);
        }
        connection.bytes.fetch_add(bytes as u64, Ordering::AcqRel);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut table = self.of.table();
        table.open.remove(&self.id);
        if !self.connection.has_given_way() {
            table.count_no_longer(&self.connection);
        }
        drop(table);
        self.of.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn admitted(of: &Arc<Connections>, last: u8) -> Registered {
        of.admit(address(last)).place.expect("there is a place")
    }

    fn gone(places: &[Registered]) -> Vec<usize> {
        let gone = places.iter().enumerate().filter(|(_, place)| place.connection.has_given_way());
        gone.map(|(n, _)| n).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_one_of_the_address_with_most_gives_way() {
        let connections = Arc::new(Connections::new(8));
        let mut places: Vec<_> = (0..6).map(|n| admitted(&connections, 1 + n / 3)).collect();
        places.push(admitted(&connections, 3));
        tokio::time::advance(Duration::from_secs(1)).await;
        places.push(admitted(&connections, 2));
        assert!(gone(&places).is_empty());
        places.push(admitted(&connections, 4));
        assert_eq!(gone(&places), [3], "the second address has four");
        places[0].does(Doing::Working, 0);
        let newer = [admitted(&connections, 5), admitted(&connections, 6)];
        assert_eq!(gone(&places).len(), 3);
        assert!(!places[0].connection.has_given_way() && gone(&newer).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_half_of_the_places() {
        let connections = Arc::new(Connections::new(8));
        let places: Vec<_> = (0..4).map(|_| admitted(&connections, 1)).collect();
        places[0].does(Doing::Working, 0);
        let fifth = admitted(&connections, 1);
        assert_eq!(gone(&places), [1]);
        for place in places.iter().chain([&fifth]) {
            place.does(Doing::Working, 0);
        }
        assert!(connections.admit(address(1)).place.is_none());
        assert!(connections.admit(None).place.is_some(), "as a proxy's");
    }

    #[tokio::test(start_paused = true)]
    async fn those_at_work_stay_and_slow_ones_do_not() {
        let connections = Arc::new(Connections::new(4));
        let places: Vec<_> = (0..4).map(|n| admitted(&connections, n)).collect();
        places[0].does(Doing::Working, 0);
        places[1].does(Doing::Receiving, 10);
        places[2].does(Doing::Receiving, 100_000);
        places[3].does(Doing::Blocked, 0);
        assert!(connections.admit(address(9)).place.is_none(), "all began just now");
        tokio::time::advance(Duration::from_secs(6)).await;
        let one = admitted(&connections, 8);
        one.does(Doing::Working, 0);
        let other = admitted(&connections, 9);
        other.does(Doing::Working, 0);
        assert_eq!(gone(&places), [1, 3]);
        assert!(connections.admit(address(7)).place.is_none(), "the rest is at work");
        drop(places);
        assert_eq!(connections.open(), 2);
    }
}
