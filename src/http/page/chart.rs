//! Charts as SVG. They use only shapes and classes, so the policy needs no exception, and the style
//! sheet sets their colours.

use std::fmt::Write as _;

use maud::{Markup, html};

/// Width and height of the drawing in its own units. It is stretched, so texts are outside of it.
const SIZE: f64 = 100.0;

/// One series of a chart.
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its class in the style sheet.
    pub class: &'static str,
    /// Its value in each span of time, if there is one.
    pub values: Vec<Option<f64>>,
}

/// How series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Stacked areas.
    Areas,
    /// Stacked bars.
    Bars,
    /// One line for each series.
    Lines,
}

/// A chart.
pub struct Chart<'a> {
    /// Its kind.
    pub kind: Kind,
    /// A sentence for people who cannot see it.
    pub says: String,
    /// Its series, the lowest first.
    pub series: &'a [Series],
    /// The time at its left end, such as `24 h ago`.
    pub begins: &'a str,
    /// Formats the numbers of the axis.
    pub number: fn(f64) -> String,
}

/// Draws a chart with its legend.
pub fn draw(chart: &Chart<'_>) -> Markup {
    let top = match chart.kind {
        // So that half of it is a whole number.
        Kind::Areas | Kind::Bars => nice(highest(chart)).max(2.0),
        Kind::Lines => nice(highest(chart)),
    };
    let count = chart.series.iter().map(|one| one.values.len()).max().unwrap_or(0);
    html! {
        figure .chart {
            div .plot {
                div .numbers aria-hidden="true" {
                    @for part in [1.0, 0.5, 0.0] { span { ((chart.number)(part * top)) } }
                }
                svg viewBox={ "0 0 " (SIZE) " " (SIZE) } preserveAspectRatio="none" role="img" aria-label=(chart.says) {
                    @for at in [0.0, 0.5, 1.0] {
                        line .axis x1="0" x2=(SIZE) y1=(at * SIZE) y2=(at * SIZE) {}
                    }
                    @match chart.kind {
                        Kind::Areas | Kind::Bars => (stacked(chart, count, top)),
                        Kind::Lines => {
                            @for one in chart.series {
                                path .curve .(one.class) d=(curve(&one.values, count, top)) {}
                            }
                        }
                    }
                }
                div .times aria-hidden="true" { span { (chart.begins) } span { "now" } }
            }
            ul .legend role="list" aria-label="Legend" {
                @for one in chart.series {
                    li { i .(one.class) .line[chart.kind == Kind::Lines] aria-hidden="true" {} (one.name) }
                }
            }
        }
    }
}

/// Stacked series.
fn stacked(chart: &Chart<'_>, count: usize, top: f64) -> Markup {
    let mut below = vec![0.0; count];
    let mut shapes = Vec::new();
    for one in chart.series {
        let mut above = below.clone();
        for (sum, value) in above.iter_mut().zip(&one.values) {
            *sum += value.unwrap_or(0.0);
        }
        if above != below {
            let path = match chart.kind {
                Kind::Bars => bars(&below, &above, top),
                Kind::Areas | Kind::Lines => area(&below, &above, top),
            };
            shapes.push((one.class, path));
        }
        below = above;
    }
    html! { @for (class, path) in &shapes { path .area .(*class) d=(path) {} } }
}

fn area(below: &[f64], above: &[f64], top: f64) -> String {
    let count = above.len();
    let mut path = String::new();
    let upper = above.iter().enumerate();
    let lower = below.iter().enumerate().rev();
    for (n, (index, value)) in upper.chain(lower).enumerate() {
        // Writing to a string does not fail.
        let _ = write!(
            path,
            "{}{:.1} {:.1}",
            if n == 0 { "M" } else { "L" },
            x(index, count),
            y(*value, top)
        );
    }
    path + "Z"
}

fn bars(below: &[f64], above: &[f64], top: f64) -> String {
    let width = SIZE / above.len().max(1) as f64;
    let mut path = String::new();
    for (index, (low, high)) in below.iter().zip(above).enumerate() {
        if high > low {
            let left = width * index as f64 + width * 0.12;
            let (low, high) = (y(*low, top), y(*high, top));
            let _ = write!(path, "M{left:.1} {low:.1}V{high:.1}h{:.1}V{low:.1}Z", width * 0.76);
        }
    }
    path
}

