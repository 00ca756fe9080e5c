//! Tools that download, unchanged, through the proxy: git, npm, pip and cargo from a server of
//! this test, and an agent's CLI from this machine's configured registry.
//!
//! The server is a directory behind plain HTTP. The tools know the proxy only from the environment
//! that every command has.

use std::fs;
use std::io::{self, BufRead};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use issuebox::egress::Resolve;
use issuebox::sandbox::{ExecRequest, Lifecycle, Workspace, WorkspacePath};
use issuebox::types::{AllowedHost, Network, Resources};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{Ended, Local, Sandbox, collect, request, spec, target};

/// The timeout of a tool.
const TOOL_WAIT: Duration = Duration::from_secs(300);

/// Resolves every name to this machine.
#[derive(Debug)]
struct Here;

#[async_trait]
impl Resolve for Here {
    async fn resolve(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

/// A directory served as `http://site.test:PORT/`.
pub struct Site {
    dir: tempfile::TempDir,
    at: SocketAddr,
}

impl Site {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("bound");
        let root = dir.path().to_owned();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, root.clone()));
            }
        });
        Self { dir, at }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("http://site.test:{}/{path}", self.at.port())
    }

    /// Writes a file.
    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        fs::write(path, content).expect("written");
    }

    /// Runs a command of this machine in the directory, and returns its output.
    pub fn run(&self, command: &str) -> String {
        let out = Command::new("sh").args(["-ec", command]).current_dir(self.dir.path()).output();
        let out = out.expect("a shell");
        assert!(out.status.success(), "{command}: {out:?}");
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }
}

/// Answers one request with the file of that path, or with the directory's index.
async fn answer(mut stream: TcpStream, root: PathBuf) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/");
    let mut path = root.join(path.trim_matches('/'));
    if path.is_dir() {
        path.push("index.html");
    }
    let kind =
        if path.extension().is_some_and(|e| e == "html") { "text/html" } else { "text/plain" };
    let (status, body) = match fs::read(&path) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // The proxy may have gone.
    let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
}

pub async fn local() -> Option<Local> {
    Local::with(|config| config.resolver = Arc::new(Here)).await
}

/// A sandbox that may reach only the site.
pub async fn sandbox<'a>(local: &'a Local, name: &str, network: Network) -> Sandbox<'a> {
    let mut spec = spec(name, name);
    spec.template.network = network;
    spec.template.resources =
        Resources { cpu: 2.0, memory_mb: 2048, processes: 256, disk_mb: 4096 };
    let object = local.provider.create(spec).await.expect("made");
    Sandbox { provider: &local.provider, target: target(&object) }
}

fn only(site: &Site) -> Network {
    only_at("site.test", site.at)
}

/// A host that may be reached at a private address.
pub fn only_at(host: &str, at: SocketAddr) -> Network {
    let host = AllowedHost::parse(&format!("{host}:{}", at.port())).expect("an entry");
    Network::Allow { hosts: vec![host], private: vec![at] }
}

/// Runs a script with a long timeout.
pub async fn run(sandbox: &Sandbox<'_>, script: &str, env: &[(&str, &str)]) -> Ended {
    let env = env.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let request = ExecRequest { env, ..request(&["sh", "-ec", script]) };
    let execution = sandbox.exec(request).await.expect("started");
    let ended = tokio::time::timeout(TOOL_WAIT, collect(execution)).await;
    let ended = ended.expect("in time").expect("its end");
    assert_eq!(ended.code, 0, "{script}: {ended:?}");
    ended
}

