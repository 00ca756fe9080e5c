//! Commands in comments: a line of its own that begins with the command word.
//!
//! # Guarantees
//! Text that is only quoted or shown never counts: block quotes, fenced and indented code,
//! and what HTML hides or sets apart (`<!-- -->`, `<pre>`, `<blockquote>`) are skipped. The first
//! command of a comment is the one that counts.
//!
//! # Words for the sandbox, words for the agent
//! One of the words `stop`, `start`, `retry`, `delete`, `status`, `publish` means the sandbox itself if it
//! stands alone behind the command, whatever its case; marks behind it (`stop!`) are no words. As
//! soon as any other word stands on the line, the whole of it is text for the agent: "stop please"
//! as much as "delete the old migrations". So people need not guess which sentences are taken
//! for commands.
//!
//! # What is accepted
//! This reads lines, it is no Markdown parser. A line that Markdown would draw into the quote
//! above it, although its author did not mark it as quoted, counts; a line indented by four
//! columns never does, also if Markdown would read it as ordinary text.

/// What a comment asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Work on the issue, with or without words for the agent.
    Work,
    /// Do something with the sandbox itself.
    Manage(Management),
}

/// What can be asked about the sandbox itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// Take it down.
    Stop,
    /// Bring it up.
    Start,
    /// Try again after a failure.
    Retry,
    /// Remove it.
    Delete,
    /// Say how it is.
    Status,
    /// Publish its work.
    Publish,
}

impl Management {
    /// The word that asks for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Retry => "retry",
            Self::Delete => "delete",
            Self::Status => "status",
            Self::Publish => "publish",
        }
    }

    const ALL: [Self; 6] =
        [Self::Stop, Self::Start, Self::Retry, Self::Delete, Self::Status, Self::Publish];
}

/// Finds the first command in a comment. An empty command word turns commands off.
pub fn find(command: &str, text: &str) -> Option<Said> {
    let (line, _) = command_line(command, text)?;
    command_in(command, line).map(|(said, _)| said)
}

/// The words for the agent: all that follows the first command of a comment, to the comment's end.
/// `None` when the comment asks for no work or no words follow.
pub fn text_behind<'a>(command: &str, text: &'a str) -> Option<&'a str> {
    let (line, rest) = command_line(command, text)?;
    let (said, words) = command_in(command, line)?;
    // The words stand at the end of their line.
    let behind = &text[text.len() - rest.len() - words.len()..];
    Some(behind.trim()).filter(|words| said == Said::Work && !words.is_empty())
}

/// The line that gives the first command, without its end, and the text from its end on.
fn command_line<'a>(command: &str, text: &'a str) -> Option<(&'a str, &'a str)> {
    if command.is_empty() {
        return None;
    }
    let mut block = Block::Text;
    let mut at = 0;
    for whole in text.split_inclusive('\n') {
        let line = whole.lines().next().unwrap_or_default();
        let end = at + line.len();
        at += whole.len();
        // A line that leaves the list item around a fence is text again.
        let is_text = match block {
            Block::Text => true,
            Block::Fence(fence) => fence.left_by(line),
            Block::Html(_) => false,
        };
        block = match block {
            _ if is_text && command_in(command, line).is_some() => {
                return Some((line, &text[end..]));
            }
            _ if is_text => Block::opened_by(line),
            Block::Fence(fence) if fence.closed_by(line) => Block::Text,
            Block::Html(end) if contains_ignoring_case(line, end) => Block::Text,
            inside @ (Block::Text | Block::Fence(_) | Block::Html(_)) => inside,
        };
    }
    None
}

/// The command that a line of ordinary text gives, and what stands behind it on the line.
fn command_in<'a>(command: &str, line: &'a str) -> Option<(Said, &'a str)> {
    let (indent, line) = split_indent(line);
    if indent > CODE_INDENT_MIN - 1 {
        return None;
    }
    let word = line.get(..command.len())?;
    if !word.eq_ignore_ascii_case(command) {
        return None;
    }
    let rest = &line[command.len()..];
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return None;
    }
    let alone = rest.trim().trim_end_matches(ENDS);
    let managed = Management::ALL.into_iter().find(|m| m.as_str().eq_ignore_ascii_case(alone));
    Some((managed.map_or(Said::Work, Said::Manage), rest))
}

