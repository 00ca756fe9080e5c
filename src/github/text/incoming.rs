//! A text that people wrote, as people see it: the parts that GitHub hides are removed and counted.
//!
//! Removed are HTML (comments, tags and their attributes; what stands between two tags stays), link
//! titles and the alternatives of images, links without a visible text, link and footnote
//! definitions that nothing refers to, words behind the language of a code block, and characters
//! that have no shape. Entities are decoded first. As a removal can bring forth another hidden part,
//! all of this is repeated until nothing is found any more.

use std::collections::HashSet;
use std::ops::Range;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use pulldown_cmark::{CodeBlockKind, Event, LinkType, Options, Parser, Tag, TagEnd};

/// How often a text is looked at again before everything that could begin a hidden part is removed.
const ROUNDS_MAX: usize = 32;
/// Longest name of a language behind a code fence, in bytes.
const LANGUAGE_LEN_MAX: usize = 20;
/// What a link's destination has in percent form.
const DESTINATION: &AsciiSet =
    &CONTROLS.add(b' ').add(b'<').add(b'>').add(b'(').add(b')').add(b'\\');

/// How many parts of a text people do not see, by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenParts {
    /// HTML comments, and tags with their attributes.
    pub html: usize,
    /// Titles of links, alternatives of images, links without a text, words behind a language.
    pub titles: usize,
    /// Link and footnote definitions that nothing refers to.
    pub definitions: usize,
    /// Characters that have no shape, or change the direction of writing.
    pub characters: usize,
}

impl HiddenParts {
    /// How many there are together.
    pub const fn total(self) -> usize {
        self.html + self.titles + self.definitions + self.characters
    }

    /// How many there are of each kind, in words; `None` if there are none.
    pub fn in_words(self) -> Option<String> {
        let Self { html, titles, definitions, characters } = self;
        let kinds = [
            (html, "HTML tag or comment", "HTML tags or comments"),
            (titles, "link title or image description", "link titles or image descriptions"),
            (definitions, "unused definition", "unused definitions"),
            (characters, "invisible character", "invisible characters"),
        ];
        let present = kinds.into_iter().filter(|(count, _, _)| *count > 0);
        let words: Vec<_> = present
            .map(|(count, one, more)| format!("{count} {}", if count == 1 { one } else { more }))
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Adds those of another text.
    pub const fn add(&mut self, other: Self) {
        self.html += other.html;
        self.titles += other.titles;
        self.definitions += other.definitions;
        self.characters += other.characters;
    }
}

/// A text without its hidden parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanedText {
    /// What people see, as Markdown.
    pub text: String,
    /// What was removed.
    pub hidden: HiddenParts,
}

/// Removes the hidden parts of a text.
pub fn cleaned(text: &str) -> CleanedText {
    let mut hidden = HiddenParts::default();
    let mut text = shaped(text, &mut hidden);
    for _ in 0..ROUNDS_MAX {
        let next = shaped(&shown(&text, &mut hidden), &mut hidden);
        if next == text {
            return CleanedText { text, hidden };
        }
        text = next;
    }
    let len = text.len();
    text.retain(|c| !matches!(c, '<' | '&' | '[' | ']' | '`' | '~'));
    hidden.html += len - text.len();
    CleanedText { text, hidden }
}

/// What is replaced in a text, by what.
type Edit = (Range<usize>, String);

/// A link or image that is not closed yet.
struct LinkSpan<'a> {
    tag: Tag<'a>,
    range: Range<usize>,
    /// Where its text ends, by what was seen of it.
    text_end: usize,
    /// Whether people see anything of its text.
    is_visible: bool,
}

/// One round over the text's Markdown.
fn shown(text: &str, hidden: &mut HiddenParts) -> String {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_GFM;
    let parser = Parser::new_ext(text, options);
    let definitions: Vec<(String, bool, Range<usize>)> = parser
        .reference_definitions()
        .iter()
        .map(|(label, found)| (label.to_lowercase(), found.title.is_some(), found.span.clone()))
        .collect();
    let mut search = HiddenSearch {
        text,
        hidden,
        edits: Vec::new(),
        open: Vec::new(),
        referred: HashSet::new(),
        footnotes: Vec::new(),
    };
    for (event, range) in parser.into_offset_iter() {
        search.event(event, range);
    }
    search.finish(definitions)
}

