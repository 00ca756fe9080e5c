//! Who may do what: the tokens of the API and the accounts, in memory for every request, and durable
//! before anybody hears of a change; and the configured rules by which people log in with GitHub.
//!
//! # Guarantees
//! - A token that was removed or has expired, and one of a disabled account, is refused from that
//!   moment on; [`Access::changed`] notifies the streams that began before.
//! - Of two accounts of one name the one of the configuration counts. One that is taken out of the
//!   configuration stays, disabled: what it has does not fall to another account.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::watch;

use crate::store::access::AccessStore;
use crate::store::{CommitError, StoreError};
use crate::types::{
    AccountName, AccountRules, Accounts, ApiToken, IssueOrigin, LoginGrant, LoginGrants, Role,
    Secret, Timestamp, TokenDigest, TokenId, token_of,
};

/// How often uses of tokens become durable.
pub const USES_NOTED_EVERY: Duration = Duration::from_secs(60);

/// A token that admits its bearer.
#[derive(Debug)]
pub struct KnownToken {
    token: ApiToken,
    /// Unix milliseconds; 0 for never.
    last_used: AtomicI64,
    noted: AtomicI64,
}

impl KnownToken {
    fn of(token: ApiToken) -> Arc<Self> {
        let used = token.last_used_at.map_or(0, Timestamp::unix_ms);
        Arc::new(Self { token, last_used: used.into(), noted: used.into() })
    }

    /// One of this id, for tests.
    #[cfg(test)]
    pub fn for_test(id: &str) -> Arc<Self> {
        Self::of(ApiToken {
            id: TokenId::trusted(id),
            digest: TokenDigest::of(id),
            name: id.to_owned(),
            role: Role::Viewer,
            account: AccountName::default_account(),
            created_at: Timestamp::from_unix_ms(0),
            expires_at: None,
            last_used_at: None,
        })
    }

    /// What is known of it, its last use included.
    pub fn token(&self) -> ApiToken {
        let used = self.last_used.load(Ordering::Relaxed);
        let last_used_at = (used > 0).then(|| Timestamp::from_unix_ms(used));
        ApiToken { last_used_at, ..self.token.clone() }
    }

    /// Its id.
    pub const fn id(&self) -> &TokenId {
        &self.token.id
    }

    /// What a person called it.
    pub fn name(&self) -> &str {
        &self.token.name
    }

    /// What its bearer may do.
    pub const fn role(&self) -> Role {
        self.token.role
    }

    /// The account whose sandboxes its bearer sees.
    pub const fn account(&self) -> &AccountName {
        &self.token.account
    }

    /// When it expires; `None` for never.
    pub const fn expires_at(&self) -> Option<Timestamp> {
        self.token.expires_at
    }
}

/// What a new token is to be.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// What a person calls it.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// The account whose sandboxes its bearer sees.
    pub account: AccountName,
    /// How long it is valid; `None` for ever.
    pub lifetime: Option<Duration>,
}

/// An account as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAccount {
    /// Its name.
    pub name: AccountName,
    /// Its rules.
    pub rules: AccountRules,
    /// Whether it is in the configuration, which alone can change it.
    pub is_configured: bool,
}

/// Why tokens or accounts were not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// There is no such account.
    #[error("there is no account {0}")]
    AccountUnknown(AccountName),
    /// The account is in the configuration, which alone can change it.
    #[error("the account {0} is in the configuration")]
    AccountConfigured(AccountName),
    /// There are as many tokens as there may be.
    #[error("there are {0} tokens already")]
    TooManyTokens(usize),
    /// The system gave no random bytes.
    #[error("the system has no random numbers")]
    NoRandomness,
    /// The change is not durable.
    #[error(transparent)]
    Write(#[from] CommitError),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] StoreError),
}

/// The tokens and the accounts in force.
pub struct Access {
    store: Arc<dyn AccessStore>,
    state: RwLock<AccessState>,
    changes: watch::Sender<()>,
    /// One change at a time, since what is stored and what is in force are two sets.
    one_at_a_time: tokio::sync::Mutex<()>,
}

struct AccessState {
    configured: BTreeMap<AccountName, AccountRules>,
    stored: BTreeMap<AccountName, AccountRules>,
    accounts: Arc<Accounts>,
    tokens: HashMap<TokenDigest, Arc<KnownToken>>,
    grants: Arc<LoginGrants>,
}

