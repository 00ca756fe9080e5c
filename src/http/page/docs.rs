//! The API documentation: the served description as a page. It is rendered by the server and needs
//! no script, so the dashboard's policy holds.

use actix_web::{HttpResponse, get, web};
use maud::{Markup, html};
use serde_json::Value;

use crate::http::Shared;
use crate::http::doc::CODES;

use super::shell;

/// The methods of a path, in the order in which they are shown.
const METHODS: [&str; 4] = ["get", "post", "put", "delete"];

/// Shows the API documentation.
#[utoipa::path(
    operation_id = "showDocs", tag = "page",
    responses(
        (status = 200, description = "the page", body = String, content_type = "text/html"),
    )
)]
#[get("/docs")]
pub async fn docs(shared: web::Data<Shared>) -> HttpResponse {
    super::html(&shared.document.page)
}

/// The whole page.
pub fn render(document: &Value) -> Markup {
    let tags = document["tags"].as_array().map_or(&[][..], Vec::as_slice);
    let schemas = document["components"]["schemas"].as_object();
    let main = html! {
        div .head {
            h1 { "HTTP API" }
            p .soft { "Version " (text(&document["info"]["version"])) " · "
                a href="/openapi.json" { "OpenAPI document" } }
        }
        div .stack .docs {
            div .card .stack {
                (prose(text(&document["info"]["description"])))
                p { "Send the admin token with every request below " code { "/v1" } ":" }
                pre tabindex="0" { code { "curl -H \"Authorization: Bearer $ISSUEBOX_TOKEN\" …/v1/sandboxes" } }
                nav .tabs aria-label="Groups" {
                    @for tag in tags { a href={ "#" (text(&tag["name"])) } { (text(&tag["name"])) } }
                    a href="#types" { "types" }
                }
            }
            @for tag in tags { (group(document, tag)) }
            section #types .stack {
                h2 { "Types" }
                @for (name, schema) in schemas.into_iter().flatten() { (schema_card(name, schema)) }
            }
        }
    };
    shell::bare("HTTP API", &main)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The operations of one tag.
fn group(document: &Value, tag: &Value) -> Markup {
    let paths = document["paths"].as_object();
    let operations = paths.into_iter().flatten().flat_map(|(path, item)| {
        METHODS.iter().filter_map(move |method| Some((*method, path, item.get(*method)?)))
    });
    let of_tag = operations.filter(|(_, _, operation)| operation["tags"][0] == tag["name"]);
    html! {
        section #(text(&tag["name"])) .stack {
            h2 .first-up { (text(&tag["name"])) }
            p .soft { (text(&tag["description"])) "." }
            @for (method, path, operation) in of_tag { (operation_card(method, path, operation)) }
        }
    }
}

fn operation_card(method: &str, path: &str, operation: &Value) -> Markup {
    let tone = match method {
        "get" => "good",
        "delete" => "bad",
        _ => "mild",
    };
    html! {
        details .card .operation #(text(&operation["operationId"])) {
            summary {
                span .tag .(tone) { (method.to_uppercase()) } " " span .name { (path) }
                p .soft { (inline(text(&operation["summary"]))) }
            }
            (prose(text(&operation["description"])))
            (parameters(&operation["parameters"]))
            (body(&operation["requestBody"]))
            (responses(&operation["responses"]))
        }
    }
}

/// A table that scrolls sideways if it is wider than the page.
fn table(title: &str, head: [&str; 3], rows: Markup) -> Markup {
    html! {
        h3 { (title) }
        div .scroll tabindex="0" role="region" aria-label=(title) {
            table .table {
                thead { tr { @for name in head { th { (name) } } } }
                tbody { (rows) }
            }
        }
    }
}

fn parameters(parameters: &Value) -> Markup {
    let Some(all) = parameters.as_array() else { return html! {} };
    let rows = html! {
        @for one in all {
            tr {
                td { code { (text(&one["name"])) } " " span .soft { "in " (text(&one["in"])) } }
                td { (kind(&one["schema"])) @if one["required"] == false { span .soft { ", optional" } } }
                td { (prose(text(&one["description"]))) }
            }
        }
    };
    table("Parameters", ["Name", "Type", "Meaning"], rows)
}

fn body(body: &Value) -> Markup {
    html! {
        @if let Some(content) = body["content"].as_object() {
            h3 { "Body" }
            @for (content_type, of) in content {
                p { code { (content_type) } ": " (kind(&of["schema"]))
                    @if body["required"] != true { span .soft { ", optional" } } }
            }
        }
    }
}

