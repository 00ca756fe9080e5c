//! The command line: one verb a file. Remote verbs call a server's HTTP API; they use neither the
//! engine nor a store.
//!
//! # Guarantees
//! - Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found; `exec` returns the command's own, or 127
//!   and 126 as a shell does.
//! - Results go to standard output, everything else to standard error. Colours and the spinner
//!   appear on terminals only; `NO_COLOR` is respected.
//! - Text from the server (titles, reasons, names) is made inert before it is printed. Only `exec`
//!   writes a command's bytes unchanged.
//! - A token is never an argument, because every process of the machine can read arguments. It goes
//!   only to the server that it was given for, see `connect`.

mod account;
mod act;
mod answer;
mod backup;
mod chat;
mod client;
mod completions;
mod config;
mod confirm;
mod connect;
mod connect_github;
mod cp;
mod deliveries;
mod demo;
mod doctor;
mod drift;
mod ensure;
mod env;
mod events;
mod exec;
mod failure;
mod files;
mod get;
mod help;
mod hints;
mod hold;
mod login;
mod logs;
mod ls;
mod open;
mod output;
mod port_forward;
mod progress;
mod provider_errors;
mod publish;
mod raw;
mod rejoin;
mod restart;
mod retry;
mod rm;
mod runs;
mod serve;
mod sse;
mod stand_in;
mod start;
mod stop;
mod sync;
mod table;
mod target;
mod templates;
mod token;
mod top;
mod unresolved;
mod usage;
mod version;
mod wait;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, FromArgMatches, Parser, Subcommand};

use client::ApiClient;
use env::EnvVars;
use output::Screen;

/// Exactly one sandbox for every GitHub issue.
#[derive(Debug, Parser)]
#[command(name = "issuebox", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Address and token come from the first source that is given:
  --server URL, ISSUEBOX_SERVER     the token is ISSUEBOX_TOKEN; for the address at which the server
                                    on this machine listens also that server's own
  --config FILE                     the server of this configuration, and its token
  --data DIR, ISSUEBOX_DATA, or     the server that runs on this data directory, and the token there
  the default data directory
With --token-file the token of that file is sent instead. A token goes over https or to this machine
only, unless --insecure-http is given.

ISSUE is one of
  octo/hello#12                              its repository and number
  https://github.com/octo/hello/issues/12    its URL
  2874100012                                 its id at GitHub, or the id that a caller chose
  claude-issue-2874100012                    the name of its sandbox, or that sandbox's id

Examples:
  issuebox serve                             run a server here
  issuebox ensure octo/hello#12 --wait       create the issue's sandbox
  issuebox shell octo/hello#12               work in it
  issuebox exec octo/hello#12 make test      run a command in it
  issuebox cp octo/hello#12:src/main.rs .    copy a file out of it
  issuebox logs -f octo/hello#12             follow the output of its commands
  issuebox chat octo/hello#12 fix the build  say something to its agent, see what it does

Exit code: 0 done, 1 failed, 2 wrong usage, 3 not found; exec returns the command's own, 127 if
there is no such command and 126 if it cannot be executed.")]
struct Cli {
    #[command(flatten)]
    server_args: ServerArgs,
    #[command(subcommand)]
    verb: CliVerb,
}

/// Which server to call, and how to find the one on this machine.
#[derive(Clone, Debug, Default, Args)]
struct ServerArgs {
    /// The server [env: ISSUEBOX_SERVER] [default: the one on this machine]
    #[arg(long, global = true, help_heading = "Which server", value_name = "URL")]
    server: Option<String>,
    /// Read the token from FILE [env: with --server or ISSUEBOX_SERVER, ISSUEBOX_TOKEN is the token
    /// itself] [default: that of the server on this machine]
    #[arg(long, global = true, help_heading = "Which server", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The configuration of the server on this machine [default: for serve, config check and doctor
    /// issuebox.toml, if it exists; for all others none]
    #[arg(long, global = true, help_heading = "Which server", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory of the server on this machine [env: ISSUEBOX_DATA]
    #[arg(long, global = true, help_heading = "Which server", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Act in this account, which needs the role admin [env: ISSUEBOX_ACCOUNT] [default: that of the
    /// token]
    #[arg(long, global = true, help_heading = "Which server", value_name = "NAME")]
    account: Option<String>,
    /// Send the token over http to another machine too, where everybody on the way can read it [env:
    /// ISSUEBOX_INSECURE_HTTP=1]
    #[arg(long, global = true, help_heading = "Which server")]
    insecure_http: bool,
}

