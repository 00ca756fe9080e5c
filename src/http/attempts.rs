//! Counts wrong tokens by address, in bounded memory.
//!
//! IPv6 addresses are counted by /64, since a client owns at least that. If too many addresses
//! fail, the one with the oldest window is forgotten: an attacker with thousands of addresses gets
//! some more guesses, but cannot exhaust memory.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::types::Timestamp;

/// Wrong tokens that an address may give within [`WINDOW`].
const FAILURES_MAX: u32 = 30;
/// How long failures are remembered.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered, some 100 bytes each.
const ADDRESSES_MAX: usize = 4_096;

/// Failures by address.
#[derive(Debug, Default)]
pub struct Attempts {
    failures: Mutex<HashMap<IpAddr, Failures>>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    since: Timestamp,
    count: u32,
}

impl Attempts {
    /// For how many more seconds the address is blocked, if it is. A caller without an address (a
    /// test without a socket) is never blocked.
    pub fn blocked_secs(&self, address: Option<IpAddr>, now: Timestamp) -> Option<u32> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = failures.get(&network(address?))?;
        let left = WINDOW.checked_sub(now.since(seen.since)).filter(|left| !left.is_zero())?;
        (seen.count >= FAILURES_MAX).then(|| u32::try_from(left.as_secs()).unwrap_or(0) + 1)
    }

    /// Counts a wrong token.
    pub fn failed(&self, address: Option<IpAddr>, now: Timestamp) {
        let Some(address) = address.map(network) else { return };
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= ADDRESSES_MAX && !failures.contains_key(&address) {
            failures.retain(|_, seen| now.since(seen.since) < WINDOW);
            if failures.len() >= ADDRESSES_MAX {
                let oldest = failures.iter().min_by_key(|(_, seen)| seen.since).map(|(a, _)| *a);
                oldest.map(|oldest| failures.remove(&oldest));
            }
        }
        let seen = failures.entry(address).or_insert(Failures { since: now, count: 0 });
        if now.since(seen.since) >= WINDOW {
            *seen = Failures { since: now, count: 0 };
        }
        seen.count = seen.count.saturating_add(1);
    }
}

/// What counts as one client: an IPv4 address, or the /64 of an IPv6 address.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn too_many_failures_block_an_address_for_a_while() {
        let attempts = Attempts::default();
        let start = Timestamp::from_unix_ms(0);
        for _ in 0..FAILURES_MAX {
            assert_eq!(attempts.blocked_secs(address("10.0.0.1"), start), None);
            attempts.failed(address("10.0.0.1"), start);
        }
        assert!(attempts.blocked_secs(address("10.0.0.1"), start).is_some());
        assert_eq!(attempts.blocked_secs(address("10.0.0.2"), start), None);
        assert_eq!(attempts.blocked_secs(address("10.0.0.1"), start.after(WINDOW)), None);
    }

    #[test]
    fn an_ipv6_client_cannot_change_its_address_to_go_on() {
        let attempts = Attempts::default();
        let now = Timestamp::from_unix_ms(0);
        for host in 0..FAILURES_MAX {
            attempts.failed(address(&format!("2001:db8::{host:x}")), now);
        }
        assert!(attempts.blocked_secs(address("2001:db8::ffff"), now).is_some());
        assert_eq!(attempts.blocked_secs(address("2001:db8:1::1"), now), None);
    }

    #[test]
    fn memory_is_bounded_whatever_many_addresses_fail() {
        let attempts = Attempts::default();
        for n in 0..(ADDRESSES_MAX as u32 + 100) {
            let address = IpAddr::from(n.to_be_bytes());
            attempts.failed(Some(address), Timestamp::from_unix_ms(i64::from(n)));
        }
        let kept = attempts.failures.lock().expect("not poisoned").len();
        assert_eq!(kept, ADDRESSES_MAX);
    }
}
