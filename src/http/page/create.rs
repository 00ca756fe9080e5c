//! Creating a sandbox from a page: the issue, the template, and a name for who works in it.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};

use crate::http::Shared;
use crate::http::api::ensure::EnsureRequest;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::types::Outcome;

use super::error::{self, PageError};
use super::form;
use super::shell::{Frame, PageSection};
use super::text::shown;
use super::visitor::Visitor;
use super::{address, respond, see};

/// What a person entered.
#[derive(Debug, Default)]
struct Entered {
    issue: String,
    template: Option<String>,
    agent_id: Option<String>,
}

impl Entered {
    fn read(form: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            issue: form.text("issue")?.unwrap_or_default(),
            template: form.text("template")?.filter(|name| !name.is_empty()),
            agent_id: form.text("agentId")?,
        })
    }

    /// The request, in which an issue is `owner/name#7`, its address at GitHub, or an id.
    fn request(&self) -> Result<EnsureRequest, ApiError> {
        let issue = self.issue.trim();
        let (template, agent_id) = (self.template.clone(), self.agent_id.clone());
        let request = EnsureRequest { template, agent_id, ..EnsureRequest::default() };
        let numbered = match issue.split_once("://") {
            Some((_, rest)) => {
                rest.split_once('/').and_then(|(_, path)| path.split_once("/issues/"))
            }
            None => issue.split_once('#'),
        };
        if let Some((repository, number)) = numbered {
            // What an address has behind the number says which comment is meant.
            let number = number.split(['#', '?']).next().unwrap_or_default();
            let number = number.parse().ok().filter(|number| *number > 0);
            let number =
                number.ok_or_else(|| ApiError::field("issue", "the issue has no number"))?;
            let repository = Some(repository.to_owned());
            return Ok(EnsureRequest { repository, issue_number: Some(number), ..request });
        }
        if issue.is_empty() || issue.contains('/') {
            let message = "name the issue: owner/name#7, its address, or an id of your own";
            return Err(ApiError::field("issue", message));
        }
        Ok(EnsureRequest { issue_id: Some(issue.to_owned()), ..request })
    }
}

/// Shows the form.
#[get("/create")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let entered = Entered::read(&mut query)?;
    query.finish()?;
    page(&shared, &visitor, &entered, None).await
}

/// Gives the issue its one sandbox, and shows that: with the conversation if an agent works in it.
#[post("/create")]
pub async fn create(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let entered = Entered::read(&mut form)?;
    form.finish()?;
    let caller = &visitor.caller;
    let ask = entered.request().and_then(|request| request.into_ask(None, caller));
    let ensured = match ask {
        Ok(ask) => shared.edge.callers().ensure(&caller.account, ask).await.map_err(Into::into),
        Err(wrong) => Err(wrong),
    };
    let ensured = match ensured {
        Ok(ensured) => ensured,
        Err(refused) => return page(&shared, &visitor, &entered, Some(&refused)).await,
    };
    let sandbox = &ensured.sandbox;
    let templates = shared.edge.engine.templates();
    let template = templates.iter().find(|template| template.name == sandbox.template);
    let has_agent = template.is_some_and(|template| template.workload.agent.is_some());
    let tab = if has_agent { "/conversation" } else { "" };
    let outcome = Some(ensured.outcome.as_str());
    Ok(see(&address(&format!("/sandboxes/{}{tab}", sandbox.id), &[("outcome", outcome)])))
}

/// What came of it, for the page of the sandbox; `None` if a word is no outcome.
pub fn outcome(word: &str) -> Option<&'static str> {
    let outcomes = [
        (Outcome::Created, "This is the issue's new sandbox. It is created now."),
        (Outcome::Existing, "The issue has this sandbox already: it is the one."),
        (Outcome::Resumed, "The issue has this sandbox already. It is started now."),
        (Outcome::Adopted, "The issue has this sandbox already, found at its provider."),
        (
            Outcome::Queued,
            "The sandbox is being stopped or deleted. The request is carried out after that.",
        ),
        (
            Outcome::Failed,
            "The issue has this sandbox already, and it has failed: retry or delete it.",
        ),
        (Outcome::Refused, "Nothing was created or started."),
    ];
    outcomes.into_iter().find(|(outcome, _)| outcome.as_str() == word).map(|(_, words)| words)
}

async fn page(
    shared: &Shared,
    visitor: &Visitor,
    entered: &Entered,
    refused: Option<&ApiError>,
) -> Result<HttpResponse, PageError> {
    let frame = Frame::begin(shared, visitor, PageSection::Sandboxes, "New sandbox").await;
    let templates: Vec<String> =
        shared.edge.engine.templates().iter().map(|one| one.name.to_string()).collect();
    let main = html! {
        p .back { a href="/" { "← Sandboxes" } }
        div .head { h1 { "New sandbox" } }
        form .card .form method="post" action="/create" {
            (frame.token())
            p .lead { "An issue has exactly one sandbox: if it has one already, that is shown, and started if it is stopped." }
            @if let Some(refused) = refused { (why(refused)) }
            label { "Issue"
                input type="text" name="issue" value=(entered.issue) maxlength="300" required autofocus
                    placeholder="owner/name#7" aria-describedby="issue-forms";
            }
            p #issue-forms .soft { "Or its address at GitHub, or an id of your own, such as " code { "test-123" } "." }
            label { "Template" (choice(&templates, entered.template.as_deref())) }
            label { "Agent id" span .soft { " (optional)" }
                input type="text" name="agentId" value=[entered.agent_id.as_deref()] maxlength="200"
                    placeholder="Your name for who works in it";
            }
            button .primary type="submit" { "Create" }
        }
    };
    let answer = refused.map_or_else(HttpResponse::Ok, error::begin);
    Ok(respond(answer, &frame.render(&main)))
}

/// The first choice is to name none.
fn choice(templates: &[String], chosen: Option<&str>) -> Markup {
    html! {
        select name="template" {
            option value="" { "that of the repository, or the default one" }
            @for one in templates {
                option value=(one) selected[Some(one.as_str()) == chosen] { (shown(one)) }
            }
        }
    }
}

fn why(refused: &ApiError) -> Markup {
    html! {
        div .wrong role="alert" {
            p .first-up { bdi { (shown(refused.message())) } }
            @if let Some(advice) = error::advice(refused.code()) { p { (advice) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(issue: &str) -> Result<EnsureRequest, ApiError> {
        Entered { issue: issue.to_owned(), ..Entered::default() }.request()
    }

    #[test]
    fn an_issue_is_named_as_people_name_it() {
        for text in [
            "octo/hello#7",
            " octo/hello#7 ",
            "https://github.com/octo/hello/issues/7",
            "https://github.example/octo/hello/issues/7#issuecomment-1",
        ] {
            let request = request(text).expect(text);
            assert_eq!(request.repository.as_deref(), Some("octo/hello"), "{text}");
            assert_eq!((request.issue_number, request.issue_id), (Some(7), None), "{text}");
        }
        assert_eq!(request("test-123").expect("an id").issue_id.as_deref(), Some("test-123"));
        for text in ["", " ", "octo/hello", "octo/hello#x", "octo/hello#0", "https://github.com/x"]
        {
            assert!(request(text).is_err(), "{text:?}");
        }
    }
}
