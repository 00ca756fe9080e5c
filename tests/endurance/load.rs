//! Carries scripts out against whatever server lives: clients that fire what is to be done, note
//! what was acknowledged, and keep for the next server what got no answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::Notify;

use crate::chance::Chance;
use crate::plan::{Act, Script};
use crate::process::{Answer, Server, try_send};
use crate::story::StoryDelivery;

/// Clients that ask at the same moment.
const CLIENTS: usize = 12;

/// All that is to be done and all that was answered, by every server so far.
#[derive(Default)]
pub struct Load {
    state: Mutex<State>,
    more: Notify,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Deliveries that were sent, those sent again included.
    pub sent: usize,
    /// Those that were answered 2xx.
    pub acknowledged: usize,
    /// Requests that got no answer, and were sent to the next server.
    pub unanswered: usize,
    /// Requests that were refused for now (503), and were sent again.
    pub refused: usize,
    /// Calls to the API that were answered.
    pub calls: usize,
}

#[derive(Default)]
struct State {
    scripts: BTreeMap<u64, Progress>,
    jobs: VecDeque<Job>,
    /// Every delivery that was acknowledged, by its GUID, as it was sent.
    acknowledged: BTreeMap<String, StoryDelivery>,
    /// The ids that callers were given for the sandbox that an issue has now.
    ids: BTreeMap<u64, String>,
    counts: Counts,
    under_way: usize,
}

struct Progress {
    script: Script,
    /// The stage that is under way, and how much of it is not acknowledged yet.
    stage: usize,
    left: usize,
}

#[derive(Clone, Debug)]
struct Job {
    issue: u64,
    act: Act,
    /// Something that was acknowledged before is sent once more: it must be known.
    again: bool,
}

/// When a server is killed.
pub struct Kill {
    after: std::time::Duration,
    /// Or right after this many answers, where they come first.
    answers: usize,
}

impl Kill {
    /// About once a second; two times in three in the moment of an answer, if it comes before.
    pub fn by(chance: &mut Chance) -> Self {
        let after = std::time::Duration::from_millis(300 + chance.below(1_200));
        let answers = if chance.one_in(3) { usize::MAX } else { 1 + chance.index(300) };
        Self { after, answers }
    }
}

impl Load {
    /// Begins a script.
    pub fn begin(&self, script: Script) {
        let mut state = self.state.lock().expect("not poisoned");
        let issue = script.issue;
        state.scripts.insert(issue, Progress { script, stage: 0, left: 0 });
        state.fire(issue);
        drop(state);
        self.more.notify_waiters();
    }

    /// Fires at a server until it is killed.
    pub async fn until_killed(&self, server: &Server, kill: Kill, chance: &Mutex<Chance>) {
        let (answers, is_killed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let kill_it = || {
            if !is_killed.swap(true, Ordering::Relaxed) {
                server.signal(Signal::KILL);
                self.more.notify_waiters();
            }
        };
        let client = || async {
            while let Some(job) = self.next(|| is_killed.load(Ordering::Relaxed)).await {
                let is_answered = self.carry_out(server, job, chance).await;
                if is_answered && answers.fetch_add(1, Ordering::Relaxed) + 1 == kill.answers {
                    kill_it();
                }
            }
        };
        let clock = async {
            tokio::time::sleep(kill.after).await;
            kill_it();
        };
        tokio::join!(clock, join_all((0..CLIENTS).map(|_| client())));
    }

    /// Fires at a server until everything is acknowledged.
    pub async fn until_done(&self, server: &Server, chance: &Mutex<Chance>) {
        let client = || async {
            while let Some(job) = self.next(|| self.is_done()).await {
                assert!(self.carry_out(server, job, chance).await, "this server is not killed");
                self.more.notify_waiters();
            }
        };
        join_all((0..CLIENTS).map(|_| client())).await;
    }

    fn is_done(&self) -> bool {
        let state = self.state.lock().expect("not poisoned");
        state.jobs.is_empty() && state.under_way == 0
    }

    /// The next thing to do; nothing once it is over.
    async fn next(&self, is_over: impl Fn() -> bool) -> Option<Job> {
        loop {
            let more = self.more.notified();
            tokio::pin!(more);
            // From here on nothing is missed that happens before the wait below.
            more.as_mut().enable();
            if is_over() {
                return None;
            }
            {
                let mut state = self.state.lock().expect("not poisoned");
                if let Some(job) = state.jobs.pop_front() {
                    state.under_way += 1;
                    return Some(job);
                }
            }
            more.await;
        }
    }

    /// Does one thing; false where it was not answered.
    async fn carry_out(&self, server: &Server, job: Job, chance: &Mutex<Chance>) -> bool {
        let answer = ask(server, &job).await;
        let mut state = self.state.lock().expect("not poisoned");
        let is_answered = answer.is_some();
        state.take(job, answer, &mut chance.lock().expect("not poisoned"));
        state.under_way -= 1;
        drop(state);
        self.more.notify_waiters();
        is_answered
    }

    pub fn counts(&self) -> Counts {
        self.state.lock().expect("not poisoned").counts
    }

    /// The scripts and the acknowledged deliveries, once no client is left.
    pub fn into_parts(self) -> (Vec<Script>, BTreeMap<String, StoryDelivery>) {
        let state = self.state.into_inner().expect("not poisoned");
        let scripts = state.scripts.into_values().map(|progress| progress.script).collect();
        (scripts, state.acknowledged)
    }
}

async fn ask(server: &Server, job: &Job) -> Option<Answer> {
    let name = format!("claude-issue-{}", job.issue);
    let command =
        |verb: &str| server.request(Method::POST, &format!("/v1/sandboxes/{name}/{verb}"));
    let request = match &job.act {
        Act::Deliver { guid, sent } => server.delivery(sent.event, guid, sent.body.clone()),
        Act::Ensure => server.request(Method::PUT, &format!("/v1/issues/{}/sandbox", job.issue)),
        Act::Stop => command("stop"),
        Act::Start => command("start"),
        Act::Delete => server.request(Method::DELETE, &format!("/v1/sandboxes/{name}")),
    };
    try_send(request).await
}

impl State {
    /// Fires the stage of a script that is next.
    fn fire(&mut self, issue: u64) {
        let progress = self.scripts.get_mut(&issue).expect("it was begun");
        let Some(acts) = progress.script.stages.get(progress.stage) else { return };
        progress.left = acts.len();
        let job = |act: &Act| Job { issue, act: act.clone(), again: false };
        self.jobs.extend(acts.iter().map(job));
    }

