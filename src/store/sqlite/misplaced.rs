//! Which issues have another account than the rules give them now, read from the database of a data
//! directory that a server may be using. Nothing is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Row};

use super::SqliteStore;
use super::open::{DATABASE_FILE, OpenError, reader};
use super::schema::MIGRATIONS;
use crate::store::rows::account_rules;
use crate::types::{AccountName, AccountRules, Accounts, IssueOrigin, Repository};

/// Why a database could not be looked through.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// It cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its layout is not this version's.
    #[error(
        "the database {path} has the layout {found}, and this version reads {known}; start this version \
         on it first",
        path = path.display()
    )]
    OtherLayout {
        /// The database.
        path: PathBuf,
        /// Its layout.
        found: u32,
        /// The layout that is read.
        known: u32,
    },
}

/// An issue whose account is another one than the rules say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisplacedIssue {
    /// Its id.
    pub issue: String,
    /// `owner/name#number`, as far as it is known.
    pub place: String,
    /// The account that it has, and keeps.
    pub account: AccountName,
    /// The account that the rules name.
    pub by_rules: AccountName,
}

/// The first issues of that kind, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misplaced {
    /// The first ones, in the order in which they were first seen.
    pub first: Vec<MisplacedIssue>,
    /// How many there are, by the account that they have and the one that the rules name.
    pub counts: BTreeMap<(AccountName, AccountName), u64>,
}

impl SqliteStore {
    /// The issues in the database of `dir` whose account is another one than these rules, with those
    /// that callers created, give them; at most `at_most` are named. `None` if there is no database.
    ///
    /// # Errors
    /// [`LookError`], whose message says what to do.
    pub fn misplaced(
        dir: &Path,
        configured: &BTreeMap<AccountName, AccountRules>,
        at_most: usize,
    ) -> Result<Option<Misplaced>, LookError> {
        let path = dir.join(DATABASE_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let failed = |source| OpenError::from_sqlite(&path, source);
        let conn = reader(&path).map_err(failed)?;
        let found: u32 =
            conn.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
        let known = u32::try_from(MIGRATIONS.len()).expect("migrations are few");
        if found != known {
            return Err(LookError::OtherLayout { path, found, known });
        }
        Ok(Some(look(&conn, configured, at_most).map_err(failed)?))
    }
}

fn look(
    conn: &Connection,
    configured: &BTreeMap<AccountName, AccountRules>,
    at_most: usize,
) -> rusqlite::Result<Misplaced> {
    let accounts = accounts(conn, configured)?;
    let mut misplaced = Misplaced::default();
    // What only callers know has no origin: it is of the account that they act in.
    let mut rows = conn.prepare(
        "SELECT account.name, body ->> '$.facts.issue_id', body ->> '$.facts.repository',
                body ->> '$.facts.number', installation_id
         FROM issue JOIN account ON account.id = issue.account
         WHERE installation_id IS NOT NULL OR body ->> '$.facts.repository' IS NOT NULL
         ORDER BY home",
    )?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let Some(issue) = compare(row, &accounts)? else { continue };
        let key = (issue.account.clone(), issue.by_rules.clone());
        *misplaced.counts.entry(key).or_default() += 1;
        if misplaced.first.len() < at_most {
            misplaced.first.push(issue);
        }
    }
    Ok(misplaced)
}

/// As the server has them when it runs with this configuration.
fn accounts(
    conn: &Connection,
    configured: &BTreeMap<AccountName, AccountRules>,
) -> rusqlite::Result<Accounts> {
    let mut all = BTreeMap::new();
    let mut rows = conn.prepare("SELECT account, body FROM account_rules")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let rules = account_rules(row.get_ref(1)?.as_str()?)?;
        all.insert(AccountName::trusted(row.get_ref(0)?.as_str()?), rules);
    }
    all.extend(configured.clone());
    Ok(all.into())
}

/// The issue of a row, if the rules name another account.
fn compare(row: &Row<'_>, accounts: &Accounts) -> rusqlite::Result<Option<MisplacedIssue>> {
    let account = AccountName::trusted(row.get_ref(0)?.as_str()?);
    let repository: Option<String> = row.get(2)?;
    let installation: Option<i64> = row.get(4)?;
    let origin = IssueOrigin {
        installation: installation.map(i64::cast_unsigned),
        repository: repository.as_deref().and_then(|name| Repository::parse(name).ok()),
    };
    let by_rules = accounts.named_by(&origin).cloned().unwrap_or_else(AccountName::default_account);
    if by_rules == account {
        return Ok(None);
    }
    let number: Option<i64> = row.get(3)?;
    let number = number.map(|number| format!("#{number}")).unwrap_or_default();
    Ok(Some(MisplacedIssue {
        issue: row.get(1)?,
        place: format!("{}{number}", repository.unwrap_or_default()),
        account,
        by_rules,
    }))
}
