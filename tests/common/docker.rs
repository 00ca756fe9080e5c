//! An engine of containers for tests: the one at `DOCKER_HOST`, with an image that is made here of this
//! machine's programs, since no registry can be reached.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use issuebox::clock::{Clock, IdSource, SystemClock, SystemIds};
use issuebox::sandbox::docker::{DockerConfig, DockerProvider, DockerSettings, Pull};

/// The image.
pub const IMAGE: &str = "issuebox-provider-test:latest";

/// The programs in it, if this machine has them.
const PROGRAMS: [&str; 30] = [
    "sh", "bash", "cat", "chmod", "cut", "dd", "echo", "env", "find", "git", "grep", "head", "id",
    "ln", "ls", "mkdir", "perl", "printf", "pwd", "rm", "seq", "setsid", "sleep", "stat", "stty",
    "tail", "touch", "tr", "true", "wc",
];

/// The address of the engine for tests.
pub fn host() -> String {
    std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned())
}

/// Runs docker's command line.
pub fn docker(args: &[&str]) -> Output {
    docker_at(&host(), args)
}

/// Runs it for another engine.
pub fn docker_at(host: &str, args: &[&str]) -> Output {
    let mut command = Command::new("docker");
    command.args(["--host", host]).args(args).stdin(Stdio::null());
    command.output().expect("docker is there")
}

/// Runs it; what it wrote.
pub fn docker_text(args: &[&str]) -> String {
    text_at(&host(), args)
}

/// Runs it for another engine; what it wrote.
pub fn text_at(host: &str, args: &[&str]) -> String {
    let output = docker_at(host, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What an engine reports of the containers with a label.
pub struct Events {
    reporter: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Events {
    /// From now on.
    pub fn about(host: &str, label: &str) -> Self {
        let since = SystemClock.now().unix_ms() / 1000;
        let mut reporter = Command::new("docker")
            .args(["--host", host, "events", "--since", &since.to_string()])
            .args(["--filter", &format!("label={label}"), "--format", "{{.Action}}"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("docker is there");
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (kept, out) = (Arc::clone(&lines), reporter.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                kept.lock().expect("not poisoned").push(line);
            }
        });
        Self { reporter, lines }
    }

    /// How often this was reported.
    pub fn count(&self, action: &str) -> usize {
        let lines = self.lines.lock().expect("not poisoned");
        // The action of an exec goes on with its command.
        lines.iter().filter(|line| line.split(':').next() == Some(action)).count()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // It may have ended with its engine.
        let _ = self.reporter.kill();
        let _ = self.reporter.wait();
    }
}

/// Makes the image once.
pub fn image() -> &'static str {
    static MADE: OnceLock<()> = OnceLock::new();
    MADE.get_or_init(|| {
        image_at(&host());
    });
    IMAGE
}

/// Makes the image at an engine that does not have it.
pub fn image_at(host: &str) -> &'static str {
    if !docker_at(host, &["image", "inspect", IMAGE]).status.success() {
        make_image(host, IMAGE, &[]);
    }
    IMAGE
}

/// Makes an image in which the demo's agent works: with what git needs to reach its gateway, and the libraries
/// that the program of the tests is linked to.
pub fn demo_image() -> &'static str {
    const DEMO_IMAGE: &str = "issuebox-demo-test:latest";
    let more = ["test", "/usr/lib/git-core/git-remote-http", env!("CARGO_BIN_EXE_issuebox")];
    make_image(&host(), DEMO_IMAGE, &more);
    DEMO_IMAGE
}

fn make_image(host: &str, image: &str, more: &[&str]) {
    let root = tempfile::tempdir().expect("a directory");
    for dir in ["usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "etc", "tmp"] {
        fs::create_dir_all(root.path().join(dir)).expect("made");
    }
    for link in ["bin", "lib", "lib64", "sbin"] {
        let to = format!("usr/{link}");
        std::os::unix::fs::symlink(to, root.path().join(link)).expect("made");
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    fs::set_permissions(root.path().join("tmp"), mode).expect("set");
    let mut files = BTreeSet::new();
    for program in PROGRAMS.into_iter().chain(more.iter().copied()) {
        let found = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(program));
        if let Some(found) = found.into_iter().find(|path| path.exists()) {
            files.extend(libraries(&found));
            files.insert(found);
        }
    }
    for file in files {
        copy(&file, root.path());
    }
    // Perl's own libraries, with sockets.
    for base in ["/usr/lib/x86_64-linux-gnu/perl-base", "/usr/lib/aarch64-linux-gnu/perl-base"] {
        if Path::new(base).is_dir() {
            let to = root.path().join(base.trim_start_matches('/'));
            let copied = Command::new("cp").args(["-rL", base]).arg(to).status();
            assert!(copied.expect("cp is there").success());
        }
    }
    import_at(host, root.path(), image);
}

