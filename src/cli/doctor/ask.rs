//! Checks of a running server through its API, and of clocks.

use std::time::Duration;

use jiff::fmt::rfc2822;
use serde_json::Value;

use crate::app::doctor::{CLOCK_SLACK, Check};
use crate::clock::{Clock, SystemClock};
use crate::types::Timestamp;

use super::super::client::{ApiAnswer, ApiClient, ApiRequest};
use super::super::failure::CliFailure;
use super::super::table::age;

/// Time limit for another machine to answer with its time.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// All checks of a server.
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

/// A check that could not be made.
pub(super) fn failed(what: &str, error: &anyhow::Error) -> Check {
    let hint = error.downcast_ref::<CliFailure>().and_then(CliFailure::hint);
    Check::broken(what, format!("{error:#}"), hint.unwrap_or("check the server's log"))
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
    let remedy = format!("this command line is version {ours}: use the same version for both");
    Check::noted("server", found, remedy)
}

fn providers(system: &Value) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut reported = Vec::new();
    for provider in system["providers"].as_array().into_iter().flatten() {
        let what = format!("provider {}", provider["name"].as_str().unwrap_or("?"));
        let Some(trouble) = provider["trouble"].as_str() else {
            checks.push(Check::right(&what, "works"));
            continue;
        };
        let name = provider["name"].as_str().unwrap_or_default();
        reported.extend([trouble.to_owned(), format!("{name}: {trouble}")]);
        let remedy = "no action needed: the server retries and resumes by itself";
        let (found, remedy) = trouble.split_once(". ").unwrap_or((trouble, remedy));
        checks.push(Check::broken(&what, found, remedy));
    }
    // Alarms that are not a provider's error.
    let alarms = system["degraded"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for alarm in alarms.filter(|alarm| !reported.iter().any(|known| known == alarm)) {
        // What is wrong with the server's database ends with what to do.
        let damage = alarm.split_once("; ").filter(|_| alarm.starts_with("the database "));
        checks.push(match damage {
            Some((found, remedy)) => Check::broken("records", found, remedy),
            None => {
                let remedy = "run issuebox drift to see both sides and decide";
                Check::broken("drift", alarm, remedy)
            }
        });
    }
    checks
}

/// Whether deliveries arrive and carry a valid signature.
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
        let remedy = "set GitHub's webhook to this server's address followed by /webhooks/github, \
                      with the webhook secret; see docs/";
        return Check::noted(what, "no delivery has arrived yet", remedy);
    };
    let ago = age(at, SystemClock.now());
    if newest == badly_signed {
        let found = format!("the last one, {ago} ago, had an invalid signature");
        let remedy = "set this server's secret at GitHub; unless one is configured, it is in the \
                      file webhook-secret of the data directory";
        return Check::broken(what, found, remedy);
    }
    Check::right(what, format!("the last one arrived {ago} ago"))
}

async fn holds(client: &ApiClient) -> Option<Check> {
    let what = "holds";
    match client.call(ApiRequest::get(&["holds"]).query("limit", Some(1))).await {
        Ok(answer) => match answer.body["total"].as_u64() {
            Some(0) | None => None,
            Some(count) => {
                let widest = answer.data()[0]["id"].as_str().unwrap_or("?");
                let found = format!("{count}, the widest on {widest}: it blocks new sandboxes");
                Some(Check::noted(
                    what,
                    found,
                    "run issuebox holds to list them, issuebox release to end one",
                ))
            }
        },
        Err(failure) => Some(failed(what, &failure.into())),
    }
}

/// Compares this machine's clock with a web server's.
pub(super) async fn clock_of(who: &str, url: &str) -> Check {
    let what = format!("clock of {who}");
    let request = async {
        let http = reqwest::Client::builder()
            .timeout(CLOCK_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("issuebox/", env!("CARGO_PKG_VERSION")))
            .build()?;
        http.head(url).send().await
    };
    let date = match request.await {
        Ok(answer) => answer.headers().get("date").and_then(|d| d.to_str().ok()).map(str::to_owned),
        Err(_unreachable) => None,
    };
    match date {
        Some(date) => compared(&what, who, &date),
        None => Check::noted(
            &what,
            format!("{url} did not send its time, so the clocks were not compared"),
            "no action needed if this machine cannot reach it",
        ),
    }
}

/// Compares this machine's clock with the date of an HTTP answer.
fn compared(what: &str, who: &str, date: &str) -> Check {
    let now = SystemClock.now();
    let theirs =
        rfc2822::parse(date).ok().and_then(|at| Timestamp::parse(&at.timestamp().to_string()));
    let Some(theirs) = theirs else {
        return Check::noted(
            what,
            format!("{who} sent an invalid date: {date:?}"),
            "check its clock",
        );
    };
    let apart = now.since(theirs).max(theirs.since(now));
    if apart <= CLOCK_SLACK {
        return Check::right(what, "in sync with this machine");
    }
    let found = format!("{} s apart: {who} has {theirs}, this machine {now}", apart.as_secs());
    Check::broken(what, found, "correct the wrong one: timedatectl set-ntp true")
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
