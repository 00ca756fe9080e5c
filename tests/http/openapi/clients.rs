//! The served description as other people's tools read it: it is valid, and clients that are
//! generated from it work with a real server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{Place, Server, TOKEN};

/// Runs a tool to its end.
fn run(command: &mut Command) -> String {
    command.stdin(Stdio::null()).env("REDOCLY_TELEMETRY", "off");
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{said}\n{complaint}");
    said
}

/// The directory that a variable names, which `.ci/run` sets.
fn tools(variable: &str) -> PathBuf {
    std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} names no directory")).into()
}

/// Copies one of our files into a directory.
fn copy(file: &str, to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(file);
    let name = from.file_name().expect("a file");
    std::fs::copy(&from, to.join(name)).unwrap_or_else(|error| panic!("{file}: {error}"));
}

/// A server with real sandboxes, and a directory that holds its description.
async fn described() -> Option<(Place, Server, tempfile::TempDir)> {
    let place = Place::local(None).await?;
    let server = place.serve().await;
    let dir = tempfile::tempdir().expect("a directory");
    let document = server.get("/openapi.json").await.text;
    std::fs::write(dir.path().join("openapi.json"), document).expect("written");
    Some((place, server, dir))
}

#[tokio::test]
#[ignore = "needs the npm packages in ISSUEBOX_NODE_MODULES; .ci/run installs them"]
async fn the_description_is_valid_and_a_typescript_client_of_it_works() {
    let Some((_place, server, dir)) = described().await else { return };
    let (dir, modules) = (dir.path(), tools("ISSUEBOX_NODE_MODULES"));
    let tool = |name: &str| {
        let mut command = Command::new(modules.join(".bin").join(name));
        command.current_dir(dir);
        command
    };
    copy(".redocly.lint-ignore.yaml", dir);
    let lint = run(tool("redocly").args(["lint", "openapi.json", "--format", "json"]));
    let totals = lint.find('{').map(|from| &lint[from..]).expect("a JSON report");
    let totals: serde_json::Value = serde_json::from_str(totals).expect("JSON");
    let totals = &totals["totals"];
    assert_eq!((&totals["errors"], &totals["warnings"]), (&0.into(), &0.into()), "{lint}");

    std::os::unix::fs::symlink(&modules, dir.join("node_modules")).expect("linked");
    for file in ["typescript/client.ts", "typescript/tsconfig.json", "typescript/package.json"] {
        copy(file, dir);
    }
    run(tool("openapi-typescript").args(["openapi.json", "--output", "schema.d.ts"]));
    run(tool("tsc").args(["--project", "."]));
    let mut client = Command::new("node");
    client.current_dir(dir).arg("client.js");
    let said = run(client.env("ISSUEBOX_URL", &server.url).env("ISSUEBOX_TOKEN", TOKEN));
    assert_eq!(said, "ok\n");
}

#[tokio::test]
#[ignore = "needs the Python environment in ISSUEBOX_PYTHON_TOOLS; .ci/run makes it"]
async fn a_python_client_of_the_description_works() {
    let Some((_place, server, dir)) = described().await else { return };
    let (dir, bin) = (dir.path(), tools("ISSUEBOX_PYTHON_TOOLS").join("bin"));
    for file in ["python/client.py", "python/config.yml"] {
        copy(file, dir);
    }
    let mut generate = Command::new(bin.join("openapi-python-client"));
    generate.current_dir(dir).args(["generate", "--path", "openapi.json", "--meta", "none"]);
    generate.args(["--config", "config.yml", "--output-path", "issuebox_api"]);
    run(generate.arg("--fail-on-warning"));
    let mut client = Command::new(bin.join("python"));
    client.current_dir(dir).arg("client.py");
    let said = run(client.env("ISSUEBOX_URL", &server.url).env("ISSUEBOX_TOKEN", TOKEN));
    assert_eq!(said, "ok\n");
}
