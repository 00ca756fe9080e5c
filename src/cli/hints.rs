//! What to do next after an error of the API, in words of the command line. The API's own hints are
//! for programs and name routes.

use crate::http::error::Code;
use crate::types::Phase;

use super::target::IssueArg;

/// What a verb is about; hints name it.
#[derive(Clone, Debug, Default)]
pub(super) struct HintSubject {
    issue: Option<IssueArg>,
    /// The phase of its sandbox, when it was last looked up.
    phase: Option<Phase>,
}

impl HintSubject {
    /// An issue, and the phase of its sandbox if that was looked up.
    pub fn issue(issue: &IssueArg, phase: Option<&str>) -> Self {
        let phase = phase.and_then(|word| Phase::ALL.iter().copied().find(|p| p.as_str() == word));
        Self { issue: Some(issue.clone()), phase }
    }
}

/// The hint for an error; `None` if the error says it all. `own` is the API's hint.
pub(super) fn hint(code: &str, own: Option<String>, subject: &HintSubject) -> Option<String> {
    let known = Code::ALL.iter().find(|known| known.as_str() == code);
    // With credentials for GitHub the API asks for no id, and says what to do.
    let asks_for_id = own.as_deref().is_none_or(|own| own.contains("issueId"));
    let known = known.filter(|code| **code != Code::IssueUnknown || asks_for_id);
    let written = known.and_then(|code| of_code(*code, subject));
    let issue = subject.issue.as_ref().map_or_else(|| "ISSUE".to_owned(), IssueArg::to_string);
    match (written, &subject.issue) {
        (Some(text), Some(IssueArg::Numbered(repository, number))) => {
            let page = format!("{repository}/issues/{number}");
            Some(text.replace("OWNER/REPO/issues/NUMBER", &page).replace("ISSUE", &issue))
        }
        (Some(text), Some(IssueArg::Word(_)) | None) => Some(text.replace("ISSUE", &issue)),
        (None, _) => own.filter(|own| !names_a_route(own)),
    }
}

/// Whether a hint is for programs that call the API.
fn names_a_route(hint: &str) -> bool {
    ["/v1/", "/readyz", "GET /", "POST /", "PUT /", "DELETE /", "Authorization", "issueId"]
        .iter()
        .any(|word| hint.contains(word))
}

const SYNC: &str = "check [sync] in the server's configuration, and the server's log";
const SAME_VERSION: &str = "server and command line differ in version: issuebox doctor shows both";

/// `None` where the API's hint is right for people, too, or the message says it all.
fn of_code(code: Code, subject: &HintSubject) -> Option<&'static str> {
    Some(match code {
        Code::PathNotAllowed => "name a path inside of the workspace, relative to it",
        Code::SandboxNotFound => "run issuebox ls --deleted to list every sandbox",
        Code::FileNotFound => "run issuebox files ls ISSUE to see what is there",
        Code::RouteNotFound | Code::MethodNotAllowed | Code::UpgradeRequired => SAME_VERSION,
        Code::RequestTimeout => "try again; the connection to the server was too slow",
        Code::SandboxDeleted => "run issuebox ensure ISSUE to create the next one",
        Code::Deleting => "run issuebox ensure ISSUE: the next one is created after the delete",
        Code::NotFailed => "run issuebox get ISSUE to see its phase",
        Code::RunNotFound => "run issuebox runs to list them",
        Code::RunRefused => "run issuebox runs ISSUE to see its state",
        Code::QueueFull => "wait for the run, or end it: issuebox cancel ISSUE",
        Code::AgentUnknown => "set `agent` in the template, or name one of [agents] with --agent",
        Code::TemplateUnknown => "run issuebox templates to see what each of them is",
        Code::TemplateOnly => "name a template that has it: issuebox templates lists them",
        Code::VersionNotFound => "run issuebox sync versions ISSUE to list the versions",
        Code::SyncNotConfigured | Code::SyncFailed => SYNC,
        Code::NotPublished => "run issuebox logs ISSUE to see what its last push said",
        Code::Stopped => START,
        Code::NotRunning => not_running(subject.phase),
        Code::IssueIdConflict => "leave out number or id; issuebox get shows the issue of either",
        Code::IssueUnknown => {
            "add --issue-id ID: the server has not seen this issue, and only GitHub knows its id. \
             It is the field `id` of https://api.github.com/repos/OWNER/REPO/issues/NUMBER \
             (gh api repos/OWNER/REPO/issues/NUMBER --jq .id)"
        }
        Code::IssueClosed => "reopen the issue on GitHub, then run issuebox ensure ISSUE again",
        Code::AccountNotFound => {
            "issuebox account ls lists all; issuebox account set NAME creates one"
        }
        Code::TokenNotFound => "run issuebox token ls to list them",
        Code::AccountConfigured => "change it in the configuration, then reload that with SIGHUP",
        Code::TooManyTokens => "issuebox token rm deletes one",
        Code::DriftOver => "run issuebox drift to list what there is now",
        Code::FileExists => "choose another path; issuebox files mv has --overwrite",
        Code::ProviderUnknown => "configure the provider again, then restart the server",
        Code::RefusedInside => "run issuebox exec ISSUE -- df -h . to see what is full",
        Code::Held => "issuebox holds lists them; it continues when issuebox release ends the hold",
        Code::QuotaExceeded => {
            "issuebox ls shows them and issuebox rm deletes one; a changed quota needs a restart of \
             the server"
        }
        Code::NoRoom => "it continues by itself when there is room; issuebox doctor shows how much",
        Code::PortClosed => {
            "start a server on that port, on 127.0.0.1 or on all addresses of the sandbox"
        }
        Code::ProviderFailed => "run issuebox doctor to see the provider's health",
        Code::Overloaded => "try again in a moment",
        Code::StoreFailed => "run issuebox doctor to see whether the store works again",
        Code::ShuttingDown => "try again when the server is back",
        Code::InvalidRequest
        | Code::Unauthorized
        | Code::BadSignature
        | Code::Forbidden
        | Code::BodyTooLarge
        | Code::RangeNotSatisfiable
        | Code::UnsupportedMediaType
        | Code::BadArchive
        | Code::WrongKind
        | Code::CommandNotFound
        | Code::CannotStart
        | Code::TooManyAttempts
        | Code::NotSupported
        | Code::ProcessNotFound
        | Code::StdinClosed
        | Code::PortNotListed
        | Code::GithubUnavailable => return None,
    })
}

