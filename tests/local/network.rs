//! The hosts that a sandbox with a network can reach, and those that it can't.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use issuebox::egress::Resolve;
use issuebox::sandbox::{
    EgressResult, ExecRequest, Lifecycle, Processes, ProviderEvent, TerminalEvent, TerminalRequest,
    TerminalSize,
};
use issuebox::types::{AllowedHost, Network};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::common::{Local, Sandbox, WAIT, call, request, spec, target};

/// The known names.
#[derive(Debug)]
struct Names(HashMap<&'static str, IpAddr>);

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = self.0.get(name).map(|address| vec![*address]);
        found.ok_or_else(|| io::Error::other("no such name"))
    }
}

/// A provider that resolves only these names.
async fn local(server: Option<SocketAddr>) -> Option<Local> {
    Local::with(|config| {
        let names = [
            ("site.test", "127.0.0.1"),
            ("other.test", "127.0.0.1"),
            ("private.test", "10.1.2.3"),
            ("metadata.test", "169.254.169.254"),
        ];
        let names = names.map(|(name, ip)| (name, ip.parse().expect("an address")));
        config.resolver = Arc::new(Names(names.into()));
        config.server = server;
    })
    .await
}

async fn sandbox<'a>(local: &'a Local, name: &str, network: Network) -> Sandbox<'a> {
    let mut spec = spec(name, name);
    spec.template.network = network;
    let object = local.provider.create(spec).await.expect("made");
    Sandbox { provider: &local.provider, target: target(&object) }
}

fn allow(hosts: &[String], private: &[SocketAddr]) -> Network {
    let hosts = hosts.iter().map(|host| AllowedHost::parse(host).expect("an entry"));
    Network::Allow { hosts: hosts.collect(), private: private.to_vec() }
}

/// A server that answers `hello` to each line, and reports when a connection has ended.
async fn hello() -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let (ended, ends) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let ended = ended.clone();
            tokio::spawn(async move {
                let mut line = [0; 4096];
                if matches!(stream.read(&mut line).await, Ok(1..)) {
                    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello\n";
                    // The client may have gone.
                    let _ = stream.write_all(answer.as_bytes()).await;
                    while matches!(stream.read(&mut line).await, Ok(1..)) {}
                }
                let _ = ended.send(()).await;
            });
        }
    });
    (address, ends)
}

