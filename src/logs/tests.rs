//! What is kept, in which order, and what is deleted.

use std::io::Write;

use super::*;
use crate::clock::SystemClock;
use crate::sandbox::ExecEvent;

const BOUNDS: LogBounds =
    LogBounds { sandbox_len_max: 1 << 20, total_len_max: 1 << 30, age_max: None };

fn id(id: &str) -> SandboxId {
    SandboxId::trusted(id)
}

fn open(dir: &Path, bounds: LogBounds) -> Logs {
    Logs::open(dir, bounds, Arc::new(SystemClock)).expect("opens")
}

/// Runs a command with these events to its end, and waits until its log is written.
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
    // The end is recorded when the recorder is dropped, which the last event does not wait for.
    let end = std::time::Instant::now() + Duration::from_secs(10);
    let ended = || logs.tail(&id(sandbox), 1).expect("reads").pop().map(|entry| entry.stream);
    while ended() != Some(LogStream::Exit) {
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
    let expected = [
        r"command sh -c 'it'\''s'",
        "stdout one",
        "stderr oh\u{fffd}",
        "stdout two",
        "stdout three",
        "exit 3",
    ];
    let logs = open(dir.path(), BOUNDS);
    assert_eq!(texts(&logs, "a", 99), expected);
    assert_eq!(texts(&logs, "a", 2), expected[4..]);
    assert_eq!(texts(&logs, "b", 99), Vec::<String>::new(), "another sandbox's is its own");
    drop(logs);
    run(dir.path(), BOUNDS, "a", vec![out("again\n"), EXIT]).await;
    let entries = open(dir.path(), BOUNDS).tail(&id("a"), 99).expect("reads");
    let numbers: Vec<u64> = entries.iter().map(|entry| entry.n).collect();
    let first = numbers[0];
    assert_eq!(numbers, (first..first + 9).collect::<Vec<_>>(), "numbers go on");
    assert!(entries[4].is_partial && !entries[3].is_partial);
}

#[tokio::test]
async fn terminal_output_is_kept_and_passed_on_until_the_caller_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = open(dir.path(), BOUNDS);
    let (events, shown) = tokio::sync::mpsc::channel(9);
    let (input, control) = (tokio::sync::mpsc::channel(1).0, tokio::sync::mpsc::channel(1).0);
    let terminal = Terminal { input, control, events: shown };
    let mut terminal = logs.keep_shown(&id("a"), "r", &["sh".to_owned()], terminal);
    for bytes in [&b"$ l"[..], b"s\x1b[K\r\n", b"\xff"] {
        let event = TerminalEvent::Output(Bytes::from_static(bytes));
        events.send(event.clone()).await.expect("taken");
        assert_eq!(terminal.events.recv().await, Some(event));
    }
    drop(terminal);
    // Dropping it hangs up, and that is the end of the command here.
    events.closed().await;
    logs.close();
    let expected = ["command sh", "stdout $ ls\u{1b}[K", "stdout \u{fffd}"];
    assert_eq!(texts(&logs, "a", 9)[..3], expected);
    assert_eq!(texts(&logs, "a", 9)[3..], ["exit ended with its caller or its sandbox"]);
}

#[tokio::test]
async fn only_the_newest_lines_of_a_sandbox_are_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let bounds = LogBounds { sandbox_len_max: 20_000, ..BOUNDS };
    let lines: Vec<String> = (0..2_000).map(|n| format!("line {n:04}\n")).collect();
    let text: &'static str = Box::leak(lines.concat().into_boxed_str());
    run(dir.path(), bounds, "a", vec![out(text), EXIT]).await;
    let sizes = paths(dir.path(), &id("a")).map(|path| path.metadata().expect("there").len());
    assert!(sizes.iter().sum::<u64>() <= 20_000 && sizes[1] > 8_000, "{sizes:?}");
    let logs = open(dir.path(), bounds);
    let last = texts(&logs, "a", 3);
    assert_eq!(last, ["stdout line 1998", "stdout line 1999", "exit 3"]);
    let entries = logs.tail(&id("a"), 9_999).expect("reads");
    assert!(entries.len() > 150 && entries.windows(2).all(|two| two[1].n == two[0].n + 1));
}

#[tokio::test]
async fn a_follower_misses_nothing_when_the_log_is_rotated() {
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
            // Until all lines so far were read.
            while seen.len() < n + 2 {
                let entries = follower.read().expect("reads");
                if entries.is_empty() {
                    assert!(follower.changed().await);
                }
                seen.extend(entries);
            }
        }
    }
    assert!(paths(dir.path(), &id("a"))[1].exists(), "it was rotated");
    assert_eq!(seen.len(), 301);
    assert!(seen.windows(2).all(|two| two[1].n == two[0].n + 1));
    assert_eq!(seen[300].text, "line 299");
}

