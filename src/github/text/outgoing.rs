//! A text that an agent wrote, written again in a part of Markdown that does nothing: it notifies,
//! closes, references and commands nothing, loads nothing, and links to the repository's own host
//! alone.
//!
//! The result is parsed once more. If it still did something, the whole text is shown as code.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Parser, Tag, TagEnd};

use super::incoming::{is_shapeless, without_tags};
use super::secrets::{KnownSecrets, SecretFound, redacted};
use crate::github::comment;

/// The longest text of an agent that is published, in characters.
pub const PUBLIC_TEXT_LEN_MAX: usize = 4_000;

/// What stands at the end of a text that was longer.
const CUT: &str = "\n\n… (cut)";

/// Words with which GitHub closes an issue that a number behind them names.
const CLOSING: [&str; 9] =
    ["close", "closes", "closed", "fix", "fixes", "fixed", "resolve", "resolves", "resolved"];

/// What the text is made safe for.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRules<'a> {
    /// The host that links may lead to, such as `github.com`.
    pub host: &'a str,
    /// The command word that triggers, such as `/issuebox`.
    pub command: &'a str,
    /// What must not be in it.
    pub secrets: &'a KnownSecrets,
}

/// A text that may be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicText {
    /// Markdown of at most [`PUBLIC_TEXT_LEN_MAX`] characters.
    pub text: String,
    /// Whether something that looked like a token or key was redacted.
    pub is_redacted: bool,
}

/// Makes a text of an agent safe to publish.
///
/// # Errors
/// [`SecretFound`] when it contains a secret of the server, in any form.
pub fn public_text(text: &str, rules: &OutgoingRules<'_>) -> Result<PublicText, SecretFound> {
    rules.secrets.check(text)?;
    rules.secrets.check(&all_text(text))?;
    let text: String = text.replace("\r\n", "\n").chars().filter(|c| !is_shapeless(*c)).collect();
    let mut keep = PUBLIC_TEXT_LEN_MAX;
    loop {
        let beginning = beginning(&text, keep);
        let is_cut = beginning.len() < text.len();
        let mut out = inert(beginning, rules);
        if is_cut {
            out.push_str(CUT);
        }
        if out.chars().count() <= PUBLIC_TEXT_LEN_MAX {
            let is_redacted =
                redacted(&text) != text || redacted(&all_text(&text)) != all_text(&text);
            return Ok(PublicText { text: out, is_redacted });
        }
        keep = keep * 3 / 4;
    }
}

/// One line that does nothing, for sentences of ours that hold words of others.
pub(in crate::github) fn plain(text: &str) -> String {
    safe_text(&one_line(text), None)
}

/// One line of visible characters without anything that looks like a token or key.
pub(in crate::github) fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|c| !is_shapeless(*c)).collect();
    redacted(&line).into_owned()
}

/// A line as inline code.
pub(in crate::github) fn code(line: &str) -> String {
    code_span(line)
}

/// At most so many characters from the beginning.
fn beginning(text: &str, keep: usize) -> &str {
    let end = text.char_indices().nth(keep).map_or(text.len(), |(end, _)| end);
    &text[..end]
}

/// Everything that is shown of a text, without marks.
fn all_text(text: &str) -> String {
    let shown = |event| match event {
        Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => {
            Some(text)
        }
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url),
        _ => None,
    };
    Parser::new(text).filter_map(shown).fold(String::new(), |all, text| all + &text)
}

fn inert(text: &str, rules: &OutgoingRules<'_>) -> String {
    let mut writer = MarkdownWriter::new(rules);
    for event in Parser::new(text) {
        writer.event(event);
    }
    let out = writer.finish();
    if does_nothing(&out, rules) { out } else { fenced("", &redacted(text)) }
}

/// Whether a text, as it would be published, has no effect.
fn does_nothing(text: &str, rules: &OutgoingRules<'_>) -> bool {
    let mut in_code = false;
    let mut run = String::new();
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Text(text) if !in_code => {
                run.push_str(&text);
                continue;
            }
            Event::Start(Tag::Link { dest_url, .. }) if !may_link(&dest_url, rules.host) => {
                return false;
            }
            Event::Start(Tag::Image { .. } | Tag::HtmlBlock)
            | Event::Html(_)
            | Event::InlineHtml(_) => return false,
            _ => {}
        }
        if run.split_whitespace().any(is_active) {
            return false;
        }
        run.clear();
    }
    comment::find(rules.command, text).is_none()
}