fn responses(responses: &Value) -> Markup {
    let rows = html! {
        @for (status, answer) in responses.as_object().into_iter().flatten() {
            tr {
                td { code { (status) } }
                td {
                    @for (content_type, of) in answer["content"].as_object().into_iter().flatten() {
                        p { @if content_type != "application/json" { code { (content_type) } ": " } (kind(&of["schema"])) }
                    }
                }
                td data-codes[answer.get(CODES).is_some()] { (prose(text(&answer["description"]))) }
            }
        }
    };
    table("Answers", ["Status", "Body", "Meaning"], rows)
}

fn schema_card(name: &str, schema: &Value) -> Markup {
    let required = schema["required"].as_array();
    let is_required = |field: &str| required.is_some_and(|all| all.iter().any(|one| one == field));
    html! {
        details .card .operation #{ "type-" (name) } {
            summary { span .name { (name) } }
            (prose(text(&schema["description"])))
            @if let Some(properties) = schema["properties"].as_object() {
                (table("Fields", ["Name", "Type", "Meaning"], html! {
                    @for (field, of) in properties {
                        tr {
                            td { code { (field) } }
                            td { (kind(of)) @if !is_required(field) { span .soft { ", optional" } } }
                            td { (prose(text(&of["description"]))) }
                        }
                    }
                }))
            } @else {
                p { (kind(schema)) }
            }
        }
    }
}

/// What a schema allows, in a few words, with links to named types.
fn kind(schema: &Value) -> Markup {
    if let Some(name) = text(&schema["$ref"]).rsplit_once('/').map(|(_, name)| name) {
        return html! { a href={ "#type-" (name) } { (name) } };
    }
    let choices = ["oneOf", "anyOf", "allOf"].iter().find_map(|of| schema[of].as_array());
    if let Some(choices) = choices {
        return html! {
            @for (n, one) in choices.iter().enumerate() { @if n > 0 { " or " } (kind(one)) }
        };
    }
    if let Some(words) = schema["enum"].as_array() {
        return html! {
            @for (n, word) in words.iter().enumerate() { @if n > 0 { ", " } code { (text(word)) } }
        };
    }
    match &schema["type"] {
        Value::Array(types) => html! {
            @for (n, one) in types.iter().enumerate() {
                @if n > 0 { " or " } (of_type(text(one), schema))
            }
        },
        one => of_type(text(one), schema),
    }
}

fn of_type(of: &str, schema: &Value) -> Markup {
    html! {
        @match of {
            "array" => { "list of " (kind(&schema["items"])) }
            "object" if schema["additionalProperties"].is_object() => {
                "map to " (kind(&schema["additionalProperties"]))
            }
            "string" => {
                (match text(&schema["format"]) {
                    "date-time" => "time",
                    "binary" => "bytes",
                    _ => "string",
                })
            }
            "" => "any value",
            other => (other),
        }
    }
}

/// Paragraphs and lists, as they are written in descriptions.
fn prose(text: &str) -> Markup {
    html! {
        @for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
            @if paragraph.starts_with("- ") {
                ul .plain { @for item in paragraph.split("\n- ") { li { (inline(item.trim_start_matches("- "))) } } }
            } @else {
                p { (inline(paragraph)) }
            }
        }
    }
}

/// Text whose parts between backticks are code.
fn inline(text: &str) -> Markup {
    html! {
        @for (n, part) in text.split('`').enumerate() {
            @if n % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::routes;

    #[test]
    fn every_operation_and_type_is_on_the_page_and_every_link_leads_somewhere() {
        let document = serde_json::to_value(routes::document()).expect("it is JSON");
        let page = render(&document).0;
        let paths = document["paths"].as_object().expect("paths");
        for operation in paths.values().flat_map(|item| item.as_object().expect("methods").values())
        {
            let id = format!("id=\"{}\"", text(&operation["operationId"]));
            assert_eq!(page.matches(&id).count(), 1, "{id}");
        }
        for link in page.split("href=\"#").skip(1) {
            let id = link.split('"').next().expect("an id");
            assert!(page.contains(&format!("id=\"{id}\"")), "{id} is nowhere");
        }
        assert!(!page.contains("<script") && !page.contains("any value"), "{page}");
    }

    #[test]
    fn descriptions_are_escaped_and_their_lists_and_code_are_shown_as_such() {
        let html = prose("One `a<b`.\n\n- `x`: yes\n- no").0;
        assert_eq!(
            html,
            "<p>One <code>a&lt;b</code>.</p><ul class=\"plain\"><li><code>x</code>: yes</li><li>no</li></ul>"
        );
    }
}