/// What one round finds.
struct HiddenSearch<'a> {
    text: &'a str,
    hidden: &'a mut HiddenParts,
    edits: Vec<Edit>,
    open: Vec<LinkSpan<'a>>,
    /// Labels of links, and of footnotes behind a `^`, that something refers to.
    referred: HashSet<String>,
    footnotes: Vec<(String, Range<usize>)>,
}

impl<'a> HiddenSearch<'a> {
    fn event(&mut self, event: Event<'a>, range: Range<usize>) {
        let slice = &self.text[range.clone()];
        self.extend_link(&event, &range);
        match event {
            Event::Start(tag @ (Tag::Link { .. } | Tag::Image { .. })) => {
                let text_end = range.start + if matches!(tag, Tag::Image { .. }) { 2 } else { 1 };
                self.open.push(LinkSpan { tag, range, text_end, is_visible: false });
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                if let Some(link) = self.open.pop() {
                    if let Some(around) = self.open.last_mut() {
                        around.text_end = around.text_end.max(range.end);
                    }
                    self.rewrite(&link);
                }
            }
            Event::Start(Tag::HtmlBlock) => {
                self.hidden.html += 1;
                self.edits.push((range, without_tags(slice)));
            }
            Event::InlineHtml(_) => {
                self.hidden.html += 1;
                self.edits.push((range, String::new()));
            }
            Event::Text(decoded)
                if slice.starts_with('&') && slice.ends_with(';') && slice != &*decoded =>
            {
                self.edits.push((range, decoded.into_string()));
            }
            Event::FootnoteReference(label) => {
                self.referred.insert(format!("^{}", label.to_lowercase()));
            }
            Event::Start(Tag::FootnoteDefinition(label)) => {
                self.footnotes.push((label.to_lowercase(), range));
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                let language = language_of(&info);
                if language != &*info
                    && let Some(line) = slice.lines().next()
                {
                    let marks = line.len() - line.trim_start_matches(['`', '~']).len();
                    let at = range.start + marks..range.start + line.len();
                    self.hidden.titles += 1;
                    self.edits.push((at, language.to_owned()));
                }
            }
            _ => {}
        }
    }

    /// Notes what belongs to the text of the innermost open link.
    fn extend_link(&mut self, event: &Event<'_>, range: &Range<usize>) {
        if let Some(link) = self.open.last_mut()
            && !matches!(event, Event::End(TagEnd::Link | TagEnd::Image))
        {
            link.text_end = link.text_end.max(range.end);
            link.is_visible |= match event {
                Event::Text(text) | Event::Code(text) => !text.trim().is_empty(),
                Event::Start(Tag::Image { .. }) => true,
                _ => false,
            };
        }
    }

    /// Replaces a link or image, if something of it is hidden or stands elsewhere.
    fn rewrite(&mut self, link: &LinkSpan<'_>) {
        let (Tag::Link { link_type, dest_url, title, id }
        | Tag::Image { link_type, dest_url, title, id }) = &link.tag
        else {
            return;
        };
        if matches!(link_type, LinkType::Autolink | LinkType::Email | LinkType::WikiLink { .. }) {
            return;
        }
        self.referred.insert(id.to_lowercase());
        let is_image = matches!(link.tag, Tag::Image { .. });
        let is_hidden = if is_image { link.is_visible } else { !link.is_visible };
        self.hidden.titles += usize::from(is_hidden) + usize::from(!title.is_empty());
        let destination = shaped(dest_url, &mut HiddenParts::default());
        let destination = utf8_percent_encode(&destination, DESTINATION);
        let tail = link.text_end..link.range.end;
        if is_image {
            self.edits.push((link.range.clone(), format!("![]({destination})")));
        } else if is_hidden {
            self.edits.push((link.range.clone(), String::new()));
        } else if let Some(behind) = self.text.get(tail.clone())
            && behind != format!("]({destination})")
        {
            self.edits.push((tail, format!("]({destination})")));
        }
    }

    /// Removes the definitions, of which links have the content by now, and edits the text.
    fn finish(mut self, definitions: Vec<(String, bool, Range<usize>)>) -> String {
        for (label, has_title, span) in definitions {
            if has_title || !self.referred.contains(&label) {
                self.hidden.definitions += 1;
            }
            self.edits.push((span, String::new()));
        }
        for (label, range) in self.footnotes {
            if !self.referred.contains(&format!("^{label}")) {
                self.hidden.definitions += 1;
                self.edits.push((range, String::new()));
            }
        }
        edited(self.text, self.edits)
    }
}

