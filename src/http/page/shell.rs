//! The frame of every page: head, top bar, navigation, problems.
//!
//! The script keeps *regions* current: elements with an id and `data-live`. It loads the same page
//! again and replaces their parts (`data-key`).

use maud::{DOCTYPE, Markup, html};

use crate::http::Shared;
use crate::http::caller::Caller;
use crate::types::AccountName;

use super::NONCE_MARK;
use super::assets::{ICON, SCRIPT, STYLE};
use super::attention::{self, Attention};
use super::form::FORM_TOKEN;
use super::visitor::Visitor;

/// Most accounts in the menu of a page; if there are more, the page of accounts has them.
const ACCOUNTS_OFFERED_MAX: usize = 50;

/// The sections of the page, in the order of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSection {
    Sandboxes,
    Deliveries,
    Providers,
    Drift,
    Holds,
    Github,
    Access,
    Overview,
}

impl PageSection {
    const ALL: [Self; 8] = [
        Self::Sandboxes,
        Self::Deliveries,
        Self::Providers,
        Self::Drift,
        Self::Holds,
        Self::Github,
        Self::Access,
        Self::Overview,
    ];

    const fn path(self) -> &'static str {
        match self {
            Self::Sandboxes => "/",
            Self::Deliveries => "/deliveries",
            Self::Providers => "/providers",
            Self::Drift => "/drift",
            Self::Holds => "/holds",
            Self::Github => "/github",
            Self::Access => "/tokens",
            Self::Overview => "/overview",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Sandboxes => "Sandboxes",
            Self::Deliveries => "Deliveries",
            Self::Providers => "Providers",
            Self::Drift => "Drift",
            Self::Holds => "Holds",
            Self::Github => "GitHub",
            Self::Access => "Access",
            Self::Overview => "Overview",
        }
    }

    /// The number beside its name, unless it is zero.
    fn badge(self, attention: &Attention) -> Option<u64> {
        let count = match self {
            Self::Sandboxes => attention.survey.total,
            Self::Drift => attention.drift_count,
            Self::Holds => attention.holds.len() as u64,
            Self::Providers => attention.providers.len() as u64,
            Self::Deliveries | Self::Github | Self::Access | Self::Overview => 0,
        };
        (count > 0).then_some(count)
    }

    /// Whether its number counts problems.
    const fn is_trouble(self) -> bool {
        match self {
            Self::Drift | Self::Holds | Self::Providers => true,
            Self::Sandboxes | Self::Deliveries | Self::Github | Self::Access | Self::Overview => {
                false
            }
        }
    }

    /// Whether it is about the server or its accounts, which only admins see.
    const fn is_of_admins(self) -> bool {
        match self {
            Self::Drift | Self::Github | Self::Access => true,
            Self::Sandboxes | Self::Deliveries | Self::Providers | Self::Holds | Self::Overview => {
                false
            }
        }
    }
}

/// The changes that update a page.
#[derive(Clone, Debug)]
pub enum LiveScope {
    /// Changes of all sandboxes.
    All,
    /// Changes of one sandbox, and of its successors with the same issue.
    One {
        /// The sandbox.
        sandbox: String,
        /// Its issue.
        issue: String,
    },
}

/// The frame of one page.
pub struct Frame {
    title: String,
    section: Option<PageSection>,
    form_token: String,
    event_cursor: String,
    watch: LiveScope,
    poll_secs: Option<u32>,
    is_first: bool,
    is_still: bool,
    attention: Attention,
    account: AccountMenu,
}

/// The account that a page shows, and those that its visitor can choose.
struct AccountMenu {
    current: AccountName,
    is_admin: bool,
    /// Whether there is another one.
    is_needed: bool,
    /// Those to choose from; empty for others than admins, and if they are too many for a menu.
    offered: Vec<AccountName>,
}

impl AccountMenu {
    fn of(shared: &Shared, caller: &Caller) -> Self {
        let accounts = shared.edge.access.accounts();
        let count = accounts.iter().count();
        let offered = if caller.is_admin() && count <= ACCOUNTS_OFFERED_MAX {
            accounts.iter().map(|(name, _)| name.clone()).collect()
        } else {
            Vec::new()
        };
        let current = caller.account.clone();
        Self { current, is_admin: caller.is_admin(), is_needed: count > 1, offered }
    }

    /// `is_still`: the page has no script that switches when another one is selected.
    fn render(&self, token: &Markup, next: &str, is_still: bool) -> Markup {
        let Self { current, is_admin, is_needed, offered } = self;
        html! {
            @if !is_needed {
            } @else if !is_admin {
                span .account title="The account whose sandboxes you see" { (current) }
            } @else if offered.is_empty() {
                a .account href="/accounts" title="Switch to another account" { (current) }
            } @else {
                form .account method="post" action="/account" {
                    (token)
                    input type="hidden" name="next" value=(next);
                    select name="account" aria-label="Account" data-submit autocomplete="off" {
                        @for one in offered { option value=(one) selected[one == current] { (one) } }
                    }
                    @if is_still { button .quiet type="submit" { "Switch" } }
                    @else { noscript { button .quiet type="submit" { "Switch" } } }
                }
            }
        }
    }
}

