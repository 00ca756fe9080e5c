//! Completes the served description: its head, authentication, and the answers that kinds of routes
//! share.
//!
//! A handler's description lists its own answers, and the [groups](super::answers) of errors that
//! it can answer with. Errors that a whole kind of routes shares (the gate under `/v1`, bodies,
//! overload) are added here, once. Each error answer lists its codes in `x-codes`, and says in its
//! description what they mean.

pub mod params;
pub mod words;

use std::collections::{BTreeMap, BTreeSet};

use utoipa::ToSchema;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::schema::{ArrayItems, SchemaType, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, Content, Info, License, OpenApi, Ref, RefOr, Response, Schema, SecurityRequirement,
    Server, Tag,
};

use super::answers;
use super::error::Code;
use super::wire::ErrorAnswer;
use words::{PhaseFilterWord, UntilWord};

/// Where an answer lists its error codes.
pub const CODES: &str = "x-codes";

/// The tags, in the order in which they are shown.
const TAGS: [(&str, &str); 11] = [
    ("issues", "An issue and its one sandbox"),
    ("sandboxes", "Sandboxes: list, ensure, stop, start, retry and delete them"),
    ("work", "Commands, files, terminals, ports and logs of a sandbox"),
    ("conversations", "What is said to an issue's agent, and its runs"),
    ("events", "Changes of sandboxes, as they happen"),
    ("deliveries", "Webhook deliveries and their results"),
    ("holds", "Holds: they prevent creates and starts until they are released"),
    ("access", "Tokens and accounts, for admins"),
    ("server", "The server itself: health, metrics, drift and this description"),
    ("webhooks", "The address that GitHub sends deliveries to"),
    ("page", "The dashboard"),
];

/// Completes the description that the routes gave.
pub fn complete(mut document: OpenApi) -> OpenApi {
    document.info = info();
    document.servers = Some(vec![Server::new("/")]);
    document.tags = Some(TAGS.iter().map(tag).collect());
    let components = document.components.get_or_insert_default();
    components
        .add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    add_schemas(components);
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            complete_operation(path, operation);
        }
    }
    document
}

fn info() -> Info {
    let mut info = Info::new("issuebox", env!("CARGO_PKG_VERSION"));
    let about = "Exactly one sandbox for every GitHub issue.\n\nEvery failure has a `code` to \
                 branch on; each operation lists the codes that it can answer with.\n\nA caller sees and changes \
                 what belongs to its account. An admin acts in another account with the header \
                 `X-Issuebox-Account`.";
    info.description = Some(about.to_owned());
    let mut license = License::new(env!("CARGO_PKG_LICENSE"));
    license.identifier = Some(env!("CARGO_PKG_LICENSE").to_owned());
    info.license = Some(license);
    info
}

fn tag((name, about): &(&str, &str)) -> Tag {
    TagBuilder::new().name(*name).description(Some(*about)).build()
}

fn named<T: ToSchema>() -> (String, RefOr<Schema>) {
    (T::name().into_owned(), T::schema())
}

/// Adds the schemas that no handler's answer names, and lets envelopes refer to what is in them.
fn add_schemas(components: &mut Components) {
    let mut schemas =
        vec![named::<ErrorAnswer<'_>>(), named::<UntilWord>(), named::<PhaseFilterWord>()];
    ErrorAnswer::schemas(&mut schemas);
    components.schemas.extend(schemas);
    let named = components.schemas.clone();
    for (name, schema) in &mut components.schemas {
        let Some((_, inner)) = name.rsplit_once('_') else { continue };
        let RefOr::T(Schema::Object(envelope)) = schema else { continue };
        match envelope.properties.get_mut("data") {
            Some(RefOr::T(Schema::Array(list))) => {
                if let ArrayItems::RefOrSchema(items) = &mut list.items {
                    refer(items, inner, &named);
                }
            }
            Some(data) => refer(data, inner, &named),
            None => {}
        }
    }
}

/// Replaces a copy of a named schema by a reference to it.
fn refer(schema: &mut RefOr<Schema>, name: &str, named: &BTreeMap<String, RefOr<Schema>>) {
    if named.get(name) == Some(schema) {
        *schema = Ref::from_schema_name(name).into();
    }
}

fn complete_operation(path: &str, operation: &mut Operation) {
    let is_v1 = path.starts_with("/v1/");
    // A server in a sandbox reads its own queries and bodies.
    let is_below_port = path.ends_with("{tail}");
    let security = is_v1.then(|| SecurityRequirement::new("token", Vec::<String>::new()));
    operation.security = Some(security.into_iter().collect());
    let mut shared = vec![Code::UnsupportedMediaType];
    if is_v1 {
        shared.extend([
            Code::Unauthorized,
            Code::TooManyAttempts,
            Code::Forbidden,
            Code::AccountNotFound,
        ]);
    }
    if is_v1 && !is_below_port {
        shared.push(Code::InvalidRequest);
    }
    if operation.request_body.is_some() {
        shared.extend([Code::RequestTimeout, Code::BodyTooLarge, Code::Overloaded]);
    }
    fold(operation, &shared);
    split_summary(operation);
    complete_parameters(operation);
}

/// Keeps the first sentence as the summary; the rest goes to the description.
fn split_summary(operation: &mut Operation) {
    let Some(summary) = operation.summary.take() else { return };
    let summary = summary.replace('\n', " ");
    let (first, rest) = summary.split_once(". ").unwrap_or((summary.trim_end_matches('.'), ""));
    let description = operation.description.take().unwrap_or_default();
    let description = format!("{rest}\n\n{description}").trim().to_owned();
    operation.description = Some(description).filter(|text| !text.is_empty());
    operation.summary = Some(first.to_owned());
}

/// utoipa adds the parts of a path once more, without their description. A parameter can be left
/// out, but it cannot be null.
fn complete_parameters(operation: &mut Operation) {
    let Some(parameters) = operation.parameters.take() else { return };
    let mut written: Vec<Parameter> = Vec::new();
    for parameter in parameters {
        // None is a reference to a component: the routes write all of theirs out.
        let RefOr::T(mut parameter) = parameter else { continue };
        if parameter.description.is_none() && written.iter().any(|one| one.name == parameter.name) {
            continue;
        }
        if let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
            && let SchemaType::Array(types) = &object.schema_type
            && let Some(of) = types.iter().find(|one| **one != Type::Null)
        {
            object.schema_type = SchemaType::Type(of.clone());
        }
        written.push(parameter);
    }
    operation.parameters = Some(written.into_iter().map(RefOr::T).collect());
}

/// The operations of a path.
fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete];
    all.into_iter().filter_map(Option::as_mut)
}