#[tokio::test]
async fn old_and_excess_parts_are_deleted() {
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
    open(dir.path(), LogBounds { total_len_max: len * 6 / 5, ..BOUNDS }).close();
    assert_eq!(["b", "c"].map(|name| file(name).exists()), [false, true], "the oldest first");
}

fn begun(sandbox: &str) -> Begun {
    let line_wait = Duration::from_secs(5);
    Begun { sandbox: id(sandbox), exec: "r".into(), text: "x".into(), line_wait }
}

/// A queue of this length without a writer.
fn desk(len: usize) -> (RecorderDesk, mpsc::Receiver<Message>) {
    let (tx, rx) = mpsc::sync_channel(len);
    (RecorderDesk { tx, waiting: Arc::default(), last_words: Arc::default() }, rx)
}

/// The log's texts after these messages.
fn written(messages: impl IntoIterator<Item = Message>, sandbox: &str) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let (desk, rx) = desk(2 * MESSAGES_MAX);
    let rotation = Rotation::new(dir.path().to_owned(), BOUNDS);
    let last_words = Arc::clone(&desk.last_words);
    let writer =
        writer::LogWriter::new(rotation, Arc::new(SystemClock), Arc::default(), last_words);
    for message in messages {
        assert!(desk.tx.try_send(message).is_ok(), "there is room");
    }
    drop(desk);
    writer.run(&rx);
    texts(&open(dir.path(), BOUNDS), sandbox, 999)
}

#[test]
fn excess_output_is_dropped_with_a_note_and_other_commands_keep_theirs() {
    let (desk, rx) = desk(MESSAGES_MAX);
    let piece = ExecEvent::Stdout(Bytes::from(vec![b'x'; (1 << 19) + 1]));
    let mut flood = Recorder::new(1, Some(desk.clone()), begun("a"));
    flood.take(&piece);
    flood.take(&piece);
    let mut flood_of_few_bytes = Recorder::new(2, Some(desk.clone()), begun("b"));
    for _ in 0..2 * MESSAGES_MAX {
        flood_of_few_bytes.take(&out("."));
    }
    let mut other = Recorder::new(3, Some(desk.clone()), begun("c"));
    other.take(&out("said\n"));
    let mut messages: Vec<Message> = rx.try_iter().collect();
    let pieces = messages.iter().filter(|it| matches!(it, Message::Piece { .. })).count();
    assert!((3..MESSAGES_MAX / 4).contains(&pieces), "{pieces}");
    drop((flood, flood_of_few_bytes, other, desk));
    messages.extend(rx.try_iter());
    let end = "exit ended with its caller or its sandbox";
    let texts = written(messages, "a");
    assert_eq!(texts.first().map(String::as_str), Some("command x"));
    let note = "note 524289 bytes are missing here: they came too fast";
    assert_eq!(texts[texts.len() - 2..], [note, end]);
}

#[test]
fn a_quiet_command_is_recorded_however_many_others_flood() {
    let (desk, rx) = desk(MESSAGES_MAX);
    let begin = |n| Recorder::new(n, Some(desk.clone()), begun(if n == 0 { "a" } else { "b" }));
    let mut floods: Vec<_> = (1..10).map(begin).collect();
    for flood in &mut floods {
        (0..MESSAGES_MAX).for_each(|_| flood.take(&out(".\n")));
    }
    let mut other = begin(0);
    other.take(&out("said\n"));
    assert_eq!(written(rx.try_iter(), "a"), ["command x", "stdout said"]);
}

#[test]
fn a_command_that_starts_and_ends_while_the_queue_is_full_is_recorded_after_it() {
    let (desk, rx) = desk(3);
    let others: Vec<_> = (1..4).map(|n| Recorder::new(n, Some(desk.clone()), begun("b"))).collect();
    let mut late = Recorder::new(4, Some(desk.clone()), begun("a"));
    late.take(&out("lost\n"));
    let mut waiting: Vec<Message> = rx.try_iter().collect();
    late.take(&out("said\n"));
    drop((late, others));
    waiting.extend(rx.try_iter());
    assert_eq!(waiting.len(), 6);
    waiting.append(&mut desk.last_words.lock().expect("not poisoned"));
    let expected = [
        "command x",
        "note 5 bytes are missing here: they came too fast",
        "stdout said",
        "exit ended with its caller or its sandbox",
    ];
    assert_eq!(written(waiting, "a"), expected);
}

