//! What of the simulated provider is configured: its directory, and what goes wrong.

use std::path::PathBuf;

/// How a simulated provider is set up. What is here never changes while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedConfig {
    /// Where its objects and its log of calls are. Made if it is missing; outlives the server.
    pub dir: PathBuf,
    /// Whether a second create of one name finds the first one's object. Where not, it makes a
    /// second object, and the provider says so in its traits.
    pub unique_names: bool,
}

/// What goes wrong. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimulatedFaults {
    /// How long a create takes, in milliseconds. The object is there at the end of it.
    pub create_delay_ms: u64,
    /// How long a stop takes, in milliseconds; a forced one takes no time.
    pub stop_delay_ms: u64,
    /// How long a delete takes, in milliseconds; a forced one takes no time. Meanwhile the object
    /// is there, being destroyed.
    pub delete_delay_ms: u64,
    /// How probable it is that a create makes nothing and fails, from 0 to 1.
    pub fail_create: f64,
    /// How probable it is that a create makes its object and the answer is lost, from 0 to 1.
    pub lose_response: f64,
    /// Whether every call errors at once.
    pub unavailable: bool,
    /// How many creates fail before the first one works, counted since the faults were set.
    pub fail_first_n: u64,
}
