//! The command line: one verb a file. Remote verbs speak HTTP to a server, as any program would;
//! nothing here knows the engine or a store.
//!
//! # Guarantees
//! - Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found; `exec` returns the command's own.
//! - Results go to standard output, everything else to standard error. Colours and the spinner
//!   appear on terminals only; `NO_COLOR` is respected.
//! - What the server says (titles, reasons, names) is made inert before a terminal sees it. Only
//!   `exec` writes bytes as they are, as the command meant them.
//! - A token is never an argument: arguments are readable by every process of the machine.

mod act;
mod backup;
mod client;
mod completions;
mod config;
mod confirm;
mod connect;
mod deliveries;
mod demo;
mod doctor;
mod drift;
mod ensure;
mod events;
mod exec;
mod failure;
mod files;
mod get;
mod hold;
mod login;
mod logs;
mod ls;
mod output;
mod port_forward;
mod progress;
mod raw;
mod rejoin;
mod retry;
mod rm;
mod serve;
mod sse;
mod start;
mod stop;
mod table;
mod target;
mod top;
mod trouble;
mod version;
mod wait;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use client::ApiClient;
use connect::Environment;
use output::Screen;

/// Exactly one sandbox for every GitHub issue.
#[derive(Debug, Parser)]
#[command(name = "issuebox", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
ISSUE is an issue id, owner/repo#number, an issue's URL, a sandbox's id or its name.
Exit code: 0 done, 1 failed, 2 wrong usage, 3 not found; exec returns the command's own.")]
struct Cli {
    #[command(flatten)]
    place: ServerArgs,
    #[command(subcommand)]
    verb: CliVerb,
}

/// Which server, and what is known of it on its own machine.
#[derive(Clone, Debug, Default, Args)]
struct ServerArgs {
    /// The server [env: ISSUEBOX_SERVER] [default: the one on this machine]
    // Without a URL it is empty: that means something to `hold` and `release` alone.
    #[arg(long, global = true, help_heading = "Which server", value_name = "URL",
          num_args = 0..=1, default_missing_value = "")]
    server: Option<String>,
    /// Read the token from FILE [env: ISSUEBOX_TOKEN is the token itself] [default: the file
    /// `admin-token` in the data directory of the server on this machine]
    #[arg(long, global = true, help_heading = "Which server", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The configuration [default: issuebox.toml, where there is one]
    #[arg(long, global = true, help_heading = "Which server", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory of the server on this machine [env: ISSUEBOX_DATA]
    #[arg(long, global = true, help_heading = "Which server", value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum CliVerb {
    /// Run the server
    Serve(serve::ServeArgs),
    /// See it work in a minute: a fresh server, deliveries, sandboxes, and what came of it
    Demo(demo::DemoArgs),
    /// Give an issue its sandbox, or show the one it has
    Ensure(ensure::EnsureArgs),
    /// Show an issue's sandbox
    Get(get::GetArgs),
    /// List sandboxes
    Ls(ls::LsArgs),
    /// Take sandboxes down; their workspaces are kept
    Stop(stop::StopArgs),
    /// Bring sandboxes up
    Start(start::StartArgs),
    /// Try again what a failed sandbox failed at
    Retry(retry::RetryArgs),
    /// Remove sandboxes and their workspaces
    Rm(rm::RmArgs),
    /// Run a command in a sandbox, or a shell with -it
    Exec(exec::ExecArgs),
    /// Look into a workspace, and take files out of it and into it
    #[command(subcommand)]
    Files(files::FilesVerb),
    /// Reach servers in a sandbox on ports of this machine
    PortForward(port_forward::PortForwardArgs),
    /// Show what commands in a sandbox wrote
    Logs(logs::LogsArgs),
    /// Show what happened to an issue, or follow what happens to all
    Events(events::EventsArgs),
    /// Watch all sandboxes live, what needs attention first
    Top(top::TopArgs),
    /// Show what came from GitHub, and what came of it
    Deliveries(deliveries::DeliveriesArgs),
    /// Wait until a sandbox is in a phase
    Wait(wait::WaitArgs),
    /// Hold an issue, a repository or everything: nothing is made or started until released
    Hold(hold::HoldArgs),
    /// Release what is held
    Release(hold::ReleaseArgs),
    /// List what is held
    Holds(hold::HoldsArgs),
    /// Show what records and providers disagree on, and decide about it
    Drift(drift::DriftArgs),
    /// Write the records of the server on this machine to a file, also while it runs
    Backup(backup::BackupArgs),
    /// Put a backup back; everything is held until released
    Restore(backup::RestoreArgs),
    /// Make a link that logs a person in to the dashboard, once
    Login(login::LoginArgs),
    /// Say what is missing or wrong, and what to do about it
    Doctor(doctor::DoctorArgs),
    /// Look at the configuration
    #[command(subcommand)]
    Config(config::ConfigVerb),
    /// Write the completions for a shell to standard output
    Completions(completions::CompletionsArgs),
    /// Write the manual to standard output
    #[command(hide = true)]
    Man(completions::ManArgs),
    /// Show the version
    Version(version::VersionArgs),
}