impl AccessState {
    fn merge(&mut self) {
        let mut all = self.stored.clone();
        all.extend(self.configured.clone());
        self.accounts = Arc::new(all.into());
    }
}

impl Access {
    /// What is stored, with the accounts of the configuration.
    ///
    /// # Errors
    /// [`AccessError`].
    pub async fn open(
        store: Arc<dyn AccessStore>,
        configured: BTreeMap<AccountName, AccountRules>,
    ) -> Result<Self, AccessError> {
        let known = |token: ApiToken| (token.digest, KnownToken::of(token));
        let tokens = store.tokens().await?.into_iter().map(known).collect();
        let mut stored: BTreeMap<_, _> = store.accounts().await?.into_iter().collect();
        for name in configured
            .keys()
            .filter(|name| !stored.contains_key(*name))
            .cloned()
            .collect::<Vec<_>>()
        {
            let gone = AccountRules::without_configuration();
            store.put_account(name.clone(), gone.clone()).await?;
            stored.insert(name, gone);
        }
        let (accounts, grants) = (Arc::default(), Arc::default());
        let mut state = AccessState { configured, stored, accounts, tokens, grants };
        state.merge();
        let state = RwLock::new(state);
        Ok(Self {
            store,
            state,
            changes: watch::Sender::default(),
            one_at_a_time: Default::default(),
        })
    }

