//! Durable webhook intake against a bare handler that verifies and parses the same bodies and
//! stores nothing; both in this process, in turn, so that they meet the same machine.
//!
//! Both get the same bodies over the same number of connections: enough to fill the commits, which
//! all that waits shares. Before the bare handler's turn the sandboxes that ours was asked for are
//! all made, so that it has the processor to itself.

mod common;

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::net::{SocketAddr, TcpListener};
use std::time::Instant;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use common::{Bench, SECRET, load, median, processor_time, quantile, rate};
use issuebox::github::policy::{TriggerPolicies, TriggerPolicy};
use issuebox::github::webhook::{interpret, sign, verify};
use issuebox::types::{DeliveryId, RepositoryPattern, Secret, Timestamp};

const ROUNDS: usize = 5;
const DELIVERIES: usize = 6_000;
const CONNECTIONS: usize = 1024;
const BODY_LEN: usize = 11 * 1024;

fn main() {
    // `cargo test` runs benches to see that they work; they only measure when asked to.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let (address, bare) = bare_server();
    let bench = Bench::start();
    let mut next = 0;
    let (mut ratios, mut ours_best) = (Vec::new(), 0.0_f64);
    for round in 0..=ROUNDS {
        bench.settle();
        let requests = deliveries(&mut next, DELIVERIES);
        let (theirs, their_work) = timed(address, &requests);
        let requests = deliveries(&mut next, DELIVERIES);
        let (ours, our_work) = timed(bench.running.address, &requests);
        // The first round warms both up.
        if round > 0 {
            println!(
                "bare {theirs:>8.0}/s ({their_work:.0} µs of processor each)   \
                 issuebox {ours:>8.0}/s ({our_work:.0} µs)   ratio {:.2}",
                ours / theirs
            );
            ratios.push(ours / theirs);
            ours_best = ours_best.max(ours);
        }
    }
    println!("intake: {:.2} of a bare handler (median of {ROUNDS})", median(&mut ratios));
    let half = ours_best / 2.0;
    bench.settle();
    let requests = deliveries(&mut next, DELIVERIES * 2);
    let mut took = load(bench.running.address, CONNECTIONS, &requests, Some(half));
    println!(
        "at {half:.0}/s, half of the highest rate: p50 {:?}, p99 {:?}",
        quantile(&mut took, 0.5),
        quantile(&mut took, 0.99)
    );
    bench.running.stop().expect("it ends well");
    drop(bare);
}

/// How many a second, and the processor time for each, client included, in microseconds.
fn timed(address: SocketAddr, requests: &[Vec<u8>]) -> (f64, f64) {
    let (began, work) = (Instant::now(), processor_time());
    let answered = load(address, CONNECTIONS, requests, None).len();
    let work = processor_time().saturating_sub(work).as_secs_f64() * 1e6 / answered as f64;
    (rate(answered, began.elapsed()), work)
}

/// Signed deliveries that each trigger a sandbox for an issue of its own.
fn deliveries(next: &mut u64, count: usize) -> Vec<Vec<u8>> {
    let (secret, template) = (Secret::new(SECRET), template());
    let delivery = |_| {
        *next += 1;
        let body = template.replace("\"#id\"", &(4_000_000_000_u64 + *next).to_string());
        let body = body.replace("\"#number\"", &next.to_string());
        let signature = sign(&secret, body.as_bytes());
        let head = format!(
            "POST /webhooks/github HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
             x-github-event: issues\r\nx-github-delivery: bench-{next}\r\n\
             x-hub-signature-256: {signature}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body.into_bytes()].concat()
    };
    (0..count).map(delivery).collect()
}

/// A delivery in the shape of a real one, of the size that real ones have, with `"#id"` and
/// `"#number"` where the numbers belong.
fn template() -> String {
    let fixture = issuebox::github::fixtures::named("issues.labeled.agent").expect("a fixture");
    let mut payload: serde_json::Value =
        serde_json::from_str(fixture.body).expect("a fixture is JSON");
    payload["issue"]["id"] = "#id".into();
    payload["issue"]["number"] = "#number".into();
    let paragraph = "Steps to reproduce:\r\n\r\n1. `open` the \"garden\"\r\n2. wait – ünd see\r\n";
    let mut text = String::new();
    while payload.to_string().len() + text.len() * 11 / 10 < BODY_LEN {
        text.push_str(paragraph);
    }
    payload["issue"]["body"] = text.into();
    payload.to_string()
}

/// A handler that only verifies and parses.
fn bare_server() -> (SocketAddr, ServerHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    // As many may wait as for ours.
    rustix::net::listen(&listener, 4096).expect("it listens");
    let address = listener.local_addr().expect("it is bound");
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        actix::System::new().block_on(async move {
            let parts =
                web::Data::new((vec![Secret::new(SECRET)], TriggerPolicies::from(policy())));
            let app = move || {
                App::new()
                    .app_data(parts.clone())
                    .app_data(web::PayloadConfig::new(25 * 1024 * 1024))
                    .route("/webhooks/github", web::post().to(bare))
            };
            let server =
                HttpServer::new(app).workers(2).listen(listener).expect("it listens").run();
            tx.send(server.handle()).expect("the caller waits");
            server.await.expect("it serves");
        });
    });
    (address, rx.recv().expect("it starts"))
}

async fn bare(
    parts: web::Data<(Vec<Secret>, TriggerPolicies)>,
    request: HttpRequest,
    body: web::Bytes,
) -> HttpResponse {
    let (secrets, policy) = &**parts;
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    if verify(secrets, header("x-hub-signature-256"), &body).is_err() {
        return HttpResponse::Unauthorized().finish();
    }
    let delivery = DeliveryId::trusted(header("x-github-delivery").unwrap_or_default());
    let event = header("x-github-event").unwrap_or_default();
    match interpret(policy, delivery, Timestamp::from_unix_ms(0), event, &body) {
        Ok(_) => HttpResponse::Accepted().json(serde_json::json!({
            "success": true, "delivery": "bench", "status": "accepted", "issueId": "4000000000"
        })),
        Err(_) => HttpResponse::BadRequest().finish(),
    }
}

fn policy() -> TriggerPolicy {
    TriggerPolicy {
        label: "agent".into(),
        command: "/issuebox".into(),
        opened: false,
        associations: vec!["OWNER".into()],
        bots: vec![],
        assignee: 0,
        unlabel_stops: true,
        refuses_hidden: false,
        follow_up: issuebox::types::FollowUpMode::default(),
        on_ci_failure: issuebox::types::CiFailureMode::default(),
        permission: None,
        bot_user_id: 0.into(),
        repositories: vec![RepositoryPattern::parse("*").expect("a pattern")],
    }
}
