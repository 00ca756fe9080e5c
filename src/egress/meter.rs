//! Counts the requests and bytes of all proxies of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{InspectReader, InspectWriter};

use crate::sandbox::{Egress, EgressResult};

/// The counters.
#[derive(Debug, Default)]
pub struct Meter {
    open: AtomicU64,
    results: [AtomicU64; EgressResult::ALL.len()],
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
}

impl Meter {
    /// Counts a request's result.
    pub fn count(&self, result: EgressResult) {
        // The order of `ALL` is that of the variants.
        self.results[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection from a sandbox as open until the result is dropped.
    pub fn open(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(self))
    }

    /// The current values.
    pub fn read(&self) -> Egress {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Egress {
            open: value(&self.open),
            results: self.results.each_ref().map(value),
            sent: value(&self.sent),
            received: value(&self.received),
        }
    }
}

/// An open connection.
pub struct Open(Arc<Meter>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream to the outside that counts its bytes.
pub type MeteredStream<S> = InspectWriter<InspectReader<S, Count>, Count>;

/// Counts the bytes of one direction.
type Count = Box<dyn FnMut(&[u8]) + Send>;

/// Counts the bytes of a stream.
pub fn metered<S: AsyncRead + AsyncWrite>(stream: S, meter: &Arc<Meter>) -> MeteredStream<S> {
    let count = |of: fn(&Meter) -> &AtomicU64| -> Count {
        let meter = Arc::clone(meter);
        Box::new(move |bytes| {
            of(&meter).fetch_add(bytes.len() as u64, Ordering::Relaxed);
        })
    };
    let received = InspectReader::new(stream, count(|meter| &meter.received));
    InspectWriter::new(received, count(|meter| &meter.sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_is_counted_as_itself() {
        let meter = Meter::default();
        for (n, result) in EgressResult::ALL.into_iter().enumerate() {
            assert_eq!(result as usize, n, "{}", result.as_str());
            meter.count(result);
            assert_eq!(meter.read().results.iter().sum::<u64>(), n as u64 + 1);
        }
        assert_eq!(meter.read().results, [1; EgressResult::ALL.len()]);
    }
}
