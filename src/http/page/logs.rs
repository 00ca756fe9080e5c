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
    let (logs, of) = (shared.edge.logs.clone(), sandbox.id.clone());
    let mut tail = read(move || logs.tail(&of, TAIL_LEN)).await?;
    tail.drain(..tail.len() - newest(&tail));
    let after = tail.last().map_or(0, |entry| entry.n);
    let (begun, shown) = PaintedLog::begin(&tail);
    let followed = FollowedLog {
        follower: shared.edge.logs.follow(&sandbox.id, after),
        shown,
        ending: Ending::new(&shared, &visitor.caller),
    };
    let rest = stream::unfold(Some(followed), |followed| async move {
        let (text, followed) = followed?.next().await;
        Some((Ok(Bytes::from(text)), followed))
    });
    let begun = format!("{}<pre>{begun}", console::head());
    Ok(console::answer(stream::once(async { Ok(Bytes::from(begun)) }).chain(rest)))
}

/// How many of the newest lines are shown first, so that there is room for new ones.
fn newest(tail: &[LogEntry]) -> usize {
    let mut len = 0;
    let fits = |entry: &&LogEntry| {
        len += entry.text.len();
        len <= OUTPUT_LEN_MAX / 4
    };
    tail.iter().rev().take_while(fits).count()
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
#[derive(Default)]
struct PaintedLog {
    stdout: Painter,
    stderr: Painter,
    /// Bytes that were shown after the first lines.
    len: usize,
}

impl PaintedLog {
    /// The first lines. They do not count towards the limit, since their HTML can be much longer.
    fn begin(tail: &[LogEntry]) -> (String, Self) {
        let mut shown = Self::default();
        let begun = match tail {
            [] => "<span class=\"cut\">No command has run yet.</span>\n".to_owned(),
            tail => shown.paint(tail),
        };
        (begun, Self { len: 0, ..shown })
    }

    /// Never returns an empty text, which would end the page.
    fn paint(&mut self, entries: &[LogEntry]) -> String {
        let mut text: String = entries.iter().map(|entry| self.line(entry)).collect();
        if text.is_empty() {
            text.push_str(NOTHING);
        }
        self.len += text.len();
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
    fn a_long_log_is_shown_from_where_it_leaves_room_for_what_comes() {
        let line = "x".repeat(OUTPUT_LEN_MAX / 10);
        let log = vec![entry(LogStream::Stdout, &line); 10];
        assert_eq!((newest(&log), newest(&log[..1]), newest(&[])), (2, 1, 0));
        let painted_long = "<".repeat(1_000);
        let (begun, shown) = PaintedLog::begin(&[entry(LogStream::Stdout, &painted_long)]);
        assert!(begun.len() > 2_000 && shown.len == 0, "{}", begun.len());
    }

    #[test]
    fn what_commands_wrote_is_shown_in_its_colours_and_does_nothing() {
        let mut log = PaintedLog::default();
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