#[derive(Debug, Subcommand)]
enum CliVerb {
    /// Run the server
    Serve(serve::ServeArgs),
    /// Try issuebox in a minute: a fresh server, webhook deliveries, sandboxes and a report
    Demo(demo::DemoArgs),
    /// Create an issue's sandbox, or show the one it has
    Ensure(ensure::EnsureArgs),
    /// Show an issue's sandbox
    #[command(visible_aliases = ["describe", "inspect"])]
    Get(get::GetArgs),
    /// List sandboxes
    #[command(visible_aliases = ["list", "ps"])]
    Ls(ls::LsArgs),
    /// Stop sandboxes; their workspaces are kept
    Stop(stop::StopArgs),
    /// Start sandboxes
    Start(start::StartArgs),
    /// Stop sandboxes and start them again; their workspaces are kept
    Restart(restart::RestartArgs),
    /// Retry the step at which a sandbox failed
    Retry(retry::RetryArgs),
    /// Publish the work of a sandbox whose pushes wait for that
    Publish(publish::PublishArgs),
    /// Remove sandboxes and their workspaces
    #[command(visible_alias = "delete")]
    Rm(rm::RmArgs),
    /// Run a command in a sandbox, or a shell with -it
    Exec(exec::ExecArgs),
    /// Open a login shell in a sandbox, as exec -it does
    #[command(visible_alias = "ssh")]
    Shell(exec::ShellArgs),
    /// Talk with the agent of an issue: say something and see what it does
    Chat(chat::ChatArgs),
    /// List the runs of agents
    Runs(runs::RunsArgs),
    /// Answer what the agent of an issue asks
    Answer(answer::AnswerArgs),
    /// Cancel the run of an issue's agent
    Cancel(runs::CancelArgs),
    /// Show what agents used of models, and what that cost
    Usage(usage::UsageArgs),
    /// Copy files and directories between this machine and a workspace
    Cp(cp::CpArgs),
    /// Read and change files of a workspace
    #[command(subcommand)]
    Files(files::FilesVerb),
    /// Store a workspace in the object storage, or bring it to a stored version
    #[command(subcommand)]
    Sync(sync::SyncVerb),
    /// Forward local ports to servers in a sandbox
    PortForward(port_forward::PortForwardArgs),
    /// Show the output of commands in a sandbox
    Logs(logs::LogsArgs),
    /// Show the history of an issue, or follow the events of all issues
    Events(events::EventsArgs),
    /// Watch all sandboxes live; those that need attention come first
    Top(top::TopArgs),
    /// Show deliveries from GitHub and their results
    Deliveries(deliveries::DeliveriesArgs),
    /// Wait until a sandbox reaches a phase
    Wait(wait::WaitVerbArgs),
    /// Hold an issue, a repository or everything: no sandbox is created or started until released
    Hold(hold::HoldArgs),
    /// Release a hold
    Release(hold::ReleaseArgs),
    /// List holds
    Holds(hold::HoldsArgs),
    /// List the templates that sandboxes can be created from
    Templates(templates::TemplatesArgs),
    /// Show where records and providers disagree, and resolve it
    Drift(drift::DriftArgs),
    /// Back up the records of the server on this machine to a file, also while it runs
    Backup(backup::BackupArgs),
    /// Restore a backup; everything is held until released
    Restore(backup::RestoreArgs),
    /// Create, list and delete tokens of the API
    #[command(subcommand)]
    Token(token::TokenVerb),
    /// List accounts and say what belongs to them
    #[command(subcommand)]
    Account(account::AccountVerb),
    /// Create a link that logs a person in to the dashboard once
    Login(login::LoginArgs),
    /// Open the page of a sandbox in a browser
    Open(open::OpenArgs),
    /// Connect the server to GitHub
    #[command(subcommand)]
    Connect(connect_github::ConnectVerb),
    /// Check the installation and say how to fix what is missing or wrong
    Doctor(doctor::DoctorArgs),
    /// Check the configuration
    #[command(subcommand)]
    Config(config::ConfigVerb),
    /// Write shell completions to standard output
    Completions(completions::CompletionsArgs),
    /// Write the manual pages to standard output
    #[command(hide = true)]
    Man(completions::ManArgs),
    /// Stand in for a coding agent, in tests and the demo
    #[command(hide = true)]
    StandInAgent(stand_in::StandInArgs),
    /// Show the version
    Version(version::VersionArgs),
}

/// Parses the arguments, runs the verb and returns the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match parse(args) {
        Ok(cli) => cli,
        Err(stop) => {
            // Help and version are not errors. Printing them fails only when the reader has gone.
            let code = if stop.use_stderr() { failure::USAGE } else { 0 };
            return if stop.print().is_ok() { ExitCode::from(code) } else { ExitCode::SUCCESS };
        }
    };
    let env = EnvVars::of_process();
    match dispatch(cli, &env) {
        Ok(code) => code,
        Err(error) => failure::report(&error, &env),
    }
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = help::command();
    let matches = command.try_get_matches_from_mut(stand_in::by_name(args))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

