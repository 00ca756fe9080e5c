//! The parameters that several routes take.
#![allow(dead_code, reason = "only their description is used; handlers read queries by name")]

use utoipa::IntoParams;

/// Which sandbox a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct OneSandbox {
    /// The sandbox's id or name.
    id: String,
}

/// Which run a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct OneRun {
    /// The run's id.
    run: String,
}

/// Which port of which sandbox a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct OnePort {
    /// The sandbox's id or name.
    id: String,
    /// A port that the sandbox's template lists.
    port: u16,
}

/// Which issue a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct OneIssue {
    /// The issue's id.
    issue_id: String,
}

/// Which issue of which repository a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct NumberedIssue {
    /// The repository's owner.
    owner: String,
    /// The repository's name.
    repo: String,
    /// The issue's number.
    number: u64,
}

/// How long a command waits for its result.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ResultWait {
    /// Seconds to wait for the result; default 0.
    #[param(maximum = 300)]
    wait: Option<u64>,
}

/// How long work waits for its sandbox.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StartupWait {
    /// Seconds to wait until the sandbox runs; default 30.
    #[param(maximum = 300)]
    wait: Option<u64>,
}

/// Where files are.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FilesOf {
    /// `sandbox` (default), or `synced` for a version in the object storage.
    source: Option<String>,
    /// With `source=synced`: which version; default is the newest.
    version: Option<String>,
}

/// Which page of a tree of files.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FilesPage {
    /// `list` or `tree`: everything below the directory, in pages.
    format: Option<String>,
    /// With `format`: entries on the page; default 1,000.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u64>,
    /// With `format`: `nextCursor` of the page before.
    cursor: Option<String>,
}

/// Which page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageOf {
    /// Entries on the page; default 50.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u64>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

/// A file or directory of a workspace.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FilePath {
    /// Relative to the workspace.
    path: String,
}

/// A directory of a workspace, or the workspace itself.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DirectoryPath {
    /// Relative to the workspace; default: the workspace itself.
    path: Option<String>,
}
