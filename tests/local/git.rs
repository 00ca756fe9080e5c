//! git's smart HTTP through the proxy: clone, push and fetch are negotiated, and large bodies have
//! no length.

use crate::tools::{Program, Site, local, only_at, repository, run, sandbox};

/// Clones a repository with one commit, pushes a body above git's buffer, and fetches the commits
/// left out.
async fn work_with(site: &Site, name: &str, server: &Program, scheme: &str, env: &[(&str, &str)]) {
    let Some(local) = local().await else { return };
    let sandbox = sandbox(&local, name, only_at("site.test", server.at)).await;
    let authority = std::fs::read_to_string(site.path("ca.pem")).unwrap_or_default();
    sandbox.write(b"authority.pem", &authority).await.expect("written");
    let url = format!("{scheme}://site.test:{}/repo.git", server.at.port());
    let script = format!(
        "git clone -q {url} repo; cat repo/file; cd repo
         head -c 20000000 /dev/urandom > large; sha256sum < large; git add large
         git -c user.name=n -c user.email=e@x.test commit -qm second
         git push -q origin main 2>&1; cd ..
         git clone -q --depth 1 {url} shallow; git -C shallow rev-list --count HEAD
         sha256sum < shallow/large
         git -C shallow fetch -q --unshallow; git -C shallow rev-list --count HEAD"
    );
    let ended = run(&sandbox, &script, env).await;
    let large = site.run("git -C repo.git cat-file blob main:large | sha256sum");
    assert_eq!(ended.stdout, format!("hello\n{large}\n1\n{large}\n2\n"), "{ended:?}");
    assert_eq!(site.run("git -C repo.git log --format=%s main"), "second\nfirst");

    let other = url.replace("site.test", "other.test");
    let refused = run(&sandbox, &format!("! git -C repo push {other} main 2>&1"), env).await;
    assert!(refused.stdout.contains("403"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs git and python3; run by .ci/run"]
async fn git_clones_pushes_and_fetches() {
    let site = Site::new().await;
    repository(&site);
    let server = Program::new(&site, include_str!("git_server.py"), &[]);
    work_with(&site, "git-smart", &server, "http", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs git, openssl and python3; run by .ci/run"]
async fn git_clones_pushes_and_fetches_over_tls_of_an_authority_of_one_s_own() {
    let site = Site::new().await;
    repository(&site);
    site.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 \
         -subj /CN=authority.test 2>/dev/null
         openssl req -newkey rsa:2048 -nodes -keyout site.key -out site.csr -subj /CN=site.test \
         2>/dev/null
         echo subjectAltName=DNS:site.test > names
         openssl x509 -req -in site.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
         -extfile names -out site.pem 2>/dev/null",
    );
    let server = Program::new(&site, include_str!("git_server.py"), &["site.pem", "site.key"]);
    let env = [("GIT_SSL_CAINFO", "/workspace/authority.pem")];
    work_with(&site, "git-tls", &server, "https", &env).await;
}
