//! Archives and links: what goes in comes out, and no link leads out of a workspace. Links come
//! there by archives, so this is for providers that declare those.

use bytes::Bytes;
use issuebox::sandbox::{Capability, FileKind, Target, WorkError};
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;

use crate::subject::{Subject, path};

contract!(
    an_archive_comes_out_as_it_went_in,
    a_link_is_followed_within_the_workspace_only,
    what_an_archive_must_not_hold_is_refused_by_name,
    what_is_in_the_way_of_an_archive_is_named,
);

async fn unpack(
    subject: &Subject,
    target: &Target,
    at: &[u8],
    archive: Vec<u8>,
) -> Result<(), WorkError> {
    let (sender, chunks) = mpsc::channel(1);
    let sending = tokio::spawn(async move {
        for piece in archive.chunks(10_000) {
            if sender.send(Ok(Bytes::copy_from_slice(piece))).await.is_err() {
                return;
            }
        }
    });
    let workspace = &subject.provider.workspace;
    let unpacked = workspace.unpack_directory(target.clone(), path(at), chunks).await;
    sending.await.expect("no panic");
    unpacked
}

async fn pack(subject: &Subject, target: &Target, at: &[u8]) -> Result<Vec<u8>, WorkError> {
    let mut chunks = subject.provider.workspace.pack_directory(target.clone(), path(at)).await?;
    let mut archive = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        archive.extend(chunk.expect("it is whole"));
    }
    Ok(archive)
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header
}

fn link(archive: &mut Builder<Vec<u8>>, name: &str, to: &str) {
    let mut header = header(EntryType::Symlink, 0o777, 0);
    archive.append_link(&mut header, name, to).expect("packed");
}