/// Whether GitHub may do something with a word: mention, reference, link.
fn is_active(word: &str) -> bool {
    let word = word.to_lowercase();
    let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_hash = (7..=64).contains(&core.len()) && core.bytes().all(|b| b.is_ascii_hexdigit());
    word.contains(['@', '#', '＠', '＃'])
        || word.contains("://")
        || word.contains("www.")
        || word.contains("gh-")
        || is_hash
}

fn is_closing(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphabetic()).to_ascii_lowercase();
    CLOSING.contains(&word.as_str())
}

/// Whether a link may stay: to a page of the host that makes no reference by being linked to.
fn may_link(address: &str, host: &str) -> bool {
    let Some(rest) = address.strip_prefix("https://") else { return false };
    let Some((there, path)) = rest.split_once('/') else { return false };
    let refers = ["issues", "pull", "pulls", "commit", "commits", "discussions", "compare"];
    there.eq_ignore_ascii_case(host)
        && !path.contains(['@', '#', '%', ' ', '<', '>', '(', ')', '\\'])
        && !path
            .split(['/', '?', '&', '='])
            .any(|part| refers.iter().any(|word| part.eq_ignore_ascii_case(word)))
}

/// Text with every word that GitHub acts on in code form, and marks of Markdown escaped. A line that
/// begins with the command is in code form as a whole.
fn safe_text(text: &str, command: Option<&str>) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| safe_line(line, command)).collect();
    lines.join("\n")
}

fn safe_line(line: &str, command: Option<&str>) -> String {
    let trimmed = line.trim_start();
    let begins = command.filter(|command| !command.is_empty()).is_some_and(|command| {
        trimmed.get(..command.len()).is_some_and(|head| head.eq_ignore_ascii_case(command))
    });
    if begins {
        return code_span(trimmed.trim_end());
    }
    let words: Vec<&str> = line.split(' ').collect();
    let safe = words.iter().enumerate().map(|(at, word)| {
        let next = words[at + 1..].iter().find(|word| !word.is_empty());
        if is_active(word) || (is_closing(word) && next.is_some_and(|next| is_active(next))) {
            code_span(word)
        } else {
            escaped(word, at == 0)
        }
    });
    safe.collect::<Vec<_>>().join(" ")
}

