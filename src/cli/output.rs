//! Prints results: a table for people, JSON or YAML for programs, or ids alone.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use clap::{Args, ValueEnum};
use owo_colors::{OwoColorize, Style};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::types::{acts, inert};

use super::env::EnvVars;

/// How to show results.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct Shape {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table", conflicts_with = "quiet")]
    output: Format,
    /// Print ids only
    #[arg(short, long)]
    quiet: bool,
}

// Plain comments: doc comments would lengthen every verb's help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    // For people, fitted to the terminal.
    #[default]
    Table,
    // For people, untruncated.
    Wide,
    // For programs, as the API returns it.
    Json,
    // The same as YAML.
    Yaml,
}

/// The effective output of the two options above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputMode {
    Table(Width),
    Data(Notation),
    Ids,
}

/// How wide a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// Truncated to the terminal.
    Fitting,
    /// Untruncated.
    Whole,
}

/// The notation for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notation {
    Json,
    Yaml,
}

impl Shape {
    pub const fn mode(self) -> OutputMode {
        match (self.quiet, self.output) {
            (true, _) => OutputMode::Ids,
            (false, Format::Table) => OutputMode::Table(Width::Fitting),
            (false, Format::Wide) => OutputMode::Table(Width::Whole),
            (false, Format::Json) => OutputMode::Data(Notation::Json),
            (false, Format::Yaml) => OutputMode::Data(Notation::Yaml),
        }
    }
}

/// Standard output, and whether it accepts colours.
pub(super) struct Screen {
    pub out: io::Stdout,
    pub colours: bool,
    /// How many columns it has; `None` if it is not a terminal.
    pub columns: Option<usize>,
}

impl Screen {
    pub fn new(env: &EnvVars) -> Self {
        let out = io::stdout();
        let colours = takes_colours(out.is_terminal(), env);
        let size = terminal_size::terminal_size_of(&out);
        Self { out, colours, columns: size.map(|(columns, _rows)| usize::from(columns.0)) }
    }

    /// Writes a line.
    pub fn line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{line}")
    }

    /// Prints a list that was read whole: as data, as ids, or as a table. In place of an empty table it
    /// says `none` on standard error.
    pub fn list<T: DeserializeOwned>(
        &mut self,
        mode: OutputMode,
        items: Vec<Value>,
        id: impl Fn(&T) -> &str,
        table: impl FnOnce(&Self, Width, &[T]) -> String,
        none: &str,
    ) -> anyhow::Result<()> {
        if let OutputMode::Data(notation) = mode {
            return self.data(notation, &Value::Array(items));
        }
        let rows: Vec<T> = items.iter().map(super::wire::read).collect::<Result<_, _>>()?;
        match mode {
            OutputMode::Table(_) if rows.is_empty() => eprintln!("{none}"),
            OutputMode::Table(width) => {
                let table = table(self, width, &rows);
                self.line(&table)?;
            }
            OutputMode::Ids | OutputMode::Data(_) => {
                rows.iter().try_for_each(|row| self.line(&inert(id(row))))?;
            }
        }
        Ok(())
    }

    /// Prints a value as indented JSON, or as YAML.
    pub fn data(&mut self, notation: Notation, value: &Value) -> anyhow::Result<()> {
        match notation {
            Notation::Json => writeln!(self.out, "{}", escaped(&format!("{value:#}")))?,
            Notation::Yaml => self.out.write_all(yaml(value)?.as_bytes())?,
        }
        Ok(())
    }

    /// Prints some of the items of one list, which [`Screen::end_items`] closes: what breaks off in between
    /// is no whole JSON, so that no program takes it for all. `is_begun`: some were printed before.
    pub fn items(
        &mut self,
        notation: Notation,
        items: &[Value],
        is_begun: bool,
    ) -> anyhow::Result<()> {
        let mut text = String::new();
        for (at, item) in items.iter().enumerate() {
            match notation {
                Notation::Json => {
                    text.push_str(if is_begun || at > 0 { ",\n  " } else { "[\n  " });
                    // A line feed inside a text is escaped, so each begins a line of its own.
                    text.push_str(&escaped(&format!("{item:#}")).replace('\n', "\n  "));
                }
                Notation::Yaml => text.push_str(&yaml(&Value::Array(vec![item.clone()]))?),
            }
        }
        Ok(self.out.write_all(text.as_bytes())?)
    }

    /// Ends a list of items; `is_begun`: there was one.
    pub fn end_items(&mut self, notation: Notation, is_begun: bool) -> anyhow::Result<()> {
        match (notation, is_begun) {
            (Notation::Json, true) => writeln!(self.out, "\n]")?,
            (Notation::Yaml, true) => {}
            (Notation::Json | Notation::Yaml, false) => writeln!(self.out, "[]")?,
        }
        Ok(())
    }

    /// Prints one of many values: a line of JSON, or a YAML document.
    pub fn record(&mut self, notation: Notation, value: &Value) -> anyhow::Result<()> {
        match notation {
            Notation::Json => writeln!(self.out, "{}", escaped(&value.to_string()))?,
            Notation::Yaml => write!(self.out, "---\n{}", yaml(value)?)?,
        }
        Ok(())
    }

    /// Text in the colour of a phase, if colours are on.
    pub fn phase(&self, phase: &str, text: &str) -> String {
        self.styled(phase_style(phase), text)
    }

    /// Less prominent text.
    pub fn faint(&self, text: &str) -> String {
        self.styled(Style::new().dimmed(), text)
    }

    /// The selected text, marked also without colours.
    pub fn selected(&self, text: &str) -> String {
        text.style(Style::new().reversed()).to_string()
    }

    /// Colours the first word of each row, a phase or a status. This comes after the layout, which
    /// would count colour codes as width.
    pub fn coloured_by_first_word(&self, table: &str) -> String {
        let coloured = |(at, line): (usize, &str)| {
            let line = line.trim_end();
            let (phase, rest) = line.split_at(line.find(' ').unwrap_or(line.len()));
            match at {
                0 => self.faint(line),
                _ => format!("{}{rest}", self.phase(phase, phase)),
            }
        };
        table.lines().enumerate().map(coloured).collect::<Vec<_>>().join("\n")
    }

    fn styled(&self, style: Style, text: &str) -> String {
        if self.colours { text.style(style).to_string() } else { text.to_owned() }
    }
}

