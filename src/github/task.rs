//! What an agent is given to do: the texts of an issue, in fields, without their hidden parts.
//!
//! # Guarantees
//! - Title and body are those of the delivery that triggered, not what was edited since.
//! - Comments count only if a person with the permission or the issue's author wrote them, and edited
//!   them last, before the trigger; those that are minimised or ours never do. All others are counted.
//! - No hidden part of a text reaches a [`Task`].

use crate::issue::{Instruction, instruction::InstructionSource};
use crate::types::Timestamp;

use super::text::{HiddenParts, cleaned};

/// How many earlier comments a task has at most; the newest count.
pub const TASK_COMMENTS_MAX: usize = 50;
/// How many bytes they have together at most.
pub const TASK_COMMENTS_BYTES_MAX: usize = 100 * 1024;

/// A comment on the issue, as GitHub has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueComment {
    /// GitHub's id of it.
    pub id: u64,
    /// Its author; `None` if the account is deleted.
    pub author: Option<u64>,
    /// The author's name, for people.
    pub login: String,
    /// Whether the author may write to the repository, or whatever else triggers need.
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

/// What is known when a task is put together.
#[derive(Clone, Copy, Debug)]
pub struct TaskSource<'a> {
    /// The issue's title as the trigger's delivery has it.
    pub title: &'a str,
    /// Its body as the trigger's delivery has it.
    pub body: &'a str,
    /// The words behind the command, when a comment triggered.
    pub request: Option<&'a Instruction>,
    /// The issue's author.
    pub author: Option<u64>,
    /// Our own account.
    pub own: u64,
    /// When it was triggered.
    pub triggered_at: Timestamp,
    /// All comments of the issue, oldest first.
    pub comments: &'a [IssueComment],
}

/// What an agent is given to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The issue's title.
    pub title: String,
    /// The issue's body.
    pub body: String,
    /// The words behind the command that triggered.
    pub request: Option<String>,
    /// Earlier comments, oldest first.
    pub comments: Vec<TaskComment>,
    /// How many comments are left out.
    pub left_out: usize,
    /// What was hidden in the texts that are here.
    pub hidden: HiddenParts,
}

/// An earlier comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskComment {
    /// Its author's name.
    pub login: String,
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
        let title = clean(source.title);
        let body = clean(source.body);
        let request = source.request.map(|request| clean(&request.text));
        let asked_in = source.request.and_then(|request| match request.source {
            InstructionSource::Comment(id) | InstructionSource::PlainComment(id) => Some(id),
            InstructionSource::Issue
            | InstructionSource::Review { .. }
            | InstructionSource::Check(_) => None,
        });
        let (mut comments, mut bytes) = (Vec::new(), 0);
        for comment in source.comments.iter().rev().filter(|comment| counts(source, comment)) {
            if Some(comment.id) == asked_in {
                continue;
            }
            bytes += comment.body.len();
            if comments.len() == TASK_COMMENTS_MAX || bytes > TASK_COMMENTS_BYTES_MAX {
                break;
            }
            let text = clean(&comment.body);
            let (login, at) = (comment.login.clone(), comment.created_at);
            comments.push(TaskComment { login, at, text });
        }
        comments.reverse();
        let is_other = |comment: &&IssueComment| {
            Some(comment.id) != asked_in && comment.author != Some(source.own)
        };
        let left_out = source.comments.iter().filter(is_other).count() - comments.len();
        Self { title, body, request, comments, left_out, hidden }
    }
}

/// Whether a comment may be part of the task.
fn counts(source: &TaskSource<'_>, comment: &IssueComment) -> bool {
    let is_by_author = |user: Option<u64>| user.is_some() && user == source.author;
    let is_trusted = comment.is_permitted || is_by_author(comment.author);
    let edited_by = comment.editor.or(comment.edited_at.and(comment.author));
    let edit_counts = comment.edited_at.is_none_or(|at| {
        at <= source.triggered_at && (edited_by == comment.author || is_by_author(edited_by))
    });
    is_trusted
        && edit_counts
        && comment.created_at <= source.triggered_at
        && !comment.is_minimized
        && comment.author.is_some_and(|author| author != source.own)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHOR: u64 = 1;
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

    fn task(comments: &[IssueComment]) -> Task {
        Task::new(&TaskSource {
            title: "A title<!-- hush -->",
            body: "a body [x](y 'hush')",
            request: None,
            author: Some(AUTHOR),
            own: OWN,
            triggered_at: at(100),
            comments,
        })
    }

    fn texts(task: &Task) -> Vec<&str> {
        task.comments.iter().map(|comment| comment.text.as_str()).collect()
    }

    #[test]
    fn a_task_has_the_comments_that_count_and_says_how_many_do_not() {
        let edited = |id, author, editor, second| IssueComment {
            editor: Some(editor),
            edited_at: Some(at(second)),
            ..comment(id, author, 5)
        };
        let task = task(&[
            comment(1, AUTHOR, 1),
            comment(2, MAINTAINER, 2),
            comment(3, STRANGER, 3),
            comment(4, OWN, 4),
            edited(5, AUTHOR, AUTHOR, 50),
            edited(6, AUTHOR, AUTHOR, 101),
            edited(7, MAINTAINER, STRANGER, 50),
            IssueComment { is_minimized: true, ..comment(8, MAINTAINER, 8) },
            IssueComment { author: None, ..comment(9, MAINTAINER, 9) },
            comment(10, MAINTAINER, 101),
        ]);
        assert_eq!(texts(&task), ["text 1", "text 2", "text 5"]);
        assert_eq!(task.left_out, 6, "ours is not counted");
        assert_eq!((task.title.as_str(), task.body.as_str()), ("A title", "a body [x](y)"));
        assert_eq!(task.hidden.total(), 2);
    }

    #[test]
    fn the_newest_comments_count_up_to_the_bounds() {
        let many: Vec<_> = (1..=60).map(|id| comment(id, AUTHOR, 1)).collect();
        let of_many = task(&many);
        assert_eq!((of_many.comments.len(), of_many.left_out), (TASK_COMMENTS_MAX, 10));
        assert_eq!(of_many.comments[0].text, "text 11");
        let body = "x".repeat(TASK_COMMENTS_BYTES_MAX / 2);
        let long = |id| IssueComment { body: body.clone(), ..comment(id, AUTHOR, 1) };
        let of_long = task(&[long(1), long(2), long(3)]);
        assert_eq!((of_long.comments.len(), of_long.left_out), (2, 1));
    }

    #[test]
    fn the_request_is_no_earlier_comment_and_is_cleaned() {
        let request = Instruction {
            source: InstructionSource::Comment(2),
            author: None,
            sender: None,
            as_of: at(2),
            title: None,
            text: "do it<!-- hush -->".into(),
        };
        let comments = [comment(1, AUTHOR, 1), comment(2, AUTHOR, 2)];
        let source = TaskSource {
            title: "",
            body: "",
            request: Some(&request),
            author: Some(AUTHOR),
            own: OWN,
            triggered_at: at(3),
            comments: &comments,
        };
        let task = Task::new(&source);
        assert_eq!(task.request.as_deref(), Some("do it"));
        assert_eq!((texts(&task), task.left_out, task.hidden.html), (vec!["text 1"], 0, 1));
    }
}
