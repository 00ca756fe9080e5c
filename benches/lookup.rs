//! Look-up by issue id against a bare handler that returns a constant of the same size; and a sandbox that
//! is opened as one value, against the read of the store that this needs. All in this process, in turn, so
//! that they meet the same machine.

mod common;

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::hint::black_box;
use std::net::{SocketAddr, TcpListener};
use std::time::Instant;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpResponse, HttpServer, web};
use common::{Bench, TOKEN, get, load, median, rate};
use issuebox::engine::SandboxRef;
use issuebox::issue_sandbox::{IssueRef, IssueSandbox, SandboxContext, SandboxServices};
use issuebox::types::AccountName;

const ROUNDS: usize = 9;
const LOOKUPS: usize = 40_000;
const CONNECTIONS: usize = 64;
/// How often a sandbox is opened in a round.
const OPENS: usize = 5_000;
/// The most that opening may take of one read of the store.
const OPEN_RATIO_MAX: f64 = 1.2;

fn main() {
    // `cargo test` runs benches to see that they work; they only measure when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let bench = Bench::start();
    load(bench.running.address, 1, &[ensure(1)], None);
    let size = answer_len(bench.running.address);
    let (address, _bare) = constant_server(size);
    let requests: Vec<_> = (0..LOOKUPS).map(|_| get("/v1/issues/issue-1/sandbox")).collect();
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let theirs = timed(address, &requests);
        let ours = timed(bench.running.address, &requests);
        // The first round warms both up.
        if round > 0 {
            println!("bare {theirs:>8.0}/s   issuebox {ours:>8.0}/s   ratio {:.2}", ours / theirs);
            ratios.push(ours / theirs);
        }
    }
    let ratio = median(&mut ratios);
    println!("look-up: {ratio:.2} of a constant of {size} bytes (median of {ROUNDS})");
    let opened = opened(&bench.running.services());
    println!("IssueSandbox::open: {opened:.2} of one read of the store (at most {OPEN_RATIO_MAX})");
    bench.running.stop().expect("it ends well");
    assert!(opened <= OPEN_RATIO_MAX, "opening costs more than its read");
}

/// What it takes to open a sandbox as one value, in reads of the store: the median of rounds.
fn opened(services: &SandboxServices) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let context = SandboxContext::new(AccountName::default_account(), "bench");
        let issue = IssueRef::id("issue-1").expect("an id");
        let made = IssueSandbox::get_or_create(services, context.clone(), issue, None).await;
        let id = made.expect("it is there").sandbox().id.clone();
        let of = SandboxRef::Id(id.clone());
        let mut ratios = Vec::new();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for _ in 0..OPENS {
                let read = services.engine.sandbox(&context.account, &of).await;
                black_box(read.expect("it reads"));
            }
            let reads = began.elapsed();
            let began = Instant::now();
            for _ in 0..OPENS {
                let open = IssueSandbox::open(services, context.clone(), id.as_str()).await;
                black_box(open.expect("it opens"));
            }
            ratios.push(began.elapsed().as_secs_f64() / reads.as_secs_f64());
        }
        median(&mut ratios)
    })
}

fn timed(address: SocketAddr, requests: &[Vec<u8>]) -> f64 {
    let began = Instant::now();
    let answered = load(address, CONNECTIONS, requests, None).len();
    rate(answered, began.elapsed())
}

fn ensure(issue: usize) -> Vec<u8> {
    let body = format!("{{\"issueId\":\"issue-{issue}\"}}");
    format!(
        "POST /v1/sandboxes HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// How long the answer to a look-up is, in bytes of body.
fn answer_len(address: SocketAddr) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let url = format!("http://{address}/v1/issues/issue-1/sandbox");
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let answer = client.get(url).bearer_auth(TOKEN).send().await.expect("it answers");
        answer.bytes().await.expect("a body").len()
    })
}

fn constant_server(size: usize) -> (SocketAddr, ServerHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    // As many may wait as for ours.
    rustix::net::listen(&listener, 4096).expect("it listens");
    let address = listener.local_addr().expect("it is bound");
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        actix::System::new().block_on(async move {
            let body = web::Bytes::from("x".repeat(size));
            let app = move || {
                let body = body.clone();
                let constant = move || {
                    let body = body.clone();
                    async move { HttpResponse::Ok().content_type("application/json").body(body) }
                };
                App::new().route("/v1/issues/{id}/sandbox", web::get().to(constant))
            };
            let server =
                HttpServer::new(app).workers(2).listen(listener).expect("it listens").run();
            tx.send(server.handle()).expect("the caller waits");
            server.await.expect("it serves");
        });
    });
    (address, rx.recv().expect("it starts"))
}
