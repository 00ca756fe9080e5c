//! What is kept, in which order, and what goes.

use super::*;
use crate::clock::SystemClock;

const BOUNDS: LogBounds =
    LogBounds { sandbox_len_max: 1 << 20, total_len_max: 1 << 30, age_max: None };

fn id(id: &str) -> SandboxId {
    SandboxId::trusted(id)
}

fn open(dir: &Path, bounds: LogBounds) -> Logs {
    Logs::open(dir, bounds, Arc::new(SystemClock)).expect("opens")
}

/// Runs a command that does this, to its end, and waits until its log is written.
async fn run(dir: &Path, bounds: LogBounds, sandbox: &str, events: Vec<ExecEvent>) {
    let logs = open(dir, bounds);
    let (tx, rx) = tokio::sync::mpsc::channel(events.len().max(1));
    let expected = events.clone();
    for event in events {
        tx.try_send(event).expect("there is room");
    }
    drop(tx);
    let argv = ["sh".to_owned(), "-c".to_owned(), "it's".to_owned()];
    let mut passed = logs.keep(&id(sandbox), "r-1", &argv, Execution { events: rx });
    let mut seen = Vec::new();
    while let Some(event) = passed.events.recv().await {
        seen.push(event);
    }
    assert_eq!(seen, expected, "everything is handed on as it came");
    // The end is told when what records it is dropped, which the last event does not wait for.
    let end = std::time::Instant::now() + Duration::from_secs(10);
    let ended = || logs.tail(&id(sandbox), 1).expect("reads").pop().map(|entry| entry.stream);
    while ended() != Some(Stream::Exit) {
        assert!(std::time::Instant::now() < end, "{:?}", logs.tail(&id(sandbox), 9));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    logs.close();
}

fn out(text: &'static str) -> ExecEvent {
    ExecEvent::Stdout(Bytes::from_static(text.as_bytes()))
}

fn texts(logs: &Logs, sandbox: &str, lines: usize) -> Vec<String> {
    let entries = logs.tail(&id(sandbox), lines).expect("reads");
    entries.iter().map(|e| format!("{} {}", e.stream.as_str(), e.text)).collect()
}

const EXIT: ExecEvent = ExecEvent::Exit { code: 3, timed_out: false };

#[tokio::test]
async fn lines_are_kept_in_order_over_pieces_and_restarts() {
    let dir = tempfile::tempdir().expect("a directory");
    let err = ExecEvent::Stderr(Bytes::from_static(b"oh\xff\r\n"));
    run(dir.path(), BOUNDS, "a", vec![out("one\ntw"), err, out("o\nthree"), EXIT]).await;
    let told = [
        r"command sh -c 'it'\''s'",
        "stdout one",
        "stderr oh\u{fffd}",
        "stdout two",
        "stdout three",
        "exit 3",
    ];
    let logs = open(dir.path(), BOUNDS);
    assert_eq!(texts(&logs, "a", 99), told);
    assert_eq!(texts(&logs, "a", 2), told[4..]);
    assert_eq!(texts(&logs, "b", 99), Vec::<String>::new(), "another sandbox's is its own");
    drop(logs);
    run(dir.path(), BOUNDS, "a", vec![out("again\n"), EXIT]).await;
    let entries = open(dir.path(), BOUNDS).tail(&id("a"), 99).expect("reads");
    let numbers: Vec<u64> = entries.iter().map(|entry| entry.n).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9], "numbers go on");
    assert!(entries[4].is_partial && !entries[3].is_partial);
}

#[tokio::test]
async fn only_the_newest_of_a_sandbox_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let bounds = LogBounds { sandbox_len_max: 20_000, ..BOUNDS };
    let lines: Vec<String> = (0..2_000).map(|n| format!("line {n:04}\n")).collect();
    let text: &'static str = Box::leak(lines.concat().into_boxed_str());
    run(dir.path(), bounds, "a", vec![out(text), EXIT]).await;
    let sizes = paths(dir.path(), &id("a")).map(|path| path.metadata().expect("there").len());
    assert!(sizes.iter().sum::<u64>() <= 20_000 && sizes[1] > 8_000, "{sizes:?}");
    let logs = open(dir.path(), bounds);
    let told = texts(&logs, "a", 3);
    assert_eq!(told, ["stdout line 1998", "stdout line 1999", "exit 3"]);
    let entries = logs.tail(&id("a"), 9_999).expect("reads");
    assert!(entries.len() > 150 && entries.windows(2).all(|two| two[1].n == two[0].n + 1));
}

