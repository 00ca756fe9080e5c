//! The log of a sandbox, live or deleted: the output of its commands, followed as it grows.

use actix_web::{HttpResponse, get, web};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use maud::html;
use tokio::time::{Instant, sleep_until};

use crate::http::Shared;
use crate::http::api::logs::read;
use crate::http::api::sandboxes::load;
use crate::http::ending::Ending;
use crate::http::shared::sandbox_ref;
use crate::http::sse::HEARTBEAT;
use crate::logs::{Follower, LogEntry, LogStream};

use super::ansi::Painter;
use super::console::{self, END, NOTHING, OUTPUT_LEN_MAX, mark_error};
use super::error::PageError;
use super::shell::{Frame, PageSection};
use super::text::shown;
use super::visitor::Visitor;

/// Older lines that are shown first.
const TAIL_LEN: usize = 2_000;
/// Most bytes of them, as they are in the log.
const FIRST_LEN_MAX: u64 = OUTPUT_LEN_MAX as u64 / 4;

/// Shows the log of a sandbox in a frame.
#[get("/sandboxes/{id}/logs")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: Visitor,
    id: web::Path<String>,
) -> Result<HttpResponse, PageError> {
    let sandbox = load(&shared, &visitor.caller.account, &sandbox_ref(&id)).await?;
    let title = format!("Logs of {}", sandbox.name);
    let frame = Frame::begin(&shared, &visitor, PageSection::Sandboxes, title).await;
    let base = format!("/sandboxes/{}", sandbox.id);
    Ok(super::html(&frame.render(&html! {
        p .back { a href=(base) { "← " (shown(&sandbox.name)) } }
        div .head { h1 { "Logs" } p .soft { "The output of commands, newest last. New lines appear automatically." } }
        // The output never ends, so a frame that has it from the beginning would keep the page from ever
        // having loaded: the script fills the frame after that.
        iframe .console .tall data-src={ (base) "/logs/output" } title="Output of commands" {}
        noscript { iframe .console .tall src={ (base) "/logs/output" } title="Output of commands" {} }
    })))
}

/// Streams the page inside the frame.
#[get("/sandboxes/{id}/logs/output")]
pub async fn stream_output(
    shared: web::Data<Shared>,
    visitor: Visitor,
    id: web::Path<String>,
) -> Result<HttpResponse, PageError> {
    let sandbox = load(&shared, &visitor.caller.account, &sandbox_ref(&id)).await?;
    let mut follower = shared.edge.logs.follow(&sandbox.id, 0);
    // Only so many, so that there is room for new ones.
    let seeking = move || follower.seek_tail(TAIL_LEN, FIRST_LEN_MAX).map(|()| follower);
    let followed = FollowedLog {
        follower: read(seeking).await?,
        shown: PaintedLog::new(),
        ending: Ending::new(&shared, &visitor.caller),
    };
    let rest = stream::unfold(Some(followed), |followed| async move {
        let (text, followed) = followed?.next().await;
        Some((Ok(Bytes::from(text)), followed))
    });
    let begun = format!("{}<pre>", console::head());
    Ok(console::answer(stream::once(async { Ok(Bytes::from(begun)) }).chain(rest)))
}

/// A log that is followed.
struct FollowedLog {
    follower: Follower,
    shown: PaintedLog,
    ending: Ending,
}

impl FollowedLog {
    /// The next piece of the page; without a log the page ends.
    async fn next(mut self) -> (String, Option<Self>) {
        let end = |why: &str| (format!("</pre>{}{END}", html! { p .cut { (why) } }.0), None);
        let silent_until = Instant::now() + HEARTBEAT;
        loop {
            if let Some(ended) = self.ending.has_come().await {
                return end(ended.message());
            }
            if self.shown.len > OUTPUT_LEN_MAX {
                return end("The page is full; load it again to see the newest lines.");
            }
            let mut follower = self.follower;
            let Ok((entries, back)) = read(move || Ok((follower.read()?, follower))).await else {
                return end("Cannot read the log; load the page again.");
            };
            self.follower = back;
            if !entries.is_empty() {
                return (self.shown.paint(&entries), Some(self));
            }
            if let Some(note) = self.shown.caught_up() {
                return (note, Some(self));
            }
            tokio::select! {
                biased;
                ended = self.ending.come() => return end(ended.message()),
                goes_on = self.follower.changed() => if !goes_on { return end("End of the log.") },
                () = sleep_until(silent_until) => return (NOTHING.to_owned(), Some(self)),
            }
        }
    }
}

/// Entries as HTML.
struct PaintedLog {
    stdout: Painter,
    stderr: Painter,
    /// What may still belong to the first lines, in bytes of text. Their HTML does not count towards
    /// the limit, since it can be much longer.
    first_left: u64,
    is_begun: bool,
    /// Bytes that were shown after the first lines.
    len: usize,
}

