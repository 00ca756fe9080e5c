//! An eye on the simulated provider's objects while a test does what could make two of one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::process::{Object, Place};

/// Watches the provider's objects, for two of one name at one moment.
pub struct Watch {
    ends: Arc<AtomicBool>,
    seen: Arc<Mutex<Option<(Object, Object)>>>,
    watching: std::thread::JoinHandle<usize>,
}

impl Watch {
    /// Begins to watch.
    pub fn over(place: &Arc<Place>) -> Self {
        let (ends, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<_>>::default());
        let (place, until, into) = (Arc::clone(place), Arc::clone(&ends), Arc::clone(&seen));
        let watching = std::thread::spawn(move || {
            let mut samples = 0;
            while !until.load(Ordering::Relaxed) {
                samples += 1;
                if let Some(two) = place.coexisting() {
                    *into.lock().expect("not poisoned") = Some(two);
                }
                std::thread::yield_now();
            }
            samples
        });
        Self { ends, seen, watching }
    }

    /// Ends the watch, which must have looked often and seen no two.
    pub fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        let samples = self.watching.join().expect("it watched");
        assert!(samples > 50, "only {samples} samples");
        assert_eq!(*self.seen.lock().expect("not poisoned"), None, "two objects at one moment");
    }
}

#[test]
fn two_objects_of_one_name_at_one_moment_are_seen() {
    let place = Place::simulated("");
    let write = |id: &str, name: &str| {
        let labels = serde_json::json!({"issuebox.sandbox": "s", "issuebox.issue": "1"});
        let file = serde_json::json!({"name": name, "externalId": id, "state": "running", "labels": labels});
        let dir = place.simulated_dir();
        std::fs::create_dir_all(&dir).expect("made");
        std::fs::write(dir.join(format!("{id}.json")), file.to_string()).expect("written");
    };
    write("sim-1", "one");
    write("sim-2", "another");
    assert_eq!(place.coexisting(), None);
    write("sim-3", "one");
    let (first, second) = place.coexisting().expect("two of one name");
    assert_eq!((first.name.as_str(), second.name.as_str()), ("one", "one"));
}
