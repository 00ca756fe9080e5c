//! Journals: each event once, for every reader the same, through a cut line and a lost one.

use async_trait::async_trait;
use uuid::Uuid;

use super::*;
use crate::clock::SystemClock;
use crate::conversation::RunWait;
use crate::store::conversation::{LastAnswers, RunFilter, RunRow};
use crate::store::{Page, PageAsk, StoreError};
use crate::types::{AccountName, AgentName};

const HOME: HomeId = HomeId(7);

/// A store that has these.
#[derive(Clone, Default)]
struct Rows {
    messages: Vec<SaidMessage>,
    runs: Vec<Run>,
}

#[async_trait]
impl LastAnswers for Rows {
    async fn last_answer(&self, _: HomeId) -> Result<Option<RunRow>, StoreError> {
        Err(StoreError::BadCursor)
    }
}

#[async_trait]
impl ConversationStore for Rows {
    async fn messages(
        &self,
        _: HomeId,
        after: i64,
        _: usize,
    ) -> Result<Vec<MessageRow>, StoreError> {
        let numbered = (1..).zip(&self.messages).filter(|(number, _)| *number > after);
        Ok(numbered.map(|(number, message)| MessageRow { number, ..bare(message) }).collect())
    }

    async fn newest_messages(&self, _: HomeId, _: usize) -> Result<Vec<MessageRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn messages_of(&self, _: RunId) -> Result<Vec<MessageRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError> {
        Ok(self.messages.iter().find(|message| message.id == id).map(bare))
    }

    async fn run(&self, _: &AccountName, _: RunId) -> Result<Option<RunRow>, StoreError> {
        Ok(None)
    }

    async fn runs_of(&self, home: HomeId, _: usize) -> Result<Vec<RunRow>, StoreError> {
        Ok(self.runs.iter().map(|run| RunRow { home, run: run.clone() }).collect())
    }

    async fn runs(
        &self,
        _: &AccountName,
        _: &RunFilter,
        _: &PageAsk,
    ) -> Result<Page<RunRow>, StoreError> {
        Err(StoreError::BadCursor)
    }
}

fn message(number: u128) -> SaidMessage {
    SaidMessage {
        id: MessageId(Uuid::from_u128(number)),
        run: RunId(Uuid::from_u128(1)),
        source: MessageOrigin::Api,
        author: "mona".into(),
        text: MessageText::Own(format!("message {number}")),
        at: Timestamp::from_unix_ms(1_000),
    }
}

fn run(state: RunState) -> Run {
    Run {
        id: RunId(Uuid::from_u128(1)),
        agent: AgentName::trusted("claude-code"),
        messages: 1,
        state,
        reason: String::new(),
        summary: String::new(),
        waits: RunWait::Nothing,
        since: Timestamp::from_unix_ms(1_000),
        created_at: Timestamp::from_unix_ms(1_000),
        said_at: Timestamp::from_unix_ms(1_000),
        started_at: None,
        attempt: 1,
        sandbox: None,
        interruptions: 0,
        failures: 0,
        failing_since: None,
        retry_at: None,
        questions: Default::default(),
    }
}

fn journals(dir: &std::path::Path, rows: &Rows) -> Journals {
    Journals::new(dir.to_owned(), Arc::new(rows.clone()), Arc::new(SystemClock))
}

/// A place in the output of a process.
fn at(process: u64, offset: u64) -> OutputPlace {
    OutputPlace { process, read: Offset(offset) }
}

fn last_of(ids: &[u64]) -> u64 {
    *ids.last().expect("one")
}

/// The types of all events, with the state of a run.
fn words(events: &[JournalEvent]) -> Vec<String> {
    let word = |event: &JournalEvent| {
        let json: Value = serde_json::from_slice(&event.json).expect("JSON");
        let of = json["state"].as_str().or(json["text"].as_str()).unwrap_or_default();
        format!("{} {of}", json["type"].as_str().expect("a type"))
    };
    events.iter().map(word).collect()
}

