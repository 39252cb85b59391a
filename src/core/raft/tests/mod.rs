//! Tests of the core as a whole. Unit tests are next to the parts.

mod differential;
mod harness;
mod paper;
mod random;
mod script;
mod timings;

use proptest::test_runner::{Config, RngSeed};

/// The same cases on every run, so that a failure is one of the change under test. Other cases:
/// `PROPTEST_RNG_SEED=n`; another number of them: `PROPTEST_CASES=n`.
pub(super) fn same_cases(count: u32) -> Config {
    let mut config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = count;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config
}
