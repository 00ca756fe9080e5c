//! The overview: sandboxes over time, durations of creates, results of deliveries. All is counted
//! from the store, so a restart changes nothing.

use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, get, web};
use maud::{Markup, html};
use tokio::runtime::Handle;

use crate::http::Shared;
use crate::http::api::system::{self, SystemBody};
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::store::StoreError;
use crate::store::report::{Activity, ActivityAsk};
use crate::types::{AccountName, Phase, Timestamp};

use super::chart::{Chart, Kind, Series, draw};
use super::error::PageError;
use super::shell::{Frame, PageSection};
use super::visitor::Visitor;

/// Seconds between updates of the page: counting is expensive, so they are rare.
const POLL_SECS: u32 = 30;

/// The period that the charts show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    Hour,
    Day,
    Week,
}

impl Back {
    const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
        }
    }

    const fn begins(self) -> &'static str {
        match self {
            Self::Hour => "1 h ago",
            Self::Day => "24 h ago",
            Self::Week => "7 d ago",
        }
    }

    /// The number of spans, and the length of one.
    const fn spans(self) -> (usize, Duration) {
        match self {
            Self::Hour => (60, Duration::from_secs(60)),
            Self::Day => (48, Duration::from_secs(30 * 60)),
            Self::Week => (84, Duration::from_secs(2 * 60 * 60)),
        }
    }

    fn ask(self, now: Timestamp) -> ActivityAsk {
        let (count, span) = self.spans();
        let all = span * u32::try_from(count).expect("at most a hundred");
        ActivityAsk { since: now.before(all), span, count }
    }
}

/// The overview.
#[get("/overview")]
pub async fn show(
    shared: web::Data<Shared>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, PageError> {
    let mut query = Query::parse(request.query_string());
    let back = match query.text("back")?.as_deref() {
        None => Back::Day,
        Some(word) => Back::ALL
            .into_iter()
            .find(|back| back.as_str() == word)
            .ok_or_else(|| ApiError::field("back", "must be hour, day or week"))?,
    };
    query.finish()?;
    let frame = Frame::begin(&shared, &visitor, PageSection::Overview, "Overview").await;
    let frame = frame.polled(POLL_SECS);
    let account = visitor.caller.account.clone();
    let server = system::look(&shared, &visitor.caller).await?;
    let activity = read(&shared, account, back.ask(shared.edge.clock.now())).await?;
    Ok(super::html(&frame.render(&render(&server, &activity, back))))
}

/// Counts on a blocking thread.
async fn read(
    shared: &Shared,
    account: AccountName,
    ask: ActivityAsk,
) -> Result<Activity, ApiError> {
    let (reports, here) = (Arc::clone(&shared.edge.reports), Handle::current());
    let count = move || here.block_on(reports.activity(&account, ask));
    let ended =
        |_| StoreError::Failed("the report was aborted: the server is shutting down".into());
    Ok(tokio::task::spawn_blocking(count).await.map_err(ended)??)
}

fn render(server: &SystemBody, activity: &Activity, back: Back) -> Markup {
    let up = super::time::ago(Duration::from_secs(server.uptime_seconds));
    html! {
        div .head {
            h1 { "Overview" }
            p .soft { "Version " (server.version) ", up for " (if up == "now" { "a moment" } else { &up }) }
        }
        section #live data-live aria-label="Overview" {
            nav .tabs aria-label="Period" {
                @for one in Back::ALL {
                    a href={ "/overview?back=" (one.as_str()) } data-key={ "back-" (one.as_str()) }
                        aria-current=[(one == back).then_some("page")] { (one.as_str()) }
                }
            }
            @if activity.is_cut { p .notice .mild data-key="cut" { "The history was too long to count completely: the left ends of the charts are too low." } }
            div .stack {
                (sandboxes(activity, back))
                (creates(activity, back))
                (deliveries(activity, back))
            }
        }
    }
}

