//! Decides which sandboxes to end as the host's disk fills up. Pure: room and growth in, keys out.
//!
//! Ending a sandbox frees nothing; it keeps what is left. So at a mark those that grew most are
//! ended, until the recent growth of the others fits into half the room. The next is ended only if
//! the room goes on shrinking, so a sandbox that writes little survives. A sandbox's past rate
//! does not bound its future rate: the kernel throttles all writers while the disk is busy, and
//! each end frees bandwidth for the others. So they are ended together, and early if at their
//! fastest rates they would pass the mark.

use std::cmp::Reverse;

use crate::sandbox::DiskRoom;

/// The part of the reserve that must be left to unmount all running sandboxes; below it, all are
/// ended.
const ALL_BELOW_PART: u64 = 8;

/// The next sandbox is ended when the room has shrunk to this percentage since the last one.
const NEXT_PERCENT: u64 = 75;

/// How many looks of writing at full speed must fit: one until it is seen, one late look, and one
/// until the writer has ended.
const LOOKS_AHEAD: u64 = 3;

/// The recent growth of the sandboxes that stay must fit into this part of the room, since they
/// may speed up.
const REST_PART: u64 = 2;

/// A running sandbox and its growth; `None` if unknown.
pub type Growth<K> = (K, Option<Grown>);

/// The growth of a sandbox, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grown {
    /// Within the last seconds.
    pub lately: u64,
    /// The most between two looks in that time.
    pub fastest: u64,
}

/// The progress between *enough* and *full*.
#[derive(Default)]
pub struct Marks {
    /// The room below which the next one is ended, in bytes; `None` if none was ended yet.
    next: Option<u64>,
}

impl Marks {
    /// The sandboxes to end now, at this `room` in bytes; data that is not on disk yet counts as
    /// used.
    pub fn pass<K: Clone>(&mut self, disk: DiskRoom, room: u64, running: &[Growth<K>]) -> Vec<K> {
        if room >= disk.kept_free {
            self.next = None;
            return Vec::new();
        }
        if room < disk.kept_free / ALL_BELOW_PART {
            return running.iter().map(|(key, _)| key.clone()).collect();
        }
        let known = || running.iter().filter_map(|(key, grown)| Some((key, (*grown)?)));
        let fastest = known().fold(0_u64, |sum, (_, grown)| sum.saturating_add(grown.fastest));
        let is_next = room < disk.ended_below() && room < self.next.unwrap_or(u64::MAX);
        if !is_next && fastest.saturating_mul(LOOKS_AHEAD) <= room {
            return Vec::new();
        }
        let ended = biggest(known().collect(), room, usize::from(is_next));
        if !ended.is_empty() {
            self.next = Some(room / 100 * NEXT_PERCENT);
        }
        ended
    }
}

/// The sandboxes that grew most: at least `at_least`, and as many as needed for the growth of the
/// others to fit into a part of the room. None that did not grow.
fn biggest<K: Clone>(mut running: Vec<(&K, Grown)>, room: u64, at_least: usize) -> Vec<K> {
    running.retain(|(_, grown)| grown.lately > 0);
    running.sort_by_key(|(_, grown)| Reverse(grown.lately));
    let mut left = running.iter().fold(0_u64, |sum, (_, grown)| sum.saturating_add(grown.lately));
    let mut ended = Vec::new();
    for (key, grown) in running {
        if left <= room / REST_PART && ended.len() >= at_least {
            break;
        }
        left = left.saturating_sub(grown.lately);
        ended.push(key.clone());
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: u64 = 800 << 20;

    fn pass(marks: &mut Marks, room_mb: u64, running: &[Growth<char>]) -> String {
        let disk = DiskRoom { free: 0, kept_free: KEPT };
        marks.pass(disk, room_mb << 20, running).into_iter().collect()
    }

    const fn lately(bytes: u64) -> Option<Grown> {
        Some(Grown { lately: bytes, fastest: 0 })
    }

    #[test]
    fn the_fastest_writer_is_ended_and_the_next_only_if_room_goes_on_shrinking() {
        let all = [('a', lately(10)), ('b', lately(500)), ('c', lately(0)), ('d', None)];
        let without_b = [('a', lately(10)), ('c', lately(0)), ('d', None)];
        let mut marks = Marks::default();
        for (room_mb, running, ended) in [
            (900, &all[..], ""),
            (400, &all, ""),
            (399, &all, "b"),
            (398, &without_b, ""),
            (320, &without_b, ""),
            (290, &without_b, "a"),
            (210, &[('c', lately(0)), ('d', None)], ""),
            (200, &[('c', lately(1)), ('d', None)], "c"),
            (140, &[('c', lately(0)), ('d', None)], ""),
            (110, &[('d', None)], ""),
            (99, &[('d', None), ('e', lately(0))], "de"),
            // Some room does not reset the marks; enough does.
            (700, &all, ""),
            (390, &all, ""),
            (800, &all, ""),
            (390, &all, "b"),
        ] {
            assert_eq!(pass(&mut marks, room_mb, running), ended, "at {room_mb} MB");
        }
    }

    #[test]
    fn one_look_ends_as_many_as_needed_for_the_rest_to_fit() {
        let writing = |grown_mb: &[(u64, u64)]| {
            let grown = |(lately, fastest)| Grown { lately: lately << 20, fastest: fastest << 20 };
            let with = |(key, mb): (char, &(u64, u64))| (key, Some(grown(*mb)));
            ('a'..).zip(grown_mb).map(with).chain([('z', None)]).collect::<Vec<_>>()
        };
        let five = [(339, 61), (288, 56), (357, 70), (680, 190), (276, 53), (1, 1)];
        for (room_mb, grown_mb, ended) in [
            // Above the reserve none is ended, however fast.
            (800, &[(2_000, 500)][..], ""),
            (699, &[(2_000, 233)], ""),
            (698, &[(2_000, 233)], "a"),
            // Above half of it only if the room would soon be gone, and only if the rest is slow.
            (600, &[(10, 5), (900, 295), (30, 1)], "b"),
            (600, &[(10, 5), (250, 295), (30, 1)], ""),
            (799, &five[..5], "dcab"),
            (799, &[(900, 1), (800, 1)], ""),
            // Below half of it, one at least.
            (399, &[(10, 5), (20, 5)], "b"),
            (399, &[(300, 10), (90, 10), (100, 10)], "a"),
            (399, &five, "dcabe"),
        ] {
            let ended_now = pass(&mut Marks::default(), room_mb, &writing(grown_mb));
            assert_eq!(ended_now, ended, "at {room_mb} MB with {grown_mb:?}");
        }
    }

    #[test]
    fn after_an_early_end_half_of_the_reserve_is_no_separate_mark() {
        let mut marks = Marks::default();
        let fast = Some(Grown { lately: 600 << 20, fastest: 300 << 20 });
        assert_eq!(pass(&mut marks, 500, &[('a', fast), ('b', lately(1))]), "a");
        assert_eq!(pass(&mut marks, 390, &[('b', lately(1))]), "");
        assert_eq!(pass(&mut marks, 370, &[('b', lately(1))]), "b");
    }

    #[test]
    fn without_a_reserve_no_sandbox_is_ended() {
        let none = DiskRoom { free: 0, kept_free: 0 };
        assert!(Marks::default().pass(none, 0, &[('a', lately(1))]).is_empty());
    }
}
