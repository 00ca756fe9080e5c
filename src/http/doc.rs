//! What the served description says beyond its routes: its head, how to authenticate, and the
//! answers that all routes of a kind share.
//!
//! A route's description lists its own answers; those that come from what all share (the gate
//! under `/v1`, bodies, overload) are added here, once. The description of an answer that is an
//! error lists its codes.

use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    Components, Content, Info, OpenApi, Ref, RefOr, Response, ResponseBuilder, Schema,
    SecurityRequirement,
};

use super::error::Code;

/// Completes the description that the routes gave.
pub fn complete(mut document: OpenApi) -> OpenApi {
    document.info = Info::new("issuebox", env!("CARGO_PKG_VERSION"));
    document.info.description = Some(head());
    let components = document.components.get_or_insert_default();
    components
        .add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    list_codes(components);
    for (path, item) in &mut document.paths.paths {
        let is_v1 = path.starts_with("/v1/");
        for (is_change, operation) in operations(item) {
            if is_v1 {
                operation.security =
                    Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
                share(operation, &[Code::Unauthorized, Code::TooManyAttempts]);
            }
            if is_v1 && is_change {
                share(operation, &[Code::Forbidden]);
            }
            share(operation, &[Code::UnsupportedMediaType]);
            if operation.request_body.is_some() {
                share(operation, &[Code::RequestTimeout, Code::BodyTooLarge, Code::Overloaded]);
            }
        }
    }
    document
}

/// Says in the schema of errors which codes there are.
fn list_codes(components: &mut Components) {
    if let Some(RefOr::T(Schema::Object(error))) = components.schemas.get_mut("Error")
        && let Some(RefOr::T(Schema::Object(code))) = error.properties.get_mut("code")
    {
        code.enum_values = Some(Code::ALL.iter().map(|code| code.as_str().into()).collect());
    }
}

fn head() -> String {
    let codes: Vec<String> = Code::ALL
        .iter()
        .map(|code| format!("- `{}` ({})", code.as_str(), code.status().as_u16()))
        .collect();
    format!(
        "Exactly one sandbox for every GitHub issue.\n\nEvery failure has a `code` to branch on:\n\n{}",
        codes.join("\n")
    )
}

/// The operations of a path, and whether they change something.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let all = [
        (false, &mut item.get),
        (true, &mut item.post),
        (true, &mut item.put),
        (true, &mut item.delete),
    ];
    all.into_iter().filter_map(|(is_change, there)| Some((is_change, there.as_mut()?)))
}

/// Adds codes to the answers of their statuses.
fn share(operation: &mut Operation, codes: &[Code]) {
    for code in codes {
        let status = code.status().as_str().to_owned();
        let answer = operation.responses.responses.entry(status).or_insert_with(failure);
        let RefOr::T(answer) = answer else { continue };
        let listed = answer.description.split(", ").any(|word| word == code.as_str());
        if answer.description.is_empty() {
            answer.description = code.as_str().to_owned();
        } else if !listed {
            answer.description = format!("{}, {}", answer.description, code.as_str());
        }
    }
}

fn failure() -> RefOr<Response> {
    let content = Content::new(Some(Ref::from_schema_name("Failure")));
    ResponseBuilder::new().content("application/json", content).build().into()
}

#[cfg(test)]
mod tests {
    use super::super::routes;
    use super::*;

    #[test]
    fn every_code_belongs_to_an_answer_and_every_answer_names_known_codes() {
        let mut document = routes::document();
        // These come before or instead of any route.
        let mut seen = vec!["route_not_found", "method_not_allowed"]
            .into_iter()
            .map(str::to_owned)
            .collect::<std::collections::BTreeSet<_>>();
        for (path, item) in &mut document.paths.paths {
            for (_, operation) in operations(item) {
                for (status, answer) in &operation.responses.responses {
                    let RefOr::T(answer) = answer else { panic!("answers are written out") };
                    let is_json_error = answer.content.contains_key("application/json")
                        && (status.starts_with('4') || status.starts_with('5'));
                    for word in answer.description.split(", ").filter(|_| is_json_error) {
                        let code = Code::ALL.iter().find(|code| code.as_str() == word);
                        let code = code.unwrap_or_else(|| panic!("{path} {status}: {word:?}"));
                        assert_eq!(code.status().as_str(), status, "{path}: {word}");
                        seen.insert(word.to_owned());
                    }
                }
            }
        }
        let all = Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
        assert_eq!(seen, all, "codes that no route lists, or that do not exist");
    }

    #[test]
    fn the_document_is_of_version_3_1_and_every_reference_in_it_is_there() {
        let text = routes::document().to_json().expect("it is JSON");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(value["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
        for part in text.split("\"#/components/schemas/").skip(1) {
            let name = part.split('"').next().expect("a name");
            assert!(value["components"]["schemas"][name].is_object(), "{name} is missing");
        }
    }
}
