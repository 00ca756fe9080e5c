//! Text that nearly every row repeats (an account, a provider, a template, a repository), in memory
//! once for many rows that were read.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use crate::types::Workload;

/// How many texts each thread keeps. A text takes the place of another that has the same.
const TEXTS_MAX: usize = 256;

thread_local! {
    static TEXTS: RefCell<[Option<Arc<str>>; TEXTS_MAX]> = const {
        RefCell::new([const { None }; TEXTS_MAX])
    };
}

/// This text, shared with other rows that this thread read.
pub(super) fn shared(text: &str) -> Arc<str> {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let place = usize::try_from(hasher.finish() % TEXTS_MAX as u64).unwrap_or_default();
    TEXTS.with_borrow_mut(|texts| match &mut texts[place] {
        Some(kept) if **kept == *text => Arc::clone(kept),
        slot => Arc::clone(slot.insert(Arc::from(text))),
    })
}

/// The workload of the templates that have none.
pub(super) fn no_workload() -> Arc<Workload> {
    static NONE: LazyLock<Arc<Workload>> = LazyLock::new(Arc::default);
    Arc::clone(&NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once_and_comes_back_as_it_was() {
        assert!(Arc::ptr_eq(&shared("octo/hello"), &shared("octo/hello")));
        for n in 0..2_000 {
            let text = format!("octo/{n}");
            assert_eq!(*shared(&text), *text);
        }
        assert_eq!(*shared(""), *"");
    }
}
