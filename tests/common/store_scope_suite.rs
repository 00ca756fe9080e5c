//! The third part of the store's contract: what reaches beyond one issue. Names that change homes,
//! issues by their repository or installation, pending starts, holds, orphans, identities.
//!
//! As in `store_suite`, each function gets a fresh world.

use std::collections::HashSet;

use issuebox::issue::{Issue, IssueState, PendingStart, Scope};
use issuebox::store::{
    CommitError, HOMES_RESERVED_MAX, LookAsk, NumberedHome, Orphan, PendingStartRow, Store, Write,
};
use issuebox::types::{
    AccountName, Alias, ExternalId, Generation, Hold, HoldScope, HomeId, IssueId, IssueNumber,
    Mode, ObjectName, ProviderName, Repository, SandboxId,
};

use crate::store_issues::{REPOSITORY, at, creating, issue_id, next, numbered, only, running};
use crate::store_suite::{World, account, ended, store_first};

/// The home's next version, with something about it changed.
fn changed(before: &Issue, change: impl FnOnce(&mut Issue)) -> Issue {
    let mut issue = next(before, before.state.clone());
    change(&mut issue);
    issue
}

async fn store_next(store: &dyn Store, issue: Issue) -> Issue {
    assert_eq!(store.commit(only(issue.clone())).await, Ok(()));
    issue
}

async fn home_of(store: &dyn Store, alias: &Alias) -> Option<HomeId> {
    store.resolve(&account(), alias).await.expect("reads")
}

async fn by_number(store: &dyn Store, home: HomeId) -> Option<NumberedHome> {
    let Alias::Numbered(repository, number) = numbered(home) else { panic!("is numbered") };
    let ask = LookAsk { numbered: Some((&repository, number)), ..LookAsk::default() };
    store.look(&account(), ask).await.expect("reads").by_number
}

pub async fn a_name_can_be_taken_over(world: &dyn World) {
    let store = world.open();
    let (old, new) = (store_first(&*store).await, store_first(&*store).await);
    let (number, id) = (numbered(old.home), Alias::Issue(issue_id(old.home)));
    let unknown = Alias::Issue(IssueId::trusted("not-known-before"));
    let taken_over = vec![number.clone(), unknown.clone(), numbered(new.home)];
    let later = changed(&new, |issue| issue.facts.repository_id = Some(8));
    let write = Write { taken_over, ..only(later.clone()) };

    let fenced = Write { issue: Some(new.clone()), ..write.clone() };
    assert_eq!(store.commit(fenced).await, Err(CommitError::Fenced));
    assert_eq!(home_of(&*store, &number).await, Some(old.home), "nothing of it stays");

    assert_eq!(store.commit(write).await, Ok(()));
    for name in [&number, &unknown, &numbered(new.home)] {
        assert_eq!(home_of(&*store, name).await, Some(new.home), "{name}");
    }
    assert_eq!(home_of(&*store, &id).await, Some(old.home), "only what was named");
    let claim = |issue: &Issue| Write {
        aliases: vec![number.clone()],
        ..only(next(issue, issue.state.clone()))
    };
    assert_eq!(store.commit(claim(&old)).await, Err(CommitError::AliasTaken));
    assert_eq!(store.commit(claim(&later)).await, Ok(()));
    let issue = Some(changed(&old, |_| ()));
    let write = Write { issue, taken_over: vec![Alias::Issue(issue_id(new.home))], ..claim(&old) };
    assert_eq!(store.commit(write).await, Err(CommitError::AliasTaken));
    assert_eq!(
        home_of(&*store, &Alias::Issue(issue_id(new.home))).await,
        Some(new.home),
        "what is refused takes nothing over"
    );
}

pub async fn all_names_of_a_home_can_go_to_another(world: &dyn World) {
    let store = world.open();
    let (from, to) = (store_first(&*store).await, store_first(&*store).await);
    let bystander = store_first(&*store).await;
    let (other, elsewhere) = (AccountName::trusted("other"), store.next_home());
    let mut write = only(creating(&other, elsewhere));
    write.aliases = vec![Alias::Issue(issue_id(from.home)), numbered(from.home)];
    assert_eq!(store.commit(write).await, Ok(()));

    let own = Alias::Issue(IssueId::trusted("own-of-this-write"));
    let merged = changed(&from, |issue| issue.merged_into = Some(to.home));
    let aliases = vec![own.clone()];
    let write = Write { aliases, names_go_to: Some(to.home), ..only(merged.clone()) };
    let fenced = Write { issue: Some(from.clone()), ..write.clone() };
    assert_eq!(store.commit(fenced).await, Err(CommitError::Fenced));
    assert_eq!(home_of(&*store, &numbered(from.home)).await, Some(from.home), "nothing stays");

    assert_eq!(store.commit(write).await, Ok(()));
    for name in [Alias::Issue(issue_id(from.home)), numbered(from.home), own] {
        assert_eq!(home_of(&*store, &name).await, Some(to.home), "{name}");
    }
    assert_eq!(home_of(&*store, &numbered(bystander.home)).await, Some(bystander.home));
    let there = store.resolve(&other, &numbered(from.home)).await;
    assert_eq!(there, Ok(Some(elsewhere)), "another account's home keeps its names");
    assert_eq!(store.load(from.home).await, Ok(Some(merged)));
}

