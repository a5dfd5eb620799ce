//! Reads what the machines print: lines of words.

use std::collections::BTreeMap;

use super::{Ran, Switches};
use xtask_build::error::Error;

/// What a machine has printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Instructions of one operation by row, or nanoseconds if those were measured; of several runs the last.
    pub(crate) counted: BTreeMap<String, u64>,
    /// How often the page table was changed and the kernel left meanwhile, in all operations together.
    pub(crate) switches: BTreeMap<String, Switches>,
    /// Checksum and length of what a program wrote.
    pub(crate) came: BTreeMap<String, String>,
    /// The release of the kernel, and the source of its clock.
    pub(crate) kernel: String,
    pub(crate) clock: String,
    /// Its mitigations against Spectre, version 2, which cost something in every call and every change of processes.
    pub(crate) mitigations: String,
    pub(crate) failures: Vec<String>,
}

impl Said {
    /// Collects what a machine's lines and the plugin's counts say.
    ///
    /// # Errors
    /// The machine did not finish its script.
    pub(crate) fn of(ran: &Ran, system: &str) -> Result<Self, Error> {
        let mut said = Self::default();
        let mut stretches = ran.stretches.iter();
        let mut switches = ran.switches.iter();
        let mut ended = false;
        for line in &ran.lines {
            let Some((word, rest)) = line.split_once(' ') else {
                ended |= line == "done";
                continue;
            };
            match word {
                "measured" => said.measured(rest, stretches.next(), switches.next()),
                "came" => {
                    if let Some((name, came)) = rest.split_once(' ') {
                        said.came.insert(name.into(), came.into());
                    }
                }
                "kernel" => said.kernel = rest.into(),
                "clock" => said.clock = rest.into(),
                "mitigations" => said.mitigations = rest.to_lowercase(),
                "failed" => said.failures.push(rest.into()),
                _ => {}
            }
        }
        let left = stretches.count();
        if left > 0 {
            said.failures
                .push(format!("{left} stretches more than were told of"));
        }
        if !ended {
            return Err(Error::new(format!(
                "{system} did not come to its end:\n{}",
                ran.lines.join("\n")
            )));
        }
        Ok(said)
    }

    /// Adds what another machine has printed of other rows.
    pub(crate) fn and(mut self, other: Said) -> Self {
        self.counted.extend(other.counted);
        self.switches.extend(other.switches);
        self.came.extend(other.came);
        self.failures.extend(other.failures);
        self
    }

    /// A line `NAME REPETITIONS STATUS`, and what the plugin measured in the stretch.
    fn measured(&mut self, rest: &str, stretch: Option<&u64>, switches: Option<&Switches>) {
        let words: Vec<&str> = rest.split(' ').collect();
        let operations = words.get(1).and_then(|word| word.parse::<u64>().ok());
        let (Some(count), Some(operations @ 1..)) = (stretch, operations) else {
            self.failures.push(format!("not counted: {rest}"));
            return;
        };
        if words.get(2) != Some(&"0") {
            self.failures.push(format!("failed: {rest}"));
        }
        let each = (count + operations / 2) / operations;
        self.counted.insert(words[0].into(), each);
        if let Some(switches) = switches {
            self.switches.insert(words[0].into(), *switches);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(lines: &[&str], stretches: &[u64]) -> Ran {
        Ran {
            lines: lines.iter().map(ToString::to_string).collect(),
            stretches: stretches.to_vec(),
            switches: Vec::new(),
        }
    }

    #[test]
    fn what_a_machine_says_is_understood() {
        let lines = [
            "kernel 6.1.0-56-amd64",
            "clock tsc",
            "mitigations Retpolines",
            "measured getppid 1000 0",
            "[   12.3] the kernel says something",
            "measured tar 1 0",
            "measured tar 1 0",
            "came tar 123 456",
            "done",
        ];
        let said = Said::of(&ran(&lines, &[348_600, 9, 7]), "Linux").unwrap();
        assert_eq!(said.counted["getppid"], 349);
        assert_eq!(said.counted["tar"], 7);
        assert_eq!(said.came["tar"], "123 456");
        assert_eq!(
            (&said.kernel[..], &said.clock[..]),
            ("6.1.0-56-amd64", "tsc")
        );
        assert_eq!(said.mitigations, "retpolines");
        assert!(said.failures.is_empty(), "{said:?}");
    }

    #[test]
    fn what_failed_is_told() {
        let failures = |lines: &[&str], stretches: &[u64]| {
            let said = Said::of(&ran(lines, stretches), "Linux").unwrap();
            said.failures
        };
        assert_eq!(
            failures(&["measured gcc 1 127", "done"], &[5]),
            ["failed: gcc 1 127"]
        );
        assert_eq!(
            failures(&["measured a 0 0", "measured b 1 0", "done"], &[5]),
            ["not counted: a 0 0", "not counted: b 1 0"]
        );
        assert_eq!(
            failures(&["measured a 1 0", "done"], &[5, 6, 7]),
            ["2 stretches more than were told of"]
        );
        assert_eq!(
            failures(&["failed futex: status 3", "done"], &[]),
            ["futex: status 3"]
        );
        assert!(Said::of(&ran(&["measured a 1 0"], &[5]), "Linux").is_err());
    }
}
