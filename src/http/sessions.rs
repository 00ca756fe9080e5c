//! Sessions of the dashboard. They last for some hours.
//!
//! Only the cookie holds a session's secret. The store keeps its SHA-256, so sessions survive a
//! restart, and a stolen database grants no access. The hash of a session that began with the admin
//! token includes that: replacing it ends them all. A session that began with another token ends with
//! it, and that of a person whom GitHub logged in with the rule that let the person in. The form token is derived from the secret, so it is not stored; and from the chosen account, so
//! that a form of a page that shows another account changes nothing.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::access::{Access, KnownToken};
use crate::clock::IdSource;
use crate::engine::EngineError;
use crate::store::CommitError;
use crate::store::session::{GithubPerson, SessionHash, SessionOrigin, SessionRow, SessionStore};
use crate::types::{AccountName, LoginGrant, Role, Timestamp};

use super::admin_token::{LiveToken, TokenHash};
use super::error::ApiError;

/// The name of the cookie.
pub const SESSION_COOKIE: &str = "issuebox_session";
/// The name of the cookie where the public address is https: browsers take such a cookie only from
/// this very host, over https and for all paths (RFC 6265bis, section 4.1.3.2).
pub const SESSION_COOKIE_HTTPS: &str = "__Host-issuebox_session";
/// How long a session lasts: a working day.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Length of a secret, in characters. Cookies of another length are ignored.
const SECRET_LEN: usize = 64;

/// The sessions that have not ended.
#[derive(Clone)]
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    token: LiveToken,
    access: Arc<Access>,
}

/// What a session began with.
#[derive(Clone, Debug)]
pub enum SessionHolder {
    /// The configured admin token.
    Admin(TokenHash),
    /// One that a person created.
    Token(Arc<KnownToken>),
    /// A log-in with GitHub.
    Person(Arc<AdmittedPerson>),
}

/// A person whom GitHub logged in, and the rule that let the person in.
#[derive(Clone, Debug)]
pub struct AdmittedPerson {
    /// The numeric id at GitHub.
    pub user_id: u64,
    /// The login at that time.
    pub login: String,
    /// The rule, which says the role and the account.
    pub grant: LoginGrant,
    /// Its key.
    pub key: String,
}

impl SessionHolder {
    /// As the store keeps it.
    fn origin(&self) -> SessionOrigin {
        match self {
            Self::Admin(_) => SessionOrigin::Admin,
            Self::Token(token) => SessionOrigin::Token(token.id().clone()),
            Self::Person(person) => SessionOrigin::Person(GithubPerson {
                user_id: person.user_id,
                login: person.login.clone(),
                grant: person.key.clone(),
            }),
        }
    }
}

/// A session that was found by its cookie.
#[derive(Clone)]
pub struct SessionKey {
    hash: SessionHash,
    holder: SessionHolder,
    /// The account that the person chose.
    account: Option<AccountName>,
    form_token: String,
}

/// The hash of a session that began with the admin token.
fn hash_of_admin(secret: &str, token: &TokenHash) -> SessionHash {
    let hash = Sha256::new().chain_update(token.as_bytes()).chain_update(secret).finalize();
    SessionHash(hash.into())
}

/// The hash of a session that began with another token, or with GitHub.
fn hash_of_other(secret: &str) -> SessionHash {
    SessionHash(Sha256::digest(format!("session of {secret}")).into())
}

impl SessionKey {
    fn of(secret: &str, holder: SessionHolder, account: Option<AccountName>) -> Self {
        let hash = match &holder {
            SessionHolder::Admin(token) => hash_of_admin(secret, token),
            SessionHolder::Token(_) | SessionHolder::Person(_) => hash_of_other(secret),
        };
        let form_token = match &account {
            None => format!("form token of {secret}"),
            Some(account) => format!("form token of {secret} in {account}"),
        };
        let form_token = hex::encode(Sha256::digest(form_token));
        Self { hash, holder, account, form_token }
    }

