//! What results look like: as a table for people, as JSON for programs, or as ids alone.

use std::io::{self, IsTerminal, Write};

use clap::{Args, ValueEnum};
use owo_colors::{OwoColorize, Style};
use serde_json::Value;

use super::connect::Environment;

/// How to show results.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct Shape {
    /// How to show the result
    #[arg(short, long, value_name = "FORMAT", default_value = "table", conflicts_with = "quiet")]
    output: Format,
    /// Show ids alone
    #[arg(short, long)]
    quiet: bool,
}

// Plain comments: documentation would make every verb's help a page of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    // For people, as wide as their terminal.
    #[default]
    Table,
    // For people, with all there is.
    Wide,
    // For programs, as the API says it.
    Json,
    // The same.
    Yaml,
}

/// What was asked for, of the two above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Table(Width),
    Data(Notation),
    Ids,
}

/// How much of it people are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// What fits the terminal.
    Fitting,
    /// All, in lines of whatever length.
    Whole,
}

/// How programs are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notation {
    Json,
    Yaml,
}

impl Shape {
    pub const fn shown(self) -> Shown {
        match (self.quiet, self.output) {
            (true, _) => Shown::Ids,
            (false, Format::Table) => Shown::Table(Width::Fitting),
            (false, Format::Wide) => Shown::Table(Width::Whole),
            (false, Format::Json) => Shown::Data(Notation::Json),
            (false, Format::Yaml) => Shown::Data(Notation::Yaml),
        }
    }
}

/// Standard output and whether it takes colours.
pub(super) struct Screen {
    pub out: io::Stdout,
    pub colours: bool,
    /// How many columns it has; `None` where it is no terminal.
    pub columns: Option<usize>,
}

impl Screen {
    pub fn new(env: &Environment) -> Self {
        let out = io::stdout();
        let colours = takes_colours(out.is_terminal(), env);
        let size = terminal_size::terminal_size_of(&out);
        Self { out, colours, columns: size.map(|(columns, _rows)| usize::from(columns.0)) }
    }

    /// Writes a line.
    pub fn line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{line}")
    }

    /// Writes what programs parse and people can read.
    pub fn data(&mut self, notation: Notation, value: &Value) -> anyhow::Result<()> {
        match notation {
            Notation::Json => writeln!(self.out, "{value:#}")?,
            Notation::Yaml => self.out.write_all(yaml(value)?.as_bytes())?,
        }
        Ok(())
    }

    /// Writes one of many as they come: a line of JSON, or a document of YAML.
    pub fn record(&mut self, notation: Notation, value: &Value) -> anyhow::Result<()> {
        match notation {
            Notation::Json => writeln!(self.out, "{value}")?,
            Notation::Yaml => write!(self.out, "---\n{}", yaml(value)?)?,
        }
        Ok(())
    }

    /// Text in the colour of a phase, where colours are taken.
    pub fn phase(&self, phase: &str, text: &str) -> String {
        self.styled(phase_style(phase), text)
    }

    /// Text of lesser weight.
    pub fn faint(&self, text: &str) -> String {
        self.styled(Style::new().dimmed(), text)
    }

    /// Text that a person is at; marked also where there are no colours.
    pub fn selected(&self, text: &str) -> String {
        text.style(Style::new().reversed()).to_string()
    }

    /// A table whose rows begin with a phase or a status, in its colour. Coloured only now: while columns are
    /// laid out, codes would count as width.
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

/// As YAML, with a line feed at the end.
fn yaml(value: &Value) -> anyhow::Result<String> {
    let mut text = serde_saphyr::to_string(value)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Whether standard error takes colours.
pub(super) fn stderr_has_colours(env: &Environment) -> bool {
    takes_colours(io::stderr().is_terminal(), env)
}

fn takes_colours(is_terminal: bool, env: &Environment) -> bool {
    is_terminal && env.get("NO_COLOR").is_none() && env.get("TERM") != Some("dumb")
}

/// Green is up, blue on its way there, yellow on its way down, red is trouble; deliveries' statuses
/// likewise.
fn phase_style(phase: &str) -> Style {
    match phase {
        "running" | "accepted" => Style::new().green(),
        "creating" | "starting" | "pending" => Style::new().blue(),
        "stopping" | "deleting" | "badly_signed" | "refused" => Style::new().yellow(),
        "failed" | "set_aside" => Style::new().red().bold(),
        // Stopped, deleted and ignored rest; and a later version may know more of them.
        _ => Style::new().dimmed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let env = |name: &str, word: &str| Environment::from_pairs(&[(name, word)]);
        assert!(takes_colours(true, &env("TERM", "xterm")));
        assert!(takes_colours(true, &env("NO_COLOR", "")), "an empty NO_COLOR is not set");
        assert!(!takes_colours(false, &env("TERM", "xterm")));
        assert!(!takes_colours(true, &env("NO_COLOR", "1")));
        assert!(!takes_colours(true, &env("TERM", "dumb")));
    }
}
