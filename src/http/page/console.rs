//! The page that output is shown on: a page of its own in a frame of ours, sent piece by piece.
//!
//! It needs no script: the browser shows it while it comes, and it is scrolled to its end as it
//! grows by layout alone. What a program wrote is never in a page that can change something.

use std::convert::Infallible;

use actix_web::HttpResponse;
use actix_web::http::header;
use bytes::Bytes;
use futures_util::Stream;
use maud::{DOCTYPE, html};

use super::assets::STYLE;

/// Output that is shown, in bytes of HTML: a tab must not become as large as a program likes.
pub const OUTPUT_LEN_MAX: usize = 2 * 1024 * 1024;
/// Something invisible, so that a page that was closed is noticed; an empty piece would end it.
pub const NOTHING: &str = "<!-- -->";
/// The end of the page.
pub const END: &str = "</div></body></html>";

/// No script, no form, no picture; framed by our own pages only.
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'self'";

/// The beginning of the page.
pub fn head() -> String {
    let head = html! {
        head {
            meta charset="utf-8";
            title { "Output" }
            link rel="stylesheet" href=(STYLE.url());
        }
    };
    format!("{}<html lang=\"en\">{}<body class=\"output\"><div>", DOCTYPE.into_string(), head.0)
}

/// A whole page that only says something.
pub fn saying(text: &str) -> String {
    format!("{}{}{END}", head(), html! { p { (text) } }.0)
}

/// What was written to standard error, marked as that.
pub fn mark_error(painted: String) -> String {
    if painted.is_empty() { painted } else { format!("<span class=\"err\">{painted}</span>") }
}

/// The page as it comes.
pub fn answer<S>(pieces: S) -> HttpResponse
where
    S: Stream<Item = Result<Bytes, Infallible>> + 'static,
{
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_FRAME_OPTIONS, "SAMEORIGIN"))
        // nginx would gather pieces into blocks.
        .insert_header(("x-accel-buffering", "no"))
        .streaming(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_output_is_whole_and_has_no_script() {
        let page = saying("a <b>");
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
        assert!(page.contains("<p>a &lt;b&gt;</p>") && !page.contains("<script"));
        assert!(POLICY.contains("default-src 'none'") && !POLICY.contains("script"));
    }
}
