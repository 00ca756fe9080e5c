//! `issuebox completions` and `man`: the files that packages install beside the program, generated
//! from the definition of the arguments.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

use super::help;

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// For which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Write a page for each verb into DIR, instead of the first page to standard output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn completions(args: CompletionsArgs) -> anyhow::Result<ExitCode> {
    // Buffered, because the generator panics if standard output is closed.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut help::command(), "issuebox", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn man(args: ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = help::command();
    command.build();
    match args.dir {
        None => std::io::stdout().write_all(&page(&command, "issuebox")?)?,
        Some(dir) => {
            std::fs::create_dir_all(&dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
            for (name, text) in pages(&command)? {
                let path = dir.join(format!("{name}.1"));
                std::fs::write(&path, text)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Every page by its `man` name, such as `issuebox-drift-adopt`.
fn pages(command: &Command) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut pages = Vec::new();
    let mut todo = vec![(command.clone(), command.get_name().to_owned())];
    while let Some((command, name)) = todo.pop() {
        pages.push((name.clone(), page(&command, &name)?));
        let below =
            command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
        todo.extend(below.map(|c| (c.clone(), format!("{name}-{}", c.get_name()))));
    }
    Ok(pages)
}

fn page(command: &Command, name: &str) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut text)?;
    Ok(text)
}
