//! How often tests throw bytes at what reads them: a few hundred times whenever they run, and as
//! many times more as `ISSUEBOX_FUZZ_FACTOR` says. Their names begin with `no_bytes`.

use proptest::test_runner::Config;

/// So many cases, times the factor.
pub(crate) fn cases(usual: u32) -> Config {
    let factor = std::env::var("ISSUEBOX_FUZZ_FACTOR").ok();
    let factor = factor.map_or(1, |factor| factor.parse().expect("a number"));
    Config::with_cases(usual * factor)
}
