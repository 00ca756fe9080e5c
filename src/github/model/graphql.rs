//! GraphQL: queries about repositories and issues, checked against the part of GitHub's schema in
//! `fixtures/github/graphql.json`. A query that the schema does not allow is refused as a whole, as at
//! GitHub, and is a violation.

mod nodes;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use graphql_parser::query::{
    Definition, Document, Field, OperationDefinition, Selection, SelectionSet, TypeCondition,
    Value as GraphqlValue, parse_query,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::auth::{ModelAccess, ModelCaller};
use super::rest::{RestReply, failure, reply};
use super::state::ModelState;

/// A type of the schema.
#[derive(Deserialize)]
struct SchemaType {
    kind: String,
    fields: BTreeMap<String, SchemaField>,
    /// The objects that an interface or union may be.
    possible: Vec<String>,
    values: Vec<String>,
}

#[derive(Deserialize)]
struct SchemaField {
    #[serde(rename = "type")]
    kind: String,
    args: BTreeMap<String, String>,
}

static SCHEMA: LazyLock<BTreeMap<String, SchemaType>> = LazyLock::new(|| {
    let text = include_str!("../../../fixtures/github/graphql.json");
    serde_json::from_str(text).expect("the schema is checked in")
});

type Fragments<'q> = BTreeMap<&'q str, (&'q str, &'q SelectionSet<'q, String>)>;

/// The name in a type such as `[Label!]!`.
fn named(kind: &str) -> &str {
    kind.trim_matches(|c| matches!(c, '[' | ']' | '!'))
}

fn condition<'r>(condition: &'r TypeCondition<'_, String>) -> &'r str {
    let TypeCondition::On(name) = condition;
    name
}

/// A query that is being answered.
struct GraphqlRun<'q> {
    state: &'q ModelState,
    access: &'q ModelAccess,
    variables: Value,
    fragments: Fragments<'q>,
    errors: Vec<Value>,
    lacking: Vec<String>,
}

impl ModelState {
    /// Answers a query.
    pub fn answer_graphql(&mut self, access: &ModelAccess, body: &Value) -> RestReply {
        match access.caller {
            ModelCaller::Anonymous | ModelCaller::App => {
                return failure(401, "This endpoint requires you to be authenticated.");
            }
            ModelCaller::Installation(id) => {
                let found = self.installations.get(&id);
                if found.is_some_and(|found| found.suspended.is_some()) {
                    return failure(403, "This installation has been suspended");
                }
            }
            ModelCaller::User(_) => {}
        }
        let text = body["query"].as_str().unwrap_or_default();
        let invalid = |state: &mut Self, words: String| {
            state.violations.push(format!("GraphQL: {words}"));
            reply(200, json!({"errors": [{"message": words}]}))
        };
        let document: Document<'_, String> = match parse_query(text) {
            Ok(document) => document,
            Err(error) => return invalid(self, error.to_string()),
        };
        let mut fragments = Fragments::new();
        let (mut root, mut defaults) = (None, Map::new());
        for definition in &document.definitions {
            match definition {
                Definition::Fragment(found) => {
                    let target = (condition(&found.type_condition), &found.selection_set);
                    fragments.insert(&found.name, target);
                }
                Definition::Operation(OperationDefinition::Query(query)) => {
                    root = Some(&query.selection_set);
                    for variable in &query.variable_definitions {
                        if let Some(value) = &variable.default_value {
                            defaults
                                .insert(variable.name.clone(), plain_value(value, &Value::Null));
                        }
                    }
                }
                Definition::Operation(OperationDefinition::SelectionSet(set)) => root = Some(set),
                Definition::Operation(_) => {}
            }
        }
        let Some(root) = root else {
            return invalid(self, "there is no query".to_owned());
        };
        if let Err(words) = check(&fragments, "Query", root) {
            return invalid(self, words);
        }
        defaults.extend(body["variables"].as_object().cloned().unwrap_or_default());
        let (state, variables) = (&*self, Value::Object(defaults));
        let (errors, lacking) = (Vec::new(), Vec::new());
        let mut run = GraphqlRun { state, access, variables, fragments, errors, lacking };
        let data = run.select("Query", &json!({}), root);
        let (errors, lacking) = (run.errors, run.lacking);
        self.violations.extend(lacking);
        let mut answer = json!({"data": data});
        if !errors.is_empty() {
            answer["errors"] = json!(errors);
        }
        reply(200, answer)
    }
}

