//! The files API: its operations, and attempts to misuse it.

use std::time::Instant;

use issuebox::sandbox::{
    FileKind, FilePart, LIST_ENTRIES_MAX, WorkError, Workspace, WorkspacePath, Written,
};
use tokio::sync::mpsc;

use crate::common::{Local, Sandbox, WAIT, request};

fn not_allowed(error: &WorkError) -> bool {
    matches!(error, WorkError::PathNotAllowed(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_read_listed_and_deleted() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("files").await;
    assert_eq!(sandbox.write(b"a/b/c.txt", "one").await, Ok(Written::Created));
    assert_eq!(sandbox.sh("cat a/b/c.txt; stat -c '%a %u' a/b/c.txt").await, "one644 1000\n");
    sandbox.sh("chmod 6755 a/b/c.txt").await;
    assert_eq!(sandbox.write(b"/workspace/a/b/c.txt", "two").await, Ok(Written::Replaced));
    assert_eq!(
        sandbox.sh("stat -c %a a/b/c.txt").await,
        "755\n",
        "permissions are kept and no others are set"
    );
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
async fn an_interrupted_write_leaves_the_old_file() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("breakoff").await;
    sandbox.write(b"file", "old").await.expect("written");
    let path = || WorkspacePath::parse(b"file").expect("a path");
    let (sender, chunks) = mpsc::channel(2);
    sender.send(Ok("new".into())).await.expect("room");
    sender.send(Err("the caller went away".into())).await.expect("room");
    let error = local.provider.write_file(sandbox.target.clone(), path(), chunks).await;
    assert!(matches!(error, Err(WorkError::Broken(_))), "{error:?}");
    // And one whose future is dropped halfway.
    let (sender, chunks) = mpsc::channel(1);
    let write = local.provider.write_file(sandbox.target.clone(), path(), chunks);
    let both = async {
        sender.send(Ok("new".into())).await.expect("room");
        sender.reserve().await.expect("the first was taken");
    };
    tokio::select! { _ = write => panic!("must still wait"), () = both => {} }
    assert_eq!(sandbox.read(b"file").await, Ok("old".into()));
    let ended = "until [ \"$(ls -A | wc -l)\" = 1 ]; do sleep 0.01; done";
    assert_eq!(sandbox.sh(ended).await, "", "the new files are gone");
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
    // Hard links to files outside are impossible: that is another mount.
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
async fn a_path_that_is_no_regular_file_is_refused_at_once() {
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

pub async fn archive_of(sandbox: &Sandbox<'_>, path: &[u8]) -> Result<Vec<u8>, WorkError> {
    let path = WorkspacePath::parse(path).expect("a path");
    let mut chunks = sandbox.provider.pack_directory(sandbox.target.clone(), path).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        bytes.extend(chunk.map_err(WorkError::Broken)?);
    }
    Ok(bytes)
}

pub async fn unpack(sandbox: &Sandbox<'_>, path: &[u8], archive: Vec<u8>) -> Result<(), WorkError> {
    let (sender, chunks) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for piece in archive.chunks(50_000) {
            if sender.send(Ok(bytes::Bytes::copy_from_slice(piece))).await.is_err() {
                return;
            }
        }
    });
    let path = WorkspacePath::parse(path).expect("a path");
    sandbox.provider.unpack_directory(sandbox.target.clone(), path, chunks).await
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_are_made_things_moved_and_permissions_set() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("changes").await;
    let path = |path: &[u8]| WorkspacePath::parse(path).expect("a path");
    let at = || sandbox.target.clone();
    let make = |p: &[u8]| local.provider.make_directory(at(), path(p));
    let relocate = |from: &[u8], to: &[u8], overwrite| {
        local.provider.move_file(at(), path(from), path(to), overwrite)
    };
    let set_mode = |p: &[u8], mode| local.provider.set_file_mode(at(), path(p), mode);
    assert_eq!(make(b"a/b/c").await, Ok(Written::Created));
    assert_eq!(make(b"a/b").await, Ok(Written::Replaced));
    assert_eq!(make(b"").await, Ok(Written::Replaced));
    sandbox.sh("echo one > one; echo two > two; ln -s /etc out; ln -s a in; ln -s one file").await;
    assert!(matches!(make(b"one").await, Err(WorkError::Exists(_))));
    assert!(not_allowed(&make(b"out/x").await.expect_err("outside")));
    assert!(matches!(relocate(b"one", b"two", false).await, Err(WorkError::Exists(_))));
    assert_eq!(sandbox.sh("cat one two").await, "one\ntwo\n");
    assert_eq!(relocate(b"one", b"two", true).await, Ok(Written::Replaced));
    assert_eq!(sandbox.sh("cat two; ls").await, "one\na\nfile\nin\nout\ntwo\n");
    for name in [&b"-rf"[..], b"new\nline", b"\xff\xfe", b"d/e/f"] {
        assert_eq!(relocate(b"two", name, false).await, Ok(Written::Created), "{name:?}");
        assert_eq!(set_mode(name, 0o640).await, Ok(()));
        assert_eq!(relocate(name, b"two", false).await, Ok(Written::Created), "{name:?}");
    }
    assert_eq!(sandbox.sh("stat -c %a two").await, "640\n");
    assert_eq!(relocate(b"none", b"x/y", false).await, Err(WorkError::NoSuchFile));
    assert_eq!(sandbox.sh("test ! -e x && echo fine").await, "fine\n", "made for nothing");
    assert!(not_allowed(&relocate(b"two", b"out/two", true).await.expect_err("outside")));
    assert!(not_allowed(&relocate(b"out/passwd", b"p", true).await.expect_err("outside")));
    assert!(not_allowed(&relocate(b"a", b"a/b/a", false).await.expect_err("into itself")));
    assert!(matches!(relocate(b"d", b"a", true).await, Err(WorkError::Exists(_))), "not empty");
    // A link itself is moved, whatever its target is.
    assert_eq!(relocate(b"out", b"away", false).await, Ok(Written::Created));
    assert_eq!(sandbox.sh("readlink away").await, "/etc\n");
    // Also of a file that is not readable.
    assert_eq!(set_mode(b"two", 0).await, Ok(()));
    assert_eq!(set_mode(b"two", 0o755).await, Ok(()));
    assert_eq!(set_mode(b"in", 0o700).await, Ok(()), "a link that stays inside is followed");
    assert_eq!(sandbox.sh("stat -c %a two a").await, "755\n700\n");
    assert!(not_allowed(&set_mode(b"away", 0o777).await.expect_err("outside")));
    assert!(not_allowed(&set_mode(b"two", 0o4755).await.expect_err("setuid")));
    sandbox.sh("mkfifo fifo").await;
    assert!(matches!(set_mode(b"fifo", 0o600).await, Err(WorkError::WrongKind(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_file_are_read() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("parts").await;
    sandbox.sh("seq 0 199999 > f; : > empty").await;
    let whole = sandbox.read(b"f").await.expect("read");
    let read = async |name: &[u8], part| {
        let path = WorkspacePath::parse(name).expect("a path");
        let mut content = local.provider.read_file(sandbox.target.clone(), path, part).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = content.chunks.recv().await {
            bytes.extend(chunk.expect("readable"));
        }
        assert_eq!(bytes.len() as u64, content.range.end - content.range.start);
        Ok(String::from_utf8(bytes).expect("text"))
    };
    let size = whole.len() as u64;
    assert_eq!(
        read(b"f", FilePart::Between(100_000, 300_000)).await,
        Ok(whole[100_000..=300_000].into())
    );
    assert_eq!(read(b"f", FilePart::From(size - 7)).await, Ok("199999\n".into()));
    assert_eq!(read(b"f", FilePart::Last(7)).await, Ok("199999\n".into()));
    assert_eq!(read(b"f", FilePart::From(size)).await, Err(WorkError::OutOfRange { size }));
    assert_eq!(read(b"empty", FilePart::Last(1)).await, Err(WorkError::OutOfRange { size: 0 }));
    assert_eq!(read(b"empty", FilePart::Whole).await, Ok(String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_comes_out_as_an_archive_and_goes_in_again() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("archive").await;
    sandbox
        .sh(
            "mkdir -p d/e; cd d; seq 100000 > e/big; chmod 600 e/big; touch -- -rf 'new\nline' \
             $(printf '\\377'); ln -s /etc/passwd link; ln -s e in; mkfifo fifo; mkdir shut; chmod 500 shut",
        )
        .await;
    let bytes = archive_of(&sandbox, b"d").await.expect("packed");
    assert_eq!(unpack(&sandbox, b"copy/of", bytes.clone()).await, Ok(()));
    let script =
        "cd $1 && find . ! -name fifo -printf '%P %y %m %l\\n' | sort | md5sum; md5sum < e/big";
    let summary = async |at: &str| sandbox.sh(&format!("set -- {at}; {script}")).await;
    assert_eq!(summary("copy/of").await, summary("d").await);
    assert_eq!(sandbox.sh("ls copy/of | grep -c fifo; true").await, "0\n");
    // The system's tar can read it, and its archives can be unpacked here.
    assert_eq!(sandbox.write(b"d.tar", "").await, Ok(Written::Created));
    assert_eq!(unpack(&sandbox, b"", bytes.clone()).await, Ok(()));
    sandbox.sh("tar -C d --exclude fifo -cf made.tar .").await;
    let made = sandbox.read_bytes(b"made.tar").await;
    assert_eq!(unpack(&sandbox, b"other", made).await, Ok(()));
    assert_eq!(summary("other").await, summary("d").await);

    assert_eq!(archive_of(&sandbox, b"none").await, Err(WorkError::NoSuchFile));
    let file = archive_of(&sandbox, b"d.tar").await.expect_err("a file");
    assert!(matches!(file, WorkError::WrongKind(_)), "{file:?}");
    assert!(not_allowed(&archive_of(&sandbox, b"d/link").await.expect_err("outside")));
    sandbox.sh("ln -s /tmp away").await;
    assert!(not_allowed(&unpack(&sandbox, b"away", bytes.clone()).await.expect_err("outside")));
    let cut = unpack(&sandbox, b"cut", bytes[..100_000].to_vec()).await.expect_err("cut off");
    assert!(matches!(&cut, WorkError::BadArchive(why) if why.contains("cut off")), "{cut:?}");
    // An invalid archive is refused at its beginning, however much would follow.
    let noise = unpack(&sandbox, b"noise", vec![b'x'; 2_000_000]).await.expect_err("noise");
    assert!(matches!(noise, WorkError::BadArchive(_)), "{noise:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_named_and_costs_nothing_else() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("closed").await;
    // The directory `names` could be read and not entered.
    let script = "mkdir -p d/closed/in d/last d/names; cd d; echo 1 > a; echo 2 > b; \
                  echo 3 > closed/in/c; echo 4 > last/d; echo 5 > names/e; echo 6 > z; \
                  chmod 000 b closed; chmod 400 names";
    sandbox.sh(script).await;
    let archive = archive_of(&sandbox, b"d").await.expect("packed");
    unpack(&sandbox, b"copy", archive.clone()).await.expect("it is well formed");
    let found = sandbox.sh("cd copy; find . -type f ! -name '*.txt' | sort; cat *.txt").await;
    let expected = "./a\n./last/d\n./z\n\
                    This archive lacks the following, which could not be read:\n\
                    \"b\": permission denied\n\
                    \"closed\": permission denied\n\
                    \"names\": permission denied\n";
    assert_eq!(found, expected);
    assert_eq!(sandbox.sh("stat -c %a copy/closed copy/names").await, "0\n400\n");
    // A file of that name keeps it.
    sandbox.sh("echo own > d/issuebox-left-out.txt").await;
    let archive = archive_of(&sandbox, b"d").await.expect("packed");
    unpack(&sandbox, b"again", archive).await.expect("it is well formed");
    let found = sandbox.sh("cd again; cat issuebox-left-out.txt; wc -l < issuebox-left-out-2.txt");
    assert_eq!(found.await, "own\n4\n");

    let root = WorkspacePath::parse(b"d").expect("a path");
    let listing = local.provider.list_files(sandbox.target.clone(), root, 9).await.expect("listed");
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let listed: Vec<_> =
        listing.entries.iter().map(|entry| (text(&entry.path), entry.is_unreadable)).collect();
    let listed: Vec<_> = listed.iter().map(|(path, is)| (path.as_str(), *is)).collect();
    let expected = [
        ("d/a", false),
        ("d/b", false),
        ("d/closed", true),
        ("d/issuebox-left-out.txt", false),
        ("d/last", false),
        ("d/last/d", false),
        ("d/names", true),
        ("d/z", false),
    ];
    assert_eq!(listed, expected);
    sandbox.sh("chmod -R u+rwx d copy again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deep_tree_is_packed_and_listed_as_far_as_paths_go() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("deep").await;
    let name = "n".repeat(250);
    let script = format!(
        "for (1..30) {{ mkdir '{name}' and chdir '{name}' and open(F, '>', 'z') or die $! }}"
    );
    assert_eq!(sandbox.run(request(&["perl", "-e", &script])).await.code, 0);
    let archive = archive_of(&sandbox, b"").await.expect("packed");
    let mut archive = tar::Archive::new(&archive[..]);
    let entries = archive.entries().expect("an archive").map(|entry| {
        let entry = entry.expect("well formed");
        entry.path_bytes().into_owned()
    });
    let files: Vec<_> = entries.filter(|path| path.ends_with(b"/z")).collect();
    // A name and a slash are 251 bytes, of 4094.
    assert_eq!(files.len(), 16);
    let listed = sandbox.list(b"", 32).await.expect("listed");
    assert_eq!(listed.iter().filter(|path| path.ends_with("/z")).count(), 30);
}
