//! Reads what the machines print: lines of words, and CRIU's statistics.

use std::collections::BTreeMap;

/// What a machine has printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Instructions, by operation (`save`, `restore`, ...) and megabytes; of several runs the last.
    pub(super) counted: BTreeMap<(String, u64), u64>,
    /// Bytes of the image, by megabytes.
    pub(super) bytes: BTreeMap<u64, u64>,
    /// Instructions for which the process stood still, by operation and megabytes.
    pub(super) still: BTreeMap<(String, u64), u64>,
    /// What a call returned, by the way and its name: `right, 0 0`.
    pub(super) calls: BTreeMap<(String, String), String>,
    /// The calls' names in their order.
    pub(super) order: Vec<String>,
    /// The result for a state: `saved`, or `refused` and why.
    pub(super) states: BTreeMap<String, String>,
    pub(super) version: String,
    pub(super) kernel: String,
    pub(super) failures: Vec<String>,
    /// Stretches that were marked.
    pub(super) marks: usize,
    pub(super) ended: bool,
}

impl Said {
    /// Reads a line; `stretches` are the instructions of all marked stretches.
    pub(super) fn line(&mut self, line: &str, stretches: &[u64]) {
        let Some((word, rest)) = line.split_once(' ') else {
            self.ended |= line == "done";
            return;
        };
        let words: Vec<&str> = rest.split(' ').collect();
        let megabytes = || words.get(1)?.parse::<u64>().ok();
        match word {
            "counted" => {
                self.marks += 1;
                let (Some(size), Some(count)) = (megabytes(), stretches.get(self.marks - 1)) else {
                    self.failures.push(format!("not counted: {rest}"));
                    return;
                };
                if words.get(2) != Some(&"0") {
                    self.failures.push(format!("failed: {rest}"));
                }
                self.counted.insert((words[0].into(), size), *count);
            }
            "bytes" => {
                let numbers = (words[0].parse(), words.get(1).map(|word| word.parse()));
                if let (Ok(size), Some(Ok(bytes))) = numbers {
                    self.bytes.insert(size, bytes);
                }
            }
            "statistics" => {
                let frozen = words.get(2).and_then(|hex| frozen_time(hex));
                match (megabytes(), frozen) {
                    // The machine's clock advances by one nanosecond with each instruction.
                    (Some(size), Some(time)) => {
                        self.still.insert((words[0].into(), size), time * 1000);
                    }
                    _ => self.failures.push(format!("not understood: {rest}")),
                }
            }
            "call" => {
                let found = rest.split_once(' ').and_then(|(way, rest)| {
                    let (name, came) = rest.split_once(": ")?;
                    Some((way.to_string(), name.to_string(), came.to_string()))
                });
                if let Some((way, name, came)) = found {
                    if !self.order.contains(&name) {
                        self.order.push(name.clone());
                    }
                    self.calls.insert((way, name), came);
                }
            }
            "state" => {
                if let Some((state, came)) = rest.split_once(": ") {
                    self.states.insert(state.into(), came.trim().into());
                }
            }
            "version" => self.version = rest.trim_start_matches("Version: ").into(),
            "kernel" => self.kernel = rest.into(),
            "failed" => self.failures.push(rest.into()),
            _ => {}
        }
    }

    pub(super) fn count(&self, what: &str, size: u64) -> Option<u64> {
        self.counted.get(&(what.to_string(), size)).copied()
    }
}

/// Microseconds for which a tree was frozen, from CRIU's file `stats-dump` in hexadecimal: behind two magic numbers
/// and a length it has a protobuf message, whose field 1 is another message, whose field 2 is that time.
fn frozen_time(hex: &str) -> Option<u64> {
    let digits = hex.as_bytes();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| u8::from_str_radix(pair?, 16).ok())
        .collect();
    let bytes = bytes?;
    let mut message = Fields(bytes.get(12..)?);
    let (1, Value::Bytes(inner)) = message.next()? else {
        return None;
    };
    Fields(inner).find_map(|field| match field {
        (2, Value::Number(time)) => Some(time),
        _ => None,
    })
}

/// The fields of a protobuf message: number and value.
struct Fields<'a>(&'a [u8]);

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Fields<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.number()?;
        let value = match key & 7 {
            0 => Value::Number(self.number()?),
            2 => {
                let length = usize::try_from(self.number()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::returned;
    use super::*;

    #[test]
    fn what_a_machine_says_is_understood() {
        let mut said = Said::default();
        let lines = [
            "counted save 2 0",
            "counted save 2 0",
            "statistics save 2 4059105506330957240000000a2208af0110b03118901420b01028f8053000388f044000480050035803600068007000",
            "bytes 2 2161434",
            "call goes-on flock: right, 0 0",
            "call goes-on nanosleep: wrong, -1 EINTR, early",
            "end",
            "state tcp-outside: refused Error (criu/x.c:1): no",
            "version Version: 3.17.1",
            "done",
        ];
        for line in lines {
            said.line(line, &[5, 7]);
        }
        assert_eq!(said.count("save", 2), Some(7));
        assert_eq!(said.still[&("save".to_string(), 2)], 6_320_000);
        assert_eq!(said.bytes[&2], 2_161_434);
        assert_eq!(said.order, ["flock", "nanosleep"]);
        assert_eq!(said.version, "3.17.1");
        assert!(said.ended && said.failures.is_empty(), "{said:?}");
        let call = |name: &str| said.calls.get(&("goes-on".to_string(), name.to_string()));
        assert_eq!(returned(call("flock")), "right");
        assert_eq!(returned(call("nanosleep")), "**`EINTR`**");
        assert_eq!(returned(call("pause")), "**never returned**");
        said.line("counted save 64 1", &[5, 7, 9]);
        said.line("counted save 256 0", &[5, 7, 9]);
        assert_eq!(said.failures.len(), 2);
    }

    #[test]
    fn broken_statistics_have_no_time() {
        for hex in [
            "",
            "40",
            "zz",
            "405910550633095724000000ff",
            "40591055063309572400000012",
        ] {
            assert_eq!(frozen_time(hex), None, "{hex}");
        }
    }
}
