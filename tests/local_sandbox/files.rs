//! The file API: what it does, and what it can't be led to do.

use std::time::Instant;

use issuebox::sandbox::{
    FileKind, LIST_ENTRIES_MAX, SandboxProvider, WorkError, WorkspacePath, Written,
};
use tokio::sync::mpsc;

use crate::common::{Local, WAIT, until};

fn not_allowed(error: &WorkError) -> bool {
    matches!(error, WorkError::PathNotAllowed(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_read_listed_and_deleted() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("files").await;
    assert_eq!(sandbox.write(b"a/b/c.txt", "one").await, Ok(Written::Created));
    assert_eq!(sandbox.sh("cat a/b/c.txt; stat -c '%a %u' a/b/c.txt").await, "one644 1000\n");
    sandbox.sh("chmod 755 a/b/c.txt").await;
    assert_eq!(sandbox.write(b"/workspace/a/b/c.txt", "two").await, Ok(Written::Replaced));
    assert_eq!(sandbox.sh("stat -c %a a/b/c.txt").await, "755\n", "permissions are kept");
    assert_eq!(sandbox.read(b"a/b/c.txt").await, Ok("two".into()));
    assert_eq!(sandbox.write(b"empty", "").await, Ok(Written::Created));
    assert_eq!(sandbox.read(b"empty").await, Ok(String::new()));

    sandbox.sh("ln -s a link; mkfifo fifo; touch \"$(printf 'bad\\377name')\"").await;
    assert_eq!(
        sandbox.list(b"", 1).await.expect("listed"),
        ["a", "bad\u{fffd}name", "empty", "fifo", "link"]
    );
    assert_eq!(sandbox.list(b"a", 9).await.expect("listed"), ["a/b", "a/b/c.txt"]);
    assert_eq!(sandbox.list(b"a/b/c.txt", 1).await.expect("listed"), ["a/b/c.txt"]);
    let root = WorkspacePath::parse(b"").expect("the workspace");
    let listing = local.provider.list_files(sandbox.target.clone(), root, 1).await.expect("listed");
    let kinds: Vec<FileKind> = listing.entries.iter().map(|entry| entry.kind).collect();
    use FileKind::{Directory, File, Link, Other};
    assert_eq!(kinds, [Directory, File, File, Other, Link]);
    assert_eq!(listing.entries[1].path, b"bad\xffname");

    assert_eq!(sandbox.write(b"bad\xffname", "bytes").await, Ok(Written::Replaced));
    assert_eq!(sandbox.read(b"bad\xffname").await, Ok("bytes".into()));
    for path in [&b"bad\xffname"[..], b"link", b"fifo", b"a", b"empty"] {
        assert_eq!(sandbox.delete_file(path).await, Ok(()));
        assert_eq!(sandbox.delete_file(path).await, Err(WorkError::NoSuchFile));
    }
    assert_eq!(sandbox.list(b"", 1).await.expect("listed"), [""; 0]);
    assert!(not_allowed(&sandbox.delete_file(b"").await.expect_err("the workspace itself")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_breaks_off_leaves_the_old_file() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("breakoff").await;
    sandbox.write(b"file", "old").await.expect("written");
    let path = || WorkspacePath::parse(b"file").expect("a path");
    let (sender, chunks) = mpsc::channel(2);
    sender.send(Ok("new".into())).await.expect("room");
    sender.send(Err("the caller went away".into())).await.expect("room");
    let error = local.provider.write_file(sandbox.target.clone(), path(), chunks).await;
    assert!(matches!(error, Err(WorkError::Broken(_))), "{error:?}");
    // And one whose future is dropped in the middle.
    let (sender, chunks) = mpsc::channel(1);
    let write = local.provider.write_file(sandbox.target.clone(), path(), chunks);
    let both = async {
        sender.send(Ok("new".into())).await.expect("room");
        sender.reserve().await.expect("the first was taken");
    };
    tokio::select! { _ = write => panic!("must still wait"), () = both => {} }
    assert_eq!(sandbox.read(b"file").await, Ok("old".into()));
    let workspace = local.dir.path().join("objects/breakoff/workspace");
    until("the new files' end", || std::fs::read_dir(&workspace).expect("there").count() == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_lead_outside_are_not_followed() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("links").await;
    sandbox
        .sh("ln -s /etc/shadow shadow; ln -s /etc/passwd passwd; ln -s / root; ln -s ../etc up; \
             ln -s /proc/1/root proc1; ln -s /proc/self/root self; ln -s /proc/self/fd fds; \
             mkdir d; ln -s ../../etc d/up; ln -s /tmp tmp; echo in > inside; ln -s inside good; \
             ln -s loop loop")
        .await;
    for path in [
        "shadow",
        "passwd",
        "root/etc/passwd",
        "up/passwd",
        "proc1/etc/passwd",
        "self/etc/passwd",
        "fds/0",
        "d/up/passwd",
        "tmp/x",
        "loop",
    ] {
        let read = sandbox.read(path.as_bytes()).await.expect_err(path);
        assert!(not_allowed(&read), "reading {path}: {read:?}");
        let write = sandbox.write(path.as_bytes(), "x").await.expect_err(path);
        assert!(not_allowed(&write), "writing {path}: {write:?}");
    }
    for path in ["root", "up", "proc1", "self", "d/up", "tmp"] {
        assert_eq!(sandbox.list(path.as_bytes(), 3).await.expect("itself"), [path], "as a link");
        let below = format!("{path}/x");
        let delete = sandbox.delete_file(below.as_bytes()).await.expect_err(path);
        assert!(not_allowed(&delete), "deleting {below}: {delete:?}");
        let write = sandbox.write(format!("{path}/new/x").as_bytes(), "x").await.expect_err(path);
        assert!(not_allowed(&write), "writing below {path}: {write:?}");
    }
    assert_eq!(sandbox.read(b"good").await, Ok("in\n".into()), "within the workspace they are");
    // Hard links to what is outside can't be made: it is another mount.
    assert_eq!(sandbox.sh("ln /etc/passwd hard 2>/dev/null || echo refused").await, "refused\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_swapped_in_meanwhile_is_not_followed() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("race").await;
    sandbox.sh("mkdir real; echo inside > real/passwd; cp -r real dir; ln -s /etc out").await;
    let swap = "while :; do mv -T dir held; mv -T out dir; mv -T dir out; mv -T held dir; done";
    let swapping = crate::common::request(&["sh", "-c", swap]);
    let _swapping = sandbox.exec(swapping).await.expect("started");
    let (mut inside, mut refused) = (0, 0);
    let begin = Instant::now();
    while inside + refused < 400 || inside == 0 || refused == 0 {
        assert!(begin.elapsed() < WAIT, "the race must be one: {inside} in, {refused} refused");
        match sandbox.read(b"dir/passwd").await {
            Ok(content) => {
                assert_eq!(content, "inside\n", "an escape");
                inside += 1;
            }
            Err(WorkError::NoSuchFile | WorkError::PathNotAllowed(_)) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_regular_file_is_refused_at_once() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("kinds").await;
    sandbox
        .sh("mkfifo fifo; mkdir dir; perl -MSocket -e \
             'socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un(\"socket\"))'; ln -s /dev/zero zero")
        .await;
    for path in ["fifo", "dir", "socket"] {
        let read = sandbox.read(path.as_bytes()).await.expect_err(path);
        assert!(matches!(read, WorkError::WrongKind(_)), "{path}: {read:?}");
        let write = sandbox.write(path.as_bytes(), "x").await.expect_err(path);
        assert!(matches!(write, WorkError::WrongKind(_)), "{path}: {write:?}");
    }
    assert!(not_allowed(&sandbox.read(b"zero").await.expect_err("a device")));
    let below = sandbox.read(b"fifo/x").await.expect_err("below a FIFO");
    assert!(matches!(below, WorkError::WrongKind(_)), "{below:?}");
    sandbox.sh("mkdir closed; touch closed/x; chmod 000 closed").await;
    let closed = sandbox.read(b"closed/x").await.expect_err("closed");
    assert!(matches!(closed, WorkError::Refused(_)), "{closed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn huge_and_deep_directories_are_listed_in_part_and_deleted_whole() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("trees").await;
    let many = LIST_ENTRIES_MAX + 500;
    sandbox.sh(&format!("mkdir many; cd many; seq {many} | xargs touch")).await;
    sandbox
        .sh(
            "perl -e 'mkdir \"deep\"; chdir \"deep\"; for (1..3000) { mkdir \"d\"; chdir \"d\" }'; \
             mkdir -p odd/closed; touch odd/closed/x; chmod 000 odd/closed; chmod 500 odd",
        )
        .await;
    let path = |path: &[u8]| WorkspacePath::parse(path).expect("a path");
    let list =
        |at: &[u8], depth| local.provider.list_files(sandbox.target.clone(), path(at), depth);
    let listing = list(b"many", 1).await.expect("listed");
    assert_eq!((listing.entries.len(), listing.truncated), (LIST_ENTRIES_MAX, true));
    let listing = list(b"deep", u32::MAX).await.expect("listed");
    assert!(listing.truncated && listing.entries.len() >= 60, "{}", listing.entries.len());
    for name in [&b"many"[..], b"deep", b"odd"] {
        assert_eq!(sandbox.delete_file(name).await, Ok(()));
    }
    assert_eq!(sandbox.list(b"", 1).await.expect("listed"), [""; 0]);
}
