//! Heads as git sends them, hostile ones, and any.

use proptest::prelude::*;

use super::*;

const BRANCH: &str = "issuebox/issue-7";
const CAPABILITIES: &str = " report-status-v2 side-band-64k object-format=sha1 agent=git/2.47.2";

fn oid(digit: char) -> String {
    digit.to_string().repeat(40)
}

fn pkt(line: impl AsRef<[u8]>) -> Vec<u8> {
    let line = line.as_ref();
    [format!("{:04x}", line.len() + 4).as_bytes(), line].concat()
}

/// A body with these commands, as git writes it, and the beginning of a pack.
fn body(shallow: usize, commands: &[(String, String, String)]) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..shallow {
        body.extend(pkt(format!("shallow {}\n", oid('c'))));
    }
    for (at, (old, new, reference)) in commands.iter().enumerate() {
        let capabilities = if at == 0 { format!("\0{CAPABILITIES}") } else { String::new() };
        body.extend(pkt(format!("{old} {new} {reference}{capabilities}")));
    }
    body.extend_from_slice(b"0000PACK\0\0\0\x02");
    body
}

fn one(old: char, new: char, reference: &str) -> Vec<u8> {
    body(0, &[(oid(old), oid(new), reference.to_owned())])
}

fn rules() -> PushRules {
    let (tip, fetched) = (Some(oid('a')), vec![oid('b')]);
    PushRules { branch: BRANCH.to_owned(), tip, fetched, denied: None }
}

fn judged(body: &[u8]) -> Result<(), PushRefusal> {
    match read_head(body, true)? {
        HeadRead::Whole(head) => rules().check(&head),
        read @ (HeadRead::Probe | HeadRead::Incomplete) => panic!("{read:?} is no head"),
    }
}

#[test]
fn a_push_to_the_branch_is_accepted_from_a_known_tip_alone() {
    let branch = format!("refs/heads/{BRANCH}");
    for known in ['0', 'a', 'b'] {
        assert_eq!(judged(&one(known, 'd', &branch)), Ok(()), "from {known}");
    }
    let (of, tip) = (BRANCH.to_owned(), oid('e'));
    let refused = judged(&one('e', 'd', &branch));
    assert_eq!(refused, Err(PushRefusal::NotFetched { branch: of, tip }));
    assert_eq!(judged(&one('a', '0', &branch)), Err(PushRefusal::Deletes(BRANCH.to_owned())));
    let denied = PushRules { denied: Some("your work is kept".to_owned()), ..rules() };
    let Ok(HeadRead::Whole(head)) = read_head(&one('a', 'd', &branch), false) else {
        panic!("it is a head");
    };
    assert_eq!(denied.check(&head), Err(PushRefusal::NotNow("your work is kept".to_owned())));
}

#[test]
fn any_other_ref_refuses_the_whole_push() {
    let branch = format!("refs/heads/{BRANCH}");
    for other in [
        "refs/heads/main",
        "refs/tags/v1",
        "refs/pull/7/head",
        "refs/heads/issuebox/Issue-7",
        "refs/heads/issuebox/issue-77",
        "refs/heads/issuebox/issue-7 ",
        "HEAD",
        BRANCH,
    ] {
        let both = [&branch, other].map(|to| (oid('a'), oid('d'), to.to_owned()));
        for commands in [&both[..], &[both[1].clone(), both[0].clone()], &both[1..]] {
            let refused = judged(&body(1, commands));
            assert!(matches!(refused, Err(PushRefusal::OtherRef { .. })), "{other}: {refused:?}");
        }
    }
}

#[test]
fn a_shallow_clone_and_the_probe_are_normal_pushes() {
    let command = [(oid('0'), oid('d'), format!("refs/heads/{BRANCH}"))];
    assert_eq!(judged(&body(4_900, &command)), Ok(()));
    assert_eq!(judged(&body(8_000, &command)), Err(PushRefusal::HeadTooLong));
    assert_eq!(read_head(b"0000", true), Ok(HeadRead::Probe));
    assert_eq!(read_head(b"0000", false), Ok(HeadRead::Incomplete));
    for hidden in [&b"0000PACK"[..], b"00000000"] {
        assert!(matches!(read_head(hidden, true), Err(PushRefusal::Malformed(_))));
    }
}

