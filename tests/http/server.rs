//! Connections: where requests begin and end, how long they may take, and the server's end.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::server::{TOKEN, TestServer, opened, send};
use issuebox::http::Limits;

const GET: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
const GET_AND_CLOSE: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

fn connect(server: &TestServer) -> TcpStream {
    let stream = TcpStream::connect(server.address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid time-out");
    stream
}

/// Reads until the server closes.
fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server closes in time");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends bytes and reads until the server closes.
fn exchange(server: &TestServer, bytes: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(bytes.as_bytes()).expect("it is taken");
    read_all(&mut stream)
}

/// Reads an answer of `/healthz`, and no more.
fn read_healthy(stream: &mut TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let len = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let len: usize = len.expect("a length");
    stream.read_exact(&mut vec![0; len]).expect("a body");
}

/// A request with a chunked body, and another behind it.
fn chunked(chunks: &str) -> String {
    format!(
        "POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         transfer-encoding: chunked\r\n\r\n{chunks}{GET_AND_CLOSE}"
    )
}

fn statuses(answers: &str) -> Vec<&str> {
    answers.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect()
}

#[tokio::test]
async fn no_request_is_swallowed_behind_a_chunked_body() {
    let server = TestServer::start().await;
    let valid = exchange(&server, &chunked("2\r\n{}\r\n0\r\n\r\n"));
    assert_eq!(statuses(&valid), ["400", "200"], "{valid}");
    let with_trailer = exchange(&server, &chunked("2\r\n{}\r\n0\r\na: b\r\n\r\n"));
    assert_eq!(statuses(&with_trailer), ["400", "200"], "{with_trailer}");
    for chunks in ["2\r\n{}\r\n0\r\n\n", "2\r\n{}\r\n0\r\na: b\n\r\n", "2\r\n{}\r\n0\n\n"] {
        let answers = exchange(&server, &chunked(chunks));
        assert_eq!(statuses(&answers), ["400"], "{chunks:?}: {answers}");
        assert!(answers.contains("it is unclear where the request ends"), "{answers}");
    }
}

#[tokio::test]
async fn requests_that_are_sent_at_once_are_answered_in_order() {
    let server = TestServer::start().await;
    let requests: Vec<_> = (0..60)
        .map(|n| match n % 3 {
            0 => "GET /nope HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
            1 => GET.to_owned(),
            _ => format!(
                "POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
                 content-length: 2\r\n\r\n{{}}"
            ),
        })
        .collect();
    let answers = exchange(&server, &(requests.concat() + GET_AND_CLOSE));
    let expected = ["404", "200", "400"].repeat(20);
    assert_eq!(statuses(&answers), [&expected[..], &["200"]].concat());
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_and_the_refusal_arrives() {
    let server = TestServer::start().await;
    let mut stream = connect(&server);
    stream.write_all(GET.as_bytes()).expect("it is taken");
    read_healthy(&mut stream);
    let head = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx: {}", "y".repeat(200_000));
    stream.write_all(head.as_bytes()).expect("it is taken");
    let answer = read_all(&mut stream);
    assert_eq!(statuses(&answer), ["431"], "{answer}");
    let fits = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx: {}", "y".repeat(30_000));
    let answer = exchange(&server, &(fits + "\r\nconnection: close\r\n\r\n"));
    assert_eq!(statuses(&answer), ["200"], "{answer}");
}

#[tokio::test]
async fn every_head_of_a_connection_has_its_time() {
    let server = TestServer::with(|edge| {
        edge.limits = Limits { header_time_max: Duration::from_secs(3), ..edge.limits.clone() };
    })
    .await;
    let mut stream = connect(&server);
    stream.write_all(GET.as_bytes()).expect("it is taken");
    read_healthy(&mut stream);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nx: ").expect("it is taken");
    assert_eq!(read_all(&mut stream), "");
}

#[tokio::test]
async fn what_was_sent_before_the_end_is_answered() {
    for round in 0..5 {
        let server = TestServer::start().await;
        let mut streams: Vec<_> = (0..100).map(|_| connect(&server)).collect();
        for stream in &mut streams {
            stream.write_all(GET.as_bytes()).expect("it is taken");
            read_healthy(stream);
        }
        streams.extend((0..100).map(|_| connect(&server)));
        for stream in &mut streams {
            stream.write_all(GET.as_bytes()).expect("it is taken");
        }
        server.end();
        let answers: Vec<_> = streams.iter_mut().map(read_all).collect();
        let answered = answers.iter().filter(|answer| statuses(answer) == ["200"]).count();
        assert_eq!(answered, 200, "in round {round}");
    }
}

#[tokio::test]
async fn the_end_waits_for_answers_and_a_moment_for_heads() {
    let server = TestServer::start().await;
    let mut idle = connect(&server);
    idle.write_all(GET.as_bytes()).expect("it is taken");
    read_healthy(&mut idle);
    let mut late = connect(&server);
    late.write_all(b"GET /healthz HTTP/1.1\r\n").expect("it is taken");
    let mut never = connect(&server);
    never.write_all(b"GET /healthz HTTP/1.1\r\n").expect("it is taken");
    let mut fresh = connect(&server);
    // Whose end shows that the server's end has begun.
    server.end();
    assert_eq!(read_all(&mut idle), "");
    late.write_all(b"host: x\r\n\r\n").expect("it is taken");
    fresh.write_all(GET.as_bytes()).expect("it is taken");
    for answer in [late, fresh].iter_mut().map(read_all) {
        assert_eq!(statuses(&answer), ["200"]);
        assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    }
    assert_eq!(read_all(&mut never), "");
    never.shutdown(Shutdown::Both).ok();
}

/// A connection from one of this machine's addresses.
fn connect_from(server: &TestServer, last: u8) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let own = SocketAddr::from(([127, 0, 0, last], 0));
    bind(&socket, &own).expect("every address of 127/8 is this machine");
    connect(&socket, &server.address).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a valid time-out");
    stream
}

/// The value of a metric.
pub async fn metric(server: &TestServer, name: &str) -> f64 {
    let text = send(server.client.get(server.url("/metrics"))).await.text;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect("a metric").parse().expect("a number")
}

/// Waits until a metric has at least this value.
async fn metric_reaches(server: &TestServer, name: &str, value: f64) {
    let reached = async { while metric(server, name).await < value {} };
    let reached = tokio::time::timeout(Duration::from_secs(10), reached).await;
    assert!(reached.is_ok(), "{name} never came to {value}");
}

/// A delivery without a right signature of which the last byte does not come.
fn unfinished_delivery(len: usize) -> Vec<u8> {
    let signature = "0".repeat(64);
    let head = format!(
        "POST /webhooks/github HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         x-github-event: issues\r\nx-github-delivery: x\r\nx-hub-signature-256: sha256={signature}\
         \r\ncontent-length: {len}\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + len - 1, b'x');
    bytes
}

#[tokio::test]
async fn deliveries_are_taken_while_others_hold_the_memory_for_bodies() {
    let server = TestServer::with(|edge| {
        edge.limits = Limits { bodies_sum_max: 1 << 20, ..edge.limits.clone() };
    })
    .await;
    // Large ones from several addresses until three quarters are theirs, and small ones for the rest.
    let mut held = Vec::new();
    for last in 10..16 {
        let mut stream = connect_from(&server, last);
        stream.write_all(&unfinished_delivery(200_000)).expect("it is taken");
        held.push(stream);
    }
    // Only once the others gave way: the parts of large ones that still arrive take room of small ones.
    let cut_off = r#"issuebox_http_cut_offs_total{reason="body_overloaded"}"#;
    metric_reaches(&server, cut_off, 3.0).await;
    metric_reaches(&server, "issuebox_http_body_bytes", 3.0 * 199_999.0).await;
    for last in 20..27 {
        let mut stream = connect_from(&server, last);
        stream.write_all(&unfinished_delivery(60_000)).expect("it is taken");
        held.push(stream);
    }
    metric_reaches(&server, "issuebox_http_body_bytes", 3.0 * 199_999.0 + 7.0 * 59_999.0).await;
    for (id, padding) in (1..=20).map(|id| (id, if id == 20 { 200_000 } else { 40_000 })) {
        let (delivery, padding) = (format!("d-{id}"), " ".repeat(padding));
        let body = opened(id, "an issue") + &padding;
        let answer = server.deliver("issues", &delivery, &body).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    metric_reaches(&server, cut_off, 4.0).await;
    assert!(metric(&server, "issuebox_http_body_bytes").await <= 1_048_576.0);
}

#[tokio::test]
async fn one_address_cannot_fill_the_memory_for_bodies() {
    let server = TestServer::with(|edge| {
        edge.limits = Limits { bodies_sum_max: 1 << 20, ..edge.limits.clone() };
    })
    .await;
    let mut held: Vec<_> = (0..8).map(|_| connect_from(&server, 10)).collect();
    for stream in &mut held {
        stream.write_all(&unfinished_delivery(60_000)).expect("it is taken");
    }
    let cut_off = r#"issuebox_http_cut_offs_total{reason="body_overloaded"}"#;
    metric_reaches(&server, cut_off, 4.0).await;
    metric_reaches(&server, "issuebox_http_body_bytes", 4.0 * 59_999.0).await;
    assert!(metric(&server, "issuebox_http_body_bytes").await <= 262_144.0);
}

#[tokio::test]
async fn deliveries_are_taken_while_others_hold_all_connections() {
    let server = TestServer::with(|edge| {
        edge.limits = Limits { connections_max: 32, ..edge.limits.clone() };
    })
    .await;
    let idle: Vec<_> = (0..200).map(|n| connect_from(&server, 10 + n % 8)).collect();
    let unfinished: Vec<_> = (0..100)
        .map(|n| {
            let mut stream = connect_from(&server, 30 + n % 8);
            // The server may have closed it already.
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nx: ");
            stream
        })
        .collect();
    for id in 1..=20 {
        let delivery = format!("d-{id}");
        let deadline = Instant::now() + Duration::from_secs(5);
        // A new connection for each: heads say little in their first second.
        let client = || reqwest::Client::builder().no_proxy().build().expect("a client");
        let answer = loop {
            match server.try_deliver(&client(), "issues", &delivery, &opened(id, "an issue")).await
            {
                Ok(answer) => break answer,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        };
        assert!([200, 202].contains(&answer.status), "{answer:?}");
    }
    let gave_way = r#"issuebox_http_cut_offs_total{reason="connection_gave_way"}"#;
    metric_reaches(&server, gave_way, 100.0).await;
    drop((idle, unfinished));
}

#[tokio::test]
async fn heads_count_as_bodies_do_and_give_way_as_they_do() {
    let server = TestServer::with(|edge| {
        edge.limits = Limits { bodies_sum_max: 400_000, ..edge.limits.clone() };
    })
    .await;
    let head = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx: {}", "y".repeat(30_000));
    let mut held = Vec::new();
    for n in 0..30 {
        let mut stream = connect_from(&server, 10 + n);
        stream.write_all(head.as_bytes()).expect("it is taken");
        held.push(stream);
    }
    let cut_off = r#"issuebox_http_cut_offs_total{reason="head_overloaded"}"#;
    metric_reaches(&server, cut_off, 10.0).await;
    let bytes = metric(&server, "issuebox_http_body_bytes").await;
    assert!((300_000.0..=400_000.0).contains(&bytes), "{bytes}");
    let answer = server.deliver("issues", "d-1", &opened(1, "an issue")).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let mut whole = connect_from(&server, 50);
    whole.write_all((head + "\r\nconnection: close\r\n\r\n").as_bytes()).expect("it is taken");
    assert_eq!(statuses(&read_all(&mut whole)), ["200"]);
}
