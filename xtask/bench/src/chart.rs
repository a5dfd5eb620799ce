//! Charts, as SVG in the page.

use std::fmt::Write;

use super::table::{escaped, grouped, joined};

/// Distinguishable with any colour vision.
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999",
];

/// The fill of a series: after the last colour the colours begin again, paler.
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
    /// The least and the greatest value.
    pub(super) spread: Option<(f64, f64)>,
}

/// A chart of horizontal bars in groups.
pub(super) struct Chart<'a> {
    pub(super) series: &'a [String],
    pub(super) groups: Vec<(String, Vec<Bar>)>,
    /// A line across all bars.
    pub(super) line: Option<f64>,
    /// Whether the scale is logarithmic.
    pub(super) log: bool,
}

/// What is drawn for a bar: value, label, spread.
type Look<'a> = (f64, &'a str, Option<(f64, f64)>);

/// A bar that stands for every series with this value.
struct Merged<'a> {
    bar: &'a Bar,
    /// Indices into the legend.
    entries: Vec<usize>,
}

impl Chart<'_> {
    /// The legend: series that are alike in the whole chart are one entry, and series without bars are
    /// left out. Returns the name of each entry, and the entry of each series.
    fn legend(&self) -> (Vec<String>, Vec<Option<usize>>) {
        let bars_of = |series: usize| -> Vec<Option<Look<'_>>> {
            self.groups
                .iter()
                .map(|(_, bars)| {
                    let bar = bars.iter().find(|bar| bar.series == series)?;
                    Some((bar.value, bar.label.as_str(), bar.spread))
                })
                .collect()
        };
        let mut found: Vec<(Vec<_>, Vec<&str>)> = Vec::new();
        let mut entries = Vec::new();
        for (series, name) in self.series.iter().enumerate() {
            let bars = bars_of(series);
            if bars.iter().all(Option::is_none) {
                entries.push(None);
                continue;
            }
            let entry = found.iter().position(|(other, _)| *other == bars);
            let entry = entry.unwrap_or_else(|| {
                found.push((bars, Vec::new()));
                found.len() - 1
            });
            found[entry].1.push(name);
            entries.push(Some(entry));
        }
        (
            found.iter().map(|(_, names)| joined(names)).collect(),
            entries,
        )
    }

    /// Merges the bars of a group that have the same length.
    fn merge<'a>(bars: &'a [Bar], entries: &[Option<usize>]) -> Vec<Merged<'a>> {
        let mut merged: Vec<Merged> = Vec::new();
        for bar in bars {
            let Some(entry) = entries[bar.series] else {
                continue;
            };
            let same = |other: &&mut Merged| {
                other.bar.label == bar.label && other.bar.spread == bar.spread
            };
            match merged.iter_mut().find(same) {
                Some(other) if other.entries.contains(&entry) => {}
                Some(other) => other.entries.push(entry),
                None => merged.push(Merged {
                    bar,
                    entries: vec![entry],
                }),
            }
        }
        merged
    }

    /// The chart as SVG; `None` without bars.
    pub(super) fn svg(&self) -> Option<String> {
        if self.groups.iter().all(|group| group.1.is_empty()) {
            return None;
        }
        const LEFT: f64 = 170.0;
        const WIDTH: f64 = 560.0;
        const SWATCH: f64 = 12.0;
        const BAR: f64 = 14.0;
        let most = self
            .groups
            .iter()
            .flat_map(|group| &group.1)
            .map(|bar| bar.spread.map_or(bar.value, |s| s.1.max(bar.value)))
            .fold(self.line.unwrap_or(0.0), f64::max)
            .max(1e-9);
        // A logarithmic scale begins at 1.
        let x = |value: f64| match self.log {
            false => LEFT + WIDTH * value / most,
            true => LEFT + WIDTH * value.max(1.0).log10() / most.max(10.0).log10(),
        };
        let (legend, entries) = self.legend();
        // A bar may stand for every series of the legend: room for a colour sample of each.
        let right = 130.0 + SWATCH * legend.len() as f64;
        let mut body = String::new();
        let mut y = 8.0;
        for (index, name) in legend.iter().enumerate() {
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
            let bars = Self::merge(bars, &entries);
            let middle = y + BAR * bars.len() as f64 / 2.0 + 4.0;
            let _ = write!(
                body,
                "<text x='{}' y='{middle}' text-anchor='end'>{}</text>",
                LEFT - 8.0,
                escaped(name)
            );
            for Merged { bar, entries } in bars {
                let _ = write!(
                    body,
                    "<rect x='{LEFT}' y='{y:.1}' width='{:.1}' height='{}' {}/>",
                    (x(bar.value) - LEFT).max(0.5),
                    BAR - 2.0,
                    fill(entries[0])
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
                // The series that share the bar, if there are several.
                for entry in entries.iter().filter(|_| entries.len() > 1) {
                    let _ = write!(
                        body,
                        "<rect x='{:.1}' y='{:.1}' width='9' height='9' {}/>",
                        end + 4.0,
                        y + 1.5,
                        fill(*entry)
                    );
                    end += SWATCH;
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
        let width = LEFT + WIDTH + right;
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
        // One rectangle for the legend.
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("width='5.6'") && svg.contains("width='560.0'"));
        let svg = chart(groups(), true).svg().unwrap();
        assert!(svg.contains("width='186.7'") && svg.contains("width='560.0'"));
        assert!(chart(Vec::new(), false).svg().is_none());
    }

    #[test]
    fn what_does_not_differ_is_one_bar() {
        let series = ["a", "a,irq=optimistic", "b", "silent"].map(String::from);
        let chart = Chart {
            series: &series,
            groups: vec![
                ("g".to_string(), vec![bar(0, 10), bar(1, 10), bar(2, 10)]),
                ("h".to_string(), vec![bar(0, 20), bar(1, 20), bar(2, 30)]),
            ],
            line: None,
            log: false,
        };
        let (legend, entries) = chart.legend();
        assert_eq!(legend, ["a (either irq)", "b"]);
        assert_eq!(entries, [Some(0), Some(0), Some(1), None]);
        let bars = |group: usize| {
            let merged = Chart::merge(&chart.groups[group].1, &entries);
            let of = |m: &Merged| (m.bar.value as u64, m.entries.clone());
            merged.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(bars(0), [(10, vec![0, 1])]);
        assert_eq!(bars(1), [(20, vec![0]), (30, vec![1])]);
        // The legend, three bars, and two samples beside the first.
        assert_eq!(chart.svg().unwrap().matches("<rect").count(), 2 + 3 + 2);
    }
}