/// Sends a request to the proxy from inside, and returns the whole answer.
async fn ask(sandbox: &Sandbox<'_>, target: &str) -> String {
    let script = "exec 3<>/dev/tcp/127.0.0.1/3128 || exit 9
                  printf '%s HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' \"$1\" >&3
                  cat <&3";
    let ended = sandbox.run(request(&["bash", "-c", script, "ask", target])).await;
    assert_eq!(ended.code, 0, "{target}: {ended:?}");
    ended.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn only_listed_hosts_are_reached() {
    let Some(local) = local(None).await else { return };
    let (at, _ends) = hello().await;
    let port = at.port();
    let listed = ["site", "private", "metadata"].map(|name| format!("{name}.test:{port}"));
    let sandbox = sandbox(&local, "listed", allow(&listed, &[at])).await;
    let ok = ask(&sandbox, &format!("GET http://site.test:{port}/")).await;
    assert!(ok.starts_with("HTTP/1.1 200 OK") && ok.ends_with("hello\n"), "{ok}");
    for (target, why) in [
        (format!("GET http://other.test:{port}/"), "not in the allow list"),
        (format!("CONNECT other.test:{port}"), "not in the allow list"),
        (format!("CONNECT private.test:{port}"), "not public"),
        (format!("CONNECT metadata.test:{port}"), "not public"),
        ("CONNECT 169.254.169.254:80".into(), "not public"),
        ("CONNECT site.test:443".into(), "not in the allow list"),
    ] {
        let refused = ask(&sandbox, &target).await;
        assert!(refused.starts_with("HTTP/1.1 403"), "{target}: {refused}");
        assert!(refused.contains(why), "{target}: {refused}");
    }
    // Without the proxy no host is reachable, even one that the proxy allows.
    let script = format!("echo > /dev/tcp/127.0.0.1/{port}");
    let past = sandbox.run(request(&["bash", "-c", &script])).await;
    assert!(past.stderr.contains("refused"), "{past:?}");
    let devices = sandbox.sh("tail -n +3 /proc/net/dev | cut -d: -f1").await;
    assert!(!devices.contains("eth"), "{devices}");
    // A tunnel.
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/3128
         printf 'CONNECT site.test:{port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3
         read -r status <&3; echo \"$status\"
         printf 'hi\\n' >&3; while read -r line <&3; do [ \"$line\" = hello ] && echo it is && exit; done"
    );
    let tunnel = sandbox.run(request(&["bash", "-c", &script])).await;
    assert!(tunnel.stdout.starts_with("HTTP/1.1 200"), "{tunnel:?}");
    assert!(tunnel.stdout.ends_with("it is\n"), "{tunnel:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_reaches_no_private_address_and_never_the_server() {
    let (server, _) = hello().await;
    let (near, _ends) = hello().await;
    let Some(local) = local(Some(server)).await else { return };
    let sandbox = sandbox(&local, "full", Network::Full { private: vec![server, near] }).await;
    let ok = ask(&sandbox, &format!("GET http://site.test:{}/", near.port())).await;
    assert!(ok.ends_with("hello\n"), "{ok}");
    let mut events = local.provider.subscribe();
    for (target, why, notice) in [
        (format!("GET http://site.test:{}/", server.port()), "not public", "(the server itself)"),
        (
            "CONNECT private.test:443".into(),
            "not public",
            "add \"10.1.2.3:443\" to `allow_private`",
        ),
        ("CONNECT metadata.test:80".into(), "not public", "which no sandbox may reach"),
        ("CONNECT 9.9.9.9:25".into(), "mail", "leaves mail between servers out"),
        ("CONNECT 192.0.2.1:25".into(), "not public", "192.0.2.1:25"),
    ] {
        let refused = ask(&sandbox, &target).await;
        assert!(refused.starts_with("HTTP/1.1 403") && refused.contains(why), "{refused}");
        // The notice names the address behind a name; the sandbox does not learn it.
        for address in ["127.0.0.1", "10.1.2.3", "169.254"] {
            assert!(!refused.contains(address), "{refused}");
        }
        let event = events.try_next().expect("the notice precedes the answer");
        let ProviderEvent::Notice(sent) = event else { panic!("{event:?}") };
        assert_eq!(sent.sandbox, sandbox.target.expected);
        assert!(sent.text.contains(notice), "{sent:?}");
    }
    let egress = local.provider.egress().expect("it goes through the server");
    assert_eq!(egress.results[EgressResult::Connected as usize], 1);
    assert!(egress.received > 0, "{egress:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_get_the_proxy_s_variables_and_may_override_them() {
    let Some(local) = local(None).await else { return };
    let sandbox = sandbox(&local, "variables", Network::Full { private: Vec::new() }).await;
    let proxy = "http://127.0.0.1:3128";
    let script = "for v in HTTP_PROXY HTTPS_PROXY http_proxy https_proxy NO_PROXY no_proxy; do
                  eval echo \"$v=\\$$v\"; done; cat /etc/resolv.conf; ls /etc/ssl/certs >/dev/null";
    let variables = sandbox.sh(script).await;
    let none = "localhost,127.0.0.1,::1";
    assert_eq!(
        variables,
        format!(
            "HTTP_PROXY={proxy}\nHTTPS_PROXY={proxy}\nhttp_proxy={proxy}\nhttps_proxy={proxy}\n\
             NO_PROXY={none}\nno_proxy={none}\n\
             # Names are resolved by the proxy that HTTPS_PROXY names.\n"
        )
    );
    let own = ExecRequest {
        env: vec![("HTTPS_PROXY".into(), "mine".into()), ("no_proxy".into(), String::new())],
        ..request(&["sh", "-c", "echo $HTTPS_PROXY $HTTP_PROXY $no_proxy"])
    };
    assert_eq!(sandbox.run(own).await.stdout, format!("mine {proxy}\n"));

    // At a terminal as well.
    let request = TerminalRequest {
        command: ["sh", "-c", "echo $HTTPS_PROXY"].map(String::from).to_vec(),
        cwd: None,
        env: Vec::new(),
        size: TerminalSize { columns: 80, rows: 24 },
    };
    let mut terminal =
        local.provider.terminal(sandbox.target.clone(), request).await.expect("started");
    let mut shown = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(WAIT, terminal.events.recv()).await {
        match event {
            TerminalEvent::Output(bytes) => shown.extend(bytes),
            TerminalEvent::Exit { code } => assert_eq!(code, 0),
        }
    }
    assert_eq!(String::from_utf8_lossy(&shown), format!("{proxy}\r\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_with_the_sandbox_and_a_start_brings_the_proxy_back() {
    let Some(local) = local(None).await else { return };
    let (at, mut ends) = hello().await;
    let listed = [format!("site.test:{}", at.port())];
    let sandbox = sandbox(&local, "ends", allow(&listed, &[at])).await;
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/3128
         printf 'CONNECT site.test:{} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\nhi' >&3
         read -r status <&3; echo \"$status\"; sleep 1000 & disown",
        at.port()
    );
    // The background process keeps the connection.
    let held = sandbox.run(request(&["bash", "-c", &script])).await;
    assert!(held.stdout.starts_with("HTTP/1.1 200"), "{held:?}");

    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    let ended = tokio::time::timeout(WAIT, ends.recv()).await;
    ended.expect("the connection must end with the sandbox").expect("reported");

    // The network is stored with the object.
    local.provider.start(call(&sandbox.target)).await.expect("started");
    let ok = ask(&sandbox, &format!("GET http://site.test:{}/", at.port())).await;
    assert!(ok.ends_with("hello\n"), "{ok}");
    local.provider.delete(call(&sandbox.target)).await.expect("deleted");
    tokio::time::timeout(WAIT, ends.recv())
        .await
        .expect("the connection must end")
        .expect("reported");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_s_network_is_available_only_by_template() {
    let Some(local) = local(None).await else { return };
    let (at, _ends) = hello().await;
    let sandbox = sandbox(&local, "host", Network::Host).await;
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; echo hi >&3
         while read -r line <&3; do [ \"$line\" = hello ] && echo it is && exit; done",
        at.port()
    );
    let reached = sandbox.run(request(&["bash", "-c", &script])).await;
    assert_eq!(reached.stdout, "it is\n", "{reached:?}");
    let env = sandbox.sh("env; cat /etc/resolv.conf").await;
    assert!(!env.to_lowercase().contains("_proxy="), "{env}");
    let own = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    assert!(env.ends_with(&own), "{env}");
    // Everything else is as in every sandbox.
    assert_eq!(
        sandbox.sh("id -u").await,
        "1000
"
    );
    let status = sandbox.sh("grep -E 'CapEff|Seccomp:' /proc/self/status").await;
    assert_eq!(status, "CapEff:\t0000000000000000\nSeccomp:\t2\n");
}
