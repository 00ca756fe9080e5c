//! What clients sent or opened and the server ended early.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::add;

/// Why a connection, or what came on it, was ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOff {
    /// A new connection: all places are taken by connections at work.
    ConnectionRefused,
    /// A connection gave its place to a new one.
    ConnectionGaveWay,
    /// A head is longer than allowed.
    HeadTooLong,
    /// A head did not come in time.
    HeadTooSlow,
    /// A head had no room in memory.
    HeadOverloaded,
    /// A body had no room in memory.
    BodyOverloaded,
    /// An answer was not read, and others needed its memory.
    AnswerUnread,
    /// Bytes are no request, or it is unclear where it ends.
    Malformed,
}

impl CutOff {
    const ALL: [Self; 8] = [
        Self::ConnectionRefused,
        Self::ConnectionGaveWay,
        Self::HeadTooLong,
        Self::HeadTooSlow,
        Self::HeadOverloaded,
        Self::BodyOverloaded,
        Self::AnswerUnread,
        Self::Malformed,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::ConnectionRefused => "connection_refused",
            Self::ConnectionGaveWay => "connection_gave_way",
            Self::HeadTooLong => "head_too_long",
            Self::HeadTooSlow => "head_too_slow",
            Self::HeadOverloaded => "head_overloaded",
            Self::BodyOverloaded => "body_overloaded",
            Self::AnswerUnread => "answer_unread",
            Self::Malformed => "malformed",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CutOffLabels {
    reason: &'static str,
}

/// The counters of each reason.
pub(super) struct CutOffMetrics(Family<CutOffLabels, Counter>);

impl CutOffMetrics {
    /// Every reason has a series from the start, so that its first occurrence is an increase.
    pub(super) fn new(to: &mut Registry) -> Self {
        let counters: Family<CutOffLabels, Counter> = add(
            to,
            "issuebox_http_cut_offs",
            "Connections, heads, bodies and answers that were refused or ended early, by reason",
            Family::default(),
        );
        for reason in CutOff::ALL {
            drop(counters.get_or_create(&CutOffLabels { reason: reason.as_str() }));
        }
        Self(counters)
    }

    pub(super) fn count(&self, reason: CutOff, count: usize) {
        let labels = CutOffLabels { reason: reason.as_str() };
        self.0.get_or_create(&labels).inc_by(count as u64);
    }
}
