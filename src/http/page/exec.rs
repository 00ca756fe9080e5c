//! Commands in a sandbox, from the page: a line for its shell, and its output as it comes.
//!
//! The output is a page of its own in a frame, which the browser shows while it is being sent: it
//! needs no script, and what a program writes is never in the page that can change something.
//! Whoever leaves ends the command.

use std::convert::Infallible;
use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use maud::{DOCTYPE, Markup, html};
use tokio::time::{Instant, sleep_until};

use crate::engine::Work;
use crate::http::Shared;
use crate::http::api::exec::{start, work};
use crate::http::api::sandboxes::bounded;
use crate::http::error::ApiError;
use crate::http::sse::HEARTBEAT;
use crate::sandbox::{ExecEvent, ExecRequest, Execution};
use crate::types::{Sandbox, inert};

use super::ansi::Painter;
use super::assets::STYLE;
use super::error::{PageError, advice};
use super::form;
use super::shell::Frame;
use super::visitor::Visitor;

/// How long a command waits for its sandbox to run.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Output that is shown, in bytes of HTML: what is beyond is read and thrown away.
const OUTPUT_LEN_MAX: usize = 2 * 1024 * 1024;
/// The name of the frame that output is shown in.
const FRAME: &str = "output";

/// No script, no form, no picture; framed by our own pages only.
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'self'";

/// Runs a line in a sandbox's shell.
#[post("/sandboxes/{id}/exec")]
pub async fn run(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    id: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    match begin(&shared, &visitor, &request, &id, payload).await {
        Ok((work, execution)) => Ok(answer(output(work, execution))),
        // Told in the frame, where a page of ours is not shown.
        Err(error) => {
            let text = html! {
                p .bad { (inert(error.message())) }
                @if let Some(advice) = advice(error.code()) { p { (advice) } }
            };
            let whole = format!("{}<pre></pre>{}{END}", head(), text.into_string());
            Ok(answer(stream::iter([Ok(Bytes::from(whole))])))
        }
    }
}

async fn begin(
    shared: &Shared,
    visitor: &Visitor,
    request: &HttpRequest,
    id: &str,
    payload: web::Payload,
) -> Result<(Work, Execution), ApiError> {
    let mut form = form::read_change(shared, request, visitor, payload).await?;
    let line = bounded("line", form.text("line")?)?.unwrap_or_default();
    form.finish()?;
    if line.trim().is_empty() || line.contains('\0') {
        return Err(ApiError::field("line", "write a command first, such as: ls -l"));
    }
    let work = work(shared, &visitor.caller, id, WAIT_MAX).await?;
    let call = ExecRequest {
        command: vec!["sh".into(), "-c".into(), line],
        cwd: None,
        env: vec![("TERM".into(), "xterm-256color".into())],
        stdin: Bytes::new(),
        timeout: None,
    };
    let execution = start(shared, &visitor.caller, &work, call).await?;
    Ok((work, execution))
}

fn answer<S>(pieces: S) -> HttpResponse
where
    S: futures_util::Stream<Item = Result<Bytes, Infallible>> + 'static,
{
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_FRAME_OPTIONS, "SAMEORIGIN"))
        .insert_header(("x-accel-buffering", "no"))
        .streaming(pieces)
}

/// A command whose output is being shown.
struct Running {
    execution: Execution,
    /// Kept until the command has ended: the sandbox is at work meanwhile.
    _work: Work,
    began: Instant,
    stdout: Painter,
    stderr: Painter,
    shown: usize,
    left_out: usize,
}

fn output(
    work: Work,
    execution: Execution,
) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> {
    let running = Running {
        execution,
        _work: work,
        began: Instant::now(),
        stdout: Painter::default(),
        stderr: Painter::default(),
        shown: 0,
        left_out: 0,
    };
    let rest = stream::unfold(Some(running), |running| async move {
        let mut running = running?;
        let (text, goes_on) = running.next().await;
        Some((Ok(Bytes::from(text)), goes_on.then_some(running)))
    });
    stream::once(async { Ok(Bytes::from(format!("{}<pre>", head()))) }).chain(rest)
}

impl Running {
    /// What is sent next, and whether there is more.
    async fn next(&mut self) -> (String, bool) {
        let heartbeat = Instant::now() + HEARTBEAT;
        let event = tokio::select! {
            biased;
            event = self.execution.events.recv() => event,
            // Something invisible, so that a page that was closed is noticed.
            () = sleep_until(heartbeat) => return ("<!-- -->".into(), true),
        };
        let painted = match event {
            Some(ExecEvent::Stdout(bytes)) => self.stdout.paint(&bytes),
            Some(ExecEvent::Stderr(bytes)) => mark_error(self.stderr.paint(&bytes)),
            Some(ExecEvent::Exit { code, timed_out: _ }) => {
                let took = self.began.elapsed().as_secs_f64();
                let end = html! {
                    p .bad[code != 0] { "Exit code " (code) " after " (format!("{took:.1}")) " s" }
                };
                return (self.close(&end), false);
            }
            None => {
                let end = html! { p .bad { "The sandbox went away under the command." } };
                return (self.close(&end), false);
            }
        };
        if self.shown + painted.len() > OUTPUT_LEN_MAX {
            self.left_out += painted.len();
            return (String::from("<!-- -->"), true);
        }
        self.shown += painted.len();
        // An empty piece would end the answer.
        (if painted.is_empty() { "<!-- -->".into() } else { painted }, true)
    }

    fn close(&mut self, end: &Markup) -> String {
        let rest = self.stdout.end() + &mark_error(self.stderr.end());
        let left_out = html! {
            @if self.left_out > 0 { p .cut { (self.left_out) " bytes more are not shown." } }
        };
        format!("{rest}</pre>{}{}{END}", left_out.into_string(), end.0)
    }
}

fn mark_error(painted: String) -> String {
    if painted.is_empty() { painted } else { format!("<span class=\"err\">{painted}</span>") }
}

const END: &str = "</div></body></html>";

/// The beginning of the output's page. It is scrolled to its end as it grows, by layout alone.
fn head() -> String {
    let head = html! {
        head {
            meta charset="utf-8";
            title { "Output" }
            link rel="stylesheet" href=(STYLE.url());
        }
    };
    format!("{}<html lang=\"en\">{}<body class=\"output\"><div>", DOCTYPE.into_string(), head.0)
}

/// The line to write commands in, and the frame for what they say.
pub fn card(sandbox: &Sandbox, frame: &Frame) -> Markup {
    let id = &sandbox.id;
    let waiting = format!("{}<p>Output appears here.</p>{END}", head());
    html! {
        div .card .work {
            div .between {
                h2 { "Run a command" }
                a href={ "/sandboxes/" (id) "/files" } { "Files of its workspace" }
            }
            form .command method="post" action={ "/sandboxes/" (id) "/exec" } target=(FRAME) {
                (frame.token())
                input type="text" name="line" required maxlength="1000" autocomplete="off" autocapitalize="off"
                    spellcheck="false" placeholder="ls -l" aria-label="Command for its shell";
                button .primary type="submit" { "Run" }
            }
            iframe .console name=(FRAME) title="Output of the command" srcdoc=(waiting) {}
            p .soft { "Runs in " code { "sh" } " in the workspace. Leaving the page ends it." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_output_is_whole_and_has_no_script() {
        let head = head();
        assert!(head.starts_with("<!DOCTYPE html>") && head.ends_with("<div>"));
        assert!(!head.contains("<script") && POLICY.contains("default-src 'none'"));
    }
}
