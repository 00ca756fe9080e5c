//! What is around the list: the head, the bar at the top, the log-in.

use maud::{DOCTYPE, Markup, html};

use super::assets::{ICON, SCRIPT, STYLE};
use super::list::{self, ListView};

/// The page with its list.
pub fn home(view: &ListView, form_token: &str) -> Markup {
    let bar = html! {
        span #status .status role="status" { span .beacon aria-hidden="true" {} span .word { "Not live" } }
        form method="post" action="/logout" {
            input type="hidden" name="formToken" value=(form_token);
            button .quiet type="submit" { "Log out" }
        }
    };
    let main = html! {
        (list::render(view))
        noscript { p .note { "Without its script this page does not update itself: load it again." } }
    };
    document("Sandboxes", &bar, &main, true)
}

/// The log-in, and why the last one failed.
pub fn login(failed: Option<&str>) -> Markup {
    let main = html! {
        form .login method="post" action="/login" {
            h1 { "Log in" }
            p .lead { "With the server's admin token. It is in the data directory, in the file "
                code { "admin-token" } ", unless the configuration says otherwise." }
            @if let Some(why) = failed {
                p #why .wrong role="alert" { (why) }
            }
            // For password managers, which keep a password by its user.
            input type="text" name="username" value="admin" autocomplete="username" hidden;
            label for="token" { "Admin token" }
            input #token type="password" name="token" required autofocus autocomplete="current-password"
                spellcheck="false" aria-describedby=[failed.map(|_| "why")];
            button .primary type="submit" { "Log in" }
        }
    };
    document("Log in", &html! {}, &main, false)
}

fn document(title: &str, bar: &Markup, main: &Markup, with_script: bool) -> Markup {
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
                    script src=(SCRIPT.url()) defer {}
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
                main #main { (main) }
            }
        }
    }
}
