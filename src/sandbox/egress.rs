//! What is counted of the way out of sandboxes, if the server is that way.

/// What became of a request to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressResult {
    /// It was connected.
    Connected,
    /// It is not in the allow list.
    NotListed,
    /// It leads to an address that is not public, and not listed as such.
    NotPublic,
    /// It leads to an address that no sandbox may reach.
    Never,
    /// It is for mail between servers, which only a list gives out.
    Mail,
    /// It does not say where to, in a form that has one meaning.
    Malformed,
    /// There is no such name.
    NameNotFound,
    /// No name server answered in time.
    NameNoAnswer,
    /// The name was not looked up: too many others were without an answer.
    NameNoPlace,
    /// No server answered at its address.
    NotReached,
}

impl EgressResult {
    /// Every one.
    pub const ALL: [Self; 10] = [
        Self::Connected,
        Self::NotListed,
        Self::NotPublic,
        Self::Never,
        Self::Mail,
        Self::Malformed,
        Self::NameNotFound,
        Self::NameNoAnswer,
        Self::NameNoPlace,
        Self::NotReached,
    ];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::NotListed => "not_listed",
            Self::NotPublic => "not_public",
            Self::Never => "never",
            Self::Mail => "mail",
            Self::Malformed => "malformed",
            Self::NameNotFound => "name_not_found",
            Self::NameNoAnswer => "name_no_answer",
            Self::NameNoPlace => "name_no_place",
            Self::NotReached => "not_reached",
        }
    }
}

/// What went out of all objects of a provider since the server started, and what is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// Connections from inside that are open now.
    pub open: u64,
    /// How often each result was, in the order of [`EgressResult::ALL`].
    pub results: [u64; EgressResult::ALL.len()],
    /// Bytes that were sent out.
    pub sent: u64,
    /// Bytes that came back.
    pub received: u64,
}

impl std::ops::AddAssign for Egress {
    fn add_assign(&mut self, other: Self) {
        let Self { open, results, sent, received } = other;
        self.open += open;
        self.sent += sent;
        self.received += received;
        for (sum, more) in self.results.iter_mut().zip(results) {
            *sum += more;
        }
    }
}
