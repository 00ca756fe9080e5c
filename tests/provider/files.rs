//! Files in a workspace: content to the byte, odd names, ranges, and changes that are whole or not at
//! all.

use bytes::Bytes;
use issuebox::sandbox::{FileKind, FilePart, WorkError, Written};
use tokio::sync::mpsc;

use crate::subject::{Subject, path};

contract!(
    a_file_is_read_as_it_was_written_also_when_it_is_large,
    any_name_that_the_system_takes_is_taken,
    a_part_of_a_file_is_its_range,
    a_write_that_breaks_off_changes_nothing,
    a_listing_shows_what_is_there_down_to_a_depth,
    directories_and_files_are_made_moved_and_deleted,
    a_wrong_path_is_refused_and_says_why,
);

async fn a_file_is_read_as_it_was_written_also_when_it_is_large(subject: &Subject) {
    let target = subject.target().await;
    for len in [0_u32, 1, 4_096, 65_537, 32_000_001] {
        let bytes: Bytes = (0..len).map(|n| (n ^ (n >> 8)) as u8).collect::<Vec<_>>().into();
        let written = subject.write(&target, b"dir/file", bytes.clone()).await.expect("written");
        assert_eq!(written, if len == 0 { Written::Created } else { Written::Replaced });
        assert!(subject.read(&target, b"dir/file").await.expect("read") == bytes, "{len} bytes");
    }
}

async fn any_name_that_the_system_takes_is_taken(subject: &Subject) {
    let target = subject.target().await;
    let long = [b'x'; 255];
    let names: [&[u8]; 9] = [
        b" ",
        b"a b",
        b"new\nline",
        b"-rf",
        b"\xff\xfe",
        "ö 🦀".as_bytes(),
        b"*?[",
        b"'\"\\",
        &long,
    ];
    for name in names {
        let content = Bytes::copy_from_slice(name);
        subject.write(&target, name, content.clone()).await.expect("written");
        assert_eq!(subject.read(&target, name).await, Ok(content.to_vec()), "{name:?}");
    }
    let mut sorted: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
    sorted.sort();
    assert_eq!(subject.list(&target, b"").await, sorted);
    let too_long = [b'x'; 256];
    let refused = subject.write(&target, &too_long, "x".into()).await;
    assert!(matches!(refused, Err(WorkError::PathNotAllowed(_))), "{refused:?}");
}

async fn a_part_of_a_file_is_its_range(subject: &Subject) {
    let target = subject.target().await;
    subject.write(&target, b"digits", "0123456789".into()).await.expect("written");
    for (part, expected) in [
        (FilePart::From(7), "789"),
        (FilePart::Between(2, 4), "234"),
        (FilePart::Between(8, 99), "89"),
        (FilePart::Last(3), "789"),
        (FilePart::Last(99), "0123456789"),
    ] {
        let got = subject.read_part(&target, b"digits", part).await;
        assert_eq!(got, Ok(expected.as_bytes().to_vec()), "{part:?}");
    }
    for part in [FilePart::From(10), FilePart::Between(10, 11), FilePart::Last(0)] {
        let got = subject.read_part(&target, b"digits", part).await;
        assert_eq!(got, Err(WorkError::OutOfRange { size: 10 }), "{part:?}");
    }
}

async fn a_write_that_breaks_off_changes_nothing(subject: &Subject) {
    let target = subject.target().await;
    subject.write(&target, b"file", "old".into()).await.expect("written");
    let workspace = &subject.provider.workspace;
    for at in [&b"file"[..], b"other"] {
        let (sender, chunks) = mpsc::channel(2);
        sender.send(Ok("new".into())).await.expect("room");
        sender.send(Err("it broke off".into())).await.expect("room");
        let broken = workspace.write_file(target.clone(), path(at), chunks).await;
        assert!(matches!(broken, Err(WorkError::Broken(_))), "{broken:?}");
        // The caller goes away.
        let (sender, chunks) = mpsc::channel(2);
        sender.send(Ok("new".into())).await.expect("room");
        let mut writing = workspace.write_file(target.clone(), path(at), chunks);
        while sender.capacity() < 2 {
            assert!(futures_util::poll!(&mut writing).is_pending());
            tokio::task::yield_now().await;
        }
        drop(writing);
    }
    assert_eq!(subject.read(&target, b"file").await, Ok(b"old".to_vec()));
    let nothing_else = async {
        while subject.list(&target, b"").await != [b"file".to_vec()] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::subject::WAIT, nothing_else).await.expect("nothing else is left");
}

