//! Servers in a sandbox, reached over HTTP: what goes on, what comes back, and what does not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::server::{TOKEN, TestServer, opening, send};
use crate::common::socket::SocketClient;
use futures_util::{SinkExt, StreamExt};
use issuebox::sandbox::HttpAccess;
use reqwest::Method;
use tokio_tungstenite::tungstenite::Message;

const WAIT: Duration = Duration::from_secs(10);

/// Where a port of the sandbox is reached.
fn at(id: &str, rest: &str) -> String {
    format!("/v1/sandboxes/{id}/ports/3000{rest}")
}

/// A connection on which nothing was asked yet.
fn connection(server: &TestServer) -> TcpStream {
    let stream = TcpStream::connect(server.url("").trim_start_matches("http://"));
    let stream = stream.expect("connected");
    stream.set_read_timeout(Some(WAIT)).expect("set");
    stream
}

/// The head of what a request is answered.
fn ask(stream: &mut TcpStream, method: &str, path: &str, headers: &str) -> String {
    let host = stream.peer_addr().expect("connected");
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut got = Vec::new();
    let mut byte = [0];
    while !got.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("an answer") == 1 {
        got.push(byte[0]);
    }
    String::from_utf8(got).expect("text")
}

/// A connection on which a request with an upgrade was sent, and the head of its answer.
fn upgraded(server: &TestServer, path: &str, headers: &str) -> (TcpStream, String) {
    let mut stream = connection(server);
    let head = ask(&mut stream, "GET", path, headers);
    (stream, head)
}

#[tokio::test]
async fn a_request_is_forwarded_without_credentials_and_with_its_origin() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let request = server.request(Method::PUT, &at(&id, "/a%2Fb/../c?x=1&y=%20"));
    let request = request
        .header("cookie", "a=b")
        .header("x-own", "1")
        .header("x-forwarded-host", "forged.example")
        .header("connection", "x-hop")
        .header("x-hop", "1");
    let answer = send(request.body("the body")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let asked = answer.text.to_ascii_lowercase();
    assert!(asked.ends_with("\r\n\r\nthe body") || asked.contains("the body"), "{asked}");
    for there in ["x-own: 1", "cookie: a=b", "host: localhost:3000", "x-forwarded-proto: http"] {
        assert!(asked.contains(there), "{there} in {asked}");
    }
    assert!(asked.contains(&format!("x-forwarded-prefix: {}", at(&id, ""))), "{asked}");
    for gone in ["authorization", TOKEN, "forged.example", "x-hop"] {
        assert!(!asked.contains(gone), "{gone} in {asked}");
    }
    assert_eq!(answer.header("content-security-policy").split(' ').next(), Some("sandbox"));
    assert!(!answer.header("content-security-policy").contains("allow-same-origin"));
    assert_eq!(answer.header("location"), at(&id, "/next"));
    assert_eq!((answer.header("set-cookie"), answer.header("server")), ("a=b", "inside"));
    let odd = send(server.request(Method::GET, &at(&id, "/teapot"))).await;
    assert_eq!(odd.status, 418, "its status is its own");
}

#[tokio::test]
async fn a_head_is_asked_for_as_one_and_the_connection_goes_on() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let token = format!("authorization: Bearer {TOKEN}");
    let cookie = format!("cookie: {}", server.log_in().await);
    let mut stream = connection(&server);
    for who in [&token, &cookie] {
        let path = at(&id, "/page");
        let head = ask(&mut stream, "HEAD", &path, who);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let len = |head: &str| {
            let len = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            len.unwrap_or_else(|| panic!("no length: {head}")).parse::<usize>().expect("a number")
        };
        // On the same connection: it carried no body, and is not closed because the one inside was.
        let next = ask(&mut stream, "GET", &path, who);
        let mut body = vec![0; len(&next)];
        stream.read_exact(&mut body).expect("the body");
        let asked = String::from_utf8(body).expect("text");
        assert!(asked.starts_with("GET /page HTTP/1.1"), "{asked}");
        // What was said back is the request, which is one byte longer with this method.
        assert_eq!(len(&head), asked.len() + 1, "of what was asked for with HEAD");
    }
    // What is answered here has no body either.
    let refused = ask(&mut stream, "HEAD", &at("none", "/"), &token);
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
    let after = ask(&mut stream, "HEAD", "/v1/sandboxes", &token);
    assert!(after.starts_with("HTTP/1.1 200"), "{after}");
}