async fn an_archive_comes_out_as_it_went_in(subject: &Subject) {
    if !subject.offers(Capability::Archives) {
        return;
    }
    let target = subject.target().await;
    let mut archive = Builder::new(Vec::new());
    let large = vec![7; 3_000_000];
    for (name, mode, content) in [
        ("run.sh", 0o755, &b"#!/bin/sh\n"[..]),
        ("deep/er/empty", 0o600, b""),
        ("a name\nof two lines", 0o644, b"x"),
        ("large", 0o644, &large),
    ] {
        let mut header = header(EntryType::Regular, mode, content.len());
        archive.append_data(&mut header, name, content).expect("packed");
    }
    link(&mut archive, "link", "deep/er");
    unpack(subject, &target, b"in", archive.into_inner().expect("whole")).await.expect("unpacked");
    assert_eq!(subject.read(&target, b"in/large").await, Ok(large));
    let packed = pack(subject, &target, b"in").await.expect("packed");
    unpack(subject, &target, b"out", packed).await.expect("unpacked");
    let workspace = &subject.provider.workspace;
    let list = async |at: &[u8]| {
        let listing = workspace.list_files(target.clone(), path(at), 9).await.expect("listed");
        let of = |entry: &issuebox::sandbox::FileEntry| {
            let below = entry.path[at.len() + 1..].to_vec();
            let size = if entry.kind == FileKind::Directory { 0 } else { entry.size };
            (below, entry.kind, size, entry.mode)
        };
        listing.entries.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(list(b"out").await, list(b"in").await);
    assert_eq!(pack(subject, &target, b"none").await, Err(WorkError::NoSuchFile));
    let file = pack(subject, &target, b"in/large").await;
    assert!(matches!(file, Err(WorkError::WrongKind(_))), "{file:?}");
}

async fn a_link_is_followed_within_the_workspace_only(subject: &Subject) {
    if !subject.offers(Capability::Archives) {
        return;
    }
    let target = subject.target().await;
    subject.write(&target, b"dir/file", "inside".into()).await.expect("written");
    let mut archive = Builder::new(Vec::new());
    link(&mut archive, "within", "dir");
    link(&mut archive, "out", "/etc");
    link(&mut archive, "up", "../..");
    link(&mut archive, "round", "round");
    unpack(subject, &target, b"", archive.into_inner().expect("whole")).await.expect("unpacked");
    assert_eq!(subject.read(&target, b"within/file").await, Ok(b"inside".to_vec()));
    let workspace = &subject.provider.workspace;
    for at in [&b"out/passwd"[..], b"up/etc/passwd", b"round/x"] {
        let not_allowed = |answer: &WorkError| matches!(answer, WorkError::PathNotAllowed(_));
        let read = subject.read(&target, at).await.expect_err("refused");
        let written = subject.write(&target, at, "x".into()).await.expect_err("refused");
        let deleted = workspace.delete_file(target.clone(), path(at)).await.expect_err("refused");
        let made = workspace.make_directory(target.clone(), path(at)).await.expect_err("refused");
        for error in [read, written, deleted, made] {
            assert!(not_allowed(&error), "{at:?}: {error:?}");
        }
    }
    let written = subject.write(&target, b"within", "x".into()).await;
    assert!(matches!(written, Err(WorkError::PathNotAllowed(_))), "a link itself: {written:?}");
    // A listing shows links and follows none; a delete takes the link and not what is behind it.
    let listing = workspace.list_files(target.clone(), path(b""), 9).await.expect("listed");
    let links = listing.entries.iter().filter(|entry| entry.kind == FileKind::Link).count();
    assert_eq!((links, listing.entries.len()), (4, 6));
    workspace.delete_file(target.clone(), path(b"within")).await.expect("deleted");
    assert_eq!(subject.read(&target, b"dir/file").await, Ok(b"inside".to_vec()));
}

async fn what_an_archive_must_not_hold_is_refused_by_name(subject: &Subject) {
    if !subject.offers(Capability::Archives) {
        return;
    }
    let target = subject.target().await;
    let mut device = Builder::new(Vec::new());
    let mut head = header(EntryType::Char, 0o644, 0);
    device.append_data(&mut head, "a-device", &b""[..]).expect("packed");
    let mut through = Builder::new(Vec::new());
    link(&mut through, "a-link", "/etc");
    let mut head = header(EntryType::Regular, 0o644, 1);
    through.append_data(&mut head, "a-link/evil", &b"x"[..]).expect("packed");
    for (name, archive) in [("a-device", device), ("a-link", through)] {
        let archive = archive.into_inner().expect("whole");
        let refused = unpack(subject, &target, b"in", archive).await;
        let Err(WorkError::BadArchive(why) | WorkError::PathNotAllowed(why)) = refused else {
            panic!("{name}: {refused:?}")
        };
        assert!(why.contains(name), "{why}");
    }
    let cut = unpack(subject, &target, b"in", vec![b'x'; 700]).await;
    assert!(matches!(cut, Err(WorkError::BadArchive(_))), "{cut:?}");
    assert_eq!(subject.run(&target, &["true"]).await.exit, Some((0, false)), "it goes on");
}

async fn what_is_in_the_way_of_an_archive_is_named(subject: &Subject) {
    if !subject.offers(Capability::Archives) {
        return;
    }
    let target = subject.target().await;
    for name in [&b"directory/full"[..], b"inside/kept", b"file"] {
        subject.write(&target, name, "kept".into()).await.expect("written");
    }
    let mut links = Builder::new(Vec::new());
    link(&mut links, "out", "/tmp");
    link(&mut links, "within", "inside");
    unpack(subject, &target, b"", links.into_inner().expect("whole")).await.expect("unpacked");
    let file = |name: &str| {
        let mut archive = Builder::new(Vec::new());
        let mut head = header(EntryType::Regular, 0o644, 1);
        archive.append_data(&mut head, name, &b"x"[..]).expect("packed");
        archive.into_inner().expect("whole")
    };
    // Not even a link that stays within is followed.
    for name in ["out/evil", "within/file", "file/below", "directory"] {
        let error = unpack(subject, &target, b"", file(name)).await.expect_err("refused");
        let (WorkError::PathNotAllowed(why)
        | WorkError::WrongKind(why)
        | WorkError::Exists(why)
        | WorkError::BadArchive(why)) = &error
        else {
            panic!("{name}: {error:?}")
        };
        assert!(why.contains(name.split('/').next().expect("a name")), "{name}: {error:?}");
    }
    let listing = subject.provider.workspace.list_files(target.clone(), path(b""), 9).await;
    let listed: Vec<_> = listing.expect("listed").entries.into_iter().map(|e| e.path).collect();
    let kept = ["directory", "directory/full", "file", "inside", "inside/kept", "out", "within"];
    assert_eq!(listed, kept.map(|name| name.as_bytes().to_vec()));
    // Nor does a hard link lead there, or to a link.
    for name in ["within/kept", "within"] {
        let mut archive = Builder::new(Vec::new());
        let mut head = header(EntryType::Link, 0o644, 0);
        archive.append_link(&mut head, "hard", name).expect("packed");
        let archive = archive.into_inner().expect("whole");
        let error = unpack(subject, &target, b"", archive).await.expect_err("refused");
        assert!(error.to_string().contains("within"), "{name}: {error:?}");
        assert_eq!(subject.read(&target, b"hard").await, Err(WorkError::NoSuchFile));
    }
    // A link itself gives way.
    unpack(subject, &target, b"", file("out")).await.expect("unpacked");
    assert_eq!(subject.read(&target, b"out").await, Ok(b"x".to_vec()));
}