    /// Takes an answer in, or the lack of one.
    fn take(&mut self, job: Job, answer: Option<Answer>, chance: &mut Chance) {
        let is_delivery = matches!(job.act, Act::Deliver { .. });
        self.counts.sent += usize::from(is_delivery);
        let Some(answer) = answer else {
            self.counts.unanswered += 1;
            return self.jobs.push_back(job);
        };
        if answer.status == 503 {
            self.counts.refused += 1;
            return self.jobs.push_back(job);
        }
        let is_known = match &job.act {
            Act::Deliver { guid, sent } => {
                self.delivered(&job, guid, sent, &answer, chance);
                true
            }
            Act::Ensure => self.ensured(job.issue, &answer),
            // A sandbox that has failed takes no start; an ensure keeps the wish.
            Act::Start if answer.status == 409 => {
                assert_eq!(answer.refusal().1, "failed", "{answer:?}");
                self.jobs.push_back(Job { act: Act::Ensure, ..job.clone() });
                false
            }
            Act::Stop if answer.status == 409 => {
                assert_eq!(answer.refusal().1, "sandbox_deleted", "{answer:?}");
                true
            }
            Act::Start | Act::Stop => {
                assert!(answer.is_success(), "{answer:?}");
                true
            }
            Act::Delete => {
                assert!(answer.is_success(), "{answer:?}");
                self.ids.remove(&job.issue);
                true
            }
        };
        self.counts.calls += usize::from(!is_delivery);
        if is_known && !job.again {
            let progress = self.scripts.get_mut(&job.issue).expect("it was begun");
            progress.left -= 1;
            if progress.left == 0 {
                progress.stage += 1;
                self.fire(job.issue);
            }
        }
    }

    fn delivered(
        &mut self,
        job: &Job,
        guid: &str,
        sent: &StoryDelivery,
        answer: &Answer,
        chance: &mut Chance,
    ) {
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
        self.counts.acknowledged += 1;
        if job.again {
            let status = serde_json::from_str::<Value>(&answer.text).map(|a| a["status"].clone());
            // The body may be cut off where the server was killed.
            assert!(status.is_err() || status.is_ok_and(|s| s == "duplicate"), "{answer:?}");
            return;
        }
        self.acknowledged.insert(guid.to_owned(), sent.clone());
        if chance.one_in(4) {
            self.jobs.push_back(Job { again: true, ..job.clone() });
        }
    }

    /// Checks the id that a caller was given; false where it must ask again.
    fn ensured(&mut self, issue: u64, answer: &Answer) -> bool {
        assert!(answer.is_success(), "{answer:?}");
        // The body may be cut off if the server was killed; then the caller has no answer.
        let Ok(body) = serde_json::from_str::<Value>(&answer.text) else {
            return self.retry(issue);
        };
        // `queued` refers to the sandbox that is being deleted.
        if body["outcome"] != "queued" {
            let id = body["sandboxId"].as_str().expect("an id").to_owned();
            let before = self.ids.insert(issue, id.clone());
            assert!(before.as_ref().is_none_or(|before| *before == id), "{before:?}: {body}");
        }
        true
    }

    fn retry(&mut self, issue: u64) -> bool {
        self.jobs.push_back(Job { issue, act: Act::Ensure, again: false });
        false
    }
}