pub async fn a_numbered_name_knows_the_repository_it_was_given_for(world: &dyn World) {
    let store = world.open();
    let issue = store_first(&*store).await;
    let home = issue.home;
    let found = |repository_id| Some(NumberedHome { home, repository_id });
    assert_eq!(by_number(&*store, home).await, found(None), "it was not known then");

    // A claim of a home that has the name fills it in, and one that knows less takes nothing away.
    let known = changed(&issue, |issue| issue.facts.repository_id = Some(77));
    let write = Write { aliases: vec![numbered(home)], ..only(known.clone()) };
    assert_eq!(store.commit(write).await, Ok(()));
    assert_eq!(by_number(&*store, home).await, found(Some(77)));
    let unknown = changed(&known, |issue| issue.facts.repository_id = None);
    let write = Write { aliases: vec![numbered(home)], ..only(unknown.clone()) };
    assert_eq!(store.commit(write).await, Ok(()));
    assert_eq!(by_number(&*store, home).await, found(Some(77)));

    // The id is that of the issue's repository: it says nothing of another one's name.
    let moved = changed(&unknown, |issue| {
        issue.facts.repository = Some(Repository::trusted("octo/elsewhere"));
        issue.facts.repository_id = Some(88);
    });
    let aliases = vec![numbered(home)];
    let write = Write { aliases, ..only(moved.clone()) };
    assert_eq!(store.commit(write).await, Ok(()));
    assert_eq!(by_number(&*store, home).await, found(Some(77)));

    // Who takes a name over brings its own knowledge, or none.
    let other = store_first(&*store).await;
    let write = Write { taken_over: vec![numbered(home)], ..only(changed(&other, |_| ())) };
    assert_eq!(store.commit(write).await, Ok(()));
    let taken = Some(NumberedHome { home: other.home, repository_id: None });
    assert_eq!(by_number(&*store, home).await, taken);
}

pub async fn issues_are_found_by_what_is_around_them(world: &dyn World) {
    let store = world.open();
    let mut all = Vec::new();
    for n in 0..12 {
        let issue = changed(&store_first(&*store).await, |issue| {
            issue.facts.repository_id = Some(100 + n % 3);
            issue.facts.installation_id = (n % 2 == 0).then_some(9_000_000_000);
        });
        all.push(store_next(&*store, issue).await);
    }
    // Whether there is a sandbox makes no difference, and what is known last counts.
    let (absent, old) = ended(&all[0]);
    let write = Write { ended: Some(old), ..only(absent) };
    assert_eq!(store.commit(write).await, Ok(()));
    store_next(&*store, changed(&all[3], |issue| issue.facts.repository_id = Some(555))).await;
    // A home that knows them from its first version on.
    let mut whole = creating(&account(), store.next_home());
    whole.facts.repository_id = Some(u64::MAX);
    store_next(&*store, whole.clone()).await;

    let homes = |picked: &[usize]| picked.iter().map(|n| all[*n].home).collect::<Vec<_>>();
    let cases = [
        (Scope::Repositories(vec![100]), homes(&[0, 6, 9])),
        (Scope::Repositories(vec![102, 100, 102]), homes(&[0, 2, 5, 6, 8, 9, 11])),
        (Scope::Repositories(vec![555]), homes(&[3])),
        (Scope::Repositories(vec![u64::MAX]), vec![whole.home]),
        (Scope::Repositories(vec![]), vec![]),
        (Scope::Repositories(vec![7]), vec![]),
        (Scope::Installation(9_000_000_000), homes(&[0, 2, 4, 6, 8, 10])),
        (Scope::Installation(100), vec![]),
    ];
    for (scope, expected) in cases {
        assert_eq!(store.homes(&scope, None, 100).await, Ok(expected.clone()), "{scope:?}");
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let page = store.homes(&scope, after, 2).await.expect("reads");
            assert!(page.len() <= 2);
            let Some(last) = page.last() else { break };
            after = Some(*last);
            seen.extend(page);
        }
        assert_eq!(seen, expected, "{scope:?} in pages");
    }
}

