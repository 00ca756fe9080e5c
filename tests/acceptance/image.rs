//! The image that people deploy: it runs as an ordinary user, becomes ready, drives the engine whose
//! socket it is given, and ends well on SIGTERM.
//!
//! `ISSUEBOX_IMAGE` names it; `.ci/image` builds it of the Dockerfile.

use std::time::{Duration, Instant};

use crate::engine;

/// The sandbox's container, which other tests at the same engine have none of.
const SANDBOX: &str = "name=claude-issue-image-1";

/// How long the server, or a sandbox, may take to come up.
const WAIT: Duration = Duration::from_secs(60);

/// What a `docker` command printed.
fn docker(args: &[&str]) -> Result<String, String> {
    let done = engine::docker(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let said = text(&done.stdout);
    match done.status.success() {
        true => Ok(said),
        false => Err(format!("docker {args:?}: {said} {}", text(&done.stderr))),
    }
}

/// Containers and volumes of this test, until it ends.
struct Deployed {
    server: String,
    volume: String,
}

impl Drop for Deployed {
    fn drop(&mut self) {
        // Those that are not there any more are no error.
        let _ = docker(&["rm", "--force", "--volumes", &self.server]);
        let _ = docker(&["volume", "rm", &self.volume]);
        if let Ok(left) = docker(&["ps", "--all", "--quiet", "--filter", SANDBOX]) {
            for id in left.lines() {
                let _ = docker(&["rm", "--force", "--volumes", id]);
            }
        }
    }
}

impl Deployed {
    /// What a command prints in the server's container.
    fn run(&self, command: &[&str]) -> Result<String, String> {
        docker(&[&["exec", self.server.as_str()], command].concat())
    }

    /// Runs the command line in the server's container.
    fn issuebox(&self, args: &[&str]) -> String {
        let whole = [&["issuebox"], args].concat();
        self.run(&whole).unwrap_or_else(|error| panic!("{error}"))
    }

    fn until_ready(&self) {
        let began = Instant::now();
        let probe = ["curl", "--fail", "--silent", "http://127.0.0.1:8787/readyz"];
        while let Err(error) = self.run(&probe) {
            let log = || docker(&["logs", &self.server]);
            assert!(began.elapsed() < WAIT, "{error}: {:?}", log());
            std::thread::yield_now();
        }
    }
}

/// The path of the engine's socket, and the group that may use it.
fn socket() -> (String, String) {
    use std::os::unix::fs::MetadataExt;
    let host = std::env::var("DOCKER_HOST").unwrap_or_default();
    let path = host.strip_prefix("unix://").unwrap_or("/var/run/docker.sock").to_owned();
    let group = std::fs::metadata(&path).expect("the engine's socket").gid().to_string();
    (path, group)
}

#[test]
#[ignore = "needs Docker's engine and the image of .ci/image; run by .ci/run"]
fn the_image_drives_the_engine_that_it_is_given() {
    let image = std::env::var("ISSUEBOX_IMAGE").expect("ISSUEBOX_IMAGE; .ci/image builds it");
    let (socket, group) = socket();
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("issuebox.toml");
    let text = format!("[templates.default]\nprovider = \"docker\"\nimage = \"{image}\"\n");
    std::fs::write(&config, text).expect("written");
    let name = format!("issuebox-image-test-{}", std::process::id());
    let deployed = Deployed { server: name.clone(), volume: name.clone() };
    let mounts = [
        format!("{name}:/var/lib/issuebox"),
        format!("{}:/etc/issuebox/issuebox.toml:ro", config.display()),
        format!("{socket}:/var/run/docker.sock"),
    ];
    let mut run = vec!["run", "--detach", "--name", &name, "--network", "none"];
    mounts.iter().for_each(|mount| run.extend(["--volume", mount]));
    run.extend(["--group-add", &group, "--stop-timeout", "20", &image]);
    docker(&run).unwrap_or_else(|error| panic!("{error}"));
    deployed.until_ready();
    assert_eq!(deployed.run(&["id", "-u"]), Ok("1000".to_owned()), "it is no root");

    let made = deployed.issuebox(&["ensure", "image-1", "--wait"]);
    assert!(made.contains("claude-issue-image-1"), "{made}");
    let said = deployed.issuebox(&["exec", "image-1", "--", "sh", "-c", "echo hello; id -u"]);
    assert_eq!(said, "hello\n1000");
    let sandbox = ["ps", "--filter", SANDBOX, "--format", "{{.State}}"];
    assert_eq!(docker(&sandbox), Ok("running".to_owned()));

    docker(&["stop", "--time", "20", &name]).unwrap_or_else(|error| panic!("{error}"));
    let exit = docker(&["inspect", "--format", "{{.State.ExitCode}}", &name]);
    assert_eq!(exit, Ok("0".to_owned()), "it ends by itself on SIGTERM");
    assert_eq!(docker(&sandbox), Ok("running".to_owned()), "a sandbox outlives the server");

    // The next server finds it again.
    docker(&["start", &name]).unwrap_or_else(|error| panic!("{error}"));
    deployed.until_ready();
    let said = deployed.issuebox(&["exec", "image-1", "--", "echo", "still here"]);
    assert_eq!(said, "still here");
    deployed.issuebox(&["rm", "image-1", "--yes", "--wait"]);
    assert_eq!(docker(&sandbox), Ok(String::new()), "nothing is left of it");
}
