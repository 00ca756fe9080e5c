//! First steps: the button that makes a GitHub App, the values to paste for a webhook alone, and a checklist
//! that follows the deliveries until there is a sandbox. A sample delivery takes the same path as a real one.

pub mod app;
mod app_card;
mod sample;

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use maud::{Markup, html};

use crate::github::policy::{TriggerPolicies, TriggerPolicy};
use crate::http::Shared;
use crate::http::api::deliveries::{DeliveryAsk, DeliveryBody, Status, find};
use crate::http::auth::base_url;
use crate::http::caller::Caller;
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;
use crate::store::{DeliveryFilter, PageAsk, SandboxFilter, Store};
use crate::types::{Timestamp, inert};

use super::deliveries;
use super::error::PageError;
use super::form;
use super::shell::{Frame, PageSection};
use super::visitor::{AdminVisitor, Visitor};
use app_card::AppCard;

/// Deliveries that are shown below the checklist.
const LATEST_MAX: usize = 5;
/// Seconds between updates of the page: a ping causes no event.
pub const POLL_SECS: u32 = 2;

/// The progress of the first steps.
pub struct Progress {
    /// The server's public address.
    base_url: String,
    /// Whether there is a webhook secret.
    has_secret: bool,
    /// A delivery with a valid signature arrived that this server did not send itself.
    reached: bool,
    /// Such a delivery had an effect.
    triggered: bool,
    /// The sample delivery had an effect.
    sampled: bool,
    /// There is or was a sandbox.
    has_sandbox: bool,
    /// Why the newest delivery was refused, if it was.
    refused: Option<String>,
    /// The configured triggers, in a sentence.
    trigger: String,
    /// How far the GitHub App is.
    app: AppCard,
    latest: Vec<DeliveryBody>,
    now: Timestamp,
}

impl Progress {
    /// Reads the progress from the store.
    ///
    /// # Errors
    /// 503 if the store cannot be read.
    pub async fn look(
        shared: &Shared,
        request: &HttpRequest,
        caller: &Caller,
    ) -> Result<Self, ApiError> {
        let latest = DeliveryAsk {
            event: None,
            status: None,
            issue: None,
            page: PageAsk { limit: LATEST_MAX, cursor: None },
        };
        let any = async |sample: bool, applied: Option<bool>| -> Result<bool, ApiError> {
            let filter = DeliveryFilter { sample: Some(sample), applied, ..Default::default() };
            let one = PageAsk { limit: 1, cursor: None };
            let list = async move |store: Arc<dyn Store>| store.deliveries(&filter, &one).await;
            Ok(shared.read_list(list).await?.total > 0)
        };
        let everything = SandboxFilter { include_deleted: true, ..SandboxFilter::default() };
        let one = PageAsk { limit: 1, cursor: None };
        let of = caller.account.clone();
        let any_sandbox =
            async move |store: Arc<dyn Store>| store.sandboxes(&of, &everything, &one).await;
        let latest = find(shared, caller, latest).await?.data;
        let newest = latest.first();
        let is_refused = |one: &&DeliveryBody| {
            [Status::BadlySigned, Status::Refused].iter().any(|bad| bad.as_str() == one.status)
        };
        Ok(Self {
            base_url: base_url(shared, request),
            has_secret: !shared.edge.webhook_secrets.in_force().is_empty(),
            reached: any(false, None).await?,
            triggered: any(false, Some(true)).await?,
            sampled: any(true, Some(true)).await?,
            has_sandbox: shared.read_list(any_sandbox).await?.total > 0,
            refused: newest.filter(is_refused).map(|one| one.reason.clone()),
            trigger: trigger(shared.edge.intake.triggers()),
            app: AppCard::look(shared).await,
            latest,
            now: shared.edge.clock.now(),
        })
    }

    /// Whether there ever was a sandbox.
    pub fn is_over(&self) -> bool {
        self.has_sandbox
    }
}

/// Shows the checklist on its own page.
#[get("/connect")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    // GitHub may add these where it leads back to. Only its API says what is installed.
    let _unused = (query.bytes("installation_id"), query.bytes("setup_action"));
    query.finish()?;
    page(&shared, &visitor, &request, None).await
}

/// Shows the checklist with the webhook secret.
#[post("/connect/secret")]
pub async fn reveal(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    form::read_change(&shared, &request, &visitor, payload).await?.finish()?;
    let request_id = &visitor.caller.request_id;
    tracing::info!(request.id = %request_id, "webhook secret shown on the page");
    // The newest is first; the others are being replaced.
    let secret =
        shared.edge.webhook_secrets.in_force().first().map(|secret| secret.expose().to_owned());
    page(&shared, &visitor, &request, secret).await
}

