//! Whether a sandbox's pushes are published at once: by what is configured, and by who wrote the texts
//! that the work follows.

use super::CheckoutParts;
use crate::github::api::{GitHubError, RepositoryTarget};
use crate::github::permissions::Standing;
use crate::issue::Issue;
use crate::issue::instruction::{GithubUser, InstructionSource};
use crate::store::InstructionRow;
use crate::store::checkout::CheckoutRow;
use crate::types::{PermissionLevel, PublishMode, PushPermission};

/// How many texts are looked at. An issue with more waits for a person.
const TEXTS_MAX: usize = 200;

impl CheckoutParts {
    /// What becomes of the pushes of an issue's sandbox, and why.
    ///
    /// # Errors
    /// Why that is not known now, for people.
    pub(super) async fn pushes(
        &self,
        issue: &Issue,
        target: &RepositoryTarget,
    ) -> Result<(PushPermission, String), String> {
        let configured = |permission| (permission, "`github.publish` says so".to_owned());
        Ok(match self.publish {
            PublishMode::Push => (PushPermission::Free, String::new()),
            PublishMode::Ask => configured(PushPermission::Waits),
            PublishMode::Never => configured(PushPermission::Off),
            PublishMode::Auto => match self.stranger(issue, target).await? {
                Some(why) => (PushPermission::Waits, why),
                None => {
                    let why = "all texts that it follows are by people who may write here";
                    (PushPermission::Trusted, why.to_owned())
                }
            },
        })
    }

    /// Why a text that the work follows may be by a person who may not write to the repository; `None`
    /// if none is.
    async fn stranger(
        &self,
        issue: &Issue,
        target: &RepositoryTarget,
    ) -> Result<Option<String>, String> {
        let rows = self.store.instructions(issue.home, 0, TEXTS_MAX).await;
        let rows = rows.map_err(|error| format!("the texts cannot be read now: {error}"))?;
        if rows.len() >= TEXTS_MAX {
            return Ok(Some(format!("it follows more than {TEXTS_MAX} texts")));
        }
        // What a check says of a commit is no person's text.
        let is_by_person =
            |row: &InstructionRow| !matches!(row.instruction.source, InstructionSource::Check(_));
        for row in rows.into_iter().filter(is_by_person) {
            let Some(author) = row.instruction.author else {
                return Ok(Some("a text that it follows has no author any more".to_owned()));
            };
            let login = &author.login;
            let may = self.may_write(target, &author).await.map_err(|error| {
                format!("it is not known now whether {login} may write here: {error}")
            })?;
            if !may {
                return Ok(Some(format!("{login}, who wrote a text, may not write here")));
            }
        }
        Ok(None)
    }

    /// Whether an account may write to a repository. Logins are renamed: the id counts.
    async fn may_write(
        &self,
        target: &RepositoryTarget,
        user: &GithubUser,
    ) -> Result<bool, GitHubError> {
        let standing = self.permissions.ask(target, user, PermissionLevel::Write).await?;
        Ok(standing == Standing::Reached)
    }

    /// Why nothing may be pushed now, as a sentence for who pushes.
    pub(super) fn push_refusal(&self, issue: &Issue, row: &CheckoutRow) -> Option<String> {
        let why = &row.pushes_why;
        let refusal = if issue.facts.open.as_ref().is_some_and(|open| !open.value) {
            "the issue is closed; your work is kept in the sandbox until it is deleted".to_owned()
        } else {
            match (row.pushes, &row.published_by) {
                (PushPermission::Free | PushPermission::Trusted, _)
                | (PushPermission::Waits, Some(_)) => return None,
                (PushPermission::Off, _) => {
                    "pushes are turned off here (github.publish = \"never\"); your work is kept in the \
                     sandbox"
                        .to_owned()
                }
                (PushPermission::Waits, None) => {
                    let how = publish_how(self.command.of(issue.facts.repository.as_ref()));
                    format!(
                        "a person must publish this work first, because {why}: {how}; your work is \
                         kept in the sandbox"
                    )
                }
            }
        };
        Some(refusal)
    }
}

/// How a person publishes.
fn publish_how(command: &str) -> String {
    let cli = "run `issuebox publish ISSUE`";
    match command {
        "" => cli.to_owned(),
        command => format!("comment `{command} publish` on the issue, or {cli}"),
    }
}
