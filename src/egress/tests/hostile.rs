//! Hostile clients and servers. The proxy must not parse a message in one way and forward it to a peer
//! that parses it in another way, and must not work without end for one sandbox.

use super::super::lookups::LOOKUPS_MAX;
use super::*;

/// The bytes that a server received, one text for each connection.
type SeenRequests = Arc<Mutex<Vec<String>>>;

/// Whether this is a request with all of its body.
fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let lines = || head.lines().map(str::to_ascii_lowercase);
    if lines().any(|line| line == "transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let len = lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    body.len() >= len.unwrap_or(0)
}

/// A server that answers each connection's request, and then still reads.
async fn recording() -> (ProxyBench, SeenRequests) {
    let seen = SeenRequests::default();
    let record = Arc::clone(&seen);
    let bench = ProxyBench::new(move |mut stream| {
        let record = Arc::clone(&record);
        tokio::spawn(async move {
            let own = {
                let mut all = record.lock().expect("whole");
                all.push(String::new());
                all.len() - 1
            };
            while let Ok(byte) = stream.read_u8().await {
                let is_whole = {
                    let mut all = record.lock().expect("whole");
                    let was_whole = is_whole(&all[own]);
                    all[own].push(char::from(byte));
                    is_whole(&all[own]) && !was_whole
                };
                if is_whole {
                    let _ =
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                }
            }
        })
    })
    .await;
    (bench, seen)
}

#[tokio::test]
async fn a_request_means_the_same_to_the_proxy_and_the_server() {
    let (bench, seen) = recording().await;
    let hidden = "GET http://evil.test/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let chunked = format!("3\r\nabc\r\n0\r\n\r\n{hidden}");
    for (status, head, body) in [
        (200, "Content-Length: 4\r\nTransfer-Encoding: chunked", &*chunked),
        (200, "Transfer-Encoding: chunked\r\nContent-Length: 4", &*chunked),
        (200, "Transfer-Encoding: chunked\r\nConnection: transfer-encoding", &*chunked),
        (200, "Content-Length: 5\r\nConnection: content-length, host", "hello"),
        (200, "Content-Length: 5\r\nContent-Length: 5", "hello"),
        (200, "X-One: 1\nX-Two: 2\nContent-Length: 5", "hello"),
        (200, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x", ""),
        (400, "Transfer-Encoding: chunked, identity", &*chunked),
        (400, "Transfer-Encoding: xchunked", &*chunked),
        (400, "Transfer-Encoding: identity\r\nContent-Length: 5", "hello"),
        (400, "Content-Length: 5\r\nContent-Length: 6", "hello!"),
        (400, "Content-Length: +5", "hello"),
        (400, "Content-Length: 5 6", "hello"),
        (400, "Content-Length : 5", "hello"),
        (400, "Content-Length: 5\r\n folded: 1", "hello"),
        (400, "X-Return: a\rb\r\nContent-Length: 5", "hello"),
        (400, "X-Null: a\0b\r\nContent-Length: 5", "hello"),
    ] {
        seen.lock().expect("whole").clear();
        let mut stream = bench.connect().await;
        let port = bench.server.port();
        let request =
            format!("POST http://site.test:{port}/ HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream.shutdown().await.expect("half closed");
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 200").count(), usize::from(status == 200), "{answer}");
        let seen = seen.lock().expect("whole").clone();
        assert_eq!(seen.len(), usize::from(status == 200), "{head:?}: {seen:?}");
        for request in seen {
            let (head, _) = request.split_once("\r\n\r\n").expect("a head");
            let framings = ["content-length:", "transfer-encoding:"];
            assert!(framings.iter().filter(|one| head.contains(*one)).count() <= 1, "{request}");
            assert_eq!(request.matches(" HTTP/1.1\r\n").count(), 1, "{request}");
            assert!(head.contains(&format!("\r\nhost: site.test:{port}")), "{request}");
            for not in ["evil", "upgrade", "http2-settings", "connection:"] {
                assert!(!request.contains(not), "{not}: {request}");
            }
        }
    }
    // HTTP/1.0 has no chunks.
    let old = "POST http://site.test:PORT/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(bench.ask(old).await.contains(" 400 "));
}

/// A server that sends this answer to any request, and hangs up.
async fn answering(answer: Vec<u8>) -> ProxyBench {
    let answer = Arc::new(answer);
    ProxyBench::new(move |mut stream| {
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(&answer).await;
        })
    })
    .await
}

