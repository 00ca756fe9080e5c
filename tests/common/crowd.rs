//! Data directories of many issues, made without a server: what takes minutes over HTTP takes
//! seconds here.

#![allow(dead_code, reason = "each user has its own part of this")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use issuebox::clock::{Clock, IdSource, SystemClock, SystemIds};
use issuebox::issue::{Dated, Issue, IssueState, Record};
use issuebox::sandbox::simulated::{SimulatedConfig, SimulatedFaults, SimulatedProvider};
use issuebox::sandbox::{CreateSpec, Labels, Lifecycle};
use issuebox::store::sqlite::SqliteStore;
use issuebox::store::{DeliveryRow, DeliveryState, Store, Write};
use issuebox::types::{
    AccountName, Alias, Attempt, DeliveryId, ExternalId, Generation, HomeId, IssueId, IssueNumber,
    Mode, Network, ObjectName, OnLimit, Phase, ProviderName, Repository, Resources, Sandbox,
    SandboxMeta, Template, TemplateName, TimelineEntry, Wanted,
};
use rusqlite::Connection;

/// The id of the first issue of a fresh data directory's crowd; each further one has the next.
pub const FIRST: u64 = 4_000_000_000;

/// Gives a data directory these many issues with a running sandbox, each with its object at the
/// simulated provider in `simulated`, as one delivery for each had led to.
pub async fn live(data: &Path, simulated: &Path, count: usize) {
    let store = SqliteStore::open(data).expect("no server has it open");
    let config = SimulatedConfig { dir: simulated.to_owned(), unique_names: true };
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let provider = SimulatedProvider::open(config, SimulatedFaults::default(), clock, ids);
    let provider = provider.expect("a directory");
    for from in (0..count).step_by(BATCH) {
        let mut writes = Vec::new();
        for index in from..count.min(from + BATCH) {
            let number = u64::try_from(index).expect("a number") + 1;
            let (mut issue, record) = running(&store, number);
            let labels = Labels {
                instance: store.instance(),
                account: issue.account.clone(),
                home: issue.home,
                issue: issue.facts.issue_id.clone(),
                sandbox: record.id.clone(),
                generation: record.generation,
                mode: record.mode,
            };
            let deadline = record.created_at.after(Duration::from_secs(3600));
            let name = record.object_name.clone();
            let template = record.template.clone();
            let made = provider.create(CreateSpec { name, labels, template, deadline }).await;
            let external_id = made.expect("nothing goes wrong").external_id;
            issue.state = IssueState::Running { record, external_id };
            writes.push(store.commit(first_write(issue)));
        }
        try_join_all(writes).await.expect("they are stored");
    }
}

/// Writes that wait for the store at once: fewer than it lets wait.
const BATCH: usize = 500;

/// A new issue with this number, and what its sandbox is. Home numbers are no use as numbers of
/// issues: they jump with each start.
fn running(store: &SqliteStore, number: u64) -> (Issue, Record) {
    let account = AccountName::default_account();
    let home = store.next_home();
    let issue_id = IssueId::from_github(FIRST - 1 + number);
    let now = SystemClock.now();
    let name = issue_id.sandbox_name();
    let record = Record {
        id: SystemIds.sandbox_id(),
        object_name: ObjectName::for_home(&account, home, &name),
        name,
        generation: Generation(1),
        template_version: template().version(),
        template: template(),
        agent_id: None,
        meta: SandboxMeta::default(),
        mode: Mode::Strong,
        created_at: now,
        phase_since: now,
        last_activity_at: now,
        reason: "it is up".into(),
        attempt: Attempt(2),
        may_land_until: None,
        stop_may_land_until: None,
        deadline: None,
        made_at_ns: None,
        healing: None,
        left_nothing: false,
        needs_cold_start: false,
        owes_farewell: false,
    };
    let mut issue = Issue::new(home, account, issue_id);
    issue.version = 1;
    issue.generation = Generation(1);
    let facts = &mut issue.facts;
    facts.repository = Some(Repository::trusted("octo/hello"));
    facts.repository_id = Some(9);
    facts.number = Some(IssueNumber(number));
    facts.placed_as_of = Some(now);
    let title = format!("An issue with a title of the usual length, number {number}");
    facts.title = Some(Dated { value: title, as_of: now });
    facts.url = Some(format!("https://github.example/octo/hello/issues/{number}"));
    facts.open = Some(Dated { value: true, as_of: now });
    facts.labelled = Some(Dated { value: true, as_of: now });
    (issue, record)
}

fn template() -> Template {
    Template {
        name: TemplateName::trusted("default"),
        provider: ProviderName::trusted("simulated"),
        mode: Mode::Strong,
        resources: Resources { cpu: 1.0, memory_mb: 1024, processes: 256, disk_mb: 2048 },
        network: Network::None,
        ports: Vec::new(),
        on_limit: OnLimit::Kill,
        workload: issuebox::types::Workload::default().into(),
    }
}

