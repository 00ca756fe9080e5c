//! Runs a command line in a sandbox and shows its output as it arrives.
//!
//! The output is a page of its own in a frame (`console`). Leaving the page ends the command.

use std::convert::Infallible;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use maud::{Markup, html};
use tokio::time::{Instant, sleep_until};

use crate::http::Shared;
use crate::http::api::exec::{start, work};
use crate::http::api::sandboxes::bounded;
use crate::http::ending::Ending;
use crate::http::error::ApiError;
use crate::http::sse::HEARTBEAT;
use crate::http::work::OpenSandbox;
use crate::sandbox::{ExecEvent, ExecRequest, Execution};
use crate::types::{Sandbox, inert};

use super::ansi::Painter;
use super::console::{self, END, NOTHING, OUTPUT_LEN_MAX, mark_error};
use super::error::{PageError, advice};
use super::form;
use super::shell::Frame;
use super::visitor::Visitor;

/// How long a command waits for its sandbox to run.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The name of the frame that shows the output.
const FRAME: &str = "output";

/// Runs a command line in a sandbox's shell.
#[post("/sandboxes/{id}/exec")]
pub async fn run(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
    id: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, PageError> {
    match begin(&shared, &visitor, &request, &id, payload).await {
        Ok((line, work, execution)) => {
            let ending = Ending::new(&shared, &visitor.caller);
            Ok(console::answer(output(&line, work, execution, ending)))
        }
        // The error is shown in the frame, which cannot show an error page.
        Err(error) => {
            let text = html! {
                p .bad { (inert(error.message())) }
                @if let Some(advice) = advice(error.code()) { p { (advice) } }
            };
            let whole = format!("{}<pre></pre>{}{END}", console::head(), text.into_string());
            Ok(console::answer(stream::iter([Ok(Bytes::from(whole))])))
        }
    }
}

async fn begin(
    shared: &Shared,
    visitor: &Visitor,
    request: &HttpRequest,
    id: &str,
    payload: web::Payload,
) -> Result<(String, OpenSandbox, Execution), ApiError> {
    let mut form = form::read_change(shared, request, visitor, payload).await?;
    let line = bounded("line", form.text("line")?)?.unwrap_or_default();
    form.finish()?;
    if line.trim().is_empty() || line.contains('\0') {
        return Err(ApiError::field("line", "enter a command, such as: ls -l"));
    }
    let work = work(shared, &visitor.caller, id, WAIT_MAX).await?;
    let call = ExecRequest {
        command: vec!["sh".into(), "-c".into(), line.clone()],
        cwd: None,
        env: vec![("TERM".into(), "xterm-256color".into())],
        stdin: Bytes::new().into(),
        timeout: None,
    };
    let execution = start(shared, &visitor.caller, &work, call).await?;
    Ok((line, work, execution))
}

/// A running command whose output is shown.
struct ShownExec {
    execution: Execution,
    ending: Ending,
    /// Held until the command ends, so that the sandbox counts as active.
    _work: OpenSandbox,
    began: Instant,
    stdout: Painter,
    stderr: Painter,
    shown: usize,
    left_out: usize,
}

fn output(
    line: &str,
    work: OpenSandbox,
    execution: Execution,
    ending: Ending,
) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> + use<> {
    let running = ShownExec {
        execution,
        ending,
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
    let command = html! { span .bo { "$ " (inert(line)) } "\n" };
    let begun = format!("{}<pre>{}", console::head(), command.0);
    stream::once(async { Ok(Bytes::from(begun)) }).chain(rest)
}

impl ShownExec {
    /// The next piece of the page, and whether there is more.
    async fn next(&mut self) -> (String, bool) {
        let heartbeat = Instant::now() + HEARTBEAT;
        let event = tokio::select! {
            biased;
            ended = self.ending.come() => {
                return (self.close(&html! { p .bad { (ended.message()) } }), false);
            }
            event = self.execution.events.recv() => event,
            () = sleep_until(heartbeat) => return (NOTHING.into(), true),
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
                let end = html! { p .bad { "The sandbox stopped while the command ran." } };
                return (self.close(&end), false);
            }
        };
        if self.shown + painted.len() > OUTPUT_LEN_MAX {
            self.left_out += painted.len();
            return (NOTHING.into(), true);
        }
        self.shown += painted.len();
        (if painted.is_empty() { NOTHING.into() } else { painted }, true)
    }

    fn close(&mut self, end: &Markup) -> String {
        let rest = self.stdout.end() + &mark_error(self.stderr.end());
        let left_out = html! {
            @if self.left_out > 0 { p .cut { (self.left_out) " more bytes are not shown." } }
        };
        format!("{rest}</pre>{}{}{END}", left_out.into_string(), end.0)
    }
}

/// The form for a command line, and the frame for its output.
pub fn card(sandbox: &Sandbox, frame: &Frame) -> Markup {
    let id = &sandbox.id;
    let waiting = console::saying("Output appears here.");
    html! {
        div .card .work {
            div .between {
                h2 { "Run a command" }
                p .links {
                    a href={ "/sandboxes/" (id) "/files" } { "Files" }
                    a href={ "/sandboxes/" (id) "/logs" } { "Logs" }
                }
            }
            form .command #run method="post" action={ "/sandboxes/" (id) "/exec" } target=(FRAME) {
                (frame.token())
                input type="text" name="line" required maxlength="1000" autocomplete="off" autocapitalize="off"
                    spellcheck="false" placeholder="ls -l" aria-label="Shell command";
                button .primary type="submit" { "Run" }
                // The script shows it while a command runs.
                button #stop type="button" hidden { "Stop" }
            }
            p #recent .recent hidden aria-label="Commands that were run" {}
            iframe .console name=(FRAME) title="Output of the command" srcdoc=(waiting) {}
            p #run-state .run-state role="status" {}
            p .soft { "Runs in " code { "sh" } " in the workspace. Leaving the page ends the command." }
        }
    }
}