/// Marks that may end a word.
const ENDS: [char; 4] = ['.', '!', ',', ';'];

/// Columns of indentation from which on Markdown reads a line as code.
const CODE_INDENT_MIN: usize = 4;

/// What HTML begins a block whose text does not count, and what ends it.
const HTML_BLOCKS: [(&str, &str); 3] =
    [("<!--", "-->"), ("<pre", "</pre>"), ("<blockquote", "</blockquote>")];

/// What kind of block the next line stands in.
#[derive(Clone, Copy)]
enum Block {
    /// Ordinary text, in which every line is looked at by itself.
    Text,
    /// Fenced code.
    Fence(Fence),
    /// Until a line that contains this.
    Html(&'static str),
}

impl Block {
    /// The block in which the line after this line of ordinary text stands.
    fn opened_by(line: &str) -> Self {
        if let Some(fence) = Fence::opened_by(line) {
            return Self::Fence(fence);
        }
        let (indent, text) = split_indent(line);
        let html = HTML_BLOCKS.iter().find(|(begin, end)| {
            indent < CODE_INDENT_MIN
                && text.get(..begin.len()).is_some_and(|head| head.eq_ignore_ascii_case(begin))
                && !contains_ignoring_case(&text[begin.len()..], end)
        });
        html.map_or(Self::Text, |(_, end)| Self::Html(end))
    }
}

/// An open code fence.
#[derive(Clone, Copy)]
struct Fence {
    mark: char,
    /// How many marks opened it; at least as many close it.
    len: usize,
    /// The column at which the text of the list item around it begins; 0 outside of lists.
    container: usize,
}

impl Fence {
    fn opened_by(line: &str) -> Option<Self> {
        let mut container = 0;
        let mut rest = line;
        loop {
            let (indent, text) = split_indent(rest);
            if indent >= CODE_INDENT_MIN {
                return None;
            }
            for mark in ['`', '~'] {
                let len = text.chars().take_while(|c| *c == mark).count();
                // Behind backticks another one means that the line is inline code.
                let inline = mark == '`' && text[len..].contains('`');
                if len >= 3 && !inline {
                    return Some(Self { mark, len, container });
                }
            }
            let marker = list_marker_len(text)?;
            container += indent + marker;
            rest = &text[marker..];
        }
    }

    fn closed_by(self, line: &str) -> bool {
        let (indent, text) = split_indent(line);
        let len = text.chars().take_while(|c| *c == self.mark).count();
        indent < self.container + CODE_INDENT_MIN
            && len >= self.len
            && text[len..].trim().is_empty()
    }

    /// Whether the line stands outside the list item that holds the fence, which ends it.
    fn left_by(self, line: &str) -> bool {
        let (indent, text) = split_indent(line);
        !text.is_empty() && indent < self.container
    }
}

/// The length of a list marker and the space behind it: `- `, `* `, `+ `, `1. `, `1) `.
fn list_marker_len(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &text.as_bytes()[digits..];
    match (digits, rest) {
        (0, [b'-' | b'*' | b'+', b' ', ..]) => Some(2),
        (1..=9, [b'.' | b')', b' ', ..]) => Some(digits + 2),
        _ => None,
    }
}

/// The columns of indentation, a tab counting to the next multiple of four, and what follows.
fn split_indent(line: &str) -> (usize, &str) {
    let mut columns = 0;
    for (at, c) in line.char_indices() {
        match c {
            ' ' => columns += 1,
            '\t' => columns += 4 - columns % 4,
            _ => return (columns, &line[at..]),
        }
    }
    (columns, "")
}

fn contains_ignoring_case(text: &str, part: &str) -> bool {
    text.as_bytes().windows(part.len()).any(|w| w.eq_ignore_ascii_case(part.as_bytes()))
}

#[cfg(test)]
mod tests;
