//! What is counted of the calls to GitHub.

/// How many calls of one kind ended in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCount {
    /// The kind of call, such as `create_comment`.
    pub kind: &'static str,
    /// `done`, `unchanged`, or an error's word.
    pub result: &'static str,
    /// How many.
    pub count: u64,
}

/// What was counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitHubFigures {
    /// The calls, by kind and result.
    pub requests: Vec<RequestCount>,
    /// The fewest calls that GitHub leaves to one of our identities in its hour; `None` before the
    /// first answer.
    pub remaining: Option<u64>,
    /// How many effects wait for their turn to write.
    pub queue: u64,
}