fn escaped(word: &str, begins_line: bool) -> String {
    let mut out = String::with_capacity(word.len() + 4);
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    for (at, c) in word.char_indices() {
        let is_mark = "\\`*_[]<>&|~$!".contains(c);
        let at_begin = begins_line
            && ((at == 0 && "-+=".contains(c))
                || (digits > 0 && at == digits && matches!(c, '.' | ')')));
        if is_mark || at_begin {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// A text as inline code, on one line.
fn code_span(text: &str) -> String {
    let text = text.replace('\n', " ");
    let marks = "`".repeat(longest_run(&text) + 1);
    let space = if text.starts_with('`') || text.ends_with('`') || text.trim().is_empty() {
        " "
    } else {
        ""
    };
    format!("{marks}{space}{text}{space}{marks}")
}

/// A text as a block of code.
fn fenced(language: &str, text: &str) -> String {
    let marks = "`".repeat(longest_run(text).max(2) + 1);
    format!("{marks}{language}\n{}\n{marks}", text.trim_end_matches('\n'))
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

/// Writes events as Markdown again.
struct MarkdownWriter<'a> {
    rules: &'a OutgoingRules<'a>,
    /// Finished blocks.
    out: String,
    /// What each line of the next block begins with, by container; and what its first line does.
    containers: Vec<(String, Option<String>)>,
    /// The numbers of open lists, if they have some.
    lists: Vec<Option<u64>>,
    /// The finished part of the current block.
    inline: String,
    /// The text at its end, still to be made safe.
    text: String,
    /// The language, when the text is that of a code block.
    code: Option<String>,
    /// Whether the current block is HTML.
    in_html: bool,
    /// Where the text of each open link begins; `None` for images.
    links: Vec<Option<(usize, String)>>,
    /// What the current block begins with.
    heading: &'static str,
}

impl<'a> MarkdownWriter<'a> {
    const fn new(rules: &'a OutgoingRules<'a>) -> Self {
        Self {
            rules,
            out: String::new(),
            containers: Vec::new(),
            lists: Vec::new(),
            inline: String::new(),
            text: String::new(),
            code: None,
            in_html: false,
            links: Vec::new(),
            heading: "",
        }
    }

    fn finish(mut self) -> String {
        self.end_block();
        self.out
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Text(text) => self.text.push_str(&text),
            Event::Html(html) if self.in_html => self.text.push_str(&html),
            Event::SoftBreak | Event::HardBreak => self.text.push('\n'),
            Event::Code(code) => {
                self.end_text();
                self.push_code(&redacted(&code));
            }
            Event::Rule => {
                self.end_block();
                self.inline.push_str("---");
                self.end_block();
            }
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            // Dropped. What stands on both sides of it becomes one text.
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.end_block();
                self.heading = match level {
                    HeadingLevel::H1 | HeadingLevel::H2 => "## ",
                    _ => "### ",
                };
            }
            Tag::BlockQuote(_) => {
                self.end_block();
                self.containers.push(("> ".to_owned(), None));
            }
            Tag::List(first) => {
                self.end_block();
                self.lists.push(first);
            }
            Tag::Item => {
                self.end_block();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    Some(None) | None => "- ".to_owned(),
                };
                self.containers.push((" ".repeat(marker.len()), Some(marker)));
            }
            Tag::CodeBlock(kind) => {
                self.end_block();
                let info = match kind {
                    CodeBlockKind::Fenced(info) => info.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                let is_name = info.chars().all(|c| c.is_ascii_alphanumeric());
                self.code = Some(if is_name { info } else { String::new() });
            }
            Tag::HtmlBlock => {
                self.end_block();
                self.in_html = true;
            }
            Tag::Emphasis => self.mark("*"),
            Tag::Strong => self.mark("**"),
            Tag::Link { dest_url, .. } => {
                self.end_text();
                self.links.push(Some((self.inline.len(), dest_url.into_string())));
            }
            Tag::Image { .. } => self.links.push(None),
            _ => self.end_block(),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis => self.mark("*"),
            TagEnd::Strong => self.mark("**"),
            TagEnd::Image => drop(self.links.pop()),
            TagEnd::Link => {
                self.end_text();
                if let Some(Some((at, address))) = self.links.pop() {
                    self.end_link(at, &address);
                }
            }
            TagEnd::BlockQuote(_) | TagEnd::Item => {
                self.end_block();
                self.containers.pop();
            }
            TagEnd::List(_) => {
                self.end_block();
                self.lists.pop();
            }
            TagEnd::HtmlBlock => {
                self.text = without_tags(&self.text);
                self.in_html = false;
                self.end_block();
            }
            _ => self.end_block(),
        }
    }

    fn end_link(&mut self, at: usize, address: &str) {
        let shown = self.inline.split_off(at);
        if may_link(address, self.rules.host) && redacted(address) == address {
            self.inline.push_str(&format!("[{shown}]({address})"));
        } else if shown.contains(address) {
            self.inline.push_str(&shown);
        } else {
            self.inline.push_str(&shown);
            self.inline.push_str(" (");
            self.inline.push_str(&code_span(&redacted(address)));
            self.inline.push(')');
        }
    }

    fn mark(&mut self, mark: &str) {
        self.end_text();
        self.inline.push_str(mark);
    }

    fn push_code(&mut self, code: &str) {
        if self.inline.ends_with('`') {
            self.inline.push(' ');
        }
        self.inline.push_str(&code_span(code));
    }

    /// Makes the text at the end of the block safe.
    fn end_text(&mut self) {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return;
        }
        let safe = safe_text(&redacted(&text), Some(self.rules.command));
        if self.inline.ends_with('`') && safe.starts_with('`') {
            self.inline.push(' ');
        }
        self.inline.push_str(&safe);
    }

    /// Writes the current block behind those that are finished.
    fn end_block(&mut self) {
        let block = match self.code.take() {
            Some(language) => fenced(&language, &redacted(&std::mem::take(&mut self.text))),
            None => {
                self.end_text();
                let inline = std::mem::take(&mut self.inline);
                let heading = std::mem::take(&mut self.heading);
                let inline = if heading.is_empty() { inline } else { inline.replace('\n', " ") };
                let inline = inline.trim();
                if inline.is_empty() {
                    return;
                }
                format!("{heading}{inline}")
            }
        };
        if !self.out.is_empty() {
            self.out.push_str("\n\n");
        }
        for (number, line) in block.lines().enumerate() {
            if number > 0 {
                self.out.push('\n');
            }
            for (prefix, first) in &mut self.containers {
                let first = if number == 0 { first.take() } else { None };
                self.out.push_str(first.as_deref().unwrap_or(prefix));
            }
            self.out.push_str(line);
        }
    }
}
