//! Whether this host can use images: the server makes and mounts one at its start. After a failure
//! it tries again, because the reason may pass: busy loop devices, a module that is loaded late,
//! memory, a missing `mkfs.ext4`.
//!
//! The next create of a workspace tries again, after a growing pause, since a try takes some
//! hundredths of a second. Concurrent creates go on without images.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Templates;
use super::templates::NoImages;

/// The pause before the second try; each further one doubles.
const PAUSE_FIRST: Duration = Duration::from_secs(5);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Opens the templates, or returns why images are not usable.
type OpenImages = Box<dyn Fn() -> Result<Templates, NoImages> + Send + Sync>;

/// Images, if this host can use them.
pub struct Images {
    open: OpenImages,
    found: Mutex<LastProbe>,
}

/// The result of the last try.
enum LastProbe {
    Usable(Arc<Templates>),
    Not {
        why: String,
        /// When to try again and the pause after that; `None` if the reason is permanent.
        again: Option<(Instant, Duration)>,
    },
}

impl Images {
    /// Finds out whether images are usable, with templates in `dir`.
    pub fn open(dir: &Path) -> Self {
        let dir = dir.to_owned();
        Self::with(Box::new(move || Templates::open(&dir)), Instant::now())
    }

    fn with(open: OpenImages, now: Instant) -> Self {
        let found = found(open(), now, PAUSE_FIRST);
        Self { open, found: Mutex::new(found) }
    }

    /// The templates of images; `None` if workspaces are directories. Blocks.
    pub fn templates(&self) -> Option<Arc<Templates>> {
        self.templates_at(Instant::now())
    }

    fn templates_at(&self, now: Instant) -> Option<Arc<Templates>> {
        let pause = match &mut *self.found() {
            LastProbe::Usable(templates) => return Some(Arc::clone(templates)),
            LastProbe::Not { again: Some((at, pause)), .. } if *at <= now => {
                let next = pause.saturating_mul(2).min(PAUSE_MAX);
                // Sets the next time first, so that concurrent calls do not try as well.
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
                tracing::info!("images are usable now: disk limits of new sandboxes are enforced");
                Some(Arc::clone(templates))
            }
            LastProbe::Not { .. } => None,
        }
    }

    /// Why images were not usable at the last try; `None` if they were.
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
            tracing::warn!(
                why,
                "images are not usable: disk limits of new sandboxes are watched, not enforced"
            );
            LastProbe::Not { why, again: Some((now + pause, pause)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_temporary_failure_is_retried_with_growing_pauses() {
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
    fn a_permanent_failure_is_not_retried() {
        let images =
            Images::with(Box::new(|| Err(NoImages::ForGood("no root".into()))), Instant::now());
        assert!(images.templates_at(Instant::now() + Duration::from_secs(86_400)).is_none());
        assert_eq!(images.why_not().as_deref(), Some("no root"));
    }
}