/// What the delivery that began a home leads to.
fn first_write(issue: Issue) -> Write {
    let HomeId(home) = issue.home;
    let at = issue.state.record().map_or_else(|| SystemClock.now(), |record| record.created_at);
    let id = DeliveryId::trusted(format!("00000000-0000-4000-8000-{home:012x}"));
    let place = (issue.facts.repository.clone(), issue.facts.number);
    let (Some(repository), Some(number)) = place else { panic!("it has a place") };
    let aliases =
        vec![Alias::Issue(issue.facts.issue_id.clone()), Alias::Numbered(repository, number)];
    let timeline = vec![entry(&issue, None, Some(Phase::Creating))];
    let delivery = DeliveryRow {
        account: AccountName::default_account(),
        id,
        received_at: at,
        recovered: false,
        event: "issues".into(),
        action: "labeled".into(),
        home: Some(issue.home),
        applied: true,
        reason: WHY.into(),
        state: DeliveryState::Done,
    };
    Write { issue: Some(issue), aliases, timeline, delivery: Some(delivery), ..Write::default() }
}

/// Why each of them has a sandbox.
const WHY: &str = "label agent added; the sandbox is being created";

fn entry(issue: &Issue, from: Option<Phase>, to: Option<Phase>) -> TimelineEntry {
    TimelineEntry {
        at: SystemClock.now(),
        generation: issue.generation,
        from,
        to,
        reason: WHY.into(),
        cause: "delivery 00000000-0000-4000-8000-000000000001".into(),
    }
}

/// Makes a data directory know these many issues more, whose sandbox is gone, numbered from `first`
/// on: one by the store itself, the others as copies of its rows, each with names of its own.
pub async fn known(data: &Path, first: u64, count: u64) {
    let past = {
        let store = SqliteStore::open(data).expect("no server has it open");
        let (issue, record) = running(&store, first);
        let external_id = ExternalId::trusted("sim-past");
        let live = Issue { state: IssueState::Running { record, external_id }, ..issue };
        let gone = Issue { state: IssueState::Absent, version: 2, ..live.clone() };
        let ended = live.sandbox().map(|sandbox| Sandbox {
            phase: None,
            wanted: Wanted::Deleted,
            deleted_at: Some(SystemClock.now()),
            ..sandbox
        });
        let second = Write {
            issue: Some(gone),
            ended,
            timeline: vec![entry(&live, Some(Phase::Deleting), None)],
            ..Write::default()
        };
        let home = live.home;
        let first = store.commit(first_write(live));
        try_join_all([first, store.commit(second)]).await.expect("they are stored");
        home
    };
    let mut database = Connection::open(data.join("issuebox.db")).expect("a database");
    // Durability does not matter here.
    let settings = "PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;
                    PRAGMA journal_mode = OFF; PRAGMA temp_store = MEMORY;";
    database.execute_batch(settings).expect("settings");
    let transaction = database.transaction().expect("no other writer");
    let more = i64::try_from(count).expect("a number") - 1;
    transaction.execute_batch(&copies(past, first, more)).expect("they are stored");
    transaction.commit().expect("they are stored");
    database.pragma_update(None, "journal_mode", "WAL").expect("as the server has it");
}

/// Copies every row of a home for each of these many homes behind it.
fn copies(HomeId(past): HomeId, number: u64, more: i64) -> String {
    let (first, old) = (i64::try_from(FIRST), i64::try_from(number));
    let (first, old) = (first.expect("a number"), old.expect("a number"));
    // As `running` names them; `n` is the home.
    let number = format!("({old} + n - {past})");
    let (id, old_id) = (format!("'' || ({first} - 1 + {number})"), first - 1 + old);
    let new = format!(
        "WITH RECURSIVE new (n) AS
             (SELECT {past} + 1 UNION ALL SELECT n + 1 FROM new WHERE n < {past} + {more})"
    );
    let of = |table: &str| format!("FROM new, (SELECT * FROM {table} WHERE home = {past}) AS old");
    format!(
        "{new} INSERT INTO issue (home, account, version, repository_id, body)
             SELECT n, account, version, repository_id, replace(body, '{old_id}', {id}) {issue};
         {new} INSERT INTO issue_alias (account, issue_id, home)
             SELECT account, {id}, n {issue};
         {new} INSERT INTO numbered_alias (account, repository, number, home, repository_id)
             SELECT account, repository, {number}, n, repository_id {numbered_alias};
         {new} INSERT INTO delivery (guid, received_at, event, action, home, applied, reason)
             SELECT randomblob(16), received_at, event, action, n, applied, reason {delivery};
         {new} INSERT INTO timeline (home, at, generation, phase_from, phase_to, reason, cause)
             SELECT n, at, generation, phase_from, phase_to, reason, cause {timeline};
         {new} INSERT INTO ended (account, home, generation, sandbox_id, provider, external_id,
                                  created_at, repository, search, body)
             SELECT account, n, generation, sandbox_id || n, provider, external_id || n,
                    created_at, repository, replace(search, '{old_id}', {id}),
                    replace(body, '{old_id}', {id}) {ended};",
        issue = of("issue"),
        numbered_alias = of("numbered_alias"),
        delivery = of("delivery"),
        timeline = of("timeline"),
        ended = of("ended"),
    )
}
