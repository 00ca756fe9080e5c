//! Uploads into a workspace: they respect the sandbox's limits, and leave no temporary files.

use bytes::Bytes;
use issuebox::sandbox::{Enforcement, Lifecycle, LimitKind, WorkError, Workspace, WorkspacePath};
use issuebox::types::Resources;
use tokio::sync::mpsc;

use super::files::unpack;
use crate::common::{Local, Sandbox, call, spec, target};

/// A sandbox whose files may be 16 MiB long.
async fn small<'a>(local: &'a Local, name: &str) -> Sandbox<'a> {
    let mut spec = spec(name, name);
    spec.template.resources = Resources { disk_mb: 16, ..spec.template.resources };
    let object = local.provider.create(spec).await.expect("made");
    Sandbox { provider: &local.provider, target: target(&object) }
}

/// An archive of one file of zeros.
fn archive_of_zeros(len: usize) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_size(len as u64);
    header.set_mode(0o644);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, "packed", &vec![0; len][..]).expect("packed");
    archive.into_inner().expect("whole")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_no_longer_than_a_command_could_make_it() {
    const TOO_LONG: usize = (16 << 20) + 1;
    let Some(local) = Local::new().await else { return };
    let sandbox = small(&local, "long").await;
    sandbox.put(b"file", Bytes::from_static(b"old")).await;
    let named = "a file may not be longer than 16 MB, the disk limit";
    let error = sandbox.write_bytes(b"file", Bytes::from(vec![0; TOO_LONG])).await;
    assert_eq!(error, Err(WorkError::Refused(named.into())));
    let Err(WorkError::Refused(why)) = unpack(&sandbox, b"", archive_of_zeros(TOO_LONG)).await
    else {
        panic!("the write must be refused");
    };
    // If the disk as a whole is limited, that limit is hit a little earlier.
    let holds = local.provider.health().await.limits;
    let is_whole = holds[&LimitKind::Disk] == Enforcement::Enforced;
    let reason = if is_whole { "no space left on device" } else { named };
    assert!(why.contains(reason), "{why}");
    assert_eq!(sandbox.sh("ls -A; cat file").await, "file\nold", "no part of either is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_upload_leaves_nothing() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("killed").await;
    sandbox.sh("head -c 3000000 /dev/zero > big; echo old > packed; echo old > file; echo own > .issuebox-new-1-0").await;
    let path = |path: &[u8]| WorkspacePath::parse(path).expect("a path");
    let archive = archive_of_zeros(1 << 20);
    let (unpacking, chunks) = mpsc::channel(1);
    let unpack = local.provider.unpack_directory(sandbox.target.clone(), path(b""), chunks);
    let (writing, chunks) = mpsc::channel(1);
    let write = local.provider.write_file(sandbox.target.clone(), path(b"file"), chunks);
    let part = issuebox::sandbox::FilePart::Whole;
    let read = local.provider.read_file(sandbox.target.clone(), path(b"big"), part);
    let mut read = read.await.expect("opened");
    let half = async {
        // More than a pipe holds: the file is being written.
        unpacking.send(Ok(Bytes::copy_from_slice(&archive[..300_000]))).await.expect("taken");
        writing.send(Ok(Bytes::from(vec![0; 300_000]))).await.expect("taken");
        drop((unpacking.reserve().await, writing.reserve().await));
        let mut kill = call(&sandbox.target);
        kill.force = true;
        // An open file does not keep the sandbox from ending.
        local.provider.stop(kill).await.expect("stopped");
        drop((unpacking, writing));
    };
    let (unpacked, written, ()) = tokio::join!(unpack, write, half);
    assert!(unpacked.is_err() && written.is_err(), "{unpacked:?} {written:?}");
    let mut last = None;
    while let Some(piece) = read.chunks.recv().await {
        last = Some(piece);
    }
    assert_eq!(last, Some(Err("the sandbox is not running".into())), "the file is incomplete");
    local.provider.start(call(&sandbox.target)).await.expect("started");
    let found = sandbox.sh("rm big; ls -A; cat packed file .issuebox-new-1-0").await;
    assert_eq!(found, ".issuebox-new-1-0\nfile\npacked\nold\nold\nown\n");
}
