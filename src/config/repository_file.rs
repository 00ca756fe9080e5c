//! `.github/issuebox.toml`, which the writers of a repository control: what it may say, and nothing else.

use std::fmt::Display;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::agents;
use super::hooks::{HookNeeds, step};
use super::reader::ConfigReader;
use super::source::{ConfigValue, Sources, Value, ValueOrigin, line_at};
use super::workload;
use crate::types::{HookStep, RepositoryFile, beginning, inert, inert_lines};

/// The largest file, in bytes.
pub const REPOSITORY_FILE_LEN_MAX: usize = 64 * 1024;
/// Most commands of `setup`.
const STEPS_MAX: usize = 32;
/// How many problems are shown.
const PROBLEMS_MAX: usize = 8;
/// How much of a problem is shown, in characters: it may quote the file.
const PROBLEM_LEN_MAX: usize = 300;

/// What a file can say.
const KEYS: &str = "setup, working_dir, instructions";
/// What a command of `setup` can say.
const STEP_KEYS: [&str; 4] = ["run", "cwd", "timeout_seconds", "env"];
/// What the configuration of a template or repository says, and no repository itself.
const OPERATOR_KEYS: [&str; 32] = [
    "agent",
    "allow",
    "allow_private",
    "base_branch",
    "budget",
    "budgets",
    "command",
    "cpu",
    "disk_mb",
    "env",
    "git",
    "github",
    "grace_seconds",
    "hooks",
    "idle_stop_seconds",
    "image",
    "max_turns",
    "memory_mb",
    "mode",
    "model",
    "mounts",
    "network",
    "on_limit",
    "processes",
    "provider",
    "resources",
    "secrets",
    "snapshot",
    "sync",
    "template",
    "triggers",
    "user",
];

/// What a repository's file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryFileText {
    /// `setup`: the commands of the cold start.
    pub setup: Vec<HookStep>,
    /// `working_dir`: where commands of `setup` and the agent start.
    pub working_dir: Option<String>,
    /// `instructions`: what the agent is given to know; may be empty.
    pub instructions: String,
}

impl RepositoryFileText {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it: each problem on a line, with its line in the file and its key.
    pub fn parse(content: &[u8]) -> Result<Self, String> {
        let path = RepositoryFile::PATH;
        if content.len() > REPOSITORY_FILE_LEN_MAX {
            return Err(format!("{path} is larger than {} KiB", REPOSITORY_FILE_LEN_MAX / 1024));
        }
        let text = std::str::from_utf8(content).map_err(|_| format!("{path} is not UTF-8"))?;
        let table = DeTable::parse(text).map_err(|error| {
            let line = line_at(text, error.span().map_or(0, |span| span.start));
            shown(&[format!("{path}:{line}: {}", error.message())])
        })?;
        let mut file = FileReader { text, sources: Sources::default(), problems: Vec::new() };
        let steps = file.table(table.get_ref());
        let FileReader { sources, mut problems, .. } = file;
        let mut r = ConfigReader::new(sources);
        let read = read(&mut r, &steps);
        if let Err(wrong) = r.finish() {
            problems.extend(wrong.iter().map(ToString::to_string));
        }
        if problems.is_empty() { Ok(read) } else { Err(shown(&problems)) }
    }
}

fn read(r: &mut ConfigReader, steps: &[String]) -> RepositoryFileText {
    let working_dir = r.parsed("working_dir", None, |text| match text.starts_with('/') {
        true => Err("must be a directory of the repository".to_owned()),
        false => workload::path(text).map(Some),
    });
    let instructions = agents::instructions(r, "instructions").replace("\r\n", "\n");
    if inert_lines(&instructions) != instructions {
        let what = "must not contain control characters, or marks for the direction of writing";
        r.wrong("instructions", what);
    }
    let needs = HookNeeds { checkout: true, storage: false };
    let mut setup = Vec::new();
    for table in steps {
        let Some(step) = step(r, table, needs) else { continue };
        if step.timeout > RepositoryFile::SETUP_TIME_MAX {
            let most = RepositoryFile::SETUP_TIME_MAX.as_secs();
            let what = format!("must be at most {most}, which is for all of setup together");
            r.wrong(&format!("{table}.timeout_seconds"), &what);
        }
        setup.push(step);
    }
    RepositoryFileText { setup, working_dir, instructions }
}

