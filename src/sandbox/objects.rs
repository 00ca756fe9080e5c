//! Objects at a provider: which sandbox each belongs to, and which object a call is about.

use crate::types::{
    AccountName, ExternalId, Generation, HomeId, InstanceId, IssueId, Mode, ObjectName,
    ObjectState, SandboxId,
};

/// What an object says about whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// `issuebox.instance`
    pub instance: InstanceId,
    /// `issuebox.account`
    pub account: AccountName,
    /// `issuebox.home`
    pub home: HomeId,
    /// `issuebox.issue`
    pub issue: IssueId,
    /// `issuebox.sandbox`
    pub sandbox: SandboxId,
    /// `issuebox.generation`
    pub generation: Generation,
    /// `issuebox.mode`
    pub mode: Mode,
}

impl Labels {
    /// The labels as keys and values, in a fixed order.
    pub fn to_pairs(&self) -> [(&'static str, String); 7] {
        [
            ("issuebox.instance", self.instance.to_string()),
            ("issuebox.account", self.account.to_string()),
            ("issuebox.home", self.home.to_string()),
            ("issuebox.issue", self.issue.to_string()),
            ("issuebox.sandbox", self.sandbox.to_string()),
            ("issuebox.generation", self.generation.to_string()),
            ("issuebox.mode", self.mode.to_string()),
        ]
    }

    /// Reads labels back through a look-up by key; `None` where one is missing or malformed, so
    /// that a half-labelled object counts as foreign.
    pub fn from_pairs<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        Some(Self {
            instance: InstanceId::trusted(get("issuebox.instance")?),
            account: AccountName::trusted(get("issuebox.account")?),
            home: HomeId(get("issuebox.home")?.parse().ok()?),
            issue: IssueId::parse(get("issuebox.issue")?).ok()?,
            sandbox: SandboxId::trusted(get("issuebox.sandbox")?),
            generation: Generation(get("issuebox.generation")?.parse().ok()?),
            mode: Mode::parse(get("issuebox.mode")?)?,
        })
    }
}

/// One object at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The provider's id of it.
    pub external_id: ExternalId,
    /// The name it has.
    pub name: ObjectName,
    /// Whose it is; `None` where it does not carry our labels.
    pub labels: Option<Labels>,
    /// Its state.
    pub state: ObjectState,
}

/// One object, and the sandbox id that must be on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The provider's id of it.
    pub external_id: ExternalId,
    /// The sandbox id expected on it.
    pub expected: SandboxId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_survive_a_round_trip_and_half_labels_are_foreign() {
        let labels = Labels {
            instance: InstanceId::trusted("i"),
            account: AccountName::default_account(),
            home: HomeId(3),
            issue: IssueId::from_github(5_000_000_000),
            sandbox: SandboxId::trusted("s"),
            generation: Generation(2),
            mode: Mode::Strong,
        };
        let pairs = labels.to_pairs();
        let get = |key: &str| pairs.iter().find(|p| p.0 == key).map(|p| p.1.as_str());
        assert_eq!(Labels::from_pairs(get), Some(labels));
        let without = |key: &str| get(key).filter(|_| key != "issuebox.generation");
        assert_eq!(Labels::from_pairs(without), None);
    }
}
