//! The page that shows output: it lives in a frame and is sent piece by piece.
//!
//! It needs no script: the browser renders it as it arrives, and the layout keeps its end in view.
//! Output of programs is never part of a page that can change something.

use std::convert::Infallible;

use actix_web::HttpResponse;
use actix_web::http::header;
use bytes::Bytes;
use futures_util::Stream;
use maud::{DOCTYPE, html};

use super::assets::STYLE;

/// Longest output that is shown, in bytes of HTML: a program must not fill the browser's memory.
pub const OUTPUT_LEN_MAX: usize = 2 * 1024 * 1024;
/// An invisible piece: writing it detects a closed page. An empty piece would end the page.
pub const NOTHING: &str = "<!-- -->";
/// The end of the page.
pub const END: &str = "</div></body></html>";

/// No scripts, forms or pictures; only our own pages may frame it.
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

/// A complete page with one sentence.
pub fn saying(text: &str) -> String {
    format!("{}{}{END}", head(), html! { p { (text) } }.0)
}

/// Marks output to standard error.
pub fn mark_error(painted: String) -> String {
    if painted.is_empty() { painted } else { format!("<span class=\"err\">{painted}</span>") }
}

/// Streams the page.
pub fn answer<S>(pieces: S) -> HttpResponse
where
    S: Stream<Item = Result<Bytes, Infallible>> + 'static,
{
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_FRAME_OPTIONS, "SAMEORIGIN"))
        // Without this nginx buffers the pieces.
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
