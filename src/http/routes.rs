//! The table of routes.
//!
//! Each handler has its own description, and one list registers handlers and descriptions, so the served
//! document lists exactly the existing routes. The answers to methods that a route does not have
//! come from the document, too.

use actix_web::http::header::{self, HeaderValue};
use actix_web::{App, web};
use bytes::Bytes;
use maud::Markup;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::PathItem;
use utoipa_actix_web::AppExt;
use utoipa_actix_web::service_config::ServiceConfig;

use super::api::{
    accounts, checkouts, commands, configuration, conversations, deliveries, drift, ensure, events,
    exec, files, github, holds, issues, limits, login, logs, meta, ports, publish, runs, sandboxes,
    syncs, system, templates, terminal, tokens, usage,
};
use super::error::{ApiError, Code};
use super::{doc, health, page, webhooks};

/// Registers all routes, the most frequent first: actix-web tries them in order.
macro_rules! register {
    ($app:expr) => {
        $app.service(webhooks::github)
            .service(issues::sandbox)
            .service(ensure::ensure_issue)
            .service(ensure::ensure)
            .service(sandboxes::list)
            .service(sandboxes::get)
            .service(commands::stop)
            .service(commands::start)
            .service(commands::retry)
            .service(commands::delete)
            .service(publish::publish)
            .service(issues::numbered_sandbox)
            .service(issues::timeline)
            .service(issues::numbered_timeline)
            .service(exec::exec)
            .service(exec::attached_exec)
            .service(terminal::terminal)
            .service(logs::logs)
            .service(ports::get)
            .service(ports::open)
            .service(ports::list)
            .service(limits::limits)
            .service(checkouts::checkout)
            .service(files::list)
            .service(files::read)
            .service(files::write)
            .service(files::delete)
            .service(files::changes::make_directory)
            .service(files::changes::relocate)
            .service(files::changes::set_mode)
            .service(files::archive::pack)
            .service(files::archive::unpack)
            .service(syncs::sync)
            .service(syncs::versions)
            .service(events::changes)
            .service(deliveries::list)
            .service(holds::list)
            .service(holds::hold_server)
            .service(holds::release_server)
            .service(holds::hold_account)
            .service(holds::release_account)
            .service(holds::hold_repository)
            .service(holds::release_repository)
            .service(holds::hold_issue)
            .service(holds::release_issue)
            .service(login::make)
            .service(system::system)
            .service(github::github)
            .service(github::retry)
            .service(drift::list)
            .service(drift::adopt)
            .service(drift::remove)
            .service(health::healthz)
            .service(health::readyz)
            .service(health::metrics)
            .service(health::openapi)
            .service(page::docs::docs)
            .service(page::home)
            .service(page::login_page)
            .service(page::login)
            .service(page::logout)
            .service(page::asset)
            .service(conversations::say)
            .service(conversations::say_in_issue)
            .service(conversations::of_sandbox)
            .service(conversations::of_issue)
            .service(conversations::events_of_sandbox)
            .service(conversations::events_of_issue)
            .service(runs::list)
            .service(runs::cancel)
            .service(runs::retry)
            .service(runs::answer_question)
            .service(usage::report)
            .service(tokens::create)
            .service(tokens::list)
            .service(tokens::remove)
            .service(accounts::list)
            .service(accounts::put)
            .service(templates::list)
            .service(configuration::configuration)
            .service(meta::set)
    };
}

/// All routes.
pub fn table(app: &mut web::ServiceConfig) {
    register!(app);
}

/// All routes with their descriptions.
fn described(app: &mut ServiceConfig<'_>) {
    register!(app);
}

/// The description of every route in [`table`].
pub fn document() -> OpenApi {
    let (_, document) = App::new().into_utoipa_app().configure(described).split_for_parts();
    doc::complete(document)
}

/// What the server keeps of the description of its routes.
pub struct ServedDocument {
    /// The OpenAPI document, as JSON.
    pub json: Bytes,
    /// The page that shows it.
    pub page: Markup,
    /// Each path with the methods that it has, as `Allow` has them.
    allowed: Vec<(String, HeaderValue)>,
}

impl ServedDocument {
    /// Describes every route. A thread of its own does, because the allocator keeps what a thread has used
    /// for as long as the thread lives: about 10 MB here.
    pub fn build() -> Self {
        let builder = std::thread::spawn(|| Self::of(&document()));
        builder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn of(document: &OpenApi) -> Self {
        let text_keys = "the description has text keys only";
        let value = serde_json::to_value(document).expect(text_keys);
        let paths = document.paths.paths.iter();
        Self {
            json: Bytes::from(document.to_json().expect(text_keys)),
            page: page::docs::render(&value),
            allowed: paths.map(|(path, item)| (path.clone(), allowed(item))).collect(),
        }
    }

    /// Answers 405 to methods that a path does not have. To be registered after [`table`].
    pub fn other_methods(&self, app: &mut web::ServiceConfig) {
        for (path, allow) in &self.allowed {
            let allow = allow.clone();
            app.service(web::resource(path.as_str()).to(move || {
                let allow = allow.clone();
                async move {
                    let hint = format!("use one of: {}", allow.to_str().unwrap_or_default());
                    let error = ApiError::new(
                        Code::MethodNotAllowed,
                        "this route does not accept the method",
                    );
                    Err::<String, _>(error.hint(hint).header(header::ALLOW, allow))
                }
            }));
        }
    }
}

/// The answer of all other paths.
///
/// # Errors
/// Always 404.
pub async fn unknown() -> Result<String, ApiError> {
    Err(unknown_route())
}

/// The same of a route that this server has no use for.
pub fn unknown_route() -> ApiError {
    ApiError::new(Code::RouteNotFound, "unknown route")
        .hint("see /docs or GET /openapi.json for all routes")
}

fn allowed(item: &PathItem) -> HeaderValue {
    let mut methods = Vec::new();
    if item.get.is_some() {
        methods.extend(["GET", "HEAD"]);
    }
    let others = [("POST", &item.post), ("PUT", &item.put), ("DELETE", &item.delete)];
    methods.extend(others.iter().filter(|(_, there)| there.is_some()).map(|(name, _)| *name));
    HeaderValue::from_str(&methods.join(", ")).expect("method names are header text")
}

/// Whether a path belongs to a server in a sandbox.
pub fn is_below_port(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    parts.next() == Some("v1")
        && parts.next() == Some("sandboxes")
        && parts.nth(1) == Some("ports")
        && parts.nth(1).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_allows_the_methods_of_its_description() {
        let document = document();
        let allow = |path: &str| allowed(&document.paths.paths[path]);
        assert_eq!(allow("/v1/issues/{issueId}/sandbox"), "GET, HEAD, PUT");
        assert_eq!(allow("/v1/sandboxes/{id}"), "GET, HEAD, DELETE");
        assert_eq!(allow("/webhooks/github"), "POST");
    }
}