/// Makes a repository with one commit, as `repo.git`.
pub fn repository(site: &Site) {
    site.run(
        "git init -q -b main work; echo hello > work/file; git -C work add file
         git -C work -c user.name=n -c user.email=e@x.test commit -qm first
         git clone -q --bare work repo.git; git -C repo.git update-server-info",
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs git; run by .ci/run"]
async fn git_clones_from_an_allowed_host() {
    let Some(local) = local().await else { return };
    let site = Site::new().await;
    repository(&site);
    let sandbox = sandbox(&local, "git", only(&site)).await;
    let url = site.url("repo.git");
    let script = format!("git clone -q {url} repo; cat repo/file; git -C repo log --format=%s");
    assert_eq!(run(&sandbox, &script, &[]).await.stdout, "hello\nfirst\n");
    let other = format!("! git clone -q http://other.test:{}/repo.git other 2>&1", site.at.port());
    let refused = run(&sandbox, &other, &[]).await;
    assert!(refused.stdout.contains("403"), "{refused:?}");
}

/// A Python program on this machine that serves a site's directory, and prints its port.
pub struct Program {
    child: Child,
    pub at: SocketAddr,
}

impl Program {
    pub fn new(site: &Site, script: &str, args: &[&str]) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", script])
            .args(args)
            .current_dir(site.dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("piped");
        io::BufReader::new(stdout).read_line(&mut port).expect("its port");
        let port: u16 = port.trim().parse().expect("a port");
        Self { child, at: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves a site's directory as `https://site.test:PORT/`, with its own certificate.
fn https(site: &Site) -> Program {
    site.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 \
         -subj /CN=site.test -addext subjectAltName=DNS:site.test 2>/dev/null",
    );
    let script = "import http.server as h, ssl
server = h.ThreadingHTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('cert.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()";
    Program::new(site, script, &[])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs git, openssl and python3; run by .ci/run"]
async fn git_clones_over_tls() {
    let Some(local) = local().await else { return };
    let site = Site::new().await;
    repository(&site);
    let https = https(&site);
    let sandbox = sandbox(&local, "tls", only_at("site.test", https.at)).await;
    let authority = fs::read_to_string(site.path("cert.pem")).expect("a certificate");
    sandbox.write(b"authority.pem", &authority).await.expect("written");
    let url = format!("https://site.test:{}/repo.git", https.at.port());
    let script = format!("git clone -q {url} repo; cat repo/file");
    let env = [("GIT_SSL_CAINFO", "/workspace/authority.pem")];
    assert_eq!(run(&sandbox, &script, &env).await.stdout, "hello\n");
    // The proxy is a tunnel: without the authority the certificate is not trusted.
    let refused = run(&sandbox, &format!("! git clone -q {url} other 2>&1"), &[]).await;
    assert!(refused.stdout.contains("certificate"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs npm; run by .ci/run"]
async fn npm_installs_from_an_allowed_registry() {
    let Some(local) = local().await else { return };
    let site = Site::new().await;
    site.put("package/package.json", r#"{"name":"left","version":"1.0.0","main":"index.js"}"#);
    site.put("package/index.js", "module.exports = 'installed'");
    site.run("tar czf left-1.0.0.tgz package");
    let tarball = site.url("left-1.0.0.tgz");
    site.put(
        "left",
        format!(
            r#"{{"name":"left","dist-tags":{{"latest":"1.0.0"}},"versions":{{"1.0.0":
               {{"name":"left","version":"1.0.0","dist":{{"tarball":"{tarball}"}}}}}}}}"#
        ),
    );
    let sandbox = sandbox(&local, "npm", only(&site)).await;
    let script = "echo '{\"name\":\"a\",\"version\":\"1.0.0\",\"dependencies\":{\"left\":\"1.0.0\"}}' > package.json
        npm install --silent --no-audit --no-fund --package-lock-only
        npm ci --silent --no-audit --no-fund
        node -p 'require(\"left\")'";
    let ended = run(&sandbox, script, &[("npm_config_registry", &site.url(""))]).await;
    assert_eq!(ended.stdout, "installed\n", "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs python3 with venv; run by .ci/run"]
async fn pip_installs_from_an_allowed_index() {
    let Some(local) = local().await else { return };
    let site = Site::new().await;
    let wheel = "left-1.0.0-py3-none-any.whl";
    site.run(&format!(
        "python3 - <<'END'
import zipfile
wheel = zipfile.ZipFile('{wheel}', 'w')
info = 'left-1.0.0.dist-info/'
wheel.writestr('left.py', 'text = \"installed\"')
wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: left\\nVersion: 1.0.0\\n')
wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
wheel.writestr(info + 'RECORD', 'left.py,,\\n' + info + 'METADATA,,\\n' + info + 'WHEEL,,\\n' + info + 'RECORD,,\\n')
wheel.close()
END"
    ));
    site.put("simple/left/index.html", format!("<a href=\"/{wheel}\">{wheel}</a>"));
    let sandbox = sandbox(&local, "pip", only(&site)).await;
    let script = "/usr/bin/python3 -m venv v
        v/bin/pip install --quiet --trusted-host site.test left
        v/bin/python -c 'import left; print(left.text)'";
    let env = [("PIP_INDEX_URL", &*site.url("simple")), ("PIP_DISABLE_PIP_VERSION_CHECK", "1")];
    let ended = run(&sandbox, script, &env).await;
    assert_eq!(ended.stdout, "installed\n", "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Rust toolchain, which is copied; run by .ci/run"]
async fn cargo_builds_with_a_crate_from_an_allowed_registry() {
    let Some(local) = local().await else { return };
    let site = Site::new().await;
    let manifest = "[package]\nname = \"left\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    site.put("left-1.0.0/Cargo.toml", manifest);
    site.put("left-1.0.0/src/lib.rs", "pub const TEXT: &str = \"built\";");
    site.run("tar czf left-1.0.0.crate left-1.0.0");
    let checksum = site.run("sha256sum left-1.0.0.crate | cut -d' ' -f1");
    let download = site.url("{crate}-{version}.crate");
    site.put("index/config.json", format!(r#"{{"dl":"{download}"}}"#));
    site.put(
        "index/le/ft/left",
        format!(
            r#"{{"name":"left","vers":"1.0.0","deps":[],"cksum":"{checksum}","features":{{}},"yanked":false}}"#
        ),
    );
    let sandbox = sandbox(&local, "cargo", only(&site)).await;
    bring_rust(&site, &sandbox).await;
    let script = "export PATH=/workspace/rust/bin:$PATH
        mkdir -p app/src .cargo; cd app
        printf '[package]\\nname = \"app\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[dependencies]\\nleft = \"1\"\\n' > Cargo.toml
        echo 'fn main() { println!(\"{}\", left::TEXT) }' > src/main.rs
        cargo build --quiet; target/debug/app";
    let registry = format!("sparse+{}", site.url("index/"));
    let env = [("CARGO_HOME", "/workspace/.cargo")];
    let config = format!(
        "[source.crates-io]\nreplace-with = \"site\"\n[source.site]\nregistry = \"{registry}\"\n"
    );
    sandbox.sh("mkdir -p .cargo").await;
    sandbox.write(b".cargo/config.toml", &config).await.expect("written");
    let ended = run(&sandbox, script, &env).await;
    assert_eq!(ended.stdout, "built\n", "{ended:?}");
}

/// Copies this machine's toolchain into a workspace, as an archive like a user would.
async fn bring_rust(site: &Site, sandbox: &Sandbox<'_>) {
    let root = site.run("rustc --print sysroot");
    let host = site.run("rustc -vV | sed -n 's/^host: //p'");
    let script = format!(
        "cd {root} && exec tar --hard-dereference -c bin/cargo bin/rustc lib/*.so* lib/rustlib/{host}"
    );
    let mut tar = tokio::process::Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh is there");
    let mut archive = tar.stdout.take().expect("a pipe");
    let (sender, chunks) = tokio::sync::mpsc::channel(4);
    let sending = async move {
        loop {
            let mut piece = bytes::BytesMut::with_capacity(256 * 1024);
            if archive.read_buf(&mut piece).await.expect("read") == 0 {
                return;
            }
            sender.send(Ok(piece.freeze())).await.expect("taken");
        }
    };
    let place = WorkspacePath::parse(b"rust").expect("a path");
    let taking = sandbox.provider.unpack_directory(sandbox.target.clone(), place, chunks);
    let ((), taken) = futures_util::future::join(sending, taking).await;
    taken.expect("unpacked");
    assert!(tar.wait().await.expect("waited").success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs npm and the registry that it is configured for; run by .ci/run"]
async fn an_agent_s_cli_from_npm_starts() {
    let Some(local) = Local::new().await else { return };
    let registry = Command::new("npm").args(["config", "get", "registry"]).output().expect("npm");
    let registry = String::from_utf8(registry.stdout).expect("text").trim().to_owned();
    let host = registry.split("://").nth(1).and_then(|rest| rest.split('/').next());
    let host = host.expect("an address");
    // The registry may be in this network, at a private address.
    let private = (host, 443).to_socket_addrs().expect("it is known here").collect();
    let hosts = vec![AllowedHost::parse(host).expect("a host")];
    let network = Network::Allow { hosts, private };
    let sandbox = sandbox(&local, "agent", network).await;
    let script =
        "npm install --loglevel=error --no-audit --no-fund --prefix cli @anthropic-ai/claude-code
        cli/node_modules/.bin/claude --version";
    // The registry may have a certificate of this machine's own authority.
    let authorities = "/etc/ssl/certs/ca-certificates.crt";
    let env = [("npm_config_registry", &*registry), ("NODE_EXTRA_CA_CERTS", authorities)];
    let ended = run(&sandbox, script, &env).await;
    assert!(ended.stdout.contains("Claude Code"), "{ended:?}");
}