    fn read<T>(&self, look: impl FnOnce(&AccessState) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut AccessState) -> T) -> T {
        let changed = change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner));
        self.changes.send_replace(());
        changed
    }

    /// Changes with every token and every account.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The accounts in force.
    pub fn accounts(&self) -> Arc<Accounts> {
        self.read(|state| Arc::clone(&state.accounts))
    }

    /// Every account, by name.
    pub fn known_accounts(&self) -> Vec<KnownAccount> {
        self.read(|state| {
            let known = |(name, rules): (&AccountName, &AccountRules)| KnownAccount {
                name: name.clone(),
                rules: rules.clone(),
                is_configured: state.configured.contains_key(name),
            };
            state.accounts.iter().map(known).collect()
        })
    }

    /// Whether there is an account of this name.
    pub fn has_account(&self, name: &AccountName) -> bool {
        self.accounts().get(name).is_some()
    }

    /// Whether an account is disabled; one that is not there (any more) is.
    pub fn is_disabled(&self, name: &AccountName) -> bool {
        self.accounts().get(name).is_none_or(|rules| rules.disabled)
    }

    /// The account whose rules name this origin, else `default`.
    pub fn account_of(&self, origin: &IssueOrigin) -> AccountName {
        let accounts = self.accounts();
        accounts.named_by(origin).cloned().unwrap_or_else(AccountName::default_account)
    }

    /// Takes over the accounts of a configuration that was read again.
    pub fn configure(&self, configured: BTreeMap<AccountName, AccountRules>) {
        self.change(|state| {
            let before = std::mem::replace(&mut state.configured, configured);
            for name in before.into_keys() {
                state.stored.entry(name).or_insert_with(AccountRules::without_configuration);
            }
            state.merge();
        });
    }

    /// Takes over the rules by which people log in with GitHub: who came in by a rule that is not among
    /// them is refused from now on.
    pub fn set_grants(&self, grants: LoginGrants) {
        self.change(|state| state.grants = Arc::new(grants));
    }

    /// The rules by which people log in with GitHub, in their order.
    pub fn grants(&self) -> Arc<LoginGrants> {
        self.read(|state| Arc::clone(&state.grants))
    }

    /// The rule with this key, if those whom it let in are admitted still: it is in force, and its
    /// account is not disabled.
    pub fn grant(&self, key: &str) -> Option<LoginGrant> {
        let grant = self.grants().get(key)?.clone();
        (grant.role == Role::Admin || !self.is_disabled(&grant.account)).then_some(grant)
    }

    /// Puts an account, in place of one of that name. Durable when it returns.
    ///
    /// # Errors
    /// [`AccessError`].
    pub async fn put_account(
        &self,
        name: AccountName,
        rules: AccountRules,
    ) -> Result<KnownAccount, AccessError> {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        if self.read(|state| state.configured.contains_key(&name)) {
            return Err(AccessError::AccountConfigured(name));
        }
        self.store.put_account(name.clone(), rules.clone()).await?;
        self.change(|state| {
            state.stored.insert(name.clone(), rules.clone());
            state.merge();
        });
        Ok(KnownAccount { name, rules, is_configured: false })
    }

    /// The token with this digest, if it has not expired; its use is remembered.
    pub fn find(&self, digest: &TokenDigest, now: Timestamp) -> Option<Arc<KnownToken>> {
        let token = self.read(|state| state.tokens.get(digest).map(Arc::clone))?;
        token.token.is_valid(now).then(|| {
            token.last_used.fetch_max(now.unix_ms(), Ordering::Relaxed);
            token
        })
    }

    /// The token of this id, if it admits its bearer now.
    pub fn token(&self, id: &TokenId, now: Timestamp) -> Option<Arc<KnownToken>> {
        let find = |state: &AccessState| state.tokens.values().find(|it| it.id() == id).cloned();
        self.read(find).filter(|token| self.admits(token, now))
    }

    /// Whether a token that was found before admits its bearer still.
    pub fn admits(&self, token: &KnownToken, now: Timestamp) -> bool {
        token.token.is_valid(now)
            && self.read(|state| state.tokens.contains_key(&token.token.digest))
            && (token.role() == Role::Admin || !self.is_disabled(token.account()))
    }

    /// Every token, the oldest first, those that have expired included.
    pub fn tokens(&self) -> Vec<ApiToken> {
        let mut all: Vec<_> =
            self.read(|state| state.tokens.values().map(|token| token.token()).collect());
        all.sort_by(|a: &ApiToken, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        all
    }

    /// Creates a token, if there are fewer than `at_most`, and returns it with what is known of it. Durable
    /// when it returns.
    ///
    /// # Errors
    /// [`AccessError`].
    pub async fn create_token(
        &self,
        new: NewToken,
        at_most: usize,
        now: Timestamp,
    ) -> Result<(ApiToken, Secret), AccessError> {
        let NewToken { name, role, account, lifetime } = new;
        let mut random = [0; 48];
        SystemRandom::new().fill(&mut random).map_err(|_| AccessError::NoRandomness)?;
        let (of_secret, of_id) = random.split_first_chunk().expect("48 are more than 32");
        let secret = token_of(*of_secret);
        let token = ApiToken {
            id: TokenId::trusted(format!("tok-{}", hex::encode(&of_id[..8]))),
            digest: TokenDigest::of(secret.expose()),
            name,
            role,
            account,
            created_at: now,
            expires_at: lifetime.map(|lifetime| now.after(lifetime)),
            last_used_at: None,
        };
        let _one_at_a_time = self.one_at_a_time.lock().await;
        if !self.has_account(&token.account) {
            return Err(AccessError::AccountUnknown(token.account));
        }
        if self.read(|state| state.tokens.len()) >= at_most {
            return Err(AccessError::TooManyTokens(at_most));
        }
        self.store.put_token(token.clone()).await?;
        self.change(|state| state.tokens.insert(token.digest, KnownToken::of(token.clone())));
        Ok((token, secret))
    }

    /// Removes a token; whether there was one. Durable, and refused, when this returns.
    ///
    /// # Errors
    /// [`CommitError`]; it admits its bearer still.
    pub async fn remove_token(&self, id: &TokenId) -> Result<bool, CommitError> {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        self.store.remove_token(id).await?;
        Ok(self.change(|state| {
            let before = state.tokens.len();
            state.tokens.retain(|_, token| token.id() != id);
            state.tokens.len() < before
        }))
    }

    /// Makes the uses since the last call durable.
    ///
    /// # Errors
    /// [`CommitError`]; they are noted with the next call.
    pub async fn note_uses(&self) -> Result<(), CommitError> {
        let known: Vec<_> = self.read(|state| state.tokens.values().cloned().collect());
        let used = |token: &Arc<KnownToken>| {
            let at = token.last_used.load(Ordering::Relaxed);
            (at > token.noted.load(Ordering::Relaxed)).then(|| (Arc::clone(token), at))
        };
        let uses: Vec<_> = known.iter().filter_map(used).collect();
        if uses.is_empty() {
            return Ok(());
        }
        let rows =
            uses.iter().map(|(token, at)| (token.id().clone(), Timestamp::from_unix_ms(*at)));
        self.store.note_uses(rows.collect()).await?;
        for (token, at) in uses {
            token.noted.store(at, Ordering::Relaxed);
        }
        Ok(())
    }
}
