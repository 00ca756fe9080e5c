//! One issue's sandbox as one value, for programs that use issuebox as a library.
//!
//! [`IssueSandbox::get_or_create`] gives the sandbox of an issue, which is made if there is none, and
//! [`IssueSandbox::open`] one by its id. The value holds what its operations need: row, account, caller,
//! template and provider. So each method takes only what the operation itself needs.
//!
//! ```no_run
//! use issuebox::issue_sandbox::{Depth, IssueRef, IssueSandbox, SandboxContext, SandboxServices};
//! use issuebox::types::AccountName;
//!
//! async fn fix(services: &SandboxServices) -> Result<(), Box<dyn std::error::Error>> {
//!     let context = SandboxContext::new(AccountName::default_account(), "release-bot");
//!     let issue = IssueRef::number("octo/hello", 12)?;
//!     let mut sandbox =
//!         IssueSandbox::get_or_create(services, context, issue, Some("claude-code")).await?;
//!
//!     let mut answer = sandbox.message("fix the flaky test").await?;
//!     while let Some(event) = answer.next().await? {
//!         println!("{}", String::from_utf8_lossy(&event.json));
//!     }
//!     for file in sandbox.files("src", Depth::Tree).await?.entries {
//!         println!("{}", String::from_utf8_lossy(&file.path));
//!     }
//!     let tests = sandbox.exec(["cargo", "test"]).await?;
//!     println!("cargo test ended with {}", tests.exit_code);
//!     Ok(())
//! }
//! ```
//!
//! # Guarantees
//! - What is asked for is checked before anything happens: an empty id or caller, a path out of the
//!   workspace or an unknown template is a typed error, and nothing is created or started.
//! - Where a value is returned, its sandbox runs. Each operation brings a stopped one up first, unless a
//!   person stopped it: that is [`SandboxError::Engine`] with `StoppedByPerson`, and
//!   [`IssueSandbox::start`] starts it.
//! - The store changes before the value does, and both by the issue's actor: a value never shows what is
//!   not durable.
//! - A sandbox that failed says why, and that a retry is a person's or the caller's decision
//!   ([`IssueSandbox::start`]). One that is deleted stays so: get_or_create gives the next.
//!
//! It needs a tokio runtime. [`RunningServer::services`](crate::app::RunningServer::services) gives the
//! services of a server of this process.

mod context;
mod error;
mod output;
mod ready;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::IdSource;
use crate::engine::{Engine, EnsureIssue, SandboxRef};
use crate::hooks::HookRunner;
use crate::issue::Command;
use crate::logs::Logs;
use crate::runs::RunShare;
use crate::sandbox::Provider;
use crate::sync::SyncWorker;
use crate::types::{MetaChange, ProviderName, Sandbox, SandboxId, TemplateName};
use crate::verification::CallersEnsure;

pub use context::{ConversationId, IssueRef, SandboxContext};
pub use error::SandboxError;
pub use output::{ConversationEvents, ExecOutput};
pub use work::Depth;

/// The name under which a sandbox's [`SandboxMeta`](crate::types::SandboxMeta) keeps its conversation.
pub const CONVERSATION: &str = "conversation";

/// The parts of a server with which sandboxes are worked in; cheap to clone.
#[derive(Clone)]
pub struct SandboxServices {
    /// Decides, and knows every sandbox.
    pub engine: Engine,
    /// Gives issues their sandboxes, after asking GitHub about them.
    pub callers: CallersEnsure,
    /// Do the work, by name.
    pub providers: Arc<BTreeMap<ProviderName, Provider>>,
    /// Conversations and runs of agents.
    pub runs: RunShare,
    /// What commands wrote.
    pub logs: Logs,
    /// Syncs workspaces; `None` without an object storage.
    pub sync: Option<SyncWorker>,
    /// Carries the hooks of templates out.
    pub hooks: Arc<HookRunner>,
    /// Ids of requests.
    pub ids: Arc<dyn IdSource>,
    /// How long a sandbox may take until it runs, beside its cold start. Creates with an image that is
    /// pulled first take longest.
    pub startup_max: Duration,
}

impl SandboxServices {
    /// How long a sandbox may take until it runs, its cold start included.
    fn up_within(&self) -> Duration {
        self.startup_max + self.engine.cold_start_time_max()
    }
}

/// The sandbox of one issue. See the [module](self).
pub struct IssueSandbox {
    services: SandboxServices,
    context: SandboxContext,
    sandbox: Sandbox,
    provider: Provider,
}

