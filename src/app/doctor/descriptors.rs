//! Whether the limit on open files lets a server make as many sandboxes as it should.

use rustix::process::{Resource, getrlimit};

use super::Check;

/// Descriptors that a running local sandbox takes: its launcher and its image (measured).
const BY_SANDBOX: u64 = 2;
/// Descriptors set aside for connections, deliveries and the store.
const SET_ASIDE: u64 = 1_024;
/// With fewer sandboxes than this, the limit is noted.
const SANDBOXES_FEW: u64 = 1_000;

/// Looks at this process's limit, which a server started from here would have.
pub(super) fn check() -> Check {
    let limit = getrlimit(Resource::Nofile);
    of_limits(limit.current, limit.maximum)
}

/// `None` is no limit. A server raises the soft limit to the hard one.
fn of_limits(soft: Option<u64>, hard: Option<u64>) -> Check {
    let what = "open files";
    let Some(hard) = hard else { return Check::right(what, "no limit") };
    let sandboxes = hard.saturating_sub(SET_ASIDE) / BY_SANDBOX;
    let soft = soft.map_or_else(|| "none".to_owned(), |soft| soft.to_string());
    let found = format!(
        "a server started from here may have {hard} (hard limit; soft {soft}): enough for about \
         {sandboxes} local sandboxes at a time. Each process in a sandbox gets a part of it; issuebox \
         get shows how much"
    );
    if sandboxes >= SANDBOXES_FEW {
        return Check::right(what, found);
    }
    let remedy = "raise the hard limit: LimitNOFILE=65536 in the unit, ulimits in Docker, or \
                  `ulimit -Hn 65536` as root before the start";
    Check::noted(what, found, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CheckState;

    #[test]
    fn few_descriptors_are_noted_with_how_many_sandboxes_they_are_enough_for() {
        let check = of_limits(Some(1_024), Some(20_000));
        assert_eq!(check.state, CheckState::Right);
        assert!(check.found.contains("about 9488 local sandboxes"), "{check:?}");
        for (hard, sandboxes) in [(2_048, 512), (512, 0)] {
            let check = of_limits(Some(512), Some(hard));
            assert_eq!(check.state, CheckState::Noted);
            assert!(check.found.contains(&format!("about {sandboxes} local")), "{check:?}");
            assert!(check.remedy.is_some_and(|remedy| remedy.contains("LimitNOFILE")));
        }
        assert_eq!(of_limits(None, None).state, CheckState::Right);
    }
}
