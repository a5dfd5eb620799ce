//! `./fermata syscalls`: the table of entrypoints, and how many there are of each class.
//!
//! The breakdown has the form of Table 1 in Ford et al., *Interface and Execution Models in the
//! Fluke Kernel* (OSDI 1999).

use std::fmt::Write as _;
use std::io::Write as _;

use abi::{Class, Syscall, SYSCALLS};

use xtask_build::error::Error;

const CLASSES: [Class; 4] = [Class::Trivial, Class::Short, Class::Long, Class::MultiStage];

/// Prints the table.
pub fn print() -> Result<u8, Error> {
    // A reader such as `head` may close its end early, which is no failure.
    let _ = std::io::stdout().write_all(table(SYSCALLS).as_bytes());
    Ok(0)
}

fn table(calls: &[Syscall]) -> String {
    let mut text = String::new();
    let names = calls.iter().map(|call| call.name.len()).max().unwrap_or(0);
    let objects = calls
        .iter()
        .map(|call| call.object.len())
        .max()
        .unwrap_or(0);
    for call in calls {
        let (number, name, object, class) =
            (call.number, call.name, call.object, call.class.name());
        let _ = writeln!(
            text,
            "{number:3}  {name:names$}  {object:objects$}  {class}"
        );
    }

    let rows = breakdown(calls);
    let width = rows.iter().map(|row| row.examples.len()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "\n{:11}  {:width$}  Count  Percent",
        "Type", "Examples"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:11}  {:width$}  {:5}  {:6.0}%",
            row.class.name(),
            row.examples,
            row.count,
            row.percent
        );
    }
    let _ = writeln!(
        text,
        "{:11}  {:width$}  {:5}  {:6}%",
        "Total",
        "",
        calls.len(),
        100
    );
    text
}

/// A line of the breakdown.
pub struct Row {
    /// The class.
    pub class: Class,
    /// A few calls of it.
    pub examples: String,
    /// How many there are.
    pub count: usize,
    /// How many of a hundred that is.
    pub percent: f64,
}

/// How many calls there are of each class.
pub fn breakdown(calls: &[Syscall]) -> Vec<Row> {
    let row = |class: Class| {
        let count = calls.iter().filter(|call| call.class == class).count();
        Row {
            class,
            examples: examples(calls, class),
            count,
            percent: percent(count, calls.len()),
        }
    };
    CLASSES.iter().map(|class| row(*class)).collect()
}

/// A few names of calls of this class, of different objects if possible.
fn examples(calls: &[Syscall], class: Class) -> String {
    let mut chosen: Vec<&Syscall> = Vec::new();
    for call in calls.iter().filter(|call| call.class == class) {
        if chosen.len() < 3 && chosen.iter().all(|other| other.object != call.object) {
            chosen.push(call);
        }
    }
    chosen
        .iter()
        .map(|call| call.name)
        .collect::<Vec<_>>()
        .join(", ")
}

#[allow(
    clippy::cast_precision_loss,
    reason = "there are far fewer than 2^52 calls"
)]
fn percent(count: usize, total: usize) -> f64 {
    100.0 * count as f64 / total as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entrypoint_has_a_line_and_the_total_is_last() {
        let text = table(SYSCALLS);
        let lines: Vec<&str> = text.lines().collect();
        for (call, line) in SYSCALLS.iter().zip(&lines) {
            let columns: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(columns.len(), 4, "{line}");
            assert_eq!(columns[0], call.number.to_string());
            assert_eq!(columns[1], call.name);
            assert_eq!(columns[3], call.class.name());
        }
        let last: Vec<&str> = lines[lines.len() - 1].split_whitespace().collect();
        assert_eq!(last, ["Total", &SYSCALLS.len().to_string(), "100%"]);
    }
}