    /// The account that it works in.
    pub fn account(&self) -> AccountName {
        let own = || match &self.holder {
            SessionHolder::Admin(_) => AccountName::default_account(),
            SessionHolder::Token(token) => token.account().clone(),
            SessionHolder::Person(person) => person.grant.account.clone(),
        };
        let chosen = self.account.clone().filter(|_| self.role() == Role::Admin);
        chosen.unwrap_or_else(own)
    }

    /// What the person may do.
    pub fn role(&self) -> Role {
        match &self.holder {
            SessionHolder::Admin(_) => Role::Admin,
            SessionHolder::Token(token) => token.role(),
            SessionHolder::Person(person) => person.grant.role,
        }
    }

    /// Whom what it does is recorded of: `page`, or the person's login at GitHub.
    pub fn name(&self) -> Arc<str> {
        match &self.holder {
            SessionHolder::Admin(_) | SessionHolder::Token(_) => Arc::from("page"),
            SessionHolder::Person(person) => Arc::from(format!("github:{}", person.login)),
        }
    }

    /// The hash by which the session is known.
    pub const fn hash(&self) -> SessionHash {
        self.hash
    }

    /// The form token, which forms of this session must contain.
    pub fn form_token(&self) -> &str {
        &self.form_token
    }

    /// Compares a form token in constant time.
    pub fn form_token_matches(&self, given: &str) -> bool {
        self.form_token.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(***)")
    }
}

/// An unguessable secret in hexadecimal.
pub fn new_secret(ids: &dyn IdSource) -> String {
    // A request id has some 70 random bits, but fewer if several are created in one millisecond.
    // Four of them are at least as hard to guess as a 128-bit key.
    let seed: Vec<String> = (0..4).map(|_| ids.request_id()).collect();
    hex::encode(Sha256::digest(seed.concat()))
}

impl Sessions {
    /// Sessions in this store, bound to this admin token and to the tokens that people created.
    pub fn new(store: Arc<dyn SessionStore>, token: LiveToken, access: Arc<Access>) -> Self {
        Self { store, token, access }
    }

    /// Begins a session, and returns the secret for its cookie. If its token was replaced meanwhile,
    /// the session has ended already.
    ///
    /// # Errors
    /// 503 if it cannot be stored.
    pub async fn begin(
        &self,
        holder: SessionHolder,
        ids: &dyn IdSource,
        now: Timestamp,
    ) -> Result<String, ApiError> {
        self.begin_for(holder, SESSION_LIFETIME, ids, now).await
    }

    /// The same for another time.
    ///
    /// # Errors
    /// As for [`Sessions::begin`].
    pub async fn begin_for(
        &self,
        holder: SessionHolder,
        lifetime: Duration,
        ids: &dyn IdSource,
        now: Timestamp,
    ) -> Result<String, ApiError> {
        let secret = new_secret(ids);
        let (ends_at, origin) = (now.after(lifetime), holder.origin());
        let row = SessionRow { ends_at, origin, account: None };
        let hash = SessionKey::of(&secret, holder, None).hash;
        self.store.put_session(hash, row, now).await.map_err(not_stored)?;
        Ok(secret)
    }

    /// The session with this secret, if it has not ended.
    ///
    /// # Errors
    /// 503 if the store cannot be read.
    pub async fn find(&self, secret: &str, now: Timestamp) -> Result<Option<SessionKey>, ApiError> {
        if secret.len() != SECRET_LEN {
            return Ok(None);
        }
        let admin = self.token.in_force();
        let (row, holder) = match self.store.session(hash_of_admin(secret, &admin)).await? {
            Some(row) => (row, SessionHolder::Admin(admin)),
            None => {
                let row = self.store.session(hash_of_other(secret)).await?;
                let holder = row.as_ref().and_then(|row| self.holder(&row.origin, now));
                match (row, holder) {
                    (Some(row), Some(holder)) => (row, holder),
                    (None, _) | (_, None) => return Ok(None),
                }
            }
        };
        let key = SessionKey::of(secret, holder, row.account);
        Ok((row.ends_at > now).then_some(key))
    }

