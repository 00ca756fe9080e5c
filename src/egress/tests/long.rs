//! Long transfers: many bytes, slow bytes, directions that end early, and connections with many requests.

use super::*;

/// The size of a toolchain.
const MUCH: usize = 200 << 20;

/// Answers each connection with many bytes.
fn much(mut stream: TcpStream) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {MUCH}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).await;
        let piece = vec![b'x'; 1 << 16];
        for _ in 0..MUCH >> 16 {
            if stream.write_all(&piece).await.is_err() {
                return;
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_bytes_arrive_complete_in_both_ways() {
    let bench = ProxyBench::new(much).await;
    let port = bench.server.port();
    let plain = format!("GET http://site.test:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n");
    let tunnel =
        format!("CONNECT site.test:{port} HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    let before = bench.proxies.egress().received;
    for (request, heads) in [(plain, 1), (tunnel, 2)] {
        let mut stream = bench.connect().await;
        stream.write_all(request.as_bytes()).await.expect("sent");
        for _ in 0..heads {
            read_until(&mut stream, "\r\n\r\n").await;
        }
        let (mut count, mut piece) = (0, vec![0; 1 << 16]);
        while count < MUCH {
            let read = stream.read(&mut piece).await.expect("it goes on");
            assert!(read > 0, "it ended after {count} bytes");
            count += read;
        }
    }
    let received = bench.proxies.egress().received - before;
    assert!(received > 2 * MUCH as u64, "{received}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_does_not_hold_its_connection() {
    let bench = ProxyBench::new(mirror).await;
    // Byte by byte, each of which would be in time.
    let begun = tokio::time::Instant::now();
    let mut stream = bench.connect().await;
    let mut sent = 0;
    while stream.write_all(b"G").await.is_ok() {
        tokio::time::sleep(Duration::from_secs(7)).await;
        sent += 1;
        assert!(sent < 10, "it must have ended");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    // No byte at all, before a request and after one.
    let answered =
        format!("GET http://site.test:{}/ HTTP/1.1\r\nHost: x\r\n\r\n", bench.server.port());
    for request in ["", &*answered] {
        let begun = tokio::time::Instant::now();
        let mut stream = bench.connect().await;
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("it ends well");
        assert_eq!(answer.starts_with(b"HTTP/1.1 200"), !request.is_empty());
        let took = begun.elapsed().as_secs();
        assert!((30..60).contains(&took), "{took} s");
    }
}

#[tokio::test]
async fn the_server_can_end_its_direction_of_a_tunnel_first() {
    // It ends its direction at once, and reports what it received in the other one.
    let (got, mut received) = tokio::sync::mpsc::channel(1);
    let bench = ProxyBench::new(move |mut stream| {
        let got = got.clone();
        tokio::spawn(async move {
            stream.write_all(b"bye").await.expect("sent");
            stream.shutdown().await.expect("half closed");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.expect("it ends well");
            got.send(all.len()).await.expect("heard");
        })
    })
    .await;
    let mut stream = bench.connect().await;
    let port = bench.server.port();
    let connect = format!("CONNECT site.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(connect.as_bytes()).await.expect("sent");
    let answer = read_all(&mut stream).await;
    assert!(answer.ends_with("\r\n\r\nbye"), "{answer}");
    stream.write_all(&vec![b'x'; 1 << 20]).await.expect("the other half is open");
    stream.shutdown().await.expect("half closed");
    let got = tokio::time::timeout(WAIT, received.recv()).await.expect("it must arrive");
    assert_eq!(got, Some(1 << 20));
}

/// Reads up to this text, and returns all of it.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut all = Vec::new();
    let read = async {
        while !all.ends_with(end.as_bytes()) {
            all.push(stream.read_u8().await.expect("it goes on"));
        }
    };
    let ended = tokio::time::timeout(WAIT, read).await;
    let all = String::from_utf8_lossy(&all).into_owned();
    ended.unwrap_or_else(|_| panic!("{end:?} must come, behind {all:?}"));
    all
}

/// Answers each request by its method and path.
fn by_path(mut stream: TcpStream) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let head = read_until(&mut stream, "\r\n\r\n").await;
        let answer = match head.split(" HTTP").next() {
            Some("HEAD /") => "200 OK\r\ncontent-length: 1000\r\n\r\n".to_owned(),
            Some("GET /same") => "304 Not Modified\r\ncontent-length: 1000\r\n\r\n".to_owned(),
            Some("GET /none") => "204 No Content\r\n\r\n".to_owned(),
            Some("POST /") => {
                let body = read_until(&mut stream, "end").await;
                format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            }
            Some(other) => format!(
                "200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{other}\r\n0\r\n\r\n",
                other.len()
            ),
            None => return,
        };
        let _ = stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await;
    })
}

#[tokio::test]
async fn a_connection_continues_after_answers_of_every_kind() {
    let bench = ProxyBench::new(by_path).await;
    let mut stream = bench.connect().await;
    let site = format!("http://site.test:{}", bench.server.port());
    for (request, status, end) in [
        ("HEAD /", "200", "\r\n\r\n"),
        ("GET /same", "304", "\r\n\r\n"),
        ("GET /none", "204", "\r\n\r\n"),
        ("GET /one", "200", "GET /one\r\n0\r\n\r\n"),
        ("GET /two", "200", "GET /two\r\n0\r\n\r\n"),
    ] {
        let (method, path) = request.split_once(' ').expect("two words");
        let request = format!("{method} {site}{path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let answer = read_until(&mut stream, end).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
    }
    // A client that expects 100 gets it, but only if the body has a destination.
    let head = "HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue";
    stream.write_all(format!("POST {site}/ {head}\r\n\r\n").as_bytes()).await.expect("sent");
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"end").await.expect("sent");
    let answer = read_until(&mut stream, "\r\n\r\nend").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stream
        .write_all(format!("POST http://evil.test/ {head}\r\n\r\n").as_bytes())
        .await
        .expect("sent");
    let refused = read_until(&mut stream, "template.\n").await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
}

#[tokio::test]
async fn a_client_may_end_its_direction_before_the_answer() {
    let bench = ProxyBench::new(mirror).await;
    let mut stream = bench.connect().await;
    let request =
        format!("GET http://site.test:{}/ HTTP/1.1\r\nHost: x\r\n\r\n", bench.server.port());
    stream.write_all(request.as_bytes()).await.expect("sent");
    stream.shutdown().await.expect("half closed");
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
