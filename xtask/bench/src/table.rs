//! Tables, for the terminal and for the page.

use std::fmt::Write;

/// The number, or a dash.
pub(super) fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "-".into(), grouped)
}

/// With a comma after every three digits.
pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A table: columns aligned, the first to the left.
pub(super) struct Table {
    head: Vec<String>,
    /// Its rows: as many cells as the head.
    pub(super) rows: Vec<Vec<String>>,
    /// Columns that are text.
    left: &'static [usize],
}

impl Table {
    /// A table with this head and no rows; `left` are the columns of text.
    pub(super) fn new<S: AsRef<str>>(head: &[S], left: &'static [usize]) -> Self {
        Self {
            head: head.iter().map(|cell| cell.as_ref().to_string()).collect(),
            rows: Vec::new(),
            left,
        }
    }

    /// Merges rows that differ in this column only; the merged row has all their names there.
    pub(super) fn merge_rows(mut self, column: usize) -> Self {
        let mut merged: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for mut row in self.rows {
            let name = std::mem::take(&mut row[column]);
            match merged.iter_mut().find(|(other, _)| *other == row) {
                Some((_, names)) => names.push(name),
                None => merged.push((row, vec![name])),
            }
        }
        self.rows = merged
            .into_iter()
            .map(|(mut row, names)| {
                row[column] = joined(&names);
                row
            })
            .collect();
        self
    }

    /// For the terminal.
    pub(super) fn text(&self) -> String {
        let columns = self.head.len();
        let widths: Vec<usize> = (0..columns)
            .map(|c| {
                let cells = self.rows.iter().chain([&self.head]);
                cells.map(|row| row[c].chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in [&self.head].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[c] - cell.chars().count());
                let gap = if c > 0 { "  " } else { "" };
                if self.left.contains(&c) {
                    let _ = write!(line, "{gap}{cell}{pad}");
                } else {
                    let _ = write!(line, "{gap}{pad}{cell}");
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// For the page.
    pub(super) fn html(&self) -> String {
        let mut html = String::from("<table><thead><tr>");
        let class = |c: usize| {
            if self.left.contains(&c) {
                " class=l"
            } else {
                ""
            }
        };
        for (c, cell) in self.head.iter().enumerate() {
            let _ = write!(html, "<th{}>{}</th>", class(c), escaped(cell));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (c, cell) in row.iter().enumerate() {
                let _ = write!(html, "<td{}>{}</td>", class(c), escaped(cell));
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table>");
        html
    }
}

/// Merges names of configurations: both maskings of a model are named together.
pub(super) fn joined<S: AsRef<str>>(names: &[S]) -> String {
    const OPTIMISTIC: &str = ",irq=optimistic";
    let has = |name: &str| names.iter().any(|other| other.as_ref() == name);
    let words: Vec<String> = names
        .iter()
        .map(AsRef::as_ref)
        .filter_map(|name| match name.strip_suffix(OPTIMISTIC) {
            Some(model) if has(model) => None,
            None if has(&format!("{name}{OPTIMISTIC}")) => Some(format!("{name} (either irq)")),
            _ => Some(name.to_string()),
        })
        .collect();
    words.join(", ")
}

/// `text` with the characters escaped that HTML reserves.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The quotient, if there is one.
pub(super) fn ratio(count: Option<u64>, base: Option<u64>) -> String {
    match (count, base) {
        (Some(count), Some(base)) if base > 0 => format!("{:.3}", count as f64 / base as f64),
        _ => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(value), text);
        }
        assert_eq!(ratio(Some(1), Some(2)), "0.500");
        assert_eq!(ratio(Some(1), Some(0)), "-");
    }

    #[test]
    fn rows_that_do_not_differ_are_one() {
        let mut table = Table::new(&["name", "n"], &[0]);
        for (name, n) in [
            ("a", "1"),
            ("b", "2"),
            ("c", "1"),
            ("b,irq=optimistic", "2"),
        ] {
            table.rows.push(vec![name.into(), n.into()]);
        }
        let merged = table.merge_rows(0);
        assert_eq!(merged.rows, [["a, c", "1"], ["b (either irq)", "2"]]);
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", "n"], &[0]);
        table.rows.push(vec!["a < b".into(), "10".into()]);
        assert_eq!(table.text(), "name    n\na < b  10\n");
        assert!(table.html().contains("<td class=l>a &lt; b</td>"));
    }
}
