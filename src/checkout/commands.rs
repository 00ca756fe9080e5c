//! The commands of a checkout. Each may run again after any of them was killed.

use super::branch::ChosenBranch;

/// What git is called with: no hook of the repository runs, and nothing but the gateway is asked.
pub(super) const GIT: [&str; 7] = [
    "git",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "protocol.allow=never",
    "-c",
    "protocol.http.allow=always",
];

/// Added to the environment of each command.
pub const ENVIRONMENT: [(&str, &str); 3] =
    [("GIT_TERMINAL_PROMPT", "0"), ("GIT_LFS_SKIP_SMUDGE", "1"), ("LC_ALL", "C")];

/// How much of the history is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloneDepth {
    /// All of the branch.
    Full,
    /// All commits, and contents when they are needed.
    Blobless,
    /// The last commit.
    Shallow,
}

/// Who commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committer {
    /// `user.name`
    pub name: String,
    /// `user.email`
    pub email: String,
}

/// What is checked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckoutPlan {
    /// The repository's address at GitHub.
    pub url: String,
    /// The branch that the work begins at.
    pub base: String,
    /// The sandbox's own branch.
    pub branch: ChosenBranch,
    /// How much is fetched.
    pub depth: CloneDepth,
    /// Who commits.
    pub committer: Committer,
}

/// What a failure of a command means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The checkout failed.
    Fail,
    /// Nothing.
    Ignore,
    /// The next command is left out.
    Skip,
    /// The checkout is ready; people read this note.
    Note(&'static str),
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckoutCommand {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// What it means when it fails.
    pub on_failure: OnFailure,
}

/// The commands, in order.
pub fn commands(plan: &CheckoutPlan) -> Vec<CheckoutCommand> {
    let plain = |argv: &[&str], on_failure| CheckoutCommand {
        argv: argv.iter().map(|part| (*part).to_owned()).collect(),
        on_failure,
    };
    let git = |argv: &[&str]| plain(&[&GIT, argv].concat(), OnFailure::Fail);
    let ignored = |argv: &[&str]| plain(&[&GIT, argv].concat(), OnFailure::Ignore);
    let fetched = |name: &str| format!("+refs/heads/{name}:refs/remotes/origin/{name}");
    let mut fetch = vec!["fetch", "--no-tags", "--quiet"];
    match plan.depth {
        CloneDepth::Full => {}
        CloneDepth::Blobless => fetch.push("--filter=blob:none"),
        CloneDepth::Shallow => fetch.push("--depth=1"),
    }
    let base = fetched(&plan.base);
    let own = plan.branch.tip.is_some().then(|| fetched(&plan.branch.name));
    fetch.extend(["origin", base.as_str()]);
    fetch.extend(own.as_deref());
    let from = plan.branch.tip.as_ref().map_or(&plan.base, |_| &plan.branch.name);
    let start = format!("refs/remotes/origin/{from}");
    let name = plan.branch.name.as_str();
    let submodules = "not every submodule could be fetched; list private ones in `git.read`";
    vec![
        // Left by a command that was killed. There may be no directory yet.
        plain(&["find", ".git", "-name", "*.lock", "-type", "f", "-delete"], OnFailure::Ignore),
        git(&["init", "--quiet"]),
        git(&["config", "remote.origin.url", &plan.url]),
        git(&["config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"]),
        git(&["config", "user.name", &plan.committer.name]),
        git(&["config", "user.email", &plan.committer.email]),
        git(&fetch),
        // Without an index no switch has ended: whatever is there, one that was killed has left.
        plain(&["test", "!", "-e", ".git/index"], OnFailure::Skip),
        git(&["switch", "--force", "--quiet", "--no-track", "-C", name, &start]),
        // Later a branch that is there keeps its commits, which may not be pushed. One that has none of its own
        // goes on with what was fetched.
        ignored(&["branch", "--no-track", name, &start]),
        git(&["switch", "--quiet", "--no-guess", name]),
        ignored(&["-c", "advice.diverging=false", "merge", "--quiet", "--ff-only", &start]),
        // Without git-lfs its files are pointers, which is said if there are any.
        plain(&["git", "lfs", "version"], OnFailure::Skip),
        CheckoutCommand {
            on_failure: OnFailure::Note("files of Git LFS could not be fetched"),
            ..git(&["lfs", "pull"])
        },
        plain(&["test", "-f", ".gitmodules"], OnFailure::Skip),
        CheckoutCommand {
            on_failure: OnFailure::Note(submodules),
            ..git(&["submodule", "--quiet", "update", "--init"])
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(tip: Option<&str>, depth: CloneDepth) -> CheckoutPlan {
        let branch =
            ChosenBranch { name: "issuebox/issue-12".to_owned(), tip: tip.map(str::to_owned) };
        CheckoutPlan {
            url: "https://github.com/pear-garden/orchard.git".to_owned(),
            base: "main".to_owned(),
            branch,
            depth,
            committer: Committer { name: "issuebox[bot]".to_owned(), email: "a@b".to_owned() },
        }
    }

    fn lines(plan: &CheckoutPlan) -> Vec<String> {
        let prefix = format!("{} ", GIT.join(" "));
        let line = |command: CheckoutCommand| command.argv.join(" ").replace(&prefix, "git! ");
        commands(plan).into_iter().map(line).collect()
    }

    #[test]
    fn the_work_begins_at_the_base_or_goes_on_where_it_was() {
        let new = lines(&plan(None, CloneDepth::Full));
        let base = "+refs/heads/main:refs/remotes/origin/main";
        assert!(new.contains(&format!("git! fetch --no-tags --quiet origin {base}")), "{new:?}");
        let branch =
            "git! switch --force --quiet --no-track -C issuebox/issue-12 refs/remotes/origin/";
        assert!(new.contains(&format!("{branch}main")), "{new:?}");
        let on = lines(&plan(Some("a"), CloneDepth::Shallow));
        let own = "+refs/heads/issuebox/issue-12:refs/remotes/origin/issuebox/issue-12";
        let fetch = format!("git! fetch --no-tags --quiet --depth=1 origin {base} {own}");
        assert!(on.contains(&fetch), "{on:?}");
        assert!(on.contains(&format!("{branch}issuebox/issue-12")), "{on:?}");
    }
}
