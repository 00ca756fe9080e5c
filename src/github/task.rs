//! What an issue is about, for an agent whose session begins: its texts, without their hidden parts, with
//! who wrote each and what that person may do.
//!
//! # Guarantees
//! - Title and body are those of the delivery that triggered, not what others edited since.
//! - Comments count only if a person with the permission or the issue's author wrote them, and edited
//!   them last, before the trigger; those that are minimised or ours never do. All others are counted.
//! - No hidden part of a text reaches a [`Task`].

use crate::types::Timestamp;

use super::policy::OwnAccount;
use super::text::{HiddenParts, cleaned};

/// How many earlier comments a task has at most; the newest count.
pub const TASK_COMMENTS_MAX: usize = 50;
/// How many bytes they have together at most.
pub const TASK_COMMENTS_BYTES_MAX: usize = 100 * 1024;
/// The permission that is shown of a person who may trigger.
pub const MAY_TRIGGER: &str = "may trigger";
/// The permission that is shown of the issue's author if that person may not trigger.
pub const AUTHOR: &str = "author";

/// A comment on the issue, as GitHub has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueComment {
    /// GitHub's id of it.
    pub id: u64,
    /// Its author; `None` if the account is deleted.
    pub author: Option<u64>,
    /// The author's name, for people.
    pub login: String,
    /// Whether the author may trigger.
    pub is_permitted: bool,
    /// Who last edited it, if it was edited.
    pub editor: Option<u64>,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it was last edited.
    pub edited_at: Option<Timestamp>,
    /// Whether it is minimised.
    pub is_minimized: bool,
    /// Its text.
    pub body: String,
}

/// The author of an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueAuthor {
    /// GitHub's id of the account.
    pub id: u64,
    /// The name.
    pub login: String,
    /// Whether the author may trigger.
    pub is_permitted: bool,
}

/// What is known when a task is put together.
#[derive(Clone, Copy, Debug)]
pub struct TaskSource<'a> {
    /// The issue's title; empty if others edited it since the trigger.
    pub title: &'a str,
    /// Its body; empty if others edited it since the trigger.
    pub body: &'a str,
    /// The issue's author; `None` if the account is deleted.
    pub author: Option<&'a IssueAuthor>,
    /// Our own account.
    pub own: &'a OwnAccount,
    /// When it was triggered.
    pub triggered_at: Timestamp,
    /// The comments whose words are messages to the agent.
    pub said_in: &'a [u64],
    /// The newest comments of the issue, oldest first.
    pub comments: &'a [IssueComment],
    /// How many comments the issue has beside those.
    pub older: usize,
}

/// What an issue is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The issue's title.
    pub title: String,
    /// The issue's body.
    pub body: String,
    /// Who wrote them; `None` if the account is deleted.
    pub author: Option<TaskAuthor>,
    /// Earlier comments, oldest first.
    pub comments: Vec<TaskComment>,
    /// How many comments are left out.
    pub left_out: usize,
    /// What was hidden in the texts that are here.
    pub hidden: HiddenParts,
}

/// Who wrote a text of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskAuthor {
    /// The name.
    pub login: String,
    /// [`MAY_TRIGGER`] or [`AUTHOR`].
    pub permission: &'static str,
}

/// An earlier comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskComment {
    /// Its author.
    pub by: TaskAuthor,
    /// When it was written.
    pub at: Timestamp,
    /// Its text.
    pub text: String,
}

impl Task {
    /// Puts a task together.
    pub fn new(source: &TaskSource<'_>) -> Self {
        let mut hidden = HiddenParts::default();
        let mut clean = |text: &str| {
            let cleaned = cleaned(text);
            hidden.add(cleaned.hidden);
            cleaned.text
        };
        let (title, body) = (clean(source.title), clean(source.body));
        let is_said = |comment: &IssueComment| source.said_in.contains(&comment.id);
        let (mut comments, mut bytes) = (Vec::new(), 0);
        for comment in source.comments.iter().rev().filter(|comment| counts(source, comment)) {
            if is_said(comment) {
                continue;
            }
            bytes += comment.body.len();
            if comments.len() == TASK_COMMENTS_MAX || bytes > TASK_COMMENTS_BYTES_MAX {
                break;
            }
            let text = clean(&comment.body);
            let by = TaskAuthor::of(comment.login.clone(), comment.is_permitted);
            comments.push(TaskComment { by, at: comment.created_at, text });
        }
        comments.reverse();
        let is_other =
            |comment: &&IssueComment| !is_said(comment) && !is_own(source.own, comment.author);
        let others = source.comments.iter().filter(is_other).count() + source.older;
        let left_out = others - comments.len();
        let author = source.author.map(|by| TaskAuthor::of(by.login.clone(), by.is_permitted));
        Self { title, body, author, comments, left_out, hidden }
    }
}