#[test]
fn an_unfinished_line_waits_only_so_long_while_others_write() {
    let dir = tempfile::tempdir().expect("a directory");
    let rotation = Rotation::new(dir.path().to_owned(), BOUNDS);
    let mut writer =
        writer::LogWriter::new(rotation, Arc::new(SystemClock), Arc::default(), Arc::default());
    let (desk, rx) = desk(9);
    let mut recorder = Recorder::new(1, Some(desk), begun("a"));
    recorder.take(&out("what is your name? "));
    rx.try_iter().for_each(|message| writer.take(message));
    let now = std::time::Instant::now();
    writer.cut_waiting_lines(now, false);
    assert_eq!(writer.waiting(&id("a")), 1, "only its beginning");
    writer.cut_waiting_lines(now + Duration::from_secs(6), false);
    assert_eq!(writer.waiting(&id("a")), 2);
}

#[test]
fn a_character_that_is_cut_by_time_waits_once_more_for_its_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let rotation = Rotation::new(dir.path().to_owned(), BOUNDS);
    let mut writer =
        writer::LogWriter::new(rotation, Arc::new(SystemClock), Arc::default(), Arc::default());
    let (desk, rx) = desk(9);
    let mut recorder = Recorder::new(1, Some(desk), begun("a"));
    let take = |recorder: &mut Recorder, writer: &mut writer::LogWriter, bytes: &'static [u8]| {
        recorder.take(&ExecEvent::Stdout(Bytes::from_static(bytes)));
        rx.try_iter().for_each(|message| writer.take(message));
    };
    let now = std::time::Instant::now();
    let after = |seconds| now + Duration::from_secs(seconds);
    take(&mut recorder, &mut writer, b"price: 5 \xe2\x82");
    writer.cut_waiting_lines(after(6), false);
    assert_eq!(writer.texts(&id("a")), ["x", "price: 5 "], "the rest waits");
    take(&mut recorder, &mut writer, b"\xac or 6 \xe2");
    writer.cut_waiting_lines(after(12), false);
    assert_eq!(writer.texts(&id("a"))[2..], ["€ or 6 "]);
    writer.cut_waiting_lines(after(13), false);
    assert_eq!(writer.texts(&id("a")).len(), 3, "not yet");
    writer.cut_waiting_lines(after(18), false);
    assert_eq!(writer.texts(&id("a"))[3..], ["\u{fffd}"], "it does not wait for ever");
    // An invalid byte begins no character.
    take(&mut recorder, &mut writer, b"a\xff");
    writer.cut_waiting_lines(after(24), false);
    assert_eq!(writer.texts(&id("a"))[4..], ["a\u{fffd}"]);
}

#[tokio::test]
async fn no_line_is_missed_if_the_log_is_rotated_while_it_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    run(dir.path(), BOUNDS, "a", vec![out("one\ntwo\n"), EXIT]).await;
    let [newest, before] = paths(dir.path(), &id("a"));
    let turn_over = || fs::rename(&newest, &before).expect("renamed");
    let entries = reader::tail_while(dir.path(), &id("a"), 3, turn_over).expect("reads");
    let texts: Vec<&str> = entries.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["one", "two", "3"]);
}

#[tokio::test]
async fn a_deleted_log_continues_with_greater_numbers() {
    let dir = tempfile::tempdir().expect("a directory");
    run(dir.path(), BOUNDS, "a", vec![out("one\n"), EXIT]).await;
    let logs = open(dir.path(), BOUNDS);
    let mut follower = logs.follow(&id("a"), 0);
    let seen = follower.read().expect("reads");
    assert_eq!(seen.len(), 3);
    fs::remove_file(&paths(dir.path(), &id("a"))[0]).expect("removed");
    assert_eq!(follower.read().expect("reads"), []);
    run(dir.path(), BOUNDS, "a", vec![out("two\n"), EXIT]).await;
    let resumed = logs.follow(&id("a"), seen[2].n).read().expect("reads");
    assert_eq!((resumed.len(), resumed[1].text.as_str()), (3, "two"));
    assert_eq!(follower.read().expect("reads"), resumed);
    drop(follower);
    assert_eq!(logs.0.news.len(), 0, "it has no follower any more");
}

#[test]
fn of_followers_that_end_together_the_last_removes_the_channel() {
    let dir = tempfile::tempdir().expect("a directory");
    let news = Arc::<LogFollowers>::default();
    let both = std::sync::Barrier::new(2);
    for round in 0..2_000 {
        let follower = || Follower::new(dir.path(), &id("a"), 0, Arc::clone(&news));
        let two = [follower(), follower()];
        std::thread::scope(|scope| {
            for one in two {
                scope.spawn(|| {
                    both.wait();
                    drop(one);
                });
            }
        });
        assert_eq!(news.len(), 0, "round {round}");
    }
}