#[test]
fn what_git_does_not_send_is_refused() {
    let branch = format!("refs/heads/{BRANCH}");
    let (old, new) = (oid('a'), oid('d'));
    let whole = |lines: &[Vec<u8>]| [lines.concat(), b"0000".to_vec()].concat();
    let first = pkt(format!("{old} {new} {branch}\0 report-status"));
    for (why, wrong) in [
        ("no capabilities", whole(&[pkt(format!("{old} {new} {branch}"))])),
        ("capabilities twice", whole(&[first.clone(), first.clone()])),
        ("two NUL bytes", whole(&[pkt(format!("{old} {new} {branch}\0\0 report-status"))])),
        ("a short name", whole(&[pkt(format!("{} {new} {branch}\0", &old[1..]))])),
        ("two lengths", whole(&[pkt(format!("{old} {} {branch}\0", "d".repeat(64)))])),
        ("a certificate", whole(&[pkt("push-cert\0 report-status")])),
        ("a late shallow line", whole(&[first.clone(), pkt(format!("shallow {old}"))])),
        ("a delimiter", whole(&[first.clone(), b"0001".to_vec()])),
        ("an empty line", whole(&[first.clone(), b"0004".to_vec()])),
        ("no digits", b"zzzz".to_vec()),
        ("a line that is too long", b"fff1".to_vec()),
        ("no end", first),
    ] {
        let read = read_head(&wrong, true);
        assert!(matches!(read, Err(PushRefusal::Malformed(_))), "{why}: {read:?}");
    }
    let many: Vec<_> = (0..65).map(|_| (old.clone(), new.clone(), branch.clone())).collect();
    assert_eq!(judged(&body(0, &many)), Err(PushRefusal::TooManyCommands));
    assert_eq!(judged(&body(0, &many[1..])), Ok(()));
    // Without an end, no more than the bound is kept.
    let endless = pkt(format!("shallow {old}\n")).repeat(6_000);
    assert_eq!(read_head(&endless, false), Err(PushRefusal::HeadTooLong));
}

#[test]
fn the_headers_bound_and_name_a_push() {
    let kind = Some("application/x-git-receive-pack-request");
    assert_eq!(check_headers(kind, None, Some(5 << 20), 5), Ok(()));
    assert_eq!(check_headers(kind, None, None, 5), Ok(()), "it is counted instead");
    assert_eq!(check_headers(kind, None, Some((5 << 20) + 1), 5), Err(PushRefusal::TooLarge(5)));
    for (kind, encoding) in [(None, None), (Some("text/plain"), None), (kind, Some("gzip"))] {
        let checked = check_headers(kind, encoding, Some(4), 5);
        assert!(matches!(checked, Err(PushRefusal::Malformed(_))), "{kind:?} {encoding:?}");
    }
}

#[test]
fn git_reads_the_refusal_in_the_form_that_it_asked_for() {
    let read = |capabilities: &str| PushHead {
        commands: vec![PushCommand {
            old: oid('a'),
            new: oid('d'),
            reference: b"refs/heads/main".to_vec(),
        }],
        capabilities: capabilities.split(' ').map(str::to_owned).collect(),
        len: 0,
    };
    let report = [pkt("unpack ok\n"), pkt("ng refs/heads/main no\n"), b"0000".to_vec()].concat();
    assert_eq!(push_refused(&read("report-status"), "no\n"), report);
    let banded = [pkt(b"\x02no\n"), pkt([b"\x01".as_slice(), &report].concat()), b"0000".to_vec()];
    assert_eq!(push_refused(&read("report-status-v2 side-band-64k"), "no"), banded.concat());
    let small = push_refused(&read("report-status side-band"), &"x".repeat(2_000));
    assert!(small.starts_with(b"03e8\x02x"), "cut at 1,000 bytes");
    assert_eq!(git_error("closed"), pkt("ERR closed\n"));
}

/// Refs that look like the branch, and others.
fn reference() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just(format!("refs/heads/{BRANCH}")),
        1 => ".{1,3}".prop_map(|more| format!("refs/heads/{BRANCH}{more}")),
        1 => "refs/heads/[a-zA-Z0-9/._-]{1,20}",
        1 => Just("refs/heads/main".to_owned()),
        1 => ".{0,30}",
    ]
}

fn any_oid() -> impl Strategy<Value = String> {
    prop_oneof![Just(oid('0')), Just(oid('a')), Just(oid('b')), "[0-9a-f]{40}"]
}

proptest! {
    #[test]
    fn no_accepted_push_touches_anything_but_the_branch(
        shallow in 0_usize..3,
        commands in prop::collection::vec((any_oid(), any_oid(), reference()), 0..5),
    ) {
        let body = body(shallow, &commands);
        let accepted = match read_head(&body, true) {
            Ok(HeadRead::Whole(head)) => rules().check(&head).is_ok(),
            _ => false,
        };
        let allowed = |(old, new, reference): &(String, String, String)| {
            *reference == format!("refs/heads/{BRANCH}")
                && *new != oid('0')
                && [oid('0'), oid('a'), oid('b')].contains(old)
        };
        prop_assert_eq!(accepted, !commands.is_empty() && commands.iter().all(allowed));
    }

    #[test]
    fn any_bytes_are_read_the_same_however_they_come(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "(0000|0004|00[0-9a-f]{2}|shallow [0-9a-f]{40}|[0-9a-f]{40} |refs/heads/main|\0){0,8}"
                .prop_map(String::into_bytes),
            (any_oid(), any_oid(), reference()).prop_map(|command| body(1, &[command])),
        ],
    ) {
        let whole = read_head(&bytes, true);
        // The first cut that is not incomplete decides, and decides as the whole does.
        let first = (0..=bytes.len())
            .map(|len| read_head(&bytes[..len], false))
            .find(|read| *read != Ok(HeadRead::Incomplete));
        match first {
            Some(decided) => prop_assert_eq!(decided, whole),
            None => prop_assert!(!matches!(whole, Ok(HeadRead::Whole(_)))),
        }
    }
}
