//! What an error says to do next, with the whole program: it is a command, and it helps.

use crate::process::{Place, Server, TOKEN};

/// How a verb ended: its exit code and what it said.
async fn run(place: &Place, server: &Server, args: &[&str]) -> (i32, String) {
    let mut command = place.command(args);
    command.env("ISSUEBOX_SERVER", &server.url).env("ISSUEBOX_TOKEN", TOKEN);
    let ended = command.output().await.expect("it runs");
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.code().expect("not killed"), String::from_utf8(said).expect("UTF-8"))
}

/// The hint of a verb that fails.
async fn hint(place: &Place, server: &Server, args: &[&str]) -> String {
    let (code, said) = run(place, server, args).await;
    assert_ne!(code, 0, "{args:?}: {said}");
    let hint = said.split_once("  hint: ").unwrap_or_else(|| panic!("{args:?}: {said}")).1;
    assert!(!hint.contains("/v1/"), "{args:?}: {hint}");
    hint.to_owned()
}

#[tokio::test]
async fn an_issue_that_the_server_has_not_seen_is_ensured_with_its_id() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let issue = "pear-garden/orchard#99";
    let url = "https://github.com/pear-garden/orchard/issues/99";
    for named in [issue, url] {
        let of_get = hint(&place, &server, &["get", named]).await;
        assert!(of_get.starts_with(&format!("run issuebox ensure {issue} (with --issue-id ")));
        let of_ensure = hint(&place, &server, &["ensure", named]).await;
        assert!(of_ensure.starts_with("add --issue-id ID: "), "{of_ensure}");
        let place_of_id = "gh api repos/pear-garden/orchard/issues/99 --jq .id";
        assert!(of_ensure.contains(place_of_id), "{of_ensure}");
    }
    let made = run(&place, &server, &["ensure", url, "--issue-id", "2874100099", "--wait"]).await;
    assert_eq!(made.0, 0, "{}", made.1);
    let found = run(&place, &server, &["get", issue]).await;
    assert!(found.0 == 0 && found.1.contains("claude-issue-2874100099"), "{}", found.1);
    let twice = run(&place, &server, &["ensure", "5", "--issue-id", "6"]).await;
    assert_eq!(twice.0, 2, "{}", twice.1);
}

#[tokio::test]
async fn a_sandbox_that_does_not_run_says_which_verb_makes_it_run() {
    let place = Place::simulated("");
    let mut command = place.serve_command("127.0.0.1:0");
    let server = Server::start(command.env("ISSUEBOX__LIFECYCLE__CREATE_ATTEMPTS", "1")).await;
    assert_eq!(run(&place, &server, &["ensure", "1", "--wait"]).await.0, 0);
    assert_eq!(run(&place, &server, &["stop", "1", "--wait"]).await.0, 0);
    let exec = ["exec", "1", "--", "true"];
    assert_eq!(hint(&place, &server, &exec).await, "run issuebox start 1 first\n");
    assert_eq!(run(&place, &server, &["start", "1", "--wait"]).await.0, 0);
    assert_eq!(run(&place, &server, &exec).await.0, 0);

    place.configure("fail_create = 1.0");
    server.reload().await;
    assert_eq!(run(&place, &server, &["ensure", "2", "--wait"]).await.0, 1);
    let failed = hint(&place, &server, &["exec", "2", "--", "true"]).await;
    assert!(failed.starts_with("run issuebox retry 2 to try again"), "{failed}");
    place.configure("");
    server.reload().await;
    assert_eq!(run(&place, &server, &["retry", "2", "--wait"]).await.0, 0);
    assert_eq!(run(&place, &server, &["exec", "2", "--", "true"]).await.0, 0);
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_named_with_its_key() {
    let place = Place::simulated("");
    let mut command = place.serve_command("127.0.0.1:0");
    let server = Server::start(command.env("ISSUEBOX__QUOTA__LIVE", "1")).await;
    assert_eq!(run(&place, &server, &["ensure", "1"]).await.0, 0);
    let (code, said) = run(&place, &server, &["ensure", "2"]).await;
    assert_eq!(code, 1);
    let expected = "error: 1 of 1 sandboxes of the account default are live; raise quota.live in \
                    issuebox.toml, or delete one\n";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.contains("  hint: issuebox ls shows them and issuebox rm "), "{said}");
}

#[tokio::test]
async fn an_unknown_template_is_answered_with_the_known_ones_and_the_verb_that_lists_them() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let (code, said) = run(&place, &server, &["ensure", "1", "--template", "bigg"]).await;
    let expected = "error: there is no template bigg; the configuration has claude-code, codex, \
                    command, default\n  hint: run issuebox templates to see what each of them is\n";
    assert_eq!((code, said.as_str()), (1, expected));
    assert_eq!(
        run(&place, &server, &["templates", "-q"]).await.1,
        "claude-code\ncodex\ncommand\ndefault\n"
    );
    let listed = run(&place, &server, &["templates", "-o", "wide"]).await.1;
    assert!(listed.starts_with("TEMPLATE           PROVIDER   AGENT"), "{listed}");
    assert!(listed.contains("default (default)  simulated  -"), "{listed}");
    let problem = "the program of command is not on this machine: name the program in \
                   [agents.command] path";
    assert!(listed.contains(problem), "{listed}");
}

#[tokio::test]
async fn a_wrong_token_and_a_hold_say_what_to_do_here() {
    let place = Place::simulated("");
    let server = place.serve().await;
    let mut command = place.command(&["ls"]);
    command.env("ISSUEBOX_SERVER", &server.url).env("ISSUEBOX_TOKEN", "of-another");
    let refused = command.output().await.expect("it runs");
    let said = String::from_utf8(refused.stderr).expect("UTF-8");
    let expected = format!("error: the token in ISSUEBOX_TOKEN is not that of {}\n", server.url);
    assert!(said.starts_with(&expected), "{said}");
    assert!(!said.contains("Authorization"), "{said}");

    assert_eq!(run(&place, &server, &["hold", "--all"]).await.0, 0);
    let held = hint(&place, &server, &["ensure", "1"]).await;
    assert!(held.contains("issuebox holds") && held.contains("issuebox release"), "{held}");
    // `--server` is an address and nothing else: an empty one releases nothing.
    let (code, said) = run(&place, &server, &["release", "--server", ""]).await;
    assert!(code == 2 && said.contains("is not a server's address"), "{said}");
    let (code, said) = run(&place, &server, &["release", "--server"]).await;
    assert!(code == 2 && said.contains("a value is required"), "{said}");
    assert_eq!(run(&place, &server, &["holds", "-q"]).await.1, "server\n");
}