#[tokio::test]
async fn an_answer_is_unambiguous_or_rejected() {
    let long = format!("HTTP/1.1 200 OK\r\nx-long: {}\r\n\r\n", "a".repeat(512 * 1024));
    for (status, answer) in [
        (
            200,
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        (200, "HTTP/1.0 200 OK\r\n\r\nok"),
        (502, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!"),
        (502, "HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nok"),
        (502, "HTTP/1.1 200 OK\r\nx: a\r\n folded\r\ncontent-length: 2\r\n\r\nok"),
        (502, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
        (502, &*long),
        (502, "SSH-2.0-OpenSSH_9.2\r\n"),
        (502, "ok"),
        (502, ""),
    ] {
        let bench = answering(answer.into()).await;
        let request = "GET http://site.test:PORT/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let got = bench.ask(request).await;
        let shown = answer.get(..60).unwrap_or(answer);
        let begin = got.get(..200).unwrap_or(&got);
        assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{shown:?}: {begin}");
        if status == 200 {
            let head = got.split("\r\n\r\n").next().expect("a head");
            let is_one = head.contains("content-length") != head.contains("transfer-encoding");
            assert!(is_one || head.contains("connection: close"), "{shown:?}: {got}");
            assert!(got.contains("ok"), "{shown:?}: {got}");
        }
    }
    // Bytes after an answer are dropped: the next request gets its own connection.
    let two = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    let bench = answering(two.into()).await;
    let one = "GET http://site.test:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let last = "GET http://site.test:PORT/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let got = bench.ask(&format!("{one}{last}")).await;
    assert_eq!(got.matches("\r\n\r\nok").count(), 2, "{got}");
    assert!(!got.contains("evil"), "{got}");
}

#[tokio::test]
async fn one_connection_from_a_sandbox_holds_one_outgoing_connection() {
    let open = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&open);
    // It answers, and does not hang up.
    let bench = ProxyBench::new(move |mut stream| {
        let open = Arc::clone(&counted);
        tokio::spawn(async move {
            open.fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut [0; 512]).await;
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            let _ = stream.write_all(answer.as_bytes()).await;
            while matches!(stream.read(&mut [0; 512]).await, Ok(1..)) {}
            open.fetch_sub(1, Ordering::Relaxed);
        })
    })
    .await;
    let mut stream = bench.connect().await;
    let request =
        format!("GET http://site.test:{}/ HTTP/1.1\r\nHost: x\r\n\r\n", bench.server.port());
    for _ in 0..20 {
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            answer.push(stream.read_u8().await.expect("an answer"));
        }
    }
    let few = async {
        while open.load(Ordering::Relaxed) > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, few).await.expect("the ones before must have ended");
}

#[tokio::test]
async fn a_sandbox_that_looks_up_silent_names_delays_no_other() {
    let bench = ProxyBench::new(mirror).await;
    let port = bench.server.port();
    let mut asking = Vec::new();
    for n in 0..CONNECTIONS_MAX {
        let mut stream = bench.connect().await;
        let request = format!("CONNECT n{n}.silent.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        asking.push(stream);
    }
    let is_asked = async {
        while bench.names.asked.load(Ordering::Relaxed) < LOOKUPS_MAX {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, is_asked).await.expect("it uses all its permits");

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let at = listener.local_addr().expect("bound");
    let network = Network::Full { private: vec![bench.server] };
    let _other =
        bench.proxies.start(Some(listener), &network, &sandbox(), None).expect("it has a proxy");
    for _ in 0..20 {
        let mut stream = TcpStream::connect(at).await.expect("connected");
        let request = format!(
            "GET http://site.test:{port}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let asked = bench.names.asked.load(Ordering::Relaxed);
    assert_eq!(asked, LOOKUPS_MAX + 20, "the silent ones are still without an answer");
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_cannot_be_repeated_at_once() {
    let bench = ProxyBench::new(mirror).await;
    let begun = tokio::time::Instant::now();
    let one = "GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut stream = bench.connect().await;
    stream.write_all(format!("{}{last}", one.repeat(49)).as_bytes()).await.expect("sent");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.expect("it ends well");
    assert_eq!(answers.matches("HTTP/1.1 403").count(), 49, "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 400").count(), 1, "{answers}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}