fn whole(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Such as `0`, `7 ms`, `1.25 s` or `12 s`.
fn seconds(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if value < 1.0 {
        format!("{:.0} ms", (value * 1000.0).max(1.0))
    } else if value < 10.0 {
        format!("{value:.2} s")
    } else {
        format!("{value:.0} s")
    }
}

fn sandboxes(activity: &Activity, back: Back) -> Markup {
    let over_time = phases_over_time(activity);
    let series: Vec<Series> = Phase::ALL
        .iter()
        .map(|phase| Series {
            name: phase.as_str().to_owned(),
            class: phase.as_str(),
            values: over_time.iter().map(|counts| Some(counts[*phase as usize] as f64)).collect(),
        })
        .filter(|one| one.values.iter().flatten().any(|value| *value > 0.0))
        .collect();
    let total = |counts: &[u64; Phase::ALL.len()]| counts.iter().sum::<u64>();
    let now: u64 = activity.now.iter().map(|(_, count)| count).sum();
    let most = over_time.iter().map(total).max().unwrap_or(now).max(now);
    let says = format!("{now} live sandboxes now, at most {most} since {}.", back.begins());
    html! {
        article .card data-key="chart-sandboxes" {
            h2 { "Sandboxes by phase" }
            p .soft { (says) }
            (draw(&Chart { kind: Kind::Areas, says, series: &series, begins: back.begins(), number: whole }))
        }
    }
}

fn creates(activity: &Activity, back: Back) -> Markup {
    let series = |name: &str, class, permille| Series {
        name: name.to_owned(),
        class,
        values: activity.spans.iter().map(|span| quantile(&span.creates, permille)).collect(),
    };
    let mut all: Vec<Duration> =
        activity.spans.iter().flat_map(|span| span.creates.iter().copied()).collect();
    all.sort_unstable();
    let says = match (quantile(&all, 500), quantile(&all, 990)) {
        (Some(half), Some(most)) => format!(
            "{} since {}: half within {}, 99 in 100 within {}.",
            if all.len() == 1 { "One create".into() } else { format!("{} creates", all.len()) },
            back.begins(),
            seconds(half),
            seconds(most)
        ),
        (_, _) => format!("No create succeeded since {}.", back.begins()),
    };
    let series = [series("half within", "p50", 500), series("99 in 100 within", "p99", 990)];
    html! {
        article .card data-key="chart-creates" {
            h2 { "Time to create" }
            p .soft { (says) }
            (draw(&Chart { kind: Kind::Lines, says, series: &series, begins: back.begins(), number: seconds }))
        }
    }
}

fn deliveries(activity: &Activity, back: Back) -> Markup {
    let spans = &activity.spans;
    let series =
        |name: &str, class, count: fn(&crate::store::report::SpanActivity) -> u64| Series {
            name: name.to_owned(),
            class,
            values: spans.iter().map(|span| Some(count(span) as f64)).collect(),
        };
    let series = [
        series("accepted", "good-bar", |span| span.accepted),
        series("ignored", "soft-bar", |span| span.ignored),
        series("pending or set aside", "mild-bar", |span| span.unfinished),
    ];
    let sum = |index: usize| -> f64 {
        let one: &Series = &series[index];
        one.values.iter().flatten().sum()
    };
    let says = format!(
        "Since {}: {} accepted, {} ignored, {} pending or set aside. Refused ones are not stored.",
        back.begins(),
        sum(0),
        sum(1),
        sum(2)
    );
    html! {
        article .card data-key="chart-deliveries" {
            h2 { "Deliveries by result" }
            p .soft { (says) }
            (draw(&Chart { kind: Kind::Bars, says, series: &series, begins: back.begins(), number: whole }))
        }
    }
}

/// The number of sandboxes in each phase at the end of each span, counted back from now.
fn phases_over_time(activity: &Activity) -> Vec<[u64; Phase::ALL.len()]> {
    let mut counts = [0_i64; Phase::ALL.len()];
    for (phase, count) in &activity.now {
        counts[*phase as usize] = i64::try_from(*count).unwrap_or(i64::MAX);
    }
    let mut over_time = Vec::with_capacity(activity.spans.len());
    for span in activity.spans.iter().rev() {
        // Pruned history can make counts negative; they are shown as zero.
        over_time.push(counts.map(|count| u64::try_from(count).unwrap_or(0)));
        for (count, gain) in counts.iter_mut().zip(span.gains) {
            *count -= gain;
        }
    }
    over_time.reverse();
    over_time
}

/// The quantile in seconds of sorted durations.
fn quantile(sorted: &[Duration], permille: usize) -> Option<f64> {
    let index = (sorted.len() * permille).div_ceil(1000).checked_sub(1)?;
    sorted.get(index).map(Duration::as_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::report::SpanActivity;

    #[test]
    fn what_was_is_counted_back_from_what_is() {
        let gains = |pairs: &[(Phase, i64)]| {
            let mut span = SpanActivity::default();
            for (phase, gain) in pairs {
                span.gains[*phase as usize] = *gain;
            }
            span
        };
        let activity = Activity {
            now: vec![(Phase::Running, 2), (Phase::Failed, 1)],
            spans: vec![
                gains(&[(Phase::Creating, 3)]),
                gains(&[(Phase::Creating, -3), (Phase::Running, 2), (Phase::Failed, 1)]),
                gains(&[]),
            ],
            is_cut: false,
        };
        let over_time = phases_over_time(&activity);
        let of = |phase: Phase| {
            over_time.iter().map(|counts| counts[phase as usize]).collect::<Vec<_>>()
        };
        assert_eq!(of(Phase::Creating), [3, 0, 0]);
        assert_eq!(of(Phase::Running), [0, 2, 2]);
        assert_eq!(of(Phase::Failed), [0, 1, 1]);
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let secs: Vec<Duration> = (1..=100).map(Duration::from_secs).collect();
        assert_eq!(quantile(&secs, 500), Some(50.0));
        assert_eq!(quantile(&secs, 990), Some(99.0));
        assert_eq!(quantile(&secs[..1], 990), Some(1.0));
        assert_eq!(quantile(&[], 500), None);
    }
}
