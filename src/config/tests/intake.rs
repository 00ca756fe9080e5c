//! How deliveries come in, and what that needs.

use super::*;
use crate::config::IntakeMode;

#[test]
fn deliveries_are_read_from_github_where_that_is_asked_and_there_are_credentials() {
    let intake = |text: &str| {
        let loaded = load(&format!("[github]\n{text}"));
        loaded.map(|loaded| loaded.config.github.intake)
    };
    assert_eq!(intake(""), Ok(IntakeMode::Webhook));
    assert_eq!(intake("intake = \"webhook\""), Ok(IntakeMode::Webhook));
    assert_eq!(intake("intake = \"deliveries\"\ntoken = \"a\""), Ok(IntakeMode::Deliveries));
    for (text, wrong) in [
        ("intake = \"both\"", "github.intake must be webhook or deliveries"),
        ("intake = \"deliveries\"", "github.intake is deliveries, which needs credentials"),
    ] {
        let error = intake(text).expect_err("it is refused");
        assert!(error.contains(wrong), "{text}: {error}");
    }
    let error = intake("intake = \"deliveries\"").expect_err("it is refused");
    assert!(error.contains("set github.app_id and github.app_key_file, or github.token_file"));
}
