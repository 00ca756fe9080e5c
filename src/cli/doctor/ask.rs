//! What a server that runs says of itself, and what other clocks say of ours.

use std::time::Duration;

use jiff::fmt::rfc2822;
use serde_json::Value;

use crate::app::doctor::{CLOCK_SLACK, Check};
use crate::clock::{Clock, SystemClock};
use crate::types::Timestamp;

use super::super::client::{ApiAnswer, ApiClient, ApiRequest};
use super::super::failure::CliFailure;
use super::super::table::age;

/// How long another machine may take to tell the time.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that a server says.
pub(super) async fn server(client: &ApiClient) -> Vec<Check> {
    let system = match client.call(ApiRequest::get(&["system"])).await {
        Ok(system) => system,
        Err(failure) => return vec![failed("server", &failure.into())],
    };
    let mut checks = vec![version(&system)];
    if let Some(date) = &system.date {
        checks.push(compared("clock of the server", "the server", date));
    }
    checks.push(match client.call(ApiRequest::at("/readyz")).await {
        Ok(_ready) => Check::right("intake", "deliveries can be stored"),
        Err(failure) => failed("intake", &failure.into()),
    });
    checks.extend(providers(system.data()));
    checks.push(deliveries(client).await);
    checks.extend(holds(client).await);
    checks
}

/// That something could not be asked.
pub(super) fn failed(what: &str, error: &anyhow::Error) -> Check {
    let hint = error.downcast_ref::<CliFailure>().and_then(CliFailure::hint);
    Check::broken(what, format!("{error:#}"), hint.unwrap_or("look at the server's log"))
}

fn version(system: &ApiAnswer) -> Check {
    let ours = env!("CARGO_PKG_VERSION");
    let data = system.data();
    let theirs = data["version"].as_str().unwrap_or("?");
    let up = Duration::from_secs(data["uptimeSeconds"].as_u64().unwrap_or_default());
    let since = age(&SystemClock.now().before(up).to_string(), SystemClock.now());
    let found = format!("answers, version {theirs}, up for {since}");
    if theirs == ours {
        return Check::right("server", found);
    }
    let remedy = format!("this command line is version {ours}: use the same for both");
    Check::noted("server", found, remedy)
}

fn providers(system: &Value) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut told = Vec::new();
    for provider in system["providers"].as_array().into_iter().flatten() {
        let what = format!("provider {}", provider["name"].as_str().unwrap_or("?"));
        let Some(trouble) = provider["trouble"].as_str() else {
            checks.push(Check::right(&what, "works"));
            continue;
        };
        let name = provider["name"].as_str().unwrap_or_default();
        told.extend([trouble.to_owned(), format!("{name}: {trouble}")]);
        let remedy = "nothing is lost: it is tried again, and the server goes on by itself";
        let (found, remedy) = trouble.split_once(". ").unwrap_or((trouble, remedy));
        checks.push(Check::broken(&what, found, remedy));
    }
    // What needs a person, beside the providers' own troubles.
    let alarms = system["degraded"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for alarm in alarms.filter(|alarm| !told.iter().any(|told| told == alarm)) {
        let remedy = "issuebox drift shows both sides, and decides";
        checks.push(Check::broken("drift", alarm, remedy));
    }
    checks
}

/// Whether GitHub's deliveries come, and are signed with our secret.
async fn deliveries(client: &ApiClient) -> Check {
    let what = "deliveries";
    let last = async |status: Option<&str>| {
        let call = ApiRequest::get(&["deliveries"]).query("limit", Some(1)).query("status", status);
        client.call(call).await.map(|answer| answer.data()[0].clone())
    };
    let (newest, badly_signed) = match (last(None).await, last(Some("badly_signed")).await) {
        (Ok(newest), Ok(badly_signed)) => (newest, badly_signed),
        (Err(failure), _) | (_, Err(failure)) => return failed(what, &failure.into()),
    };
    let Some(at) = newest["receivedAt"].as_str() else {
        let remedy = "give GitHub this server's address with /webhooks/github at its end, and the \
                      webhook secret; docs/ tells how";
        return Check::noted(what, "none has come yet", remedy);
    };
    let ago = age(at, SystemClock.now());
    if newest == badly_signed {
        let found = format!("the last one, {ago} ago, was badly signed");
        let remedy = "give GitHub the secret of this server: it is in the data directory as \
                      webhook-secret, where none is configured";
        return Check::broken(what, found, remedy);
    }
    Check::right(what, format!("the last one came {ago} ago"))
}

async fn holds(client: &ApiClient) -> Option<Check> {
    let what = "holds";
    match client.call(ApiRequest::get(&["holds"]).query("limit", Some(1))).await {
        Ok(answer) => match answer.body["total"].as_u64() {
            Some(0) | None => None,
            Some(count) => {
                let widest = answer.data()[0]["id"].as_str().unwrap_or("?");
                let found = format!("{count}, the widest on {widest}: nothing is made there");
                Some(Check::noted(
                    what,
                    found,
                    "issuebox holds lists them, issuebox release ends one",
                ))
            }
        },
        Err(failure) => Some(failed(what, &failure.into())),
    }
}

/// Compares our clock with that of a web server, which need not say anything else.
pub(super) async fn clock_of(who: &str, url: &str) -> Check {
    let what = format!("clock of {who}");
    let asked = async {
        let http = reqwest::Client::builder()
            .timeout(CLOCK_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("issuebox/", env!("CARGO_PKG_VERSION")))
            .build()?;
        http.head(url).send().await
    };
    let date = match asked.await {
        Ok(answer) => answer.headers().get("date").and_then(|d| d.to_str().ok()).map(str::to_owned),
        Err(_unreachable) => None,
    };
    match date {
        Some(date) => compared(&what, who, &date),
        None => Check::noted(
            &what,
            format!("{url} did not tell the time, so ours was not compared"),
            "nothing to do where this machine cannot reach it",
        ),
    }
}

/// Compares our clock with what an HTTP answer was dated.
fn compared(what: &str, who: &str, date: &str) -> Check {
    let now = SystemClock.now();
    let theirs =
        rfc2822::parse(date).ok().and_then(|at| Timestamp::parse(&at.timestamp().to_string()));
    let Some(theirs) = theirs else {
        return Check::noted(
            what,
            format!("{who} dates its answers {date:?}"),
            "look at its clock",
        );
    };
    let apart = now.since(theirs).max(theirs.since(now));
    if apart <= CLOCK_SLACK {
        return Check::right(what, "the same as ours");
    }
    let found = format!("{} s apart: {who} says {theirs}, this machine {now}", apart.as_secs());
    Check::broken(what, found, "set the one that is wrong: timedatectl set-ntp true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::doctor::CheckState;

    #[test]
    fn clocks_may_be_a_minute_apart() {
        let dated = |seconds_ago: i64| {
            let at = SystemClock.now().unix_ms() / 1_000 - seconds_ago;
            let at = jiff::Timestamp::from_second(at).expect("a time");
            compared("clock", "it", &at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()).state
        };
        assert_eq!([dated(0), dated(50), dated(-50)], [CheckState::Right; 3]);
        assert_eq!([dated(70), dated(-70), dated(1_000_000)], [CheckState::Broken; 3]);
        assert_eq!(compared("clock", "it", "soon").state, CheckState::Noted);
    }
}