    /// What a session began with, if that admits still. The admin token has sessions of another hash.
    fn holder(&self, origin: &SessionOrigin, now: Timestamp) -> Option<SessionHolder> {
        match origin {
            SessionOrigin::Admin => None,
            SessionOrigin::Token(id) => self.access.token(id, now).map(SessionHolder::Token),
            SessionOrigin::Person(GithubPerson { user_id, login, grant: key }) => {
                let grant = self.access.grant(key)?;
                let (user_id, login, key) = (*user_id, login.clone(), key.clone());
                let admitted = AdmittedPerson { user_id, login, grant, key };
                Some(SessionHolder::Person(Arc::new(admitted)))
            }
        }
    }

    /// Lets a session work in another account from now on. What it opened in the one before ends, and
    /// forms of pages that show that are refused. The caller checks that it is an admin's and that the
    /// account is there.
    ///
    /// # Errors
    /// 503 if that cannot be stored.
    pub async fn choose(&self, session: &SessionKey, account: AccountName) -> Result<(), ApiError> {
        self.store.choose_account(session.hash, account).await.map_err(not_stored)
    }

    /// Whether a session is still open, and works in the account that it worked in.
    ///
    /// # Errors
    /// As for [`Sessions::find`].
    pub async fn is_open(&self, session: &SessionKey, now: Timestamp) -> Result<bool, ApiError> {
        let admits = match &session.holder {
            SessionHolder::Admin(token) => *token == self.token.in_force(),
            SessionHolder::Token(token) => self.access.admits(token, now),
            SessionHolder::Person(person) => self.access.grant(&person.key).is_some(),
        };
        if !admits {
            return Ok(false);
        }
        let row = self.store.session(session.hash).await?;
        Ok(row.is_some_and(|row| row.ends_at > now && row.account == session.account))
    }

    /// Changes with the tokens that people created, with the accounts, and with the rules for log-ins with
    /// GitHub.
    pub fn access_changed(&self) -> watch::Receiver<()> {
        self.access.changed()
    }

    /// Ends a session.
    ///
    /// # Errors
    /// 503 if that cannot be stored.
    pub async fn end(&self, session: &SessionKey) -> Result<(), ApiError> {
        self.store.end_session(session.hash).await.map_err(not_stored)
    }
}