/// Makes an image of a directory.
pub fn import(root: &Path, image: &str) {
    import_at(&host(), root, image);
}

fn import_at(host: &str, root: &Path, image: &str) {
    let mut tar = Command::new("tar")
        .arg("-C")
        .arg(root)
        .args(["--owner=0", "--group=0", "-c", "."])
        .stdout(Stdio::piped())
        .spawn()
        .expect("tar is there");
    let imported = Command::new("docker")
        .args(["--host", host, "import", "-", image])
        .stdin(tar.stdout.take().expect("a pipe"))
        .output()
        .expect("docker is there");
    assert!(tar.wait().expect("waited").success());
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
}

/// Copies a file, by whatever name it has here, to its place below `root`.
fn copy(file: &Path, root: &Path) {
    let place = file.strip_prefix("/").expect("absolute");
    let place = match place.starts_with("usr") {
        true => place.to_owned(),
        // `/bin` and `/lib` are links there.
        false => Path::new("usr").join(place),
    };
    let to = root.join(place);
    fs::create_dir_all(to.parent().expect("is in a directory")).expect("made");
    fs::copy(file, to).expect("copied");
}

/// The libraries that a program is linked to, and what loads them.
pub fn libraries(binary: &Path) -> BTreeSet<PathBuf> {
    let listed = Command::new("ldd").arg(binary).output().expect("ldd is there");
    String::from_utf8_lossy(&listed.stdout)
        .split_whitespace()
        .filter(|word| word.starts_with('/') && Path::new(word).exists())
        .map(PathBuf::from)
        .collect()
}

/// The usual configuration, with the binary that cargo built as the helper.
pub fn config() -> DockerConfig {
    let settings = DockerSettings {
        image: Some(image().to_owned()),
        pull: Pull::Never,
        ..DockerSettings::default()
    };
    DockerConfig {
        helper: PathBuf::from(env!("CARGO_BIN_EXE_issuebox")),
        ..DockerConfig::new(settings)
    }
}

/// Opens a provider.
pub fn open() -> DockerProvider {
    open_with(config())
}

/// Opens a provider that is configured so.
pub fn open_with(config: DockerConfig) -> DockerProvider {
    DockerProvider::open(config, Arc::new(SystemClock), Arc::new(SystemIds)).expect("it opens")
}

/// A name that no other test has, and what removes all that has it.
pub struct Owned(pub &'static str);

impl Owned {
    /// A new one.
    pub fn new() -> Self {
        let id = SystemIds.request_id();
        Self(Box::leak(format!("docker-{}", &id[id.len() - 12..]).into_boxed_str()))
    }

    /// The containers of this name, in any state.
    pub fn containers(&self) -> Vec<String> {
        lines(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &format!("name=^/?{}", self.0)])
    }

    /// The volumes of the sandboxes of an instance of this name.
    pub fn volumes(&self) -> Vec<String> {
        // By name: Podman drops the labels.
        let all = format!("name=issuebox-workspace-.*{}", self.instance());
        lines(&["volume", "ls", "--quiet", "--filter", &all])
    }

    fn instance(&self) -> String {
        format!("{}-instance", self.0)
    }
}

fn lines(args: &[&str]) -> Vec<String> {
    docker_text(args).lines().map(str::to_owned).collect()
}

impl Drop for Owned {
    fn drop(&mut self) {
        let (mut containers, mut volumes) = (self.containers(), self.volumes());
        containers.splice(0..0, ["rm", "--force", "--volumes"].map(str::to_owned));
        docker(&containers.iter().map(String::as_str).collect::<Vec<_>>());
        if !volumes.is_empty() {
            volumes.splice(0..0, ["volume", "rm", "--force"].map(str::to_owned));
            docker(&volumes.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}