async fn a_listing_shows_what_is_there_down_to_a_depth(subject: &Subject) {
    let target = subject.target().await;
    for at in [&b"b/c/d"[..], b"a", b"b/z"] {
        subject.write(&target, at, "text".into()).await.expect("written");
    }
    let workspace = &subject.provider.workspace;
    for (depth, expected) in
        [(1, "a b"), (2, "a b b/c b/z"), (3, "a b b/c b/c/d b/z"), (9, "a b b/c b/c/d b/z")]
    {
        let listing = workspace.list_files(target.clone(), path(b""), depth).await.expect("listed");
        let paths: Vec<_> =
            listing.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path)).collect();
        assert_eq!(paths.join(" "), expected, "down to {depth}");
    }
    let one = workspace.list_files(target.clone(), path(b"b/z"), 1).await.expect("listed");
    let [entry] = one.entries.as_slice() else { panic!("{one:?}") };
    assert_eq!((&*entry.path, entry.kind, entry.size), (&b"b/z"[..], FileKind::File, 4));
    assert_eq!(entry.mode & 0o777, 0o644);
    workspace.set_file_mode(target.clone(), path(b"b/z"), 0o750).await.expect("set");
    let one = workspace.list_files(target.clone(), path(b"b/z"), 1).await.expect("listed");
    assert_eq!(one.entries[0].mode & 0o777, 0o750);
}

async fn directories_and_files_are_made_moved_and_deleted(subject: &Subject) {
    let target = subject.target().await;
    let workspace = &subject.provider.workspace;
    let make = async |at| workspace.make_directory(target.clone(), path(at)).await;
    assert_eq!(make(b"a/b").await, Ok(Written::Created));
    assert_eq!(make(b"a/b").await, Ok(Written::Replaced));
    subject.write(&target, b"a/b/file", "one".into()).await.expect("written");
    subject.write(&target, b"two", "two".into()).await.expect("written");
    let moved = async |from, to, overwrite| {
        workspace.move_file(target.clone(), path(from), path(to), overwrite).await
    };
    let refused = moved(b"two", b"a/b/file", false).await;
    assert!(matches!(refused, Err(WorkError::Exists(_))), "{refused:?}");
    assert_eq!(moved(b"two", b"a/b/file", true).await, Ok(Written::Replaced));
    assert_eq!(moved(b"a/b", b"c/d", false).await, Ok(Written::Created));
    assert_eq!(moved(b"two", b"three", false).await, Err(WorkError::NoSuchFile));
    assert_eq!(subject.list(&target, b"").await, [&b"a"[..], b"c", b"c/d", b"c/d/file"]);
    assert_eq!(subject.read(&target, b"c/d/file").await, Ok(b"two".to_vec()));
    let delete = async |at| workspace.delete_file(target.clone(), path(at)).await;
    delete(b"c").await.expect("with all that is in it");
    assert_eq!(delete(b"c").await, Err(WorkError::NoSuchFile));
    assert_eq!(subject.list(&target, b"").await, [b"a"]);
}

async fn a_wrong_path_is_refused_and_says_why(subject: &Subject) {
    let target = subject.target().await;
    subject.write(&target, b"dir/file", "x".into()).await.expect("written");
    assert_eq!(subject.read(&target, b"none").await, Err(WorkError::NoSuchFile));
    for at in [&b"dir"[..], b"dir/file/below"] {
        let read = subject.read(&target, at).await;
        assert!(matches!(read, Err(WorkError::WrongKind(_))), "{read:?}");
        let written = subject.write(&target, at, "x".into()).await;
        assert!(matches!(written, Err(WorkError::WrongKind(_))), "{written:?}");
    }
    let root = subject.write(&target, b"", "x".into()).await;
    assert!(matches!(root, Err(WorkError::PathNotAllowed(_))), "{root:?}");
}
