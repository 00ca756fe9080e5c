//! Turns the output of programs into safe HTML: colours and weight are kept, all other terminal
//! control is dropped.
//!
//! Only SGR (`ESC [ … m`) is understood, and becomes classes of our own style sheet. Moving the
//! cursor, titles, links (OSC 8), the clipboard (OSC 52), device control and all other sequences
//! are dropped, complete or not. Text is escaped for HTML; bidirectional control characters are
//! written out. A line takes bounded space.
//!
//! Output arrives in pieces that can be cut inside a sequence or a character: [`Painter`] keeps its
//! state between them. Each piece that it returns is complete HTML.

use std::fmt::Write as _;

use crate::types::{inert, unfinished_len};

/// Characters of one line that are shown; the rest is counted.
pub const LINE_LEN_MAX: usize = 4_000;
/// Longest sequence that is parsed, in bytes; longer ones are dropped.
const SEQUENCE_LEN_MAX: usize = 64;

/// Turns output into HTML.
#[derive(Debug, Default)]
pub struct Painter {
    state: ParserState,
    style: Style,
    /// The beginning of an incomplete character.
    cut: Vec<u8>,
    /// Characters of this line that were shown, and that were left out.
    shown: usize,
    left_out: usize,
    after_return: bool,
}

/// The position in a control sequence.
#[derive(Debug, Default)]
enum ParserState {
    #[default]
    Text,
    /// After an ESC.
    Escape,
    /// After `ESC [`: parameters so far, or too many of them.
    Control(String),
    /// In a string (OSC, DCS, PM, APC, SOS): dropped until it ends.
    Quoted,
    /// After `ESC` and an intermediate byte, such as `ESC (`: one more byte belongs to it.
    Intermediate,
}

/// How text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Style {
    front: Option<u8>,
    back: Option<u8>,
    bold: bool,
    dim: bool,
    italic: bool,
    underline: bool,
    struck: bool,
    inverse: bool,
}

impl Painter {
    /// Returns the next piece as HTML.
    pub fn paint(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.cut);
        all.extend_from_slice(bytes);
        let whole = all.len() - unfinished_len(&all);
        self.cut = all.split_off(whole);
        let text = String::from_utf8_lossy(&all);
        let mut html = Html::open(self.style);
        for c in text.chars() {
            self.take(c, &mut html);
        }
        html.close()
    }

    /// Returns the rest at the end of the output.
    pub fn end(&mut self) -> String {
        let cut = std::mem::take(&mut self.cut);
        let mut html = Html::open(self.style);
        if !cut.is_empty() {
            self.show('\u{fffd}', &mut html);
        }
        self.note_left_out(&mut html);
        html.close()
    }

    fn take(&mut self, c: char, html: &mut Html) {
        self.state = match (std::mem::take(&mut self.state), c) {
            // ESC always begins a sequence; `ESC \` ends a string.
            (_, '\u{1b}') => ParserState::Escape,
            (ParserState::Quoted, '\u{7}' | '\u{9c}' | '\u{18}' | '\u{1a}') => ParserState::Text,
            (ParserState::Quoted, _) => ParserState::Quoted,
            (_, '\u{9b}') => ParserState::Control(String::new()),
            (_, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}') => ParserState::Quoted,
            (ParserState::Escape, '[') => ParserState::Control(String::new()),
            (ParserState::Escape, ']' | 'P' | 'X' | '^' | '_') => ParserState::Quoted,
            (ParserState::Escape, ' '..='/') => ParserState::Intermediate,
            (ParserState::Intermediate, ' '..='/') => ParserState::Intermediate,
            (ParserState::Escape | ParserState::Intermediate, _) => ParserState::Text,
            (ParserState::Control(mut parameters), ' '..='?') => {
                if parameters.len() <= SEQUENCE_LEN_MAX {
                    parameters.push(c);
                }
                ParserState::Control(parameters)
            }
            (ParserState::Control(parameters), 'm') => {
                if parameters.len() <= SEQUENCE_LEN_MAX {
                    self.style.change(&parameters);
                    html.restyle(self.style);
                }
                ParserState::Text
            }
            (ParserState::Control(_), '@'..='~') => ParserState::Text,
            // A terminal executes a control character inside a sequence; here it ends the sequence.
            (ParserState::Control(_) | ParserState::Text, c) => {
                self.show(c, html);
                ParserState::Text
            }
        };
    }

    fn show(&mut self, c: char, html: &mut Html) {
        // A lone carriage return restarts the line, as progress bars do; with a line feed it ends
        // the line.
        let returned = std::mem::replace(&mut self.after_return, c == '\r');
        if returned && c != '\n' && c != '\r' {
            self.new_line(html);
        }
        match c {
            '\n' => self.new_line(html),
            '\r' => {}
            '\t' => self.put(html, "\t"),
            c if c.is_control() => {}
            '&' => self.put(html, "&amp;"),
            '<' => self.put(html, "&lt;"),
            '>' => self.put(html, "&gt;"),
            '"' => self.put(html, "&quot;"),
            '\'' => self.put(html, "&#39;"),
            c => {
                let mut buffer = [0; 4];
                let text: &str = c.encode_utf8(&mut buffer);
                self.put(html, &inert(text));
            }
        }
    }

    fn put(&mut self, html: &mut Html, text: &str) {
        if self.shown < LINE_LEN_MAX {
            self.shown += 1;
            html.push(text);
        } else {
            self.left_out += 1;
        }
    }

    fn new_line(&mut self, html: &mut Html) {
        self.note_left_out(html);
        self.shown = 0;
        html.push("\n");
    }

    fn note_left_out(&mut self, html: &mut Html) {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            html.restyle(Style::default());
            let note = format!("<span class=\"cut\"> … {left_out} more characters</span>");
            html.push(&note);
            html.restyle(self.style);
        }
    }
}