/// Sends a signed sample delivery to this server.
#[post("/connect/sample")]
pub async fn send_sample(
    shared: web::Data<Shared>,
    visitor: AdminVisitor,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    form::read_change(&shared, &request, &visitor, payload).await?.finish()?;
    sample::send(&shared, shared.listens_on).await.map_err(|why| {
        tracing::warn!(error = %why, "failed to send the sample delivery");
        ApiError::new(
            Code::Overloaded,
            format!("cannot send the sample delivery to this server: {why}"),
        )
    })?;
    Ok(super::see("/connect"))
}

async fn page(
    shared: &Shared,
    visitor: &Visitor,
    request: &HttpRequest,
    secret: Option<String>,
) -> Result<HttpResponse, PageError> {
    let frame = Frame::begin(shared, visitor, PageSection::Deliveries, "Connect GitHub").await;
    // An update would hide the secret.
    let frame = if secret.is_none() { frame.polled(POLL_SECS) } else { frame.still() };
    let progress = Progress::look(shared, request, &visitor.caller).await?;
    Ok(super::html(&frame.render(&html! {
        div .head { h1 { "Connect GitHub" } }
        section #live data-live[secret.is_none()] aria-label="First steps" {
            (checklist(&progress, &frame.token(), secret.as_deref()))
        }
    })))
}

/// The checklist: completed steps are ticked, the next one is marked.
pub fn checklist(progress: &Progress, token: &Markup, secret: Option<&str>) -> Markup {
    let Progress { has_secret, reached, triggered, has_sandbox, sampled, .. } = *progress;
    let done = [has_secret, reached, triggered, has_sandbox, sampled];
    // The sample is optional.
    let next = done[..4].iter().position(|done| !done);
    let class = |at: usize| match (done[at], next == Some(at)) {
        (true, _) => "done",
        (false, true) => "next",
        (false, false) => "",
    };
    let tick = |at: usize| {
        html! {
            span .tick aria-hidden="true" { @if done[at] { "✓" } }
            span .hidden { @if done[at] { "Done: " } @else { "To do: " } }
        }
    };
    html! {
        (progress.app.render(token))
        div .card .empty data-key="checklist" {
            (headline(has_sandbox, reached))
            ol .steps {
                li .(class(0)) {
                    (tick(0))
                    h3 { "The server has a webhook secret" }
                    p { @if done[0] { "Only deliveries that are signed with it are accepted." }
                        @else { "Set ISSUEBOX_WEBHOOK_SECRET, or unset the empty one: the server then creates a secret." } }
                }
                li .(class(1)) {
                    (tick(1))
                    h3 { "GitHub reaches the server" }
                    (values(progress, token, secret))
                    @if let Some(why) = progress.refused.as_ref().filter(|_| !reached) {
                        p .notice .bad { "A delivery was refused: " bdi { (inert(why)) } "." }
                    }
                }
                li .(class(2)) {
                    (tick(2))
                    h3 { "An issue triggers" }
                    p { (inert(&progress.trigger)) }
                }
                li .(class(3)) {
                    (tick(3))
                    h3 { "The first sandbox" }
                    p { "It appears here when it is recorded. You can also create one by the API:" }
                    pre tabindex="0" { code {
                        "curl -X PUT -H \"Authorization: Bearer $ISSUEBOX_TOKEN\" \\\n"
                        "  " (inert(&progress.base_url)) "/v1/issues/test-123/sandbox"
                    } }
                }
                li .(class(4)) {
                    (tick(4))
                    h3 { "Without GitHub: a sample delivery" }
                    form method="post" action="/connect/sample" {
                        (token)
                        p { button type="submit" { "Send a sample delivery" }
                            " The server sends itself a signed ping and a signed trigger for the sample issue "
                            code { (sample::REPOSITORY) "#" (sample::NUMBER) } ", as GitHub would." }
                    }
                }
            }
        }
        @if !progress.latest.is_empty() {
            h2 .latest { "Latest deliveries" }
            ul .rows role="list" {
                @for one in &progress.latest { (deliveries::row(one, progress.now)) }
            }
        }
    }
}

/// How far it is, above the steps.
fn headline(has_sandbox: bool, reached: bool) -> Markup {
    html! {
        @if has_sandbox && !reached {
            h2 { "Not connected to GitHub" }
            p { "There is a sandbox, but no delivery of GitHub has arrived yet." }
        } @else if has_sandbox {
            h2 { "Connected" }
            p { "Every issue with a trigger gets exactly one sandbox. " a href="/" { "See the sandboxes" } "." }
        } @else {
            h2 { "No sandboxes yet" }
            p { "Each GitHub issue with a trigger gets exactly one. Four steps to the first:" }
        }
    }
}

