//! A server for a sandbox: it echoes each request.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Answers one request with the request itself, including a body with a length. After an upgrade, and
/// for bytes that are not a request, it echoes all bytes. `/switch` is upgraded to a protocol without a
/// request for it.
pub async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut got = Vec::new();
    let mut piece = [0; 4096];
    let head_len = loop {
        if got.starts_with(b"raw") {
            break None;
        }
        if let Some(at) = got.windows(4).position(|window| window == b"\r\n\r\n") {
            break Some(at + 4);
        }
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(len) => got.extend_from_slice(&piece[..len]),
        }
    };
    let Some(head_len) = head_len else {
        drop(stream.write_all(&got).await);
        return say_back(stream).await;
    };
    let head = String::from_utf8_lossy(&got[..head_len]).to_ascii_lowercase();
    if head.contains("upgrade: websocket") {
        let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                      upgrade: websocket\r\nsec-websocket-accept: yes\r\n\r\n";
        drop(stream.write_all(answer.as_bytes()).await);
        return say_back(stream).await;
    }
    if head.starts_with("get /switch ") {
        let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                      upgrade: websocket\r\n\r\nanything";
        return drop(stream.write_all(answer.as_bytes()).await);
    }
    let chunked = head.contains("transfer-encoding: chunked");
    let declared = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let declared: usize = declared.and_then(|len| len.parse().ok()).unwrap_or(0);
    while got.len() < head_len + declared || chunked && !got.ends_with(b"0\r\n\r\n") {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(len) => got.extend_from_slice(&piece[..len]),
        }
    }
    let status = if head.starts_with("get /teapot ") { "418 I'm a teapot" } else { "200 OK" };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/octet-stream\r\nset-cookie: a=b\r\n\
         location: /next\r\nserver: inside\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        got.len()
    );
    drop(stream.write_all(answer.as_bytes()).await);
    if !head.starts_with("head ") {
        drop(stream.write_all(&got).await);
    }
}

async fn say_back(stream: impl AsyncRead + AsyncWrite) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    drop(tokio::io::copy(&mut reader, &mut writer).await);
}