pub async fn pending_starts_take_turns_by_repository(world: &dyn World) {
    let store = world.open();
    let pending_start = |since| PendingStart { since: at(since), why: "asked".into(), plan: None };
    let mut expected = Vec::new();
    // One repository asks for much before another, in two spellings; one issue has none.
    for (repository, since, turn) in [
        (Some("Hot/One"), 1, 1),
        (Some("hot/one"), 2, 2),
        (Some("Hot/One"), 3, 3),
        (Some("calm/two"), 4, 1),
        (None, 6, 1),
        (Some("calm/two"), 5, 2),
        (Some("Hot/One"), 7, 4),
    ] {
        let mut issue = creating(&account(), store.next_home());
        issue.facts.repository = repository.map(Repository::trusted);
        issue.pending_start = Some(pending_start(since));
        if since % 2 == 0 {
            issue.state = IssueState::Absent;
        }
        store_next(&*store, issue.clone()).await;
        let row = PendingStartRow {
            home: issue.home,
            account: account(),
            repository: repository.map(str::to_lowercase),
            since: at(since),
        };
        expected.push((turn, row));
    }
    store_first(&*store).await;
    expected.sort_by_key(|(turn, row)| (*turn, row.since));
    let expected: Vec<_> = expected.into_iter().map(|(_, row)| row).collect();
    assert_eq!(store.pending_starts(0, 100).await, Ok(expected.clone()));
    assert_eq!(store.pending_starts(0, 3).await, Ok(expected[..3].to_vec()));
    assert_eq!(store.pending_starts(3, 100).await, Ok(expected[3..].to_vec()));

    // Granted: the second of that repository moves up.
    let first = store.load(expected[0].home).await.expect("reads").expect("is there");
    store_next(&*store, changed(&first, |issue| issue.pending_start = None)).await;
    let left = store.pending_starts(0, 100).await.expect("reads");
    assert_eq!(left.len(), expected.len() - 1);
    assert_eq!(left[0].since, at(2));
    // And a running one may come to a pending start again.
    store_next(
        &*store,
        running(&changed(&first, |issue| issue.pending_start = Some(pending_start(0)))),
    )
    .await;
    assert_eq!(store.pending_starts(0, 1).await.map(|rows| rows[0].since), Ok(at(0)));
}

pub async fn holds_are_kept_until_they_are_released(world: &dyn World) {
    let store = world.open();
    assert_eq!(store.holds().await, Ok(vec![]));
    let hold = |scope, since, reason: &str| Hold {
        scope,
        reason: reason.into(),
        since: at(since),
        by: "admin".into(),
        followed_to: None,
    };
    let repository = |name| HoldScope::Repository(Repository::trusted(name));
    let all = [
        hold(HoldScope::Account(account()), 1, "it's \"held\""),
        hold(HoldScope::Issue(account(), IssueId::trusted("A.b-1")), 2, ""),
        hold(repository("Octo/Hello"), 3, "broken build"),
        hold(HoldScope::Server, 4, "maintenance"),
    ];
    assert_eq!(store.put_holds(all.iter().rev().cloned().collect()).await, Ok(()));
    assert_eq!(store.holds().await, Ok(all.to_vec()));
    drop(store);
    let store = world.open();
    assert_eq!(store.holds().await, Ok(all.to_vec()), "also after a reopening");

    let followed_to = Some(Repository::trusted("octo/Renamed"));
    let again = Hold { followed_to, ..hold(repository("oCTO/hELLO"), 9, "still broken") };
    assert_eq!(store.put_holds(vec![again.clone()]).await, Ok(()));
    let holds = store.holds().await.expect("reads");
    assert_eq!(holds.len(), 4, "one for each scope, whatever the case");
    assert_eq!((&holds[2], holds[2].scope.name()), (&again, "oCTO/hELLO"), "the last one counts");

    assert_eq!(store.remove_hold(&repository("octo/hello")).await, Ok(true));
    assert_eq!(store.remove_hold(&repository("octo/hello")).await, Ok(false));
    let issue = HoldScope::Issue(account(), IssueId::trusted("a.b-1"));
    assert_eq!(store.remove_hold(&issue).await, Ok(false), "issue ids have a case");
    let account_named_so = HoldScope::Account(AccountName::trusted("A.b-1"));
    assert_eq!(store.remove_hold(&account_named_so).await, Ok(false));
    let left = [all[0].clone(), all[1].clone(), all[3].clone()];
    assert_eq!(store.holds().await, Ok(left.to_vec()));
}

fn orphan(n: i64, provider: &str) -> Orphan {
    Orphan {
        provider: ProviderName::trusted(provider),
        external_id: ExternalId::trusted(format!("object-{n}")),
        object_name: ObjectName::trusted(format!("claude-issue-{n}")),
        sandbox: SandboxId::trusted(format!("sandbox-{n}")),
        home: HomeId(n),
        issue: issue_id(HomeId(n)),
        generation: Generation(3),
        mode: Mode::Fast,
        first_seen_at: at(n),
    }
}