#[tokio::test]
async fn a_follower_that_starts_during_a_rotation_of_the_first_part_misses_none_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    run(dir.path(), BOUNDS, "a", vec![out("one\n"), EXIT]).await;
    let [newest, before] = paths(dir.path(), &id("a"));
    let aside = dir.path().join("aside");
    fs::rename(&newest, &aside).expect("renamed");
    let mut follower = open(dir.path(), BOUNDS).follow(&id("a"), 0);
    // The first part appears only under its later name.
    let turned_over = || fs::rename(&aside, &before).expect("renamed");
    let seen = follower.read_while(turned_over).expect("reads");
    assert_eq!((seen.len(), seen[1].text.as_str()), (3, "one"));
}

#[tokio::test]
async fn the_end_of_a_long_log_is_read_without_the_rest() {
    let dir = tempfile::tempdir().expect("a directory");
    let lines: String = (0..3_000).map(|n| format!("{n:0100}\n")).collect();
    let text: &'static str = Box::leak(lines.into_boxed_str());
    run(dir.path(), BOUNDS, "a", vec![out(text), EXIT]).await;
    let logs = open(dir.path(), BOUNDS);
    let all = logs.tail(&id("a"), 3_002).expect("reads");
    assert_eq!(all.len(), 3_002);
    for len in [0, 1, 2, 300, 1_500, 2_900, 3_001] {
        assert_eq!(logs.tail(&id("a"), len).expect("reads"), all[3_002 - len..], "{len}");
    }
}

#[tokio::test]
async fn an_interrupted_write_damages_no_other_line() {
    let dir = tempfile::tempdir().expect("a directory");
    run(dir.path(), BOUNDS, "a", vec![out("one\n"), EXIT]).await;
    let mut file = fs::File::options().append(true).open(&paths(dir.path(), &id("a"))[0]);
    file.as_mut().expect("there").write_all(br#"{"n":9,"at":1,"exec"#).expect("written");
    run(dir.path(), BOUNDS, "a", vec![out("two\n"), EXIT]).await;
    let texts = texts(&open(dir.path(), BOUNDS), "a", 9);
    assert_eq!(texts[1..3], ["stdout one", "exit 3"]);
    assert_eq!(texts[3], "note a line is missing here: its write was interrupted");
    assert_eq!(texts[5..], ["stdout two", "exit 3"]);
}

#[tokio::test]
async fn a_follower_skips_bytes_that_are_not_a_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let len = usize::try_from(reader::READ_LEN_MAX).expect("fits") + 9;
    fs::write(&paths(dir.path(), &id("a"))[0], vec![0; len]).expect("written");
    let bounds = LogBounds { sandbox_len_max: 1 << 30, ..BOUNDS };
    run(dir.path(), bounds, "a", vec![out("one\n"), EXIT]).await;
    let seen = open(dir.path(), bounds).follow(&id("a"), 0).read().expect("reads");
    let texts: Vec<&str> = seen.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts[2..], ["one", "3"]);
}

#[tokio::test]
async fn a_follower_of_the_end_begins_at_a_line_and_misses_none_after_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let bounds = LogBounds { sandbox_len_max: 600_000, ..BOUNDS };
    // Longer than a part, and than a read.
    let lines: String = (0..3_000).map(|n| format!("{n} {}\n", "x".repeat(60))).collect();
    run(dir.path(), bounds, "a", vec![ExecEvent::Stdout(lines.into()), EXIT]).await;
    let logs = open(dir.path(), bounds);
    let all = logs.tail(&id("a"), usize::MAX).expect("reads");
    let parts = paths(dir.path(), &id("a")).map(|path| fs::metadata(path).expect("a part").len());
    let end = |lines: usize, len_max: u64| {
        let mut follower = logs.follow(&id("a"), 0);
        follower.seek_tail(lines, len_max).expect("reads");
        let mut entries = Vec::new();
        loop {
            let more = follower.read().expect("reads");
            if more.is_empty() {
                break entries;
            }
            entries.extend(more);
        }
    };
    for lines in [0, 1, 2, 700, all.len() - 1, all.len(), usize::MAX] {
        let expected = &all[all.len().saturating_sub(lines)..];
        assert!(end(lines, u64::MAX) == expected, "{lines} lines");
    }
    let of = |len_max: u64| end(usize::MAX, len_max).len();
    assert_eq!((of(0), of(parts[0] + parts[1])), (0, all.len()));
    for len_max in [1_000, 70_000, parts[0] - 1, parts[0], parts[0] + 1_000] {
        let (some, more) = (of(len_max), of(len_max + 1_000));
        assert!(0 < some && some < more && more <= all.len(), "{len_max}: {some}, {more}");
    }
    // A line that is being written is not the last one.
    let mut file = fs::File::options().append(true).open(&paths(dir.path(), &id("a"))[0]);
    file.as_mut().expect("there").write_all(br#"{"n":9"#).expect("written");
    assert!(end(1, u64::MAX) == all[all.len() - 1..]);
}

