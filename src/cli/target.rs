//! The argument ISSUE: an issue id, `owner/repo#number`, an issue's URL, a sandbox's id or name.

use std::fmt;

use reqwest::Url;

use crate::types::{IssueId, IssueNumber, Repository};

use super::client::{ApiClient, ApiRequest};
use super::failure::CliFailure;
use super::hints::HintSubject;
use super::wire::{self, ApiSandbox};

/// How a person names an issue or its sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IssueArg {
    /// By repository and number.
    Numbered(Repository, IssueNumber),
    /// An issue id, a sandbox's id or its name; only the server knows which.
    Word(String),
}

impl fmt::Display for IssueArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbered(repository, number) => write!(f, "{repository}#{number}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

impl IssueArg {
    /// Parses ISSUE; for `clap`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Self::from_url(text)
                .ok_or_else(|| "an issue's URL ends in /owner/repo/issues/number".to_owned());
        }
        if let Some((repository, number)) = text.split_once('#') {
            return Self::numbered(repository, number)
                .ok_or_else(|| "must have the form owner/repo#number".to_owned());
        }
        if text.contains('/') {
            return Err("is a repository without a number; use owner/repo#number".to_owned());
        }
        if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("must be one word".to_owned());
        }
        Ok(Self::Word(text.to_owned()))
    }

    fn from_url(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let parts: Vec<&str> = url.path_segments()?.filter(|part| !part.is_empty()).collect();
        let [owner, repository, "issues", number] = parts.as_slice() else { return None };
        Self::numbered(&format!("{owner}/{repository}"), number)
    }

    fn numbered(repository: &str, number: &str) -> Option<Self> {
        let repository = Repository::parse(repository).ok()?;
        let number = number.parse().ok().filter(|number| *number > 0)?;
        Some(Self::Numbered(repository, IssueNumber(number)))
    }

    /// The issue id, if the text can be one or is the name of an issue's sandbox.
    pub fn issue_id(&self) -> Option<IssueId> {
        match self {
            Self::Numbered(..) => None,
            Self::Word(word) => {
                IssueId::from_sandbox_name(word).or_else(|| IssueId::parse(word).ok())
            }
        }
    }

    /// The named sandbox; `None` if there is none. An issue id takes precedence over a sandbox's id
    /// of the same letters.
    pub async fn find(&self, client: &ApiClient) -> Result<Option<ApiSandbox>, CliFailure> {
        client.about(HintSubject::issue(self, None));
        let found = self.look_up(client).await?;
        let phase = found.as_ref().and_then(|sandbox| sandbox.phase.as_deref());
        client.about(HintSubject::issue(self, phase));
        Ok(found)
    }

    async fn look_up(&self, client: &ApiClient) -> Result<Option<ApiSandbox>, CliFailure> {
        match self {
            Self::Numbered(repository, number) => {
                let call = ApiRequest::get(&path_of(repository, *number, "sandbox"));
                wire::read(client.call(call).await?.data())
            }
            Self::Word(word) => {
                if IssueId::parse(word).is_ok() {
                    let call = ApiRequest::get(&["issues", word, "sandbox"]);
                    let live = wire::read(client.call(call).await?.data())?;
                    if let Some(live) = live {
                        return Ok(Some(live));
                    }
                }
                match client.call(ApiRequest::get(&["sandboxes", word])).await {
                    Ok(answer) => wire::read(answer.data()).map(Some),
                    Err(CliFailure::Api { status: 404, .. }) => Ok(None),
                    Err(failure) => Err(failure),
                }
            }
        }
    }

    /// The named sandbox.
    ///
    /// # Errors
    /// [`CliFailure::NotFound`] if there is none.
    pub async fn sandbox(&self, client: &ApiClient) -> Result<ApiSandbox, CliFailure> {
        self.find(client).await?.ok_or_else(|| self.not_found())
    }

    /// The named sandbox, else the issue's last one, which is deleted.
    ///
    /// # Errors
    /// [`CliFailure::NotFound`] if it never had one, or its record was pruned.
    pub async fn newest(&self, client: &ApiClient) -> Result<ApiSandbox, CliFailure> {
        if let Some(sandbox) = self.find(client).await? {
            return Ok(sandbox);
        }
        let issue_id = match self.known_issue_id(client).await {
            Ok(issue_id) => issue_id,
            Err(CliFailure::NotFound { .. }) => return Err(self.not_found()),
            Err(failure) => return Err(failure),
        };
        let call = ApiRequest::get(&["sandboxes"])
            .query("issueId", Some(issue_id))
            .query("phase", Some("deleted"))
            .query("limit", Some(1));
        let answer = client.call(call).await?;
        match answer.data().as_array().and_then(|all| all.first()) {
            Some(newest) => wire::read(newest),
            None => Err(self.not_found()),
        }
    }

    /// The issue's id: that of its sandbox, else the text if it can be an id, else the server's id for
    /// it. An issue without a sandbox still has an id and a history.
    ///
    /// # Errors
    /// [`CliFailure::NotFound`] if there is none of these.
    pub async fn known_issue_id(&self, client: &ApiClient) -> Result<String, CliFailure> {
        if let Some(sandbox) = self.find(client).await? {
            return Ok(sandbox.issue_id);
        }
        let known = match self {
            Self::Numbered(repository, number) => {
                let call = ApiRequest::get(&path_of(repository, *number, "events"));
                let answer = client.call(call.query("limit", Some(1))).await?;
                answer.body["issueId"].as_str().map(str::to_owned)
            }
            Self::Word(_) => self.issue_id().map(|id| id.to_string()),
        };
        known.ok_or_else(|| self.unknown())
    }

    /// The error for an unknown issue.
    pub fn unknown(&self) -> CliFailure {
        CliFailure::NotFound {
            message: format!("there is no record of {self}"),
            hint: format!(
                "run {} to create a sandbox, or issuebox ls to list sandboxes",
                self.ensure()
            ),
        }
    }

    /// The error for an issue without a sandbox.
    pub fn not_found(&self) -> CliFailure {
        CliFailure::NotFound {
            message: format!("{self} has no sandbox"),
            hint: format!(
                "run {} to create one, or issuebox events {self} to see whether a start is pending",
                self.ensure()
            ),
        }
    }

    /// The call that ensures it. A server that has not seen the issue needs its id as well.
    fn ensure(&self) -> String {
        match self {
            Self::Numbered(..) => {
                format!("issuebox ensure {self} (with --issue-id for an issue new to this server)")
            }
            Self::Word(_) => format!("issuebox ensure {self}"),
        }
    }
}

