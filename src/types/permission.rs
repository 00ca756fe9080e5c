//! What a person must be allowed to do in a repository to trigger there.

/// A permission of GitHub's, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PermissionLevel {
    /// To manage issues.
    Triage,
    /// To push.
    Write,
    /// To manage the repository.
    Maintain,
    /// Everything.
    Admin,
}

impl PermissionLevel {
    /// Every level.
    pub const ALL: [Self; 4] = [Self::Triage, Self::Write, Self::Maintain, Self::Admin];

    /// GitHub's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Triage => "triage",
            Self::Write => "write",
            Self::Maintain => "maintain",
            Self::Admin => "admin",
        }
    }

    /// Parses GitHub's word for it.
    ///
    /// # Errors
    /// What is expected instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|level| level.as_str() == text);
        found.ok_or_else(|| "must be triage, write, maintain or admin".to_owned())
    }

    /// Whether an account with this `permission` and `role_name` has at least this level. `permission`
    /// knows neither triage nor maintain: those are roles with `read` and with `write`. A role of an
    /// organisation's own counts as the permission that it is made from.
    pub fn is_reached_by(self, permission: &str, role: &str) -> bool {
        let held = match (permission, role) {
            ("admin", _) => Some(Self::Admin),
            ("write" | "maintain", "maintain") => Some(Self::Maintain),
            ("write" | "maintain", _) => Some(Self::Write),
            ("read" | "triage", "triage") => Some(Self::Triage),
            _ => None,
        };
        held >= Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_reach_what_is_below_them_and_no_more() {
        use PermissionLevel::{Admin, Maintain, Triage, Write};
        for (permission, role, reached) in [
            ("admin", "admin", &[Triage, Write, Maintain, Admin][..]),
            ("write", "maintain", &[Triage, Write, Maintain]),
            ("write", "write", &[Triage, Write]),
            ("write", "reviewers", &[Triage, Write]),
            ("read", "triage", &[Triage]),
            ("read", "read", &[]),
            ("read", "admin", &[]),
            ("none", "maintain", &[]),
            ("", "", &[]),
        ] {
            let all = PermissionLevel::ALL.into_iter();
            let found: Vec<_> = all.filter(|one| one.is_reached_by(permission, role)).collect();
            assert_eq!(found, reached, "{permission} {role}");
        }
    }
}