/// An argument as JSON.
fn plain_value(value: &GraphqlValue<'_, String>, variables: &Value) -> Value {
    match value {
        GraphqlValue::Variable(name) => variables[name.as_str()].clone(),
        GraphqlValue::Int(number) => json!(number.as_i64()),
        GraphqlValue::Float(number) => json!(number),
        GraphqlValue::String(text) | GraphqlValue::Enum(text) => json!(text),
        GraphqlValue::Boolean(is) => json!(is),
        GraphqlValue::Null => Value::Null,
        GraphqlValue::List(items) => {
            items.iter().map(|item| plain_value(item, variables)).collect()
        }
        GraphqlValue::Object(fields) => {
            let fields = fields.iter();
            fields.map(|(name, value)| (name.clone(), plain_value(value, variables))).collect()
        }
    }
}

/// Whether the schema allows a selection on a type.
fn check(
    fragments: &Fragments<'_>,
    kind: &str,
    set: &SelectionSet<'_, String>,
) -> Result<(), String> {
    let found = SCHEMA.get(kind).ok_or_else(|| format!("the model has no type {kind}"))?;
    for item in &set.items {
        match item {
            Selection::Field(field) if field.name == "__typename" => {}
            Selection::Field(field) => check_field(fragments, kind, found, field)?,
            Selection::FragmentSpread(spread) => {
                let (kind, set) = fragments
                    .get(spread.fragment_name.as_str())
                    .ok_or_else(|| format!("no fragment {}", spread.fragment_name))?;
                check(fragments, kind, set)?;
            }
            Selection::InlineFragment(fragment) => {
                let kind = fragment.type_condition.as_ref().map_or(kind, condition);
                check(fragments, kind, &fragment.selection_set)?;
            }
        }
    }
    Ok(())
}

fn check_field(
    fragments: &Fragments<'_>,
    kind: &str,
    found: &SchemaType,
    field: &Field<'_, String>,
) -> Result<(), String> {
    let name = &field.name;
    let known = found
        .fields
        .get(name)
        .ok_or_else(|| format!("Field '{name}' doesn't exist on type '{kind}'"))?;
    for (argument, value) in &field.arguments {
        let kind = known.args.get(argument);
        let kind = kind.ok_or_else(|| format!("'{name}' doesn't accept argument '{argument}'"))?;
        // Of an enum, each word must be one of its values.
        let words = match value {
            GraphqlValue::List(items) => items.as_slice(),
            value => std::slice::from_ref(value),
        };
        let values = SCHEMA.get(named(kind)).map(|kind| &kind.values);
        let is_known = |word: &GraphqlValue<'_, String>| match (word, values) {
            (GraphqlValue::Enum(word), Some(values)) => values.contains(word),
            _ => true,
        };
        if !words.iter().all(is_known) {
            return Err(format!("Argument '{argument}' on '{name}' has an invalid value"));
        }
    }
    let given = |argument: &str| field.arguments.iter().any(|(given, _)| given == argument);
    let mut needed = known.args.iter().filter(|(_, kind)| kind.ends_with('!'));
    if let Some((argument, _)) = needed.find(|(argument, _)| !given(argument)) {
        return Err(format!("Field '{name}' is missing required arguments: {argument}"));
    }
    let target = named(&known.kind);
    if target.ends_with("Connection") && !given("first") && !given("last") {
        return Err(format!(
            "You must provide a `first` or `last` value to properly paginate the `{name}` connection."
        ));
    }
    let is_leaf = SCHEMA.get(target).is_none_or(|target| target.kind == "ENUM");
    match (is_leaf, field.selection_set.items.is_empty()) {
        (true, true) => Ok(()),
        (false, false) => check(fragments, target, &field.selection_set),
        (true, false) => Err(format!("Selections can't be made on scalars (field '{name}')")),
        (false, true) => Err(format!("Field '{name}' must have selections")),
    }
}

