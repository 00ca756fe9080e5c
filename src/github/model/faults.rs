//! Faults to order: which call they hit, and what goes wrong with it.

use std::time::Duration;

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum FaultKind {
    /// The connection ends before the call has an effect.
    LostBefore,
    /// The call has its effect and the connection ends before the answer.
    LostAfter,
    /// This status without an effect, such as 502.
    Status(u16),
    /// The call has its effect, and this status is the answer.
    StatusAfter(u16),
    /// Nothing is left of the hourly limit: 403 with `x-ratelimit-remaining: 0`.
    HourlyLimit,
    /// A secondary limit with this status, 403 or 429, and this `Retry-After` in seconds.
    SecondaryLimit(u16, Option<u64>),
    /// 403 with these words and no effect, such as a reason that is not known.
    Refused(String),
    /// The call has its effect, and the answer comes so much later.
    Slow(Duration),
    /// The call has its effect, and the answer waits for [`release`](super::GithubModel::release).
    Held,
    /// The call has its effect, and the answer's body ends in the middle.
    CutOff,
    /// `Date` of the answer is so many seconds ahead of this GitHub's clock.
    DateAhead(i64),
}

/// An order for faults.
#[derive(Clone, Debug)]
pub struct ModelFault {
    method: String,
    path: Vec<String>,
    skip: usize,
    times: usize,
    kind: FaultKind,
}

impl ModelFault {
    /// The next call with this method (`*`: any) and path. In the path `*` is any one segment, and
    /// `**` at its end is any rest. Names are as the client wrote them.
    pub fn on(method: &str, path: &str, kind: FaultKind) -> Self {
        let path = path.trim_start_matches('/').split('/').map(str::to_owned).collect();
        Self { method: method.to_owned(), path, skip: 0, times: 1, kind }
    }

    /// Lets this many matching calls pass first.
    #[must_use]
    pub fn skip(mut self, calls: usize) -> Self {
        self.skip = calls;
        self
    }

    /// Hits this many calls instead of one.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    fn matches(&self, method: &str, path: &str) -> bool {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let has_rest = self.path.last().is_some_and(|last| last == "**");
        let own = &self.path[..self.path.len() - usize::from(has_rest)];
        let len_fits = if has_rest { parts.len() >= own.len() } else { parts.len() == own.len() };
        let same = own.iter().zip(&parts).all(|(own, part)| own == "*" || own == part);
        (self.method == "*" || self.method == method) && len_fits && same
    }
}

/// The fault that hits this call. Each matching order counts it.
pub(super) fn take(faults: &mut Vec<ModelFault>, method: &str, path: &str) -> Option<FaultKind> {
    let mut hit = None;
    for fault in faults.iter_mut().filter(|fault| fault.matches(method, path)) {
        if fault.skip > 0 {
            fault.skip -= 1;
        } else if hit.is_none() {
            fault.times = fault.times.saturating_sub(1);
            hit = Some(fault.kind.clone());
        }
    }
    faults.retain(|fault| fault.times > 0);
    hit
}