impl Frame {
    /// Begins the frame. It takes the event cursor before the page is read, so that no change is
    /// missed.
    pub async fn begin(
        shared: &Shared,
        visitor: &Visitor,
        section: impl Into<Option<PageSection>>,
        title: impl Into<String>,
    ) -> Self {
        let events = &shared.edge.feed.events;
        let event_cursor = events.cursor(events.now());
        Self {
            title: title.into(),
            section: section.into(),
            form_token: visitor.session.form_token().to_owned(),
            event_cursor,
            watch: LiveScope::All,
            poll_secs: None,
            is_first: false,
            is_still: false,
            attention: Attention::look(shared, &visitor.caller).await,
            account: AccountMenu::of(shared, &visitor.caller),
        }
    }

    /// Sets the changes that update it.
    pub fn watching(mut self, watch: LiveScope) -> Self {
        self.watch = watch;
        self
    }

    /// Updates it this often, since some of its content causes no events.
    pub fn polled(mut self, secs: u32) -> Self {
        self.poll_secs = Some(secs);
        self
    }

    /// Never updates it.
    pub fn still(mut self) -> Self {
        self.is_still = true;
        self
    }

    /// It is the front page: it lists the problems.
    pub fn first(mut self) -> Self {
        self.is_first = true;
        self
    }

    /// The problems.
    pub fn attention(&self) -> &Attention {
        &self.attention
    }

    /// The hidden field that every form with a change needs.
    pub fn token(&self) -> Markup {
        token_field(&self.form_token)
    }

    /// The whole page.
    pub fn render(&self, main: &Markup) -> Markup {
        let (watched, issue) = match &self.watch {
            LiveScope::All => (None, None),
            LiveScope::One { sandbox, issue } => (Some(sandbox.as_str()), Some(issue.as_str())),
        };
        let bar = html! {
            span #status .status role="status" title="Whether this page updates itself" {
                span .beacon aria-hidden="true" {} span .word {}
            }
            (self.account.render(&self.token(), self.section.map_or("/", PageSection::path), self.is_still))
            form method="post" action="/logout" {
                (self.token())
                button .quiet type="submit" { "Log out" }
            }
        };
        let body = html! {
            (navigation(self.section, &self.attention, self.account.is_admin))
            main #main data-cursor=(self.event_cursor) data-watch=[watched] data-issue=[issue]
                data-poll=[self.poll_secs] {
                @if self.is_first { (attention::strip(&self.attention)) }
                @else { (attention::hint(&self.attention)) }
                (main)
                noscript {
                    p .note { "Without JavaScript this page does not update itself: load it again." }
                }
            }
            (help())
        };
        document(&self.title, &bar, &body, !self.is_still)
    }
}

/// The hidden field with a form token.
pub fn token_field(form_token: &str) -> Markup {
    html! { input type="hidden" name=(FORM_TOKEN) value=(form_token); }
}

fn navigation(section: Option<PageSection>, attention: &Attention, is_admin: bool) -> Markup {
    let offered = PageSection::ALL.into_iter().filter(|one| is_admin || !one.is_of_admins());
    html! {
        nav #nav .nav aria-label="Sections" data-live {
            @for one in offered {
                @let current = (section == Some(one)).then_some("page");
                a href=(one.path()) aria-current=[current] data-key={ "nav-" (one.word()) } {
                    (one.word())
                    @if let Some(count) = one.badge(attention) {
                        " " span .badge .trouble[one.is_trouble()] { (count) }
                    }
                }
            }
        }
    }
}

/// The keyboard help, opened by `?`.
fn help() -> Markup {
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keys" }
            dl .keys {
                dt { kbd { "/" } } dd { "search" }
                dt { kbd { "j" } " " kbd { "k" } } dd { "next and previous row" }
                dt { kbd { "Enter" } } dd { "open the row" }
                dt { kbd { "g" } " then " kbd { "s" } " " kbd { "d" } " " kbd { "p" } " " kbd { "r" }
                    " " kbd { "h" } " " kbd { "a" } " " kbd { "o" } }
                dd { "go to sandboxes, deliveries, providers, drift, holds, access, overview" }
                dt { kbd { "?" } } dd { "this help" }
                dt { kbd { "Esc" } } dd { "close" }
            }
            form method="dialog" { button type="submit" { "Close" } }
        }
    }
}

/// A page without navigation: the log-in, an error.
pub fn bare(title: &str, main: &Markup) -> Markup {
    let main = html! { main #main { (main) } };
    document(title, &html! {}, &main, false)
}

fn document(title: &str, bar: &Markup, body: &Markup, with_script: bool) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · issuebox" }
                link rel="icon" type="image/svg+xml" href=(ICON.url());
                link rel="stylesheet" href=(STYLE.url());
                @if with_script {
                    script src=(SCRIPT.url()) nonce=(&**NONCE_MARK) defer {}
                }
            }
            body {
                a .skip href="#main" { "Skip to content" }
                header .bar {
                    a .brand href="/" {
                        img src=(ICON.url()) alt="" width="22" height="22";
                        "issuebox"
                    }
                    div .right { (bar) }
                }
                (body)
            }
        }
    }
}
