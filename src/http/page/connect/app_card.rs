//! What the page shows of the GitHub App: the button, or how far the App is.

use maud::{Markup, html};

use crate::config::AppFacts;
use crate::github::api::Installation;
use crate::github::registration::NAME_LEN_MAX;
use crate::http::Shared;
use crate::http::app_setup::SetupStage;

use super::super::text::shown;
use super::is_of_this_machine;

/// How far the App is.
pub enum AppCard {
    /// Nothing to say: the server has other credentials, or takes none from its page.
    Silent,
    /// There is none yet.
    Offered {
        /// The name that is suggested.
        name: String,
        /// Whether GitHub can send deliveries.
        has_hook: bool,
        /// Whether agents are given failed checks.
        reads_checks: bool,
    },
    /// It is stored, but its key is not confirmed.
    Unproved {
        /// Its name.
        slug: String,
        /// Why not.
        why: String,
    },
    /// The server restarts with it.
    Restarting {
        /// Its name.
        slug: String,
    },
    /// The server uses it.
    InUse {
        /// The App.
        app: AppFacts,
        /// The accounts that it is installed on, each with the page of the installation; or why that is
        /// unknown.
        installed: Result<Vec<(String, String)>, String>,
    },
}

impl AppCard {
    /// Looks how far it is; asks GitHub for the App's installations.
    pub async fn look(shared: &Shared) -> Self {
        let Some(setup) = &shared.edge.app_setup else { return Self::Silent };
        let in_use = setup.in_use.as_ref().map(|app| &app.about);
        match (shared.registrations.stage(), in_use) {
            (SetupStage::Unproved { app, why }, _) => Self::Unproved { slug: app.about.slug, why },
            (SetupStage::Restarting(slug), _) => Self::Restarting { slug },
            (SetupStage::Open, Some(app)) => {
                let named = |one: &Installation| (one.account.login.clone(), one.html_url.clone());
                let installed = match &shared.edge.github {
                    Some(api) => shared.installations(api.as_ref()).await,
                    None => Err("the server has no client".to_owned()),
                };
                let installed = installed.map(|all| all.iter().map(named).collect());
                Self::InUse { app: app.clone(), installed }
            }
            (SetupStage::Open, None) => {
                let (has_hook, reads_checks) = (hook_url(shared).is_some(), shared.reads_checks());
                Self::Offered { name: setup.suggested_name.clone(), has_hook, reads_checks }
            }
        }
    }

    /// Whether there is nothing to say.
    pub const fn is_silent(&self) -> bool {
        matches!(self, Self::Silent)
    }

    /// The card.
    pub fn render(&self, token: &Markup) -> Markup {
        match self {
            Self::Silent => html! {},
            Self::Offered { name, has_hook, reads_checks } => {
                offer(name, *has_hook, *reads_checks, token)
            }
            Self::Unproved { slug, why } => card(&html! {
                h2 { "The App " (shown(slug)) " is stored" }
                div .notice .bad role="alert" {
                    p { "GitHub did not confirm its key: " bdi { (shown(why)) } "." }
                    form method="post" action="/connect/github/prove" {
                        (token) button .primary type="submit" { "Try again" }
                    }
                }
                (by_hand("Enter another key", token))
            }),
            Self::Restarting { slug } => card(&html! {
                h2 { "The App " (shown(slug)) " is stored" }
                p role="status" { "The server restarts with it, which takes some seconds. If this does not change, its log "
                    "says why." }
            }),
            Self::InUse { app, installed } => card(&in_use(app, installed, token)),
        }
    }
}

/// Where GitHub sends deliveries; `None` if it cannot reach this server as far as it is configured.
pub fn hook_url(shared: &Shared) -> Option<String> {
    let url = shared.edge.public_url.as_deref()?.trim_end_matches('/');
    (!is_of_this_machine(url)).then(|| format!("{url}/webhooks/github"))
}

/// What an App without a webhook means.
pub fn without_hook() -> Markup {
    html! {
        p .soft {
            "The App gets no webhook, because GitHub cannot reach this server: no public " code { "public_url" }
            " is configured. The server can answer and check repositories out, but deliveries do not come by "
            "themselves. “On a laptop” in docs/github.md shows the ways: a tunnel, or "
            code { "intake = \"deliveries\"" } " with any public address as the App's webhook."
        }
    }
}

fn card(content: &Markup) -> Markup {
    html! { div .card .app-card data-key="github-app" { (content) } }
}