fn not_stored(error: CommitError) -> ApiError {
    match error {
        CommitError::Overloaded => EngineError::Overloaded.into(),
        CommitError::DuplicateDelivery
        | CommitError::AliasTaken
        | CommitError::Fenced
        | CommitError::Damaged { .. }
        | CommitError::Failed(_) => EngineError::StoreFailed(error.to_string()).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::access::NewToken;
    use crate::clock::SystemIds;
    use crate::store::session::{SESSIONS_MAX, SESSIONS_OF_TOKEN_MAX};
    use crate::store::sqlite::SqliteStore;
    use crate::types::{Secret, TokenId};

    fn token(token: &str) -> TokenHash {
        TokenHash::of(&Secret::new(token))
    }

    async fn sessions(dir: &std::path::Path) -> Sessions {
        let store = Arc::new(SqliteStore::open(dir).expect("a store"));
        let access = Access::open(Arc::clone(&store) as _, BTreeMap::new()).await;
        let access = Arc::new(access.expect("it is read"));
        Sessions::new(store, LiveToken::new(token("one")), access)
    }

    fn admin(text: &str) -> SessionHolder {
        SessionHolder::Admin(token(text))
    }

    async fn is_open(sessions: &Sessions, secret: &str, now: Timestamp) -> bool {
        sessions.find(secret, now).await.expect("it is read").is_some()
    }

    #[tokio::test]
    async fn a_session_is_found_until_it_ends_also_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Timestamp::from_unix_ms(0);
        let before = sessions(dir.path()).await;
        let secret = before.begin(admin("one"), &SystemIds, now).await.expect("it begins");
        let other = before.begin(admin("one"), &SystemIds, now).await.expect("it begins");
        drop(before);
        let after = sessions(dir.path()).await;
        assert!(is_open(&after, &secret, now).await);
        assert!(!is_open(&after, &"0".repeat(64), now).await && !is_open(&after, "x", now).await);
        assert!(!is_open(&after, &secret, now.after(SESSION_LIFETIME)).await);
        let key = after.find(&secret, now).await.expect("it is read").expect("it has not ended");
        after.token.replace(token("two"));
        assert!(!is_open(&after, &secret, now).await, "the admin token is another");
        assert!(!after.is_open(&key, now).await.expect("it is read"), "for what goes on, too");
        let late = after.begin(admin("one"), &SystemIds, now).await.expect("it begins");
        assert!(!is_open(&after, &late, now).await, "it was shown before that");
        after.token.replace(token("one"));
        after.end(&key).await.expect("it ends");
        assert!(!is_open(&after, &secret, now).await && is_open(&after, &other, now).await);
    }

    #[tokio::test]
    async fn a_session_ends_with_the_token_that_it_began_with() {
        let dir = tempfile::tempdir().expect("a directory");
        let sessions = sessions(dir.path()).await;
        let now = Timestamp::from_unix_ms(0);
        let (name, account) = ("a".to_owned(), AccountName::default_account());
        let new = NewToken { name, role: Role::Viewer, account, lifetime: None };
        let (token, _) = sessions.access.create_token(new, 1, now).await.expect("it is created");
        let known = sessions.access.token(&token.id, now).expect("it admits");
        let holder = SessionHolder::Token(known);
        let secret = sessions.begin(holder, &SystemIds, now).await.expect("it begins");
        let key = sessions.find(&secret, now).await.expect("it is read").expect("it goes on");
        assert_eq!((key.role(), key.account()), (Role::Viewer, AccountName::default_account()));
        assert!(sessions.is_open(&key, now).await.expect("it is read"));
        sessions.access.remove_token(&token.id).await.expect("it is removed");
        assert!(!sessions.is_open(&key, now).await.expect("it is read"));
        assert!(!is_open(&sessions, &secret, now).await);
    }

    #[test]
    fn form_tokens_belong_to_one_session_and_do_not_show_its_secret() {
        let (a, b) =
            (SessionKey::of("one", admin("t"), None), SessionKey::of("two", admin("t"), None));
        assert!(a.form_token_matches(a.form_token()));
        assert!(!a.form_token_matches(b.form_token()));
        assert!(!a.form_token_matches("") && a.form_token() != "one");
    }

    /// Keeps a session of a token, and returns its hash.
    async fn keep(sessions: &Sessions, token: Option<&str>, ends_at: i64) -> SessionHash {
        let origin = token
            .map_or(SessionOrigin::Admin, |token| SessionOrigin::Token(TokenId::trusted(token)));
        keep_of(sessions, origin, ends_at).await
    }

    fn person(user_id: u64) -> SessionOrigin {
        let (login, grant) = ("mona".to_owned(), format!("rule of {user_id}"));
        SessionOrigin::Person(GithubPerson { user_id, login, grant })
    }

    async fn keep_of(sessions: &Sessions, origin: SessionOrigin, ends_at: i64) -> SessionHash {
        let hash = SessionHash(Sha256::digest(new_secret(&SystemIds)).into());
        let ends_at = Timestamp::from_unix_ms(ends_at);
        let row = SessionRow { ends_at, origin, account: None };
        let now = Timestamp::from_unix_ms(0);
        sessions.store.put_session(hash, row, now).await.expect("it is kept");
        hash
    }

    async fn is_kept(sessions: &Sessions, hash: SessionHash) -> bool {
        sessions.store.session(hash).await.expect("it is read").is_some()
    }

    #[tokio::test]
    async fn a_token_with_many_sessions_ends_its_own_that_ends_first_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let sessions = sessions(dir.path()).await;
        let of_admin = keep(&sessions, None, 1).await;
        let of_other = keep(&sessions, Some("other"), 1).await;
        let first = keep(&sessions, Some("greedy"), 2).await;
        let mut last = first;
        for _ in 0..SESSIONS_OF_TOKEN_MAX {
            last = keep(&sessions, Some("greedy"), 3).await;
        }
        assert!(!is_kept(&sessions, first).await && is_kept(&sessions, last).await);
        assert!(is_kept(&sessions, of_admin).await && is_kept(&sessions, of_other).await);
    }

    #[tokio::test]
    async fn sessions_of_a_person_end_with_the_rule_and_make_room_among_themselves() {
        let dir = tempfile::tempdir().expect("a directory");
        let sessions = sessions(dir.path()).await;
        let of_admin = keep(&sessions, None, 1).await;
        let of_other = keep_of(&sessions, person(8), 1).await;
        let first = keep_of(&sessions, person(7), 2).await;
        let mut last = first;
        for _ in 0..SESSIONS_OF_TOKEN_MAX {
            last = keep_of(&sessions, person(7), 3).await;
        }
        assert!(!is_kept(&sessions, first).await && is_kept(&sessions, last).await);
        assert!(is_kept(&sessions, of_admin).await && is_kept(&sessions, of_other).await);
        sessions.store.keep_sessions_of(vec!["rule of 8".to_owned()]).await.expect("stored");
        assert!(!is_kept(&sessions, last).await, "its rule is not among them");
        assert!(is_kept(&sessions, of_admin).await && is_kept(&sessions, of_other).await);
    }

    #[tokio::test]
    async fn when_all_room_is_taken_the_token_with_the_most_sessions_makes_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let sessions = sessions(dir.path()).await;
        let only = keep(&sessions, Some("only"), 1).await;
        let greedy = keep(&sessions, Some("t-1"), 2).await;
        let mut latest = only;
        for one in 1..SESSIONS_MAX {
            let token = format!("t-{}", one % 20);
            latest = keep(&sessions, Some(&token), 3).await;
        }
        // `t-1` had 51 of them, and the others at most 50.
        assert!(!is_kept(&sessions, greedy).await && is_kept(&sessions, latest).await);
        let late = keep(&sessions, Some("late"), 1).await;
        assert!(is_kept(&sessions, only).await && is_kept(&sessions, late).await);
    }

    #[tokio::test]
    async fn a_session_works_in_the_account_that_an_admin_chose() {
        let dir = tempfile::tempdir().expect("a directory");
        let sessions = sessions(dir.path()).await;
        let now = Timestamp::from_unix_ms(0);
        let secret = sessions.begin(admin("one"), &SystemIds, now).await.expect("it begins");
        let find = async || sessions.find(&secret, now).await.expect("it is read").expect("it is");
        let before = find().await;
        sessions.choose(&before, AccountName::trusted("acme")).await.expect("it is chosen");
        let after = find().await;
        assert_eq!(after.account().as_str(), "acme");
        assert!(!after.form_token_matches(before.form_token()), "of a page of another account");
        let is_open = async |key| sessions.is_open(key, now).await.expect("it is read");
        assert!(!is_open(&before).await && is_open(&after).await);
        sessions.end(&after).await.expect("it ends");
        sessions.choose(&after, AccountName::trusted("acme")).await.expect("no harm");
        assert!(sessions.find(&secret, now).await.expect("it is read").is_none(), "it is over");
        // A session of another role has the account of its token, whatever the row says.
        let viewer = SessionHolder::Token(KnownToken::for_test("viewer"));
        let viewer = SessionKey::of("s", viewer, Some(AccountName::trusted("acme")));
        assert_eq!(viewer.account(), AccountName::default_account());
    }
}
