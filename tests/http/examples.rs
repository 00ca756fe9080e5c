//! Every delivery that GitHub published as an example is understood or acknowledged, and those
//! with an effect by the table of effects have one.

use std::collections::BTreeMap;

use crate::github_examples;
use issuebox::app::providers::load_config;
use issuebox::config::Overrides;
use issuebox::github::policy::{TriggerPolicies, TriggerPolicy};
use issuebox::github::webhook::{Interpreted, interpret};
use issuebox::types::{DeliveryId, Timestamp};

fn policy() -> TriggerPolicies {
    let overrides = Overrides { listen: None, data: Some("unused".into()) };
    let loaded = load_config(None, std::iter::empty(), overrides).expect("the defaults are valid");
    TriggerPolicy::all(&loaded.config.triggers, &loaded.config.github)
}

#[test]
#[ignore = "needs the npm package @octokit/webhooks-examples; .ci/run installs it"]
fn every_published_example_means_what_the_table_of_effects_says() {
    let examples = github_examples::load().expect("the package");
    let policy = policy();
    let mut meanings: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut malformed = Vec::new();
    for example in &examples {
        let delivery = DeliveryId::parse("72d3162e-cc78-11e3-81ab-4c9367dc0958").expect("a GUID");
        let received_at = Timestamp::from_unix_ms(0);
        let meant = interpret(&policy, delivery, received_at, &example.event, &example.body);
        let (action, took_effect) = match meant {
            Ok(Interpreted::Issue(issue_delivery)) => (issue_delivery.action, true),
            Ok(Interpreted::IfPermitted(delivery)) => (delivery.permitted.action, true),
            Ok(Interpreted::OnPull(delivery)) => (delivery.action, true),
            Ok(Interpreted::FanOut(fan_out)) => (fan_out.action, true),
            Ok(Interpreted::Ignored { action, reason }) => {
                assert_ne!(reason, "", "{}", example.name);
                (action, false)
            }
            Err(error) => {
                malformed.push(format!("{}: {error}", example.name));
                continue;
            }
        };
        let (effective, all) = meanings.entry(format!("{} {action}", example.event)).or_default();
        *effective += usize::from(took_effect);
        *all += 1;
    }
    assert_eq!(malformed, Vec::<String>::new());
    assert!(examples.len() > 300, "only {} examples", examples.len());
    let effective: Vec<String> = meanings
        .iter()
        .filter(|(_, (effective, _))| *effective > 0)
        .map(|(what, (effective, all))| format!("{what}: {effective} of {all}"))
        .collect();
    insta::assert_snapshot!(effective.join("\n"), @"
    installation created: 4 of 4
    installation deleted: 9 of 9
    installation new_permissions_accepted: 1 of 1
    installation suspend: 1 of 1
    installation unsuspend: 1 of 1
    installation_repositories added: 9 of 9
    installation_repositories removed: 3 of 3
    issue_comment created: 12 of 12
    issues deleted: 1 of 1
    issues edited: 10 of 10
    issues opened: 6 of 6
    issues reopened: 1 of 1
    issues transferred: 1 of 1
    issues unlocked: 2 of 2
    repository deleted: 2 of 2
    repository edited: 2 of 2
    repository privatized: 4 of 4
    repository publicized: 10 of 10
    repository renamed: 1 of 1
    repository transferred: 3 of 3
    ");
}
