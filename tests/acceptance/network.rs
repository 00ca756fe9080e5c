//! What a template says of the network holds in a real sandbox of a whole server, is shown wherever
//! people look, and opens nothing of the server itself.

use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::process::{Place, Server, until};

/// Asks the proxy inside for an address, and returns what it answers.
async fn ask(server: &Server, id: &str, address: &str) -> String {
    let script = format!(
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128
         printf \"GET http://{address}/ HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n\" >&3
         cat <&3'"
    );
    server.sh(id, &script).await["stdout"].as_str().expect("an output").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes real sandboxes; run by .ci/run"]
async fn a_template_s_network_holds_is_shown_and_never_opens_the_server() {
    let Some(place) = Place::local(None).await else { return };
    let site = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let site_at = site.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = site.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let own = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let own = own.expect("a free port").to_string();
    let mut command = place.serve_command(&own);
    command.env("ISSUEBOX__TEMPLATES__DEFAULT__NETWORK", "allow");
    command.env("ISSUEBOX__TEMPLATES__DEFAULT__ALLOW_PRIVATE", format!("{site_at},{own}"));
    let server = Server::start(command.stdout(Stdio::null())).await;
    let system = server.get("/v1/system").await.json();
    assert_eq!(system["data"]["providers"][0]["isolation"]["network"], "allow", "{system}");
    let sandbox = server.running("test-1").await;
    assert_eq!(sandbox["network"], "allow", "{sandbox}");
    let id = sandbox["id"].as_str().expect("an id");

    let ok = ask(&server, id, &site_at).await;
    assert!(ok.starts_with("HTTP/1.1 200") && ok.ends_with("hello"), "{ok}");
    let refused = ask(&server, id, &own).await;
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("not public"), "{refused}");
    let refused = ask(&server, id, "169.254.169.254").await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");

    // People find out why, in the sandbox's log.
    let logs = || async {
        let log = server.get(&format!("/v1/sandboxes/{id}/logs")).await.json();
        let entries = log["data"].as_array().expect("entries").clone();
        entries.into_iter().filter(|entry| entry["stream"] == "note").collect::<Vec<_>>()
    };
    until("what was refused is in the log", || async { logs().await.len() >= 2 }).await;
    let texts: Vec<String> = logs().await.iter().map(|entry| entry["text"].to_string()).collect();
    for expected in
        [&*format!("refused {own}: it leads to {own} (the server itself)"), "169.254.169.254"]
    {
        assert!(texts.iter().any(|text| text.contains(expected)), "{texts:?} must tell {expected}");
    }
    let metrics = server.get("/metrics").await.text;
    for line in ["{result=\"connected\"} 1", "{result=\"never\"} 2", "{result=\"not_listed\"} 0"] {
        assert!(metrics.contains(&format!("issuebox_egress_requests_total{line}\n")), "{metrics}");
    }
}