#[tokio::test]
async fn every_method_reaches_the_server_on_the_port() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let methods =
        ["GET", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "M-SEARCH", "X"];
    for method in methods {
        let as_method = Method::from_bytes(method.as_bytes()).expect("a method");
        let answer = send(server.request(as_method, &at(&id, "/c"))).await;
        assert_eq!(answer.status, 200, "{method}: {answer:?}");
        assert!(answer.text.starts_with(&format!("{method} /c ")), "{method}: {answer:?}");
    }
    let mut stream = connection(&server);
    let token = format!("authorization: Bearer {TOKEN}");
    let refused = ask(&mut stream, "CONNECT", &at(&id, "/c"), &token);
    assert!(!refused.starts_with("HTTP/1.1 2"), "{refused}");
}

#[tokio::test]
async fn a_path_without_its_final_slash_is_redirected_to_the_one_with_it() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let token = format!("authorization: Bearer {TOKEN}");
    for method in ["GET", "HEAD", "PUT", "PROPFIND"] {
        let head = ask(&mut connection(&server), method, &at(&id, "?a=%20b"), &token);
        assert!(head.starts_with("HTTP/1.1 307"), "{method}: {head}");
        assert!(head.contains("location: ./3000/?a=%20b\r\n"), "{method}: {head}");
    }
}

#[tokio::test]
async fn an_upgrade_without_a_request_for_it_is_an_error() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let answer = send(server.request(Method::GET, &at(&id, "/switch"))).await;
    assert_eq!((answer.status, answer.code().as_str()), (502, "port_closed"), "{answer:?}");
    assert!(answer.text.contains("was not requested"), "{answer:?}");
}

#[tokio::test]
async fn a_session_reads_but_no_cookie_passes_and_no_other_origin_opens_a_stream() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let cookie = server.log_in().await;
    let request = server.client.get(server.url(&at(&id, "/"))).header("cookie", &cookie);
    let answer = send(request).await;
    assert_eq!(answer.status, 200);
    assert!(!answer.text.to_ascii_lowercase().contains("cookie"), "{answer:?}");
    assert_eq!(answer.header("set-cookie"), "");
    let change = server.client.post(server.url(&at(&id, "/"))).header("cookie", &cookie);
    assert_eq!(send(change).await.status, 403, "a change needs the form token");
    let with = |origin: &str| {
        format!("connection: upgrade\r\nupgrade: websocket\r\norigin: {origin}\r\ncookie: {cookie}")
    };
    let (_, refused) = upgraded(&server, &at(&id, "/ws"), &with("http://elsewhere.example"));
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let (_, taken) = upgraded(&server, &at(&id, "/ws"), &with(&server.url("")));
    assert!(taken.starts_with("HTTP/1.1 101"), "{taken}");
}

#[tokio::test]
async fn what_is_upgraded_carries_bytes_both_ways_at_once() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let with =
        format!("connection: upgrade\r\nupgrade: websocket\r\nauthorization: Bearer {TOKEN}");
    let (mut stream, head) = upgraded(&server, &at(&id, "/ws"), &with);
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let head = head.to_ascii_lowercase();
    assert!(head.contains("upgrade: websocket") && head.contains("sec-websocket-accept: yes"));
    // More than any buffer between here and there, so that both directions have to flow.
    let long = vec![b'x'; 3_000_000];
    let mut writing = stream.try_clone().expect("another");
    let sent = long.clone();
    let writer = std::thread::spawn(move || writing.write_all(&sent).expect("sent"));
    let mut got = vec![0; long.len()];
    stream.read_exact(&mut got).expect("said back");
    assert!(got == long, "the same bytes");
    writer.join().expect("written");
    server.closing.send_replace(true);
    assert_eq!(stream.read(&mut [0]).expect("its end"), 0, "it ends with the server");
}

/// A tunnel to the port.
async fn tunnel(server: &TestServer, id: &str) -> SocketClient {
    SocketClient::open(server.request(Method::GET, &at(id, "")), "issuebox.tunnel.v1").await
}

