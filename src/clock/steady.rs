//! A wall clock without steps: pure arithmetic on the system's clocks.
//!
//! A person or a time service can set the system's wall clock, which then jumps. After a jump of an
//! hour a server would take every idle sandbox for an hour older. So time advances from an anchor by
//! the boot clock, which counts suspend, and is compared with the wall clock at each reading:
//! - Less than [`STEP_MIN`] apart, time follows the wall clock at once. Time never goes backwards: if
//!   the wall clock does, time stands still until the wall clock has caught up.
//! - Further apart, the wall clock was set. Time then runs a tenth faster or slower until both
//!   agree; an hour takes ten hours.
//!
//! # Across a restart
//! The anchor is in memory. A new process starts with the system's clock, so the rest of a step takes
//! effect at once: after a step forward, timers become due; after a step back, they wait longer.
//! Versions, attempts and generations are numbers, so no ordering depends on time.

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;

/// From this difference on the wall clock was set. Time services correct less than half a second
/// without a step.
const STEP_MIN: i64 = SECOND;

/// Time runs faster or slower by this fraction while a step is absorbed.
const ABSORBED_PART: i64 = 10;

/// The latest time. All numbers are nanoseconds; the wall clock counts from 1970, the boot clock from
/// the machine's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steady {
    time: i64,
    boot: i64,
    absorbing: bool,
}

/// The result of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockReading {
    /// No step.
    Usual,
    /// The wall clock was set, forward or back by this much.
    Stepped(i64),
    /// A step is fully absorbed.
    Absorbed,
}

impl Steady {
    /// Starts with the clocks' current values.
    pub const fn new(wall: i64, boot: i64) -> Self {
        Self { time: wall, boot, absorbing: false }
    }

    /// The time, for the clocks' current values.
    pub fn advance(&mut self, wall: i64, boot: i64) -> (i64, ClockReading) {
        let went_by = (boot - self.boot).max(0);
        self.boot = self.boot.max(boot);
        let carried = self.time.saturating_add(went_by);
        let ahead = wall.saturating_sub(carried);
        let was_absorbing = self.absorbing;
        self.absorbing = ahead.saturating_abs() >= STEP_MIN;
        self.time = if self.absorbing {
            let part = went_by / ABSORBED_PART;
            carried + ahead.clamp(-part, part)
        } else {
            self.time.max(wall)
        };
        let look = match (was_absorbing, self.absorbing) {
            (false, true) => ClockReading::Stepped(ahead),
            (true, false) => ClockReading::Absorbed,
            (false, false) | (true, true) => ClockReading::Usual,
        };
        (self.time, look)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3600 * SECOND;
    /// The time at the start of a table.
    const BEGIN: i64 = 500 * HOUR;

    /// Performs readings. Each has the time since the previous one, and the wall clock's offset from the
    /// boot clock. Returns the time as an offset from `BEGIN`, and the result.
    fn live(looks: &[(i64, i64)]) -> Vec<(i64, ClockReading)> {
        let mut steady = Steady::new(BEGIN, 0);
        let mut boot = 0;
        let mut times = Vec::new();
        for (pause, off) in looks {
            boot += pause;
            let (at, look) = steady.advance(BEGIN + boot + off, boot);
            times.push((at - BEGIN, look));
        }
        times
    }

    #[test]
    fn small_corrections_are_followed_at_once_and_never_backwards() {
        let half = SECOND / 2;
        assert_eq!(
            live(&[
                (SECOND, 0),
                (SECOND, half),
                (SECOND, 0),
                (SECOND / 10, -half),
                (SECOND, -half)
            ]),
            [
                (SECOND, ClockReading::Usual),
                (2 * SECOND + half, ClockReading::Usual),
                (3 * SECOND, ClockReading::Usual),
                // It would be 2.6 s, so time stands still.
                (3 * SECOND, ClockReading::Usual),
                (3 * SECOND + 6 * SECOND / 10, ClockReading::Usual),
            ]
        );
    }

    #[test]
    fn a_step_of_an_hour_is_absorbed_in_ten_either_way() {
        for (step, per_ten) in [(HOUR, 11), (-HOUR, 9)] {
            let times = live(&[(10 * SECOND, step), (10 * SECOND, step), (HOUR, step)]);
            assert_eq!(times[0], (per_ten * SECOND, ClockReading::Stepped(step)));
            assert_eq!(times[1], (2 * per_ten * SECOND, ClockReading::Usual), "reported once");
            assert_eq!(times[2].0, 2 * per_ten * SECOND + per_ten * HOUR / 10);
        }
        // A reading every minute for eleven hours.
        let looks = vec![(60 * SECOND, HOUR); 11 * 60];
        let times = live(&looks);
        let absorbed: Vec<_> =
            times.iter().filter(|(_, look)| *look == ClockReading::Absorbed).collect();
        assert_eq!(absorbed.len(), 1);
        assert_eq!(times.last(), Some(&(12 * HOUR, ClockReading::Usual)), "both agree again");
        // Without a reading in between, no more than the step is absorbed.
        assert_eq!(live(&[(1, HOUR), (50 * HOUR, HOUR)])[1].0, 51 * HOUR + 1);
    }

    #[test]
    fn suspend_is_not_a_step() {
        // Both clocks count it.
        assert_eq!(live(&[(8 * HOUR, 0)]), [(8 * HOUR, ClockReading::Usual)]);
    }

    #[test]
    fn a_step_that_is_undone_ends_the_absorption() {
        let times = live(&[(SECOND, HOUR), (SECOND, 0), (SECOND, 0)]);
        assert_eq!(times[1].1, ClockReading::Absorbed);
        assert_eq!(times[2], (3 * SECOND, ClockReading::Usual));
    }

    proptest! {
        /// However the wall clock is set, time never goes backwards, and it departs from the boot clock
        /// by at most a second and a tenth of the elapsed time.
        #[test]
        fn time_only_runs(looks in prop::collection::vec((0..3 * HOUR, -9 * HOUR..9 * HOUR), 1..60)) {
            let mut steady = Steady::new(BEGIN, 0);
            let (mut boot, mut last) = (0, BEGIN);
            for (pause, off) in looks {
                boot += pause;
                let (now, _) = steady.advance(BEGIN + boot + off, boot);
                prop_assert!(now >= last);
                prop_assert!((now - last - pause).abs() <= pause / 10 + STEP_MIN);
                last = now;
            }
        }

        /// The number of readings does not change the speed at which a step is absorbed.
        #[test]
        fn looking_often_changes_nothing(pauses in prop::collection::vec(1..10 * SECOND, 1..60)) {
            let looks: Vec<_> = pauses.iter().map(|pause| (*pause, HOUR)).collect();
            let went_by: i64 = pauses.iter().sum();
            let (time, _) = live(&looks)[looks.len() - 1];
            // Each reading loses at most a nanosecond.
            let at_once = went_by + went_by / 10;
            prop_assert!((time - at_once).abs() <= pauses.len() as i64);
        }
    }
}
