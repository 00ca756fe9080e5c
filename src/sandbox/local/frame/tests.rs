//! Round trips, and bytes that are no message.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::sandbox::command_defaults::WorkingDirectory;
use crate::sandbox::confined::{MESSAGE_LEN_MAX, WorkFailure};
use crate::sandbox::reach::Reach;

const FAILURES: [WorkFailure; 11] = [
    WorkFailure::NoSuchFile,
    WorkFailure::NotAllowed,
    WorkFailure::WrongKind,
    WorkFailure::CommandNotFound,
    WorkFailure::CannotStart,
    WorkFailure::Refused,
    WorkFailure::Broken,
    WorkFailure::Exists,
    WorkFailure::BadArchive,
    WorkFailure::NotListening,
    WorkFailure::Shortage,
];

fn requests() -> Vec<Request> {
    let setup = Setup {
        host_id: Some(7),
        shares_counters: true,
        processes_max: 1,
        disk_mb_max: 5,
        data_mb_max: Some(6),
        scratch_mb: 2,
        has_work_group: true,
        reach: Reach::Proxy,
        git_config: b"[http]".as_slice().into(),
        programs: vec![GivenFile { file: "/a".into(), inside: "/b".into() }],
    };
    vec![
        Request::Setup(setup.clone()),
        Request::Setup(Setup {
            host_id: None,
            data_mb_max: None,
            reach: Reach::Host,
            ..setup.clone()
        }),
        Request::Setup(Setup { reach: Reach::Git, git_config: Bytes::new(), ..setup }),
        Request::Exec {
            id: 1,
            argv: vec![b"a".as_slice().into(), Bytes::new()],
            cwd: WorkingDirectory { path: b"d".to_vec(), is_named: true },
            env: vec![b"K=v".as_slice().into()],
        },
        Request::Terminal {
            id: 9,
            argv: vec![b"bash".as_slice().into()],
            cwd: WorkingDirectory::default(),
            env: vec![b"TERM=x".as_slice().into()],
            columns: u16::MAX,
            rows: 24,
        },
        Request::Kill { id: 2 },
        Request::Signal { id: 2, number: 15 },
        Request::HangUp { id: 2 },
        Request::List { id: 3, path: b"p".to_vec(), depth: 4 },
        Request::Read { id: 4, path: b"\xff".to_vec() },
        Request::Write { id: 5, path: b"p".to_vec() },
        Request::Finish { id: 6, write: 5, keep: true },
        Request::Delete { id: 7, path: b"p".to_vec() },
        Request::Connect { id: 9, port: 65_535, v6: true },
        Request::Stop { grace_ms: 9 },
    ]
    .into_iter()
    .chain(file_work::every().map(|work| Request::Files { id: 8, work }))
    .collect()
}

fn answers() -> Vec<Answer> {
    let mut answers = vec![
        Answer::Forked { device: 3 },
        Answer::Ready,
        Answer::DiskFull,
        Answer::SetupFailed { step: "unshare".into(), errno: 1 },
        Answer::Started { id: 1 },
        Answer::Exited { id: 1, code: 137 },
        Answer::Opened { id: 2 },
        Answer::Done { id: 3, flag: true },
    ];
    for kind in FAILURES {
        answers.push(Answer::Failed { id: 4, kind, message: "é".into() });
    }
    answers
}

#[test]
fn every_message_survives_a_round_trip() {
    for request in requests() {
        assert_eq!(Request::decode(&request.encode()), Some(request));
    }
    for answer in answers() {
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }
}

#[test]
fn a_cut_or_lengthened_message_is_refused() {
    for bytes in answers().iter().map(Answer::encode) {
        for len in 0..bytes.len() {
            assert_eq!(Answer::decode(&bytes[..len]), None);
        }
        assert_eq!(Answer::decode(&[&bytes[..], &[0]].concat()), None);
    }
}

#[test]
fn a_number_has_one_form_and_a_message_its_bound() {
    assert_eq!(Answer::Started { id: 1 }.encode(), [3, 1]);
    assert_eq!(Answer::decode(&[3, 0x81, 0]), None, "1 with a leading zero");
    let failed = |len: usize| {
        let head = Answer::SetupFailed { step: "x".repeat(len), errno: 0 }.encode();
        let cut = MESSAGE_LEN_MAX.min(len);
        assert_eq!(head.len(), 1 + 2 + cut + 1);
        [&[2, len as u8 & 0x7f | 0x80, (len >> 7) as u8], &vec![b'x'; len][..], &[0]].concat()
    };
    assert!(Answer::decode(&failed(MESSAGE_LEN_MAX)).is_some());
    assert_eq!(Answer::decode(&failed(MESSAGE_LEN_MAX + 1)), None);
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let long = Answer::Failed { id: 1, kind: WorkFailure::Broken, message: "é".repeat(4000) };
    let Some(Answer::Failed { message, .. }) = Answer::decode(&long.encode()) else {
        panic!("must decode");
    };
    assert_eq!(message, "é".repeat(MESSAGE_LEN_MAX / 2));
}

/// Messages that are nearly right: some bytes of a right one are others, gone, or there twice.
fn nearly(messages: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let change = (0..4_u8, any::<prop::sample::Index>(), any::<u8>());
    let changes = prop::collection::vec(change, 0..4);
    (prop::sample::select(messages), changes).prop_map(|(mut bytes, changes)| {
        for (what, at, byte) in changes {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match what {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes.extend_from_within(at..),
            }
        }
        bytes
    })
}

/// An answer that can be decoded is encoded as exactly what it was read from: there is one way to
/// say it. A request, which is the server's own, at least is the same when it is read again.
fn assert_survives(bytes: &[u8]) {
    if let Some(answer) = Answer::decode(bytes) {
        assert_eq!(answer.encode(), bytes, "{answer:?}");
    }
    if let Some(request) = Request::decode(bytes) {
        assert_eq!(Request::decode(&request.encode()), Some(request));
    }
}

proptest! {
    #![proptest_config(crate::fuzz::cases(2048))]

    #[test]
    fn no_bytes_make_decoding_panic(bytes: Vec<u8>) {
        assert_survives(&bytes);
    }

    #[test]
    fn no_bytes_in_a_message_make_decoding_panic(
        bytes in prop_oneof![
            nearly(answers().iter().map(Answer::encode).collect()),
            nearly(requests().iter().map(Request::encode).collect()),
        ],
    ) {
        assert_survives(&bytes);
    }

    #[test]
    fn no_bytes_of_a_text_are_lost_on_the_way(
        id: u64, code: i32, flag: bool, path: Vec<u8>, argv: Vec<Vec<u8>>, message in ".{0,200}",
    ) {
        let argv: Vec<Bytes> = argv.into_iter().map(Bytes::from).collect();
        let (env, cwd) = (argv.clone(), path.clone());
        let cwd = WorkingDirectory { path: cwd, is_named: flag };
        for request in [
            Request::Exec { id, argv, cwd, env },
            Request::Files { id, work: FileWork::Unpack { path } },
        ] {
            prop_assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        let kind = FAILURES[usize::from(flag)];
        for answer in [Answer::Exited { id, code }, Answer::Failed { id, kind, message }] {
            prop_assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }
}
