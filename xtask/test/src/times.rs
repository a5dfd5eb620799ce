//! How long the parts of a run take, for anyone who has to shorten it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many parts are printed.
const LONGEST: usize = 25;
/// For a shorter run nothing is printed.
const LONG: Duration = Duration::from_secs(300);

static TIMES: Mutex<Vec<(String, Duration)>> = Mutex::new(Vec::new());

/// Does some work under a name, and records how long it took.
pub(crate) fn measured<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let mut times = TIMES.lock().unwrap_or_else(PoisonError::into_inner);
    times.push((name.into(), start.elapsed()));
    result
}

/// The kind of the test with this name.
fn kind(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// The report on a run that took `whole`: the sums of each kind, and the parts that took longest.
fn report(mut times: Vec<(String, Duration)>, whole: Duration) -> String {
    if whole < LONG {
        return String::new();
    }
    times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    for (name, time) in &times {
        match kinds.iter_mut().find(|(other, _)| *other == kind(name)) {
            Some((_, sum)) => *sum += time.as_millis() as u64,
            None => kinds.push((kind(name), time.as_millis() as u64)),
        }
    }
    kinds.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(kind, sum)| format!("{kind} {} s", sum / 1000))
        .collect();
    let mut text = format!("time, of all processors: {}\nlongest:\n", kinds.join(", "));
    for (name, time) in times.iter().take(LONGEST) {
        text += &format!("{:>7.1} s  {name}\n", time.as_secs_f64());
    }
    text
}

/// Prints the report, unless the run was short.
pub(crate) fn print(whole: Duration) {
    let times = std::mem::take(&mut *TIMES.lock().unwrap_or_else(PoisonError::into_inner));
    print!("{}", report(times, whole));
}

#[cfg(test)]
mod tests {
    use super::report;
    use std::time::Duration;

    #[test]
    fn the_longest_come_first_and_kinds_are_summed() {
        let seconds = |name: &str, n| (name.to_string(), Duration::from_secs(n));
        let times = vec![
            seconds("host/a", 5),
            seconds("scenario/x/b", 7),
            seconds("host/c", 9),
        ];
        assert_eq!(report(times.clone(), Duration::from_secs(20)), "");
        let text = report(times, Duration::from_secs(400));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "time, of all processors: host 14 s, scenario 7 s");
        assert_eq!(
            lines[2..].iter().map(|l| l.trim()).collect::<Vec<_>>(),
            ["9.0 s  host/c", "7.0 s  scenario/x/b", "5.0 s  host/a"]
        );
    }
}
