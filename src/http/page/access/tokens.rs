//! Tokens of the API: those of the chosen account or of all, and a form for another one, which is shown
//! once.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};

use super::{AccessTab, ROWS_MAX, foot, notice, tabs};
use crate::http::Shared;
use crate::http::api::ListedPage;
use crate::http::api::tokens::{TokenRequest, create_for, delete_for};
use crate::http::page::error::PageError;
use crate::http::page::shell::{Frame, PageSection};
use crate::http::page::text::shown;
use crate::http::page::time::{ago, since};
use crate::http::page::visitor::AdminVisitor;
use crate::http::page::{address, form, html as answer, see};
use crate::http::query::Query;
use crate::store::PageAsk;
use crate::types::{AccountName, ApiToken, Role, Secret, Timestamp};

/// How long a new token may be valid, in seconds, with words; the first is the default.
const LIFETIMES: [(&str, &str); 5] = [
    ("7776000", "90 days"),
    ("604800", "7 days"),
    ("2592000", "30 days"),
    ("31536000", "a year"),
    ("", "until it is deleted"),
];

/// What the page shows.
#[derive(Default)]
struct TokensView {
    /// Those of every account, not of the chosen one alone.
    of_all: bool,
    cursor: Option<String>,
    was_deleted: bool,
    /// The one that was just created, and the token itself.
    created: Option<(ApiToken, Secret)>,
}

/// Shows the tokens, the newest first.
#[get("/tokens")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let view = TokensView {
        of_all: query.flag("all")?,
        cursor: query.text("cursor")?,
        was_deleted: query.text("done")?.is_some(),
        created: None,
    };
    query.finish()?;
    page(&shared, &visitor, view).await
}

/// Creates a token, and shows it this once.
#[post("/tokens")]
pub async fn create(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let new = TokenRequest::read_form(&mut form)?;
    form.finish()?;
    let created = create_for(&shared, &visitor.admin, new).await?;
    page(&shared, &visitor, TokensView { created: Some(created), ..TokensView::default() }).await
}

/// Deletes a token and shows the others.
#[post("/tokens/{id}/delete")]
pub async fn delete(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    id: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let of_all = form.flag("all")?;
    form.finish()?;
    delete_for(&shared, &visitor.admin, &id).await?;
    let all = of_all.then_some("true");
    Ok(see(&address("/tokens", &[("all", all), ("done", Some("delete"))])))
}

async fn page(
    shared: &Shared,
    visitor: &AdminVisitor,
    view: TokensView,
) -> Result<HttpResponse, PageError> {
    let frame = Frame::begin(shared, visitor, PageSection::Access, "Tokens").await;
    let account = &visitor.caller.account;
    let mut tokens = shared.edge.access.tokens();
    tokens.retain(|token| view.of_all || token.account == *account);
    tokens.reverse();
    let ask = PageAsk { limit: ROWS_MAX, cursor: view.cursor.clone() };
    let listed = ListedPage::of_ask(&tokens, &ask)?;
    let all = view.of_all.then_some("true");
    let first = view.cursor.is_some().then(|| address("/tokens", &[("all", all)]));
    let next = listed.next_cursor.as_deref();
    let next = next.map(|next| address("/tokens", &[("all", all), ("cursor", Some(next))]));
    let now = shared.edge.clock.now();
    Ok(answer(&frame.render(&html! {
        div .head {
            h1 { "Tokens" }
            p .soft { "The admin token of the configuration is none of them." }
        }
        (tabs(AccessTab::Tokens))
        @if let Some((token, secret)) = &view.created { (shown_once(token, secret)) }
        div .stack {
            section #live data-live aria-label="Tokens" {
                (notice(view.was_deleted.then_some("The token is deleted: it is refused from now on.")))
                p .note .above data-key="of" {
                    @if view.of_all { "Of all accounts. " a href="/tokens" { "Only of " (account) } }
                    @else { "Of the account " strong { (account) } ". " a href="/tokens?all=true" { "Of all accounts" } }
                }
                @if listed.items.is_empty() {
                    div .empty .card data-key="none" { h2 { "No tokens" } p { "Programs and people who are no admins need one each." } }
                } @else {
                    ul .rows role="list" {
                        @for token in listed.items { (row(token, view.of_all, &frame.token(), now)) }
                    }
                }
                (foot("tokens", listed.items.len(), listed.total, first.as_deref(), next.as_deref()))
            }
            (create_form(account, &frame.token()))
        }
    })))
}

/// The new token, which nothing shows again.
fn shown_once(token: &ApiToken, secret: &Secret) -> Markup {
    html! {
        div .notice .good role="status" {
            p { strong { "The token “" bdi { (shown(&token.name)) } "” is created." }
                " Copy it now: it is not shown again." }
            dl .paste {
                div {
                    dt { "Token" }
                    dd { code #new-token { (secret.expose()) } }
                    dd { button .quiet type="button" data-copy="new-token" { "Copy" } }
                }
            }
            p .soft { "It is sent as " code { "Authorization: Bearer" } ", or used to log in here: as "
                (token.role.as_str()) " of the account " (token.account) "." }
        }
    }
}

fn row(token: &ApiToken, of_all: bool, form_token: &Markup, now: Timestamp) -> Markup {
    let is_valid = token.is_valid(now);
    html! {
        li .row .with-action .running[is_valid] data-key={ "token-" (token.id) } {
            span .mark aria-hidden="true" {}
            div .what {
                p .title { bdi { (shown(&token.name)) } }
                p .why { (token.role.as_str()) " of " (token.account) ", " (validity(token, now)) }
                p .of {
                    span .name { (shown(token.id.as_str())) }
                    span { @match token.last_used_at {
                        None => "never used",
                        Some(at) => { "last used " (since(at, now)) " ago" }
                    } }
                }
            }
            details .action .danger {
                summary .button { "Delete…" }
                form .card method="post" action={ "/tokens/" (token.id) "/delete" } {
                    (form_token)
                    @if of_all { input type="hidden" name="all" value="true"; }
                    p { strong { "Delete “" bdi { (shown(&token.name)) } "”?" } }
                    p .lead { "It is refused from then on. Sessions, streams and terminals that began with it end at once." }
                    button .primary .danger type="submit" { "Delete it" }
                }
            }
            (since(token.created_at, now))
        }
    }
}

fn validity(token: &ApiToken, now: Timestamp) -> Markup {
    html! {
        @match token.expires_at {
            None => "valid until it is deleted",
            Some(at) if at > now => { "expires in " (ago(at.since(now))) }
            Some(_) => "expired",
        }
    }
}

fn create_form(account: &AccountName, form_token: &Markup) -> Markup {
    html! {
        form .card method="post" action="/tokens" {
            (form_token)
            h2 { "Create a token" }
            p .lead { "For the account " strong { (account) } ". Viewers read; operators also work with sandboxes; admins manage the server and every account." }
            div .fields {
                label .wide { "Name" input type="text" name="name" maxlength="200" required placeholder="Who or what uses it"; }
                label { "Role"
                    select name="role" {
                        @for role in Role::ALL {
                            option value=(role.as_str()) selected[role == Role::Operator] { (role.as_str()) }
                        }
                    }
                }
                label { "Valid"
                    select name="expiresInSeconds" {
                        @for (seconds, words) in LIFETIMES { option value=(seconds) { (words) } }
                    }
                }
                button .primary type="submit" { "Create" }
            }
        }
    }
}