impl GraphqlRun<'_> {
    /// What a selection shows of an object. Objects of an interface name their own type.
    fn select(&mut self, kind: &str, object: &Value, set: &SelectionSet<'_, String>) -> Value {
        let mut shown = Map::new();
        self.select_into(&mut shown, kind, object, set);
        Value::Object(shown)
    }

    fn select_into(
        &mut self,
        shown: &mut Map<String, Value>,
        kind: &str,
        object: &Value,
        set: &SelectionSet<'_, String>,
    ) {
        let applies = |condition: &str| {
            let possible = SCHEMA.get(condition).map(|found| &found.possible);
            condition == kind || possible.is_some_and(|kinds| kinds.iter().any(|own| own == kind))
        };
        for item in &set.items {
            match item {
                Selection::Field(field) => {
                    let name = field.alias.as_ref().unwrap_or(&field.name).clone();
                    let value = self.field(kind, object, field);
                    shown.insert(name, value);
                }
                Selection::FragmentSpread(spread) => {
                    let (condition, set) = self.fragments[spread.fragment_name.as_str()];
                    if applies(condition) {
                        self.select_into(shown, kind, object, set);
                    }
                }
                Selection::InlineFragment(fragment) => {
                    if fragment.type_condition.as_ref().map(condition).is_none_or(applies) {
                        self.select_into(shown, kind, object, &fragment.selection_set);
                    }
                }
            }
        }
    }

    fn field(&mut self, kind: &str, object: &Value, field: &Field<'_, String>) -> Value {
        if field.name == "__typename" {
            return json!(kind);
        }
        let known = &SCHEMA[kind].fields[&field.name];
        let args = field.arguments.iter();
        let args: Map<String, Value> =
            args.map(|(name, value)| (name.clone(), plain_value(value, &self.variables))).collect();
        let args = Value::Object(args);
        let value = self.resolve(kind, object, &field.name, &args);
        let value = match value {
            Some(value) if known.kind.contains("Connection") => connection(&value, &args),
            Some(value) => value,
            None => {
                self.lacking.push(format!("the model has no {kind}.{}", field.name));
                Value::Null
            }
        };
        self.complete(named(&known.kind), &value, field)
    }

    fn complete(&mut self, kind: &str, value: &Value, field: &Field<'_, String>) -> Value {
        match value {
            Value::Array(items) => {
                items.iter().map(|item| self.complete(kind, item, field)).collect()
            }
            Value::Object(_) => {
                let own = value["__typename"].as_str().unwrap_or(kind);
                self.select(own, value, &field.selection_set)
            }
            leaf => leaf.clone(),
        }
    }

    /// An error beside the data, as GitHub reports what may not be seen or is not there.
    fn refuse(&mut self, kind: &str, path: &str, words: &str) -> Option<Value> {
        self.errors.push(json!({"type": kind, "path": [path], "message": words}));
        Some(Value::Null)
    }
}

/// One page of a list, from its start or its end. Cursors are places in the list.
fn connection(items: &Value, args: &Value) -> Value {
    let kinds = args["itemTypes"].as_array();
    let wanted = |item: &&Value| {
        let kind = screaming(item["__typename"].as_str().unwrap_or_default());
        kinds.is_none_or(|kinds| kinds.iter().any(|wanted| *wanted == kind))
    };
    let items: Vec<&Value> = items.as_array().into_iter().flatten().filter(wanted).collect();
    let place = |name: &str| args[name].as_str().and_then(|cursor| cursor.parse::<usize>().ok());
    let start = place("after").map_or(0, |at| at + 1).min(items.len());
    let end = place("before").unwrap_or(items.len()).clamp(start, items.len());
    let count = |name: &str| args[name].as_u64().map(|count| count.min(100) as usize);
    let (start, end) = match (count("first"), count("last")) {
        (Some(first), _) => (start, end.min(start + first)),
        (None, Some(last)) => (start.max(end.saturating_sub(last)), end),
        (None, None) => (start, end),
    };
    let page = &items[start..end];
    let edges = page.iter().zip(start..);
    let edges = edges.map(|(node, at)| json!({"node": node, "cursor": at.to_string()}));
    json!({
        "nodes": page, "edges": edges.collect::<Vec<_>>(), "totalCount": items.len(),
        "filteredCount": items.len(), "pageCount": page.len(),
        "pageInfo": {
            "hasNextPage": end < items.len(), "hasPreviousPage": start > 0,
            "startCursor": (!page.is_empty()).then(|| start.to_string()),
            "endCursor": (!page.is_empty()).then(|| (end - 1).to_string()),
        },
    })
}

/// `LabeledEvent` as the enum names it: `LABELED_EVENT`.
fn screaming(name: &str) -> String {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.extend(c.to_uppercase());
    }
    words
}