#[tokio::test]
async fn a_tunnel_reaches_a_port_that_the_template_does_not_list() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let path = |port: &str| format!("/v1/sandboxes/{id}/ports/{port}");
    // The sandbox has a server on 3000 alone, so that others are closed and not refused.
    for port in ["5432", "65535"] {
        let answer = send(opening(server.request(Method::GET, &path(port)))).await;
        assert_eq!((answer.status, answer.code().as_str()), (502, "port_closed"), "{port}");
    }
    for port in ["0", "65536", "x"] {
        let answer = send(opening(server.request(Method::GET, &path(port)))).await;
        assert_eq!((answer.status, answer.code().as_str()), (404, "port_not_listed"), "{port}");
    }
    // What a browser could open stays what the template lists.
    let answer = send(server.request(Method::GET, &(path("5432") + "/"))).await;
    assert_eq!((answer.status, answer.code().as_str()), (404, "port_not_listed"));
}

#[tokio::test]
async fn a_tunnel_carries_bytes_until_both_directions_have_ended() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let (mut sink, mut source) = tunnel(&server, &id).await.split();
    let long = [b"raw".to_vec(), vec![b'x'; 3_000_000]].concat();
    let sent = async {
        for piece in long.chunks(60_000) {
            sink.send(Message::binary(piece.to_vec())).await.expect("taken");
        }
        sink.send(Message::binary(Vec::new())).await.expect("taken");
    };
    let received = async {
        let mut got = Vec::new();
        loop {
            match source.next().await {
                Some(Ok(Message::Binary(bytes))) if bytes.is_empty() => return got,
                Some(Ok(Message::Binary(bytes))) => got.extend_from_slice(&bytes),
                Some(Ok(Message::Ping(_))) => {}
                other => panic!("{other:?} after {} bytes", got.len()),
            }
        }
    };
    let ((), got) = tokio::time::timeout(WAIT, futures_util::future::join(sent, received))
        .await
        .expect("it flows");
    assert!(got == long, "the same bytes");
    let Some(Ok(Message::Close(Some(frame)))) = source.next().await else { panic!("no close") };
    assert_eq!(u16::from(frame.code), 1000);
}

#[tokio::test]
async fn a_tunnel_whose_client_answers_no_ping_is_given_up_and_one_that_does_is_not() {
    let server = TestServer::with(|edge| edge.limits.ping_every = Duration::from_millis(500)).await;
    let id = server.running("1").await;
    let mut answering = tunnel(&server, &id).await;
    let mut silent = tunnel(&server, &id).await;
    // A client that does not read answers no ping. Four must be answered; the rest is for a slow machine.
    for _ in 0..8 {
        let next = answering.next_of_all().await;
        assert!(matches!(next, Some(Message::Ping(_))), "{next:?}");
    }
    answering.send(Message::binary("raw")).await;
    assert_eq!(answering.next().await, Some(Message::binary("raw")));
    assert_eq!(silent.next().await, None, "it ends without a word");
}

#[tokio::test]
async fn a_tunnel_ends_with_the_server_and_by_what_is_no_bytes() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let mut odd = tunnel(&server, &id).await;
    odd.send(Message::text("{}")).await;
    assert_eq!(odd.next().await, None, "text means nothing here");
    let mut open = tunnel(&server, &id).await;
    open.send(Message::binary("raw")).await;
    assert_eq!(open.next().await, Some(Message::binary("raw")));
    server.closing.send_replace(true);
    let Some(Message::Close(Some(frame))) = open.next().await else { panic!("no close") };
    assert_eq!(u16::from(frame.code), 1001);
}

