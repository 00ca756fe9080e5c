//! A registry of images that wants a login and gives out one image.

use std::collections::HashMap;
use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, mpsc};

use actix_web::http::header::AUTHORIZATION;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::engine;

/// The media type of the manifest.
const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// What it serves, by path.
struct Contents {
    files: HashMap<String, (&'static str, Vec<u8>)>,
    authorization: String,
}

/// A running registry. It ends with the test's process.
pub struct Registry {
    /// Its host and port.
    pub host: String,
}

impl Registry {
    /// Starts one that gives an image of the engine out, as `private/tool:1`, to who logs in as `octo` with this
    /// password.
    pub fn start(image: &str, password: &str) -> Self {
        let authorization = format!("Basic {}", STANDARD.encode(format!("octo:{password}")));
        let contents = Arc::new(Contents { files: files_of(image), authorization });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let host = listener.local_addr().expect("bound").to_string();
        let (ready, is_ready) = mpsc::channel();
        std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let app = move || {
                    App::new()
                        .app_data(web::Data::from(Arc::clone(&contents)))
                        .default_service(web::to(answer))
                };
                let server = HttpServer::new(app).workers(1).disable_signals();
                let server = server.listen(listener).expect("it listens").run();
                ready.send(()).expect("the test waits");
                server.await
            })
        });
        is_ready.recv().expect("it starts");
        Self { host }
    }
}

async fn answer(request: HttpRequest, contents: web::Data<Contents>) -> HttpResponse {
    let given = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
    if given != Some(contents.authorization.as_bytes()) {
        let challenge = ("WWW-Authenticate", "Basic realm=\"private\"");
        return HttpResponse::Unauthorized().insert_header(challenge).finish();
    }
    match (request.path(), contents.files.get(request.path())) {
        ("/v2/", _) => HttpResponse::Ok().finish(),
        (_, None) => HttpResponse::NotFound().finish(),
        (_, Some((kind, bytes))) => HttpResponse::Ok()
            .content_type(*kind)
            .insert_header(("Docker-Content-Digest", digest(bytes)))
            .body(bytes.clone()),
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// The manifest and the blobs of an image.
fn files_of(image: &str) -> HashMap<String, (&'static str, Vec<u8>)> {
    let dir = tempfile::tempdir().expect("a directory");
    let tar = dir.path().join("image.tar");
    engine::docker_text(&["save", "--output", &tar.display().to_string(), image]);
    let unpacked = Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(dir.path()).status();
    assert!(unpacked.expect("tar is there").success());
    let read = |name: &Value| {
        fs::read(dir.path().join(name.as_str().expect("a name"))).expect("it is in the archive")
    };
    let index: Value =
        serde_json::from_slice(&read(&json!("manifest.json"))).expect("the archive's index");
    let mut files = HashMap::new();
    let mut blob = |kind: &'static str, bytes: Vec<u8>| {
        let described = json!({"mediaType": kind, "size": bytes.len(), "digest": digest(&bytes)});
        let path = format!("/v2/private/tool/blobs/{}", digest(&bytes));
        files.insert(path, ("application/octet-stream", bytes));
        described
    };
    let config = blob("application/vnd.docker.container.image.v1+json", read(&index[0]["Config"]));
    let layers = index[0]["Layers"].as_array().expect("layers").iter();
    let layers: Vec<Value> = layers
        .map(|layer| blob("application/vnd.docker.image.rootfs.diff.tar.gzip", read(layer)))
        .collect();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
    });
    let manifest = manifest.to_string().into_bytes();
    for reference in ["1", &digest(&manifest)] {
        let path = format!("/v2/private/tool/manifests/{reference}");
        files.insert(path, (MANIFEST, manifest.clone()));
    }
    files
}
