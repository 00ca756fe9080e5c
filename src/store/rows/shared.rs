//! Text that nearly every row repeats (an account, a provider, a template, a repository), in memory
//! once for many rows that were read.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use crate::types::{Template, TemplateVersion, Workload};

/// How many texts each thread keeps. A text takes the place of another that has the same.
const TEXTS_MAX: usize = 256;

thread_local! {
    static TEXTS: RefCell<[Option<Arc<str>>; TEXTS_MAX]> = const {
        RefCell::new([const { None }; TEXTS_MAX])
    };
    static VERSION: RefCell<Option<(Template, TemplateVersion)>> = const { RefCell::new(None) };
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

/// The version of a template. Rows that are read one after the other mostly have the same one, which is
/// hashed once then.
pub(super) fn version_of(template: &Template) -> TemplateVersion {
    VERSION.with_borrow_mut(|last| match last {
        Some((kept, version)) if kept == template => *version,
        slot => slot.insert((template.clone(), template.version())).1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Mode, Network, OnLimit, ProviderName, Resources, TemplateName};

    #[test]
    fn each_template_has_its_own_version_in_whatever_order_they_are_read() {
        let of = |memory_mb| Template {
            name: TemplateName::trusted("default"),
            provider: ProviderName::trusted("local"),
            mode: Mode::Strong,
            resources: Resources { cpu: 1.0, memory_mb, processes: 1, disk_mb: 1 },
            network: Network::None,
            ports: Vec::new(),
            on_limit: OnLimit::Kill,
            workload: no_workload(),
        };
        let (one, two) = (of(1), of(2));
        for template in [&one, &two, &two, &one, &two, &one] {
            assert_eq!(version_of(template), template.version());
        }
        assert_ne!(version_of(&one), version_of(&two));
    }

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