impl IssueSandbox {
    /// Gives the issue's sandbox, running. It is created from `template` (`None` for the default one) if
    /// the issue has none; one that exists is kept as it is, whatever its template. With credentials
    /// for GitHub, the issue must be open there.
    ///
    /// # Errors
    /// [`SandboxError`]; of wrong parameters before anything happens.
    pub async fn get_or_create(
        services: &SandboxServices,
        context: SandboxContext,
        issue: IssueRef,
        template: Option<&str>,
    ) -> Result<Self, SandboxError> {
        let call = context.begin(services)?;
        let ask = EnsureIssue {
            issue: issue.into_key(),
            template: template.map(TemplateName::trusted),
            provider: None,
            agent_id: None,
            meta: context.meta()?,
            mode: None,
            title: None,
            retry: false,
            cause: call.cause,
        };
        let ensured = services.callers.ensure(&context.account, ask).await?;
        let sandbox = ready::when_up(services, &context.account, ensured.sandbox).await?;
        let mut this = Self::of(services, context, sandbox)?;
        // One that was there may be of another conversation.
        if let Some(conversation) = this.context.conversation.clone()
            && this.conversation() != Some(conversation.as_str())
        {
            this.set_conversation(Some(conversation)).await?;
        }
        Ok(this)
    }

    /// Loads a sandbox by its id, in whichever phase; nothing is started. One read of the store.
    ///
    /// # Errors
    /// [`SandboxError`], as of an id that the account does not have.
    pub async fn open(
        services: &SandboxServices,
        context: SandboxContext,
        id: &str,
    ) -> Result<Self, SandboxError> {
        context.check()?;
        if id.is_empty() {
            return Err(SandboxError::invalid("sandbox id", "is empty"));
        }
        let of = SandboxRef::Id(SandboxId::trusted(id));
        let sandbox = services.engine.sandbox(&context.account, &of).await?;
        Self::of(services, context, sandbox)
    }

    fn of(
        services: &SandboxServices,
        context: SandboxContext,
        sandbox: Sandbox,
    ) -> Result<Self, SandboxError> {
        let provider = services.providers.get(&sandbox.provider).cloned();
        let provider = provider.ok_or(crate::engine::EngineError::ProviderUnknown)?;
        Ok(Self { services: services.clone(), context, sandbox, provider })
    }

    /// The sandbox as it was when this value last heard of it.
    pub const fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The conversation that it belongs to, if one was set.
    pub fn conversation(&self) -> Option<&str> {
        self.sandbox.meta.get(CONVERSATION)
    }

    /// The sandbox as it is now. Nothing is started.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn info(&mut self) -> Result<&Sandbox, SandboxError> {
        let engine = &self.services.engine;
        self.sandbox = engine.sandbox(&self.context.account, &self.reference()).await?;
        Ok(&self.sandbox)
    }

    /// Sets, changes or removes the conversation that the sandbox belongs to. Nothing is started.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn set_conversation(
        &mut self,
        conversation: Option<ConversationId>,
    ) -> Result<(), SandboxError> {
        let call = self.context.begin(&self.services)?;
        let value = conversation.as_ref().map(|id| id.as_str().to_owned());
        let change = MetaChange::Entry(CONVERSATION.to_owned(), value);
        let (engine, account) = (&self.services.engine, &self.context.account);
        self.sandbox = engine.set_meta(account, &self.reference(), change, call.cause).await?;
        self.context.conversation = conversation;
        Ok(())
    }

    /// Starts it if it is stopped, also by a person, or retries what it failed at; returns once it runs.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn start(&mut self) -> Result<&Sandbox, SandboxError> {
        let asked = self.command(Command::Start).await?;
        self.sandbox = ready::when_up(&self.services, &self.context.account, asked).await?;
        Ok(&self.sandbox)
    }

    /// Stops it and keeps its workspace; returns once it is stopped.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn stop(&mut self) -> Result<&Sandbox, SandboxError> {
        let asked = self.command(Command::Stop).await?;
        self.sandbox = ready::when_down(&self.services, &self.context.account, asked).await?;
        Ok(&self.sandbox)
    }

    /// Deletes it with its workspace; returns once it is gone. Deleted already is success.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub async fn terminate(&mut self) -> Result<(), SandboxError> {
        self.command(Command::Delete).await?;
        ready::when_gone(&self.services, &self.context.account, &self.sandbox.id).await?;
        self.info().await?;
        Ok(())
    }

    async fn command(&self, command: Command) -> Result<Sandbox, SandboxError> {
        let call = self.context.begin(&self.services)?;
        let (engine, account) = (&self.services.engine, &self.context.account);
        Ok(engine.command(account, &self.reference(), command, call.cause).await?.sandbox)
    }

    fn reference(&self) -> SandboxRef {
        SandboxRef::Id(self.sandbox.id.clone())
    }
}
