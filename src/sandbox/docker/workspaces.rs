//! The names of workspaces' volumes, which say whose they are.
//!
//! A name is all that every engine keeps: Podman drops the labels of volumes that come with a container, and lists
//! volumes of others where two filters are asked for.

use std::time::Duration;

use crate::sandbox::Labels;
use crate::types::Timestamp;

const PREFIX: &str = "issuebox-workspace-";

/// The name of a new workspace. `id` makes it one of its own.
pub fn workspace_name(owner: &Labels, id: &str) -> String {
    format!("{PREFIX}{}.{}.{id}", owner.sandbox, owner.instance)
}

/// Whose a workspace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceOwner<'a> {
    /// The sandbox.
    pub sandbox: &'a str,
    /// The installation.
    pub instance: &'a str,
}

impl<'a> WorkspaceOwner<'a> {
    /// The owner of the volume of this name; `None` if it is no workspace of ours.
    pub fn of(volume: &'a str) -> Option<Self> {
        let mut parts = volume.strip_prefix(PREFIX)?.split('.');
        let owner = Self { sandbox: parts.next()?, instance: parts.next()? };
        parts.next().filter(|id| !id.is_empty())?;
        parts.next().is_none().then_some(owner)
    }
}

/// Whether a volume was created longer ago than this. One that does not say when is younger.
pub fn is_older(created: Option<&str>, age: Duration, now: Timestamp) -> bool {
    created.and_then(Timestamp::parse).is_some_and(|created| created.after(age) < now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{AccountName, Generation, HomeId, InstanceId, IssueId, Mode, SandboxId};

    #[test]
    fn a_name_says_whose_the_workspace_is_and_no_other_does() {
        let labels = Labels {
            instance: InstanceId::trusted("one-installation".to_owned()),
            account: AccountName::default_account(),
            home: HomeId(1),
            issue: IssueId::parse("1").expect("an issue id"),
            sandbox: SandboxId::trusted("a-sandbox".to_owned()),
            generation: Generation(1),
            mode: Mode::Strong,
        };
        let name = workspace_name(&labels, "x");
        let owner = WorkspaceOwner { sandbox: "a-sandbox", instance: "one-installation" };
        assert_eq!(WorkspaceOwner::of(&name), Some(owner));
        for other in ["", "data", "issuebox-workspace-a", "issuebox-helper-a.b.c"] {
            assert_eq!(WorkspaceOwner::of(other), None, "{other}");
        }
        for other in [format!("{name}.more"), name.trim_end_matches('x').to_owned()] {
            assert_eq!(WorkspaceOwner::of(&other), None, "{other}");
        }
    }
}
