//! What of a delivery decides which account it belongs to.

use serde::Deserialize;

use super::payload;
use crate::types::{IssueOrigin, Repository};

/// The parts that say where a delivery is from. Events of an organisation name no repository.
#[derive(Debug, Deserialize)]
struct OriginPayload {
    repository: Option<RepositoryName>,
    installation: Option<InstallationId>,
    /// The repositories of an installation that was just made.
    repositories: Option<Vec<RepositoryName>>,
    /// The repositories that an installation was extended to.
    repositories_added: Option<Vec<RepositoryName>>,
    /// The repositories that were taken from an installation.
    repositories_removed: Option<Vec<RepositoryName>>,
}

#[derive(Debug, Deserialize)]
struct RepositoryName {
    full_name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct InstallationId {
    id: Option<u64>,
}

/// Where a verified delivery is from. It is nowhere known of a body that cannot be read.
pub fn origin_of(json: &[u8]) -> IssueOrigin {
    let Ok(payload) = payload::parse::<OriginPayload>(json) else { return IssueOrigin::default() };
    let lists = [payload.repositories, payload.repositories_added, payload.repositories_removed];
    let of_installation = || lists.into_iter().flatten().flatten().next();
    let repository = payload.repository.or_else(of_installation);
    IssueOrigin {
        installation: payload.installation.and_then(|installation| installation.id),
        repository: repository.and_then(|named| named.full_name).map(Repository::trusted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_from_an_installation_and_a_repository_if_it_names_them() {
        let of = |json: &str| {
            let IssueOrigin { installation, repository } = origin_of(json.as_bytes());
            (installation, repository.map(|name| name.to_string()))
        };
        let both = r#"{"repository": {"full_name": "octo/hello"}, "installation": {"id": 7}}"#;
        assert_eq!(of(both), (Some(7), Some("octo/hello".into())));
        let made = r#"{"installation": {"id": 7}, "repositories": [{"full_name": "octo/a"}]}"#;
        assert_eq!(of(made), (Some(7), Some("octo/a".into())));
        let changed =
            r#"{"repositories_added": [], "repositories_removed": [{"full_name": "o/b"}]}"#;
        assert_eq!(of(changed), (None, Some("o/b".into())));
        for nowhere in ["{}", "[", r#"{"repository": null, "installation": {}}"#] {
            assert_eq!(of(nowhere), (None, None), "{nowhere}");
        }
    }
}
