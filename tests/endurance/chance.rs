//! Chance that a seed repeats: the SplitMix64 generator.

/// What a seed leads to. How the machine is scheduled is not part of it.
pub struct Chance(u64);

impl Chance {
    pub const fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// Whether something happens that happens one time in this many.
    pub const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("it is below a usize")
    }

    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.index(last + 1));
        }
    }
}