/// Runs the program: reads the arguments, does what they ask, and says how it ended.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(asked) => {
            // Help and version are no errors; writing them fails only where nobody reads.
            let code = if asked.use_stderr() { failure::USAGE } else { 0 };
            return if asked.print().is_ok() { ExitCode::from(code) } else { ExitCode::SUCCESS };
        }
    };
    let env = Environment::of_process();
    match dispatch(cli, &env) {
        Ok(code) => code,
        Err(error) => failure::report(&error, &env),
    }
}

fn dispatch(cli: Cli, env: &Environment) -> anyhow::Result<ExitCode> {
    let place = cli.place;
    match cli.verb {
        CliVerb::Serve(args) => serve::run(&place, args, env),
        CliVerb::Demo(args) => demo::run(args, env),
        CliVerb::Backup(args) => backup::backup(&place, args, env),
        CliVerb::Restore(args) => backup::restore(&place, args, env),
        CliVerb::Doctor(args) => doctor::run(&place, args, env),
        CliVerb::Config(verb) => config::run(&place, verb, env),
        CliVerb::Completions(args) => completions::completions(args),
        CliVerb::Man(args) => completions::man(args),
        CliVerb::Version(args) => version::run(args, env),
        CliVerb::Ensure(args) => remote(&place, env, async |s| ensure::run(s, args).await),
        CliVerb::Get(args) => remote(&place, env, async |s| get::run(s, args).await),
        CliVerb::Ls(args) => remote(&place, env, async |s| ls::run(s, args).await),
        CliVerb::Stop(args) => remote(&place, env, async |s| stop::run(s, args).await),
        CliVerb::Start(args) => remote(&place, env, async |s| start::run(s, args).await),
        CliVerb::Retry(args) => remote(&place, env, async |s| retry::run(s, args).await),
        CliVerb::Rm(args) => remote(&place, env, async |s| rm::run(s, args).await),
        CliVerb::Exec(args) => remote(&place, env, async |s| exec::run(s, args).await),
        CliVerb::Files(verb) => remote(&place, env, async |s| files::run(s, verb).await),
        CliVerb::PortForward(args) => {
            remote(&place, env, async |s| port_forward::run(s, args).await)
        }
        CliVerb::Logs(args) => remote(&place, env, async |s| logs::run(s, args).await),
        CliVerb::Events(args) => remote(&place, env, async |s| events::run(s, args).await),
        CliVerb::Hold(mut args) => {
            let place = args.what.take_bare_server(place);
            remote(&place, env, async |s| hold::hold(s, args).await)
        }
        CliVerb::Release(mut args) => {
            let place = args.what.take_bare_server(place);
            remote(&place, env, async |s| hold::release(s, args).await)
        }
        CliVerb::Holds(args) => remote(&place, env, async |s| hold::list(s, args).await),
        CliVerb::Drift(args) => remote(&place, env, async |s| drift::run(s, args).await),
        CliVerb::Deliveries(args) => remote(&place, env, async |s| deliveries::run(s, args).await),
        CliVerb::Top(args) => remote(&place, env, async |s| top::run(s, args).await),
        CliVerb::Login(args) => remote(&place, env, async |s| login::run(s, args).await),
        CliVerb::Wait(args) => remote(&place, env, async |s| wait::run(s, args).await),
    }
}

/// What a remote verb works with.
struct Session<'a> {
    client: ApiClient,
    screen: Screen,
    env: &'a Environment,
}

/// Runs a remote verb on a runtime of its own.
fn remote(
    place: &ServerArgs,
    env: &Environment,
    verb: impl AsyncFnOnce(&mut Session<'_>) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let client = connect::connect(place, env)?;
    let mut session = Session { client, screen: Screen::new(env), env };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(verb(&mut session));
    // Standard input may still be waited for, on a thread that nothing can end.
    runtime.shutdown_background();
    ended
}

#[cfg(test)]
mod tests;
