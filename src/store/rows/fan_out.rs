//! News of a repository or an installation that wait to be applied, as the body of their row. As in
//! `parts`, the names are what is stored. What deliveries have in columns is not repeated here.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::BadRow;
use crate::issue::{FanOut, Scope, ScopeEvent};
use crate::types::{AccountName, DeliveryId, Repository, Timestamp};

#[derive(Serialize, Deserialize)]
struct FanOutBody<'a> {
    scope: ScopePart<'a>,
    news: NewsPart<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScopePart<'a> {
    Repositories(Cow<'a, [u64]>),
    Installation(u64),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NewsPart<'a> {
    /// The last part is missing in rows that were written before it was kept.
    Renamed(Cow<'a, str>, i64, #[serde(default)] Option<Cow<'a, str>>),
    Stop(Cow<'a, str>),
    LabelGone,
    Noted(Cow<'a, str>),
}

/// The body of the row of `pending` that keeps these news.
///
/// # Errors
/// As for [`IssueRow::encode`](super::IssueRow::encode).
pub(in super::super) fn fan_out_body(fan_out: &FanOut) -> Result<String, BadRow> {
    let FanOut {
        scope,
        news,
        account: _,
        delivery: _,
        received_at: _,
        recovered: _,
        event: _,
        action: _,
    } = fan_out;
    Ok(serde_json::to_string(&FanOutBody {
        scope: match scope {
            Scope::Repositories(ids) => ScopePart::Repositories(Cow::Borrowed(ids)),
            Scope::Installation(id) => ScopePart::Installation(*id),
        },
        news: match news {
            ScopeEvent::Renamed { repository, formerly, as_of } => NewsPart::Renamed(
                Cow::Borrowed(repository.as_str()),
                as_of.unix_ms(),
                formerly.as_ref().map(|name| Cow::Borrowed(name.as_str())),
            ),
            ScopeEvent::Stop(reason) => NewsPart::Stop(Cow::Borrowed(reason)),
            ScopeEvent::LabelGone => NewsPart::LabelGone,
            ScopeEvent::Noted(what) => NewsPart::Noted(Cow::Borrowed(what)),
        },
    })?)
}

/// Reads the news back, together with what is known of their delivery but for its account.
///
/// # Errors
/// [`BadRow::Body`] if it is not such a body.
pub(in super::super) fn fan_out(
    body: &str,
    delivery: DeliveryId,
    received_at: Timestamp,
    recovered: bool,
    event: String,
    action: String,
) -> Result<FanOut, BadRow> {
    let FanOutBody { scope, news } = serde_json::from_str(body)?;
    let scope = match scope {
        ScopePart::Repositories(ids) => Scope::Repositories(ids.into_owned()),
        ScopePart::Installation(id) => Scope::Installation(id),
    };
    let news = match news {
        NewsPart::Renamed(name, as_of, formerly) => ScopeEvent::Renamed {
            repository: Repository::trusted(&*name),
            formerly: formerly.map(|name| Repository::trusted(&*name)),
            as_of: Timestamp::from_unix_ms(as_of),
        },
        NewsPart::Stop(reason) => ScopeEvent::Stop(reason.into_owned()),
        NewsPart::LabelGone => ScopeEvent::LabelGone,
        NewsPart::Noted(what) => ScopeEvent::Noted(what.into_owned()),
    };
    let account = AccountName::default_account();
    Ok(FanOut { account, delivery, received_at, recovered, event, action, scope, news })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_from_before_former_names_were_kept_is_read() {
        let body = r#"{"scope":{"repositories":[7]},"news":{"renamed":["octo/new",5]}}"#;
        let at = Timestamp::from_unix_ms(0);
        let id = DeliveryId::trusted("d".to_owned());
        let read = fan_out(body, id, at, false, "repository".into(), "renamed".into());
        let read = read.expect("a body");
        let ScopeEvent::Renamed { repository, formerly, as_of } = read.news else {
            panic!("it was renamed: {:?}", read.news)
        };
        assert_eq!((repository.as_str(), formerly, as_of.unix_ms()), ("octo/new", None, 5));
    }
}
