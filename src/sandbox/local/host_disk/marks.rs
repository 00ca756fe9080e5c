//! Which sandboxes are ended as the host's disk fills up. Pure: room and growth in, names out.
//!
//! Ending a sandbox makes no room; it keeps what is left. So once one was ended at a mark, the next
//! is only where the room goes on shrinking: one that writes a little beside the one that filled
//! the disk goes on.

use crate::sandbox::DiskRoom;

/// The room that must be left for all that runs to be unmounted whole, as a part of what is kept
/// free: with less, everything is ended.
const ALL_BELOW_PART: u64 = 8;

/// How far room has shrunk since one was ended when the next one is, in percent of what there was.
const NEXT_PERCENT: u64 = 75;

/// For how many looks like the last one there must be room: a look can be late, and what was ended
/// goes on for a moment.
const LOOKS_AHEAD: u64 = 3;

/// What a sandbox has grown by, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Over the last seconds.
    pub lately: u64,
    /// Since the last look.
    pub since_last: u64,
}

/// A sandbox that runs, and its growth; `None` where that is not known.
pub type Running<K> = (K, Option<Growth>);

/// Where on the way from *enough* to *full* somebody is ended next.
#[derive(Default)]
pub struct Marks {
    /// Room below which the next one is ended, in bytes; `None` where none was yet.
    next: Option<u64>,
}

impl Marks {
    /// Who is to be ended now, with so much `room` left, in bytes: what is written and not yet on
    /// the disk counts as taken.
    pub fn pass<K: Clone>(&mut self, disk: DiskRoom, room: u64, running: &[Running<K>]) -> Vec<K> {
        if room >= disk.kept_free {
            self.next = None;
            return Vec::new();
        }
        if room < disk.kept_free / ALL_BELOW_PART {
            return running.iter().map(|(key, _)| key.clone()).collect();
        }
        let grown = |(key, growth): &Running<K>| Some((key.clone(), (*growth)?));
        let mut grown: Vec<_> =
            running.iter().filter_map(grown).filter(|(_, growth)| growth.lately > 0).collect();
        grown.sort_by_key(|(_, growth)| growth.lately);
        let mut ended = Vec::new();
        if room < disk.ended_below() && room < self.next.unwrap_or(u64::MAX) {
            ended.extend(grown.pop());
        }
        // Those who write fastest, as long as the rest would fill it before much is done about it.
        grown.sort_by_key(|(_, growth)| growth.since_last);
        let sum =
            |rest: &[(K, Growth)]| rest.iter().map(|(_, growth)| growth.since_last).sum::<u64>();
        while sum(&grown).saturating_mul(LOOKS_AHEAD) > room {
            ended.extend(grown.pop());
        }
        if !ended.is_empty() {
            self.next = Some(room / 100 * NEXT_PERCENT);
        }
        ended.into_iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: u64 = 800 << 20;

    fn pass(marks: &mut Marks, room_mb: u64, running: &[(char, Option<u64>)]) -> String {
        let disk = DiskRoom { free: 0, kept_free: KEPT };
        let growth = |lately: u64| Growth { lately, since_last: 0 };
        let running: Vec<_> =
            running.iter().map(|(key, lately)| (*key, lately.map(growth))).collect();
        marks.pass(disk, room_mb << 20, &running).into_iter().collect()
    }

    #[test]
    fn as_many_are_ended_at_once_as_would_fill_the_room_before_they_are() {
        let writes = |key, mb: u64| (key, Some(Growth { lately: mb << 20, since_last: mb << 20 }));
        let all = [writes('a', 50), writes('b', 90), writes('c', 80), ('d', None), writes('e', 0)];
        for (room_mb, ended) in
            [(800, ""), (700, ""), (659, "b"), (380, "bc"), (300, "bc"), (149, "bca")]
        {
            let disk = DiskRoom { free: 0, kept_free: KEPT };
            let gone: String =
                Marks::default().pass(disk, room_mb << 20, &all).into_iter().collect();
            assert_eq!(gone, ended, "at {room_mb} MB");
        }
    }

    #[test]
    fn whoever_grows_most_is_ended_and_the_next_only_as_room_goes_on_shrinking() {
        let all = [('a', Some(10)), ('b', Some(500)), ('c', Some(0)), ('d', None)];
        let without_b = [('a', Some(10)), ('c', Some(0)), ('d', None)];
        let mut marks = Marks::default();
        for (room_mb, running, ended) in [
            (900, &all[..], ""),
            (400, &all, ""),
            (399, &all, "b"),
            (398, &without_b, ""),
            (320, &without_b, ""),
            (290, &without_b, "a"),
            (210, &[('c', Some(0)), ('d', None)], ""),
            (200, &[('c', Some(1)), ('d', None)], "c"),
            (140, &[('c', Some(0)), ('d', None)], ""),
            (110, &[('d', None)], ""),
            (99, &[('d', None), ('e', Some(0))], "de"),
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
    fn where_nothing_is_kept_free_nobody_is_ended() {
        let none = DiskRoom { free: 0, kept_free: 0 };
        assert!(Marks::default().pass(none, 0, &[('a', None)]).is_empty());
    }
}
