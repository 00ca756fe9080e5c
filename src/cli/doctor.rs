//! `issuebox doctor`: checks the installation and says how to fix it. On the server's machine it
//! checks the machine; if a server runs, here or elsewhere, it checks that too.

mod ask;
mod report;

use std::process::ExitCode;

use clap::Args;

use crate::app::doctor::{self, Check, CheckState};
use crate::config::Config;

use super::ServerArgs;
use super::config;
use super::connect::{self, EnvVars};
use super::failure::FAILED;
use super::output::{Screen, Shape};

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    shape: Shape,
}

pub(super) fn run(
    server_args: &ServerArgs,
    args: DoctorArgs,
    env: &EnvVars,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_elsewhere = server_args.server.is_some() || env.get("ISSUEBOX_SERVER").is_some();
    let checks = if is_elsewhere {
        runtime.block_on(ask_server(server_args, env))
    } else {
        match config::load(server_args, env, None) {
            Ok(loaded) => look_here(server_args, env, &runtime, &loaded.config, &loaded.warnings),
            Err(error) => vec![unread(&error)],
        }
    };
    report::show(&mut Screen::new(env), args.shape.mode(), &checks)?;
    let is_broken = checks.iter().any(|check| check.state == CheckState::Broken);
    Ok(if is_broken { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn unread(error: &anyhow::Error) -> Check {
    let remedy = "deploy/issuebox.example.toml shows every key; --config names the file";
    Check::broken("configuration", format!("{error:#}"), remedy)
}

fn look_here(
    server_args: &ServerArgs,
    env: &EnvVars,
    runtime: &tokio::runtime::Runtime,
    config: &Config,
    warnings: &[String],
) -> Vec<Check> {
    let mut checks = vec![match warnings {
        [] => Check::right("configuration", "valid"),
        [..] => Check::noted("configuration", warnings.join("\n"), "remove these keys for now"),
    }];
    checks.extend(doctor::look(config));
    runtime.block_on(async {
        checks.push(ask::clock_of("GitHub", &config.github.api_url).await);
        if doctor::is_running(config) {
            checks.extend(ask_server(server_args, env).await);
        }
    });
    checks
}

async fn ask_server(server_args: &ServerArgs, env: &EnvVars) -> Vec<Check> {
    match connect::connect(server_args, env) {
        Ok(client) => ask::server(&client).await,
        Err(error) => vec![ask::failed("server", &error)],
    }
}
