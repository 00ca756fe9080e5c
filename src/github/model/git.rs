//! The git side: smart HTTP through `git http-backend` on bare repositories in a temporary directory,
//! one for each repository, made when it is first asked for.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_util::io::ReaderStream;

use super::auth::{ModelAccess, ModelCaller, enough};
use super::faults::{self, FaultKind};
use super::server::{ModelBody, plain};
use super::state::ModelState;
use super::{ModelCall, ModelShared, lfs};

/// What the hooks read and write lies beside the repository's own files.
const PROTECTED: &str = "model-protected";
const PUSHES: &str = "model-pushes";

/// Refuses protected branches, and workflow files where the token lacks that permission.
const PRE_RECEIVE: &str = r#"#!/bin/sh
while read -r old new ref; do
  if grep -qxF "$ref" model-protected 2>/dev/null; then
    echo "error: GH013: Repository rule violations found for $ref." >&2
    exit 1
  fi
  case $new in *[!0]*) ;; *) continue ;; esac
  file=$(git log --format= --name-only "$new" --not --all -- .github/workflows | head -n 1)
  if [ "$MODEL_WORKFLOWS" != 1 ] && [ -n "$file" ]; then
    echo "refusing to allow a GitHub App to create or update workflow \`$file\` without \`workflows\` permission" >&2
    exit 1
  fi
done
"#;

/// Records what was pushed, and by whom.
const POST_RECEIVE: &str = r#"#!/bin/sh
while read -r old new ref; do echo "$old $new $ref $REMOTE_USER" >>model-pushes; done
"#;

const CONFIG: &str = "[http]\n\treceivepack = true\n[uploadpack]\n\tallowFilter = true\n\
                      \tallowAnySHA1InWant = true\n[gc]\n\tauto = 0\n";

/// A branch that was pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRecord {
    /// The tip before, 40 zeros for a new branch.
    pub old: String,
    /// The tip after.
    pub new: String,
    /// The full name, such as `refs/heads/main`.
    pub name: String,
    /// Whose token was used, such as `installation 5`.
    pub identity: String,
}

