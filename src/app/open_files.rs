//! How many files this process may have open: as many as the system allows it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one and returns it; `None` if there is none. Shells start
/// programs with a soft limit of 1,024 for the sake of those that use `select(2)`.
///
/// Connections, launchers and the store count on it. So do running sandboxes: the kernel counts a
/// user's descriptors on their way over sockets against the *sender's* soft limit (`unix(7)`), and
/// a command in a sandbox has a quarter of the hard one.
pub fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays as it was");
            current
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let lower = maximum.map_or(4096, |maximum| maximum - 1);
        setrlimit(Resource::Nofile, Rlimit { current: Some(lower), maximum }).expect("lowered");
        assert_eq!(raise(), maximum);
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
