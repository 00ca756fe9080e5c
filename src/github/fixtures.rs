//! Our own deliveries in the shape of real ones, for `demo`, tests and benchmarks. What they mean
//! is in `fixtures/README.md`.
//!
//! They are part of the program, so that `demo` needs no files beside it.

/// One delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixture {
    /// Its name, such as `issues.labeled.agent`.
    pub name: &'static str,
    /// Its body, as it is sent and signed.
    pub body: &'static str,
}

impl Fixture {
    /// The value of `X-GitHub-Event`.
    pub fn event(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(event, _)| event)
    }
}

/// The delivery with this name.
pub fn named(name: &str) -> Option<Fixture> {
    ALL.iter().copied().find(|fixture| fixture.name == name)
}

/// Declares the deliveries by the names of their files.
macro_rules! fixtures {
    ($($name:literal,)*) => {
        /// All of them, in the order of their names.
        pub const ALL: &[Fixture] = &[$(Fixture {
            name: $name,
            body: include_str!(concat!("../../fixtures/", $name, ".json")),
        },)*];
    };
}

fixtures! {
    "installation.created",
    "issue_comment.created.bot",
    "issue_comment.created.command",
    "issue_comment.created.ghost",
    "issue_comment.created.plain",
    "issue_comment.created.pull-request",
    "issue_comment.created.quoted",
    "issue_comment.created.stop",
    "issue_comment.created.stranger",
    "issue_comment.edited",
    "issues.assigned",
    "issues.closed.map",
    "issues.deleted.reports",
    "issues.edited.title",
    "issues.labeled.agent",
    "issues.labeled.bug",
    "issues.labeled.large-id",
    "issues.labeled.map",
    "issues.labeled.reports",
    "issues.labeled.umlauts",
    "issues.opened.stranger",
    "issues.opened.transferred",
    "issues.opened.with-label",
    "issues.pinned",
    "issues.reopened.map",
    "issues.transferred",
    "issues.unassigned",
    "issues.unlabeled.umlauts",
    "ping",
    "push",
    "repository.renamed",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_fixture() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");
        let mut files: Vec<String> = std::fs::read_dir(dir)
            .expect("the directory")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()))
            .collect();
        files.sort();
        let known: Vec<&str> = ALL.iter().map(|fixture| fixture.name).collect();
        assert_eq!(files, known);
    }

    #[test]
    fn a_fixtures_event_is_the_first_part_of_its_name() {
        let event = |name| named(name).map(|fixture| fixture.event());
        assert_eq!(event("ping"), Some("ping"));
        assert_eq!(event("issue_comment.created.bot"), Some("issue_comment"));
        assert_eq!(event("issues"), None);
    }
}