/// The language that a code block's info names; empty when it says anything else.
fn language_of(info: &str) -> &str {
    let first = info.split([' ', '\t', ',', '{']).next().unwrap_or_default();
    let is_name = first.len() <= LANGUAGE_LEN_MAX
        && first.chars().all(|c| c.is_ascii_alphanumeric() || "+#-_.".contains(c));
    if is_name { first } else { "" }
}

/// The text with these parts replaced. Of two that overlap, the one that begins first counts.
fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for (range, replacement) in edits {
        if range.start < at {
            continue;
        }
        out.push_str(&text[at..range.start]);
        out.push_str(&replacement);
        at = range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// What stands between the tags of HTML. What is not closed goes to its end.
pub(super) fn without_tags(html: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(html.len()), html);
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let ends = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("<!", ">")];
        let special = ends.iter().find(|(begin, _)| rest.starts_with(begin));
        let begins_tag =
            rest[1..].trim_start_matches('/').starts_with(|c: char| c.is_ascii_alphabetic());
        let len = match special {
            Some((begin, end)) => {
                let found = rest[begin.len()..].find(end);
                found.map_or(rest.len(), |at| begin.len() + at + end.len())
            }
            None if begins_tag => tag_len(rest),
            None => {
                out.push('<');
                1
            }
        };
        rest = &rest[len.min(rest.len())..];
        if special.is_some() || begins_tag {
            continue;
        }
    }
    out.push_str(rest);
    out
}

/// The length of a tag, with the `>` that is in none of its quoted values.
fn tag_len(tag: &str) -> usize {
    let mut quote = None;
    for (at, c) in tag.char_indices() {
        match (quote, c) {
            (None, '>') => return at + 1,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None | Some(_), _) => {}
        }
    }
    tag.len()
}

/// The text without characters that have no shape. Lines end with `\n`.
fn shaped(text: &str, hidden: &mut HiddenParts) -> String {
    let text = text.replace("\r\n", "\n").replace(['\r', '\u{2028}', '\u{2029}'], "\n");
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut before = None;
    while let Some(c) = chars.next() {
        let after = chars.peek().copied();
        let is_kept = match c {
            '\u{fe0f}' => before.is_some_and(is_pictograph),
            '\u{200d}' => {
                joins(before, after, is_pictograph) || joins(before, after, is_joined_script)
            }
            '\u{200c}' => joins(before, after, is_joined_script),
            _ => !is_shapeless(c),
        };
        if is_kept {
            out.push(c);
            // A selector belongs to the character before it.
            before = if c == '\u{fe0f}' && after != Some('\u{200d}') { None } else { Some(c) };
        } else {
            hidden.characters += 1;
        }
    }
    out
}

fn joins(before: Option<char>, after: Option<char>, is_of: fn(char) -> bool) -> bool {
    before.is_some_and(|c| is_of(c) || c == '\u{fe0f}') && after.is_some_and(is_of)
}

/// Characters without a shape of their own: controls, format characters, fillers, tags, private use,
/// and the selectors of variations that pictographs do not use.
pub(super) const fn is_shapeless(c: char) -> bool {
    matches!(c,
        '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}'
        | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}' | '\u{fe00}'..='\u{fe0e}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' | '\u{f0000}'..='\u{10ffff}')
}

/// Pictographs, arrows and symbols, and the marks that a keycap is made of.
const fn is_pictograph(c: char) -> bool {
    matches!(c, '#' | '*' | '0'..='9' | '\u{a9}' | '\u{ae}' | '\u{2190}'..='\u{2bff}'
        | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{203c}' | '\u{2049}' | '\u{2122}'
        | '\u{2139}' | '\u{1f000}'..='\u{1faff}')
}

/// Letters of scripts in which words need joiners.
const fn is_joined_script(c: char) -> bool {
    matches!(c, '\u{600}'..='\u{7ff}' | '\u{840}'..='\u{dff}' | '\u{1000}'..='\u{109f}'
        | '\u{1780}'..='\u{18af}' | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}')
        && !is_shapeless(c)
}
