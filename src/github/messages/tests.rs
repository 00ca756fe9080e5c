//! Sentences on issues, by what is stored of them.

use super::*;
use crate::issue::{IssueState, PendingStart, Record};
use crate::store::checkout::CheckoutRow;
use crate::types::{
    AccountName, Attempt, Cause, CheckoutState, ExternalId, Generation, IssueId, Mode, Network,
    ObjectName, OnLimit, ProviderName, Resources, SandboxId, SandboxMeta, Template, TemplateName,
    TimelineEntry,
};

const HOME: HomeId = HomeId(3);

fn context() -> MessageContext {
    MessageContext {
        instance: InstanceId::trusted("inst"),
        public_url: Some("https://box.example.org".into()),
        command: "/issuebox".into(),
    }
}

fn at(minute: i64) -> Timestamp {
    Timestamp::parse("2026-01-31T12:00:00Z")
        .expect("RFC 3339")
        .after(std::time::Duration::from_secs(u64::try_from(minute * 60).expect("not negative")))
}

fn issue() -> Issue {
    let id = IssueId::parse("1").expect("a valid id");
    Issue { generation: Generation(1), ..Issue::new(HOME, AccountName::default_account(), id) }
}

fn record() -> Record {
    let name = "claude-issue-1";
    let template = Template {
        name: TemplateName::trusted("default"),
        provider: ProviderName::trusted("p"),
        mode: Mode::Strong,
        resources: Resources { cpu: 1.0, memory_mb: 1, processes: 1, disk_mb: 1 },
        network: Network::None,
        ports: Vec::new(),
        on_limit: OnLimit::Kill,
        workload: crate::types::Workload::default().into(),
    };
    Record {
        id: SandboxId::trusted("sandbox-1"),
        object_name: ObjectName::for_home(&AccountName::default_account(), HOME, name),
        name: name.into(),
        generation: Generation(1),
        template_version: template.version(),
        template,
        agent_id: None,
        meta: SandboxMeta::default(),
        mode: Mode::Strong,
        created_at: at(0),
        phase_since: at(1),
        last_activity_at: at(1),
        reason: String::new(),
        attempt: Attempt::default(),
        may_land_until: None,
        stop_may_land_until: None,
        deadline: None,
        made_at_ns: None,
        healing: None,
        left_nothing: false,
        needs_cold_start: false,
        owes_farewell: false,
    }
}

fn running() -> Issue {
    let external_id = ExternalId::trusted("x");
    Issue { state: IssueState::Running { record: record(), external_id }, ..issue() }
}

fn nothing() -> WorkShown {
    WorkShown::default()
}

/// Work on a branch that was pushed.
fn work(state: CheckoutState, reason: &str) -> WorkShown {
    let remote = crate::types::Repository::trusted("octo/hello");
    let begun = CheckoutRow::begun(SandboxId::trusted("sandbox-1"), HOME, (remote, Some(7)), at(1));
    let checkout = CheckoutRow {
        state,
        reason: reason.to_owned(),
        branch: Some("issuebox/issue-1".to_owned()),
        tip: Some("a".to_owned()),
        ..begun
    };
    WorkShown { checkout: Some(checkout), pull: Some(34), ..WorkShown::default() }
}

fn entry(minute: i64, reason: &str) -> TimelineListRow {
    let entry = TimelineEntry {
        at: at(minute),
        generation: Generation(1),
        from: None,
        to: Some(Phase::Running),
        reason: reason.into(),
        cause: Cause::Service("test").to_string(),
    };
    TimelineListRow { entry, instruction: None }
}

#[test]
fn a_status_says_the_phase_the_reasons_and_how_to_stop() {
    let latest: Vec<_> = [(4, "fixes #12, says @octocat"), (3, "two"), (2, "one"), (1, "zero")]
        .map(|(m, r)| entry(m, r))
        .into();
    let text = status_text(&context(), &running(), &nothing(), &latest);
    assert_eq!(
        text.part,
        "**Running**: the sandbox is up since 2026-01-31 12:01 UTC.\n\
         - 2026-01-31 12:04 UTC `fixes` `#12,` says `@octocat`\n\
         - 2026-01-31 12:03 UTC two\n\
         - 2026-01-31 12:02 UTC one\n\
         \n\
         Comment `/issuebox stop`, `/issuebox delete` or `/issuebox status`.\n\
         \n\
         [More on the page](https://box.example.org/sandboxes/sandbox-1)"
    );
    assert_eq!((text.phase.as_str(), text.is_end), ("1 running", false));
    let body = comment_body(&status_marker(&context(), HOME), &text.part);
    assert!(body.starts_with("<!-- issuebox inst 3 -->\n<!-- begin -->\n**Running**"), "{body}");
    assert_eq!(crate::github::comment::find("/issuebox", &body), None, "it commands nothing");
    let bare = MessageContext { public_url: None, command: String::new(), ..context() };
    assert_eq!(
        status_text(&bare, &running(), &nothing(), &[]).part,
        "**Running**: the sandbox is up since 2026-01-31 12:01 UTC."
    );
}

