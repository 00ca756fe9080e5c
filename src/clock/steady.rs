//! A wall clock that does not step: pure arithmetic on what the system's clocks show.
//!
//! The system's wall clock can be set, by a person or by a program that keeps time, and then jumps.
//! A server that believed it would find every idle sandbox an hour too old at once, or every wait an
//! hour too long. So time is carried forward from an anchor by a clock that only runs (one that
//! counts suspend, since a machine that slept did let that time go by), and compared with the wall
//! clock at each look:
//! - Less than [`STEP_MIN`] apart, the wall clock is followed at once. It never goes backwards:
//!   where the wall clock did, time stands still until that has caught up.
//! - Further apart, the wall clock was set. Time then runs a tenth faster or slower until both
//!   agree: an hour is made up for in ten hours.
//!
//! # Across a restart
//! The anchor is in memory. A new process believes the system's clock as it finds it, so what was
//! not absorbed yet takes effect then, all at once: after a step forward, what became due meanwhile
//! is due; after a step back, what was planned lies that much further ahead. Nothing is ordered by
//! time alone (versions, attempts and generations are numbers), so this costs patience and nothing
//! else.

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;

/// From this difference on the wall clock was set, and is not only corrected. Programs that keep time
/// correct less than half a second without a step.
const STEP_MIN: i64 = SECOND;

/// By which part of its speed time runs faster or slower while a step is absorbed.
const ABSORBED_PART: i64 = 10;

/// Time as it was last told. All numbers are nanoseconds; those of the wall clock count from 1970,
/// those of the running clock from when the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steady {
    told: i64,
    boot: i64,
    absorbing: bool,
}

/// What a look at the clocks found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing special.
    Usual,
    /// The wall clock was set, forward or back by so much.
    Stepped(i64),
    /// A step is absorbed.
    Absorbed,
}

impl Steady {
    /// Begins with what the clocks show.
    pub const fn new(wall: i64, boot: i64) -> Self {
        Self { told: wall, boot, absorbing: false }
    }

    /// The time, from what the clocks show now.
    pub fn advance(&mut self, wall: i64, boot: i64) -> (i64, Look) {
        let went_by = (boot - self.boot).max(0);
        self.boot = self.boot.max(boot);
        let carried = self.told.saturating_add(went_by);
        let ahead = wall.saturating_sub(carried);
        let was_absorbing = self.absorbing;
        self.absorbing = ahead.saturating_abs() >= STEP_MIN;
        self.told = if self.absorbing {
            let part = went_by / ABSORBED_PART;
            carried + ahead.clamp(-part, part)
        } else {
            self.told.max(wall)
        };
        let look = match (was_absorbing, self.absorbing) {
            (false, true) => Look::Stepped(ahead),
            (true, false) => Look::Absorbed,
            (false, false) | (true, true) => Look::Usual,
        };
        (self.told, look)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3600 * SECOND;
    /// The time when a table begins.
    const BEGIN: i64 = 500 * HOUR;

    /// Lives through looks, each so long after the one before it, with the wall clock so far off the
    /// running clock. Returns what was told, as an offset from `BEGIN`, and what was found.
    fn live(looks: &[(i64, i64)]) -> Vec<(i64, Look)> {
        let mut steady = Steady::new(BEGIN, 0);
        let mut boot = 0;
        let mut told = Vec::new();
        for (pause, off) in looks {
            boot += pause;
            let (at, look) = steady.advance(BEGIN + boot + off, boot);
            told.push((at - BEGIN, look));
        }
        told
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
                (SECOND, Look::Usual),
                (2 * SECOND + half, Look::Usual),
                (3 * SECOND, Look::Usual),
                // It would be 2.6 s: time stands still.
                (3 * SECOND, Look::Usual),
                (3 * SECOND + 6 * SECOND / 10, Look::Usual),
            ]
        );
    }

    #[test]
    fn a_step_of_an_hour_is_absorbed_in_ten_either_way() {
        for (step, per_ten) in [(HOUR, 11), (-HOUR, 9)] {
            let told = live(&[(10 * SECOND, step), (10 * SECOND, step), (HOUR, step)]);
            assert_eq!(told[0], (per_ten * SECOND, Look::Stepped(step)));
            assert_eq!(told[1], (2 * per_ten * SECOND, Look::Usual), "told of once");
            assert_eq!(told[2].0, 2 * per_ten * SECOND + per_ten * HOUR / 10);
        }
        // Looked at every minute for ten hours and one.
        let looks = vec![(60 * SECOND, HOUR); 11 * 60];
        let told = live(&looks);
        let absorbed: Vec<_> = told.iter().filter(|(_, look)| *look == Look::Absorbed).collect();
        assert_eq!(absorbed.len(), 1);
        assert_eq!(told.last(), Some(&(12 * HOUR, Look::Usual)), "both agree again");
        // Without a look in between, no more is made up for than there is to make up for.
        assert_eq!(live(&[(1, HOUR), (50 * HOUR, HOUR)])[1].0, 51 * HOUR + 1);
    }

    #[test]
    fn sleep_of_the_machine_is_no_step() {
        // Both clocks count it.
        assert_eq!(live(&[(8 * HOUR, 0)]), [(8 * HOUR, Look::Usual)]);
    }

    #[test]
    fn a_step_that_is_taken_back_is_over() {
        let told = live(&[(SECOND, HOUR), (SECOND, 0), (SECOND, 0)]);
        assert_eq!(told[1].1, Look::Absorbed);
        assert_eq!(told[2], (3 * SECOND, Look::Usual));
    }

    proptest! {
        /// Whatever is done to the wall clock: time never goes backwards, and it never runs away
        /// from the running clock by more than a second and a tenth of what went by.
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

        /// However often it is looked at, a step is made up for at the same speed.
        #[test]
        fn looking_often_changes_nothing(pauses in prop::collection::vec(1..10 * SECOND, 1..60)) {
            let looks: Vec<_> = pauses.iter().map(|pause| (*pause, HOUR)).collect();
            let went_by: i64 = pauses.iter().sum();
            let (told, _) = live(&looks)[looks.len() - 1];
            // A nanosecond is lost at most with each look.
            let at_once = went_by + went_by / 10;
            prop_assert!((told - at_once).abs() <= pauses.len() as i64);
        }
    }
}
