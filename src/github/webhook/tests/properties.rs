//! Nothing panics, whatever the bytes; and a stranger never triggers, whatever else is changed.

use proptest::prelude::*;

use super::*;

fn any_fixture() -> impl Strategy<Value = fixtures::Fixture> {
    (0..fixtures::ALL.len()).prop_map(|at| fixtures::ALL[at])
}

fn any_json() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        Just(json!("agent")),
        Just(json!([])),
        Just(json!({})),
    ]
}

/// Replaces the `nth` value of a walk through a payload.
fn replace(value: &mut Value, nth: &mut usize, with: &Value) -> bool {
    if *nth == 0 {
        *value = with.clone();
        return true;
    }
    *nth -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().any(|v| replace(v, nth, with)),
        Value::Array(items) => items.iter_mut().any(|v| replace(v, nth, with)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered(event in ".{0,10}|issues|issue_comment", body in any::<Vec<u8>>()) {
        let _meant = read(&policy(), &event, &body);
        let _json = json_of(Some("application/x-www-form-urlencoded"), &body);
    }

    #[test]
    fn fixtures_with_any_changed_bytes_are_answered(
        fixture in any_fixture(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        len in any::<prop::sample::Index>(),
    ) {
        let mut body = fixture.body.as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let _changed = read(&policy(), fixture.event(), &body);
        let _cut = read(&policy(), fixture.event(), &body[..len.index(body.len())]);
    }

    #[test]
    fn fixtures_with_any_changed_value_are_answered(
        fixture in any_fixture(),
        nth in 0_usize..400,
        with in any_json(),
    ) {
        let mut payload = payload(fixture.name);
        replace(&mut payload, &mut { nth }, &with);
        let _meant = read(&policy(), fixture.event(), payload.to_string().as_bytes());
    }

    #[test]
    fn a_sender_without_any_right_never_triggers_nor_commands(
        fixture in any_fixture(),
        nth in 0_usize..400,
        with in any_json(),
        sender in prop_oneof![Just(Value::Null), Just(json!({"id": 71_000_177, "type": "Bot"}))],
    ) {
        let mut payload = payload(fixture.name);
        replace(&mut payload, &mut { nth }, &with);
        if let Some(fields) = payload.as_object_mut() {
            fields.insert("sender".into(), sender);
        }
        let policy = TriggerPolicy { opened: true, ..policy() };
        let meant = read(&policy, fixture.event(), payload.to_string().as_bytes());
        let took_effect = match meant {
            Ok(Interpreted::Issue(issue_delivery)) => match issue_delivery.effect {
                DeliveryEffect::Trigger(_) | DeliveryEffect::Activity | DeliveryEffect::FollowUp { .. } | DeliveryEffect::Command(_) | DeliveryEffect::Status | DeliveryEffect::Publish { .. } => true,
                DeliveryEffect::Stop(_) | DeliveryEffect::Delete | DeliveryEffect::Update | DeliveryEffect::Note(_) => false,
            },
            Ok(Interpreted::IfPermitted(_) | Interpreted::OnPull(_)) => true,
            Ok(Interpreted::FanOut(_) | Interpreted::Ignored { .. }) | Err(_) => false,
        };
        prop_assert!(!took_effect);
    }
}