fn dispatch(cli: Cli, env: &EnvVars) -> anyhow::Result<ExitCode> {
    let server_args = cli.server_args;
    match cli.verb {
        CliVerb::Serve(args) => serve::run(&server_args, args, env),
        CliVerb::Demo(args) => demo::run(args, env),
        CliVerb::Backup(args) => backup::backup(&server_args, args, env),
        CliVerb::Restore(args) => backup::restore(&server_args, args, env),
        CliVerb::Doctor(args) => doctor::run(&server_args, args, env),
        CliVerb::Config(verb) => config::run(&server_args, verb, env),
        CliVerb::Completions(args) => completions::completions(args),
        CliVerb::Man(args) => completions::man(args),
        CliVerb::StandInAgent(args) => stand_in::run(&args, env),
        CliVerb::Version(args) => version::run(args, env),
        CliVerb::Ensure(args) => remote(&server_args, env, async |s| ensure::run(s, args).await),
        CliVerb::Get(args) => remote(&server_args, env, async |s| get::run(s, args).await),
        CliVerb::Ls(args) => remote(&server_args, env, async |s| ls::run(s, args).await),
        CliVerb::Stop(args) => remote(&server_args, env, async |s| stop::run(s, args).await),
        CliVerb::Start(args) => remote(&server_args, env, async |s| start::run(s, args).await),
        CliVerb::Restart(args) => remote(&server_args, env, async |s| restart::run(s, args).await),
        CliVerb::Retry(args) => remote(&server_args, env, async |s| retry::run(s, args).await),
        CliVerb::Publish(args) => remote(&server_args, env, async |s| publish::run(s, args).await),
        CliVerb::Rm(args) => remote(&server_args, env, async |s| rm::run(s, args).await),
        CliVerb::Exec(args) => remote(&server_args, env, async |s| exec::run(s, args).await),
        CliVerb::Shell(args) => {
            remote(&server_args, env, async |s| exec::run(s, args.into()).await)
        }
        CliVerb::Cp(args) => remote(&server_args, env, async |s| cp::run(s, args).await),
        CliVerb::Open(args) => remote(&server_args, env, async |s| open::run(s, args).await),
        CliVerb::Connect(verb) => {
            remote(&server_args, env, async |s| connect_github::run(s, verb).await)
        }
        CliVerb::Sync(verb) => remote(&server_args, env, async |s| sync::run(s, verb).await),
        CliVerb::Files(verb) => remote(&server_args, env, async |s| files::run(s, verb).await),
        CliVerb::PortForward(args) => {
            remote(&server_args, env, async |s| port_forward::run(s, args).await)
        }
        CliVerb::Chat(args) => remote(&server_args, env, async |s| chat::run(s, args).await),
        CliVerb::Runs(args) => remote(&server_args, env, async |s| runs::runs(s, args).await),
        CliVerb::Answer(args) => remote(&server_args, env, async |s| answer::answer(s, args).await),
        CliVerb::Cancel(args) => remote(&server_args, env, async |s| runs::cancel(s, args).await),
        CliVerb::Usage(args) => remote(&server_args, env, async |s| usage::run(s, args).await),
        CliVerb::Logs(args) => remote(&server_args, env, async |s| logs::run(s, args).await),
        CliVerb::Events(args) => remote(&server_args, env, async |s| events::run(s, args).await),
        CliVerb::Hold(args) => remote(&server_args, env, async |s| hold::hold(s, args).await),
        CliVerb::Release(args) => remote(&server_args, env, async |s| hold::release(s, args).await),
        CliVerb::Holds(args) => remote(&server_args, env, async |s| hold::list(s, args).await),
        CliVerb::Templates(args) => {
            remote(&server_args, env, async |s| templates::run(s, args).await)
        }
        CliVerb::Drift(args) => remote(&server_args, env, async |s| drift::run(s, args).await),
        CliVerb::Deliveries(args) => {
            remote(&server_args, env, async |s| deliveries::run(s, args).await)
        }
        CliVerb::Top(args) => remote(&server_args, env, async |s| top::run(s, args).await),
        CliVerb::Login(args) => remote(&server_args, env, async |s| login::run(s, args).await),
        CliVerb::Token(verb) => remote(&server_args, env, async |s| token::run(s, verb).await),
        CliVerb::Account(verb) => remote(&server_args, env, async |s| account::run(s, verb).await),
        CliVerb::Wait(args) => remote(&server_args, env, async |s| wait::run(s, args).await),
    }
}

/// What a remote verb works with.
struct CliSession<'a> {
    client: ApiClient,
    screen: Screen,
    env: &'a EnvVars,
}

/// Runs a remote verb on a runtime of its own.
fn remote(
    server_args: &ServerArgs,
    env: &EnvVars,
    verb: impl AsyncFnOnce(&mut CliSession<'_>) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let client = connect::connect(server_args, env)?;
    let mut session = CliSession { client, screen: Screen::new(env), env };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(verb(&mut session));
    // A thread may still be blocked reading standard input, and nothing can interrupt it.
    runtime.shutdown_background();
    ended
}

#[cfg(test)]
mod tests;
