//! Who may use the server: the pages of tokens and accounts, for admins.

pub mod accounts;
pub mod tokens;

use maud::{Markup, html};

/// Rows on one page.
const ROWS_MAX: usize = 50;

/// The two pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessTab {
    Tokens,
    Accounts,
}

fn tabs(current: AccessTab) -> Markup {
    let link = |tab: AccessTab, path: &str, word: &str| {
        let is_current = (tab == current).then_some("page");
        html! { a href=(path) aria-current=[is_current] { (word) } }
    };
    html! {
        nav .tabs aria-label="Pages of access" {
            (link(AccessTab::Tokens, "/tokens", "Tokens"))
            (link(AccessTab::Accounts, "/accounts", "Accounts"))
        }
    }
}

/// What a form did, above the list.
fn notice(words: Option<&str>) -> Markup {
    html! {
        @if let Some(words) = words { p .notice .good role="status" data-key="done" { (words) } }
    }
}

/// The number of rows, and the way to the other pages.
fn foot(of: &str, shown: usize, total: u64, first: Option<&str>, next: Option<&str>) -> Markup {
    html! {
        footer .foot data-key="foot" {
            p { @if shown > 0 { (shown) " of " (total) " " (of) } }
            nav .pages aria-label="Pages" {
                @if let Some(first) = first { a href=(first) { "First" } }
                @if let Some(next) = next { a href=(next) rel="next" { "More" } }
            }
        }
    }
}