/// Replaces the answers by code, and `shared` ones, by one answer for each status.
fn fold(operation: &mut Operation, shared: &[Code]) {
    let answers = &mut operation.responses.responses;
    let of_key =
        |key: &String| answers::code_of(key).map(|(status, code)| (status.to_owned(), code));
    let own: Vec<(String, Code)> = answers.keys().filter_map(of_key).collect();
    answers.retain(|key, _| answers::code_of(key).is_none());
    let mut by_status: BTreeMap<String, BTreeSet<Code>> = BTreeMap::new();
    let shared = shared.iter().map(|code| (code.status().as_str().to_owned(), *code));
    for (status, code) in own.into_iter().chain(shared) {
        by_status.entry(status).or_default().insert(code);
    }
    for (status, codes) in by_status {
        let answer = answers.entry(status).or_insert_with(|| Response::new("").into());
        if let RefOr::T(answer) = answer {
            list_codes(answer, &codes);
        }
    }
}

/// Lists the codes of an answer: for programs, and in words.
fn list_codes(answer: &mut Response, codes: &BTreeSet<Code>) {
    let line = |code: &Code| format!("- `{}`: {}", code.as_str(), code.meaning());
    let list = codes.iter().map(line).collect::<Vec<_>>().join("\n");
    answer.description = format!("{}\n\n{list}", answer.description).trim().to_owned();
    let words: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    answer.extensions = Some(ExtensionsBuilder::new().add(CODES, words).build());
    let content = Content::new(Some(Ref::from_schema_name("Failure")));
    answer.content.insert("application/json".to_owned(), content.into());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use actix_web::http::StatusCode;
    use serde_json::Value;

    use super::super::routes;
    use super::*;

    fn document() -> Value {
        serde_json::to_value(routes::document()).expect("it is JSON")
    }

    /// Each operation with its name.
    fn all(document: &Value) -> Vec<(String, &Value)> {
        let paths = document["paths"].as_object().expect("paths");
        let operations = paths.iter().flat_map(|(path, item)| {
            let item = item.as_object().expect("operations");
            item.iter().map(move |(method, operation)| (format!("{method} {path}"), operation))
        });
        operations.collect()
    }

    #[test]
    fn every_code_belongs_to_an_answer_with_its_status() {
        // The first two are answered before any route. The others are about detached processes, for
        // which there is no route yet.
        let unrouted =
            ["route_not_found", "method_not_allowed", "process_not_found", "stdin_closed"];
        let mut seen: BTreeSet<&str> = unrouted.into();
        let document = document();
        for (name, operation) in all(&document) {
            for (status, answer) in operation["responses"].as_object().expect("answers") {
                for word in answer[CODES].as_array().into_iter().flatten() {
                    let code = Code::ALL.iter().find(|code| code.as_str() == word);
                    let code = code.unwrap_or_else(|| panic!("{name} {status}: {word}"));
                    let by_github = code.status_by_github();
                    let fits = |of: &StatusCode| of.as_str() == status;
                    let is_its = fits(&code.status()) || by_github.as_ref().is_some_and(fits);
                    assert!(is_its, "{name}: {word} with {status}");
                    seen.insert(code.as_str());
                }
            }
        }
        let every: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(seen, every, "codes that no route lists");
    }

    #[test]
    fn every_operation_has_an_id_of_its_own_and_every_answer_a_description() {
        let (document, mut ids) = (document(), BTreeSet::new());
        for (name, operation) in all(&document) {
            let id = operation["operationId"].as_str().expect("an id");
            assert!(ids.insert(id), "{id} is the id of two operations");
            let tag = operation["tags"][0].as_str().expect("a tag");
            assert!(TAGS.iter().any(|(known, _)| *known == tag), "{name}: {tag}");
            for (status, answer) in operation["responses"].as_object().expect("answers") {
                let about = answer["description"].as_str().unwrap_or_default();
                assert!(!about.is_empty(), "{name} {status} has no description");
                assert!(status.parse::<u16>().is_ok(), "{name}: {status}");
            }
        }
    }

    #[test]
    fn the_document_is_of_version_3_1_and_every_reference_in_it_is_there() {
        let document = document();
        assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
        let text = document.to_string();
        for part in text.split("\"#/components/schemas/").skip(1) {
            let name = part.split('"').next().expect("a name");
            assert!(document["components"]["schemas"][name].is_object(), "{name} is missing");
        }
    }
}
