//! Accounts: what belongs to each, a form to create or change one, and the way into it.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};

use super::{AccessTab, ROWS_MAX, foot, notice, tabs};
use crate::access::KnownAccount;
use crate::http::Shared;
use crate::http::api::ListedPage;
use crate::http::api::accounts::{AccountRequest, put_for};
use crate::http::page::error::PageError;
use crate::http::page::shell::{Frame, PageSection};
use crate::http::page::text::shown;
use crate::http::page::visitor::AdminVisitor;
use crate::http::page::{address, form, html as answer, see};
use crate::http::query::Query;
use crate::store::PageAsk;
use crate::types::{AccountName, AccountRules};

/// Shows the accounts, by name.
#[get("/accounts")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let ask = PageAsk { limit: ROWS_MAX, cursor: query.text("cursor")? };
    let done = query.text("done")?.is_some();
    query.finish()?;
    let frame = Frame::begin(&shared, &visitor, PageSection::Access, "Accounts").await;
    let accounts = shared.edge.access.known_accounts();
    let listed = ListedPage::of_ask(&accounts, &ask)?;
    let next = listed.next_cursor.as_deref();
    let next = next.map(|next| address("/accounts", &[("cursor", Some(next))]));
    let current = &visitor.caller.account;
    Ok(answer(&frame.render(&html! {
        div .head {
            h1 { "Accounts" }
            p .soft { "A rule decides about new issues; an issue stays in the account that it has." }
        }
        (tabs(AccessTab::Accounts))
        div .stack {
            section #live data-live aria-label="Accounts" {
                (notice(done.then_some("The account is set.")))
                ul .rows role="list" {
                    @for account in listed.items { (row(account, current, &frame.token())) }
                }
                (foot("accounts", listed.items.len(), listed.total, ask.cursor.as_ref().map(|_| "/accounts"), next.as_deref()))
            }
            form .card .form method="post" action="/accounts" {
                (frame.token())
                h2 { "Create an account" }
                p .lead { "Sandboxes, deliveries, conversations and tokens of one account are unknown to all others." }
                label { "Name" input type="text" name="name" maxlength="64" required; }
                (rule_fields(&AccountRules::default()))
                button .primary type="submit" { "Create" }
            }
        }
    })))
}

/// Creates an account, or replaces its rules.
#[post("/accounts")]
pub async fn put(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    let mut form = form::read_change(&shared, &request, &visitor, payload).await?;
    let name = form.text("name")?.unwrap_or_default();
    let rules = AccountRequest::read_form(&mut form)?;
    form.finish()?;
    put_for(&shared, &visitor.admin, name.trim(), rules).await?;
    Ok(see("/accounts?done=set"))
}

fn row(account: &KnownAccount, current: &AccountName, form_token: &Markup) -> Markup {
    let KnownAccount { name, rules, is_configured } = account;
    html! {
        li .row .with-action .running[!rules.disabled] data-key={ "account-" (name) } {
            span .mark aria-hidden="true" {}
            div .what {
                p .title { (name)
                    @if name == current { " " span .tag .good { "chosen" } }
                    @if rules.disabled { " " span .tag .bad { "disabled" } }
                }
                p .why { bdi { (shown(&words(name, rules))) } }
                @if *is_configured { p .of { span { "in the configuration, which alone changes it" } } }
            }
            div .actions-of {
                @if name != current {
                    form method="post" action="/account" {
                        (form_token)
                        input type="hidden" name="account" value=(name);
                        button type="submit" { "Switch" span .hidden { " to " (name) } }
                    }
                }
                @if !is_configured {
                    details .action {
                        summary .button { "Change…" }
                        form .card method="post" action="/accounts" {
                            (form_token)
                            p { strong { "Change " (name) } }
                            input type="hidden" name="name" value=(name);
                            (rule_fields(rules))
                            button .primary type="submit" { "Set " (name) }
                        }
                    }
                }
            }
        }
    }
}

/// The rules in a sentence.
fn words(name: &AccountName, rules: &AccountRules) -> String {
    let AccountRules { installations, owners, repositories, disabled: _ } = rules;
    let list = |word: &str, all: Vec<String>| {
        (!all.is_empty()).then(|| format!("{word} {}", all.join(", ")))
    };
    let parts = [
        list("installations", installations.iter().map(ToString::to_string).collect()),
        list("owners", owners.clone()),
        list("repositories", repositories.iter().map(ToString::to_string).collect()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match (parts.is_empty(), *name == AccountName::default_account()) {
        (false, _) => parts.join("; "),
        (true, true) => "everything that no rule gives to another account".to_owned(),
        (true, false) => "no rules: it has what its tokens create".to_owned(),
    }
}

fn rule_fields(rules: &AccountRules) -> Markup {
    let field = |label: &str, name: &str, example: &str, value: Vec<String>| {
        html! {
            label { (label)
                input type="text" name=(name) maxlength="4000" value=(value.join(", ")) placeholder=(example);
            }
        }
    };
    let installations = rules.installations.iter().map(ToString::to_string).collect();
    let repositories = rules.repositories.iter().map(ToString::to_string).collect();
    html! {
        div .grid {
            (field("Owners", "owners", "acme, acme-labs", rules.owners.clone()))
            (field("Repositories", "repositories", "octo/acme-*", repositories))
            (field("Installations", "installations", "123456", installations))
            label .inline { input type="checkbox" name="disabled" value="true" checked[rules.disabled];
                " Disabled: nothing starts, its sandboxes are stopped, its tokens are refused" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_said_in_a_sentence() {
        let default = AccountName::default_account();
        let acme = AccountName::trusted("acme");
        let none = AccountRules::default();
        assert!(words(&default, &none).starts_with("everything that no rule"));
        assert!(words(&acme, &none).starts_with("no rules"));
        let (installations, owners) = (vec![1, 2], vec!["acme".to_owned()]);
        let rules = AccountRules { installations, owners, ..none };
        assert_eq!(words(&acme, &rules), "installations 1, 2; owners acme");
    }
}
