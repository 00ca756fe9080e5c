//! GitHub's own description of its REST interface, to which each call of a test is held.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Value, json};

use super::ModelCall;

/// `fixtures/github/openapi.json`: `operations` by name, and the `$defs` to which they refer.
static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../../fixtures/github/openapi.json");
    serde_json::from_str(text).expect("the description is checked in")
});

static VALIDATORS: LazyLock<Mutex<HashMap<String, std::sync::Arc<Validator>>>> =
    LazyLock::new(Mutex::default);

/// The names of all operations in the description.
pub(super) fn operations() -> Vec<&'static str> {
    let operations = DESCRIPTION["operations"].as_object().expect("it has operations");
    operations.keys().map(String::as_str).collect()
}

/// Why a value does not have the form that a schema of the description asks for.
fn wrong(key: &str, schema: &Value, value: &Value) -> Option<String> {
    let mut validators = VALIDATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = validators.entry(key.to_owned()).or_insert_with(|| {
        let whole = json!({"$defs": DESCRIPTION["$defs"], "allOf": [schema]});
        std::sync::Arc::new(jsonschema::validator_for(&whole).expect("a valid schema"))
    });
    let validator = validator.clone();
    drop(validators);
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect();
    (!errors.is_empty()).then(|| format!("{key}: {}", errors.join("; ")))
}

/// What of a call the description does not allow. Calls that a fault kept from an operation are not
/// looked at.
pub(super) fn check(call: &ModelCall) -> Vec<String> {
    let Some(name) = call.operation.as_deref().filter(|name| !name.ends_with("/graphql")) else {
        return Vec::new();
    };
    let operation = &DESCRIPTION["operations"][name];
    if operation.is_null() {
        return vec![format!("{name} is not in the description")];
    }
    let mut found = Vec::new();
    for (parameter, value) in &call.query {
        let schema = &operation["query"][parameter];
        let number = value.parse::<i64>().map(Value::from);
        let value = match schema["type"].as_str() {
            Some("integer") => number.unwrap_or_else(|_| json!(value)),
            _ => json!(value),
        };
        match schema.is_null() {
            true => found.push(format!("{name}: no parameter {parameter}")),
            false => found.extend(wrong(&format!("{name} ?{parameter}"), schema, &value)),
        }
    }
    match (&operation["body"], &call.request) {
        (Value::Null, Value::Null) => {}
        (Value::Null, Value::Object(fields)) if fields.is_empty() => {}
        (Value::Null, _) => found.push(format!("{name}: a body that is not described")),
        (_, Value::Null) => {}
        (schema, body) => {
            let known = schema["properties"].as_object();
            let unknown = body.as_object().into_iter().flatten().map(|(field, _)| field);
            let mut unknown =
                unknown.filter(|field| known.is_some_and(|known| !known.contains_key(*field)));
            found.extend(unknown.next().map(|field| format!("{name}: no field {field} in a body")));
            // A body that is refused for its form is allowed to have the wrong one.
            if call.status != 422 {
                found.extend(wrong(&format!("{name} body"), schema, body));
            }
        }
    }
    let answers = &operation["answers"];
    let schema = answers.get(call.status.to_string());
    match (schema, call.status) {
        (Some(Value::Null), _) if call.answer.is_null() => {}
        (Some(Value::Null), status) => found.push(format!("{name}: a body with {status}")),
        (Some(schema), status) => {
            found.extend(wrong(&format!("{name} {status}"), schema, &call.answer));
        }
        // Errors that any operation may answer, and lost answers.
        (None, 0 | 304 | 301 | 400..) => {}
        (None, status) => found.push(format!("{name}: status {status} is not described")),
    }
    found
}
