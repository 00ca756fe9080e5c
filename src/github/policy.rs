//! What may start a sandbox, and who may: the configuration's `[triggers]`, `[repositories]` and
//! `[github]` sections as the interpretation of deliveries needs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::{GitHub, Triggers};
use crate::types::{
    CiFailureMode, FollowUpMode, HiddenMode, PerRepository, PermissionLevel, RepositoryPattern,
};

/// The id of the repository of sample deliveries, which the server sends to itself: larger than GitHub's
/// ids, and exact as a JSON number. GitHub is not asked about it.
pub const SAMPLE_REPOSITORY_ID: u64 = 9_000_000_000_000_002;

/// The numeric id of our own account; configured, or learnt from GitHub. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct OwnAccount(Arc<AtomicU64>);

impl OwnAccount {
    /// Whether this account is ours.
    pub fn is(&self, user_id: u64) -> bool {
        user_id != 0 && self.0.load(Ordering::Relaxed) == user_id
    }

    /// From now on this is our account.
    pub fn set(&self, user_id: u64) {
        self.0.store(user_id, Ordering::Relaxed);
    }
}

impl From<u64> for OwnAccount {
    /// 0 is no account.
    fn from(user_id: u64) -> Self {
        Self(Arc::new(AtomicU64::new(user_id)))
    }
}

impl PartialEq for OwnAccount {
    fn eq(&self, other: &Self) -> bool {
        self.0.load(Ordering::Relaxed) == other.0.load(Ordering::Relaxed)
    }
}

impl Eq for OwnAccount {}

/// What may trigger in each repository, and who. They differ in label, command, `opened` and permission
/// alone; our own account is the same.
pub type TriggerPolicies = PerRepository<TriggerPolicy>;

/// What may trigger, and who. An empty word or a zero id turns its rule off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerPolicy {
    /// This label put on an issue triggers; compared without regard to case, as GitHub does.
    pub label: String,
    /// A comment line that begins with this word triggers.
    pub command: String,
    /// Every issue opened by someone who may trigger does.
    pub opened: bool,
    /// What people must be allowed in a repository to trigger: GitHub is asked. `None` without
    /// credentials: then `associations` decide.
    pub permission: Option<PermissionLevel>,
    /// The `author_association`s that may trigger, in capitals.
    pub associations: Vec<String>,
    /// The numeric ids of bots that may trigger.
    pub bots: Vec<u64>,
    /// Assigning this user triggers, unassigning stops.
    pub assignee: u64,
    /// Taking the trigger label off stops.
    pub unlabel_stops: bool,
    /// No work begins on words with parts that GitHub does not show to people.
    pub refuses_hidden: bool,
    /// Which comments without a command are messages to the agent.
    pub follow_up: FollowUpMode,
    /// What happens when a check of the newest pushed commit fails.
    pub on_ci_failure: CiFailureMode,
    /// Our own account: its events never trigger.
    pub bot_user_id: OwnAccount,
    /// Deliveries of other repositories are ignored.
    pub repositories: Vec<RepositoryPattern>,
}

impl TriggerPolicy {
    /// The policies that a configuration asks for.
    pub fn all(triggers: &PerRepository<Triggers>, github: &GitHub) -> TriggerPolicies {
        let own = OwnAccount::from(github.bot_user_id);
        triggers.map(|triggers| Self { bot_user_id: own.clone(), ..Self::new(triggers, github) })
    }

    /// The policy that these triggers ask for.
    pub fn new(triggers: &Triggers, github: &GitHub) -> Self {
        Self {
            label: triggers.label.clone(),
            command: triggers.command.clone(),
            opened: triggers.opened,
            permission: github.login.as_ref().map(|_| triggers.permission),
            associations: triggers.associations.clone(),
            bots: triggers.bots.clone(),
            assignee: triggers.assignee,
            unlabel_stops: triggers.unlabel_stops,
            refuses_hidden: github.hidden == HiddenMode::Refuse,
            follow_up: github.follow_up,
            on_ci_failure: github.on_ci_failure,
            bot_user_id: github.bot_user_id.into(),
            repositories: github.repositories.clone(),
        }
    }

    /// The permission in this repository that people need, if GitHub is asked for it.
    pub fn asked_permission(&self, repository_id: Option<u64>) -> Option<PermissionLevel> {
        self.permission.filter(|_| repository_id != Some(SAMPLE_REPOSITORY_ID))
    }

    /// Whether this is the name of the trigger label.
    pub fn is_trigger_label(&self, name: &str) -> bool {
        !self.label.is_empty() && self.label.to_lowercase() == name.to_lowercase()
    }

    /// Whether deliveries of this repository count.
    pub fn covers(&self, repository: &str) -> bool {
        self.repositories.iter().any(|pattern| pattern.matches(repository))
    }
}
