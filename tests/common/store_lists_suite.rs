//! The second part of the store's contract: what is due, pages, filters and counts.
//!
//! As in `store_suite`, each function gets a fresh world.

use issuebox::issue::{Dated, Issue, IssueState, Step, Verb};
use issuebox::store::{PruneAsk, SandboxFilter, StoreError, Write};
use issuebox::types::{
    ExternalId, HomeId, Phase, ProviderName, Repository, Sandbox, SandboxId, TemplateName,
};

use crate::store_deliveries_suite::pruning;
use crate::store_issues::{at, creating, entry, only, running};
use crate::store_suite::{World, account, ask, ended, list, store_first};

pub async fn what_is_due_comes_earliest_first(world: &dyn World) {
    let store = world.open();
    let mut homes = Vec::new();
    for due in [300, 100, 200] {
        let mut issue = creating(&account(), store.next_home());
        let IssueState::Creating { step, .. } = &mut issue.state else { panic!("is creating") };
        *step = Step::Waiting { verb: Verb::Create, due: at(due), tries_left: 1 };
        assert_eq!(store.commit(only(issue.clone())).await, Ok(()));
        homes.push(issue.home);
    }
    let idle = running(&store_first(&*store).await);
    assert_eq!(store.commit(only(idle)).await, Ok(()));

    assert_eq!(store.next_due().await, Ok(Some(at(100))));
    assert_eq!(store.due(at(99), 10).await, Ok(vec![]));
    assert_eq!(store.due(at(200), 10).await, Ok(vec![homes[1], homes[2]]), "at the time itself");
    assert_eq!(store.due(at(9_999), 10).await, Ok(vec![homes[1], homes[2], homes[0]]));
    assert_eq!(store.due(at(9_999), 1).await, Ok(vec![homes[1]]));

    let before = store.load(homes[1]).await.expect("reads").expect("is there");
    assert_eq!(store.commit(only(running(&before))).await, Ok(()));
    assert_eq!(store.next_due().await, Ok(Some(at(200))), "it is no longer due");
}

pub async fn live_sandboxes_come_in_pages_by_home(world: &dyn World) {
    let store = world.open();
    let mut expected = Vec::new();
    for n in 0..10 {
        let issue = store_first(&*store).await;
        if n % 3 == 0 {
            let (absent, old) = ended(&issue);
            let write = Write { ended: Some(old), ..only(absent) };
            assert_eq!(store.commit(write).await, Ok(()));
        } else {
            expected.push(issue);
        }
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = store.live(after, 4).await.expect("reads");
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 4);
        after = Some(last.home);
        seen.extend(page);
    }
    assert_eq!(seen, expected);
}

pub async fn sandboxes_are_listed_newest_first_in_pages(world: &dyn World) {
    let store = world.open();
    let mut expected = Vec::new();
    for n in 0..23 {
        let mut issue = creating(&account(), store.next_home());
        // Several of one moment: the order among them is by id.
        issue.state.record_mut().expect("one").created_at = at(n / 4);
        assert_eq!(store.commit(only(issue.clone())).await, Ok(()));
        if n % 2 == 0 {
            let (absent, old) = ended(&issue);
            let write = Write { ended: Some(old.clone()), ..only(absent) };
            assert_eq!(store.commit(write).await, Ok(()));
            expected.push(old);
        } else {
            expected.extend(issue.sandbox());
        }
    }
    expected.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
    let live: Vec<_> = expected.iter().filter(|one| one.phase.is_some()).cloned().collect();
    for (include_deleted, expected) in [(true, expected), (false, live)] {
        let filter = SandboxFilter { include_deleted, ..SandboxFilter::default() };
        let (mut cursor, mut seen) = (None, Vec::new());
        loop {
            let ask = ask(5, cursor.as_deref());
            let page = store.sandboxes(&account(), &filter, &ask).await.expect("lists");
            assert_eq!(page.total, expected.len() as u64, "the total is of all pages");
            assert!(page.items.len() == 5 || page.next.is_none(), "only the last is short");
            seen.extend(page.items);
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, expected);
    }
}

pub async fn a_page_keeps_its_place_while_others_come_and_go(world: &dyn World) {
    let store = world.open();
    let mut all = Vec::new();
    for _ in 0..6 {
        all.push(store_first(&*store).await);
    }
    let filter = SandboxFilter { include_deleted: true, ..SandboxFilter::default() };
    let page = store.sandboxes(&account(), &filter, &ask(3, None)).await.expect("lists");
    let _newer = store_first(&*store).await;
    // The one that the cursor stands on is deleted meanwhile.
    let (absent, old) = ended(&all[3]);
    let write = Write { ended: Some(old), ..only(absent) };
    assert_eq!(store.commit(write).await, Ok(()));
    let rest = store.sandboxes(&account(), &filter, &ask(9, page.next.as_deref())).await;
    let ids: Vec<_> = rest.expect("lists").items.into_iter().map(|one| one.home).collect();
    assert_eq!(ids, [all[2].home, all[1].home, all[0].home]);
}