/// What is at a path of a commit.
pub(super) enum ModelFile {
    /// A file: its object, and what is in it.
    Content(String, Vec<u8>),
    /// A directory: each name with its object, and whether that is a `dir` or a `file`.
    Directory(Vec<(String, String, &'static str)>),
}

/// A request to a repository's git or LFS address.
pub(super) struct ModelGitCall {
    /// `owner/name`.
    name: String,
    /// The path behind the repository: `/info/refs`, ….
    rest: String,
}

/// What of git a path asks for.
pub(super) fn service(path: &str) -> Option<ModelGitCall> {
    let rests = ["/info/refs", "/git-upload-pack", "/git-receive-pack", "/info/lfs/"];
    let at = rests.iter().find_map(|rest| path.find(rest))?;
    let (name, rest) = path.split_at(at);
    let name = name.strip_prefix('/')?;
    let name = name.strip_suffix(".git").unwrap_or(name);
    let is_name = name.split('/').count() == 2 && name.split('/').all(|part| !part.is_empty());
    is_name.then(|| ModelGitCall { name: name.to_owned(), rest: rest.to_owned() })
}

/// A git command without the settings of this system.
fn git(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("--git-dir").arg(dir);
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.stdin(Stdio::null());
    git
}

fn text_of(output: io::Result<Output>) -> Option<String> {
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn init(dir: &Path, branch: &str) -> io::Result<()> {
    let init = git(dir).args(["init", "--bare", "--quiet", "--initial-branch", branch]).output()?;
    if !init.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&init.stderr).into_owned()));
    }
    fs::OpenOptions::new().append(true).open(dir.join("config"))?.write_all(CONFIG.as_bytes())?;
    fs::create_dir_all(dir.join("hooks"))?;
    for (name, script) in [("pre-receive", PRE_RECEIVE), ("post-receive", POST_RECEIVE)] {
        let path = dir.join("hooks").join(name);
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

impl ModelState {
    /// The bare repository; made with one commit where there is none yet.
    pub fn git_dir(&self, repository: u64) -> PathBuf {
        let dir = self.git_root.join(format!("{repository}.git"));
        if !dir.exists() {
            let branch = &self.repositories[&repository].default_branch;
            init(&dir, branch).expect("git makes a bare repository");
            let readme = format!("# {}\n", self.full_name(repository));
            self.import(&dir, branch, &[("README.md", &readme)], "Begin");
        }
        dir
    }

    /// Commits files on a branch; gives the new tip. A new branch begins at the default branch.
    pub fn commit(
        &self,
        repository: u64,
        branch: &str,
        files: &[(&str, &str)],
        message: &str,
    ) -> String {
        let dir = self.git_dir(repository);
        let name = format!("refs/heads/{branch}");
        if self.ref_tip(repository, &name).is_none() {
            let default = format!("refs/heads/{}", self.repositories[&repository].default_branch);
            if let Some(tip) = self.ref_tip(repository, &default) {
                let made = git(&dir).args(["update-ref", &name, &tip]).output();
                text_of(made).expect("git makes a branch");
            }
        }
        self.import(&dir, branch, files, message);
        self.ref_tip(repository, &name).expect("the branch was just written")
    }

    fn import(&self, dir: &Path, branch: &str, files: &[(&str, &str)], message: &str) {
        let name = format!("refs/heads/{branch}");
        let has_parent = text_of(git(dir).args(["rev-parse", "--verify", "-q", &name]).output());
        let at = self.now().as_second();
        let mut script = format!(
            "commit {name}\ncommitter Model <model@example.org> {at} +0000\ndata {}\n{message}\n",
            message.len()
        );
        if has_parent.is_some() {
            script.push_str(&format!("from {name}^0\n"));
        }
        for (path, text) in files {
            script.push_str(&format!("M 100644 inline {path}\ndata {}\n{text}\n", text.len()));
        }
        let mut import = git(dir);
        import.args(["fast-import", "--quiet"]).stdin(Stdio::piped());
        let mut child = import.spawn().expect("git runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(script.as_bytes()).expect("git reads commits");
        drop(stdin);
        assert!(child.wait().expect("git ends").success(), "git takes the commit");
    }

    /// The object that a full name of a ref points to.
    pub fn ref_tip(&self, repository: u64, name: &str) -> Option<String> {
        let dir = self.git_dir(repository);
        text_of(git(&dir).args(["rev-parse", "--verify", "-q", name]).output())
    }

    /// What a commit, branch or tag has at a path.
    pub fn file(&self, repository: u64, at: &str, path: &str) -> Option<ModelFile> {
        let dir = self.git_dir(repository);
        // A text that git would take for an option is no name.
        let commit = text_of(
            git(&dir).args(["rev-parse", "-q", "--verify", "--end-of-options", at]).output(),
        )?;
        let of = |args: &[&str]| git(&dir).args(args).output();
        let sha = text_of(of(&["rev-parse", "-q", "--verify", &format!("{commit}:{path}")]))?;
        if text_of(of(&["cat-file", "-t", &sha]))? == "tree" {
            let list = text_of(of(&["ls-tree", &sha]))?;
            let entry = |line: &str| {
                let (head, name) = line.split_once('\t')?;
                let kind = if head.contains(" tree ") { "dir" } else { "file" };
                Some((name.to_owned(), head.rsplit(' ').next()?.to_owned(), kind))
            };
            return Some(ModelFile::Directory(list.lines().filter_map(entry).collect()));
        }
        let content = of(&["cat-file", "blob", &sha]).ok()?.stdout;
        Some(ModelFile::Content(sha, content))
    }

    /// How many commits `head` has that `base` lacks.
    pub fn commits_between(&self, repository: u64, base: &str, head: &str) -> u64 {
        let range = format!("refs/heads/{base}..refs/heads/{head}");
        let dir = self.git_dir(repository);
        let count = text_of(git(&dir).args(["rev-list", "--count", &range]).output());
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    pub fn has_commit(&self, repository: u64, sha: &str) -> bool {
        let is_id = sha.len() == 40 && sha.bytes().all(|byte| byte.is_ascii_hexdigit());
        let commit = format!("{sha}^{{commit}}");
        let dir = self.git_dir(repository);
        is_id && text_of(git(&dir).args(["cat-file", "-e", &commit]).output()).is_some()
    }

    /// Deletes a branch.
    pub fn delete_branch(&self, repository: u64, branch: &str) {
        let name = format!("refs/heads/{branch}");
        let dir = self.git_dir(repository);
        text_of(git(&dir).args(["update-ref", "-d", &name]).output()).expect("a branch to delete");
    }

    /// Moves a branch to the tip of another.
    pub fn merge_branch(&self, repository: u64, base: &str, head: &str) {
        let (base, head) = (format!("refs/heads/{base}"), format!("refs/heads/{head}"));
        let dir = self.git_dir(repository);
        text_of(git(&dir).args(["update-ref", &base, &head]).output()).expect("both branches");
    }

    /// Refuses pushes to a branch from now on.
    pub fn protect(&self, repository: u64, branch: &str) {
        let path = self.git_dir(repository).join(PROTECTED);
        let mut protected = fs::read_to_string(&path).unwrap_or_default();
        protected.push_str(&format!("refs/heads/{branch}\n"));
        fs::write(path, protected).expect("a writable directory");
    }

    /// What was pushed to a repository over HTTP, oldest first.
    pub fn pushes(&self, repository: u64) -> Vec<PushRecord> {
        let text = fs::read_to_string(self.git_dir(repository).join(PUSHES)).unwrap_or_default();
        let record = |line: &str| {
            let mut words = line.splitn(4, ' ').map(str::to_owned);
            let (old, new, name) = (words.next()?, words.next()?, words.next()?);
            Some(PushRecord { old, new, name, identity: words.next()? })
        };
        text.lines().filter_map(record).collect()
    }

    /// Finds the repository and checks what the token may do with its contents.
    fn admit_git(
        &self,
        service: &ModelGitCall,
        header: Option<&str>,
        query: &str,
        write: bool,
    ) -> Result<(u64, ModelAccess), Box<Response<ModelBody>>> {
        let name_needed = || {
            let mut answer = plain(401, "");
            let realm = "Basic realm=\"GitHub\"".parse().expect("a valid header");
            answer.headers_mut().insert("www-authenticate", realm);
            Box::new(answer)
        };
        let access = self.access(header).map_err(|_| name_needed())?;
        let former = self.former_names.get(&service.name.to_ascii_lowercase());
        let current = self.repository_named(&service.name);
        let missing = || match access.caller {
            ModelCaller::Anonymous => name_needed(),
            _ => Box::new(plain(404, "Repository not found.")),
        };
        let id = current.or(former.copied()).ok_or_else(missing)?;
        match self.allow(&access, id, "contents", write) {
            Ok(()) if current.is_none() => {
                let (base, name, rest) = (&self.base, self.full_name(id), &service.rest);
                let url = format!("{base}/{name}.git{rest}?{query}");
                let mut moved = plain(301, "");
                let url = url.parse().expect("a valid address");
                moved.headers_mut().insert("location", url);
                Err(Box::new(moved))
            }
            Ok(()) => Ok((id, access)),
            Err(refused) if refused.status == 401 || access.caller == ModelCaller::Anonymous => {
                Err(name_needed())
            }
            Err(refused) if refused.status == 404 => Err(missing()),
            Err(_) => Err(Box::new(plain(403, "Write access to repository not granted."))),
        }
    }
}

/// Serves git and LFS.
pub(super) async fn serve(
    shared: &Arc<ModelShared>,
    service: ModelGitCall,
    request: Request<Incoming>,
) -> Result<Response<ModelBody>, io::Error> {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let authorization = Some(header("authorization")).filter(|value| !value.is_empty());
    let is_lfs = service.rest.starts_with("/info/lfs/");
    let write = query.contains("git-receive-pack") || service.rest == "/git-receive-pack";
    let fault = faults::take(&mut shared.state().faults, &method, &path);
    let admitted = shared.state().admit_git(&service, authorization.as_deref(), &query, write);
    let caller = admitted.as_ref().map_or(ModelCaller::Anonymous, |(_, access)| access.caller);
    let answer = match (&fault, admitted) {
        (Some(FaultKind::LostBefore), _) => Err(io::Error::other("a fault was ordered")),
        (Some(FaultKind::Status(status)), _) => Ok(plain(*status, "")),
        (Some(FaultKind::Refused(words)), _) => Ok(plain(403, words.clone())),
        (_, Err(refused)) => Ok(*refused),
        (_, Ok((id, access))) if is_lfs => {
            lfs::batch(shared, id, &access, &service.rest, request).await
        }
        (_, Ok((id, access))) => {
            let backend = backend(shared, id, &access, &service.rest, &query, &header);
            run(backend, request, matches!(fault, Some(FaultKind::LostAfter))).await
        }
    };
    let call = ModelCall {
        identity: caller.identity(),
        operation: None,
        method,
        path,
        query: vec![("service".to_owned(), query)],
        request: Value::Null,
        status: answer.as_ref().map_or(0, |answer| answer.status().as_u16()),
        answer: Value::Null,
        at: shared.state().now(),
    };
    shared.state().calls.push(call);
    shared.changed();
    answer
}

/// `git http-backend` for one request.
fn backend(
    shared: &ModelShared,
    id: u64,
    access: &ModelAccess,
    rest: &str,
    query: &str,
    header: &dyn Fn(&str) -> String,
) -> tokio::process::Command {
    let state = shared.state();
    let dir = state.git_dir(id);
    let permissions = access.token.as_ref().and_then(|token| token.permissions.as_ref());
    let workflows = permissions.is_none_or(|held| enough(held.get("workflows"), true));
    let mut git = tokio::process::Command::new("git");
    git.arg("http-backend")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROJECT_ROOT", &state.git_root)
        .env("PATH_INFO", format!("/{}{rest}", dir.file_name().unwrap_or_default().display()))
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("REMOTE_USER", access.caller.identity())
        .env("MODEL_WORKFLOWS", if workflows { "1" } else { "0" })
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    git
}

/// Runs the backend, streaming both ways. `lost`: it ends, and the connection ends without its answer.
async fn run(
    mut backend: tokio::process::Command,
    request: Request<Incoming>,
    lost: bool,
) -> Result<Response<ModelBody>, io::Error> {
    backend.env("REQUEST_METHOD", request.method().as_str());
    let mut child = backend.spawn()?;
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    tokio::spawn(async move {
        let mut body = request.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data()
                && stdin.write_all(&data).await.is_err()
            {
                break;
            }
        }
    });
    let mut answer = Response::builder();
    loop {
        let mut line = String::new();
        if stdout.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            break;
        }
        match line.trim_end().split_once(": ") {
            Some(("Status", status)) => answer = answer.status(status.get(..3).unwrap_or("500")),
            Some((name, value)) => answer = answer.header(name, value),
            None => {}
        }
    }
    if lost {
        tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await?;
        child.wait().await?;
        return Err(io::Error::other("a fault was ordered"));
    }
    tokio::spawn(async move { child.wait().await });
    let body = StreamBody::new(ReaderStream::with_capacity(stdout, 64 << 10).map_ok(Frame::data));
    answer.body(BodyExt::boxed_unsync(body)).map_err(io::Error::other)
}