/// Takes the values out of the TOML, and refuses every key that is not a repository's.
struct FileReader<'a> {
    text: &'a str,
    sources: Sources,
    problems: Vec<String>,
}

impl FileReader<'_> {
    /// Returns the names of the steps of `setup`.
    fn table(&mut self, table: &DeTable<'_>) -> Vec<String> {
        let mut steps = Vec::new();
        for (name, value) in table {
            let at = name.span().start;
            match name.get_ref().as_ref() {
                "setup" => steps = self.setup(at, value),
                key @ ("working_dir" | "instructions") => self.value(key.to_owned(), at, value),
                "ports" => self.refuse(
                    at,
                    "ports is set by the operator, not by a repository: it would let those who can \
                     push here open ports that the operator did not list; remove it",
                ),
                key if OPERATOR_KEYS.contains(&key) => {
                    let why = "is set by the operator, not by a repository; remove it";
                    self.refuse(at, format!("{key} {why}"));
                }
                key => self.refuse(at, format!("unknown key {key}; possible are {KEYS}")),
            }
        }
        steps
    }

    /// Numbers the commands from 1.
    fn setup(&mut self, at: usize, value: &Spanned<DeValue<'_>>) -> Vec<String> {
        let DeValue::Array(items) = value.get_ref() else {
            self.refuse(at, "setup must be a list of commands");
            return Vec::new();
        };
        if items.len() > STEPS_MAX {
            let many = items.len();
            let what = format!("setup has {many} commands; at most {STEPS_MAX} are possible");
            self.refuse(at, format!("{what}: join some of them"));
            return Vec::new();
        }
        let mut steps = Vec::new();
        for (item, number) in items.iter().zip(1..) {
            let (step, at) = (format!("setup.{number}"), item.span().start);
            let is_step = match item.get_ref() {
                DeValue::String(line) => {
                    self.shell(&step, at, line);
                    true
                }
                DeValue::Table(table) => self.step(&step, at, table),
                _ => {
                    self.refuse(at, format!("{step} must be a command, or a table with run"));
                    false
                }
            };
            if is_step {
                steps.push(step);
            }
        }
        steps
    }

    /// Whether it has something to run.
    fn step(&mut self, step: &str, at: usize, table: &DeTable<'_>) -> bool {
        if !table.keys().any(|name| name.get_ref() == "run") {
            self.refuse(at, format!("{step} needs run"));
            return false;
        }
        for (name, value) in table {
            let (key, at) = (name.get_ref().as_ref(), name.span().start);
            let whole = format!("{step}.{key}");
            match value.get_ref() {
                _ if !STEP_KEYS.contains(&key) => {
                    let known = STEP_KEYS.join(", ");
                    self.refuse(at, format!("unknown key {whole}; possible are {known}"));
                }
                DeValue::String(line) if key == "run" => self.shell(step, at, line),
                DeValue::Table(variables) if key == "env" => {
                    let (text, path) = (self.text, Path::new(RepositoryFile::PATH));
                    self.sources.add_table(path, text, &whole, variables);
                }
                _ => self.value(whole, at, value),
            }
        }
        true
    }

    /// A line for the shell.
    fn shell(&mut self, step: &str, at: usize, line: &str) {
        let value = Value::List(["sh", "-c", line].map(|word| Value::Text(word.into())).into());
        let path = RepositoryFile::PATH.into();
        let origin = ValueOrigin::File { path, line: line_at(self.text, at) };
        self.sources.entries.insert(format!("{step}.run"), ConfigValue { value, origin });
    }

    fn value(&mut self, key: String, at: usize, value: &Spanned<DeValue<'_>>) {
        let path = Path::new(RepositoryFile::PATH);
        self.sources.add_value(path, self.text, key, at, value.get_ref());
    }

    fn refuse(&mut self, at: usize, what: impl Display) {
        let line = line_at(self.text, at);
        self.problems.push(format!("{}:{line}: {what}", RepositoryFile::PATH));
    }
}

/// The problems as people read them: the file is anybody's who can push there.
fn shown(problems: &[String]) -> String {
    let first = problems.iter().take(PROBLEMS_MAX);
    let mut lines: Vec<_> =
        first.map(|problem| beginning(&inert(problem), PROBLEM_LEN_MAX)).collect();
    if let Some(more) = problems.len().checked_sub(PROBLEMS_MAX).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}
