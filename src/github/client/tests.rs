//! The client against the in-memory GitHub.

mod answers;
mod credentials;
mod reading;
mod registration;
mod writing;

use std::sync::Arc;

use super::*;
use crate::clock::SystemClock;
use crate::github::api::{
    GitHubApi, GitHubError, GitHubWriter, RepositoryTarget, UnkeptPace, WriteTurn, WriteUrgency,
};
use crate::github::model::{APP_KEY, GithubModel, ModelCall};
use crate::types::{IssueNumber, Repository, Secret};

const REPOSITORY: &str = "octo/hello";
const ONE: IssueNumber = IssueNumber(1);

/// A repository with an issue, the App on it, and our client.
struct TestRepository {
    model: GithubModel,
    client: GitHubClient,
    installation: u64,
    repository_id: u64,
}

impl TestRepository {
    fn new() -> Self {
        let model = GithubModel::start().expect("it starts");
        let repository_id = model.repository(REPOSITORY);
        let installation = model.install("octo");
        model.set_role(REPOSITORY, "mira", "write");
        model.open_issue(REPOSITORY, "mira", "It breaks", "Badly");
        let client = app_client(&model, &model.api_url());
        Self { model, client, installation, repository_id }
    }

    /// The repository, of which only the name is known.
    fn named() -> RepositoryTarget {
        RepositoryTarget::named(Repository::trusted(REPOSITORY))
    }

    fn target(&self) -> RepositoryTarget {
        let (id, installation) = (Some(self.repository_id), Some(self.installation));
        RepositoryTarget { id, installation, ..Self::named() }
    }

    fn mints(&self) -> Vec<ModelCall> {
        self.model.calls_to("POST", "/app/installations/", "/access_tokens")
    }

    async fn turn(&self) -> WriteTurn {
        self.client.turn(&self.target(), WriteUrgency::Person).await.expect("a turn")
    }

    /// Writes a comment on the first issue. Answers are what is looked at, not the pace.
    async fn comment(&self, body: &str) -> Result<u64, GitHubError> {
        let turn = WriteTurn::unlimited();
        let made = self.client.create_comment(turn, &self.target(), ONE, body).await;
        made.map(|comment| comment.id)
    }

    async fn issue(&self) -> Result<(), GitHubError> {
        self.client.issue(&self.target(), ONE, None).await.map(|_| ())
    }
}

fn app_client(model: &GithubModel, api_url: &str) -> GitHubClient {
    let (id, _, _) = model.app();
    let credentials = GitHubCredentials::app(id, &Secret::new(APP_KEY)).expect("a key");
    client(api_url, credentials)
}

fn client(api_url: &str, credentials: GitHubCredentials) -> GitHubClient {
    GitHubClient::new(api_url, credentials, Arc::new(SystemClock), Arc::new(UnkeptPace))
        .expect("the address is right")
}