#[test]
fn lost_lines_are_noted_once_the_log_can_be_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rotation = Rotation::new(dir.path().to_owned(), BOUNDS);
    let now = SystemClock.now();
    let line = |text: &str| LogEntry {
        n: 0,
        at: now,
        exec: "r".into(),
        stream: LogStream::Stdout,
        text: text.into(),
        is_partial: false,
    };
    rotation.append(&id("a"), vec![line("one")], now).expect("written");
    let [newest, _] = paths(dir.path(), &id("a"));
    let aside = dir.path().join("aside");
    fs::rename(&newest, &aside).expect("renamed");
    fs::create_dir(&newest).expect("in its way");
    rotation.append(&id("a"), vec![line("two"), line("three")], now).expect_err("a directory");
    // A writer without a cached position cannot write either.
    let mut forgetful = Rotation::new(dir.path().to_owned(), BOUNDS);
    forgetful.append(&id("a"), vec![line("five")], now).expect_err("a directory");
    fs::remove_dir(&newest).expect("removed");
    fs::rename(&aside, &newest).expect("renamed");
    rotation.append(&id("a"), vec![line("four")], now).expect("written");
    forgetful.append(&id("a"), vec![line("six")], now).expect("written");
    let texts = texts(&open(dir.path(), BOUNDS), "a", 9);
    let missing = |n| format!("note up to {n} lines are missing here: writing them failed");
    let (two, one) = (missing(2), missing(1));
    assert_eq!(texts, ["stdout one", &two, "stdout four", &one, "stdout six"]);
}

#[tokio::test]
async fn all_logs_together_stay_within_their_bound() {
    let dir = tempfile::tempdir().expect("a directory");
    let bounds = LogBounds { total_len_max: 50_000, ..BOUNDS };
    // Older than all of them, but not a log.
    let foreign = dir.path().join("lost+found");
    fs::create_dir(&foreign).expect("made");
    let logs = open(dir.path(), bounds);
    for n in 0..20 {
        let sandbox = id(&format!("s{n}"));
        let mut follower = logs.follow(&sandbox, 0);
        let mut recorder = logs.recorder(&sandbox, "r", &["x".to_owned()], LINE_WAIT);
        recorder.take(&ExecEvent::Stdout(Bytes::from(vec![b'x'; 6_000])));
        drop(recorder);
        while follower.read().expect("reads").last().map(|entry| entry.stream)
            != Some(LogStream::Exit)
        {
            assert!(follower.changed().await);
        }
    }
    logs.close();
    fs::remove_dir(&foreign).expect("still there");
    let files = fs::read_dir(dir.path()).expect("reads");
    let total: u64 = files.map(|file| file.expect("reads").metadata().expect("there").len()).sum();
    assert!((20_000..=50_000).contains(&total), "{total}");
}

#[test]
fn an_id_of_any_form_becomes_a_file_name_in_the_directory() {
    let dir = Path::new("/logs");
    for odd in ["../../etc/passwd", "a/b", "", ".", "a\0b", &"x".repeat(300)] {
        let [path, _] = paths(dir, &id(odd));
        assert_eq!(path.parent(), Some(dir), "{odd:?}");
        assert_eq!(path.components().count(), 3, "{path:?}");
    }
    assert_eq!(paths(dir, &id("0190c1d2-77aa"))[0], dir.join("0190c1d2-77aa.jsonl"));
}

#[tokio::test]
async fn notes_about_a_sandbox_belong_to_no_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = open(dir.path(), BOUNDS);
    logs.note(&id("a"), "refused evil.test:443".to_owned());
    logs.close();
    logs.note(&id("a"), "too late".to_owned());
    let entries = logs.tail(&id("a"), 9).expect("reads");
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((entry.stream, &*entry.exec), (LogStream::Note, ""));
    assert_eq!(entry.text, "refused evil.test:443");
}
