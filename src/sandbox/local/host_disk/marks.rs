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

/// A sandbox that runs, and how many bytes it has grown by lately; `None` where that is not known.
pub type Growth<K> = (K, Option<u64>);

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
        }
        if room >= disk.ended_below() {
            return Vec::new();
        }
        if room < disk.kept_free / ALL_BELOW_PART {
            return running.iter().map(|(key, _)| key.clone()).collect();
        }
        if room >= self.next.unwrap_or(u64::MAX) {
            return Vec::new();
        }
        let grown = running.iter().filter_map(|(key, growth)| Some((key, growth.as_ref()?)));
        let biggest = grown.filter(|(_, growth)| **growth > 0).max_by_key(|(_, growth)| **growth);
        let Some((key, _)) = biggest else { return Vec::new() };
        self.next = Some(room / 100 * NEXT_PERCENT);
        vec![key.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: u64 = 800 << 20;

    fn pass(marks: &mut Marks, room_mb: u64, running: &[Growth<char>]) -> String {
        let disk = DiskRoom { free: 0, kept_free: KEPT };
        marks.pass(disk, room_mb << 20, running).into_iter().collect()
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
        assert!(Marks::default().pass(none, 0, &[('a', Some(1))]).is_empty());
    }
}