#[tokio::test]
async fn a_reader_that_goes_on_anywhere_sees_what_one_sees_that_never_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = Rows { messages: vec![message(1), message(2)], runs: vec![run(RunState::Running)] };
    let journals = journals(dir.path(), &rows);
    for number in 0..50 {
        let event = AgentEvent::text(&format!("text {number}"));
        journals.printed(HOME, RunId(Uuid::from_u128(1)), at(1, number), &[event]).await;
    }
    journals.record(HOME, &[], &[run(RunState::Succeeded)]).await;
    let whole = journals.read(HOME, 0, usize::MAX).await.expect("read");
    assert_eq!(whole.len(), 2 + 1 + 50 + 1);
    for (place, event) in whole.iter().enumerate() {
        let (mut rest, mut after) = (Vec::new(), event.id);
        loop {
            let some = journals.read(HOME, after, 100).await.expect("read");
            let Some(last) = some.last() else { break };
            after = last.id;
            rest.extend(some);
        }
        assert_eq!(rest, whole[place + 1..]);
    }
    let ids: Vec<u64> = [0].into_iter().chain(whole.iter().map(|event| event.id)).collect();
    for count in 0..=60 {
        let before = journals.before_last(HOME, count, u64::MAX).await.expect("read");
        assert_eq!(before, ids[whole.len().saturating_sub(count)], "the last {count}");
        // As many as fit, and one that does not.
        let (last, third) = (ids[whole.len()], ids[whole.len() - 3]);
        for (len_max, fitting) in [(last - third, 3), (last - third - 1, 2), (0, 1)] {
            let before = journals.before_last(HOME, count, len_max).await.expect("read");
            assert_eq!(before, ids[whole.len() - count.min(fitting)], "{count}, {len_max} bytes");
        }
    }
    assert_eq!(journals.before_last(HOME, 60, last_of(&ids) - 1).await.expect("read"), ids[1]);
    let inside = whole[3].id - 1;
    let error = journals.read(HOME, inside, 100).await.expect_err("no event has this id");
    assert!(matches!(error, JournalError::NoSuchEvent(id) if id == inside));
    assert!(journals.read(HOME, 1 << 40, 100).await.is_err());
}

#[tokio::test]
async fn what_a_crash_cut_off_or_left_out_is_there_after_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let before = Rows { messages: vec![message(1)], runs: Vec::new() };
    let first = journals(dir.path(), &before);
    first.record(HOME, &before.messages, &[run(RunState::Queued)]).await;
    let path = dir.path().join("7.jsonl");
    let mut text = std::fs::read(&path).expect("read");
    text.extend_from_slice(b"{\"type\":\"text\",\"te");
    std::fs::write(&path, text).expect("written");
    // The store has more than the journal.
    let after = Rows { messages: vec![message(1), message(2)], runs: vec![run(RunState::Running)] };
    let second = journals(dir.path(), &after);
    second.record(HOME, &[message(2)], &[run(RunState::Running)]).await;
    let events = second.read(HOME, 0, usize::MAX).await.expect("read");
    let expected = ["message message 1", "run queued", "message message 2", "run running"];
    assert_eq!(words(&events), expected);
}

#[tokio::test]
async fn a_follower_is_woken_by_each_event() {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = Rows::default();
    let journals = journals(dir.path(), &rows);
    let mut len = journals.follow(HOME);
    assert_eq!(journals.read(HOME, 0, 100).await.expect("read"), []);
    len.mark_unchanged();
    let hello = [AgentEvent::text("hello")];
    journals.printed(HOME, RunId(Uuid::from_u128(1)), at(1, 6), &hello).await;
    len.changed().await.expect("woken");
    let events = journals.read(HOME, 0, 100).await.expect("read");
    assert_eq!((words(&events), events[0].id), (vec!["text hello".to_owned()], *len.borrow()));
}

#[tokio::test]
async fn a_journal_knows_up_to_where_a_process_was_read_also_after_a_crash() {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = Rows { messages: vec![message(1)], runs: vec![run(RunState::Running)] };
    let first = journals(dir.path(), &rows);
    assert_eq!(first.read_of(HOME, 3).await.expect("read"), Offset(0));
    let run_id = RunId(Uuid::from_u128(1));
    let both = [AgentEvent::text("one line"), AgentEvent::text("of the agent's")];
    first.printed(HOME, run_id, at(2, 900), &both).await;
    first.printed(HOME, run_id, at(3, 40), &both).await;
    // A message comes behind it, and the server is killed while it writes on.
    first.record(HOME, &[message(2)], &[]).await;
    let path = dir.path().join("7.jsonl");
    let mut text = std::fs::read(&path).expect("read");
    text.extend_from_slice(b"{\"type\":\"text\",\"process\":3,\"offset\":80");
    std::fs::write(&path, text).expect("written");
    let second = journals(dir.path(), &rows);
    assert_eq!(second.read_of(HOME, 3).await.expect("read"), Offset(40));
    assert_eq!(second.read_of(HOME, 2).await.expect("read"), Offset(0), "another process");
    second.printed(HOME, run_id, at(3, 80), &both).await;
    assert_eq!(second.read_of(HOME, 3).await.expect("read"), Offset(80));
}
