//! What is said in a pull request.

use super::{MessageContext, page_link};
use crate::github::text::{one_line, plain};
use crate::issue::Issue;
use crate::issue::instruction::GithubUser;
use crate::store::checkout::CheckoutRow;
use crate::types::{HomeId, SandboxId};

/// Longest title, in characters. GitHub's limit is 256.
const TITLE_LEN_MAX: usize = 200;
/// How many people are named who asked.
const NAMED_MAX: usize = 5;

/// What is said in a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullText {
    /// The first line, by which it is found again.
    pub marker: String,
    /// Its title.
    pub title: String,
    /// The text between the marks.
    pub part: String,
}

/// What is said in the pull request of a sandbox's checkout. `asked` are the people who asked for the work, `summary`
/// is what the agent said last, made safe.
pub fn pull_text<'a>(
    context: &MessageContext,
    issue: &Issue,
    checkout: &CheckoutRow,
    asked: impl Iterator<Item = &'a GithubUser>,
    summary: Option<&str>,
) -> PullText {
    let mut lines = Vec::new();
    // Where a transfer took the issue may be private, so it is not named here.
    if let Some(number) = issue.facts.number.filter(|_| checkout.is_beside(&issue.facts)) {
        lines.push(format!("Fixes #{number}"));
    }
    lines.extend(summary.map(str::to_owned));
    let mut names: Vec<String> = Vec::new();
    for name in asked.map(|user| plain(&user.login)) {
        if names.len() < NAMED_MAX && !names.contains(&name) {
            names.push(name);
        }
    }
    let by = match names.as_slice() {
        [] => String::new(),
        names => format!(" It was asked for by {}.", names.join(", ")),
    };
    lines.push(format!("This work was done in the sandbox of the issue.{by}"));
    let part =
        format!("{}{}", lines.join("\n\n"), page_link(context, Some(checkout.sandbox.as_str())));
    PullText {
        marker: pull_marker(context, issue.home, &checkout.sandbox),
        title: title(issue),
        part,
    }
}

fn pull_marker(context: &MessageContext, home: HomeId, sandbox: &SandboxId) -> String {
    format!("<!-- issuebox {} {} pull {sandbox} -->", context.instance, home.0)
}

/// The issue's title on one line. It may become a commit's message, so it mentions and references
/// nothing.
fn title(issue: &Issue) -> String {
    let known = issue.facts.title.as_ref().map_or("", |title| title.value.as_str());
    let title: String = inactive(&one_line(known)).chars().take(TITLE_LEN_MAX).collect();
    match (title.trim(), issue.facts.number) {
        ("", Some(number)) => format!("Work on issue {number}"),
        ("", None) => "Work on an issue".to_owned(),
        (title, _) => title.to_owned(),
    }
}

/// A line that mentions no account and references nothing.
fn inactive(line: &str) -> String {
    let line = line.replace("://", ":").replace("GH-", "GH ").replace("gh-", "gh ");
    let mut next = line.chars().skip(1);
    let kept = line.chars().filter(|c| {
        let next = next.next();
        match c {
            '@' | '＠' => !next.is_some_and(char::is_alphanumeric),
            '#' | '＃' => !next.is_some_and(char::is_numeric),
            _ => true,
        }
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::Dated;
    use crate::types::{AccountName, InstanceId, IssueId, IssueNumber, Repository, Timestamp};

    fn said_of(title: &str, logins: &[&str]) -> PullText {
        with_summary(title, logins, None)
    }

    fn with_summary(title: &str, logins: &[&str], summary: Option<&str>) -> PullText {
        let id = IssueId::parse("1").expect("a valid id");
        let mut issue = Issue::new(HomeId(3), AccountName::default_account(), id);
        issue.facts.number = Some(IssueNumber(12));
        let as_of = Timestamp::from_unix_ms(0);
        issue.facts.title = Some(Dated { value: title.to_owned(), as_of });
        let context = MessageContext {
            instance: InstanceId::trusted("inst"),
            public_url: Some("https://box.example.org".into()),
            command: "/issuebox".into(),
        };
        let users: Vec<GithubUser> =
            logins.iter().map(|login| GithubUser { id: 1, login: (*login).to_owned() }).collect();
        pull_text(&context, &issue, &checkout(), users.iter(), summary)
    }

    fn checkout() -> CheckoutRow {
        let remote = (Repository::trusted("octo/hello"), Some(7));
        let now = Timestamp::from_unix_ms(0);
        CheckoutRow::begun(SandboxId::trusted("s-1"), HomeId(3), remote, now)
    }

    #[test]
    fn a_pull_request_does_not_say_where_its_issue_was_transferred() {
        let id = IssueId::parse("1").expect("a valid id");
        let mut issue = Issue::new(HomeId(3), AccountName::default_account(), id);
        issue.facts.number = Some(IssueNumber(12));
        issue.facts.repository = Some(Repository::trusted("octo/harbour"));
        let context = MessageContext {
            instance: InstanceId::trusted("inst"),
            public_url: None,
            command: "/issuebox".into(),
        };
        for (id, expected) in [(8, "This work was done"), (7, "Fixes #12\n")] {
            issue.facts.repository_id = Some(id);
            let text = pull_text(&context, &issue, &checkout(), std::iter::empty(), None);
            assert!(text.part.starts_with(expected), "{}", text.part);
            assert!(!text.part.contains("harbour"), "{}", text.part);
        }
    }

    #[test]
    fn a_pull_request_names_its_issue_and_who_asked() {
        let said = said_of("A title", &["mona", "mona", "@hub"]);
        assert_eq!(said.marker, "<!-- issuebox inst 3 pull s-1 -->");
        assert_eq!(said.title, "A title");
        assert_eq!(
            said.part,
            "Fixes #12\n\nThis work was done in the sandbox of the issue. It was asked for by mona, \
             `@hub`.\n\n[More on the page](https://box.example.org/sandboxes/s-1)"
        );
    }

    #[test]
    fn a_pull_request_has_what_the_agent_said() {
        let said = with_summary("A title", &["mona"], Some("I fixed it.\n\n- and tested"));
        assert!(said.part.starts_with("Fixes #12\n\nI fixed it.\n\n- and tested\n\nThis work was"));
    }

    #[test]
    fn a_title_mentions_and_references_nothing() {
        for (title, expected) in [
            ("  Vec<T>\n in C# ", "Vec<T> in C#"),
            ("fixes #3, says @mona", "fixes 3, says mona"),
            (
                "see https://github.com/o/r/issues/1 and GH-2",
                "see https:github.com/o/r/issues/1 and GH 2",
            ),
            ("hid\u{200b}den", "hidden"),
            ("", "Work on issue 12"),
        ] {
            assert_eq!(said_of(title, &[]).title, expected);
        }
        assert_eq!(said_of(&"long ".repeat(100), &[]).title.chars().count(), 199);
    }
}