/// HTML being written, with at most one span open.
struct Html {
    text: String,
    style: Style,
    is_open: bool,
}

impl Html {
    fn open(style: Style) -> Self {
        Self { text: String::new(), style, is_open: false }
    }

    fn restyle(&mut self, style: Style) {
        if self.style != style {
            self.shut();
            self.style = style;
        }
    }

    fn push(&mut self, text: &str) {
        if !self.is_open && self.style != Style::default() {
            self.text.push_str("<span class=\"");
            self.style.write(&mut self.text);
            self.text.push_str("\">");
            self.is_open = true;
        }
        self.text.push_str(text);
    }

    fn shut(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.text.push_str("</span>");
        }
    }

    fn close(mut self) -> String {
        self.shut();
        self.text
    }
}

impl Style {
    /// Applies the parameters of an SGR sequence; unknown ones are skipped.
    fn change(&mut self, parameters: &str) {
        let mut numbers = parameters.split([';', ':']).map(|part| match part {
            "" => Some(0),
            part => part.parse::<u16>().ok(),
        });
        while let Some(number) = numbers.next() {
            match number {
                Some(0) => *self = Self::default(),
                Some(1) => self.bold = true,
                Some(2) => self.dim = true,
                Some(3) => self.italic = true,
                Some(4) => self.underline = true,
                Some(7) => self.inverse = true,
                Some(9) => self.struck = true,
                Some(22) => (self.bold, self.dim) = (false, false),
                Some(23) => self.italic = false,
                Some(24) => self.underline = false,
                Some(27) => self.inverse = false,
                Some(29) => self.struck = false,
                Some(n @ 30..=37) => self.front = Some((n - 30) as u8),
                Some(38) => self.front = extended(&mut numbers),
                Some(39) => self.front = None,
                Some(n @ 40..=47) => self.back = Some((n - 40) as u8),
                Some(48) => self.back = extended(&mut numbers),
                Some(49) => self.back = None,
                Some(n @ 90..=97) => self.front = Some((n - 82) as u8),
                Some(n @ 100..=107) => self.back = Some((n - 92) as u8),
                Some(_) | None => {}
            }
        }
    }

    /// The classes of the style sheet.
    fn write(self, classes: &mut String) {
        let begin = classes.len();
        let flags = [
            (self.bold, "bo "),
            (self.dim, "di "),
            (self.italic, "it "),
            (self.underline, "un "),
            (self.struck, "st "),
            (self.inverse, "in "),
        ];
        for (is_set, class) in flags {
            if is_set {
                classes.push_str(class);
            }
        }
        // Writing to a string does not fail.
        if let Some(front) = self.front {
            let _ = write!(classes, "f{front} ");
        }
        if let Some(back) = self.back {
            let _ = write!(classes, "b{back} ");
        }
        if classes.len() > begin {
            classes.pop();
        }
    }
}

/// Maps an extended colour to the nearest of the 16 colours.
fn extended(numbers: &mut impl Iterator<Item = Option<u16>>) -> Option<u8> {
    match numbers.next().flatten()? {
        5 => {
            let index = u8::try_from(numbers.next().flatten()?).ok()?;
            Some(match index {
                0..=15 => index,
                16..=231 => {
                    let cube = index - 16;
                    let level = |part: u8| if part == 0 { 0 } else { 55 + 40 * part };
                    nearest(level(cube / 36), level(cube / 6 % 6), level(cube % 6))
                }
                grey => {
                    nearest(8 + 10 * (grey - 232), 8 + 10 * (grey - 232), 8 + 10 * (grey - 232))
                }
            })
        }
        2 => {
            let mut part = || u8::try_from(numbers.next().flatten()?).ok();
            Some(nearest(part()?, part()?, part()?))
        }
        _ => None,
    }
}

fn nearest(red: u8, green: u8, blue: u8) -> u8 {
    let most = red.max(green).max(blue);
    if most < 64 {
        return 0;
    }
    let bit = |part: u8, value: u8| if part >= most / 2 + most / 6 { value } else { 0 };
    let colour = bit(red, 1) | bit(green, 2) | bit(blue, 4);
    // There are two more greys: dark grey and white.
    match (colour, most) {
        (7, 64..128) => 8,
        (colour, 192..) => colour + 8,
        (colour, _) => colour,
    }
}

#[cfg(test)]
mod tests;
