//! Which sandboxes are ended as the host's disk fills up. Pure: room and growth in, names out.
//!
//! Ending a sandbox makes no room; it keeps what is left. So at a mark those that grew most are ended,
//! as many as it takes for what the others grew by lately to fit into half the room, and the next
//! only where the room goes on shrinking: one that writes a little beside those that filled the disk
//! goes on. How fast one writes does not tell how fast it will: the kernel slows all down while much
//! waits for the disk, and as soon as one is ended the others have what it used. So they must go
//! together, and before a mark already where the fastest that they were would take them past it.

use std::cmp::Reverse;

use crate::sandbox::DiskRoom;

/// The room that must be left for all that runs to be unmounted whole, as a part of what is kept
/// free: with less, everything is ended.
const ALL_BELOW_PART: u64 = 8;

/// How far room has shrunk since one was ended when the next one is, in percent of what there was.
const NEXT_PERCENT: u64 = 75;

/// For how many looks all must be able to write as fast as each did at its fastest: one until it is
/// seen, one that comes late, and one until whoever writes has ended.
const LOOKS_AHEAD: u64 = 3;

/// The part of the room into which must fit what those that are not ended grew by lately: they may go
/// on faster.
const REST_PART: u64 = 2;

/// A sandbox that runs, and how it has grown; `None` where that is not known.
pub type Growth<K> = (K, Option<Grown>);

/// How much a sandbox has grown by, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grown {
    /// Within the last seconds.
    pub lately: u64,
    /// Between two looks of these, at most.
    pub fastest: u64,
}

/// Where on the way from *enough* to *full* somebody is ended next.
#[derive(Default)]
pub struct Marks {
    /// Room below which the next one is ended, in bytes; `None` where none was yet.
    next: Option<u64>,
}

impl Marks {
    /// Who is to be ended now, with so much `room` left, in bytes: what is written and not yet on
    /// the disk counts as taken.
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

/// Those that grew most lately: at least so many, and as many as must go for as much as the others
/// grew by to fit into a part of the room. Nobody who did not grow.
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
    fn whoever_grows_most_is_ended_and_the_next_only_as_room_goes_on_shrinking() {
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
            // Some room is no end of it; enough is.
            (700, &all, ""),
            (390, &all, ""),
            (800, &all, ""),
            (390, &all, "b"),
        ] {
            assert_eq!(pass(&mut marks, room_mb, running), ended, "at {room_mb} MB");
        }
    }

    #[test]
    fn as_many_are_ended_at_a_look_as_it_takes_for_the_rest_to_fit() {
        let writing = |grown_mb: &[(u64, u64)]| {
            let grown = |(lately, fastest)| Grown { lately: lately << 20, fastest: fastest << 20 };
            let with = |(key, mb): (char, &(u64, u64))| (key, Some(grown(*mb)));
            ('a'..).zip(grown_mb).map(with).chain([('z', None)]).collect::<Vec<_>>()
        };
        let five = [(339, 61), (288, 56), (357, 70), (680, 190), (276, 53), (1, 1)];
        for (room_mb, grown_mb, ended) in [
            // With what is kept free nobody is ended, however fast.
            (800, &[(2_000, 500)][..], ""),
            (699, &[(2_000, 233)], ""),
            (698, &[(2_000, 233)], "a"),
            // Above half of it only where it would soon be gone, and whoever is left must be slow.
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
    fn where_some_were_ended_early_half_of_what_is_kept_free_is_no_mark_of_its_own() {
        let mut marks = Marks::default();
        let fast = Some(Grown { lately: 600 << 20, fastest: 300 << 20 });
        assert_eq!(pass(&mut marks, 500, &[('a', fast), ('b', lately(1))]), "a");
        assert_eq!(pass(&mut marks, 390, &[('b', lately(1))]), "");
        assert_eq!(pass(&mut marks, 370, &[('b', lately(1))]), "b");
    }

    #[test]
    fn where_nothing_is_kept_free_nobody_is_ended() {
        let none = DiskRoom { free: 0, kept_free: 0 };
        assert!(Marks::default().pass(none, 0, &[('a', lately(1))]).is_empty());
    }
}