/// JSON in which what a terminal would act upon is escaped. Beyond ASCII that can only be in texts, so
/// it stays the same value; below the space JSON escapes it anyway.
fn escaped(json: &str) -> Cow<'_, str> {
    let is_raw = |c: char| acts(c) && c >= '\u{7f}';
    if !json.contains(is_raw) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        match is_raw(c) {
            // All of these are in the first plane, which takes one escape each.
            true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
    }
    Cow::Owned(text)
}

/// YAML with a final line feed. The writer leaves marks for the direction of writing as they are, also
/// in words without quotes; texts with such characters are written as JSON writes them, which is YAML
/// (1.2, section 1.3).
fn yaml(value: &Value) -> anyhow::Result<String> {
    // Words that no text of a server can contain stand for them meanwhile.
    let (_time, chance) = uuid::Uuid::now_v7().as_u64_pair();
    let mut texts = StandIns { word: format!("text-{chance:x}"), texts: Vec::new() };
    let mut text = serde_saphyr::to_string(&texts.put(value))?;
    for (n, json) in texts.texts.iter().enumerate().rev() {
        text = text.replace(&texts.word_for(n), json);
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Texts that wait to be put into YAML as JSON.
struct StandIns {
    word: String,
    texts: Vec<String>,
}

impl StandIns {
    fn word_for(&self, n: usize) -> String {
        format!("{}-{n}-", self.word)
    }

    fn put(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.put_text(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.put(item)).collect()),
            Value::Object(fields) => {
                let field =
                    |(name, value): (&String, &Value)| (self.put_text(name), self.put(value));
                Value::Object(fields.iter().map(field).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn put_text(&mut self, text: &str) -> String {
        if !text.contains(|c| acts(c) && !c.is_ascii_control()) {
            return text.to_owned();
        }
        self.texts.push(escaped(&Value::from(text).to_string()).into_owned());
        self.word_for(self.texts.len() - 1)
    }
}

/// Whether standard error accepts colours.
pub(super) fn stderr_has_colours(env: &EnvVars) -> bool {
    takes_colours(io::stderr().is_terminal(), env)
}

fn takes_colours(is_terminal: bool, env: &EnvVars) -> bool {
    is_terminal && env.get("NO_COLOR").is_none() && env.get("TERM") != Some("dumb")
}

/// Running is green, starting blue, stopping yellow, failed red; deliveries' statuses likewise.
fn phase_style(phase: &str) -> Style {
    match phase {
        "running" | "accepted" | "succeeded" => Style::new().green(),
        "creating" | "starting" | "pending" | "queued" | "interrupted" => Style::new().blue(),
        "stopping" | "deleting" | "badly_signed" | "refused" | "cancelling"
        | "waiting_for_person" => Style::new().yellow(),
        "failed" | "set_aside" | "over_budget" => Style::new().red().bold(),
        // Stopped, deleted, ignored, and phases of later versions.
        _ => Style::new().dimmed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_without_no_color() {
        let env = |name: &str, word: &str| EnvVars::from_pairs(&[(name, word)]);
        assert!(takes_colours(true, &env("TERM", "xterm")));
        assert!(takes_colours(true, &env("NO_COLOR", "")), "an empty NO_COLOR is not set");
        assert!(!takes_colours(false, &env("TERM", "xterm")));
        assert!(!takes_colours(true, &env("NO_COLOR", "1")));
        assert!(!takes_colours(true, &env("TERM", "dumb")));
    }

    #[test]
    fn what_a_terminal_acts_upon_is_escaped_in_every_notation() {
        let text = "a: \u{9b}31m\u{7f}\u{202e}\u{1b}]0;\u{7}\r\nä\u{2028}漢 \"q\"";
        let value = serde_json::json!({ text: [text, {"plain": "\u{2066}word"}], "n": 7 });
        let json =
            [format!("{value:#}"), value.to_string()].map(|json| escaped(&json).into_owned());
        for written in &json {
            let read: Value = serde_json::from_str(written).expect("JSON");
            assert_eq!(read, value, "the same value");
        }
        let word = escaped(&Value::from(text).to_string()).into_owned();
        let in_yaml = yaml(&value).expect("YAML");
        assert_eq!(in_yaml.matches(&word).count(), 2, "{in_yaml}");
        assert!(in_yaml.contains("plain: \"\\u2066word\"\n"), "{in_yaml}");
        assert!(!in_yaml.contains("text-"), "no stand-in is left: {in_yaml}");
        for written in json.iter().chain([&in_yaml]) {
            assert!(!written.contains(|c| acts(c) && c != '\n'), "{written:?}");
        }
    }
}