#[test]
fn a_status_names_branch_and_pull_request_which_are_part_of_the_phase() {
    let latest = [entry(1, "up")];
    let said = |work: &WorkShown| status_text(&context(), &running(), work, &latest);
    let text = said(&work(CheckoutState::Ready, ""));
    assert!(
        text.part.contains(
            " 12:01 UTC.\n\nBranch `issuebox/issue-1`, pull request #34.\n\n- 2026-01-31 12:01 UTC up"
        ),
        "{}",
        text.part
    );
    let mut phases = std::collections::BTreeSet::from(["1 running".to_owned(), text.phase]);
    let new = WorkShown { pull: None, ..work(CheckoutState::Ready, "") };
    let trouble = WorkShown { pull_trouble: Some("nothing to propose".into()), ..new.clone() };
    let mut unpushed = new.clone();
    unpushed.checkout.as_mut().expect("it has one").tip = None;
    for (work, words) in [
        (new, "Branch `issuebox/issue-1`.\n"),
        (trouble, "Branch `issuebox/issue-1`. No pull request: nothing to propose.\n"),
        (
            work(CheckoutState::Failed, "no route to @host"),
            "**The checkout failed**: No route to `@host`.",
        ),
    ] {
        let text = said(&work);
        assert!(text.part.contains(words), "{}", text.part);
        assert!(phases.insert(text.phase), "{words} is shown at once");
    }
    assert!(said(&unpushed).part.contains("Branch `issuebox/issue-1`; nothing is pushed yet."));
    let again = said(&work(CheckoutState::Fetching, "no route; trying again in 2 s"));
    assert!(again.part.contains("Checkout: No route; trying again in 2 s."), "{}", again.part);
    assert!(phases.contains(&again.phase), "a try is progress");
    let answer = CommentAnswer::Status("it is up".into());
    let reply = reply_body("m", &answer, &work(CheckoutState::Ready, ""), (&context(), &issue()));
    assert!(
        reply.starts_with("m\nIt is up. Branch `issuebox/issue-1`, pull request #34.\n"),
        "{reply}"
    );
}

#[test]
fn at_the_end_it_says_closed_or_stopped() {
    let closed = |value: bool| Some(crate::issue::Dated { value: !value, as_of: at(1) });
    for (is_closed, words) in [(true, "**closed**"), (false, "**Stopped**")] {
        let mut gone = issue();
        gone.facts.open = closed(is_closed);
        let text = status_text(&context(), &gone, &nothing(), &[]);
        assert!(text.is_end && text.part.contains(words), "{text:?}");
        assert!(!text.part.contains("Comment `"), "there is nothing to stop");
    }
    let merged = Issue { merged_into: Some(HomeId(4)), ..running() };
    assert!(status_text(&context(), &merged, &nothing(), &[]).is_end);
    let pending = PendingStart { since: at(2), why: "a label".into(), plan: None };
    let waiting = Issue { pending_start: Some(pending), ..issue() };
    let text = status_text(&context(), &waiting, &nothing(), &[]);
    assert!(
        !text.is_end && text.part.starts_with("**Waiting** for a sandbox since 2026-01-31 12:02")
    );
}

#[test]
fn only_our_part_of_a_comment_is_replaced() {
    let marker = status_marker(&context(), HOME);
    let body = comment_body(&marker, "old");
    assert!(has_marker(&body, &marker) && has_marker(&body.replace('\n', "\r\n"), &marker));
    assert!(!has_marker(&format!("> {body}"), &marker));
    assert!(!has_marker(&body, &reply_marker(&context(), HOME, 5)));
    let theirs = format!("{}before\n{}after", &body[..marker.len() + 1], &body[marker.len() + 1..]);
    let new = with_part(&theirs, "new").expect("it has its marks");
    assert_eq!(new, format!("{marker}\nbefore\n<!-- begin -->\nnew\n<!-- end -->\nafter"));
    assert_eq!(with_part(&new, "new"), Some(new.clone()), "the same again");
    assert_eq!(with_part("<!-- begin --> no end", "new"), None);
    assert_eq!(with_part("<!-- end --><!-- begin -->", "new"), None);
}

#[test]
fn long_texts_are_cut_at_a_line() {
    let long = "word ".repeat(400);
    let text = status_text(&context(), &running(), &nothing(), &[entry(1, &long)]);
    assert!(text.part.contains("word …\n"), "{}", text.part);
    let part = bounded("a line\n".repeat(4_000));
    assert!(part.len() <= PART_LEN_MAX && part.ends_with("a line\n… more on the page"));
}

#[test]
fn a_reply_is_one_sentence_behind_its_marker() {
    let marker = reply_marker(&context(), HOME, 5);
    let bare = MessageContext { public_url: None, ..context() };
    let answer = CommentAnswer::Refused("the issue has no sandbox".into());
    assert_eq!(
        reply_body(&marker, &answer, &nothing(), (&bare, &issue())),
        "<!-- issuebox inst 3 reply 5 -->\nThis was not carried out: The issue has no sandbox.\n"
    );
    let answer = CommentAnswer::Status("it is up".into());
    assert!(
        reply_body(&marker, &answer, &nothing(), (&context(), &issue()))
            .contains("\nIt is up.\n\n[More on the page]")
    );
}
