//! `issuebox templates`: what a new sandbox can be made from.

use std::process::ExitCode;

use super::output::Shape;
use super::{CliSession, table};
use clap::Args;
use serde::Deserialize;

#[derive(Debug, Args)]
pub(super) struct TemplatesArgs {
    #[command(flatten)]
    shape: Shape,
}

/// A template.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateRow {
    pub name: String,
    pub version: String,
    #[serde(default)]
    pub is_default: bool,
    /// Why its agent cannot work; `None` if it can.
    pub unusable: Option<String>,
    pub provider: String,
    pub agent: Option<String>,
    pub mode: String,
    pub image: Option<String>,
    pub snapshot: Option<String>,
    pub network: String,
    pub ports: Vec<u16>,
    pub resources: TemplateResources,
}

/// The resource limits of a template.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateResources {
    pub cpu: f64,
    pub memory_mb: u64,
    pub disk_mb: u64,
}

impl TemplateRow {
    /// Its name, marked if it is the default.
    pub fn shown(&self) -> String {
        if self.is_default { format!("{} (default)", self.name) } else { self.name.clone() }
    }

    /// What a sandbox's file system begins as, if it is not the provider's own.
    pub fn source(&self) -> Option<&str> {
        self.image.as_deref().or(self.snapshot.as_deref())
    }
}

pub(super) async fn run(
    session: &mut CliSession<'_>,
    args: TemplatesArgs,
) -> anyhow::Result<ExitCode> {
    let items = session.client.every(&["templates"]).await?;
    let (mode, none) = (args.shape.mode(), "no templates");
    session.screen.list(mode, items, |row: &TemplateRow| &row.name, table::templates, none)?;
    Ok(ExitCode::SUCCESS)
}