/// The API path of an issue known by repository and number.
fn path_of(repository: &Repository, number: IssueNumber, what: &str) -> [String; 6] {
    let whole = repository.as_str();
    let (owner, name) = whole.split_once('/').unwrap_or((whole, ""));
    ["repos", owner, name, "issues", &number.to_string(), what].map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(number: u64) -> Result<IssueArg, String> {
        let repository = Repository::parse("octo/hello.rs").expect("a repository");
        Ok(IssueArg::Numbered(repository, IssueNumber(number)))
    }

    #[test]
    fn an_issue_can_be_written_in_every_usual_way() {
        for text in [
            "octo/hello.rs#7",
            "https://github.com/octo/hello.rs/issues/7",
            "https://git.example.org/octo/hello.rs/issues/7/",
            "http://git.example.org:8080/octo/hello.rs/issues/7?x=1#issuecomment-5",
        ] {
            assert_eq!(IssueArg::parse(text), numbered(7), "{text}");
        }
        for word in ["444500041", "test-123", "claude-issue-test-123", "0190c1d2-77aa"] {
            assert_eq!(IssueArg::parse(word), Ok(IssueArg::Word(word.to_owned())), "{word}");
        }
    }

    #[test]
    fn a_text_that_names_no_issue_is_refused() {
        for bad in [
            "",
            "a b",
            "a\nb",
            "octo/hello",
            "#7",
            "octo#7",
            "octo/hello#",
            "octo/hello#0",
            "octo/hello#x",
            "octo/hello#18446744073709551616",
            "https://github.com/octo/hello/pull/7",
            "https://github.com/octo/hello",
            "https://github.com/octo/hello/issues/x",
            "mailto://x",
        ] {
            assert!(IssueArg::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_sandboxs_name_contains_its_issue() {
        let id = |text: &str| IssueArg::Word(text.to_owned()).issue_id().map(|id| id.to_string());
        assert_eq!(id("claude-issue-test-1"), Some("test-1".to_owned()));
        assert_eq!(id("test-1"), Some("test-1".to_owned()));
        assert_eq!(id("ä"), None);
    }
}
