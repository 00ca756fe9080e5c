//! Every delivery that GitHub published as an example is understood or acknowledged.

#[path = "common/github_examples.rs"]
mod github_examples;

use issuebox::config::{Config, Overrides};
use issuebox::github::policy::TriggerPolicy;
use issuebox::github::webhook::{Interpreted, interpret};
use issuebox::types::{DeliveryId, Timestamp};

fn policy() -> TriggerPolicy {
    let overrides = Overrides { listen: None, data: Some("unused".into()) };
    let loaded = Config::load(None, std::iter::empty(), overrides).expect("the defaults are valid");
    TriggerPolicy::new(&loaded.config.triggers, &loaded.config.github)
}

#[test]
#[ignore = "needs the npm package @octokit/webhooks-examples; .ci/run installs it"]
fn no_published_example_is_malformed() {
    let examples = github_examples::load().expect("the package");
    let policy = policy();
    let mut about_issues = 0;
    let mut malformed = Vec::new();
    for example in &examples {
        let delivery = DeliveryId::parse("72d3162e-cc78-11e3-81ab-4c9367dc0958").expect("a GUID");
        let received_at = Timestamp::from_unix_ms(0);
        match interpret(&policy, delivery, received_at, &example.event, &example.body) {
            Ok(Interpreted::Issue(_)) => about_issues += 1,
            Ok(Interpreted::Ignored { reason, .. }) => assert_ne!(reason, "", "{}", example.name),
            Err(error) => malformed.push(format!("{}: {error}", example.name)),
        }
    }
    assert_eq!(malformed, Vec::<String>::new());
    assert!(examples.len() > 300, "only {} examples", examples.len());
    assert!(about_issues > 10, "only {about_issues} examples have an effect on an issue");
}
