//! Charts, as SVG in the page.

use std::fmt::Write;

use super::table::{escaped, grouped};

/// Distinguishable with any colour vision.
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999",
];

/// How a series is filled: those that come after the last colour begin again, paler.
fn fill(series: usize) -> String {
    let opacity = if series < COLOURS.len() { 1.0 } else { 0.5 };
    let colour = COLOURS[series % COLOURS.len()];
    format!("fill='{colour}' fill-opacity='{opacity}'")
}

/// A bar of a chart.
pub(super) struct Bar {
    /// Which series it belongs to.
    pub(super) series: usize,
    pub(super) value: f64,
    pub(super) label: String,
    /// The least and the most.
    pub(super) spread: Option<(f64, f64)>,
}

/// A chart of horizontal bars in groups.
pub(super) struct Chart<'a> {
    pub(super) series: &'a [String],
    pub(super) groups: Vec<(String, Vec<Bar>)>,
    /// A line across all bars.
    pub(super) line: Option<f64>,
    /// Every tenfold is equally long.
    pub(super) log: bool,
}

impl Chart<'_> {
    /// The picture; nothing without bars.
    pub(super) fn svg(&self) -> Option<String> {
        if self.groups.iter().all(|group| group.1.is_empty()) {
            return None;
        }
        const LEFT: f64 = 170.0;
        const WIDTH: f64 = 560.0;
        const RIGHT: f64 = 130.0;
        const BAR: f64 = 14.0;
        let most = self
            .groups
            .iter()
            .flat_map(|group| &group.1)
            .map(|bar| bar.spread.map_or(bar.value, |s| s.1.max(bar.value)))
            .fold(self.line.unwrap_or(0.0), f64::max)
            .max(1e-9);
        // On a logarithmic scale 1 is at the beginning.
        let x = |value: f64| match self.log {
            false => LEFT + WIDTH * value / most,
            true => LEFT + WIDTH * value.max(1.0).log10() / most.max(10.0).log10(),
        };
        let mut body = String::new();
        let mut y = 8.0;
        for (index, name) in self.series.iter().enumerate() {
            let _ = write!(
                body,
                "<rect x='{LEFT}' y='{y}' width='10' height='10' {}/>\
                 <text x='{}' y='{}'>{}</text>",
                fill(index),
                LEFT + 15.0,
                y + 10.0,
                escaped(name)
            );
            y += 16.0;
        }
        y += 6.0;
        let top = y;
        for (name, bars) in &self.groups {
            let middle = y + BAR * bars.len() as f64 / 2.0 + 4.0;
            let _ = write!(
                body,
                "<text x='{}' y='{middle}' text-anchor='end'>{}</text>",
                LEFT - 8.0,
                escaped(name)
            );
            for bar in bars {
                let _ = write!(
                    body,
                    "<rect x='{LEFT}' y='{y:.1}' width='{:.1}' height='{}' {}/>",
                    (x(bar.value) - LEFT).max(0.5),
                    BAR - 2.0,
                    fill(bar.series)
                );
                let mut end = x(bar.value);
                if let Some((least, most)) = bar.spread {
                    let at = y + BAR / 2.0 - 1.0;
                    let _ = write!(
                        body,
                        "<path d='M{:.1} {at:.1}H{:.1}M{:.1} {:.1}v6M{:.1} {:.1}v6' \
                         stroke='#222' fill='none'/>",
                        x(least),
                        x(most),
                        x(least),
                        at - 3.0,
                        x(most),
                        at - 3.0
                    );
                    end = end.max(x(most));
                }
                let _ = write!(
                    body,
                    "<text x='{:.1}' y='{:.1}'>{}</text>",
                    end + 5.0,
                    y + BAR - 3.5,
                    escaped(&bar.label)
                );
                y += BAR;
            }
            y += 8.0;
        }
        if let Some(line) = self.line {
            let _ = write!(
                body,
                "<path d='M{0:.1} {top}V{y}' stroke='#888' stroke-dasharray='4 3'/>",
                x(line)
            );
        }
        let width = LEFT + WIDTH + RIGHT;
        Some(format!(
            "<svg viewBox='0 0 {width} {y}' width='{width}' height='{y}' role='img' \
             xmlns='http://www.w3.org/2000/svg'>{body}</svg>"
        ))
    }
}

/// A bar with its value beside it.
pub(super) fn bar(series: usize, value: u64) -> Bar {
    Bar {
        series,
        value: value as f64,
        label: grouped(value),
        spread: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_a_bar_for_each_value() {
        let series = ["a".to_string()];
        let chart = |groups, log| Chart {
            series: &series,
            groups,
            line: None,
            log,
        };
        let groups = || vec![("g".to_string(), vec![bar(0, 10), bar(0, 1000)])];
        let svg = chart(groups(), false).svg().unwrap();
        // One for the legend.
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("width='5.6'") && svg.contains("width='560.0'"));
        let svg = chart(groups(), true).svg().unwrap();
        assert!(svg.contains("width='186.7'") && svg.contains("width='560.0'"));
        assert!(chart(Vec::new(), false).svg().is_none());
    }
}