fn offer(name: &str, has_hook: bool, reads_checks: bool, token: &Markup) -> Markup {
    card(&html! {
        form method="post" action="/connect/github" {
            (token)
            h2 { "Create a GitHub App" }
            p .lead { "It gives this server an account of its own at GitHub: it answers on issues, checks repositories out "
                "and opens pull requests. GitHub asks you to confirm; then you choose its repositories." }
            @if !has_hook { (without_hook()) }
            div .fields {
                label .wide { "Name"
                    input type="text" name="name" value=(name) maxlength=(NAME_LEN_MAX) required;
                }
                label .wide { "Organisation"
                    input type="text" name="organisation" maxlength="39" placeholder="empty for your own account"
                        autocapitalize="none" spellcheck="false";
                }
            }
            div .fields {
                label .check { input type="checkbox" name="statuses" value="true"; "may set commit statuses" }
                label .check { input type="checkbox" name="workflows" value="true"; "may change workflow files" }
                label .check {
                    input type="checkbox" name="checks" value="true" checked[reads_checks];
                    "may read checks, for github.on_ci_failure"
                }
                button .primary type="submit" { "Create GitHub App" }
            }
        }
        (by_hand("Use an App that exists", token))
    })
}

fn in_use(
    app: &AppFacts,
    installed: &Result<Vec<(String, String)>, String>,
    token: &Markup,
) -> Markup {
    let choose = html! {
        a .button .primary href={ (app.html_url) "/installations/new" } target="_blank" rel="noopener noreferrer" {
            "Choose repositories"
        }
    };
    html! {
        @match installed {
            Ok(all) if all.is_empty() => {
                h2 { "Install the App " (shown(&app.slug)) }
                p .lead { "Choose the repositories that it is for. This page waits until GitHub lists the installation." }
                p { (choose) }
            }
            Ok(all) => {
                h2 { "The App " (shown(&app.slug)) " is installed" }
                p { "On "
                    @for (at, (login, url)) in all.iter().enumerate() {
                        @if at > 0 { ", " }
                        a href=(url) target="_blank" rel="noopener noreferrer" { bdi { (shown(login)) } }
                    }
                    ". " a href={ (app.html_url) "/installations/new" } target="_blank" rel="noopener noreferrer" {
                        "Choose more repositories"
                    } "."
                }
            }
            Err(why) => {
                h2 { "The App " (shown(&app.slug)) }
                p .notice .bad { "GitHub did not list its installations: " bdi { (shown(why)) } "." }
                p { (choose) }
            }
        }
        (by_hand("Enter a new key", token))
    }
}

/// The form for a key, folded up.
fn by_hand(summary: &str, token: &Markup) -> Markup {
    html! { details { summary { (summary) } (upload_form(token)) } }
}

/// The form for the id and key of an App that was made by hand.
pub fn upload_form(token: &Markup) -> Markup {
    html! {
        form method="post" action="/connect/github/key" {
            (token)
            div .fields {
                label { "App ID" input type="text" name="app_id" inputmode="numeric" pattern="[0-9]+" required; }
                label .wide { "Webhook secret"
                    input type="password" name="secret" autocomplete="off" placeholder="empty if it is this server's";
                }
            }
            div .fields {
                label .wide { "Private key"
                    textarea name="key" rows="6" required spellcheck="false" autocomplete="off"
                        placeholder="-----BEGIN RSA PRIVATE KEY-----" {}
                }
            }
            div .fields { button .primary type="submit" { "Use this App" } }
            p .soft { "The server restarts then. Running local sandboxes stop and keep their workspaces." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_use(installed: Result<Vec<(String, String)>, String>) -> String {
        let app = AppFacts {
            id: 7,
            slug: "box".to_owned(),
            html_url: "https://github.com/apps/box".to_owned(),
            web_url: "https://github.com".to_owned(),
            api_url: "https://api.github.com".to_owned(),
        };
        AppCard::InUse { app, installed }.render(&html! {}).0
    }

    #[test]
    fn an_app_waits_for_its_installation_which_github_alone_says() {
        let choose = "href=\"https://github.com/apps/box/installations/new\"";
        let waits = in_use(Ok(Vec::new()));
        assert!(waits.contains(choose) && waits.contains("This page waits"), "{waits}");
        let url = "https://github.com/settings/installations/5".to_owned();
        let installed = in_use(Ok(vec![("octo".to_owned(), url)]));
        assert!(installed.contains("is installed") && installed.contains("octo"), "{installed}");
        let unknown = in_use(Err("no answer".to_owned()));
        assert!(unknown.contains("no answer") && unknown.contains(choose), "{unknown}");
    }

    #[test]
    fn the_button_says_what_an_app_without_a_webhook_lacks() {
        let offer = |has_hook| {
            let card = AppCard::Offered { name: "box-1".to_owned(), has_hook, reads_checks: false };
            card.render(&html! {}).0
        };
        assert!(
            offer(false).contains("gets no webhook") && !offer(true).contains("gets no webhook")
        );
        assert!(offer(true).contains("value=\"box-1\""));
        assert_eq!(AppCard::Silent.render(&html! {}).0, "");
    }
}