#[tokio::test]
async fn ports_are_listed_with_what_they_are() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let sandbox = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    let url = at(&id, "/");
    assert_eq!(sandbox["data"]["endpoints"][0]["port"], 3000);
    assert_eq!(sandbox["data"]["endpoints"][0]["url"], url.as_str());
    let states = async || {
        let listed = server.get(&format!("/v1/sandboxes/{id}/ports")).await.json();
        let states = listed["data"].as_array().expect("a list").iter();
        states.map(|one| one["state"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let word = |word: &str| Some(word.to_owned());
    assert_eq!(states().await, [word("listening"), word("closed")]);
    let activity = |sandbox: &serde_json::Value| sandbox["data"]["lastActivityAt"].clone();
    let after = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    assert_eq!(activity(&after), activity(&sandbox), "a look is no work");
    server.post(&format!("/v1/sandboxes/{id}/stop?wait=5"), serde_json::Value::Null).await;
    assert_eq!(states().await, [word("closed"), word("closed")]);
    let stopped = send(server.request(Method::GET, &at(&id, "/"))).await;
    assert_eq!((stopped.status, stopped.code().as_str()), (409, "not_running"));
}

/// An address of the provider that leads to the server in the sandbox.
async fn preview(server: &TestServer) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(crate::common::inside::serve(stream));
        }
    });
    reached_at(server, format!("http://{address}/box/3000/"));
    address
}

fn reached_at(server: &TestServer, base_url: String) {
    let headers = vec![("X-Preview-Token".to_owned(), "the-secret".to_owned())];
    let access = HttpAccess { base_url, headers };
    *server.provider.http_port.lock().expect("not poisoned") = Some(access);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_behind_an_address_of_the_provider_is_asked_there() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    let address = preview(&server).await;
    let request = server.request(Method::PUT, &at(&id, "/a%2Fb?x=1"));
    let answer = send(request.header("x-preview-token", "forged").body("the body")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let asked = answer.text.to_ascii_lowercase();
    assert!(asked.starts_with("put /box/3000/a%2fb?x=1 http/1.1\r\n"), "{asked}");
    for there in
        [format!("host: {address}"), "x-preview-token: the-secret".into(), "the body".into()]
    {
        assert!(asked.contains(&there), "{there} in {asked}");
    }
    assert!(!asked.contains("forged") && !asked.contains(TOKEN), "{asked}");
    assert_eq!(answer.header("location"), at(&id, "/next"));
    assert_eq!(answer.header("content-security-policy").split(' ').next(), Some("sandbox"));
    // Upgraded too.
    let headers = format!(
        "authorization: Bearer {TOKEN}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA=="
    );
    let (mut stream, head) = upgraded(&server, &at(&id, "/socket"), &headers);
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    stream.write_all(b"said").expect("sent");
    let mut back = [0; 4];
    stream.read_exact(&mut back).expect("said back");
    assert_eq!(&back, b"said");
    // It carries HTTP and nothing else.
    let tunnel = send(opening(server.request(Method::GET, &at(&id, "")))).await;
    assert_eq!((tunnel.status, tunnel.code().as_str()), (501, "not_supported"));
    let list = send(server.request(Method::GET, &format!("/v1/sandboxes/{id}/ports"))).await;
    assert!(list.json()["data"][0]["state"].is_null(), "only a request would show it: {list:?}");
}

#[tokio::test]
async fn an_address_of_the_provider_that_is_wrong_fails_and_gives_no_secret_away() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    // Nothing listens there, and no other test is given this port.
    let closed = "127.0.0.1:1";
    for base_url in [
        format!("http://{closed}"),
        format!("https://{closed}"),
        "ftp://example.com".to_owned(),
        "/box".to_owned(),
        "http://".to_owned(),
    ] {
        reached_at(&server, base_url.clone());
        let answer = send(server.request(Method::GET, &at(&id, "/"))).await;
        assert_eq!((answer.status, answer.code().as_str()), (502, "provider_failed"), "{base_url}");
        assert!(!answer.text.contains("the-secret"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_gets_to_its_answer_is_given_up() {
    let server = TestServer::start().await;
    let id = server.running("1").await;
    for (interim, status) in [(10, 200), (usize::MAX, 502)] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        reached_at(&server, format!("http://{}", listener.local_addr().expect("bound")));
        let sending = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("asked");
            let mut head = [0; 16];
            stream.read_exact(&mut head).expect("a request");
            for _ in 0..interim {
                if stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n").is_err() {
                    return;
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let answer = send(server.request(Method::GET, &at(&id, "/"))).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.text.contains("interim answers"), status == 502, "{answer:?}");
        sending.join().expect("its connection ends");
    }
}
