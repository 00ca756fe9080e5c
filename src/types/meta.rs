//! A caller's own names and values of a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

/// How many entries a sandbox has at most.
pub const META_ENTRIES_MAX: usize = 16;
/// Longest name of an entry, in bytes.
pub const META_NAME_MAX: usize = 64;
/// Longest value of an entry, in bytes.
pub const META_VALUE_MAX: usize = 512;

/// What a caller noted with a sandbox: at most [`META_ENTRIES_MAX`] names with values. The server keeps
/// and shows them, and decides nothing by them. Most sandboxes have none, and then it takes no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxMeta(Option<Arc<BTreeMap<String, String>>>);

/// A change of what is noted with a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaChange {
    /// These entries take the place of all.
    Replace(SandboxMeta),
    /// One entry gets another value, or is removed.
    Entry(String, Option<String>),
}

impl SandboxMeta {
    /// Checks entries.
    ///
    /// # Errors
    /// Which entry is wrong and why, in words that follow the name of a field.
    pub fn new(entries: BTreeMap<String, String>) -> Result<Self, String> {
        if entries.len() > META_ENTRIES_MAX {
            let count = entries.len();
            return Err(format!("has {count} entries; at most {META_ENTRIES_MAX} are kept"));
        }
        for (name, value) in &entries {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
            if name.is_empty() || name.len() > META_NAME_MAX || !name.bytes().all(is_plain) {
                return Err(format!(
                    "has the name {name:?}; a name has 1 to {META_NAME_MAX} letters, digits, and any \
                     of . _ - /"
                ));
            }
            if value.len() > META_VALUE_MAX {
                return Err(format!("has a value for {name} longer than {META_VALUE_MAX} bytes"));
            }
            if value.chars().any(char::is_control) {
                return Err(format!("has a control character in the value of {name}"));
            }
        }
        Ok(Self::stored(entries))
    }

    /// Entries that were checked before.
    pub fn stored(entries: BTreeMap<String, String>) -> Self {
        Self((!entries.is_empty()).then(|| Arc::new(entries)))
    }

    /// The value of an entry.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether there is no entry.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Names and values, in the order of the names.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .flat_map(|all| all.iter())
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// All of them, to be stored.
    pub fn to_entries(&self) -> BTreeMap<String, String> {
        self.0.as_deref().cloned().unwrap_or_default()
    }

    /// Whether every entry is here, too.
    pub fn has_all_of(&self, other: &Self) -> bool {
        other.entries().all(|(name, value)| self.get(name) == Some(value))
    }

    /// What it is after a change.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn changed(&self, change: MetaChange) -> Result<Self, String> {
        let (name, value) = match change {
            MetaChange::Replace(meta) => return Ok(meta),
            MetaChange::Entry(name, value) => (name, value),
        };
        let mut entries = self.to_entries();
        match value {
            Some(value) => entries.insert(name, value),
            None => entries.remove(&name),
        };
        Self::new(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(entries: &[(&str, &str)]) -> Result<SandboxMeta, String> {
        let owned = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        SandboxMeta::new(owned.collect())
    }

    #[test]
    fn entries_are_bounded_and_plain() {
        assert!(meta(&[("team/one.two-x_3", "ä, any text")]).is_ok());
        assert!(meta(&[]).is_ok_and(|none| none.is_empty()));
        let long = "x".repeat(META_VALUE_MAX + 1);
        for (entries, why) in [
            (vec![("", "x")], "name"),
            (vec![("a b", "x")], "name"),
            (vec![(&*long, "x")], "name"),
            (vec![("a", &*long)], "longer"),
            (vec![("a", "x\ny")], "control"),
        ] {
            let error = meta(&entries).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
        let names: Vec<String> = (0..=META_ENTRIES_MAX).map(|n| format!("n{n}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
        assert!(meta(&many).is_err_and(|error| error.contains("17 entries")));
        assert!(meta(&many[1..]).is_ok());
    }

    #[test]
    fn one_entry_changes_and_the_others_stay() {
        let before = meta(&[("a", "1"), ("b", "2")]).expect("plain");
        let set = |name: &str, value: Option<&str>| {
            MetaChange::Entry(name.to_owned(), value.map(str::to_owned))
        };
        let changed = before.changed(set("a", Some("3"))).expect("plain");
        assert_eq!(changed, meta(&[("a", "3"), ("b", "2")]).expect("plain"));
        let removed = changed.changed(set("a", None)).and_then(|one| one.changed(set("b", None)));
        assert!(removed.is_ok_and(|one| one.is_empty()));
        assert!(before.changed(set("a b", Some("x"))).is_err());
        let other = meta(&[("c", "")]).expect("plain");
        assert_eq!(before.changed(MetaChange::Replace(other.clone())), Ok(other));
    }

    #[test]
    fn a_sandbox_has_what_is_asked_for_if_every_entry_is_there() {
        let all = meta(&[("a", "1"), ("b", "2")]).expect("plain");
        for (asked, has) in [
            (vec![], true),
            (vec![("b", "2")], true),
            (vec![("b", "1")], false),
            (vec![("c", "")], false),
        ] {
            assert_eq!(all.has_all_of(&meta(&asked).expect("plain")), has, "{asked:?}");
        }
    }
}
