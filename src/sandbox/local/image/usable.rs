//! Whether images can be used here: found out at the start by making one and mounting it, and again
//! where that failed. What is missing may only be missing for a while: a loop device that others
//! have, a module that is loaded late, memory, `mkfs.ext4` itself.
//!
//! It is tried again by whoever is about to make a workspace, after a pause that grows: a try takes
//! some hundredths of a second. Whoever comes meanwhile goes on without images.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Templates;
use super::templates::NoImages;

/// The pause before the second try; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(5);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What finds out whether images can be used.
type OpenImages = Box<dyn Fn() -> Result<Templates, NoImages> + Send + Sync>;

/// Images, where they can be used.
pub struct Images {
    open: OpenImages,
    found: Mutex<LastProbe>,
}

/// What the last try came to.
enum LastProbe {
    Usable(Arc<Templates>),
    Not {
        why: String,
        /// When to try again, and how long to wait after that; `None` where that can't help.
        again: Option<(Instant, Duration)>,
    },
}

impl Images {
    /// Finds out whether images can be used, with templates in `dir`.
    pub fn open(dir: &Path) -> Self {
        let dir = dir.to_owned();
        Self::with(Box::new(move || Templates::open(&dir)), Instant::now())
    }

    fn with(open: OpenImages, now: Instant) -> Self {
        let found = found(open(), now, PAUSE_FIRST);
        Self { open, found: Mutex::new(found) }
    }

    /// What images are made from; `None` where workspaces are directories. Blocks.
    pub fn templates(&self) -> Option<Arc<Templates>> {
        self.templates_at(Instant::now())
    }

    fn templates_at(&self, now: Instant) -> Option<Arc<Templates>> {
        let pause = match &mut *self.found() {
            LastProbe::Usable(templates) => return Some(Arc::clone(templates)),
            LastProbe::Not { again: Some((at, pause)), .. } if *at <= now => {
                let next = pause.saturating_mul(2).min(PAUSE_MAX);
                // Nobody tries beside this one, nor holds anything meanwhile.
                *at = now + next;
                next
            }
            LastProbe::Not { .. } => return None,
        };
        let tried = found((self.open)(), now, pause);
        let mut found = self.found();
        *found = tried;
        match &*found {
            LastProbe::Usable(templates) => {
                tracing::info!(
                    "images can be used now: the limit of new sandboxes' disks is enforced"
                );
                Some(Arc::clone(templates))
            }
            LastProbe::Not { .. } => None,
        }
    }

    /// Why images can't be used, as of the last try; `None` where they can.
    pub fn why_not(&self) -> Option<String> {
        match &*self.found() {
            LastProbe::Usable(_) => None,
            LastProbe::Not { why, .. } => Some(why.clone()),
        }
    }

    fn found(&self) -> MutexGuard<'_, LastProbe> {
        // Each assignment is whole.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn found(opened: Result<Templates, NoImages>, now: Instant, pause: Duration) -> LastProbe {
    match opened {
        Ok(templates) => LastProbe::Usable(Arc::new(templates)),
        Err(NoImages::ForGood(why)) => LastProbe::Not { why, again: None },
        Err(NoImages::ForNow(why)) => {
            tracing::warn!(why, "images can't be used: the disk of new sandboxes is only watched");
            LastProbe::Not { why, again: Some((now + pause, pause)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn what_failed_for_a_while_is_tried_again_with_pauses_until_it_works() {
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let open = move || match counted.fetch_add(1, Ordering::SeqCst) {
            3 => Ok(Templates::untried(Path::new("/nowhere"))),
            count => Err(NoImages::ForNow(format!("try {count}"))),
        };
        let begin = Instant::now();
        let images = Images::with(Box::new(open), begin);
        for (secs, is_usable, count, why) in [
            (0, false, 1, Some("try 0")),
            (4, false, 1, Some("try 0")),
            (5, false, 2, Some("try 1")),
            (14, false, 2, Some("try 1")),
            (15, false, 3, Some("try 2")),
            (34, false, 3, Some("try 2")),
            (35, true, 4, None),
            (36, true, 4, None),
        ] {
            let templates = images.templates_at(begin + Duration::from_secs(secs));
            let found = (templates.is_some(), tries.load(Ordering::SeqCst), images.why_not());
            assert_eq!(found, (is_usable, count, why.map(str::to_owned)), "after {secs} s");
        }
    }

    #[test]
    fn what_no_try_can_help_is_not_tried_again() {
        let images =
            Images::with(Box::new(|| Err(NoImages::ForGood("no root".into()))), Instant::now());
        assert!(images.templates_at(Instant::now() + Duration::from_secs(86_400)).is_none());
        assert_eq!(images.why_not().as_deref(), Some("no root"));
    }
}
