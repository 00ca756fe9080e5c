//! `issuebox exec` against a stub of the API: bytes, exit codes and broken streams.

use std::io::Write;
use std::process::Stdio;

use crate::stub::{self, Reply, Stub, events, refusal, sandbox, success};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

/// A server whose one sandbox answers every command with this stream.
fn answering(stream: String) -> Stub {
    Stub::start(move |asked| match asked.line.as_str() {
        "GET /v1/issues/a/sandbox" => success(&sandbox("a", Some("running"))),
        "POST /v1/sandboxes/id-of-a/exec" if asked.accept == "text/event-stream" => events(&stream),
        other => refusal(500, "unexpected", other, "fix the test"),
    })
}

fn piece(name: &str, bytes: &[u8]) -> String {
    let data = json!({"data": BASE64.encode(bytes), "encoding": "base64"});
    format!("event: {name}\ndata: {data}\n\n")
}

fn exit(code: i32, timed_out: bool) -> String {
    let data = json!({"exitCode": code, "timedOut": timed_out, "durationMs": 5});
    format!("event: exit\ndata: {data}\n\n")
}

#[test]
fn both_streams_arrive_byte_for_byte_and_the_exit_code_is_the_commands() {
    let bytes: Vec<u8> = (0..=255).collect();
    let stream = [
        ": hello\n\n".to_owned(),
        piece("stdout", &bytes),
        piece("stderr", b"err\n"),
        "event: later\ndata: {}\n\n".to_owned(),
        piece("stdout", b"end"),
        exit(42, false),
    ];
    let stub = answering(stream.concat());
    let args =
        ["exec", "-e", "A=b=c", "-w", "src", "--timeout", "9", "a", "--", "make", "-j", "x y"];
    let output = stub.command(&args).output().expect("it starts");
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(output.stdout, [bytes.as_slice(), b"end"].concat());
    assert_eq!(output.stderr, b"err\n");
    let asked = stub.asked().pop().expect("asked");
    assert_eq!(
        asked.body,
        json!({"command": ["make", "-j", "x y"], "cwd": "src", "env": {"A": "b=c"},
            "timeoutSeconds": 9, "encoding": "base64"})
    );
}

#[test]
fn without_dash_i_standard_input_is_left_alone() {
    let stub = answering(exit(0, false));
    let mut command = stub.command(&["exec", "a", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
    // It may end without reading: then the pipe breaks, which is no failure of the test.
    let _written = child.stdin.take().expect("piped").write_all(b"unread");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(stub.asked().pop().expect("asked").body.get("stdin"), None);
}

#[test]
fn a_command_that_times_out_is_reported_as_killed() {
    let ended = answering(exit(137, true)).run(&["exec", "a", "--", "sleep", "9"]);
    assert_eq!(ended.code, 137);
    assert_eq!(ended.err, "note: the command was killed because it reached its timeout\n");
}

#[test]
fn an_exit_code_that_no_process_has_is_a_failure() {
    assert_eq!(answering(exit(-1, false)).run(&["exec", "a", "--", "x"]).code, 1);
    assert_eq!(answering(exit(256, false)).run(&["exec", "a", "--", "x"]).code, 1);
}

#[test]
fn a_broken_stream_is_a_failure_and_earlier_output_is_printed() {
    let error_event =
        "event: error\ndata: {\"code\":\"x\",\"message\":\"the sandbox went away\"}\n\n";
    for (end, message) in [
        ("", "the server ended the connection before the command ended"),
        (error_event, "the sandbox went away"),
    ] {
        let stub = answering(piece("stdout", b"half") + end);
        let ended = stub.run(&["exec", "a", "--", "x"]);
        assert_eq!((ended.code, ended.out.as_str()), (1, "half"));
        assert!(ended.err.starts_with(&format!("error: {message}\n")), "{}", ended.err);
    }
}

#[test]
fn a_command_that_cannot_start_has_the_exit_code_of_a_shell() {
    for (code, exit_code) in [("command_not_found", 127), ("cannot_start", 126)] {
        let stub = Stub::start(move |asked| match asked.line.as_str() {
            "GET /v1/issues/a/sandbox" => success(&sandbox("a", Some("running"))),
            _ => refusal(422, code, "x: it does not start", "x"),
        });
        let ended = stub.run(&["exec", "a", "x", "-l"]);
        assert_eq!(ended.code, exit_code);
        assert!(ended.err.starts_with("error: x: it does not start\n"), "{}", ended.err);
        assert_eq!(stub.asked().pop().expect("asked").body["command"], json!(["x", "-l"]));
    }
}

#[test]
fn a_refusal_before_the_stream_is_printed() {
    fn answer(asked: &stub::Asked) -> Reply {
        match asked.line.as_str() {
            "GET /v1/issues/a/sandbox" => success(&sandbox("a", Some("stopped"))),
            _ => refusal(409, "stopped", "a person stopped it", "issuebox start a"),
        }
    }
    let ended = Stub::start(answer).run(&["exec", "a", "--", "x"]);
    assert_eq!(ended.code, 1);
    assert_eq!(ended.err, "error: a person stopped it\n  hint: run issuebox start a first\n");
}

#[test]
fn a_closed_standard_output_is_no_error() {
    let stub = answering([piece("stdout", &[b'x'; 100_000]), exit(0, false)].concat());
    let mut command = stub.command(&["exec", "a", "--", "x"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_host_that_a_command_did_not_find_is_explained_where_there_is_no_network() {
    let missed = |network: &'static str, code: i32| {
        let output =
            piece("stderr", b"fatal: unable to access: Could not resolve host: github.com\n");
        let stream = output + &exit(code, false);
        let stub = Stub::start(move |asked| {
            let mut sandbox = sandbox("a", Some("running"));
            sandbox["network"] = json!(network);
            match asked.line.split('?').next().unwrap_or_default() {
                "GET /v1/issues/a/sandbox" => success(&sandbox),
                "GET /v1/sandboxes/id-of-a/logs" => success(&json!([
                    {"at": "now", "stream": "stderr", "text": "npm error getaddrinfo EAI_AGAIN"},
                ])),
                _ => events(&stream),
            }
        });
        let run = stub::Ran::of(&mut stub.command(&["exec", "a", "--", "git", "fetch"]));
        let logs = stub::Ran::of(&mut stub.command(&["logs", "a"]));
        assert_eq!((run.code, logs.code), (code, 0));
        [run.err, logs.err].map(|err| err.contains("hint: this sandbox has no network"))
    };
    assert_eq!(missed("none", 128), [true, true]);
    assert_eq!(missed("none", 0), [false, true], "a command that succeeded needed no host");
    assert_eq!(missed("full", 128), [false, false]);
}
