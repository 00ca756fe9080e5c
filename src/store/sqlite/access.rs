//! Tokens and accounts, as rows.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use super::SqliteStore;
use super::apply::{execute, failed};
use super::read::all;
use crate::store::access::AccessStore;
use crate::store::rows::{BadRow, account_rules, account_rules_body};
use crate::store::{CommitError, StoreError};
use crate::types::{AccountName, AccountRules, ApiToken, Role, Timestamp, TokenDigest, TokenId};

#[async_trait]
impl AccessStore for SqliteStore {
    async fn tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        self.readers.read(|conn| {
            let sql = "SELECT id, digest, name, role, account, created_at, expires_at, last_used_at
                       FROM token ORDER BY created_at, id";
            all(conn, sql, [], token)
        })
    }

    async fn put_token(&self, token: ApiToken) -> Result<(), CommitError> {
        self.change(move |conn| insert(conn, &token)).await
    }

    async fn remove_token(&self, id: &TokenId) -> Result<(), CommitError> {
        let id = id.clone();
        self.change(move |conn| {
            execute(conn, "DELETE FROM session WHERE token = ?1", [id.as_str()])?;
            execute(conn, "DELETE FROM token WHERE id = ?1", [id.as_str()])
        })
        .await
    }

    async fn note_uses(&self, uses: Vec<(TokenId, Timestamp)>) -> Result<(), CommitError> {
        self.change(move |conn| {
            let sql = "UPDATE token SET last_used_at = ?2 WHERE id = ?1";
            let note = |(id, at): &(TokenId, Timestamp)| {
                execute(conn, sql, params![id.as_str(), at.unix_ms()])
            };
            uses.iter().map(note).sum()
        })
        .await
    }

    async fn accounts(&self) -> Result<Vec<(AccountName, AccountRules)>, StoreError> {
        self.readers.read(|conn| {
            let sql = "SELECT account, body FROM account_rules ORDER BY account";
            all(conn, sql, [], |row| {
                let name = AccountName::trusted(row.get_ref(0)?.as_str()?);
                Ok((name, account_rules(row.get_ref(1)?.as_str()?)?))
            })
        })
    }

    async fn put_account(&self, name: AccountName, rules: AccountRules) -> Result<(), CommitError> {
        self.change(move |conn| {
            let body = account_rules_body(&rules).map_err(failed)?;
            execute(
                conn,
                "INSERT INTO account_rules (account, body) VALUES (?1, ?2)
                 ON CONFLICT DO UPDATE SET body = excluded.body",
                params![name.as_str(), body],
            )
        })
        .await
    }
}

fn insert(conn: &Connection, token: &ApiToken) -> Result<usize, CommitError> {
    let ApiToken { id, digest, name, role, account, created_at, expires_at, last_used_at } = token;
    execute(
        conn,
        "INSERT INTO token (id, digest, name, role, account, created_at, expires_at, last_used_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            id.as_str(),
            &digest.0[..],
            name,
            role.as_str(),
            account.as_str(),
            created_at.unix_ms(),
            expires_at.map(Timestamp::unix_ms),
            last_used_at.map(Timestamp::unix_ms),
        ],
    )
}

fn token(row: &Row<'_>) -> rusqlite::Result<ApiToken> {
    let role = row.get_ref(3)?.as_str()?;
    let at = |ms: Option<i64>| ms.map(Timestamp::from_unix_ms);
    Ok(ApiToken {
        id: TokenId::trusted(row.get_ref(0)?.as_str()?),
        digest: TokenDigest(row.get(1)?),
        name: row.get(2)?,
        role: Role::parse(role).ok_or_else(|| BadRow::UnknownWord(role.into()))?,
        account: AccountName::trusted(row.get_ref(4)?.as_str()?),
        created_at: Timestamp::from_unix_ms(row.get(5)?),
        expires_at: at(row.get(6)?),
        last_used_at: at(row.get(7)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::RepositoryPattern;

    #[tokio::test]
    async fn tokens_and_accounts_are_read_back_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = SqliteStore::open(dir.path()).expect("opens");
        let token = |n: u8, role, expires_at| ApiToken {
            id: TokenId::trusted(format!("tok-{n}")),
            digest: TokenDigest([n; 32]),
            name: format!("of {n}"),
            role,
            account: AccountName::trusted("acme"),
            created_at: Timestamp::from_unix_ms(i64::from(n)),
            expires_at,
            last_used_at: None,
        };
        let (at, later) = (Timestamp::from_unix_ms(70), Timestamp::from_unix_ms(90));
        let (one, two) = (token(1, Role::Viewer, None), token(2, Role::Admin, Some(later)));
        store.put_token(two.clone()).await.expect("kept");
        store.put_token(one.clone()).await.expect("kept");
        let uses = vec![(one.id.clone(), at), (TokenId::trusted("gone"), at)];
        store.note_uses(uses).await.expect("kept");
        let acme = AccountRules {
            installations: vec![7],
            owners: vec!["Acme".into()],
            repositories: vec![RepositoryPattern::parse("acme/*").expect("a pattern")],
            disabled: false,
        };
        let disabled = AccountRules { disabled: true, ..AccountRules::default() };
        let name = AccountName::trusted("acme");
        store.put_account(name.clone(), acme).await.expect("kept");
        store.put_account(name.clone(), disabled.clone()).await.expect("kept");
        drop(store);
        let store = SqliteStore::open(dir.path()).expect("opens");
        let one = ApiToken { last_used_at: Some(at), ..one };
        assert_eq!(store.tokens().await, Ok(vec![one, two.clone()]));
        assert_eq!(store.accounts().await, Ok(vec![(name, disabled)]));
        store.remove_token(&TokenId::trusted("tok-1")).await.expect("removed");
        assert_eq!(store.tokens().await, Ok(vec![two]));
    }
}