/// A line with gaps at missing values; a single value is a short stroke.
fn curve(values: &[Option<f64>], count: usize, top: f64) -> String {
    let mut path = String::new();
    let mut is_open = false;
    for (index, value) in values.iter().enumerate() {
        let Some(value) = value else {
            is_open = false;
            continue;
        };
        let (x, y) = (x(index, count), y(*value, top));
        let is_alone = !is_open && values.get(index + 1).is_none_or(Option::is_none);
        let _ = match (is_open, is_alone) {
            (true, _) => write!(path, "L{x:.1} {y:.1}"),
            (false, true) => write!(path, "M{:.1} {y:.1}h1", x - 0.5),
            (false, false) => write!(path, "M{x:.1} {y:.1}"),
        };
        is_open = true;
    }
    path
}

fn x(index: usize, count: usize) -> f64 {
    SIZE * index as f64 / count.saturating_sub(1).max(1) as f64
}

fn y(value: f64, top: f64) -> f64 {
    SIZE - SIZE * (value / top).clamp(0.0, 1.0)
}

/// The highest value, or the highest sum of stacked series.
fn highest(chart: &Chart<'_>) -> f64 {
    let count = chart.series.iter().map(|one| one.values.len()).max().unwrap_or(0);
    let at = |index: usize| {
        let values = chart.series.iter().filter_map(|one| one.values.get(index).copied().flatten());
        match chart.kind {
            Kind::Areas | Kind::Bars => values.sum::<f64>(),
            Kind::Lines => values.fold(0.0, f64::max),
        }
    };
    (0..count).map(at).fold(0.0, f64::max)
}

/// The next round number: 1, 2 or 4 times a power of ten.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 2.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 4.0, 10.0].into_iter().find(|factor| factor * power >= value);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(class: &'static str, values: &[Option<f64>]) -> Series {
        Series { name: class.to_owned(), class, values: values.to_vec() }
    }

    fn drawn(kind: Kind, series: &[Series]) -> String {
        let chart = Chart {
            kind,
            says: "a <chart>".into(),
            series,
            begins: "1 h ago",
            number: |value| format!("{value:.0}"),
        };
        draw(&chart).into_string()
    }

    #[test]
    fn areas_lie_on_top_of_each_other_within_the_drawing() {
        let svg = drawn(
            Kind::Areas,
            &[
                series("running", &[Some(1.0), Some(3.0)]),
                series("failed", &[Some(1.0), Some(1.0)]),
            ],
        );
        assert!(svg.contains("M0.0 75.0L100.0 25.0L100.0 100.0L0.0 100.0Z"), "{svg}");
        assert!(svg.contains("M0.0 50.0L100.0 0.0L100.0 25.0L0.0 75.0Z"), "{svg}");
        assert!(
            svg.contains("<span>4</span><span>2</span><span>0</span>")
                && svg.contains("a &lt;chart&gt;"),
            "{svg}"
        );
        assert!(!svg.contains("style="));
    }

    #[test]
    fn a_line_is_broken_where_there_is_no_value() {
        let values = [Some(1.0), Some(1.0), None, Some(1.0), None];
        let path = curve(&values, values.len(), 1.0);
        assert_eq!(path.matches('M').count(), 2);
        assert_eq!((path.matches('L').count(), path.matches('h').count()), (1, 1));
    }

    #[test]
    fn nothing_at_all_is_an_empty_chart() {
        for kind in [Kind::Areas, Kind::Bars, Kind::Lines] {
            let svg = drawn(kind, &[series("running", &[None; 4])]);
            assert!(!svg.contains("NaN") && svg.contains("now"), "{svg}");
        }
    }

    #[test]
    fn the_axis_ends_at_a_number_that_is_easily_read() {
        let ends: Vec<f64> = [0.0, 1.0, 3.0, 7.0, 12.0, 0.3].into_iter().map(nice).collect();
        assert_eq!(ends, [2.0, 1.0, 4.0, 10.0, 20.0, 0.4]);
    }
}
