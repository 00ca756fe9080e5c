//! `issuebox doctor`: checks the installation and says how to fix it. On the server's machine it
//! checks the machine; if a server runs, here or elsewhere, it checks that too.

mod ask;
mod report;

use std::process::ExitCode;

use clap::Args;

use crate::app::doctor::{self, Check, CheckState};
use crate::config::Loaded;

use super::ServerArgs;
use super::config;
use super::connect;
use super::env::EnvVars;
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
        match config::load_here(server_args, env, None) {
            Ok(loaded) => look_here(server_args, env, &runtime, &loaded),
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
    loaded: &Loaded,
) -> Vec<Check> {
    let Loaded { config, warnings, file } = loaded;
    let mut checks = vec![match (warnings.as_slice(), file) {
        ([], Some(file)) => {
            Check::right("configuration", format!("{} is valid", file.path.display()))
        }
        ([], None) => Check::right("configuration", "valid; there is no configuration file"),
        ([..], _) => {
            Check::noted("configuration", warnings.join("\n"), "remove these keys for now")
        }
    }];
    checks.extend(doctor::look(config));
    runtime.block_on(async {
        checks.extend(doctor::look_at_agents(config).await);
        checks.push(ask::clock_of("GitHub", &config.github.api_url).await);
        if config.github.login.is_some() {
            checks.extend(doctor::look_at_github(config).await);
        }
        if doctor::is_running(config) {
            checks.extend(ask_local(server_args, env, loaded).await);
        }
    });
    checks
}

/// Asks the server that runs here. A configuration that was not named is not trusted with a token.
async fn ask_local(server_args: &ServerArgs, env: &EnvVars, loaded: &Loaded) -> Vec<Check> {
    let Some(file) = loaded.file.as_ref().filter(|_| server_args.config.is_none()) else {
        return ask_server(server_args, env).await;
    };
    let (data, token) = (&loaded.config.server.data, &loaded.config.auth.admin_token);
    let is_found_without_it = config::load_named(server_args, env).is_ok_and(|without| {
        without.config.server.data == *data && without.config.auth.admin_token == *token
    });
    if is_found_without_it {
        return ask_server(server_args, env).await;
    }
    let path = file.path.display();
    vec![Check::noted(
        "server",
        format!(
            "it was not asked: its address or its token is configured in {path}, which was not named"
        ),
        format!("issuebox doctor --config {path} asks it, too"),
    )]
}

async fn ask_server(server_args: &ServerArgs, env: &EnvVars) -> Vec<Check> {
    match connect::connect(server_args, env) {
        Ok(client) => ask::server(&client).await,
        Err(error) => vec![ask::failed("server", &error)],
    }
}
