//! What follows from tokens and accounts in the background: disabled accounts are held and their
//! sandboxes stopped, and uses of tokens become durable.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;

use crate::access::{Access, USES_NOTED_EVERY};
use crate::config::Config;
use crate::engine::{Engine, SandboxRef};
use crate::http::Feed;
use crate::issue::Command;
use crate::store::session::SessionStore;
use crate::store::sqlite::SqliteStore;
use crate::types::{AccountName, Cause, HoldScope, LoginGrants, Sandbox, Wanted};

/// Who holds a disabled account.
const HELD_BY: &str = "issuebox";
/// Why it is held.
const REASON: &str = "the account is disabled";
/// How long until disabled accounts are looked at again: what failed is tried again, and a create that
/// was under way when its account was disabled has a sandbox by then.
const ROUND_PAUSE: Duration = Duration::from_secs(5);

/// The tokens and accounts, as they are stored and configured.
///
/// # Errors
/// If the store cannot be read.
pub(super) async fn open(config: &Config, store: &Arc<SqliteStore>) -> anyhow::Result<Arc<Access>> {
    let opened = Access::open(Arc::clone(store) as _, config.accounts.clone()).await;
    let access = opened.context("cannot read the tokens and accounts")?;
    access.set_grants(LoginGrants::new(config.auth.grants()));
    Ok(Arc::new(access))
}

/// Carries out what follows from them, until the server stops.
pub(super) fn follow(
    access: &Arc<Access>,
    engine: &Engine,
    feed: &Arc<Feed>,
    sessions: Arc<dyn SessionStore>,
    (io, ended): (&tokio::runtime::Handle, &watch::Receiver<bool>),
) {
    io.spawn(note_uses(Arc::clone(access), ended.clone()));
    io.spawn(end_sessions_without_a_rule(Arc::clone(access), sessions, ended.clone()));
    let (access, feed) = (Arc::clone(access), Arc::clone(feed));
    io.spawn(keep_disabled_down(access, engine.clone(), feed, ended.clone()));
}

/// Ends the sessions of people whose rule is taken away, so that they do not come back with it, until the
/// server stops.
async fn end_sessions_without_a_rule(
    access: Arc<Access>,
    sessions: Arc<dyn SessionStore>,
    mut ended: watch::Receiver<bool>,
) {
    let mut changed = access.changed();
    let mut in_force = None;
    loop {
        changed.mark_unchanged();
        let grants = access.grants();
        if in_force.as_ref() != Some(&grants) {
            let keys = grants.iter().map(|(key, _)| key.to_owned()).collect();
            match sessions.keep_sessions_of(keys).await {
                Ok(()) => in_force = Some(grants),
                Err(error) => {
                    tracing::error!(%error, "cannot end the sessions of people without a rule; trying again");
                }
            }
        }
        tokio::select! {
            // An error means that the owner is gone, so the server ends too.
            _ = ended.wait_for(|ended| *ended) => return,
            change = changed.changed() => if change.is_err() { return },
            () = tokio::time::sleep(ROUND_PAUSE), if in_force.is_none() => {}
        }
    }
}

/// Keeps disabled accounts down, and enabled ones free, until the server stops.
async fn keep_disabled_down(
    access: Arc<Access>,
    engine: Engine,
    feed: Arc<Feed>,
    mut ended: watch::Receiver<bool>,
) {
    let mut changed = access.changed();
    loop {
        changed.mark_unchanged();
        let is_over = round(&access, &engine, &feed).await;
        tokio::select! {
            // An error means that the owner is gone, so the server ends too.
            _ = ended.wait_for(|ended| *ended) => return,
            change = changed.changed() => if change.is_err() { return },
            () = tokio::time::sleep(ROUND_PAUSE), if !is_over => {}
        }
    }
}

/// Holds what is disabled, stops its sandboxes, and releases what is enabled again; whether there is
/// nothing to be looked at again.
async fn round(access: &Access, engine: &Engine, feed: &Feed) -> bool {
    let mut is_over = true;
    for account in access.known_accounts() {
        let scope = HoldScope::Account(account.name.clone());
        let held = engine.holds().into_iter().find(|hold| hold.scope == scope);
        let is_ours = held.as_ref().is_some_and(|hold| hold.by == HELD_BY && hold.reason == REASON);
        let result = match (account.rules.disabled, &held) {
            (true, None) => {
                let by = HELD_BY.to_owned();
                engine.hold(scope, REASON.to_owned(), by).await.map(drop)
            }
            (false, Some(_)) if is_ours => engine.release(&scope).await.map(drop),
            (true, Some(_)) | (false, _) => Ok(()),
        };
        if let Err(error) = result {
            tracing::error!(account = %account.name, %error, "cannot hold or release an account; trying again");
            is_over = false;
        } else if account.rules.disabled {
            stop_all(engine, feed, &account.name).await;
            is_over = false;
        }
    }
    is_over
}

/// Stops every sandbox of an account that should run.
async fn stop_all(engine: &Engine, feed: &Feed, account: &AccountName) {
    let mut running: Vec<Arc<Sandbox>> = Vec::new();
    feed.live.each(account, |sandbox| {
        if sandbox.wanted == Wanted::Running {
            running.push(Arc::clone(sandbox));
        }
    });
    for sandbox in running {
        let of = SandboxRef::Id(sandbox.id.clone());
        let cause = Cause::Caller { name: HELD_BY.to_owned(), request_id: "disabled".to_owned() };
        if let Err(error) = engine.command(account, &of, Command::Stop, cause).await {
            tracing::error!(sandbox = %sandbox.id, %account, %error, "cannot stop a sandbox of a disabled account; trying again");
        }
    }
}

/// Makes uses of tokens durable, once a minute and when the server stops.
async fn note_uses(access: Arc<Access>, mut ended: watch::Receiver<bool>) {
    loop {
        let is_over = tokio::select! {
            // As above.
            _ = ended.wait_for(|ended| *ended) => true,
            () = tokio::time::sleep(USES_NOTED_EVERY) => false,
        };
        if let Err(error) = access.note_uses().await {
            tracing::warn!(%error, "cannot store when tokens were used; trying again");
        }
        if is_over {
            return;
        }
    }
}