/// By what a sandbox is in place of running.
const fn not_running(phase: Option<Phase>) -> &'static str {
    match phase {
        Some(Phase::Failed) => RETRY,
        Some(Phase::Stopped) => START,
        Some(Phase::Stopping) => "run issuebox start ISSUE to start it again",
        Some(Phase::Creating | Phase::Starting | Phase::Running) => WAIT,
        Some(Phase::Deleting) => "run issuebox ensure ISSUE to create the next one",
        None => "run issuebox get ISSUE to see why",
    }
}

const RETRY: &str = "run issuebox retry ISSUE to try again, or issuebox rm ISSUE; issuebox events \
                     ISSUE shows why it failed";
const WAIT: &str = "run issuebox wait --for=running ISSUE first";
const START: &str = "run issuebox start ISSUE first";

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(phase: &str) -> HintSubject {
        HintSubject::issue(&IssueArg::parse("octo/hello#7").expect("an issue"), Some(phase))
    }

    #[test]
    fn no_hint_is_for_programs() {
        for code in Code::ALL {
            for phase in Phase::ALL.iter().map(|phase| phase.as_str()) {
                let own = Some("wait until it runs: GET /v1/sandboxes/{id}".to_owned());
                let Some(hint) = hint(code.as_str(), own, &subject(phase)) else { continue };
                assert!(!names_a_route(&hint) && !hint.contains("ISSUE"), "{code:?}: {hint}");
            }
        }
        let later =
            |own: &str| hint("of_a_later_version", Some(own.to_owned()), &subject("failed"));
        assert_eq!(later("wait"), Some("wait".to_owned()));
        assert_eq!(later("see DELETE /v1/holds/…"), None);
    }

    #[test]
    fn what_to_do_with_a_sandbox_that_does_not_run_depends_on_its_phase() {
        let of = |code: Code, phase| hint(code.as_str(), None, &subject(phase)).expect("a hint");
        assert_eq!(of(Code::Stopped, "stopped"), "run issuebox start octo/hello#7 first");
        assert_eq!(of(Code::NotRunning, "stopped"), "run issuebox start octo/hello#7 first");
        let retry = "run issuebox retry octo/hello#7 ";
        assert!(of(Code::NotRunning, "failed").starts_with(retry));
        assert!(of(Code::NotRunning, "creating").starts_with("run issuebox wait "));
        let nothing = hint("not_running", None, &HintSubject::default());
        assert_eq!(nothing.as_deref(), Some("run issuebox get ISSUE to see why"));
    }
}
