//! A server of the whole program that has credentials for an in-memory GitHub.

use std::process::Stdio;

use issuebox::github::model::{APP_KEY, GithubModel, HookDoor};
use tokio::process::Command;

use crate::process::{Place, Server};

/// The command that serves with the credentials of the model's App, and with these variables as well.
pub fn connected_command(place: &Place, github: &GithubModel, more: &[(&str, &str)]) -> Command {
    let (app, _, secret) = github.app();
    let mut command = place.serve_command("127.0.0.1:0");
    command
        .env("ISSUEBOX__GITHUB__API_URL", github.api_url())
        .env("ISSUEBOX__GITHUB__WEB_URL", github.web_url())
        .env("ISSUEBOX__GITHUB__APP_ID", app.to_string())
        .env("ISSUEBOX__GITHUB__APP_KEY", APP_KEY)
        .env("ISSUEBOX_WEBHOOK_SECRET", secret)
        .envs(more.iter().copied())
        .stdout(Stdio::null());
    command
}

/// Serves so; GitHub's deliveries arrive once it is ready.
pub async fn serve_connected(place: &Place, github: &GithubModel, more: &[(&str, &str)]) -> Server {
    let server = Server::start(&mut connected_command(place, github, more)).await;
    github.set_door(HookDoor::Open(format!("{}/webhooks/github", server.url)));
    server
}