#[tokio::test]
async fn a_follower_misses_nothing_when_the_log_is_turned_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let bounds = LogBounds { sandbox_len_max: 20_000, ..BOUNDS };
    let logs = open(dir.path(), bounds);
    let mut follower = logs.follow(&id("a"), 0);
    let mut seen = Vec::new();
    let (tx, rx) = tokio::sync::mpsc::channel(1);
    let mut passed = logs.keep(&id("a"), "r", &["x".to_owned()], Execution { events: rx });
    for n in 0..300 {
        let line = Bytes::from(format!("line {n}\n"));
        tx.send(ExecEvent::Stdout(line)).await.expect("taken");
        passed.events.recv().await.expect("passed on");
        if n % 60 == 59 {
            // As long as it takes until everything so far was seen.
            while seen.len() < n + 2 {
                let entries = follower.read().expect("reads");
                if entries.is_empty() {
                    assert!(follower.changed().await);
                }
                seen.extend(entries);
            }
        }
    }
    assert!(paths(dir.path(), &id("a"))[1].exists(), "it was turned over");
    assert_eq!(seen.len(), 301);
    assert!(seen.windows(2).all(|two| two[1].n == two[0].n + 1));
    assert_eq!(seen[300].text, "line 299");
}

#[tokio::test]
async fn what_is_too_old_or_too_much_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    for sandbox in ["a", "b", "c"] {
        run(dir.path(), BOUNDS, sandbox, vec![out("some text\n"), EXIT]).await;
    }
    let file = |sandbox: &str| paths(dir.path(), &id(sandbox))[0].clone();
    let aged = |sandbox: &str, seconds: u64| {
        let now = u64::try_from(SystemClock.now().unix_ms()).expect("after 1970");
        let now = std::time::SystemTime::UNIX_EPOCH + Duration::from_millis(now);
        let at = now - Duration::from_secs(seconds);
        let opened = fs::File::options().append(true).open(file(sandbox)).expect("there");
        opened.set_modified(at).expect("ours");
    };
    aged("a", 5_000);
    aged("b", 500);
    let bounds = LogBounds { age_max: Some(Duration::from_secs(1_000)), ..BOUNDS };
    open(dir.path(), bounds).close();
    assert_eq!(["a", "b", "c"].map(|name| file(name).exists()), [false, true, true]);
    let len = file("c").metadata().expect("there").len();
    open(dir.path(), LogBounds { total_len_max: len, ..BOUNDS }).close();
    assert_eq!(["b", "c"].map(|name| file(name).exists()), [false, true], "the oldest first");
}

#[tokio::test]
async fn a_flood_is_passed_on_whole_and_what_the_log_leaves_out_is_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = open(dir.path(), BOUNDS);
    // Nobody writes: as if the disk stood still.
    let mut recorder = logs.recorder(&id("a"), "r", &["x".to_owned()]);
    let piece = ExecEvent::Stdout(Bytes::from(vec![b'x'; WAITING_MAX / 2 + 1]));
    let waiting = Arc::new(AtomicUsize::new(WAITING_MAX / 2));
    recorder.waiting = Arc::clone(&waiting);
    recorder.take(&piece);
    assert_eq!(recorder.lost, (WAITING_MAX / 2 + 1) as u64);
    assert_eq!(waiting.load(Ordering::Relaxed), WAITING_MAX / 2, "it does not count");
    recorder.waiting = Arc::clone(&logs.0.waiting);
    recorder.take(&out("later\n"));
    drop(recorder);
    logs.close();
    let told = texts(&logs, "a", 9);
    assert_eq!(
        told[1..],
        [
            "note 4194305 bytes are missing here: they came too fast",
            "stdout later",
            "exit ended with its caller, or its sandbox"
        ]
    );
}

#[test]
fn an_id_of_any_form_is_a_file_of_its_own_in_the_directory() {
    let dir = Path::new("/logs");
    for odd in ["../../etc/passwd", "a/b", "", ".", "a\0b", &"x".repeat(300)] {
        let [path, _] = paths(dir, &id(odd));
        assert_eq!(path.parent(), Some(dir), "{odd:?}");
        assert_eq!(path.components().count(), 3, "{path:?}");
    }
    assert_eq!(paths(dir, &id("0190c1d2-77aa"))[0], dir.join("0190c1d2-77aa.jsonl"));
}
