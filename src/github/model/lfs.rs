//! Git LFS: the batch interface, and objects behind signed addresses.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::ModelShared;
use super::auth::ModelAccess;
use super::server::{ModelBody, plain, whole};
use super::state::ModelState;

impl ModelState {
    fn lfs_object(&self, repository: u64, oid: &str) -> PathBuf {
        self.git_root.join(format!("{repository}.lfs")).join(oid)
    }

    /// The LFS objects of a repository: name and length in bytes.
    pub fn lfs_objects(&self, repository: u64) -> Vec<(String, u64)> {
        let dir = fs::read_dir(self.git_root.join(format!("{repository}.lfs")));
        let entries = dir.into_iter().flatten().flatten();
        let object = |entry: fs::DirEntry| {
            Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len()))
        };
        entries.filter_map(object).collect()
    }

    fn lfs_batch(&mut self, repository: u64, upload: bool, objects: &[Value]) -> Value {
        let ticket = uuid::Uuid::now_v7().simple().to_string();
        self.lfs_tickets.insert(ticket.clone(), (repository, upload));
        let shown = objects.iter().map(|object| {
            let (oid, size) = (object["oid"].as_str().unwrap_or_default(), &object["size"]);
            let mut shown = json!({"oid": oid, "size": size, "authenticated": true});
            let is_there = self.lfs_object(repository, oid).exists();
            let href = format!("{}/.lfs/{ticket}/{oid}", self.base);
            let action = json!({"href": href, "header": {}, "expires_in": 300});
            match (upload, is_there) {
                (true, true) => {}
                (true, false) => shown["actions"] = json!({"upload": action}),
                (false, true) => shown["actions"] = json!({"download": action}),
                (false, false) => {
                    shown["error"] = json!({"code": 404, "message": "Object does not exist"});
                }
            }
            shown
        });
        json!({"transfer": "basic", "objects": shown.collect::<Vec<_>>(), "hash_algo": "sha256"})
    }
}

/// Answers `POST …/info/lfs/objects/batch`.
pub(super) async fn batch(
    shared: &Arc<ModelShared>,
    repository: u64,
    access: &ModelAccess,
    rest: &str,
    request: Request<Incoming>,
) -> Result<Response<ModelBody>, io::Error> {
    if rest != "/info/lfs/objects/batch" {
        return Ok(plain(404, "Not Found"));
    }
    let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let upload = asked["operation"] == "upload";
    let mut state = shared.state();
    if state.allow(access, repository, "contents", upload).is_err() {
        return Ok(plain(403, "{\"message\":\"You must have push access to upload objects.\"}"));
    }
    let objects = asked["objects"].as_array().cloned().unwrap_or_default();
    let answer = state.lfs_batch(repository, upload, &objects).to_string();
    let answer = Response::builder()
        .header("content-type", "application/vnd.git-lfs+json")
        .body(whole(answer));
    answer.map_err(io::Error::other)
}

/// Serves a signed address, `TICKET/OID`. It carries its own right: `Authorization` must not come
/// with it.
pub(super) async fn object(
    shared: &Arc<ModelShared>,
    path: &str,
    request: Request<Incoming>,
) -> Result<Response<ModelBody>, io::Error> {
    let (ticket, oid) = path.split_once('/').unwrap_or((path, ""));
    let is_oid = oid.len() == 64 && oid.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (found, file) = {
        let mut state = shared.state();
        if request.headers().contains_key("authorization") {
            let words = format!("a token was sent to an object store: {path}");
            state.violations.push(words);
        }
        let found = state.lfs_tickets.get(ticket).copied().filter(|_| is_oid);
        (found, found.map(|(repository, _)| state.lfs_object(repository, oid)))
    };
    let is_put = request.method() == "PUT";
    let (Some((_, upload)), Some(file)) = (found, file) else {
        return Ok(plain(403, "Request has expired"));
    };
    if is_put != upload {
        return Ok(plain(403, "SignatureDoesNotMatch"));
    }
    if is_put {
        let bytes = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        if hex::encode(Sha256::digest(&bytes)) != oid {
            return Ok(plain(400, "BadDigest"));
        }
        fs::create_dir_all(file.parent().unwrap_or(&file))?;
        fs::write(file, bytes)?;
        return Ok(plain(200, ""));
    }
    Ok(fs::read(file).map_or_else(|_| plain(404, "NoSuchKey"), |bytes| plain(200, bytes)))
}