impl PaintedLog {
    fn new() -> Self {
        let (stdout, stderr) = (Painter::default(), Painter::default());
        Self { stdout, stderr, first_left: FIRST_LEN_MAX, is_begun: false, len: 0 }
    }

    /// All first lines were shown; the note if there were none.
    fn caught_up(&mut self) -> Option<String> {
        self.first_left = 0;
        let is_empty = !std::mem::replace(&mut self.is_begun, true);
        is_empty.then(|| "<span class=\"cut\">No command has run yet.</span>\n".to_owned())
    }

    /// Never returns an empty text, which would end the page.
    fn paint(&mut self, entries: &[LogEntry]) -> String {
        let mut text: String = entries.iter().map(|entry| self.line(entry)).collect();
        if text.is_empty() {
            text.push_str(NOTHING);
        }
        self.is_begun = true;
        if self.first_left == 0 {
            self.len += text.len();
        }
        let len: usize = entries.iter().map(|entry| entry.text.len()).sum();
        self.first_left = self.first_left.saturating_sub(len as u64);
        text
    }

    fn line(&mut self, entry: &LogEntry) -> String {
        let end = if entry.is_partial { "" } else { "\n" };
        let line = format!("{}{end}", entry.text);
        let text = shown(&entry.text);
        match entry.stream {
            LogStream::Stdout => self.stdout.paint(line.as_bytes()),
            LogStream::Stderr => mark_error(self.stderr.paint(line.as_bytes())),
            LogStream::Command => {
                // The colours of one command must not reach the next one.
                (self.stdout, self.stderr) = (Painter::default(), Painter::default());
                html! { span .cut { (entry.at) } " " span .bo { "$ " (text) } "\n" }.0
            }
            LogStream::Exit => html! { span .cut { (exit_words(&text)) } "\n" }.0,
            LogStream::Note => html! { span .cut { (text) } "\n" }.0,
        }
    }
}

/// How a command ended, in words: the log has its exit code alone.
fn exit_words(text: &str) -> String {
    let signal = match text.parse::<u8>() {
        Ok(0) => return "succeeded".to_owned(),
        // What a shell and a provider make of a signal n is 128 + n.
        Ok(130) => "interrupted, SIGINT",
        Ok(137) => "killed, SIGKILL: by a limit on memory, a timeout or a person",
        Ok(143) => "ended, SIGTERM",
        Ok(126) => "it cannot be executed",
        Ok(127) => "no such command",
        Ok(_) => return format!("exit code {text}"),
        Err(_) => return text.to_owned(),
    };
    format!("exit code {text} ({signal})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Timestamp;

    fn entry(stream: LogStream, text: &str) -> LogEntry {
        LogEntry {
            n: 1,
            at: Timestamp::from_unix_ms(0),
            exec: "r".into(),
            stream,
            text: text.into(),
            is_partial: false,
        }
    }

    #[test]
    fn the_first_lines_leave_room_for_what_comes() {
        let painted_long = [entry(LogStream::Stdout, &"<".repeat(1_000))];
        let mut shown = PaintedLog::new();
        assert!(shown.paint(&painted_long).len() > 2_000 && shown.len == 0);
        assert_eq!(shown.caught_up(), None);
        let next = shown.paint(&painted_long).len();
        assert_eq!(shown.len, next, "new lines count");
        let mut grows = PaintedLog::new();
        let long = [entry(LogStream::Stdout, &"x".repeat(OUTPUT_LEN_MAX / 4))];
        grows.paint(&long);
        assert_eq!(grows.len, 0);
        let next = grows.paint(&long).len();
        assert_eq!(grows.len, next, "also if the log grows too fast to be caught up with");
        assert!(PaintedLog::new().caught_up().is_some_and(|note| note.contains("No command")));
    }

    #[test]
    fn what_commands_wrote_is_shown_in_its_colours_and_does_nothing() {
        let mut log = PaintedLog { first_left: 0, ..PaintedLog::new() };
        let html = log.paint(&[
            entry(LogStream::Command, "sh -c <b>"),
            entry(LogStream::Stdout, "\u{1b}[31mred<img src=x>"),
            entry(LogStream::Stderr, "\u{1b}]52;c;x\u{7}err"),
            entry(LogStream::Exit, "137"),
            entry(LogStream::Exit, "0"),
            entry(LogStream::Command, "next"),
            entry(LogStream::Stdout, "plain"),
        ]);
        assert!(html.contains("$ sh -c &lt;b&gt;</span>\n<span class=\"f1\">red&lt;img src=x&gt;"));
        assert!(
            html.contains("<span class=\"err\">err\n</span>") && html.ends_with("</span>\nplain\n")
        );
        assert!(!html.contains('\u{1b}') && log.len == html.len());
        assert!(
            html.contains("exit code 137 (killed, SIGKILL: by") && html.contains(">succeeded<")
        );
    }
}