pub async fn an_exact_page_is_the_last_one(world: &dyn World) {
    let store = world.open();
    for _ in 0..2 {
        store_first(&*store).await;
    }
    let filter = SandboxFilter::default();
    let page = store.sandboxes(&account(), &filter, &ask(2, None)).await.expect("lists");
    assert_eq!((page.items.len(), page.next), (2, None));
}

pub async fn every_filter_must_hold(world: &dyn World) {
    let store = world.open();
    let (one, two) = (store_first(&*store).await, store_first(&*store).await);
    let mut two = running(&two);
    two.facts.repository = Some(Repository::trusted("Other/Place"));
    assert_eq!(store.commit(only(two.clone())).await, Ok(()));
    let mut three = creating(&account(), store.next_home());
    three.state.record_mut().expect("one").template.provider = ProviderName::trusted("local");
    assert_eq!(store.commit(only(three.clone())).await, Ok(()));
    let gone = running(&store_first(&*store).await);
    assert_eq!(store.commit(only(gone.clone())).await, Ok(()));
    let (absent, old) = ended(&gone);
    assert_eq!(store.commit(Write { ended: Some(old), ..only(absent) }).await, Ok(()));
    let id = |issue: &Issue| issue.state.record().expect("one").id.clone();
    let (one, two_id, three, gone_id) = (id(&one), id(&two), id(&three), id(&gone));

    let all = SandboxFilter::default;
    let with_deleted = || SandboxFilter { include_deleted: true, ..all() };
    let repository = |name| Some(Repository::trusted(name));
    let template = |name| Some(TemplateName::trusted(name));
    let external = |issue: &Issue| issue.state.external_id().cloned();
    let cases: [(SandboxFilter, &[&SandboxId]); 15] = [
        (all(), &[&three, &two_id, &one]),
        (with_deleted(), &[&gone_id, &three, &two_id, &one]),
        (SandboxFilter { only_deleted: true, ..all() }, &[&gone_id]),
        (SandboxFilter { phase: Some(Phase::Running), ..all() }, &[&two_id]),
        (SandboxFilter { phase: Some(Phase::Creating), ..with_deleted() }, &[&three, &one]),
        (SandboxFilter { provider: Some(ProviderName::trusted("local")), ..all() }, &[&three]),
        (SandboxFilter { repository: repository("oTHER/place"), ..all() }, &[&two_id]),
        (
            SandboxFilter { repository: repository("octo/hello"), ..with_deleted() },
            &[&gone_id, &three, &one],
        ),
        (
            SandboxFilter { template: template("default"), ..with_deleted() },
            &[&gone_id, &three, &two_id, &one],
        ),
        (SandboxFilter { template: template("large"), ..with_deleted() }, &[]),
        (SandboxFilter { home: Some(two.home), ..all() }, &[&two_id]),
        (SandboxFilter { home: Some(gone.home), ..with_deleted() }, &[&gone_id]),
        (SandboxFilter { external_id: external(&two), ..all() }, &[&two_id]),
        (SandboxFilter { external_id: external(&gone), ..with_deleted() }, &[&gone_id]),
        (
            SandboxFilter {
                external_id: Some(ExternalId::trusted("object-of-2")),
                phase: Some(Phase::Stopped),
                ..all()
            },
            &[],
        ),
    ];
    for (filter, expected) in cases {
        let found = list(&*store, filter.clone()).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

pub async fn text_is_found_whatever_its_case_and_taken_as_it_is(world: &dyn World) {
    let store = world.open();
    let mut ids = Vec::new();
    for title in ["100% of Ärger_now", "1000 of them", "back\\slash"] {
        let mut issue = creating(&account(), store.next_home());
        issue.facts.title = Some(Dated { value: title.into(), as_of: at(0) });
        assert_eq!(store.commit(only(issue.clone())).await, Ok(()));
        ids.push(issue.sandbox().expect("one").id);
    }
    let (absent, old) = ended(&store.load(HomeId(3)).await.expect("reads").expect("is there"));
    assert_eq!(store.commit(Write { ended: Some(old), ..only(absent) }).await, Ok(()));
    let cases: [(&str, &[usize]); 10] = [
        ("100%", &[0]),
        ("ÄRGER", &[0]),
        ("ärger_", &[0]),
        ("r_er", &[]),
        ("OF", &[1, 0]),
        ("\\SLASH", &[2]),
        ("CLAUDE-issue-2", &[1]),
        ("octo/HELLO", &[2, 1, 0]),
        ("Sandbox-3", &[2]),
        ("", &[2, 1, 0]),
    ];
    for (text, expected) in cases {
        let filter = SandboxFilter {
            text: Some(text.into()),
            include_deleted: true,
            ..SandboxFilter::default()
        };
        let expected: Vec<_> = expected.iter().map(|n| ids[*n].clone()).collect();
        assert_eq!(list(&*store, filter).await, expected, "{text:?}");
    }
}

pub async fn a_timeline_comes_newest_first_in_pages(world: &dyn World) {
    let store = world.open();
    let (mut issue, other) = (store_first(&*store).await, store_first(&*store).await);
    let mut expected = vec![entry(&issue, None)];
    for _ in 0..6 {
        issue = running(&issue);
        expected.push(entry(&issue, Some(Phase::Creating)));
        let timeline = expected[expected.len() - 1..].to_vec();
        assert_eq!(store.commit(Write { timeline, ..only(issue.clone()) }).await, Ok(()));
    }
    expected.reverse();
    let (mut cursor, mut seen) = (None, Vec::new());
    loop {
        let page = store.timeline(issue.home, &ask(3, cursor.as_deref())).await.expect("reads");
        assert_eq!(page.total, 7);
        seen.extend(page.items.into_iter().map(|row| row.entry));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, expected);
    assert_eq!(store.timeline(other.home, &ask(9, None)).await.map(|page| page.total), Ok(1));
}

pub async fn cursors_of_others_are_refused(world: &dyn World) {
    let store = world.open();
    for _ in 0..2 {
        store_first(&*store).await;
    }
    let filter = SandboxFilter::default();
    let page = store.sandboxes(&account(), &filter, &ask(1, None)).await.expect("lists");
    let of_sandboxes = page.next.expect("there is a second page");
    for bad in ["", "x", "!!", "czo", &of_sandboxes[1..]] {
        let page = store.sandboxes(&account(), &filter, &ask(1, Some(bad))).await;
        assert_eq!(page, Err(StoreError::BadCursor), "{bad:?}");
    }
    for bad in ["", "x", &of_sandboxes] {
        let page = store.timeline(HomeId(1), &ask(1, Some(bad))).await;
        assert_eq!(page, Err(StoreError::BadCursor), "{bad:?}");
    }
}

pub async fn live_sandboxes_are_counted_by_phase(world: &dyn World) {
    let store = world.open();
    for n in 0..5 {
        let issue = store_first(&*store).await;
        if n < 2 {
            assert_eq!(store.commit(only(running(&issue))).await, Ok(()));
        }
    }
    let mut counts = store.counts(&account()).await.expect("counts");
    counts.sort_by_key(|(phase, _)| phase.as_str());
    assert_eq!(counts, [(Phase::Creating, 3), (Phase::Running, 2)]);
}

pub async fn old_records_of_deleted_sandboxes_are_pruned(world: &dyn World) {
    let store = world.open();
    let mut of_homes = Vec::new();
    for deleted_at in [300, 100, 200] {
        let before = running(&store_first(&*store).await);
        assert_eq!(store.commit(only(before.clone())).await, Ok(()));
        let (issue, sandbox) = ended(&before);
        let sandbox = Sandbox { deleted_at: Some(at(deleted_at)), ..sandbox };
        let id = sandbox.id.clone();
        let write = Write { ended: Some(sandbox), ..only(issue) };
        assert_eq!(store.commit(write).await, Ok(()));
        of_homes.push((before.home, id));
    }
    let live = running(&store_first(&*store).await);
    assert_eq!(store.commit(only(live.clone())).await, Ok(()));
    let ask_to = |deleted| PruneAsk { deleted_before: Some(at(deleted)), ..pruning(at(999), 10) };
    assert_eq!(store.prune(pruning(at(999), 10)).await, Ok(0), "nothing is to go");
    assert_eq!(store.prune(ask_to(200)).await, Ok(1), "not the one of that time");
    let is_there = async |place: usize| {
        let (home, id): &(HomeId, SandboxId) = &of_homes[place];
        let newest = store.newest_sandbox(*home).await.expect("reads");
        let found = store.sandbox(&account(), id).await.expect("reads");
        assert_eq!(found, newest);
        found.is_some()
    };
    assert_eq!([is_there(0).await, is_there(1).await, is_there(2).await], [true, false, true]);
    let gone = store.load(of_homes[1].0).await.expect("reads").expect("the issue stays");
    assert_eq!(gone.generation.0, 1, "the next one is the second");
    assert_eq!(store.prune(ask_to(999)).await, Ok(2));
    assert!(store.newest_sandbox(live.home).await.is_ok_and(|found| found.is_some()), "it lives");
}