pub async fn orphans_keep_when_they_were_first_seen(world: &dyn World) {
    let store = world.open();
    let all = vec![orphan(1, "docker"), orphan(2, "docker"), orphan(1, "local")];
    assert_eq!(store.put_orphans(all.iter().rev().cloned().collect()).await, Ok(()));
    assert_eq!(store.orphans().await, Ok(all.clone()));

    let seen_again = Orphan {
        first_seen_at: at(5_000),
        generation: Generation(4),
        mode: Mode::Strong,
        home: HomeId(70),
        sandbox: SandboxId::trusted("other"),
        issue: issue_id(HomeId(70)),
        object_name: ObjectName::trusted("renamed"),
        ..all[1].clone()
    };
    assert_eq!(store.put_orphans(vec![seen_again.clone()]).await, Ok(()));
    drop(store);
    let store = world.open();
    let kept = Orphan { first_seen_at: all[1].first_seen_at, ..seen_again };
    assert_eq!(store.orphans().await, Ok(vec![all[0].clone(), kept.clone(), all[2].clone()]));

    let key = |orphan: &Orphan| (orphan.provider.clone(), orphan.external_id.clone());
    let never = (ProviderName::trusted("local"), ExternalId::trusted("object-2"));
    assert_eq!(store.remove_orphans(&[key(&all[0]), never, key(&all[2])]).await, Ok(()));
    assert_eq!(store.orphans().await, Ok(vec![kept]));
}

pub async fn a_provider_has_one_identity(world: &dyn World) {
    let store = world.open();
    assert_eq!(store.identities().await, Ok(vec![]));
    let (docker, local) = (ProviderName::trusted("docker"), ProviderName::trusted("local"));
    for (provider, identity) in [(&local, "machine"), (&docker, "engine-1"), (&docker, "engine-2")]
    {
        assert_eq!(store.put_identity(provider, identity).await, Ok(()));
    }
    drop(store);
    let known = vec![(docker, "engine-2".to_owned()), (local, "machine".to_owned())];
    assert_eq!(world.open().identities().await, Ok(known));
}

pub async fn deleted_sandboxes_are_distinguished_from_others(world: &dyn World) {
    let store = world.open();
    let (gone, live) = (store_first(&*store).await, store_first(&*store).await);
    let (absent, old) = ended(&gone);
    assert_eq!(store.commit(Write { ended: Some(old.clone()), ..only(absent) }).await, Ok(()));
    let live = live.sandbox().expect("one").id;
    let ids = [old.id.clone(), live, SandboxId::trusted("never"), old.id.clone()];
    assert_eq!(store.deleted(&ids).await, Ok(HashSet::from([old.id])));
    assert_eq!(store.deleted(&[]).await, Ok(HashSet::new()));
}

pub async fn reserved_numbers_are_not_given_to_homes(world: &dyn World) {
    let store = world.open();
    let before = store.next_home();
    assert_eq!(store.reserve_homes(HomeId(5_000_000_000)).await, Ok(()));
    assert!(store.next_home() > HomeId(5_000_000_000));
    assert_eq!(store.reserve_homes(before).await, Ok(()));
    assert!(store.next_home() > HomeId(5_000_000_000), "a lower one changes nothing");
    drop(store);
    let store = world.open();
    let reopened = store.next_home();
    assert!(reopened > HomeId(5_000_000_000), "although none of them was stored");

    let beyond = store.reserve_homes(HomeId(HOMES_RESERVED_MAX.0 + 1)).await;
    assert!(matches!(beyond, Err(CommitError::Failed(_))), "{beyond:?}");
    assert_eq!(store.next_home(), HomeId(reopened.0 + 1), "what is refused changes nothing");
    assert_eq!(store.reserve_homes(HOMES_RESERVED_MAX).await, Ok(()));
    assert!(store.next_home() > HOMES_RESERVED_MAX);
}

/// What is around an issue is written by its first version too.
pub async fn a_name_in_another_repository_is_another_name(world: &dyn World) {
    let store = world.open();
    let home = store.next_home();
    let mut issue = creating(&account(), home);
    issue.facts.repository_id = Some(5);
    let other = Alias::Numbered(Repository::trusted("octo/other"), IssueNumber(1));
    let own = Alias::Numbered(Repository::trusted(REPOSITORY), IssueNumber(1));
    let write = Write { aliases: vec![own, other], ..only(issue) };
    assert_eq!(store.commit(write).await, Ok(()));
    for (name, repository_id) in [("OCTO/hello", Some(5)), ("Octo/Other", None)] {
        let repository = Repository::trusted(name);
        let numbered = Some((&repository, IssueNumber(1)));
        let look = store.look(&account(), LookAsk { numbered, ..LookAsk::default() }).await;
        let found = look.expect("reads").by_number;
        assert_eq!(found, Some(NumberedHome { home, repository_id }), "{name}");
    }
}
