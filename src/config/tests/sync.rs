//! `[sync]`: what is kept, and how often running sandboxes are pushed.

use super::*;

#[test]
fn what_is_kept_and_how_often_is_pushed_have_defaults_and_can_be_turned_off() {
    let sync = |text: &str| {
        let text = format!("[sync]\nurl = \"file:///x\"\n{text}");
        load(&text).expect("a good configuration").config.sync.expect("it has a url")
    };
    let day = Duration::from_secs(86_400);
    let given = sync("");
    assert_eq!((given.keep_versions, given.keep, given.every), (None, None, None));
    let given = sync("keep_versions = 0\nkeep_seconds = 0\nevery_seconds = 60");
    let minute = Duration::from_secs(60);
    assert_eq!((given.keep_versions, given.keep, given.every), (None, None, Some(minute)));
    let given = sync("keep_versions = 3\nkeep_seconds = 86400");
    assert_eq!((given.keep_versions, given.keep), (Some(3), Some(day)));
    assert!(error_of("[sync]\nkeep_versions = -1").contains("sync.keep_versions"));
}

#[test]
fn pushes_without_a_place_for_them_are_warned_of() {
    let loaded = load("[sync]\nevery_seconds = 60\nregion = \"x\"").expect("a good configuration");
    assert_eq!(loaded.config.sync, None);
    let warned = |key: &str| loaded.warnings.iter().any(|warning| warning.contains(key));
    assert!(warned("sync.every_seconds") && warned("sync.region"), "{:?}", loaded.warnings);
    assert_eq!(load("[sync]\nkeep_versions = 50").expect("good").warnings, Vec::<String>::new());
}
