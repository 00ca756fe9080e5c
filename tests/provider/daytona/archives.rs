//! Archives at Daytona beside the contract: what the toolbox does not give, and what stays of an upload.

use bytes::Bytes;
use issuebox::sandbox::WorkError;
use tokio::sync::mpsc;

use super::model::Fault;
use super::subject;
use crate::subject::{path, target};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_toolbox_does_not_give_is_named_and_one_that_is_gone_is_left_out() {
    let (subject, model) = subject().await;
    let target = target(&subject.make("packed", "s1").await);
    for name in [&b"dir/a"[..], b"dir/b", b"dir/c"] {
        subject.write(&target, name, "content".into()).await.expect("written");
    }
    // The first is gone, the second closed: contents are asked for in order.
    model.fail("GET /files/download", 1, Fault::Status(404, None, "no such file"));
    model.fail("GET /files/download", 1, Fault::Status(403, None, "permission denied"));
    let workspace = &subject.provider.workspace;
    let mut chunks = workspace.pack_directory(target, path(b"dir")).await.expect("packed");
    let mut packed = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        packed.extend(chunk.expect("it is whole"));
    }
    let mut archive = tar::Archive::new(&packed[..]);
    let mut entries = Vec::new();
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a name").display().to_string();
        entries.push((name, std::io::read_to_string(&mut entry).expect("a text")));
    }
    entries.sort();
    let [(one, content), (named, words)] = &entries[..] else { panic!("{entries:?}") };
    assert!(one.len() == 1 && content == "content", "{entries:?}");
    assert_eq!(named, "issuebox-left-out.txt");
    assert!(words.contains("permission denied"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_breaks_off_changes_nothing_and_nothing_of_it_stays() {
    let (subject, model) = subject().await;
    let object = subject.make("broken", "s1").await;
    let target = target(&object);
    let mut archive = tar::Builder::new(Vec::new());
    let mut head = tar::Header::new_gnu();
    head.set_size(200_000);
    head.set_mode(0o644);
    archive.append_data(&mut head, "a", &vec![b'x'; 200_000][..]).expect("packed");
    let whole = archive.into_inner().expect("whole");
    let (sender, chunks) = mpsc::channel(1);
    let sending = async move {
        let first = Bytes::copy_from_slice(&whole[..150_000]);
        sender.send(Ok(first)).await.expect("it is read");
        sender.send(Err("the caller went away".into())).await.expect("it is read");
    };
    let workspace = &subject.provider.workspace;
    let unpacking = workspace.unpack_directory(target.clone(), path(b"in"), chunks);
    let ((), unpacked) = tokio::join!(sending, unpacking);
    let Err(WorkError::BadArchive(why)) = &unpacked else { panic!("{unpacked:?}") };
    assert!(why.contains("\"a\"") && why.contains("the caller went away"), "{why}");
    assert_eq!(subject.read(&target, b"in/a").await, Err(WorkError::NoSuchFile));
    let uploads = model.dir.join(object.external_id.as_str()).join("home/.issuebox/tmp");
    assert_eq!(std::fs::read_dir(uploads).expect("there is one").count(), 0);
}