impl TaskAuthor {
    fn of(login: String, is_permitted: bool) -> Self {
        Self { login, permission: if is_permitted { MAY_TRIGGER } else { AUTHOR } }
    }
}

fn is_own(own: &OwnAccount, author: Option<u64>) -> bool {
    author.is_some_and(|author| own.is(author))
}

/// Whether a comment may be part of the task.
fn counts(source: &TaskSource<'_>, comment: &IssueComment) -> bool {
    let author = source.author.map(|author| author.id);
    let is_by_author = |user: Option<u64>| user.is_some() && user == author;
    let is_trusted = comment.is_permitted || is_by_author(comment.author);
    let edited_by = comment.editor.or(comment.edited_at.and(comment.author));
    let edit_counts = comment.edited_at.is_none_or(|at| {
        at <= source.triggered_at && (edited_by == comment.author || is_by_author(edited_by))
    });
    is_trusted
        && edit_counts
        && comment.created_at <= source.triggered_at
        && !comment.is_minimized
        && comment.author.is_some()
        && !is_own(source.own, comment.author)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHOR_ID: u64 = 1;
    const MAINTAINER: u64 = 2;
    const STRANGER: u64 = 3;
    const OWN: u64 = 4;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_unix_ms(second * 1000)
    }

    fn comment(id: u64, author: u64, second: i64) -> IssueComment {
        IssueComment {
            id,
            author: Some(author),
            login: format!("user{author}"),
            is_permitted: author == MAINTAINER || author == OWN,
            editor: None,
            created_at: at(second),
            edited_at: None,
            is_minimized: false,
            body: format!("text {id}"),
        }
    }

    fn task(comments: &[IssueComment], said_in: &[u64]) -> Task {
        let author = IssueAuthor { id: AUTHOR_ID, login: "user1".to_owned(), is_permitted: false };
        Task::new(&TaskSource {
            title: "A title<!-- hush -->",
            body: "a body [x](y 'hush')",
            author: Some(&author),
            own: &OWN.into(),
            triggered_at: at(100),
            said_in,
            comments,
            older: 3,
        })
    }

    fn texts(task: &Task) -> Vec<(&str, &str)> {
        let comments = task.comments.iter();
        comments.map(|comment| (comment.text.as_str(), comment.by.permission)).collect()
    }

    #[test]
    fn a_task_has_the_comments_that_count_and_says_how_many_do_not() {
        let edited = |id, author, editor, second| IssueComment {
            editor: Some(editor),
            edited_at: Some(at(second)),
            ..comment(id, author, 5)
        };
        let task = task(
            &[
                comment(1, AUTHOR_ID, 1),
                comment(2, MAINTAINER, 2),
                comment(3, STRANGER, 3),
                comment(4, OWN, 4),
                edited(5, AUTHOR_ID, AUTHOR_ID, 50),
                edited(6, AUTHOR_ID, AUTHOR_ID, 101),
                edited(7, MAINTAINER, STRANGER, 50),
                IssueComment { is_minimized: true, ..comment(8, MAINTAINER, 8) },
                IssueComment { author: None, ..comment(9, MAINTAINER, 9) },
                comment(10, MAINTAINER, 101),
                comment(11, MAINTAINER, 11),
            ],
            &[11],
        );
        let expected = [("text 1", AUTHOR), ("text 2", MAY_TRIGGER), ("text 5", AUTHOR)];
        assert_eq!(texts(&task), expected, "what is a message is no earlier comment");
        assert_eq!(task.left_out, 6 + 3, "ours is not counted");
        assert_eq!((task.title.as_str(), task.body.as_str()), ("A title", "a body [x](y)"));
        assert_eq!(task.author.map(|by| by.permission), Some(AUTHOR));
        assert_eq!(task.hidden.total(), 2);
    }

    #[test]
    fn the_newest_comments_count_up_to_the_bounds() {
        let many: Vec<_> = (1..=60).map(|id| comment(id, AUTHOR_ID, 1)).collect();
        let of_many = task(&many, &[]);
        assert_eq!((of_many.comments.len(), of_many.left_out), (TASK_COMMENTS_MAX, 13));
        assert_eq!(of_many.comments[0].text, "text 11");
        let body = "x".repeat(TASK_COMMENTS_BYTES_MAX / 2);
        let long = |id| IssueComment { body: body.clone(), ..comment(id, AUTHOR_ID, 1) };
        let of_long = task(&[long(1), long(2), long(3)], &[]);
        assert_eq!((of_long.comments.len(), of_long.left_out), (2, 4));
    }
}