/// The values for GitHub's form, in its order.
fn values(progress: &Progress, token: &Markup, secret: Option<&str>) -> Markup {
    let url = format!("{}/webhooks/github", progress.base_url);
    html! {
        p {
            @if !progress.app.is_silent() { "An App brings its webhook with it. For a webhook alone: " }
            "In the repository: Settings, Webhooks, Add webhook. Paste:"
        }
        dl .paste {
            div { dt { "Payload URL" } dd { code #paste-url { (inert(&url)) } } dd { (copy("paste-url")) } }
            div { dt { "Content type" } dd { code #paste-type { "application/json" } } dd { (copy("paste-type")) } }
            div {
                dt { "Secret" }
                @match secret {
                    Some(secret) => { dd { code #paste-secret { (secret) } } dd { (copy("paste-secret")) } }
                    None => {
                        dd .soft { "stored in the server" }
                        dd { form method="post" action="/connect/secret" {
                            (token) button .quiet type="submit" { "Show" span .hidden { " the secret" } }
                        } }
                    }
                }
            }
            div { dt { "Events" } dd { "Issues, Issue comments, Labels, Repositories, Pull request reviews; Check runs for github.on_ci_failure" } }
        }
        @if is_of_this_machine(&url) {
            p .soft { "GitHub cannot reach this local address. Forward it with a tunnel, or set "
                code { "public_url" } " to a public address." }
        }
    }
}

/// Whether an address leads to this machine alone.
fn is_of_this_machine(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|local| host.starts_with(local))
}

fn copy(of: &str) -> Markup {
    html! { button .quiet type="button" data-copy=(of) aria-label={ "Copy " (of.trim_start_matches("paste-")) } { "Copy" } }
}

/// The configured triggers, in a sentence.
fn trigger(policies: &TriggerPolicies) -> String {
    let usual = policies.usual();
    let usually = trigger_by(usual);
    match policies.all().all(|policy| policy == usual) {
        true => usually,
        false => format!("{usually} Some repositories have others, as [repositories] says."),
    }
}

fn trigger_by(policy: &TriggerPolicy) -> String {
    let mut ways = Vec::new();
    if !policy.label.is_empty() {
        ways.push(format!("put the label “{}” on an issue", policy.label));
    }
    if !policy.command.is_empty() {
        ways.push(format!("write a comment that begins with “{}”", policy.command));
    }
    if policy.opened {
        ways.push("open an issue".into());
    }
    if policy.assignee != 0 {
        ways.push("assign the bot".into());
    }
    match ways.split_last() {
        None => "No trigger is configured: enable one under [triggers].".into(),
        Some((last, [])) => format!("To trigger, {last}."),
        Some((last, others)) => format!("To trigger, {} or {last}.", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(reached: bool, triggered: bool, has_sandbox: bool) -> Progress {
        Progress {
            base_url: "https://box.example".into(),
            has_secret: true,
            reached,
            triggered,
            sampled: false,
            has_sandbox,
            refused: Some("the signature does not match".into()),
            trigger: "To trigger, open an issue.".into(),
            app: AppCard::Silent,
            latest: Vec::new(),
            now: Timestamp::from_unix_ms(0),
        }
    }

    #[test]
    fn the_checklist_ticks_what_is_done_and_marks_what_is_next() {
        let ticks = |progress: &Progress| {
            let page = checklist(progress, &html! {}, None).0;
            (page.matches("li class=\"done\"").count(), page.matches("li class=\"next\"").count())
        };
        assert_eq!(ticks(&progress(false, false, false)), (1, 1));
        assert_eq!(ticks(&progress(true, false, false)), (2, 1));
        assert_eq!(ticks(&progress(true, true, true)), (4, 0));
        let by_sample = Progress { sampled: true, ..progress(false, false, true) };
        assert_eq!(ticks(&by_sample), (3, 1), "secret, sandbox and the sample itself");
        assert!(checklist(&by_sample, &html! {}, None).0.contains("Not connected to GitHub"));
    }

    #[test]
    fn what_is_to_be_pasted_is_exact_and_the_secret_only_on_request() {
        let page = checklist(&progress(false, false, false), &html! {}, None).0;
        assert!(page.contains("https://box.example/webhooks/github</code>"), "{page}");
        assert!(page.contains("the signature does not match"), "the refusal is shown");
        assert!(page.contains("action=\"/connect/secret\"") && !page.contains("s3cret"));
        let page = checklist(&progress(false, false, false), &html! {}, Some("s3cret")).0;
        assert!(page.contains("s3cret"));
    }
}
