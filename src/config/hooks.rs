//! `[[templates.X.hooks.NAME]]`, `[templates.X.sync]` and `grace_seconds`: what a template has carried
//! out in its sandboxes at certain moments.

use std::time::Duration;

use super::reader::ConfigReader;
use super::source::Value;
use super::workload::{path, variables};
use crate::types::{HookAction, HookName, HookStep, Hooks, SyncMoments};

/// Most steps of one hook.
const STEPS_MAX: usize = 16;
/// The most bytes of the commands and environments of a template's steps together: each record of a
/// sandbox has a copy.
const HOOKS_LEN_MAX: usize = 32 * 1024;
/// How long a step may take if nothing is said, in seconds.
const TIMEOUT_DEFAULT: u64 = 600;
/// The longest that may be said, in seconds.
const TIMEOUT_MAX: u64 = 24 * 3_600;
/// The longest grace time, in seconds.
const GRACE_MAX: u64 = 3_600;
/// What the names begin with that issuebox gives each step.
const OWN_VARIABLES: &str = "ISSUEBOX_";

/// What steps of hooks need.
#[derive(Clone, Copy)]
pub(super) struct HookNeeds {
    /// Whether the template has a repository checked out.
    pub checkout: bool,
    /// Whether `[sync]` names an object storage.
    pub storage: bool,
}

/// Reads the hooks of a template.
pub(super) fn hooks(
    r: &mut ConfigReader,
    key: &impl Fn(&str) -> String,
    needs: HookNeeds,
) -> Hooks {
    let mut of = |name: HookName| steps(r, &key(&format!("hooks.{}", name.as_str())), needs);
    let [on_cold_start, on_message, on_stream_finish, on_terminate] = HookName::ALL.map(&mut of);
    let default = Hooks::GRACE_DEFAULT.as_secs();
    let grace = Duration::from_secs(r.number(&key("grace_seconds"), default, 1..=GRACE_MAX));
    let hooks = Hooks { on_cold_start, on_message, on_stream_finish, on_terminate, grace };
    if len(&hooks) > HOOKS_LEN_MAX {
        let most = HOOKS_LEN_MAX / 1024;
        let what = format!("has more than {most} KiB of commands and environment");
        r.trouble(format!("{} {what}; call a script of the repository instead", key("hooks")));
    }
    hooks
}

/// Reads when the workspace is pushed by itself.
pub(super) fn sync_moments(
    r: &mut ConfigReader,
    key: &impl Fn(&str) -> String,
    has_storage: bool,
) -> SyncMoments {
    let mut flag = |name: &str| {
        let key = key(&format!("sync.{name}"));
        let is_on = r.flag(&key, false);
        if is_on && !has_storage {
            r.wrong(&key, WITHOUT_STORAGE);
        }
        is_on
    };
    SyncMoments { on_stop: flag("on_stop"), before_delete: flag("before_delete") }
}

const WITHOUT_STORAGE: &str = "needs an object storage; set sync.url";

/// Reads the steps of one hook. Their keys are numbered from 1.
fn steps(r: &mut ConfigReader, table: &str, needs: HookNeeds) -> Vec<HookStep> {
    let numbers = r.table_names(table);
    if let Some(given) = r.take(table)
        && given.value != Value::List(Vec::new())
    {
        r.wrong(table, &format!("must be a list of steps, each below [[{table}]]"));
    }
    if numbers.iter().any(|number| number.parse::<usize>().is_err()) {
        r.trouble(format!("{table} must be a list of steps, each below [[{table}]]"));
    }
    let mut numbers: Vec<usize> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
    numbers.sort_unstable();
    if numbers.len() > STEPS_MAX {
        let many = numbers.len();
        let what = format!("has {many} steps; at most {STEPS_MAX} are possible");
        r.trouble(format!("{table} {what}: join some of them"));
    }
    numbers.iter().filter_map(|number| step(r, &format!("{table}.{number}"), needs)).collect()
}

/// Reads one step; `None` if it says nothing that can be done.
pub(super) fn step(r: &mut ConfigReader, table: &str, needs: HookNeeds) -> Option<HookStep> {
    let key = |part: &str| format!("{table}.{part}");
    // An empty one has no keys, and is reported below.
    r.table_names(table);
    let before = r.problems();
    // A list that cannot be read is one problem: the default passes the check below.
    let command = r.texts(&key("run"), &["unreadable"]);
    let has_command = r.origin(&key("run")).is_some();
    let uses = r.parsed(&key("uses"), None, |word| {
        let known = HookAction::BUILT_IN.iter().filter_map(HookAction::uses);
        let known = known.collect::<Vec<_>>().join(", ");
        HookAction::built_in(word).map(Some).ok_or(format!("must be one of {known}"))
    });
    let cwd = r.parsed(&key("cwd"), None, |text| path(text).map(Some));
    let timeout = r.number(&key("timeout_seconds"), TIMEOUT_DEFAULT, 1..=TIMEOUT_MAX);
    let env = variables(r, &key("env"), |text| match text.contains('\0') {
        true => Err("must not contain NUL bytes".to_owned()),
        false => Ok(text.to_owned()),
    });
    for name in env.keys().filter(|name| name.starts_with(OWN_VARIABLES)) {
        r.wrong(&key(&format!("env.{name}")), "is a name that issuebox sets; choose another");
    }
    let action = match (has_command, uses) {
        (true, Some(_)) => {
            r.wrong(&key("uses"), "and run are both set; keep one");
            return None;
        }
        (true, None) => {
            if command.first().is_none_or(String::is_empty)
                || command.iter().any(|word| word.contains('\0'))
            {
                r.wrong(&key("run"), "must name a program and its arguments, without NUL bytes");
            }
            HookAction::Run(command)
        }
        (false, Some(action)) => action,
        (false, None) => {
            // A value of the wrong kind has been reported already.
            if r.problems() == before {
                r.trouble(format!("{table} needs one of run, uses"));
            }
            return None;
        }
    };
    if action.uses().is_some() {
        for part in ["cwd", "env"] {
            let is_given = match part {
                "cwd" => cwd.is_some(),
                _ => !env.is_empty(),
            };
            if is_given {
                r.wrong(&key(part), "has no effect with uses; remove it");
            }
        }
    }
    match action {
        HookAction::GitCheckout if !needs.checkout => r.wrong(
            &key("uses"),
            "needs a checkout: credentials in [github], and a git.clone other than \"none\"",
        ),
        HookAction::SyncPull | HookAction::SyncPush if !needs.storage => {
            r.wrong(&key("uses"), WITHOUT_STORAGE);
        }
        HookAction::Run(_)
        | HookAction::GitCheckout
        | HookAction::SyncPull
        | HookAction::SyncPush => {}
    }
    Some(HookStep { action, cwd, timeout: Duration::from_secs(timeout), env })
}

fn len(hooks: &Hooks) -> usize {
    let of_step = |step: &HookStep| {
        let command = match &step.action {
            HookAction::Run(command) => command.iter().map(String::len).sum(),
            HookAction::GitCheckout | HookAction::SyncPull | HookAction::SyncPush => 0,
        };
        let env = step.env.iter().map(|(name, value)| name.len() + value.len());
        command + env.sum::<usize>() + step.cwd.as_ref().map_or(0, String::len)
    };
    HookName::ALL.iter().flat_map(|name| hooks.of(*name)).map(of_step).sum()
}
