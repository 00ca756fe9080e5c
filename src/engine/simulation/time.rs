//! The world's clock, which may step, and its ids; both from the seed.

use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

use super::world::ServerLife;
use crate::clock::{Clock, IdSource};
use crate::types::{SandboxId, Timestamp};

/// What the clock shows when a history begins.
pub const BEGIN: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);

/// The wall clock of one life of the server.
pub struct SimClock(pub Arc<ServerLife>);

#[async_trait]
impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.0.world().now()
    }

    async fn sleep_until(&self, at: Timestamp) {
        let jumps = self.0.world().jumped();
        loop {
            let jumped = jumps.notified();
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(left) => {}
                () = jumped => {}
            }
        }
    }
}

/// Ids of the world. When one is asked for, an actor may panic: it does so at every event.
pub struct SimIds(pub Arc<ServerLife>);

impl IdSource for SimIds {
    fn sandbox_id(&self) -> SandboxId {
        self.0.may_panic();
        SandboxId::trusted(format!("sandbox-{}", self.0.world().fresh()))
    }

    fn uuid(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.world().fresh()))
    }

    fn request_id(&self) -> String {
        format!("request-{}", self.0.world().fresh())
    }

    fn unix_ns(&self) -> i64 {
        let number = self.0.world().fresh();
        i64::try_from(number).expect("there are not so many")
    }

    fn jitter_permille(&self) -> u16 {
        let jitter = self.0.world().with(|inner| inner.chance.below(1001));
        u16::try_from(jitter).expect("at most 1000")
    }
}
